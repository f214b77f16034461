"""Donation: find which results may reuse the memory of donated parameters.

    before  step(p, x) -> p - x, sum(p)       p is donated
    after   out 0 may be written over p

These pairs are candidates only: lower/memory/buffer_sharing.py proves that nothing is read after it
was overwritten. A result that is a partial update of a parameter, or carried by a loop from it, is
tried with that parameter first; then results and parameters of one type are paired in order.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from fnx.core.ir import build, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp
from fnx.lower.fusion.group import memory_of
from fnx.lower.memory.partial_updates import update_base

ResultParamPairs = tuple[tuple[int, int], ...]  # (result, parameter)
_MAX_TRIES = 4  # number of same-typed parameters tried for a result


def donated_pairs(fn: UOp, results: Sequence[UOp], donated: Collection[int]) -> ResultParamPairs:
    """Return (result number, parameter slot) pairs that may share memory.

    Args:
        fn: a FUNCTION.
        results: its distinct results (``unique_results``).
        donated: slots of the donated parameters.

    >>> from fnx.core.ir import dtypes
    >>> p, q = (build.param(i, dtypes.float32, (3,)) for i in range(2))
    >>> fn = build.function([build.neg(q), build.neg(p)], 2)
    >>> donated_pairs(fn, fn.src, (0,))
    ((0, 0), (1, 0))
    """
    if not donated:
        return ()
    returned_slots = {memory_of(out).arg.slot for out in fn.src if memory_of(out).op is ops.PARAM}
    params = {s: p for s, p in build.params(fn).items() if s in donated and s not in returned_slots}
    return tuple(dict.fromkeys([*_update_pairs(results, params),
                                *_same_type_pairs(results, params)]))


def _update_pairs(results: Sequence[UOp], params: dict[int, UOp]) -> Iterator[tuple[int, int]]:
    for i, result in enumerate(results):
        base = updated_parameter(result)
        if base in params and _type_of(params[base]) == _type_of(result):
            yield i, base


def _same_type_pairs(results: Sequence[UOp], params: dict[int, UOp]) -> Iterator[tuple[int, int]]:
    of_type: dict[tuple[DType, int], list[int]] = {}
    for slot, p in sorted(params.items()):
        of_type.setdefault(_type_of(p), []).append(slot)
    counts: dict[tuple[DType, int], int] = {}
    for i, result in enumerate(results):
        kind = _type_of(result)
        slots = of_type.get(kind, [])
        position = counts[kind] = counts.get(kind, -1) + 1
        rotated = [*slots[position % len(slots):], *slots[:position % len(slots)]] if slots else []
        for slot in rotated[:_MAX_TRIES]:
            yield i, slot


def _type_of(node: UOp) -> tuple[DType, int]:
    """Return dtype and number of elements: equal byte counts alone do not suffice."""
    return node.dtype, math.prod(node.shape)


def updated_parameter(node: UOp) -> int | None:
    """Return the slot of the parameter that a node updates, looking through loop carries."""
    below, _ = update_base(node)
    if below.op is not ops.PARAM:
        return None
    slot: int = below.arg.slot
    return slot
