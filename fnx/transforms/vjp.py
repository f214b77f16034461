"""``vjp``, ``linearize``, ``linear_transpose``: derivatives as linear maps.

    vjp               f at x  ->  map from cotangents of f(x) to cotangents of x
    linearize         f at x  ->  map from tangents of x to tangents of f(x)
    linear_transpose  f linear  ->  map from cotangents of f(x) to cotangents of x; there is no x

A linear map is a pytree of the residuals of the forward pass: it can be called repeatedly without
running f again, passed to jitted functions, and mapped over.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, TypeVar, overload

from fnx.core.array import tree
from fnx.core.array.api_boundary import public_api
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval, ShapeDtypeStruct
from fnx.core.array.pytree_registry import register_pytree_node
from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.derivations import retain
from fnx.core.ir.uop import UOp, toposort
from fnx.core.scope import scope
from fnx.core.support.config import config, override
from fnx.core.support.errors import ArgumentError, GradError, PytreeError
from fnx.core.support.record import Record
from fnx.core.tracing.backward_values import BackwardLift, lift_reverse, refuse_backward
from fnx.core.tracing.references import Ref
from fnx.core.tracing.state import Lift, StateUsedError, lift
from fnx.core.tracing.trace import function_name, inline_function, preserving_locs, trace
from fnx.transforms.autodiff.arguments import (
    Layout,
    check_like,
    flatten_args,
    is_no_derivative,
    tangent_nodes,
    with_summed_cotangents,
)
from fnx.transforms.autodiff.higher_order import TOKEN, Activity, Linearized
from fnx.transforms.autodiff.linearity import check_linear
from fnx.transforms.autodiff.reverse import linearize as linearized
from fnx.transforms.autodiff.transpose import transpose, transpose_to_jvp
from fnx.transforms.transformed import check_function

R = TypeVar("R")
S = TypeVar("S")


@overload
def vjp(fun: Callable[..., R], *primals: Any, has_aux: Literal[False] = False
        ) -> tuple[R, Pullback]: ...


@overload
def vjp(fun: Callable[..., tuple[R, S]], *primals: Any, has_aux: Literal[True]
        ) -> tuple[R, Pullback, S]: ...


def vjp(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return the result of a function, and its pullback from cotangents of it to its arguments.

    >>> import fnx
    >>> y, pull = fnx.vjp(lambda x: x * x, 3.0)
    >>> pull(1.0)
    (Array(6., dtype=float32, weak_type=True),)

    Args:
        fun: takes ``primals``; returns a pytree, or (pytree, aux).
        primals: pytrees of arrays: the point of differentiation.
        has_aux: whether ``fun`` returns a pair whose second part is passed through.

    Returns:
        (result, pull) or (result, pull, aux). ``pull(cotangent)`` takes a cotangent like the
        result and returns a tuple of cotangents, one for each primal. It reads the residuals of
        the forward pass instead of recomputing it, and is a pytree of these.
    """
    out, pull, aux = _linear_map_at(fun, primals, has_aux, "vjp", _pullback)
    return (out, pull, aux) if has_aux else (out, pull)


@overload
def linearize(fun: Callable[..., R], *primals: Any, has_aux: Literal[False] = False
              ) -> tuple[R, Pushforward]: ...


@overload
def linearize(fun: Callable[..., tuple[R, S]], *primals: Any, has_aux: Literal[True]
              ) -> tuple[R, Pushforward, S]: ...


