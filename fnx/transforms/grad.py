"""``grad``, ``value_and_grad``, ``vjp``: public faces of the reverse walk.

    grad(f)(x):  trace f on a fresh leaf  ->  walk back from the result (reverse.py)
                 ->  put x in the place of the leaf

The result is nodes over x: inside another trace it is part of that graph, outside the whole of
it runs as one. The leaf knows the value of x where x has one, so f may use Python's ``if``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, ParamSpec, TypeVar, overload

from fnx.core import build
from fnx.core.array import tree
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.array.containers import register_pytree_node
from fnx.core.array.public import public
from fnx.core.array.trace import Traced, inline, name_of, rewriting, trace
from fnx.core.cache import Cache
from fnx.core.errors import ArgumentError, GradError, PytreeError
from fnx.core.record import Record
from fnx.core.uop import UOp, substitute
from fnx.transforms.ad.arguments import Layout, flatten, like
from fnx.transforms.ad.reverse import linearize, pullback
from fnx.transforms.ad.rules import Cotangent
from fnx.transforms.ad.structural import Activity, Linearized
from fnx.transforms.transformed import Transformed

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

MAX_LINEARIZED = 64  # bodies that vjp remembers: a function made anew at each call has an equal one
_linearized: Cache[tuple[UOp, Activity], Linearized] = Cache("linearized bodies", MAX_LINEARIZED)


def grad(fun: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
         allow_int: bool = False) -> Transformed[P, Any]:
    """The gradient of a function with a scalar result.

    >>> import fnx
    >>> fnx.grad(lambda x: x ** 3)(2.0)
    Array(12., dtype=float32, weak_type=True)

    Args:
        fun: returns a float scalar, or (scalar, aux) if ``has_aux``.
        argnums: the positional argument to differentiate in, or several.
        has_aux: whether ``fun`` returns a pair whose second part is only handed on.
        allow_int: take integer arguments; their gradient is zeros of dtype float0.

    Returns:
        A function with the arguments of ``fun`` that returns a gradient like argument
        ``argnums`` (a tuple of them for several), or (gradient, aux).

    Raises:
        GradError: the result is not a float scalar, or an argument is not of floats.
    """
    return _Gradient(fun, argnums=argnums, has_aux=has_aux, allow_int=allow_int)


def value_and_grad(fun: Callable[P, R], argnums: int | Sequence[int] = 0,
                   has_aux: bool = False, allow_int: bool = False
                   ) -> Transformed[P, tuple[R, Any]]:
    """The value and the gradient of a function with a scalar result, computed together.

    >>> import fnx
    >>> fnx.value_and_grad(lambda x: x * x)(3.0)
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))

    Args:
        fun: returns a float scalar, or (scalar, aux) if ``has_aux``.
        argnums: the positional argument to differentiate in, or several.
        has_aux: whether ``fun`` returns a pair whose second part is only handed on.
        allow_int: take integer arguments; their gradient is zeros of dtype float0.

    Returns:
        A function that returns (value, gradient), or ((value, aux), gradient).

    Raises:
        GradError: the result is not a float scalar, or an argument is not of floats.
    """
    return _ValueAndGradient(fun, argnums=argnums, has_aux=has_aux, allow_int=allow_int)


class _ValueAndGradient(Transformed[P, R]):
    kind = "value_and_grad"
    does = "The value and its gradient. Takes the arguments of the function."

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        argnums, has_aux, allow_int = self._options.values()
        chosen = _positions(argnums, len(args), self._name)

        def of_chosen(*given: Any) -> Any:
            filled = list(args)
            for i, x in zip(chosen, given):
                filled[i] = x
            return self._f(*filled, **kwargs)

        given, layout = flatten(args, chosen, allow_int)
        inputs = [x for x in given if x._dtype.is_float]
        values = [x._node for x in inputs]
        traced = trace(of_chosen, layout.floats(given), layout.tree, values, by="grad",
                       name=self._name, has_aux=has_aux)
        nodes = rewriting(_with_gradients, traced, values)
        value, aux = traced.filled(nodes)
        found = layout.gradients([Array(g, x.weak) for g, x in
                                  zip(nodes[len(nodes) - len(inputs):], inputs)])
        gradient = found[0] if isinstance(argnums, int) else found
        return ((value, aux) if has_aux else value), gradient


def _with_gradients(traced: Traced, values: Sequence[UOp]) -> list[UOp]:
    """What a function returned, then the gradients of its leaves, which have these values."""
    loss, leaves, nodes = _loss(traced), traced.leaves, traced.nodes
    seed = Cotangent(build.like(loss._node, 1))
    outs, cts = pullback(nodes, [seed, *[None] * (len(nodes) - 1)], leaves)
    grads = [build.like(leaf, 0) if ct is None else ct.value for leaf, ct in zip(leaves, cts)]
    return substitute([*outs, *grads], dict(zip(leaves, values)))


class _Gradient(_ValueAndGradient[P, R]):
    kind = "grad"
    does = "The gradient. Takes the arguments of the function."

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value, gradient = super().apply(args, kwargs)
        return (gradient, value[1]) if self._options["has_aux"] else gradient


@overload
def vjp(fun: Callable[..., R], *primals: Any, has_aux: Literal[False] = False
        ) -> tuple[R, Pullback]: ...


@overload
def vjp(fun: Callable[..., tuple[R, S]], *primals: Any, has_aux: Literal[True]
        ) -> tuple[R, Pullback, S]: ...


def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The result of a function, and the function that pulls a cotangent back to its arguments.

    >>> import fnx
    >>> y, pull = fnx.vjp(lambda x: x * x, 3.0)
    >>> pull(1.0)
    (Array(6., dtype=float32, weak_type=True),)

    Args:
        fun: takes ``primals``; returns a pytree, or (pytree, aux).
        primals: pytrees of arrays, where the derivative is taken.
        has_aux: whether ``fun`` returns a pair whose second part is only handed on.

    Returns:
        (result, pull) or (result, pull, aux). ``pull(cotangent)`` takes a cotangent like the
        result and returns a tuple of cotangents, one for each primal. It reads saved results
        of the forward pass instead of computing it again, and is a pytree of these.
    """
    out, pull, aux = _vjp(fun, primals, has_aux)
    return (out, pull, aux) if has_aux else (out, pull)


