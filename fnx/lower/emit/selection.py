"""The PROGRAM of a SORT that selects: the first elements of the order of each row.

    SORT(x: float32[64, 5000], selects="largest", count=10)
        ->  FOR row in lo..hi: the best (key, index) of each block of the row, by lane
              FOR j in 0..10: the best of all blocks is element j
                              the best in its block after it

A key is a signed integer of the order of the operand, so that one comparison of vectors orders it;
of equal keys the lower index is the better one. What was taken comes first in that order, so what
is left of a block needs no marks: it is what comes after the last. A block is of some vectors,
about the root of those in the row, so that the two searches of a step take about as long. The time
does not depend on the data. Number and length of rows and blocks are scalars: all selections from
one dtype share a program.
"""

from __future__ import annotations

from fnx.core.ir import build, dtypes, kernel_args, ops
from fnx.core.ir.uop import UOp
from fnx.lower.emit.row_emitter import (
    MAX_LENGTH,
    VECTOR_BYTES,
    RowEmitter,
    key_dtype,
    rows_and_length,
)

Best = tuple[UOp, UOp]  # vectors of keys, and of indices


def program(sort: UOp, vectors: bool = True) -> UOp:
    """Return the PROGRAM of a selection over a part of its rows.

    >>> from fnx.core.ir import op_args
    >>> arg = op_args.Sort("sort", 1, (((8, 100), dtypes.int32),), (0,), selects="least", count=3)
    >>> program(UOp(ops.SORT, dtypes.void, (), arg)).op
    PROGRAM
    """
    return _SelectionEmitter(sort, vectors).program()


def lanes_of(sort: UOp, vectors: bool = True) -> int:
    """Return the number of keys in a vector: the shortest row that can be selected from."""
    itemsize: int = sort.arg.ins[0][1].itemsize
    return VECTOR_BYTES // max(4, itemsize) if vectors else 1


def scratch(sort: UOp, vectors: bool = True) -> UOp:
    """Return the scratch bytes per worker as an index expression: the best of each block."""
    blocks = build.add(_sizes(sort, vectors)[2], build.index_const(1))
    return build.mul(blocks, build.index_const(2 * VECTOR_BYTES))


def _sizes(sort: UOp, vectors: bool) -> tuple[UOp, UOp, UOp]:
    """Return the number of elements to select, the logarithm of the vectors of a block, and the
    blocks of a row."""
    if sort.arg.lengths is not None:
        return build.var(2, dtypes.index), build.var(3, dtypes.index), build.var(4, dtypes.index)
    count = sort.arg.ins[0][0][-1] // lanes_of(sort, vectors)
    shift = count.bit_length() // 2
    return build.index_const(sort.arg.count), build.index_const(shift), \
        build.index_const(-(-count >> shift))


def generalize(sort: UOp, vectors: bool) -> tuple[UOp, tuple[UOp, ...]]:
    """Return a selection of any number of elements from any rows, and its scalars as CONSTs."""
    ins = tuple([((), t) for _, t in sort.arg.ins])
    arg = sort.arg.replace(ins=ins, count=0, lengths=(lanes_of(sort, vectors), MAX_LENGTH))
    return sort.replace(arg=arg), (*rows_and_length(sort), *_sizes(sort, vectors))