def linearize(fun: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """Return the result of a function, and its derivative there as a linear map of tangents.

    >>> import fnx
    >>> y, push = fnx.linearize(lambda x: x * x, 3.0)
    >>> push(1.0)
    Array(6., dtype=float32, weak_type=True)

    Args:
        fun: takes ``primals``; returns a pytree, or (pytree, aux).
        primals: pytrees of arrays: the point of differentiation.
        has_aux: whether ``fun`` returns a pair whose second part is passed through.

    Returns:
        (result, push) or (result, push, aux). ``push(*tangents)`` takes tangents like the primals
        and returns the tangent of the result, as ``jvp`` does, but it reads the residuals of the
        forward pass instead of recomputing it, and is a pytree of these.
    """
    out, push, aux = _linear_map_at(fun, primals, has_aux, "linearize", _pushforward)
    return (out, push, aux) if has_aux else (out, push)


def linear_transpose(fun: Callable[..., Any], *primals: Any) -> Transposition:
    """Return the transpose of a linear function.

    >>> import fnx
    >>> back = fnx.linear_transpose(lambda x, y: 2 * x - y, 1.0, 1.0)
    >>> back(3.0)
    (Array(6., dtype=float32, weak_type=True), Array(-3., dtype=float32, weak_type=True))

    Args:
        fun: a function that is linear in all its arguments together: from floats to floats, or
            from integers to integers.
        primals: pytrees like these arguments, of arrays or ShapeDtypeStructs; their values are
            not read.

    Returns:
        A function that takes a cotangent like the result and returns a tuple of cotangents, one
        for each primal. It is a pytree of the arrays that ``fun`` closes over.

    Raises:
        GradError: ``fun`` is not linear; the message names the operation and its line. Or it maps
            integers to floats, or maps integers by loops or branches.
    """
    return _linear_transpose(fun, primals)


def _linear_map_at(fun: Callable[..., Any], primals: tuple[Any, ...], has_aux: bool, by: str,
                   make: Callable[[Linearized, list[Array], Layout, Layout], _LinearMap]) -> Any:
    """Return the result of a function, the linear map at this point, and aux."""
    check_function(fun, by, f"write {by}(f, x)")
    is_forward = by == "linearize" and config.derivatives == "jax"  # it reverses loops for it
    try:
        with override(derivatives="all") if is_forward else contextlib.nullcontext():
            return _build_linear_map(fun, primals, has_aux, by, make)
    except StateUsedError as used:
        def call(lifted: Lift) -> tuple[Any, Any]:
            refuse_backward(lifted, by)
            out, linear, (aux, values) = _build_linear_map(lifted.as_aux(fun, has_aux), primals,
                                                           True, by, make)
            return (out, linear, aux), values

        def reverse(backward: BackwardLift) -> tuple[Any, Any, Any]:
            (out, _), pull, (aux, values) = _build_linear_map(
                backward.function(fun, has_aux), (primals, backward.zeros), True, by, make)
            backward.set(values)
            return out, lambda cotangent: backward.pull(pull, cotangent), aux
        return lift(used, call) if by != "vjp" else lift_reverse(used, call, reverse)


@public_api
def _build_linear_map(fun: Callable[..., Any], primals: tuple[Any, ...], has_aux: bool, by: str,
                      make: Callable[[Linearized, list[Array], Layout, Layout], _LinearMap]) -> Any:
    """Return the result of a function, the linear map that ``make`` builds at this point, and
    aux."""
    arg_leaves, layout = flatten_args(primals, range(len(primals)), allow_int=True)
    values = [x._node for x in arg_leaves if x._dtype.is_inexact]
    traced = trace(with_summed_cotangents(fun), layout.floats(arg_leaves), layout.tree, values,
                   transform=by, name=function_name(fun), has_aux=has_aux)
    closed = traced.close(every_value=True)
    args = [*values, *closed.operands()]
    floats = tuple([i for i, a in enumerate(closed.outs) if a.dtype.is_inexact])
    retain(closed.function)
    form = linearized(closed.function, Activity(tuple(range(len(values))), floats))
    nodes = inline_function(closed.function if form.forward is None else form.forward, args)
    saved = [_opaque(args[i] if kind == "input" else nodes[i])
             for kind, i in form.sources if kind in ("input", "result")]
    out, aux = traced.substitute_results(nodes)
    return out, make(form, saved, layout, Layout(closed.out_tree, closed.outs)), aux


def _opaque(node: UOp) -> Array:
    """Return a value that a linear map saves: no constant, so that maps at constants and at other
    values have the same captures."""
    is_constant = scope.is_open() and all(n.op is not ops.LEAF and n.op is not ops.BUFFER
                                          for n in toposort([node]))
    return Array(build.barrier(node) if is_constant else node)


def _pullback(form: Linearized, saved: list[Array], primals: Layout, outs: Layout) -> Pullback:
    sources = tuple([i if kind == "cotangent" else None for kind, i in form.sources])
    sources = tuple([_REAL_TOKEN if source == TOKEN else i
                     for source, i in zip(form.sources, sources)])
    results = tuple([value for value, _ in form.result_indices])
    return Pullback(saved, _MapInfo(form.backward, sources, results, outs, primals, form.token))


def _pushforward(form: Linearized, saved: list[Array], primals: Layout, outs: Layout
                 ) -> Pushforward:
    jvp_form, active = transpose_to_jvp(form)
    sources = tuple([None if kind in ("input", "result") else
                     _DUMMY_TOKEN if (kind, i) == TOKEN else _UNREAD for kind, i in form.sources])
    number = dict(zip([i for kind, i in form.sources if kind == "cotangent"],
                      jvp_form.result_indices))
    floats = sum(a.dtype.is_inexact for a in outs.avals)
    return Pushforward(saved, _MapInfo(jvp_form.function, (*sources, *active), tuple(
        [number.get(o) for o in range(floats)]), primals, outs))


@public_api
def _linear_transpose(fun: Callable[..., Any], primals: tuple[Any, ...]) -> Transposition:
    leaves, in_tree = tree.flatten((primals, {}))
    avals = tuple([x._aval if isinstance(x, ShapeDtypeStruct) else
                   flatten_args((x,), (0,), allow_int=True)[1].avals[0] for x in leaves])
    is_of_integers = bool(avals) and all(a.dtype.is_integer for a in avals)
    arguments = Layout(in_tree, avals, is_of_integers)
    for i, aval in enumerate(avals):
        if not arguments.is_mapped(aval):
            raise GradError(f"expected arguments that are all floats or all integers, got {aval} "
                            f"at {arguments.path(i)}",
                            hint="close over arguments in which the function is not linear")
    # calls of jitted functions are inlined, as bodies have no derivative in integers
    with override(disable_jit=True) if is_of_integers else contextlib.nullcontext():
        traced = trace(with_summed_cotangents(fun), avals, in_tree, transform="linear_transpose",
                       name=function_name(fun))
    preserving_locs(check_linear, traced.nodes, traced.leaves)
    closed = traced.close()
    retain(closed.function)
    results = Layout(closed.out_tree, closed.outs, is_of_integers)
    if is_of_integers and not all(a.dtype.is_integer for a in closed.outs):
        raise GradError("expected integers as results of integers, got "
                        f"{', '.join(map(str, closed.outs))}",
                        hint="pass floats, or return integers")
    outs = tuple([o for o, a in enumerate(closed.outs) if results.is_mapped(a)])
    form = transpose(closed.function, tuple(range(len(avals))), outs, closed.effects)
    sources = (*[_UNREAD for _ in avals], *[None for _ in closed.captures],
               *[_UNREAD] * closed.effects, *range(len(outs)), *[_REAL_TOKEN] * closed.effects)
    return Transposition([Array(c) for c in closed.captures], _MapInfo(
        form.function, sources, form.result_indices, results, arguments, form.token))


# ---- linear maps --------------------------------------------------------------------------------

_UNREAD = -1  # a parameter that the FUNCTION does not read
_REAL_TOKEN = -2  # the token that its effects follow
_DUMMY_TOKEN = -3  # the token of a FUNCTION whose effects were dropped


class _MapInfo(Record):
    """The static part of a linear map: all but its saved arrays."""

    function: UOp
    sources: tuple[int | None, ...]  # of operands: float leaf i of the argument; None: saved
    results: tuple[int | None, ...]  # for each float leaf of the output; None: zero
    in_layout: Layout
    out_layout: Layout
    token: int | None = None         # the result that the next effect follows, if any


class _LinearMap:
    """A map from floats to floats, or integers to integers; a pytree of ``saved``."""

    __slots__ = ("saved", "plan")
    kind: ClassVar[str]

    def __init__(self, saved: Sequence[Any], plan: _MapInfo) -> None:
        self.saved, self.plan = tuple(saved), plan

    def __repr__(self) -> str:
        return f"<{self.kind} from {self.plan.in_layout} to {self.plan.out_layout}>"

    def _apply(self, inputs: Sequence[UOp]) -> list[Array]:
        plan, saved = self.plan, iter(self.saved)
        placeholder = build.const(0, dtypes.float32)
        operands = [next(saved)._node if i is None else placeholder if i == _UNREAD else
                    scope.current_token() if i == _REAL_TOKEN else
                    build_calls.initial_token() if i == _DUMMY_TOKEN else inputs[i]
                    for i in plan.sources]
        outs = inline_function(plan.function, operands)
        if plan.token is not None:
            scope.set_token(outs[plan.token])
        mapped = filter(plan.out_layout.is_mapped, plan.out_layout.avals)
        return [Array(build.const(0, a.dtype, a.shape) if i is None else outs[i], a.weak)
                for a, i in zip(mapped, plan.results)]


class Pullback(_LinearMap):
    """A map from a cotangent of the result to those of the primals: the result of ``vjp``."""

    __slots__ = ()
    kind = "pullback"

    def __call__(self, *cotangent: Any) -> tuple[Any, ...]:
        return _pull(self, cotangent)

    def with_refs(self, *refs: Any) -> Callable[[Any], tuple[Any, ...]]:
        """Return a pullback that adds cotangents to references instead of returning them.

        Args:
            refs: for each primal a tree like it: a reference where the cotangent is added to it,
                anything else that is no container where it is returned.

        Returns:
            A function like this one; in place of a cotangent that it has added, it returns None.

        >>> import fnx
        >>> _, pull = fnx.vjp(lambda x: x * x, 3.0)
        >>> total = fnx.new_ref(1.0)
        >>> pull.with_refs(total)(1.0); total[...]
        (None,)
        Array(7., dtype=float32)
        """
        def pull(*cotangent: Any) -> tuple[Any, ...]:
            cts = _pull(self, cotangent)
            out: tuple[Any, ...] = tree.map(_accumulate, refs, cts)
            return out
        return pull


def _accumulate(ref: Any, cotangent: Any) -> Any:
    """Add a cotangent to a reference; else return it."""
    if not isinstance(ref, Ref):
        return cotangent
    ref.addupdate(cotangent)
    return None


class Transposition(Pullback):
    """A map from a cotangent of the result to those of the arguments: the result of
    ``linear_transpose``."""

    __slots__ = ()
    kind = "transpose"


class Pushforward(_LinearMap):
    """A map from tangents of the primals to that of the result: the result of ``linearize``."""

    __slots__ = ()
    kind = "pushforward"

    def __call__(self, *tangents: Any) -> Any:
        return _push(self, tangents)


@public_api
def _pull(self: Pullback, cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
    plan = self.plan
    if len(cotangents) != 1:
        raise ArgumentError(f"{self.kind}: expected one cotangent, a tree like the result, "
                            f"{plan.in_layout.tree}; got {len(cotangents)} arguments",
                            hint="put the cotangents of several results into one tuple")
    return plan.out_layout.gradients(self._apply(_check_cotangents(plan.in_layout, cotangents[0])))


@public_api
def _push(self: Pushforward, tangents: tuple[Any, ...]) -> Any:
    plan = self.plan
    return plan.out_layout.fill(self._apply(tangent_nodes(plan.in_layout, tangents)))


def _check_cotangents(layout: Layout, cotangent: Any) -> list[UOp]:
    """Return the float cotangents as nodes, checked against the result."""
    def one(x: Any, aval: Aval) -> UOp:
        if tree.structure(x) != tree.LEAF or is_no_derivative(x):
            got = "float0" if x is not None and is_no_derivative(x) else tree.structure(cotangent)
            raise PytreeError(f"expected a cotangent like the result, {layout.tree}; got {got}",
                              hint="pass one cotangent array for each array of the result")
        return check_like(x, aval, "a cotangent", "the result")

    try:
        leaves = tree.flatten_up_to(layout.tree, cotangent)
    except PytreeError:
        raise PytreeError(f"expected a cotangent like the result, {layout.tree}; got "
                          f"{tree.structure(cotangent)}",
                          hint="pass a cotangent for each array of the result") from None
    return [one(x, aval) for x, aval in zip(leaves, layout.avals) if layout.is_mapped(aval)]


def _register(kind: type[_LinearMap]) -> None:
    register_pytree_node(kind, lambda m: (m.saved, m.plan), lambda plan, saved: kind(saved, plan))


for _kind in (Pullback, Transposition, Pushforward):
    _register(_kind)
