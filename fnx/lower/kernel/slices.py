"""Slices: turn a slice of an operand along its leading axes into a buffer offset.

    before  o[i, j] = x[3, i, j] + x[5, i, j]            x: (100, 8, 16)      operands x, o
    after   o[i, j] = x0[i, j] + x1[i, j]                x0, x1: (8, 16)      x[3], x[5], o

So the steps of an unrolled loop over xs[t] share one kernel, compiled once. The kernel only relies
on alignment to whole rows (their byte count divides the address); the offset is no part of it.

>>> from fnx.core import dtypes
>>> r, x = build.range_(8, 0), build.param(0, dtypes.float32, (100, 8))
>>> o = build.at(build.ref(1, dtypes.float32, (8,)), r)
>>> read = build.load(build.at(build.ref(0, dtypes.float32, (100, 8)), build.index_const(3), r))
>>> step = StepBody(build.kernel([build.store(o, read)], "row", (0,)), (x, x), (), None, (), True)
>>> made, = slices([step])
>>> made.operands[0].start, made.operands[0].nbytes
(96, 32)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core import build, ops, parts
from fnx.core.record import Record
from fnx.core.rewriting import symbolic
from fnx.core.uop import UOp, rebuild, toposort
from fnx.lower.fusion.ranges import BodyStep, StepBody
from fnx.lower.memory import BufferOrView, View


class _Part(Record):
    """Rows of a REF: the first element, their extents, and the number of indices dropped."""

    start: int
    dims: tuple[UOp, ...]
    dropped: int


def slices(steps: Sequence[StepBody | BodyStep]) -> list[StepBody | BodyStep]:
    """Replace operands of the steps by slices of them, where a kernel only reads a slice."""
    return [_sliced(step) if isinstance(step, StepBody) and step.sliced else step for step in steps]


def _sliced(step: StepBody) -> StepBody:
    accesses: dict[int, list[UOp]] = {}
    for node in toposort([step.kernel]):
        if node.op is ops.INDEX and parts.buffer(node).op is ops.REF:
            accesses.setdefault(parts.buffer(node).arg.slot, []).append(node)
    parts_of: dict[UOp, _Part] = {}
    written = parts.written_slots(step.kernel)
    for slot, places in accesses.items():
        found = [_part(place) for place in places]
        if slot not in written and None not in found and _pays(places, found):
            parts_of.update((place, part) for place, part in zip(places, found) if part)
    return _over_parts(step, accesses, parts_of) if parts_of else step


def _pays(places: Sequence[UOp], found: Sequence[_Part | None]) -> bool:
    """Whether any access reads a proper slice."""
    return any(part is not None and part.dims != parts.buffer(place).src
               for place, part in zip(places, found))


def _part(place: UOp) -> _Part | None:
    """Return the rows that an INDEX accesses; None if that depends on data, or on several
    ranges."""
    ref, *index = place.src
    if any(d.op is not ops.CONST for d in ref.src):
        return None
    start = dropped = 0
    dims = [build.const_of(d) for d in ref.src]
    while dropped < len(index):
        first, at = _range_and_number(index[dropped])
        if first is not None or not 0 <= at < dims[dropped]:
            break
        start += at * math.prod(dims[dropped + 1:])
        dropped += 1
    rest = list(ref.src[dropped:])
    if rest:
        first, at = _range_and_number(index[dropped])
        if first is not None and parts.extent(first).op is ops.CONST and \
                0 <= at <= dims[dropped] - build.const_of(parts.extent(first)):
            start += at * math.prod(dims[dropped + 1:])
            rest[0] = parts.extent(first)
    return _Part(start, tuple(rest), dropped)


def _range_and_number(index: UOp) -> tuple[UOp | None, int]:
    """Return (r, 3) for r + 3, (None, 3) for 3, and (None, -1) for anything else."""
    if index.op is ops.RANGE:
        return index, 0
    if index.op in (ops.CONST, ops.ADD, ops.SUB):
        terms, number = symbolic.linear(index)
        if not terms:
            return None, number
        (monomial, factor), *more = terms.items()
        if not more and factor == 1 and len(monomial) == 1 and monomial[0].op is ops.RANGE:
            return monomial[0], number
    return None, -1


def _over_parts(step: StepBody, accesses: dict[int, list[UOp]], parts_of: dict[UOp, _Part]
                ) -> StepBody:
    """Return the step with an operand for each slice; slots are renumbered."""
    operands: list[BufferOrView] = []
    slots: dict[UOp, int] = {}  # of INDEX nodes
    for slot, operand in enumerate(step.operands):
        places = accesses.get(slot, [])
        if not any(place in parts_of for place in places):
            slots.update(dict.fromkeys(places, len(operands)))
            operands.append(operand)
            continue
        known: dict[_Part, int] = {}
        for place in places:
            part = parts_of[place]
            if part not in known:
                known[part] = len(operands)
                operands.append(_view(operand, part))
            slots[place] = known[part]

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node not in slots:
            return None
        ref, *index = src
        part = parts_of.get(node)
        dims = ref.src if part is None else part.dims
        moved = build.ref(slots[node], ref.dtype, dims, ref.arg.name)
        if part is None:
            return build.at(moved, *index)
        rest = index[part.dropped:]
        if rest and part.dims[0] is not ref.src[part.dropped]:
            moving, _ = _range_and_number(rest[0])
            assert moving is not None
            rest[0] = moving
        return build.at(moved, *rest)

    kernel, = rebuild([step.kernel], visit)
    return step.replace(kernel=kernel, operands=tuple(operands), sliced=False)


def _view(whole: BufferOrView, part: _Part) -> View:
    """Return a slice of a buffer, or of a part of one that is the same in each iteration."""
    at = whole if isinstance(whole, View) else View(whole, 0)
    size = at.node.dtype.itemsize
    row = math.prod([build.const_of(d) for d in part.dims[not part.dropped:]]) * size
    count = math.prod([build.const_of(d) for d in part.dims])
    return View(at.node, count * size, at.start + part.start * size,
                grain=math.gcd(row, at.grain))