@public
def _vjp(fun: Callable[..., Any], primals: tuple[Any, ...], has_aux: bool) -> Any:
    given, layout = flatten(primals, range(len(primals)), allow_int=True)
    values = [x._node for x in given if x._dtype.is_float]
    traced = trace(fun, layout.floats(given), layout.tree, values, by="vjp", name=name_of(fun),
                   has_aux=has_aux)
    closed = traced.close()
    args = [*values, *closed.captures]
    floats = tuple([i for i, a in enumerate(closed.outs) if a.dtype.is_float])
    key = closed.function, Activity(tuple(range(len(values))), floats)
    form = _linearized.find(key, lambda: linearize(*key))
    nodes = inline(closed.function if form.forward is None else form.forward, args)
    saved = [Array(args[i] if kind == "input" else nodes[i])
             for kind, i in form.sources if kind != "cotangent"]
    pull = Pullback(saved, _Plan(form.backward, form.sources, tuple([i for i, _ in form.given]),
                                 closed.out_tree, closed.outs, layout))
    out, aux = traced.filled(nodes)
    return out, pull, aux


def _positions(argnums: int | Sequence[int], n: int, name: str) -> list[int]:
    out = []
    for i in (argnums,) if isinstance(argnums, int) else argnums:
        if not -n <= i < n:
            raise ArgumentError(f"grad of {name}: expected argnums among {n} positional "
                                f"arguments, got {argnums}",
                                hint="pass the argument by position, not by name")
        out.append(i % n)
    return out


def _loss(traced: Traced) -> Array:
    """The scalar to differentiate."""
    if traced.out_tree.container is not None:
        raise GradError(f"expected a scalar result, got {traced.out_tree}",
                        hint="return one number; hand on the rest with has_aux=True")
    loss, = traced.outs
    if loss.shape != () or not loss._dtype.is_float:
        raise GradError(f"expected a float scalar as result, got {loss._aval}",
                        hint="reduce it with .sum() or .mean(), or use vjp for other results"
                        if loss.shape else "convert it with .astype(float32)")
    return loss


class _Plan(Record):
    """What a Pullback knows besides its saved arrays."""

    backward: UOp
    sources: tuple[tuple[str, int], ...]
    results: tuple[int | None, ...]  # of backward, one for each float input
    out_tree: tree.TreeDef
    outs: tuple[Aval, ...]
    layout: Layout


class Pullback:
    """What ``vjp`` returns: linear, from a cotangent of the result to those of the primals."""

    __slots__ = ("saved", "plan")

    def __init__(self, saved: Sequence[Array], plan: _Plan) -> None:
        self.saved, self.plan = tuple(saved), plan

    def __call__(self, cotangent: Any) -> tuple[Any, ...]:
        return _pull(self, cotangent)


@public
def _pull(self: Pullback, cotangent: Any) -> tuple[Any, ...]:
    plan = self.plan
    given = _cotangents(plan, cotangent)
    saved = iter(self.saved)
    operands = [given[i] if kind == "cotangent" else next(saved)._node
                for kind, i in plan.sources]
    found = inline(plan.backward, operands)
    floats = [a for a in plan.layout.avals if a.dtype.is_float]
    return plan.layout.gradients(
        [Array(build.const(0, a.dtype, a.shape) if i is None else found[i], a.weak)
         for a, i in zip(floats, plan.results)])


def _cotangents(plan: _Plan, cotangent: Any) -> list[UOp]:
    """The float cotangents as nodes, checked against the result."""
    leaves, structure = tree.flatten(cotangent)
    if structure != plan.out_tree:
        raise PytreeError(f"expected a cotangent like the result, {plan.out_tree}; got "
                          f"{structure}", hint="give one array for each array of the result")
    return [like(x, aval, "a cotangent", "the result")
            for x, aval in zip(leaves, plan.outs) if aval.dtype.is_float]


register_pytree_node(Pullback, lambda p: (p.saved, p.plan),
                          lambda plan, saved: Pullback(saved, plan))
