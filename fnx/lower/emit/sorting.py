"""The PROGRAM of a SORT: LSD radix sort of rows, or ranking of short rows.

    SORT(x: float32[1000, 512])  ->  FOR row in lo..hi: histograms of all digits, then four passes
                                     that scatter elements to the offset of their digit

Eager calls share programs: the number of rows and their length are scalars.

A key is mapped to an unsigned integer of the same order (of floats: the sign selects the bits to
flip, NaNs are last, zeros equal). Its bytes are the digits; there is one stable pass per digit,
lowest first. A single key without other operands is moved itself and mapped back at the end.
Otherwise each key, from the last, permutes the indices of the elements, by which all operands are
gathered at the end. Short rows are ranked: the position of each element is the number of elements
before it, computed for a vector of elements at once. The time is that of memory traffic, whatever
the order was.
"""

from __future__ import annotations

from fnx.core.ir import build, dtypes, kernel_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp
from fnx.core.rewriting import symbolic
from fnx.lower.emit import selection
from fnx.lower.emit.row_emitter import (
    MAX_LENGTH,
    VECTOR_BYTES,
    RowEmitter,
    key_dtype,
    rows_and_length,
)

MAX_RANKED = 128  # the longest row that is ranked, in elements
_LINE = 64  # bytes; scratch memory is rounded up to as many elements
_RADIX = 256


def program(sort: UOp, vectors: bool = True) -> UOp:
    """Return the PROGRAM of a SORT over a part of its rows. Without vectors nothing is ranked.

    >>> from fnx.core.ir import op_args
    >>> arg = op_args.Sort("sort", 1, (((8, 100), dtypes.int32),), (0,))
    >>> program(UOp(ops.SORT, dtypes.void, (), arg)).op
    PROGRAM
    """
    return selection.program(sort, vectors) if sort.arg.selects else \
        _SortEmitter(sort, vectors).program()


def scratch(sort: UOp, vectors: bool = True) -> UOp:
    """Return the scratch bytes per worker as an index expression."""
    if sort.arg.selects:
        return selection.scratch(sort, vectors)
    _, n = rows_and_length(sort)
    lines = build.idiv(build.add(n, build.index_const(_LINE - 1)), build.index_const(_LINE))
    emitter = _SortEmitter(sort, vectors)
    return symbolic.simplify(build.add(build.index_const(emitter.fixed), build.mul(
        lines, build.index_const(_LINE * emitter.per_element))))


def generalize_length(sort: UOp) -> tuple[UOp, tuple[UOp, ...]]:
    """Return a SORT for any number and length of rows, and its scalars as CONSTs.

    There is one for lengths that are ranked, and one for all others.
    """
    scalars = rows_and_length(sort)
    lengths = (0, MAX_RANKED) if build.const_of(scalars[1]) <= MAX_RANKED else \
        (MAX_RANKED + 1, MAX_LENGTH)
    ins = tuple([((), t) for _, t in sort.arg.ins])
    return sort.replace(arg=sort.arg.replace(ins=ins, lengths=lengths)), scalars


def may_overwrite_operand(sort: UOp, vectors: bool = True) -> bool:
    """Whether the sorted rows may be written over the operand: it is the only one, and each row is
    read before the first element of the result is written."""
    arg = sort.arg
    if arg.selects or arg.outputs != (0,) or len(arg.ins) != 1:
        return False
    (shape, t), = arg.ins
    return vectors and shape[-1] <= MAX_RANKED or not t.is_float and key_dtype(t).itemsize > 1


