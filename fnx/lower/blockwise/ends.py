"""Where a loop over blocks may end: behind the last place that has anything to add.

    where(j <= i, s[i, j], -inf)       not j <= i at the first place of a block: none behind it
    where(mask[i, j], s[i, j], -inf)   before: last[i] = max over j of where(mask[i, j], j + 1, 0)
                                       then as j < last[i]

Rows that come before the axis of the blocks are taken to see its first places, others its last
ones, which their loop then begins with.
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
    """Where a loop may end.

    Attributes:
        condition: over indices; does not hold of any place behind the first where it does not.
        tests: that also have to hold.
        way: -1 where it holds up to some place, 1 where from one on.
        masked: the score where it does not hold.
        data: whether it is read from memory.
    """

    condition: UOp
    tests: tuple[UOp, ...]
    way: int
    masked: UOp | None
    data: bool


class _Mask(Record):
    """A condition under which terms are left out where it is ``holds``, and what bounds it."""

    condition: UOp
    holds: bool
    way: int
    bound: UOp | None = None  # over indices; else it is data


def end_of(frame: Frame, terms: Sequence[Term], score: UOp | None) -> End | None:
    """Where the loop of some folds may end; None where no condition is known to bound it.

    ``score``: whose exponentials are folded, if the largest is found on the way.
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
    """Whether a score is one whose exponential is 0 beside any other."""
    return masked.op is ops.CONST and build.const_of(masked) == -float("inf")


def _masks(frame: Frame, value: UOp) -> Iterator[_Mask]:
    """Conditions that may bound a value along the blocks: of indices, then those that are data."""
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
    """A condition that bounds a mask, by the last place that it leaves; or the first."""
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
    """Tests under which the terms of a sum are 0 where a mask leaves them out."""
    rest = algebra.without(term.weights, mask.condition, mask.holds)
    if term.monoid is not ops.ADD or rest is term.weights or _folds(rest):
        return None
    zero = build.like(rest, 0)
    if rest.op is ops.CONST:
        return [] if build.const_of(rest) == 0 else None
    return [_never(frame, terms, build.ne(rest, zero))]


def _never(frame: Frame, terms: Sequence[Term], condition: UOp) -> UOp:
    """That a condition holds nowhere along what is folded, and lanes."""
    if not condition.ranges & _gone(frame, terms):
        return build.logical_not(condition)
    seen = _before(frame, terms, build.cast(condition, dtypes.int32))
    return build.eq(seen, build.like(seen, 0))


def _gone(frame: Frame, terms: Sequence[Term]) -> set[UOp]:
    """The loops of what is folded, and lanes."""
    lanes = [frame.loops[token] for t in terms for token, _ in t.fold.lanes]
    return {frame.j, *[frame.loops[a] for a in frame.more], *lanes}


def _before(frame: Frame, terms: Sequence[Term], value: UOp) -> UOp:
    """The largest of some integers along what is folded, and lanes: a kernel before finds it."""
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
