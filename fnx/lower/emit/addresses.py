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

from fnx.core.ir import build, dtypes, kernel_args, ops
from fnx.core.ir.accessors import buffer, dims
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.rewriting import symbolic
from fnx.core.rewriting.algebra import Bounds, Polynomial, interval_product
from fnx.core.support.record import Record
from fnx.lower.analysis.conditions import INEQUALITIES, as_positive
from fnx.lower.emit.builder import ProgramBuilder
from fnx.lower.emit.expansion import SINGLE_INSTANCE, Instance, extent_of

SCRATCH_ALIGNMENT = 64  # of scratch memory, in bytes


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


def split_lane_terms(terms: Polynomial, lane: UOp | None) -> tuple[Polynomial, Polynomial]:
    """Split terms into those that do not depend on the lane, and those that do."""
    if lane is None:
        return terms, {}
    varying = {m: c for m, c in terms.items() if any(lane in a.ranges for a in m)}
    return {m: c for m, c in terms.items() if m not in varying}, varying


def offset_of(index: UOp, lane: UOp | None) -> Offset:
    """Return the flat offset of an INDEX."""
    terms, constant = symbolic.linear_terms(symbolic.element_offset(index))
    common, varying = split_lane_terms(terms, lane)
    stride = None
    if lane is None or not varying:
        stride = 0
    elif list(varying) == [(lane,)]:
        stride = varying[(lane,)]
    lanes = 1 if lane is None else extent_of(lane)
    coefficients = [c for m, c in common.items()
                    if not all(a.op is ops.RANGE and a.arg.kind == "UNROLL" for a in m)]
    return Offset(common, varying, constant, stride, lanes, math.gcd(*coefficients))


def substitute_instance(terms: Polynomial, at: Instance) -> Polynomial:
    """Substitute the instance into terms and their atoms; the constant part has the key ()."""
    out: Polynomial = {}
    for monomial, c in terms.items():
        rest = tuple([_atom_in(a, at) for a in monomial if a not in at])
        out[rest] = out.get(rest, 0) + c * math.prod([at[a] for a in monomial if a in at])
    return out


def _atom_in(atom: UOp, at: Instance) -> UOp:
    """Return an atom, such as an IDIV, in an instance: it may depend on an unrolled range."""
    values = {r: build.index_const(i) for r, i in at.items() if r in atom.ranges}
    return substitute([atom], values)[0] if values else atom