class _SelectionEmitter(RowEmitter):
    """Emits the lines. The last block is the rest of the row that is no whole vector."""

    def __init__(self, sort: UOp, vectors: bool) -> None:
        super().__init__(sort)
        self.count, self.shift, self.blocks = _sizes(sort, vectors)
        self.lanes = lanes_of(sort, vectors)
        self.key = dtypes.int64 if self.arg.ins[0][1].itemsize == 8 else dtypes.int32
        self.whole = self.lines.divide(self.n, self.lanes)  # vectors of the row
        nbytes = self.lines.times(self.lines.plus(self.blocks, 1), VECTOR_BYTES)
        self.best_keys, self.best_indices = [
            UOp(ops.SCRATCH, self.key, (self.lines.times(nbytes, i),), kernel_args.Stage(i, "PRIV"))
            for i in range(2)]

    def program(self) -> UOp:
        lines = self.lines
        for pointer in (self.best_keys, self.best_indices):
            lines.put(pointer.op, pointer.dtype, pointer.src, pointer.arg)
        row = lines.open(*[UOp(ops.PARALLEL_RANGE, dtypes.index, (), i) for i in (0, 1)])
        self.first = lines.times(row, self.n)
        self._fill()
        j = self.each(self.count)
        key, index = self._best_of_row()
        self.put_element(index, lines.plus(lines.times(row, self.count), j))
        has_next = lines.branch(self.op(ops.CMPLT, lines.plus(j, 1), self.count))
        self._update(key, index)
        lines.end_branch(has_next)
        self.done()
        lines.close([])
        return lines.program()

    # ---- blocks

    def _fill(self) -> None:
        """Emit the best of each block by lane: the first of its largest keys."""
        lines = self.lines
        block = self.each(self.blocks)
        start, stop = self._vectors_of(block)
        first = self._indices(lines.times(start, self.lanes))
        number = lines.open(start, stop)
        best_key, best_index, index = [lines.phi(x) for x in (self._none()[0], first, first)]
        key = self._keys(lines.times(number, self.lanes))
        is_larger = self.op(ops.CMPLT, best_key, key)
        best_key, best_index, _ = self.done(
            self.op(ops.MAX, best_key, key), self.where(is_larger, index, best_index),
            self.op(ops.ADD, index, self.lanes))
        self._put_best(block, (best_key, best_index))
        self.done()
        at = lines.plus(self.n, -self.lanes)
        rest, index = lines.times(self.whole, self.lanes), self._indices(at)
        is_rest = self.op(ops.CMPLE, self.cast(rest, self.key), index)
        none = self._none()
        self._put_best(self.blocks, (self.where(is_rest, self._keys(at), none[0]),
                                     self.where(is_rest, index, none[1])))

    def _update(self, key: UOp, index: UOp) -> None:
        """Emit the best of a block after an element of it, from its last vector to its first."""
        lines = self.lines
        at, rest = self.cast(index, dtypes.index), lines.times(self.whole, self.lanes)
        is_rest = self.op(ops.CMPLE, rest, at)
        vector = lines.divide(at, self.lanes)
        block = self.where(is_rest, self.blocks, self.op(ops.SHR, vector, self.shift))
        start, stop = [self.where(is_rest, lines.plus(self.whole, i), x)
                       for i, x in enumerate(self._vectors_of(block))]
        begin = lines.times(start, self.lanes)  # what is before it is in another block
        last = lines.integer(ops.MIN, lines.times(lines.plus(stop, -1), self.lanes),
                             lines.plus(self.n, -self.lanes))
        i = self.each(lines.plus(stop, lines.times(start, -1)))
        best_key, best_index = [lines.phi(x) for x in self._none()]
        other_index = lines.phi(self._indices(last))
        other_key = self._keys(lines.plus(last, lines.times(i, -self.lanes)))
        is_taken = self.op(ops.AND, self.op(ops.CMPEQ, other_key, key),
                           self.op(ops.CMPLT, other_index, self.op(ops.ADD, index, 1)))
        is_worse = is_taken
        for low, high in ((key, other_key), (other_index, self.cast(begin, self.key)),
                          (other_key, best_key)):
            is_worse = self.op(ops.OR, is_worse, self.op(ops.CMPLT, low, high))
        best_key, best_index, _ = self.done(
            self.where(is_worse, best_key, other_key),
            self.where(is_worse, best_index, other_index),
            self.op(ops.SUB, other_index, self.lanes))
        self._put_best(block, (best_key, best_index))

    def _vectors_of(self, block: UOp) -> tuple[UOp, UOp]:
        """Return the numbers of the first vector of a block and of the one after its last."""
        start, end = [self.op(ops.SHL, x, self.shift)
                      for x in (block, self.lines.plus(block, 1))]
        stop = self.lines.integer(ops.MIN, end, self.whole)
        return start, stop

    def _best_of_row(self) -> Best:
        """Emit the search of all blocks; return a key and an index."""
        lines = self.lines
        rest = lines.plus(self.n, lines.times(self.whole, -self.lanes))
        block = self.each(lines.plus(self.blocks, lines.integer(ops.MIN, rest, 1)))
        best_key, best_index = [lines.phi(x) for x in self._none()]
        key, index = [lines.put(ops.LOAD, self.key.vec(self.lanes), (address,))
                      for address in self._best(block)]
        is_better = self._is_better((key, index), (best_key, best_index))
        keys, indices = self.done(self.where(is_better, key, best_key),
                                  self.where(is_better, index, best_index))
        key = lines.reduce_lanes(ops.MAX, keys)
        ties = self.where(self.op(ops.CMPEQ, keys, key), indices, self._none()[1])
        return key, lines.reduce_lanes(ops.MIN, ties)

    def _best(self, block: UOp) -> list[UOp]:
        """Return the addresses of the keys and indices of a block."""
        at = self.lines.times(block, self.lanes)
        return [self._vector(buffer, at, VECTOR_BYTES)
                for buffer in (self.best_keys, self.best_indices)]

    def _put_best(self, block: UOp, best: Best) -> None:
        for address, x in zip(self._best(block), best):
            self.lines.put(ops.STORE, dtypes.void, (address, x))

    # ---- elements

    def _vector(self, buffer: UOp, at: UOp, alignment: int) -> UOp:
        return self.lines.add(ops.ADDRESS, buffer.dtype.vec(self.lanes), (buffer, at), alignment)

    def _none(self) -> Best:
        """Return what is after all elements."""
        low, high = [self.lines.widen(build.const(x, self.key), self.lanes)
                     for x in self.key.limits]
        return low, high

    def _indices(self, at: UOp) -> UOp:
        lane = UOp(ops.LANES, self.key.vec(self.lanes), ()) if self.lanes > 1 else \
            build.const(0, self.key)
        return self.op(ops.ADD, lane, self.cast(at, self.key))

    def _is_better(self, a: Best, b: Best) -> UOp:
        """Emit whether elements are before others in the order."""
        is_first = self.op(ops.AND, self.op(ops.CMPEQ, a[0], b[0]),
                           self.op(ops.CMPLT, a[1], b[1]))
        return self.op(ops.OR, self.op(ops.CMPLT, b[0], a[0]), is_first)

    def _keys(self, at: UOp) -> UOp:
        """Load a vector of keys: signed integers, the larger the better."""
        t = self.arg.ins[0][1]
        buffer = self.buffer(0, key_dtype(t))
        bits = self.lines.put(ops.LOAD, buffer.dtype.vec(self.lanes), (
            self._vector(buffer, self.lines.plus(self.first, at), t.itemsize),))
        key = self.cast(bits, self.key.vec(self.lanes))
        missing = self.key.bits - 8 * t.itemsize  # bits
        if missing and not t.is_bool:
            key = self.op(ops.SHL, key, missing)
        if t.is_float:
            key = self._ordered(key, (((1 << t.exponent) - 1) << t.mantissa) << missing)
        elif t.kind == "uint":
            key = self.op(ops.XOR, key, self.key.limits[0])
        return self.op(ops.XOR, key, -1) if self.arg.selects == "least" else key

    def _ordered(self, bits: UOp, infinity: int) -> UOp:
        """Map the bits of floats to integers of their order: zeros are equal, NaNs are last."""
        low, high = self.key.limits
        bits = self.where(self.op(ops.CMPEQ, bits, low), build.const(0, self.key), bits)
        size = self.op(ops.AND, bits, high)
        is_negative = self.op(ops.CMPLT, bits, 0)
        ordered = self.op(ops.XOR, bits, self.where(is_negative, build.const(high, self.key),
                                                    build.const(0, self.key)))
        is_nan = self.op(ops.CMPLT, build.const(infinity, self.key), size)
        return self.where(is_nan, build.const(high, self.key), ordered)
