"""``jvp``: the public API of forward mode.

    jvp(f, (x,), (t,)):  trace f on a fresh leaf  ->  forward walk with tangent t
                         (autodiff/forward.py)  ->  substitute x for the leaf
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, overload

from fnx.core.array.api_boundary import public_api
from fnx.core.array.array import Array
from fnx.core.ir import build
from fnx.core.ir.uop import UOp, substitute
from fnx.core.support.errors import ArgumentError
from fnx.core.tracing.backward_values import refuse_backward
from fnx.core.tracing.state import Lift, StateUsedError, lift
from fnx.core.tracing.trace import TracedFunction, function_name, preserving_locs, trace
from fnx.transforms.autodiff.arguments import Float0, flatten_args, tangent_nodes
from fnx.transforms.autodiff.forward import pushforward
from fnx.transforms.transformed import check_function

R = TypeVar("R")
S = TypeVar("S")


@overload
def jvp(fun: Callable[..., R], primals: Sequence[Any], tangents: Sequence[Any],
        has_aux: Literal[False] = False) -> tuple[R, R]: ...


@overload
def jvp(fun: Callable[..., tuple[R, S]], primals: Sequence[Any], tangents: Sequence[Any],
        has_aux: Literal[True]) -> tuple[R, R, S]: ...


def jvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any],
        has_aux: bool = False) -> Any:
    """Compute the result of a function and its directional derivative together.

    >>> import fnx
    >>> fnx.jvp(lambda x: x * x, (3.0,), (1.0,))
    (Array(9., dtype=float32, weak_type=True), Array(6., dtype=float32, weak_type=True))

    Args:
        fun: takes ``primals``; returns a pytree, or (pytree, aux).
        primals: a tuple or list of pytrees of arrays: the point of differentiation.
        tangents: the direction, like ``primals``; None or float0 for integers and bools.
        has_aux: whether ``fun`` returns a pair whose second part is passed through.

    Returns:
        (result, tangent) or (result, tangent, aux). The tangent is like the result; that of an
        integer or bool is zeros of dtype float0.

    Raises:
        PytreeError: the tangents differ in structure from the primals.
        ShapeError: a tangent differs in shape from its primal.
        DTypeError: a tangent differs in dtype from its primal.
    """
    check_function(fun, "jvp", "write jvp(f, (x,), (tangent,))")
    try:
        out, tangent, aux = _jvp(fun, primals, tangents, has_aux)
    except StateUsedError as used:
        def call(lifted: Lift) -> tuple[Any, Any]:
            refuse_backward(lifted, "jvp")
            y, t, (aux, values) = _jvp(lifted.as_aux(fun, has_aux), primals, tangents, True)
            return (y, t, aux), values
        out, tangent, aux = lift(used, call)
    return (out, tangent, aux) if has_aux else (out, tangent)


@public_api
def _jvp(fun: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any],
         has_aux: bool) -> tuple[Any, Any, Any]:
    if not (isinstance(primals, tuple | list) and isinstance(tangents, tuple | list)):
        raise ArgumentError("expected primals and tangents as tuples or lists, got "
                            f"{type(primals).__name__} and {type(tangents).__name__}",
                            hint="write jvp(f, (x,), (t,))")
    args, layout = flatten_args(primals, range(len(primals)), allow_int=True)
    tangents_in = tangent_nodes(layout, tangents)
    values = [x._node for x in args if x._dtype.is_inexact]
    traced = trace(fun, layout.floats(args), layout.tree, values, transform="jvp",
                   name=function_name(fun), has_aux=has_aux)
    nodes, out_tangents = preserving_locs(_with_tangents, traced, values, tangents_in)
    out, aux = traced.substitute_results(nodes)
    return out, traced.out_tree.unflatten(
        [_tangent(x, t) for x, t in zip(traced.outs, out_tangents)]), aux


def _with_tangents(traced: TracedFunction, values: Sequence[UOp], tangents_in: Sequence[UOp]
                   ) -> tuple[list[UOp], list[UOp]]:
    """Return the results of a traced function and their tangents (zeros if symbolically zero)."""
    nodes, out_tangents = pushforward(traced.nodes, dict(zip(traced.leaves, tangents_in)))
    tangents = [build.const_like(node, 0) if t is None else t
                for node, t, _ in zip(nodes, out_tangents, traced.outs)]
    substituted = substitute([*nodes, *tangents], traced.substitution(values))
    return substituted[:len(nodes)], substituted[len(nodes):]


def _tangent(out: Array, t: UOp) -> Any:
    return Array(t, out.weak) if out._dtype.is_inexact else Float0.like(out.shape)
