"""Bounds of a loop over blocks: stop after the last column that contributes (causal masks).

    where(j <= i, s[i, j], -inf)       not j <= i for the first column of a block: stop there
    where(mask[i, j], s[i, j], -inf)   before: last[i] = max over j of where(mask[i, j], j + 1, 0)
                                       then as j < last[i]

With a mask that is data, rows whose axis comes before the axis of the blocks are assumed to see
its first columns, others its last ones, with which their loop then begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fnx.core.ir import build, dtypes, op_args, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.record import Record
from fnx.lower.analysis.workload import extent
from fnx.lower.attention import algebra
from fnx.lower.attention.tile_frame import RegionTerm, TileFrame


class LoopBound(Record):
    """The bound of a loop over blocks.

    Attributes:
        condition: over indices; once it fails at a column, it fails at all later ones.
        tests: further conditions for stopping.
        direction: -1 if it holds up to some column, 1 if from one on.
        masked: the score where it does not hold.
        data: whether it is loaded from memory.
    """

    condition: UOp
    tests: tuple[UOp, ...]
    direction: int
    masked: UOp | None
    data: bool


class _TermMask(Record):
    """A condition that drops terms where its value is ``value``, and its bound."""

    condition: UOp
    value: bool
    direction: int
    bound: UOp | None = None  # over indices; None if it is data


def loop_bound(frame: TileFrame, terms: Sequence[RegionTerm],
               online_score: UOp | None) -> LoopBound | None:
    """Return where the loop of some reductions may stop; None if no condition bounds it.

    ``online_score``: the score whose exponentials are summed, if its maximum is computed online.
    """
    masked_value = terms[0].value if online_score is None else online_score
    for mask in _masks(frame, masked_value):
        tests: list[UOp] = []
        masked = None
        if online_score is not None:
            masked = algebra.assume(online_score, mask.condition, mask.value)
            has_inner = any(other is not None for t in terms if t.exp_form is not None
                            for _, other, _ in t.exp_form.inner)
            if frame.j in masked.ranges or _has_reduction(masked) or has_inner:
                continue
        else:
            zero_tests = [_zero_tests(frame, terms, t, mask) for t in terms]
            if any(f is None for f in zero_tests):
                continue
            tests += [x for f in zero_tests if f is not None for x in f]
        tests += [_never_holds(frame, terms, _not_finite(t.other))
                  for t in terms if t.other is not None]
        is_data = mask.bound is None
        bound = _data_bound(frame, terms, mask) if mask.bound is None else mask.bound
        return LoopBound(bound, tuple(tests), mask.direction, masked, is_data)
    return None


def is_minus_inf(masked: UOp) -> bool:
    """Whether the masked score is -inf: its exponential is 0 whatever the maximum."""
    return masked.op is ops.CONST and build.const_of(masked) == -float("inf")


def _masks(frame: TileFrame, value: UOp) -> Iterator[_TermMask]:
    """Yield conditions that may bound a value along the blocks: of indices, then of data."""
    for condition, as_index, way in algebra.bounding_conditions(value, frame.j):
        yield _TermMask(condition, False, way, as_index)
    way = -1 if frame.row < frame.along else 1
    for node in toposort([value]):
        if node.op is not ops.WHERE or _has_reduction(node.src[0]) \
                or all(n.op is not ops.LOAD for n in toposort([node.src[0]])):
            continue
        for holds in (False, True):
            yield _TermMask(node.src[0], holds, way)


def _data_bound(frame: TileFrame, terms: Sequence[RegionTerm], mask: _TermMask) -> UOp:
    """Return a bound for a data mask: the last column that it leaves, or the first."""
    is_unmasked = build.logical_not(mask.condition) if mask.value else mask.condition
    if frame.j not in is_unmasked.ranges:
        return is_unmasked
    column, length = frame.j, frame.shape[frame.along]
    column_index = column if mask.direction < 0 else \
        build.sub(build.index_const(length - 1), column)
    column_index = build.cast(column_index, dtypes.int32)
    zero = build.const_like(column_index, 0)
    value = build.where(is_unmasked, build.add(column_index, build.const_like(column_index, 1)),
                        zero)
    return build.lt(column_index, _precompute_max(frame, terms, value))


def _zero_tests(frame: TileFrame, terms: Sequence[RegionTerm], term: RegionTerm,
                mask: _TermMask) -> list[UOp] | None:
    """Return the tests under which the masked terms of a sum are 0; None if there are none."""
    masked_weights = algebra.assume(term.weights, mask.condition, mask.value)
    if term.monoid is not ops.ADD or masked_weights is term.weights or \
            _has_reduction(masked_weights):
        return None
    zero = build.const_like(masked_weights, 0)
    if masked_weights.op is ops.CONST:
        return [] if build.const_of(masked_weights) == 0 else None
    return [_never_holds(frame, terms, build.ne(masked_weights, zero))]


def _never_holds(frame: TileFrame, terms: Sequence[RegionTerm], condition: UOp) -> UOp:
    """Return the test that a condition holds nowhere along the reduced axes and the lanes."""
    if not condition.ranges & _reduced_loops(frame, terms):
        return build.logical_not(condition)
    any_holds = _precompute_max(frame, terms, build.cast(condition, dtypes.int32))
    return build.eq(any_holds, build.const_like(any_holds, 0))


def _reduced_loops(frame: TileFrame, terms: Sequence[RegionTerm]) -> set[UOp]:
    """Return the loops of the reduced axes and of the lanes."""
    lanes = [frame.loops[token] for t in terms for token, _ in t.reduction.lanes]
    return {frame.j, *[frame.loops[a] for a in frame.extra_reduced], *lanes}


def _precompute_max(frame: TileFrame, terms: Sequence[RegionTerm], value: UOp) -> UOp:
    """Reduce integers by max along the reduced axes and the lanes, in a kernel that runs before."""
    reduced_loops = _reduced_loops(frame, terms)
    reduce_loops = sorted(value.ranges & reduced_loops, key=lambda r: r.arg.id)
    result_loops = sorted(value.ranges - reduced_loops, key=lambda r: r.arg.id)
    shape = tuple([extent(r) for r in result_loops])
    (max_value,), operands = frame.renumber_slots(
        [build.reduce_ranges(value, ops.MAX, reduce_loops)])
    target = build.index_into(build.ref(len(operands), dtypes.int32, shape), *result_loops)
    kernel = build.kernel([build.store(target, max_value)], "any_other",
                          [r.arg.id for r in (*result_loops, *reduce_loops)])
    call = UOp(ops.CALL, dtypes.void, (kernel, *operands),
               op_args.Call("any_other", ((shape, dtypes.int32),)))
    result, = build.results(call)
    slot = frame.slots.setdefault(result, len(frame.slots))
    return build.load(build.index_into(build.ref(slot, dtypes.int32, shape), *result_loops))


def _not_finite(value: UOp) -> UOp:
    zero = build.const_like(value, 0)
    return build.ne(build.mul(value, zero), zero)


def _has_reduction(value: UOp) -> bool:
    return any(n.op is ops.REDUCE for n in toposort([value]))
