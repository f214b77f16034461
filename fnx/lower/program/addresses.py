"""Addresses and lane masks of the LOADs and STOREs of the kernel level.

The row-major offset of an INDEX is a sum of products. Each summand is computed in the loop it
depends on, and pointers are chained from the outside in, so that the innermost offset is a constant
that fits into the instruction:

    o[io*4 + i, l]  of shape (m, n)      p1 = o + io*(4*n)       in loop io
    with i unrolled, l the lanes         p2 = p1 + i*n           a constant times n: no loop
                                         store <16 x float> at p2

The stride along the lanes selects the instruction: 0 is a scalar to broadcast, 1 a vector, -1 a
reversed vector, anything else a gather or scatter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from fnx.core import build, dtypes, op_args, ops
from fnx.core.parts import buffer
from fnx.core.record import Record
from fnx.core.rewriting import symbolic
from fnx.core.rewriting.intervals import Bounds, times
from fnx.core.rewriting.polynomial import Polynomial
from fnx.core.uop import UOp
from fnx.lower.program import scratch
from fnx.lower.program.builder import Lines
from fnx.lower.program.conditions import INEQUALITIES, positive_form
from fnx.lower.program.roles import SINGLE, Instance, extent_of

ALIGNMENT = 64  # of scratch memory, in bytes


class Access(Record):
    """The address of all lanes; ``stride`` is 0 for a scalar, -1 for reversed lanes.

    The first lane is ``terms`` + ``constant`` elements from the start of ``memory``, in the
    instance ``at``. For a gather or scatter this is the part common to all lanes.
    """

    address: UOp
    stride: int | None
    memory: UOp
    terms: Polynomial
    constant: int
    at: Instance


class Offset(Record):
    """A flat offset, split into the part common to all lanes and the part that varies.

    ``stride`` is the step from lane to lane (None: not a constant); ``grain`` divides all of the
    offset but its constant in an instance.
    """

    common: Polynomial
    lane: Polynomial
    constant: int
    stride: int | None
    lanes: int
    grain: int


def split_lanes(terms: Polynomial, lane: UOp | None) -> tuple[Polynomial, Polynomial]:
    """Split terms into those that do not depend on the lane, and those that do."""
    if lane is None:
        return terms, {}
    own = {m: c for m, c in terms.items() if any(lane in a.ranges for a in m)}
    return {m: c for m, c in terms.items() if m not in own}, own


def offset_of(place: UOp, lane: UOp | None) -> Offset:
    """Return the flat offset of an INDEX."""
    terms, constant = symbolic.linear(symbolic.element(place))
    common, own = split_lanes(terms, lane)
    stride = None
    if lane is None or not own:
        stride = 0
    elif list(own) == [(lane,)]:
        stride = own[(lane,)]
    lanes = 1 if lane is None else extent_of(lane)
    moving = [c for m, c in common.items()
              if not all(a.op is ops.RANGE and a.arg.kind == "UNROLL" for a in m)]
    return Offset(common, own, constant, stride, lanes, math.gcd(*moving))


def lies_apart(offset: Offset, lane: UOp | None) -> bool:
    """Return whether the lanes are strided, by a constant or a run-time value other than 0, 1, -1.
    """
    if offset.stride is None:
        return all(a is lane or a.op is ops.VAR for monomial in offset.lane for a in monomial)
    return offset.stride not in (0, 1, -1)


class Addresses:
    """Emits addresses and lane masks.

    Args:
        kernel: the kernel whose REFs and STAGEs are accessed.
        lines: the builder to emit to.
        value: (node, instance) -> the scalar or vector of an atom of an index.
        counter: the counter of each range whose loop is open.
    """

    def __init__(self, kernel: UOp, lines: Lines, value: Callable[[UOp, Instance], UOp],
                 counter: Mapping[UOp, UOp]) -> None:
        self.lines, self.value, self.counter = lines, value, counter
        self._stages = {s: at for space in ("PRIV", "SHARED")
                        for s, at in scratch.layout(kernel, space)[0].items()}
        self._offsets: dict[UOp, Offset] = {}

    def offset(self, place: UOp, lane: UOp | None) -> Offset:
        found = self._offsets.get(place)
        if found is None:
            found = self._offsets[place] = offset_of(place, lane)
        return found

    # ---- sums ----

    def parts(self, terms: Polynomial, constant: int, at: Instance) -> tuple[dict[int, UOp], int]:
        """Return the partial sum of each loop depth, outermost first, and the constant."""
        lines = self.lines
        sums: dict[int, UOp] = {}
        for monomial, c in terms.items():
            factors = []
            for atom in monomial:
                if atom in at:
                    c *= at[atom]
                else:
                    factors.append(self.value(atom, at))
            if not c or not factors:
                constant += c
                continue
            if len(factors) > 1:
                factors.sort(key=lines.depth)
            product = lines.times(factors[0], c)
            for f in factors[1:]:
                product = lines.times(product, f)
            if product.op is ops.CONST:
                constant += build.const_of(product)
                continue
            depth = lines.depth(product)
            sums[depth] = lines.plus(sums[depth], product) if depth in sums else product
        return (dict(sorted(sums.items())) if len(sums) > 1 else sums), constant

    def total(self, terms: Polynomial, constant: int, at: Instance) -> UOp:
        """Emit the whole sum as one integer."""
        sums, rest = self.parts(terms, constant, at)
        out = build.index_const(0)
        for part in sums.values():
            out = self.lines.plus(out, part)
        return self.lines.plus(out, rest)

    def bounds(self, terms: Polynomial, constant: int, at: Instance) -> Bounds:
        """Return the smallest and largest value of a sum, within the open span of each loop."""
        low = high = constant
        for monomial, c in terms.items():
            term = (c, c)
            for atom in monomial:
                term = times(term, self._bounds_of(atom, at))
            low, high = low + term[0], high + term[1]
        return low, high

    def _bounds_of(self, atom: UOp, at: Instance) -> Bounds:
        counter, known = self.counter.get(atom), at.get(atom)
        if known is not None:
            return known, known
        if counter is not None and counter.op is ops.CONST:
            return (build.const_of(counter),) * 2
        low, high = symbolic.bounds(atom)
        if counter is not None and counter.op is ops.FOR:
            start, stop = counter.src
            if start.op is ops.CONST:
                low = max(low, build.const_of(start))
            if stop.op is ops.CONST:
                high = min(high, build.const_of(stop) - 1)
        return low, high

    # ---- pointers ----

    def base(self, memory: UOp) -> UOp:
        """Emit the pointer to the start of a buffer."""
        if memory.op is ops.REF:
            return UOp(ops.REF, memory.dtype, (), op_args.Ref(memory.arg.slot))
        offset = self.value(self._stages[memory], SINGLE)
        return self.lines.add(ops.SCRATCH, memory.dtype, (offset,), memory.arg)

    def access(self, place: UOp, lane: UOp | None, at: Instance) -> Access:
        """Emit the address of an INDEX."""
        offset = self.offset(place, lane)
        if offset.stride not in (0, 1, -1):
            pointer, constant = self._first_lane(place, offset, at)
            if constant:
                pointer = self.lines.add(ops.ADDRESS, place.dtype,
                                         (pointer, build.index_const(constant)))
            apart = self.each_lane(pointer, self._lane_offsets(offset, at))
            return Access(apart, None, buffer(place), offset.common, offset.constant, at)
        back = offset.lanes - 1 if offset.stride == -1 else 0
        first = self.neighbours(place, lane, at, -back, offset.lanes if offset.stride else 1)
        return Access(first, offset.stride, buffer(place), offset.common, offset.constant - back,
                      at)

    def neighbours(self, place: UOp, lane: UOp | None, at: Instance, shift: int, lanes: int) -> UOp:
        """Emit the address of ``lanes`` elements, ``shift`` after the first lane of an INDEX."""
        offset = self.offset(place, lane)
        pointer, constant = self._first_lane(place, offset, at)
        memory, size = buffer(place), place.dtype.itemsize
        aligned = memory.arg.alignment if memory.op is ops.REF else ALIGNMENT
        alignment = math.gcd(aligned, (constant + shift) * size, offset.grain * size)
        return self.lines.add(ops.ADDRESS, place.dtype.vec(lanes),
                              (pointer, build.index_const(constant + shift)), alignment)

    def _first_lane(self, place: UOp, offset: Offset, at: Instance) -> tuple[UOp, int]:
        """Return a pointer, and the offset of the first lane from it in elements."""
        pointer = self.base(buffer(place))
        sums, constant = self.parts(offset.common, offset.constant, at)
        for part in sums.values():
            pointer = self.lines.add(ops.ADDRESS, place.dtype, (pointer, part))
        return pointer, constant

    def each_lane(self, pointer: UOp, offsets: UOp) -> UOp:
        """Emit one address per lane."""
        return self.lines.add(ops.ADDRESS, pointer.dtype.vec(offsets.dtype.lanes),
                              (pointer, offsets), pointer.dtype.itemsize)

    def _lane_offsets(self, offset: Offset, at: Instance) -> UOp:
        lines = self.lines
        total: UOp | None = None
        for monomial, c in offset.lane.items():
            product: UOp = build.index_const(c)
            for atom in monomial:
                factor = self.value(atom, at)
                product = factor if product.op is ops.CONST and product.arg == 1 \
                    else lines.across(ops.MUL, dtypes.index, (product, factor))
            total = product if total is None else \
                lines.across(ops.ADD, dtypes.index, (total, product))
        assert total is not None
        return lines.widen(total, offset.lanes)

    # ---- masks ----

    def lane_condition(self, condition: UOp, lane: UOp, at: Instance) -> UOp | None:
        """Emit the mask of an inequality linear in the lane; None for any other condition."""
        if condition.op not in INEQUALITIES or condition.src[0].dtype is not dtypes.index:
            return None
        terms, constant = positive_form(condition)
        rest, own = split_lanes(terms, lane)
        step = own.get((lane,), 0)
        if len(own) != 1 or not (step < 0 or step == 1):
            return None
        mask = dtypes.bool_.vec(extent_of(lane))
        lines = self.lines
        if step < 0:  # rest - k*lane > 0: the first ceil(rest / k) lanes
            count = self.total(rest, constant + (-step - 1), at)
            if step != -1:
                count = lines.divided(lines.integer(ops.MAX, count, 0), -step)
            return lines.add(ops.LANESBELOW, mask, (count,))
        count = self.total({m: -c for m, c in rest.items()}, 1 - constant, at)
        return lines.add(ops.NOT, mask, (lines.add(ops.LANESBELOW, mask, (count,)),))

