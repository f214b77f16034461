"""Trace ``cond`` and ``switch`` into a COND, whose branches take the same operands.

    cond(p, f, g, x)           COND(g, f, p as 0 or 1, captures of both, x)
    switch(i, (f, g, h), x)    COND(f, g, h, i, captures of all, x)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import build, build_calls, dtypes, ops
from fnx.core.array import scope, tree
from fnx.core.array.array import Array
from fnx.core.array.public import asarray
from fnx.core.errors import (
    ArgumentError,
    DTypeError,
    FnxError,
    PytreeError,
    ShapeError,
)
from fnx.core.expr import Expr, clamped
from fnx.core.uop import UOp
from fnx.transforms.loops import together
from fnx.transforms.loops.bodies import (
    Body,
    aligned,
    arguments,
    arrays,
    in_python,
    path,
    result_type,
    trace_body,
)


def branch(which: UOp, branches: Sequence[Callable[..., Any]], operands: Sequence[Any], by: str
           ) -> Any:
    """Apply branch ``which``, an int32 scalar that is clamped, to the operands."""
    if (python := in_python()) is not None:
        return python.branch(which, branches, operands)
    given = [arrays(x, f"operands[{i}]") for i, x in enumerate(operands)]
    leaves, in_tree = [x for xs, _ in given for x in xs], arguments(*[t for _, t in given])
    bodies = [trace_body(f, [x._aval for x in leaves], in_tree, by) for f in branches]
    for other in bodies[1:]:
        _check_same(bodies[0], other)
    captures, functions = aligned(bodies)
    effects = any(b.effects for b in bodies)
    if effects:
        functions = [fn if b.effects else _handing_on(fn, len(captures))
                     for fn, b in zip(functions, bodies)]
        captures.append(scope.token())
    args = [*captures, *[x._node for x in leaves]]
    axes = together.asked(functions)
    if axes and which.op is not ops.CONST:
        outs = together.choose(functions, which, args, len(captures) - 1 if effects else None, axes)
    else:
        outs = list(build_calls.cond(functions, which, args))
    if effects:
        scope.follow(outs[0])
        outs = outs[1:]
    weak = [all(avals) for avals in zip(*[[a.weak for a in b.outs] for b in bodies])]
    return bodies[0].out_tree.unflatten([Array(x, w) for x, w in zip(outs, weak)])


def _handing_on(fn: UOp, slot: int) -> UOp:
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
                          f"{tree.difference(one.out_tree, other.out_tree)}",
                          hint="return the same containers with the same keys in each branch")
    for i, (a, b) in enumerate(zip(one.outs, other.outs)):
        if a.shape == b.shape and a.dtype is b.dtype:
            continue
        kind = ShapeError if a.shape != b.shape else DTypeError
        where = path(one.out_tree, i, "result")
        types = [result_type(body.function.src[i]) for body in (one, other)]
        raise kind(f"expected branches with results of one type, got {' and '.join(types)} as "
                   f"{where} of {names}",
                   hint="broadcast one of them, so that all branches return one shape"
                   if kind is ShapeError else
                   f"convert one of them, such as with .astype({a.dtype})")


def predicate(given: Any) -> UOp:
    """Convert a predicate to a branch number: 1 if it holds, else 0."""
    x = _scalar(given, "a bool scalar as predicate")
    holds = x._node if x._dtype.is_bool else build.ne(x._node, build.like(x._node, 0))
    return build.cast(holds, dtypes.int32)


def branch_number(given: Any, n: int) -> UOp:
    """Convert an index to the number of one of n branches."""
    x = _scalar(given, "an integer scalar as index")
    if not x._dtype.is_integer:
        raise DTypeError(f"expected an integer scalar as index, got {x._aval}",
                         hint="use cond for a bool, or convert it with .astype(int)")
    node = x._node
    if x._dtype is not dtypes.int32:  # clamp before truncation to 32 bits
        high = min(n - 1, x._dtype.limits[1])
        node = clamped(Expr(node), 0, high).node
    return build.cast(node, dtypes.int32)


def _scalar(given: Any, what: str) -> Array:
    try:
        x = asarray(given)
    except FnxError as e:
        raise ArgumentError(f"expected {what}, got {type(given).__name__}") from e
    if x.shape:
        raise ShapeError(f"expected {what}, got {x._aval}",
                         hint="reduce it with .any() or .all(), or use fnx.numpy.where to choose "
                              "for each element")
    return x
