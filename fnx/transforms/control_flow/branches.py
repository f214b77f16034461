"""Trace ``cond`` and ``switch`` into a COND, whose branches take the same operands.

    cond(p, f, g, x)           COND(g, f, p as 0 or 1, captures of both, x)
    switch(i, (f, g, h), x)    COND(f, g, h, i, captures of all, x)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.dtypes import conversion_hint
from fnx.core.ir.expr import Expr, clamp
from fnx.core.ir.uop import UOp
from fnx.core.scope import scope
from fnx.core.support.errors import (
    ArgumentError,
    DTypeError,
    FnxError,
    PytreeError,
    ShapeError,
)
from fnx.core.tracing.trace import inline_function
from fnx.transforms.control_flow import uniform_control_flow
from fnx.transforms.control_flow.bodies import (
    Body,
    args_tree,
    disabled_jit_loops,
    flatten_arrays,
    leaf_path,
    merge_captures,
    result_type,
    trace_body,
)


def branch(which: UOp, branches: Sequence[Callable[..., Any]], operands: Sequence[Any], caller: str
           ) -> Any:
    """Apply branch ``which``, an int32 scalar that is clamped, to the operands."""
    if (python_loops := disabled_jit_loops()) is not None:
        return python_loops.branch(which, branches, operands)
    flat = [flatten_arrays(x, f"operands[{i}]") for i, x in enumerate(operands)]
    leaves, in_tree = [x for xs, _ in flat for x in xs], args_tree(*[t for _, t in flat])
    bodies = [trace_body(f, [x._aval for x in leaves], in_tree, caller) for f in branches]
    for other in bodies[1:]:
        _check_same(bodies[0], other)
    captures, functions = merge_captures(bodies)
    effects = any(b.effects for b in bodies)
    if effects:
        functions = [fn if b.effects else _pass_token(fn, len(captures))
                     for fn, b in zip(functions, bodies)]
        captures.append(scope.current_token())
    args = [*captures, *[x._node for x in leaves]]
    axes = uniform_control_flow.collective_axes(functions)
    if len(functions) == 1:  # as in JAX, no branch is in the graph
        outs = inline_function(functions[0], args)
    elif axes and which.op is not ops.CONST:
        outs = uniform_control_flow.cond(functions, which, args,
                                         len(captures) - 1 if effects else None, axes)
    else:
        outs = list(build_calls.cond(functions, which, args))
    if effects:
        scope.set_token(outs[0])
        outs = outs[1:]
    weak = [all(avals) for avals in zip(*[[a.weak for a in b.outs] for b in bodies])]
    return bodies[0].out_tree.unflatten([Array(x, w) for x, w in zip(outs, weak)])


def _pass_token(fn: UOp, slot: int) -> UOp:
    """Add a token to a branch without effects, passed through unchanged."""
    shape, dtype = build_calls.TOKEN
    token = build.param(slot, dtype, shape)
    return build.function([token, *fn.src], fn.arg.n_params, fn.arg.name)


def _check_same(one: Body, other: Body) -> None:
    """Raise if two branches return different structures or types."""
    names = f"{one.name} and {other.name}"
    if one.out_tree != other.out_tree:
        raise PytreeError(f"expected branches with results of one structure, got {one.out_tree} of "
                          f"{one.name} and {other.out_tree} of {other.name}: "
                          f"{tree.first_difference(one.out_tree, other.out_tree)}",
                          hint="return the same containers with the same keys in each branch")
    for i, (a, b) in enumerate(zip(one.outs, other.outs)):
        if a.shape == b.shape and a.dtype is b.dtype:
            continue
        kind = ShapeError if a.shape != b.shape else DTypeError
        where = leaf_path(one.out_tree, i, "result")
        types = [result_type(body.function.src[i]) for body in (one, other)]
        raise kind(f"expected branches with results of one type, got {' and '.join(types)} as "
                   f"{where} of {names}",
                   hint=conversion_hint(
                       a.dtype, b.dtype,
                       "broadcast one of them, so that all branches return one shape"
                       if kind is ShapeError else
                       f"convert one of them, such as with .astype({a.dtype})"))


def predicate(value: Any) -> UOp:
    """Convert a predicate to a branch number: 1 if it holds, else 0."""
    x = _scalar(value, "a bool scalar as predicate")
    is_true = x._node if x._dtype.is_bool else build.ne(x._node, build.const_like(x._node, 0))
    return build.cast(is_true, dtypes.int32)


def branch_number(value: Any, n: int) -> UOp:
    """Convert an index to the number of one of n branches."""
    x = _scalar(value, "an integer scalar as index")
    if not x._dtype.is_integer:
        raise DTypeError(f"expected an integer scalar as index, got {x._aval}",
                         hint="use cond for a bool, or convert it with .astype(int)")
    node = x._node
    if x._dtype is not dtypes.int32:  # clamp before truncation to 32 bits
        high = min(n - 1, x._dtype.limits[1])
        node = clamp(Expr(node), 0, high).node
    return build.cast(node, dtypes.int32)


def _scalar(value: Any, what: str) -> Array:
    try:
        x = asarray(value)
    except FnxError as e:
        got = f" {value!r}" if isinstance(value, str) else ""
        raise ArgumentError(f"expected {what}, got {type(value).__name__}{got}",
                            hint=e.hint) from e
    if x.shape:
        raise ShapeError(f"expected {what}, got {x._aval}",
                         hint="reduce it with .any() or .all(), or use fnx.numpy.where to choose "
                              "for each element")
    return x
