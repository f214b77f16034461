"""Constructors of nodes of kernels with carried values, matrix units or shuffles.

>>> from fnx.core.ir import build
>>> t = build.range_(8, 0)
>>> x = carry(1, 0, dtypes.index, [t])
>>> count = loop(1, t, [build.index_const(0)], [build.add(x, build.index_const(1))])
>>> count.arg.outs
(((), index),)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fnx.core.ir import dtypes, kernel_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import DTypeError


def shuffle_xor(x: UOp, thread: UOp, distance: int) -> UOp:
    """Exchange values in a subgroup: return the ``x`` of thread ``thread ^ distance``."""
    return UOp(ops.SHUFFLE_XOR, x.dtype, (x, thread), distance)


def mma(a: UOp, b: UOp, word_ranges: Sequence[UOp], dtype: DType, unit: str) -> UOp:
    """Build an MMA: multiply the terms in fragment registers, and sum over the ranges
    ``word_ranges``."""
    return UOp(ops.MMA, dtype, (a, b, *word_ranges), kernel_args.Mma(unit, len(word_ranges)))


def carry(id: int, i: int, dtype: DType, ranges: Iterable[UOp]) -> UOp:
    """Return carried value ``i`` of the LOOP ``id``; its RANGE is the first in ``ranges``."""
    return UOp(ops.CARRY, dtype, tuple(ranges), kernel_args.Carry(id, i))


def loop(id: int, t: UOp, inits: Sequence[UOp], nexts: Sequence[UOp], stop: UOp | None = None
         ) -> UOp:
    """Build the LOOP over t with initial carried values ``inits`` and yielded ``nexts``.

    GETTUPLE and PER_ITERATION read it. The loop ends before the first iteration in which ``stop``
    holds of the CARRYs.
    """
    if [n.dtype for n in inits] != [n.dtype for n in nexts]:
        raise DTypeError("iterate: expected next values of the types of the first ones, got "
                         f"{', '.join(n.dtype.name for n in nexts)}")
    outs = tuple([((), n.dtype) for n in inits])
    return UOp(ops.LOOP, dtypes.void, (t, *inits, *nexts, *([] if stop is None else [stop])),
               kernel_args.Loop(id, outs))


def per_iteration(value: UOp, loop: UOp) -> UOp:
    """Read a value over the CARRYs of a LOOP in each of its iterations."""
    return UOp(ops.PER_ITERATION, value.dtype, (value, loop, loop.src[0]))
