"""``grad``, ``value_and_grad``, ``vjp``: public faces of the reverse walk.

    grad(f)(x):  trace f on a fresh leaf  ->  walk back from the result (reverse.py)
                 ->  put x in the place of the leaf

The result is nodes over x: inside another trace it is part of that graph, outside the whole of
it runs as one. The leaf knows the value of x where x has one, so f may use Python's ``if``.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from fnx.core import build
from fnx.core.array import tree
from fnx.core.array.array import Array, asarray, public
from fnx.core.array.trace import Aval, close, inline, tracing
from fnx.core.dtypes import DType
from fnx.core.errors import (
    ArgumentError,
    DTypeError,
    FnxError,
    GradError,
    PytreeError,
    ShapeError,
)
from fnx.core.ops import Shape
from fnx.core.uop import UOp, substitute
from fnx.transforms.ad.reverse import Cotangent, Pattern, call_forms, pullback

# The gradient of an integer: no information, in JAX's dtype for it.
FLOAT0 = np.dtype([("float0", np.void, 0)])


def grad(fun: Callable[..., Any], argnums: int | Sequence[int] = 0, has_aux: bool = False,
         allow_int: bool = False) -> Callable[..., Any]:
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
    both = value_and_grad(fun, argnums, has_aux, allow_int)

    @public
    def gradient(*args: Any, **kwargs: Any) -> Any:
        value, grads = both(*args, **kwargs)
        return (grads, value[1]) if has_aux else grads

    return _named(gradient, fun, "grad")


def value_and_grad(fun: Callable[..., Any], argnums: int | Sequence[int] = 0,
                   has_aux: bool = False, allow_int: bool = False) -> Callable[..., Any]:
    """The value and the gradient of a function with a scalar result, computed together.

    >>> import fnx
    >>> fnx.value_and_grad(lambda x: x * x)(3.0)
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))

    Args, raises: as for ``grad``.

    Returns:
        A function that returns (value, gradient), or ((value, aux), gradient).
    """
    if not callable(fun):
        raise ArgumentError(f"grad: expected a function, got {type(fun).__name__}",
                            hint="write grad(f)(x), not grad(f(x))")

    @public
    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        chosen = _positions(argnums, len(args), _name_of(fun))
        given, layout = _flatten(args, chosen, allow_int)
        inputs = [x for x in given if x._dtype.is_float]
        with tracing("grad") as opened:
            leaves = [opened.leaf(x._dtype, x.shape, x._node) for x in inputs]
            traced_args = list(args)
            for i, x in zip(chosen, layout.trees_of(_traced(given, leaves))):
                traced_args[i] = x
            out = fun(*traced_args, **kwargs)
            loss, aux = _loss(out, has_aux)
            rest, aux_tree = tree.flatten(aux)
            traced = [x._node for x in rest if type(x) is Array]
            seed = Cotangent(build.like(loss._node, 1))
            outs, cts = pullback([loss._node, *traced], [seed, *[None] * len(traced)], leaves)
            grads = [build.like(leaf, 0) if ct is None else ct.value
                     for leaf, ct in zip(leaves, cts)]
            values = {leaf: x._node for leaf, x in zip(leaves, inputs)}
            nodes = substitute([*outs, *grads], values)
        after = iter(nodes[1:])
        value = Array(nodes[0], loss.weak)
        aux = aux_tree.unflatten([Array(next(after), x.weak) if type(x) is Array else x
                                  for x in rest])
        found = layout.gradients([Array(g, x.weak) for g, x in zip(after, inputs)])
        gradient = found[0] if isinstance(argnums, int) else tuple(found)
        return ((value, aux) if has_aux else value), gradient

    return _named(value_and_gradient, fun, "value_and_grad")


def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The result of a function, and the function that pulls a cotangent back to its arguments.

    >>> import fnx
    >>> y, pull = fnx.vjp(lambda x: x * x, 3.0)
    >>> pull(1.0)
    (Array(6., dtype=float32, weak_type=True),)

    Args:
        fun: takes ``primals``, pytrees of arrays; returns a pytree, or (pytree, aux).
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
    given, layout = _flatten(primals, range(len(primals)), allow_int=True)
    inputs = [x for x in given if x._dtype.is_float]
    with tracing("vjp") as opened:
        leaves = [opened.leaf(x._dtype, x.shape, x._node) for x in inputs]
        out = fun(*layout.trees_of(_traced(given, leaves)))
        out, aux = _pair(out) if has_aux else (out, ())
        flat, out_tree = tree.flatten(out)
        results = [asarray(x) for x in flat]
        rest, aux_tree = tree.flatten(aux)
        traced = [x for x in rest if type(x) is Array]
        body, captures = close([x._node for x in (*results, *traced)], leaves, _name_of(fun))
    args = [*[x._node for x in inputs], *captures]
    floats = tuple([i for i, x in enumerate(results) if x._dtype.is_float])
    forms, whose = call_forms(body, Pattern(tuple(range(len(leaves))), floats))
    nodes = inline(forms.forward, args)
    saved = [Array(args[i] if kind == "input" else nodes[i])
             for kind, i in forms.sources if kind != "cotangent"]
    avals = tuple([(x._dtype, x.shape) for x in results])
    pull = Pullback(saved, _Plan(forms.backward, forms.sources, tuple([i for i, _ in whose]),
                                 out_tree, avals, layout))
    after = iter(nodes[len(results):])
    out = out_tree.unflatten([Array(n, x.weak) for n, x in zip(nodes, results)])
    return out, pull, aux_tree.unflatten([Array(next(after), x.weak) if type(x) is Array else x
                                          for x in rest])


class _Layout(NamedTuple):
    """The trees of the arguments that are differentiated, and all their leaves."""

    trees: tuple[tree.TreeDef, ...]
    avals: tuple[Aval, ...]

    def trees_of(self, leaves: Iterable[Any]) -> list[Any]:
        """The arguments, of other leaves."""
        rest = iter(leaves)
        return [t.unflatten(itertools.islice(rest, t.num_leaves)) for t in self.trees]

    def gradients(self, grads: Iterable[Array]) -> list[Any]:
        """The arguments, of the gradients of the float leaves and float0 for the others."""
        rest = iter(grads)
        return self.trees_of([next(rest) if a.dtype.is_float else np.zeros(a.shape, FLOAT0)
                              for a in self.avals])


def _flatten(args: Sequence[Any], chosen: Sequence[int], allow_int: bool
             ) -> tuple[list[Array], _Layout]:
    """All leaves of the chosen arguments as Arrays; floats, unless ``allow_int``."""
    trees, leaves = [], []
    for i in chosen:
        pairs, structure = tree.flatten_with_path(args[i])
        trees.append(structure)
        for path, x in pairs:
            leaves.append(_leaf(x, f"args[{i}]{tree.keystr(path)}", allow_int))
    avals = tuple([Aval(x._dtype, x.shape, x.weak) for x in leaves])
    return leaves, _Layout(tuple(trees), avals)


def _leaf(x: Any, where: str, allow_int: bool) -> Array:
    try:
        array = asarray(x)
    except FnxError as e:
        raise GradError(f"expected a float array to differentiate in at {where}, got "
                        f"{type(x).__name__}",
                        hint="choose the arguments to differentiate in with argnums") from e
    if not array._dtype.is_float and not allow_int:
        raise GradError(f"expected a float array to differentiate in at {where}, got "
                        f"{array._dtype}{list(array.shape)}",
                        hint="convert it with .astype(float32), choose other arguments with "
                             "argnums, or pass allow_int=True")
    return array


def _traced(given: Sequence[Array], leaves: Sequence[UOp]) -> list[Array]:
    """The arguments with each float in terms of its leaf."""
    rest = iter(leaves)
    return [Array(next(rest), x.weak) if x._dtype.is_float else x for x in given]


def _positions(argnums: int | Sequence[int], n: int, name: str) -> list[int]:
    out = []
    for i in (argnums,) if isinstance(argnums, int) else argnums:
        if not -n <= i < n:
            raise ArgumentError(f"grad of {name}: expected argnums among {n} positional "
                                f"arguments, got {argnums}",
                                hint="pass the argument by position, not by name")
        out.append(i % n)
    return out


def _pair(out: Any) -> tuple[Any, Any]:
    if not isinstance(out, tuple) or len(out) != 2:
        raise ArgumentError("has_aux=True: expected a function that returns (result, aux), got "
                            f"{type(out).__name__}", hint="return a tuple of two")
    return out


def _loss(out: Any, has_aux: bool) -> tuple[Array, Any]:
    """The scalar to differentiate, and what is only handed on."""
    out, aux = _pair(out) if has_aux else (out, ())
    if type(out) is not Array:
        structure = tree.structure(out)
        if structure.container is not None or out is None:
            raise GradError(f"expected a scalar result, got {structure}",
                            hint="return one number; hand on the rest with has_aux=True")
        out = asarray(out)
    if out.shape != () or not out._dtype.is_float:
        raise GradError(f"expected a float scalar as result, got {out._dtype}{list(out.shape)}",
                        hint="reduce it with .sum() or .mean(), or use vjp for other results"
                        if out.shape else "convert it with .astype(float32)")
    return out, aux


def _name_of(fun: Callable[..., Any]) -> str:
    return getattr(fun, "__name__", type(fun).__name__)


def _named(g: Callable[..., Any], fun: Callable[..., Any], what: str) -> Callable[..., Any]:
    """``g`` with the signature and name of what it was made from."""
    functools.update_wrapper(g, fun, assigned=("__module__", "__qualname__"), updated=())
    g.__name__ = f"{what}({_name_of(fun)})"
    g.__doc__ = f"{what} of {_name_of(fun)}: takes the same arguments."
    return g


class _Plan(NamedTuple):
    """What a Pullback knows besides its saved arrays."""

    backward: UOp
    sources: tuple[tuple[str, int], ...]
    results: tuple[int | None, ...]  # of backward, one for each float input
    out_tree: tree.TreeDef
    avals: tuple[tuple[DType, Shape], ...]
    layout: _Layout


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
    return tuple(plan.layout.gradients(
        [Array(build.const(0, a.dtype, a.shape) if i is None else found[i], a.weak)
         for a, i in zip(floats, plan.results)]))


def _cotangents(plan: _Plan, cotangent: Any) -> list[UOp]:
    """The float cotangents as nodes, checked against the result."""
    leaves, structure = tree.flatten(cotangent)
    if structure != plan.out_tree:
        raise PytreeError(f"expected a cotangent like the result, {plan.out_tree}; got "
                          f"{structure}", hint="give one array for each array of the result")
    nodes = []
    for x, (dtype, shape) in zip(leaves, plan.avals):
        if not dtype.is_float:
            continue
        ct = asarray(x)
        if ct.shape != shape:
            raise ShapeError(f"expected a cotangent of shape {shape}, got {ct.shape}",
                             hint="give one element for each element of the result")
        if ct._dtype is not dtype and not ct.weak:
            raise DTypeError(f"expected a cotangent of {dtype}, got {ct._dtype}",
                             hint=f"convert it with .astype({dtype})")
        nodes.append(build.cast(ct._node, dtype))
    return nodes


tree.register_pytree_node(Pullback, lambda p: (p.saved, p.plan),
                          lambda plan, saved: Pullback(saved, plan))