def is_strided(offset: Offset, lane: UOp | None) -> bool:
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

    def __init__(self, kernel: UOp, lines: ProgramBuilder, value: Callable[[UOp, Instance], UOp],
                 counter: Mapping[UOp, UOp]) -> None:
        self.lines, self.value, self.counter = lines, value, counter
        self._stages = {s: offset for space in ("PRIV", "SHARED")
                        for s, offset in scratch_layout(kernel, space)[0].items()}
        self._offsets: dict[UOp, Offset] = {}

    def offset(self, index: UOp, lane: UOp | None) -> Offset:
        result = self._offsets.get(index)
        if result is None:
            result = self._offsets[index] = offset_of(index, lane)
        return result

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
        sums, remainder = self.parts(terms, constant, at)
        out = build.index_const(0)
        for part in sums.values():
            out = self.lines.plus(out, part)
        return self.lines.plus(out, remainder)

    def bounds(self, terms: Polynomial, constant: int, at: Instance) -> Bounds:
        """Return the smallest and largest value of a sum, within the open span of each loop."""
        low = high = constant
        for monomial, c in terms.items():
            term = (c, c)
            for atom in monomial:
                term = interval_product(term, self._bounds_of(atom, at))
            low, high = low + term[0], high + term[1]
        return low, high

    def _bounds_of(self, atom: UOp, at: Instance) -> Bounds:
        counter, unrolled_value = self.counter.get(atom), at.get(atom)
        if unrolled_value is not None:
            return unrolled_value, unrolled_value
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
            return UOp(ops.REF, memory.dtype, (), kernel_args.Ref(memory.arg.slot))
        offset = self.value(self._stages[memory], SINGLE_INSTANCE)
        return self.lines.add(ops.SCRATCH, memory.dtype, (offset,), memory.arg)

    def access(self, index: UOp, lane: UOp | None, at: Instance) -> Access:
        """Emit the address of an INDEX."""
        offset = self.offset(index, lane)
        if offset.stride not in (0, 1, -1):
            pointer, constant = self._first_lane(index, offset, at)
            if constant:
                pointer = self.lines.add(ops.ADDRESS, index.dtype,
                                         (pointer, build.index_const(constant)))
            addresses = self.lane_addresses(pointer, self._lane_offsets(offset, at))
            return Access(addresses, None, buffer(index), offset.common, offset.constant, at)
        shift = offset.lanes - 1 if offset.stride == -1 else 0
        address = self.contiguous(index, lane, at, -shift, offset.lanes if offset.stride else 1)
        return Access(address, offset.stride, buffer(index), offset.common, offset.constant - shift,
                      at)

    def contiguous(self, index: UOp, lane: UOp | None, at: Instance, shift: int, lanes: int) -> UOp:
        """Emit the address of ``lanes`` elements, ``shift`` after the first lane of an INDEX."""
        offset = self.offset(index, lane)
        pointer, constant = self._first_lane(index, offset, at)
        memory, size = buffer(index), index.dtype.itemsize
        base_alignment = memory.arg.alignment if memory.op is ops.REF else SCRATCH_ALIGNMENT
        alignment = math.gcd(base_alignment, (constant + shift) * size, offset.grain * size)
        return self.lines.add(ops.ADDRESS, index.dtype.vec(lanes),
                              (pointer, build.index_const(constant + shift)), alignment)

    def _first_lane(self, index: UOp, offset: Offset, at: Instance) -> tuple[UOp, int]:
        """Return a pointer, and the offset of the first lane from it in elements."""
        pointer = self.base(buffer(index))
        sums, constant = self.parts(offset.common, offset.constant, at)
        for part in sums.values():
            pointer = self.lines.add(ops.ADDRESS, index.dtype, (pointer, part))
        return pointer, constant

    def lane_addresses(self, pointer: UOp, offsets: UOp) -> UOp:
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
        terms, constant = as_positive(condition)
        common, varying = split_lane_terms(terms, lane)
        step = varying.get((lane,), 0)
        if len(varying) != 1 or not (step < 0 or step == 1):
            return None
        mask = dtypes.bool_.vec(extent_of(lane))
        lines = self.lines
        if step < 0:  # rest - k*lane > 0: the first ceil(rest / k) lanes
            count = self.total(common, constant + (-step - 1), at)
            if step != -1:
                count = lines.divide(lines.integer(ops.MAX, count, 0), -step)
            return lines.add(ops.LANE_MASK, mask, (count,))
        count = self.total({m: -c for m, c in common.items()}, 1 - constant, at)
        return lines.add(ops.NOT, mask, (lines.add(ops.LANE_MASK, mask, (count,)),))


# ---- scratch memory -----------------------------------------------------------------------------


def scratch_layout(kernel: UOp, space: str = "PRIV") -> tuple[dict[UOp, UOp], UOp]:
    """Return the byte offset of each STAGE in a space, and the total bytes per worker.

    Both are index expressions; the total is one over VARs. Stages are consecutive, aligned to 64
    bytes; sizes may depend on run-time extents.

    >>> r = build.range_(100, 0)
    >>> s = build.stage(build.const(1, dtypes.float32), [r], id=0)
    >>> o = build.index_into(build.ref(0, dtypes.float32, (100,)), q := build.range_(100, 1))
    >>> copy = build.kernel([build.store(o, build.load(build.index_into(s, q)))], "copy")
    >>> symbolic.bounds(scratch_layout(copy)[1])
    (448, 448)
    """
    offsets: dict[UOp, UOp] = {}
    end = build.index_const(0)
    for node in toposort(kernel.src):
        if node.op is ops.STAGE and node.arg.space == space:
            offsets[node] = end
            end = symbolic.simplify(build.add(end, _padded_bytes(node)))
    return offsets, end


def _padded_bytes(stage: UOp) -> UOp:
    """Return the stage's bytes, rounded up to whole cache lines."""
    size = Expr(build.index_const(stage.dtype.itemsize))
    for n in dims(stage):
        size = size * Expr(n)
    return ((size + (SCRATCH_ALIGNMENT - 1)) // SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT).node
