"""The PROGRAM of a LINALG on many small matrices: one matrix per lane of a vector, unrolled.

    LINALG cholesky(a: float32[10000, 4, 4])  ->  FOR group in lo..hi:     16 matrices each
                                                    a00 = gather a[0, 0] of 16 matrices ...
                                                    l00 = sqrt(a00); l10 = a10 / l00 ...
                                                    results to scratch memory, lane by lane
                                                    gather the elements of each matrix, store them

The lengths are constants; the number of matrices is a scalar. The last group ends with the last
matrix, so it may overlap the one before it, and both write the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fnx.core.ir import build, dtypes, linalg, op_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.lower.emit.builder import ProgramBuilder

MAX_ROWS = 8  # of a matrix
MIN_GROUPS = 2  # vectors full of matrices, at least
_VECTOR_BYTES = 64

Matrix = list[list[UOp]]


def lanes_of(t: DType) -> int:
    return _VECTOR_BYTES // t.itemsize


def is_small(arg: op_args.Linalg) -> bool:
    """Whether a LINALG is on many small matrices, for which this file has a routine."""
    if arg.of_complex is not None or arg.routine not in ROUTINES or "transpose" in arg.options:
        return False
    batch, lengths = linalg.matrix_lengths(arg.routine, arg.options, arg.ins)
    used = [lengths[a] for a in linalg.signature(arg.routine, arg.options).letters]
    return max(used) <= MAX_ROWS and lengths.get("m", lengths["n"]) == lengths["n"] and \
        math.prod(batch) >= MIN_GROUPS * lanes_of(arg.ins[0][1])


def generalize_batch(node: UOp) -> tuple[UOp, tuple[UOp, ...]]:
    """Return a LINALG for any number of these small matrices, and that number as a CONST."""
    arg: op_args.Linalg = node.arg
    batch, _ = linalg.matrix_lengths(arg.routine, arg.options, arg.ins)
    ins, outs = (tuple([(shape[len(batch):], t) for shape, t in types])
                 for types in (arg.ins, arg.outs))
    return node.replace(arg=arg.replace(ins=ins, outs=outs)), (build.index_const(math.prod(batch)),)


def extents(node: UOp) -> dict[str, UOp]:
    """Return the number of groups, and the scratch bytes per worker."""
    lanes = lanes_of(node.arg.ins[0][1])
    count = build.var(0, dtypes.index)
    groups = build.idiv(build.add(count, build.index_const(lanes - 1)), build.index_const(lanes))
    size = sum(math.prod(shape) for shape, _ in node.arg.outs)
    return {"parallel": groups, "scratch": build.index_const(size * _VECTOR_BYTES + _VECTOR_BYTES)}


def program(node: UOp) -> UOp:
    """Return the PROGRAM of a LINALG over a part of its groups.

    >>> types = (((3, 3), dtypes.float32),)
    >>> arg = op_args.Linalg("cholesky", "cholesky", (), types, types)
    >>> program(UOp(ops.LINALG, dtypes.void, (), arg)).op
    PROGRAM
    """
    return SmallMatrixEmitter(node).program()


class SmallMatrixEmitter:
    """Emits the lines. Values are vectors with a lane per matrix."""

    def __init__(self, node: UOp) -> None:
        self.arg: op_args.Linalg = node.arg
        self.dtype = self.arg.ins[0][1]
        self.lanes = lanes_of(self.dtype)
        self.lines = ProgramBuilder()
        self.scratch_bytes = 0

    def program(self) -> UOp:
        lines = self.lines
        stages = [self._scratch(math.prod(shape), t) for shape, t in self.arg.outs]
        group = lines.open(*[UOp(ops.PARALLEL_RANGE, dtypes.index, (), i) for i in (0, 1)])
        last = lines.plus(build.var(0, dtypes.index), -self.lanes)
        self.first = lines.integer(ops.MIN, lines.times(group, self.lanes), last)
        operands = [self._load_operand(slot) for slot in range(len(self.arg.ins))
                    if not (self.arg.routine == "lu_solve" and slot == 0)]
        results = ROUTINES[self.arg.routine](self, *operands)
        for index, (stage, values) in enumerate(zip(stages, results)):
            self._store_result(len(self.arg.ins) + index, stage, values)
        lines.close([])
        return lines.program()

    # ---- memory

    def _scratch(self, count: int, t: DType) -> UOp:
        offset = build.index_const(self.scratch_bytes)
        self.scratch_bytes += count * _VECTOR_BYTES
        return self.lines.put(ops.SCRATCH, t, (offset,), op_args.Stage(self.scratch_bytes, "PRIV"))

    def _address(self, pointer: UOp, at: UOp | int, lanes: int = 1) -> UOp:
        offset = build.index_const(at) if isinstance(at, int) else at
        t = pointer.dtype
        return self.lines.add(ops.ADDRESS, t.vec(lanes) if lanes > 1 else t, (pointer, offset),
                              t.itemsize)

    def _gather(self, pointer: UOp, stride: int, lanes: int) -> UOp:
        """Load a vector of elements that are ``stride`` apart."""
        numbers = UOp(ops.LANES, dtypes.int32.vec(lanes), ())
        offsets = self.lines.across(ops.MUL, dtypes.int32,
                                    (numbers, build.const(stride, dtypes.int32)))
        t = pointer.dtype.vec(lanes)
        address = self.lines.add(ops.ADDRESS, t, (pointer, offsets), pointer.dtype.itemsize)
        return self.lines.put(ops.LOAD, t, (address,))

    def _pointer(self, slot: int, size: int, t: DType) -> UOp:
        """Return the address of the first matrix of the group."""
        buffer = UOp(ops.REF, t, (), op_args.Ref(slot, "", t.itemsize))
        return self._address(buffer, self.lines.times(self.first, size))

    def _load_operand(self, slot: int) -> Matrix:
        """Return the elements of an operand; a vector is a matrix of one row."""
        shape, t = self.arg.ins[slot]
        rows, columns = (1, *shape)[-2:]
        pointer = self._pointer(slot, rows * columns, t)
        if rows * columns >= self.lanes:
            elements = self._load_blocks(pointer, rows * columns)
            return [elements[i * columns:(i + 1) * columns] for i in range(rows)]
        return [[self._gather(self._address(pointer, i * columns + j), rows * columns, self.lanes)
                 for j in range(columns)] for i in range(rows)]

    def _blocks(self, size: int) -> list[int]:
        """Return the starts of blocks of as many elements as lanes; the last may overlap."""
        return [min(start, size - self.lanes) for start in range(0, size, self.lanes)]

    def _load_blocks(self, pointer: UOp, size: int) -> list[UOp]:
        """Load the elements of each matrix in vectors, and transpose blocks of them."""
        elements: dict[int, UOp] = {}
        for start in self._blocks(size):
            rows = []
            for matrix in range(self.lanes):
                address = self._address(pointer, matrix * size + start, self.lanes)
                rows.append(self.lines.put(ops.LOAD, address.dtype, (address,)))
            elements.update(zip(range(start, start + self.lanes), self._transpose(rows)))
        return [elements[i] for i in range(size)]

    def _transpose(self, rows: list[UOp]) -> list[UOp]:
        """Transpose a square block: exchange halves, quarters ... of pairs of rows."""
        rows, lanes = list(rows), self.lanes
        step = 1
        while step < lanes:
            low = tuple([i if not i & step else lanes + i - step for i in range(lanes)])
            high = tuple([i + step if not i & step else lanes + i for i in range(lanes)])
            for i in range(lanes):
                if not i & step:
                    pair = rows[i], rows[i + step]
                    rows[i], rows[i + step] = (
                        self.lines.add(ops.SHUFFLE, pair[0].dtype, pair, pick)
                        for pick in (low, high))
            step *= 2
        return rows

    def _store_blocks(self, pointer: UOp, values: Sequence[UOp]) -> None:
        """Transpose blocks of elements, and store the elements of each matrix in vectors."""
        size = len(values)
        for start in self._blocks(size):
            rows = self._transpose(list(values[start:start + self.lanes]))
            for matrix, row in enumerate(rows):
                address = self._address(pointer, matrix * size + start, self.lanes)
                self.lines.put(ops.STORE, dtypes.void, (address, row))

    def _store_result(self, slot: int, stage: UOp, values: Sequence[UOp]) -> None:
        """Store values; few of them by scratch memory, and from there matrix by matrix."""
        size, t = len(values), stage.dtype
        if size >= self.lanes:
            self._store_blocks(self._pointer(slot, size, t), values)
            return
        for e, value in enumerate(values):
            address = self._address(stage, e * self.lanes, self.lanes)
            self.lines.put(ops.STORE, dtypes.void, (address, value))
        pointer = self._pointer(slot, size, t)
        for matrix in range(self.lanes):
            start = 0
            while start < size:
                width = 1 << min(self.lanes, size - start).bit_length() - 1
                source = self._address(stage, start * self.lanes + matrix)
                target = self._address(pointer, matrix * size + start, width)
                value = self._gather(source, self.lanes, width) if width > 1 else \
                    self.lines.put(ops.LOAD, t, (source,))
                self.lines.put(ops.STORE, dtypes.void, (target, value))
                start += width

    # ---- arithmetic

    def const(self, value: float, t: DType | None = None) -> UOp:
        return self.lines.widen(build.const(value, t or self.dtype), self.lanes)

    def op(self, op: Op, *src: UOp) -> UOp:
        t = dtypes.bool_ if op in ops.COMPARISONS else src[-1].dtype.scalar
        return self.lines.across(op, t, src)

    def minus_product(self, x: UOp, a: UOp, b: UOp) -> UOp:
        """Return x - a b."""
        return self.op(ops.SUB, x, self.op(ops.MUL, a, b))


Routine = Callable[..., list[list[UOp]]]


def _cholesky(e: SmallMatrixEmitter, a: Matrix) -> list[list[UOp]]:
    n, zero, nan = len(a), e.const(0.0), e.const(math.nan)
    low = [[zero] * n for _ in range(n)]
    ok: UOp | None = None
    for j in range(n):
        pivot = a[j][j]
        for k in range(j):
            pivot = e.minus_product(pivot, low[j][k], low[j][k])
        ok = e.lines.both(ok, e.op(ops.CMPLT, zero, pivot))
        low[j][j] = e.op(ops.SQRT, pivot)
        inverse = e.op(ops.DIV, e.const(1.0), low[j][j])
        for i in range(j + 1, n):
            total = a[i][j]
            for k in range(j):
                total = e.minus_product(total, low[i][k], low[j][k])
            low[i][j] = e.op(ops.MUL, total, inverse)
    assert ok is not None
    return [[e.op(ops.WHERE, ok, low[i][j], nan) if j <= i else zero
             for i in range(n) for j in range(n)]]


def _lu(e: SmallMatrixEmitter, a: Matrix) -> list[list[UOp]]:
    n = len(a)
    a = [list(row) for row in a]
    order = [e.const(i, dtypes.int32) for i in range(n)]
    pivots = []
    for k in range(n):
        best, pivot = e.op(ops.ABS, a[k][k]), e.const(k, dtypes.int32)
        for i in range(k + 1, n):
            size = e.op(ops.ABS, a[i][k])
            larger = e.op(ops.CMPLT, best, size)
            best = e.op(ops.WHERE, larger, size, best)
            pivot = e.op(ops.WHERE, larger, e.const(i, dtypes.int32), pivot)
        pivots.append(pivot)
        top, first = list(a[k]), order[k]
        for i in range(k + 1, n):
            chosen = e.op(ops.CMPEQ, pivot, e.const(i, dtypes.int32))
            for j in range(n):
                row, upper = a[i][j], a[k][j]
                a[i][j] = e.op(ops.WHERE, chosen, upper, row)
                top[j] = e.op(ops.WHERE, chosen, row, top[j])
            old = order[i]
            order[i] = e.op(ops.WHERE, chosen, order[k], old)
            first = e.op(ops.WHERE, chosen, old, first)
        a[k], order[k] = top, first
        is_zero = e.op(ops.CMPEQ, a[k][k], e.const(0.0))
        divisor = e.op(ops.WHERE, is_zero, e.const(1.0), a[k][k])
        for i in range(k + 1, n):
            a[i][k] = e.op(ops.DIV, a[i][k], divisor)
            for j in range(k + 1, n):
                a[i][j] = e.minus_product(a[i][j], a[i][k], a[k][j])
    return [[x for row in a for x in row], pivots, order]


def _lu_solve(e: SmallMatrixEmitter, lu: Matrix, order: Matrix, b: Matrix) -> list[list[UOp]]:
    n, columns = len(lu), len(b[0])
    x = [list(b[0]) for _ in range(n)]
    for i in range(n):
        for j in range(1, n):
            chosen = e.op(ops.CMPEQ, order[0][i], e.const(j, dtypes.int32))
            x[i] = [e.op(ops.WHERE, chosen, new, old) for new, old in zip(b[j], x[i])]
    for c in range(columns):
        for i in range(n):
            for k in range(i):
                x[i][c] = e.minus_product(x[i][c], lu[i][k], x[k][c])
        for i in reversed(range(n)):
            for k in range(i + 1, n):
                x[i][c] = e.minus_product(x[i][c], lu[i][k], x[k][c])
            x[i][c] = e.op(ops.DIV, x[i][c], lu[i][i])
    return [[value for row in x for value in row]]


ROUTINES: dict[str, Routine] = {"cholesky": _cholesky, "lu": _lu, "lu_solve": _lu_solve}
