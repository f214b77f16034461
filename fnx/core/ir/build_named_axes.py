"""Constructors of nodes over the batch elements of a named axis of vmap (op_args.Axis)."""

from __future__ import annotations

from fnx.core.ir import dtypes, op_args, ops
from fnx.core.ir.uop import UOp


def all_gather(x: UOp, axis: op_args.Axis) -> UOp:
    """Stack the x of all batch elements of a named axis, along a new leading axis."""
    return UOp(ops.ALL_GATHER, x.dtype, (x,), axis)


def axis_index(axis: op_args.Axis) -> UOp:
    """Return the index of the batch element along a named axis."""
    return UOp(ops.AXIS_INDEX, dtypes.int32, (), axis)


def pvary_like(x: UOp, like: UOp, axis: op_args.Axis) -> UOp:
    """Return x as a value for each batch element of a named axis, if ``like`` is one."""
    return UOp(ops.PVARY_LIKE, x.dtype, (x, like), axis)


def psum_like(x: UOp, like: UOp, axis: op_args.Axis) -> UOp:
    """Return the sum of x over the batch elements of a named axis, if x has a value for each of
    them and ``like`` has one for all."""
    return UOp(ops.PSUM_LIKE, x.dtype, (x, like), axis)
