"""What emitters of programs that sort rows share: addresses of a row, keys of the order."""

from __future__ import annotations

import math

from fnx.core.ir import build, dtypes, kernel_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.lower.emit.builder import ProgramBuilder

MAX_LENGTH = 1 << 31  # the longest row that is sorted: indices are int32
VECTOR_BYTES = 64  # bytes of the keys that are compared at once; small keys count as int32
_UNSIGNED = {8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64}


def rows_and_length(sort: UOp) -> tuple[UOp, UOp]:
    """Return the number of rows and their length as index expressions."""
    if sort.arg.lengths is not None:
        return build.var(0, dtypes.index), build.var(1, dtypes.index, *sort.arg.lengths)
    *rows, n = sort.arg.ins[0][0]
    return build.index_const(math.prod(rows)), build.index_const(n)


def key_dtype(t: DType) -> DType:
    """Return the unsigned type of the bits of an element."""
    return _UNSIGNED[8 * t.itemsize]


class RowEmitter:
    """Emits lines over the rows of a SORT. Offsets count elements in a buffer of an unsigned
    type."""

    def __init__(self, sort: UOp) -> None:
        self.arg = sort.arg
        _, self.n = rows_and_length(sort)
        self.lines = ProgramBuilder()
        self.first = build.index_const(0)  # the offset of the row

    # ---- lines

    def op(self, op: Op, a: UOp, b: UOp | int) -> UOp:
        b = build.const(b, a.dtype.scalar) if isinstance(b, int) else b
        dtype = dtypes.bool_ if op in ops.COMPARISONS else a.dtype.scalar
        return self.lines.across(op, dtype, (a, b))

    def cast(self, x: UOp, t: DType) -> UOp:
        if x.op is ops.CONST:
            return build.const(build.const_of(x), t)
        return x if x.dtype is t else self.lines.add(ops.CAST, t, (x,))

    def where(self, condition: UOp, a: UOp, b: UOp) -> UOp:
        return self.lines.across(ops.WHERE, a.dtype.scalar, (condition, a, b))

    def _address(self, buffer: UOp, at: UOp) -> UOp:
        t = buffer.dtype
        return self.lines.add(ops.ADDRESS, t, (buffer, at), t.itemsize)

    def load(self, buffer: UOp, at: UOp) -> UOp:
        return self.lines.put(ops.LOAD, buffer.dtype, (self._address(buffer, at),))

    def store(self, buffer: UOp, at: UOp, value: UOp) -> None:
        self.lines.put(ops.STORE, dtypes.void, (self._address(buffer, at), value))

    def each(self, n: int | UOp) -> UOp:
        stop = build.index_const(n) if isinstance(n, int) else n
        return self.lines.open(build.index_const(0), stop)

    def done(self, *nexts: UOp) -> list[UOp]:
        return self.lines.close(nexts)

    def buffer(self, slot: int, t: DType) -> UOp:
        return UOp(ops.REF, t, (), kernel_args.Ref(slot, "", t.itemsize))

    def put_element(self, index: UOp, destination: UOp) -> None:
        """Store the results that belong to an element: its operands, and its index."""
        source = self.lines.plus(self.first, self.cast(index, dtypes.index))
        for slot, operand in enumerate(self.arg.outputs, len(self.arg.ins)):
            t = dtypes.int32 if operand < 0 else key_dtype(self.arg.ins[operand][1])
            value = self.cast(index, t) if operand < 0 else self.load(self.buffer(operand, t),
                                                                      source)
            self.store(self.buffer(slot, t), destination, value)

    # ---- keys

    def element(self, key: int, at: UOp) -> UOp:
        """Load the bits of a key of this row."""
        t = key_dtype(self.arg.ins[key][1])
        return self.load(self.buffer(key, t), self.lines.plus(self.first, at))

    def sort_key(self, x: UOp, t: DType) -> UOp:
        """Map bits to an unsigned integer with the order of the elements."""
        top = 1 << x.dtype.bits - 1
        if t.is_bool or t.kind == "uint":
            return x
        if not t.is_float:
            return self.op(ops.XOR, x, top)
        all_ones = (1 << x.dtype.bits) - 1
        flipped = self.where(self.op(ops.CMPLT, x, top), self.op(ops.OR, x, top),
                             self.op(ops.XOR, x, all_ones))
        size = self.op(ops.AND, x, top - 1)
        ordered = self.where(self.op(ops.CMPEQ, size, 0), build.const(top, x.dtype.scalar), flipped)
        return self.where(self.is_nan(x, t), build.const(all_ones, x.dtype.scalar), ordered)

    def is_nan(self, x: UOp, t: DType) -> UOp:
        infinity = ((1 << t.exponent) - 1) << t.mantissa
        size = self.op(ops.AND, x, (1 << x.dtype.bits - 1) - 1)
        return self.op(ops.CMPLT, build.const(infinity, x.dtype.scalar), size)

    def from_ordered(self, key: UOp, t: DType) -> UOp:
        top, all_ones = 1 << key.dtype.bits - 1, (1 << key.dtype.bits) - 1
        if t.is_bool or t.kind == "uint":
            return key
        if not t.is_float:
            return self.op(ops.XOR, key, top)
        return self.where(self.op(ops.CMPLT, key, top), self.op(ops.XOR, key, all_ones),
                          self.op(ops.XOR, key, top))