class _SortEmitter(RowEmitter):
    """Emits the lines."""

    def __init__(self, sort: UOp, vectors: bool) -> None:
        super().__init__(sort)
        arg = self.arg
        self.fixed = self.per_element = 0  # bytes of scratch memory
        self.padded = self.lines.times(self._vectors_of(_LINE), _LINE)
        self.alone = arg.outputs == (0,) and len(arg.ins) == 1
        widest = max([key_dtype(t) for _, t in arg.ins[:arg.n_keys]], key=lambda t: t.bits)
        self.counts = self._scratch(dtypes.int32, widest.itemsize * _RADIX)
        self.keys = [self._scratch(key_dtype(t)) for _, t in arg.ins[:arg.n_keys]]
        few = self.few = vectors and symbolic.bounds(self.n)[1] <= MAX_RANKED
        self.second_keys = [] if self.alone or few else [
            self._scratch(key_dtype(t)) for _, t in arg.ins[:arg.n_keys]]
        self.order = [] if self.alone or few else [
            self._scratch(dtypes.int32) for _ in range(2)]
        self.lanes = VECTOR_BYTES // max(4, widest.itemsize)
        self.positions = self._scratch(dtypes.int32) if few else self.counts
        # a copy of a row that its sorted elements may be written over
        self.row = [self._scratch(key_dtype(arg.ins[0][1]))] if few and self.alone else []

    def _scratch(self, t: DType, count: int = 0) -> UOp:
        """Allocate scratch memory for ``count`` elements; 0: for those of a row."""
        offset = self.lines.plus(self.lines.times(self.padded, self.per_element), self.fixed)
        stage_id = self.fixed + self.per_element
        self.fixed += count * t.itemsize
        self.per_element += 0 if count else t.itemsize
        return UOp(ops.SCRATCH, t, (offset,), kernel_args.Stage(stage_id, "PRIV"))

    def _vectors_of(self, lanes: int) -> UOp:
        """Return the number of vectors that hold a row."""
        return self.lines.divide(self.lines.plus(self.n, lanes - 1), lanes)

    def program(self) -> UOp:
        lines = self.lines
        for pointer in (self.counts, *self.keys, *self.second_keys, *self.order, *self.row,
                        *([self.positions] if self.few else [])):
            lines.put(pointer.op, pointer.dtype, pointer.src, pointer.arg)
        row = lines.open(*[UOp(ops.PARALLEL_RANGE, dtypes.index, (), i) for i in (0, 1)])
        self.first = lines.times(row, self.n)
        if self.few:
            self._rank_short_rows()
        elif self.alone:
            self._alone()
        else:
            self._sort_by_index()
        lines.close([])
        return lines.program()

    # ---- digits

    def clear_counts(self, passes: int) -> None:
        i = self.each(passes * _RADIX)
        self.store(self.counts, i, build.const(0, dtypes.int32))
        self.done()

    def digit(self, key: UOp, number: int) -> UOp:
        """Return the offset of the counter of a digit."""
        low = key if number == 0 else self.op(ops.SHR, key, 8 * number)
        value = self.cast(low if key.dtype.bits == 8 else self.op(ops.AND, low, 255), dtypes.index)
        return self.lines.plus(value, number * _RADIX)

    def count(self, key: UOp) -> None:
        for number in range(key.dtype.itemsize):
            at = self.digit(key, number)
            self.store(self.counts, at, self.op(ops.ADD, self.load(self.counts, at), 1))

    def starts(self, passes: int) -> None:
        """Turn counts into the start offset of each digit (exclusive prefix sum)."""
        for number in range(passes):
            i = self.each(_RADIX)
            start_offset = self.lines.phi(build.const(0, dtypes.int32))
            at = self.lines.plus(i, number * _RADIX)
            digit_count = self.load(self.counts, at)
            self.store(self.counts, at, start_offset)
            self.done(self.op(ops.ADD, start_offset, digit_count))

    def next_offset(self, key: UOp, number: int) -> UOp:
        at = self.digit(key, number)
        offset = self.load(self.counts, at)
        self.store(self.counts, at, self.op(ops.ADD, offset, 1))
        return self.cast(offset, dtypes.index)

    # ---- a single key

    def _alone(self) -> None:
        """Emit passes that alternate between result and scratch; the last one writes the result."""
        t = self.arg.ins[0][1]
        width = key_dtype(t)
        passes = width.itemsize
        out = self.buffer(1, width)
        self.clear_counts(passes)
        nans, neg_zeros = self._histograms(t)
        self.starts(passes)
        zero_start = self.load(self.counts, build.index_const((passes - 1) * _RADIX + 128))
        for number in range(passes):
            i = self.each(self.n)
            if number == 0:
                key = self.sort_key(self.element(0, i), t)
            elif (passes - number) % 2:
                key = self.load(self.keys[0], i)
            else:
                key = self.load(out, self.lines.plus(self.first, i))
            destination = self.next_offset(key, number)
            if (passes - number) % 2:  # the last one, the last but two ...
                value = self.from_ordered(key, t) if number == passes - 1 else key
                self.store(out, self.lines.plus(self.first, destination), value)
            else:
                self.store(self.keys[0], destination, key)
            self.done()
        if t.is_float:
            self._fix_specials(t, out, nans, neg_zeros, zero_start)

    def _histograms(self, t: DType) -> tuple[UOp, UOp]:
        """Emit the histograms of all digits; return the numbers of NaNs and of -0.0."""
        i = self.each(self.n)
        zero = build.const(0, dtypes.int32)
        counters = [self.lines.phi(zero), self.lines.phi(zero)] if t.is_float else []
        x = self.element(0, i)
        self.count(self.sort_key(x, t))
        if not counters:
            self.done()
            return zero, zero
        kinds = [self.is_nan(x, t), self.op(ops.CMPEQ, x, 1 << x.dtype.bits - 1)]
        nans, neg_zeros = self.done(*[self.op(ops.ADD, before, self.cast(kind, dtypes.int32))
                                      for before, kind in zip(counters, kinds)])
        return nans, neg_zeros

    def _fix_specials(self, t: DType, out: UOp, nans: UOp, neg_zeros: UOp, zeros: UOp) -> None:
        """Restore the original order and bits of zeros and NaNs."""
        special = self.op(ops.CMPLT, build.const(0, dtypes.int32),
                          self.op(ops.ADD, nans, neg_zeros))
        branch = self.lines.branch(special)
        first_nan = self.op(ops.SUB, self.cast(self.n, dtypes.int32), nans)
        i = self.each(self.n)
        offsets = [self.lines.phi(zeros), self.lines.phi(first_nan)]
        x = self.element(0, i)
        size = self.op(ops.AND, x, (1 << x.dtype.bits - 1) - 1)
        nexts = []
        for offset, kind in zip(offsets, (self.op(ops.CMPEQ, size, 0), self.is_nan(x, t))):
            special_branch = self.lines.branch(kind)
            self.store(out, self.lines.plus(self.first, self.cast(offset, dtypes.index)), x)
            self.lines.end_branch(special_branch)
            nexts.append(self.op(ops.ADD, offset, self.cast(kind, dtypes.int32)))
        self.done(*nexts)
        self.lines.end_branch(branch)

    # ---- by indices of elements

    def _sort_by_index(self) -> None:
        """Sort the indices of the elements, then gather all operands in that order."""
        order = self._moved()
        i = self.each(self.n)
        self.put_element(self.load(order, i), self.lines.plus(self.first, i))
        self.done()

    def _moved(self) -> UOp:
        """Emit the passes over the digits of each key, from the last key."""
        order, other_order = self.order
        has_order = False
        for key in reversed(range(self.arg.n_keys)):
            t = self.arg.ins[key][1]
            passes = key_dtype(t).itemsize
            keys, other_keys = self.keys[key], self.second_keys[key]
            self.clear_counts(passes)
            i = self.each(self.n)
            number = self.load(order, i) if has_order else self.cast(i, dtypes.int32)
            ordered_key = self.sort_key(self.element(key, self.cast(number, dtypes.index)), t)
            self.count(ordered_key)
            self.store(keys, i, ordered_key)
            if not has_order:
                self.store(order, i, number)
            self.done()
            self.starts(passes)
            for digit_number in range(passes):
                i = self.each(self.n)
                ordered_key, number = self.load(keys, i), self.load(order, i)
                destination = self.next_offset(ordered_key, digit_number)
                self.store(other_order, destination, number)
                if digit_number < passes - 1:
                    self.store(other_keys, destination, ordered_key)
                self.done()
                keys, other_keys, order, other_order = other_keys, keys, other_order, order
            has_order = True
        return order

    # ---- short rows

    def _rank_short_rows(self) -> None:
        """Rank a short row: an element's position is the number of elements before it.

        Those are the smaller ones, and equal ones to the left.
        """
        lines, n, lanes = self.lines, self.n, self.lanes
        start = lines.times(self.each(self._vectors_of(lanes)), lanes)
        inside = lines.add(ops.LANE_MASK, dtypes.bool_.vec(lanes),
                           (lines.plus(lines.times(start, -1), n),))
        for key, buffer in enumerate(self.keys):
            buf = self.buffer(key, buffer.dtype)
            x = lines.put(ops.LOAD, buf.dtype.vec(lanes), (self._vector(
                buf, lines.plus(self.first, start), buf.dtype.itemsize), inside))
            ordered_key = self.sort_key(x, self.arg.ins[key][1])
            lines.put(ops.STORE, dtypes.void, (self._vector(buffer, start), ordered_key))
            for copy in self.row:
                lines.put(ops.STORE, dtypes.void, (self._vector(copy, start), x))
        self.done()
        start = lines.times(self.each(self._vectors_of(lanes)), lanes)
        own_keys = [lines.put(ops.LOAD, b.dtype.vec(lanes), (self._vector(b, start),))
                    for b in self.keys]
        end = lines.integer(ops.MIN, lines.plus(start, lanes), n)
        count = lines.widen(build.const(0, dtypes.int32), lanes)
        for low, high in ((build.index_const(0), start), (start, end), (end, n)):
            j = lines.open(low, high)
            before = lines.phi(count)
            others = [self.load(buffer, j) for buffer in self.keys]
            left = lines.add(ops.NOT, dtypes.bool_.vec(lanes), (lines.add(
                ops.LANE_MASK, dtypes.bool_.vec(lanes), (
                    lines.plus(lines.plus(j, 1), lines.times(start, -1)),)),)) \
                if low is start else None
            is_before = self._before(others, own_keys, left, high is start)
            count, = self.done(self.where(is_before, self.op(ops.ADD, before, 1), before))
        lines.put(ops.STORE, dtypes.void, (self._vector(self.positions, start), count))
        self.done()
        i = self.each(n)
        destination = lines.plus(self.first, self.cast(self.load(self.positions, i), dtypes.index))
        if self.row:
            self.store(self.buffer(1, self.row[0].dtype), destination, self.load(self.row[0], i))
        else:
            self.put_element(i, destination)
        self.done()

    def _before(self, others: list[UOp], keys: list[UOp], left: UOp | None, all_left: bool) -> UOp:
        """Emit whether another element is before those of a vector.

        It may be to the left of all of them (``all_left``), of some (mask ``left``), or of none.
        """
        is_before = left
        for other, own_key in reversed(list(zip(others, keys))):
            if is_before is None:
                is_before = self.op(ops.CMPLE if all_left else ops.CMPLT, other, own_key)
            else:
                equal = self.op(ops.AND, self.op(ops.CMPEQ, other, own_key), is_before)
                is_before = self.op(ops.OR, self.op(ops.CMPLT, other, own_key), equal)
        assert is_before is not None
        return is_before

    def _vector(self, buffer: UOp, at: UOp, alignment: int = 0) -> UOp:
        """Return the address of a vector; in scratch memory it is aligned to its size."""
        t = buffer.dtype
        return self.lines.add(ops.ADDRESS, t.vec(self.lanes), (buffer, at),
                              alignment or t.itemsize * self.lanes)
