"""Bounds of a loop over blocks: stop after the last column that contributes (causal masks).

    where(j <= i, s[i, j], -inf)       not j <= i for the first column of a block: stop there
    where(mask[i, j], s[i, j], -inf)   before: last[i] = max over j of where(mask[i, j], j + 1, 0)
                                       then as j < last[i]

With a mask that is data, rows whose axis comes before the axis of the blocks are assumed to see
its first columns, others its last ones, with which their loop then begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fnx.core import build, dtypes, op_args, ops
from fnx.core.record import Record
from fnx.core.uop import UOp, toposort
from fnx.lower.blockwise import algebra
from fnx.lower.blockwise.frame import Frame, Term
from fnx.lower.schedule.workload import extent


class End(Record):
    """The bound of a loop over blocks.

    Attributes:
        condition: over indices; once it fails at a column, it fails at all later ones.
        tests: further conditions for stopping.
        way: -1 if it holds up to some column, 1 if from one on.
        masked: the score where it does not hold.
        data: whether it is loaded from memory.
    """

    condition: UOp
    tests: tuple[UOp, ...]
    way: int
    masked: UOp | None
    data: bool


class _Mask(Record):
    """A condition that drops terms where its value is ``holds``, and its bound."""

    condition: UOp
    holds: bool
    way: int
    bound: UOp | None = None  # over indices; None if it is data


def end_of(frame: Frame, terms: Sequence[Term], score: UOp | None) -> End | None:
    """Return where the loop of some reductions may stop; None if no condition bounds it.

    ``score``: the score whose exponentials are summed, if its maximum is computed online.
    """
    first = terms[0].value if score is None else score
    for mask in _masks(frame, first):
        tests: list[UOp] = []
        masked = None
        if score is not None:
            masked = algebra.without(score, mask.condition, mask.holds)
            inner = any(other is not None for t in terms if t.weighed is not None
                        for _, other, _ in t.weighed.inner)
            if frame.j in masked.ranges or _folds(masked) or inner:
                continue
        else:
            found = [_vanishes(frame, terms, t, mask) for t in terms]
            if any(f is None for f in found):
                continue
            tests += [x for f in found if f is not None for x in f]
        tests += [_never(frame, terms, _not_finite(t.other)) for t in terms if t.other is not None]
        is_data = mask.bound is None
        bound = _found(frame, terms, mask) if mask.bound is None else mask.bound
        return End(bound, tuple(tests), mask.way, masked, is_data)
    return None


def is_nothing(masked: UOp) -> bool:
    """Whether the masked score is -inf: its exponential is 0 whatever the maximum."""
    return masked.op is ops.CONST and build.const_of(masked) == -float("inf")


def _masks(frame: Frame, value: UOp) -> Iterator[_Mask]:
    """Yield conditions that may bound a value along the blocks: of indices, then of data."""
    for condition, as_index, way in algebra.bounding(value, frame.j):
        yield _Mask(condition, False, way, as_index)
    way = -1 if frame.row < frame.along else 1
    for node in toposort([value]):
        if node.op is not ops.WHERE or _folds(node.src[0]) \
                or all(n.op is not ops.LOAD for n in toposort([node.src[0]])):
            continue
        for holds in (False, True):
            yield _Mask(node.src[0], holds, way)


def _found(frame: Frame, terms: Sequence[Term], mask: _Mask) -> UOp:
    """Return a bound for a data mask: the last column that it leaves, or the first."""
    seen = build.logical_not(mask.condition) if mask.holds else mask.condition
    if frame.j not in seen.ranges:
        return seen
    j, length = frame.j, frame.shape[frame.along]
    place = j if mask.way < 0 else build.sub(build.index_const(length - 1), j)
    place = build.cast(place, dtypes.int32)
    zero = build.like(place, 0)
    value = build.where(seen, build.add(place, build.like(place, 1)), zero)
    return build.lt(place, _before(frame, terms, value))


def _vanishes(frame: Frame, terms: Sequence[Term], term: Term, mask: _Mask) -> list[UOp] | None:
    """Return the tests under which the masked terms of a sum are 0; None if there are none."""
    rest = algebra.without(term.weights, mask.condition, mask.holds)
    if term.monoid is not ops.ADD or rest is term.weights or _folds(rest):
        return None
    zero = build.like(rest, 0)
    if rest.op is ops.CONST:
        return [] if build.const_of(rest) == 0 else None
    return [_never(frame, terms, build.ne(rest, zero))]


def _never(frame: Frame, terms: Sequence[Term], condition: UOp) -> UOp:
    """Return the test that a condition holds nowhere along the reduced axes and the lanes."""
    if not condition.ranges & _gone(frame, terms):
        return build.logical_not(condition)
    seen = _before(frame, terms, build.cast(condition, dtypes.int32))
    return build.eq(seen, build.like(seen, 0))


def _gone(frame: Frame, terms: Sequence[Term]) -> set[UOp]:
    """Return the loops of the reduced axes and of the lanes."""
    lanes = [frame.loops[token] for t in terms for token, _ in t.fold.lanes]
    return {frame.j, *[frame.loops[a] for a in frame.more], *lanes}


def _before(frame: Frame, terms: Sequence[Term], value: UOp) -> UOp:
    """Reduce integers by max along the reduced axes and the lanes, in a kernel that runs before."""
    gone = _gone(frame, terms)
    along = sorted(value.ranges & gone, key=lambda r: r.arg.id)
    over = sorted(value.ranges - gone, key=lambda r: r.arg.id)
    shape = tuple([extent(r) for r in over])
    (most,), operands = frame.slotted([build.reduce_ranges(value, ops.MAX, along)])
    place = build.at(build.ref(len(operands), dtypes.int32, shape), *over)
    kernel = build.kernel([build.store(place, most)], "any_other",
                          [r.arg.id for r in (*over, *along)])
    call = UOp(ops.CALL, dtypes.void, (kernel, *operands),
               op_args.Call("any_other", ((shape, dtypes.int32),)))
    found, = build.results(call)
    slot = frame.slots.setdefault(found, len(frame.slots))
    return build.load(build.at(build.ref(slot, dtypes.int32, shape), *over))


def _not_finite(value: UOp) -> UOp:
    zero = build.like(value, 0)
    return build.ne(build.mul(value, zero), zero)


def _folds(value: UOp) -> bool:
    return any(n.op is ops.REDUCE for n in toposort([value]))
