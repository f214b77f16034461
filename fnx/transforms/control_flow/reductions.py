"""Reductions of axes by any function: a REDUCE if it is a monoid, else a SCAN over elements.

    fold(x, 0, lambda a, b: b + a)            REDUCE(x, ADD)
    fold((v, i), ..., larger of two pairs)    SCAN over the reduced axes, of pairs

The graph of the function decides which. A SCAN visits the elements in order, so it is also correct
for functions that are not commutative.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.array.aval import Aval
from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError
from fnx.transforms.control_flow.batched_body import batch_body
from fnx.transforms.control_flow.bodies import (
    Body,
    args_tree,
    check_carry,
    check_structure,
    trace_body,
)


def reduce_axes(f: Callable[..., Any], structure: tree.TreeDef, operands: Sequence[UOp],
                inits: Sequence[UOp], axes: Sequence[int], caller: str, mask: UOp | None = None,
                first: bool = False) -> list[UOp]:
    """Reduce ``operands`` over axes with ``f(accumulator, element)``.

    Args:
        f: takes two pytrees of scalars and returns one.
        structure: the structure of these pytrees.
        operands: arrays of one shape, one for each leaf.
        inits: the initial accumulators, scalars of the same dtypes.
        axes: the axes to reduce, in row-major order of their elements.
        caller: the name of the caller, for messages.
        mask: a mask of the elements to reduce; the others hold the initial value and are
            skipped. None for all.
        first: whether only the first of equal extremes gets the derivative.
    """
    avals = [Aval((), x.dtype) for x in inits]
    body = trace_body(f, [*avals, *avals], args_tree(structure, structure), caller)
    if body.effects:
        raise ArgumentError(f"expected {body.name} without effects, got one that calls Python",
                            hint="a reduction may call it any number of times; use scan to call "
                                 "it once per step")
    check_structure("result", body, structure, body.out_tree)
    check_carry("result", body, structure, inits, body.function.src)
    monoids = match_monoids(body)
    if monoids is not None:
        return [_reduce_by_monoid(x, init, m, axes, mask, first)
                for x, init, m in zip(operands, inits, monoids)]
    return _reduce_by_scan(body, operands, inits, axes, mask)


def match_monoids(body: Body) -> list[Op] | None:
    """Match a function that applies a monoid to each leaf of two pytrees of scalars.

    Returns:
        The monoid of each leaf; None if the function does not match.
    """
    first, n = len(body.captures), len(body.outs)
    out = []
    for i, node in enumerate(body.function.src):
        slots = [s.arg.slot for s in node.src if s.op is ops.PARAM]
        if node.op not in ops.MONOIDS or sorted(slots) != [first + i, first + n + i]:
            return None
        out.append(node.op)
    return out


def _reduce_by_monoid(x: UOp, init: UOp, monoid: Op, axes: Sequence[int], mask: UOp | None,
                      first: bool) -> UOp:
    assert monoid.identity is not None
    identity = build.const(monoid.identity(x.dtype), x.dtype)
    if init is identity:
        return build.reduce(x, monoid, axes, first)
    if mask is not None:
        x = build.where(mask, x, build.expand(identity, x.shape))
    reduced = build.reduce(x, monoid, axes, first)
    return build.elementwise(monoid, build.expand(init, reduced.shape), reduced)


def _reduce_by_scan(body: Body, operands: Sequence[UOp], inits: Sequence[UOp], axes: Sequence[int],
                    mask: UOp | None) -> list[UOp]:
    """Reduce by a SCAN over the reduced elements, batched over all results."""
    shape = operands[0].shape
    remaining = [a for a in range(len(shape)) if a not in axes]
    out_shape = tuple([shape[a] for a in remaining])
    length, batch_size = math.prod(shape[a] for a in axes), math.prod(out_shape)
    order = (*sorted(axes), *remaining)
    step = batch_body(body, batch_size) if out_shape else body.function
    batch = (batch_size,) if out_shape else ()
    if mask is not None:
        step, operands = _mask_step(step, len(inits), batch), [*operands, mask]
    rows = [build.reshape(build.permute(x, order), (length, *batch)) for x in operands]
    outs = build_calls.scan(step, length, body.captures, [build.expand(i, batch) for i in inits],
                            rows)
    return [build.reshape(x, out_shape) for x in outs]


def _mask_step(step: UOp, n: int, shape: ops.Shape) -> UOp:
    """Add a mask operand to the step of a reduction; where it is false nothing changes."""
    size = step.arg.n_params
    mask = build.param(size, dtypes.bool_, shape)
    before = [build.param(size - 2 * n + i, x.dtype, shape) for i, x in enumerate(step.src)]
    return build.function([build.where(mask, new, old) for new, old in zip(step.src, before)],
                          size + 1, step.arg.name)
