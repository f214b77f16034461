"""The PROGRAM of an FFT_STEP: transforms of the columns of matrices of complex numbers.

    FOR tile in lo..hi            8 or 16 columns (of float32), a lane for each
      load                        pairs of the input become vectors of real and imaginary parts, in
                                  scratch memory
      FOR each block              the whole tile; or its first stage, then blocks that fit in L1
        FOR each radix r
          FOR each stage          scratch -> scratch, in Stockham order
      store                       pairs; or times twiddles, and transposed to rows of the output

All lengths, and the number of stages of each radix, are scalars, so all steps of the same radices
share a program, which a few hundred lines keep quick to compile. A twiddle of a stage is one number
for all lanes. A stage of radix r maps x[j, p, q], j < r, p < m, to y[p, k, q] = w^(p * k) * sum
over j of x[j, p, q] * w(r)^(j * k), where q counts what earlier stages have transformed. One loop
runs over p and q, as inputs of the next (p, q) follow those of this one.

A long tile does not fit in the first-level cache. Its first stage leaves y[k, p] in the place of
x[k, p]; the other stages transform one k after the other, with a second array of that size. Element
k + 8 * i of the result is then in row k * m + i of the tile, so the first radix is 8.

With ``rows`` the matrices are transposed before and after: the rows of an array are transformed, as
many at a time as there are lanes. Squares of so many numbers are transposed in registers. Rows of
real numbers are transformed as pairs of neighbors (core/formulas/half_spectrum.py): before the
stages of an inverse transform, and after those of any other, rows k and n - k of the tile become

    s + u, conj(s - u)      s = x[k] + x*[n - k],  u = -i w^k (x[k] - x*[n - k])
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.formulas import fft_plan
from fnx.core.formulas.butterflies import Butterflies, Complex
from fnx.core.ir import build, dtypes, kernel_args, op_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.support.target import Target
from fnx.lower.emit.builder import ProgramBuilder

_MIN_BYTES = 32  # of a vector: a number of each lane then fills a cache line
_PART_BYTES = 16  # inside which lanes are moved by cheap instructions
_PAD = 16  # columns to which tables are padded (core/formulas/fft_plan.py)

_MAX_WHOLE = 128  # the longest tile that is one block: it takes half of the first-level cache
_BLOCKS = 8

(OUTER, N, INNER, TABLE, TWIDDLES, TWIDDLE_ROWS, ROOTS, ROW_IN, ROW_OUT, BLOCKS, BLOCK, SIGN, ZERO,
 SCALE, COUNTS) = range(15)  # slots of scalars; two counts a radix: of the first stage, of blocks


def scalars(step: UOp) -> tuple[UOp, ...]:
    """Return the scalars of an FFT_STEP as CONSTs."""
    arg = step.arg
    outer, n, inner = arg.lengths
    blocks = _BLOCKS if n > _MAX_WHOLE and arg.radices[0] == _BLOCKS else 1
    first, rest = (arg.radices[:1], arg.radices[1:]) if blocks > 1 else (arg.radices, ())
    halved = arg.roots >= 0 and not arg.inverse  # the sums of both halves of a real spectrum
    return (*[build.index_const(i) for i in (
                outer, n, inner, arg.table, arg.twiddles, fft_plan.twiddle_rows(n), arg.roots,
                *arg.row_lengths, blocks, n // blocks, -1 if arg.inverse else 1, 0)],
            build.const(arg.scale / 2 if halved else arg.scale, arg.dtype),
            *[build.index_const(part.count(r)) for r in arg.kinds for part in (first, rest)])


def generalize(step: UOp) -> UOp:
    """Return an FFT_STEP for any lengths that its radices allow, of rows of real or of complex
    numbers."""
    return step.replace(arg=step.arg.replace(
        lengths=None, radices=(), table=0, twiddles=-1, inverse=False, scale=1.0,
        roots=min(step.arg.roots, 0)))


def _lanes(t: DType, target: Target) -> int:
    return max(_MIN_BYTES, target.vector_bits // 8) // t.itemsize


def extents(step: UOp, target: Target) -> dict[str, UOp]:
    """Return the launch parameters: tiles, and scratch bytes per worker."""
    t = step.arg.dtype
    lanes = _lanes(t, target)
    outer, n, inner, block = [build.var(slot, dtypes.index) for slot in (OUTER, N, INNER, BLOCK)]
    tiles = build.idiv(build.add(inner, build.index_const(lanes - 1)), build.index_const(lanes))
    rows = build.add(build.add(n, block), build.index_const(lanes))
    return {"parallel": build.mul(outer, tiles),
            "scratch": build.mul(rows, build.index_const(2 * lanes * t.itemsize))}


def program(step: UOp, target: Target) -> UOp:
    """Return the PROGRAM of a generalized FFT_STEP over a part of its tiles."""
    return _FftEmitter(step.arg, target).program()


class _FftEmitter(Butterflies):
    def __init__(self, arg: op_args.FftStep, target: Target) -> None:
        self.arg, self.t, self.fma = arg, arg.dtype, target.fma
        self.lanes = _lanes(self.t, target)
        self.vector_bytes = self.lanes * self.t.itemsize
        self.vec = self.t.vec(self.lanes)
        self.b = ProgramBuilder()
        self.scratch = UOp(ops.SCRATCH, self.t, (build.index_const(0),),
                           kernel_args.Stage(0, "PRIV"))
        self.x, self.table, self.out = [
            UOp(ops.REF, self.t, (), kernel_args.Ref(i, "", self.t.itemsize)) for i in range(3)]
        self.n, self.inner = [build.var(slot, dtypes.index) for slot in (N, INNER)]
        self.pair = 2 * self.lanes  # elements of a row of a tile

    # ---- lines

    def op(self, op: Op, *src: UOp) -> UOp:
        if op is ops.MULACC and not self.fma:
            return self.op(ops.ADD, self.op(ops.MUL, src[0], src[1]), src[2])
        return self.b.across(op, self.t, src)

    def const(self, x: float) -> UOp:
        return self.b.widen(build.const(x, self.t), self.lanes)

    def address(self, pointer: UOp, at: UOp | int, lanes: int = 1) -> UOp:
        """Return the address of an element behind a buffer or an address."""
        at = build.index_const(at) if isinstance(at, int) else at
        aligned = pointer is self.scratch or pointer.op is ops.ADDRESS and \
            pointer.arg == self.vector_bytes
        return self.b.add(ops.ADDRESS, self.t.vec(lanes) if lanes > 1 else self.t, (pointer, at),
                          self.vector_bytes if aligned else self.t.itemsize)

    def load(self, pointer: UOp, at: UOp | int = 0, mask: UOp | None = None) -> UOp:
        src = (self.address(pointer, at, self.lanes), *([] if mask is None else [mask]))
        return self.b.put(ops.LOAD, self.vec, src)

    def store(self, pointer: UOp, at: UOp | int, value: UOp, mask: UOp | None = None) -> None:
        src = (self.address(pointer, at, self.lanes), value, *([] if mask is None else [mask]))
        self.b.put(ops.STORE, dtypes.void, src)

    def scalar(self, pointer: UOp, at: int) -> UOp:
        return self.b.put(ops.LOAD, self.t, (self.address(pointer, at),))

    def each(self, n: UOp) -> UOp:
        return self.opaque(self.b.open(build.index_const(0), n))

    def opaque(self, counter: UOp) -> UOp:
        """Return a loop counter, of which LLVM can't tell that it is one: its search for the best
        way to step so many addresses takes a third of its time, for no gain."""
        return self.b.put(ops.OR, dtypes.index, (counter, build.var(ZERO, dtypes.index)))

    def minus(self, a: UOp, b: UOp) -> UOp:
        return self.b.plus(a, self.b.times(b, -1))

    def mask(self, count: UOp) -> UOp:
        return self.b.add(ops.LANE_MASK, dtypes.bool_.vec(self.lanes), (count,))

    def shuffle(self, a: UOp, b: UOp, lanes: Sequence[int]) -> UOp:
        return self.b.add(ops.SHUFFLE, self.vec, (a, b), tuple(lanes))

    # ---- a tile

    def program(self) -> UOp:
        b, arg, lanes = self.b, self.arg, self.lanes
        b.put(self.scratch.op, self.t, self.scratch.src, self.scratch.arg)
        sign = b.add(ops.CAST, self.t, (build.var(SIGN, dtypes.index),))
        scale = build.var(SCALE, self.t)
        self.sign = b.widen(sign, lanes)
        self.signs = self._alternating(build.const(1, self.t), sign)
        self.scales = self._alternating(scale, b.add(ops.MUL, self.t, (scale, sign)))
        tile = self.opaque(b.open(*[UOp(ops.PARALLEL_RANGE, dtypes.index, (), i) for i in (0, 1)]))
        tiles = b.divide(b.plus(self.inner, lanes - 1), lanes)
        self.matrix = b.add(ops.IDIV, dtypes.index, (tile, tiles))
        self.column = b.times(self.minus(tile, b.times(self.matrix, tiles)), lanes)
        left = self.minus(self.inner, self.column)
        self.columns = b.integer(ops.MIN, left, build.index_const(lanes))
        self.masks = [self.mask(b.plus(b.times(left, 2), -lanes * i)) for i in range(2)]
        start = b.integer(ops.MUL, b.integer(ops.MUL, self.matrix, self.n), self.inner)
        self.start = b.times(b.plus(start, self.column), 2)  # of columns
        if arg.rows:
            self._transform_rows(self.less_than(sign, build.const(0, self.t)))
        else:
            self._transform_columns()
        b.close([])
        return b.program()

    def _transform_columns(self) -> None:
        b = self.b
        self._load_columns()
        self._stages()
        twiddles = build.var(TWIDDLES, dtypes.index, -1)
        minus_one = build.index_const(-1)
        branch = b.branch(self.less_than(minus_one, twiddles))
        self._multiply_twiddles()
        self._store_rows()
        b.end_branch(branch)
        branch = b.branch(self.equal(minus_one, twiddles))
        self._store_columns()
        b.end_branch(branch)

    def _transform_rows(self, inverse: UOp) -> None:
        self._load_rows()
        self._recombine_if(inverse, True)
        self._stages()
        self._recombine_if(self.b.add(ops.NOT, dtypes.bool_, (inverse,)), False)
        self._store_rows()

    def _recombine_if(self, condition: UOp, inverse: bool) -> None:
        if self.arg.roots >= 0:
            branch = self.b.branch(condition)
            self._recombine(inverse)
            self.b.end_branch(branch)

    def less_than(self, x: UOp, y: UOp) -> UOp:
        return self.b.add(ops.CMPLT, dtypes.bool_, (x, y))

    def equal(self, x: UOp, y: UOp) -> UOp:
        return self.b.add(ops.CMPEQ, dtypes.bool_, (x, y))

    def where(self, condition: UOp, then: UOp | int, otherwise: UOp | int) -> UOp:
        pair = [build.index_const(x) if isinstance(x, int) else x for x in (then, otherwise)]
        return self.b.across(ops.WHERE, dtypes.index, (condition, *pair))

    def _alternating(self, re: UOp, im: UOp) -> UOp:
        """Return a vector of factors of pairs."""
        return self.shuffle(self.b.widen(re, self.lanes), self.b.widen(im, self.lanes),
                            [i for k in range(self.lanes // 2) for i in (k, k + self.lanes)])

    def rows(self, i: UOp) -> UOp:
        """Return the number of elements of some rows of the tile."""
        return self.b.times(i, self.pair)

    def row(self, i: UOp) -> UOp:
        """Return the address of a row of the tile in scratch memory."""
        return self.address(self.scratch, self.rows(i))

    def result_row(self, k: UOp) -> UOp:
        """Return the address of the row that holds element k of the result."""
        b = self.b
        i = b.divide(k, _BLOCKS)
        block = b.plus(k, b.times(i, -_BLOCKS))
        index = b.plus(b.integer(ops.MUL, block, build.var(BLOCK, dtypes.index)), i)
        return self.row(self.where(self._in_block(k), index, k))

    def _in_block(self, k: UOp) -> UOp:
        """Return whether element k of the result is in a block of a split tile."""
        split = self.less_than(build.index_const(1), build.var(BLOCKS, dtypes.index))
        return self.b.across(ops.AND, dtypes.bool_, (split, self.less_than(k, self.n)))

    def get(self, pointer: UOp) -> Complex:
        """Load a row of the tile."""
        return self.load(pointer), self.load(pointer, self.lanes)

    def put(self, pointer: UOp, value: Complex) -> None:
        for i, part in enumerate(value):
            self.store(pointer, self.lanes * i, part)

    def _load_columns(self) -> None:
        b = self.b
        i = self.each(self.n)
        at = self.address(self.x, b.plus(self.start, b.times(
            b.integer(ops.MUL, i, self.inner), 2)))
        halves = [self.op(ops.MUL, self.load(at, self.lanes * h, mask), self.signs)
                  for h, mask in enumerate(self.masks)]
        low, high = halves
        re, im = [self.shuffle(low, high, range(part, self.pair, 2)) for part in range(2)]
        self.put(self.row(i), (re, im))
        b.close([])

    def _store_columns(self) -> None:
        b, half = self.b, self.lanes // 2
        i = self.each(self.n)
        value = self.get(self.result_row(i))
        at = self.address(self.out, b.plus(self.start, b.times(
            b.integer(ops.MUL, i, self.inner), 2)))
        for h, mask in enumerate(self.masks):
            joined = self.shuffle(value[0], value[1], [
                j + k for j in range(half * h, half * (h + 1)) for k in (0, self.lanes)])
            self.store(at, self.lanes * h, self.op(ops.MUL, joined, self.scales), mask)
        b.close([])

    # ---- rows of the input or the output: half as many numbers of each as there are lanes

    def _each_square(self, buffer: UOp, length: UOp) -> tuple[UOp, UOp, list[UOp]]:
        """Open a loop over parts of rows; return the offset of the part in a row, a mask, and the
        address of the part in each row; rows that are not there are the last one."""
        b = self.b
        start = b.plus(b.integer(ops.MUL, self.matrix, self.inner), self.column)
        last, size = b.plus(self.columns, -1), b.times(length, 2)
        rows = [b.integer(ops.MUL, b.integer(ops.MIN, last, build.index_const(i)), size)
                for i in range(self.lanes)]
        numbers = self.lanes // 2
        at = b.times(self.each(b.divide(b.plus(length, numbers - 1), numbers)), self.lanes)
        first = self.address(buffer, b.plus(b.integer(ops.MUL, start, size), at))
        return at, self.mask(self.minus(size, at)), [self.address(first, row) for row in rows]

    def _load_rows(self) -> None:
        at, mask, parts = self._each_square(self.x, build.var(ROW_IN, dtypes.index))
        rows = [self.load(part, 0, mask) for part in parts]
        target = self.address(self.scratch, self.b.times(at, self.lanes))
        for i, column in enumerate(self._transposed(rows)):
            self.store(target, self.lanes * i,
                       self.op(ops.MUL, column, self.sign) if i % 2 else column)
        self.b.close([])

    def _store_rows(self) -> None:
        """Store the rows from the last to the first: those that are not there write to the last
        one, before it does."""
        at, mask, parts = self._each_square(self.out, build.var(ROW_OUT, dtypes.index))
        k = self.b.divide(at, 2)
        pointers = [self.result_row(k)]  # the other ones are in the next blocks
        step = self.rows(self.where(self._in_block(k), build.var(BLOCK, dtypes.index), 1))
        while len(pointers) < self.lanes // 2:
            pointers.append(self.address(pointers[-1], step))
        columns = [part for pointer in pointers for part in self.get(pointer)]
        rows = [self.op(ops.MUL, row, self.scales) for row in self._transposed(columns)]
        for part, row in reversed(list(zip(parts, rows))):
            self.store(part, 0, row, mask)
        self.b.close([])

    def _transposed(self, rows: list[UOp]) -> list[UOp]:
        """Transpose a square of lanes: elements of two rows are interleaved inside parts of 128
        bits, then halves of parts; both are one instruction on most machines."""
        lanes, width = self.lanes, _PART_BYTES // self.t.itemsize
        distance = 1
        while distance < lanes:
            low, high = _interleave(lanes, width, distance) if distance < width else \
                _even_and_odd(lanes, width)
            for i in range(lanes):
                if not i & distance:
                    x, y = rows[i], rows[i | distance]
                    rows[i], rows[i | distance] = self.shuffle(x, y, low), self.shuffle(x, y, high)
            distance *= 2
        by_column = dict(zip(_columns(lanes, width), rows))
        return [by_column[i] for i in range(lanes)]

    def _recombine(self, inverse: bool) -> None:
        """Go between the spectrum of pairs of neighbors and that of a real array, in place."""
        b = self.b
        row_offset = self.row if inverse else self.result_row
        first, last = self.row(build.index_const(0)), self.row(self.n)
        if inverse:
            for row in (first, last):
                self.store(row, self.lanes, self.const(0.0))
        else:
            self.put(last, self.get(first))
        k = self.each(b.plus(b.divide(self.n, 2), 1))
        root = self.address(self.table, b.plus(build.var(ROOTS, dtypes.index, -1), b.times(k, 2)))
        w = [b.widen(self.scalar(root, i), self.lanes) for i in range(2)]
        low, high = row_offset(k), row_offset(self.minus(self.n, k))
        (x, y), (u, v) = self.get(low), self.get(high)
        p, q = self.times((self.op(ops.SUB, x, u), self.op(ops.ADD, y, v)), (w[0], w[1]))
        s = self.op(ops.ADD, x, u)
        self.put(low, (self.op(ops.ADD, s, q), self.op(ops.SUB, self.op(ops.SUB, y, v), p)))
        self.put(high, (self.op(ops.SUB, s, q), self.op(ops.SUB, self.op(ops.SUB, v, y), p)))
        b.close([])

    # ---- stages

    def _stages(self) -> None:
        """Emit all stages: of the whole tile, or the first one and those of each block."""
        b = self.b
        blocks, block, table = [build.var(slot, dtypes.index) for slot in (BLOCKS, BLOCK, TABLE)]
        split = self.less_than(build.index_const(1), blocks)
        other = self.rows(b.plus(self.n, self.lanes))
        i = self.each(self.where(split, b.plus(blocks, 1), 1))
        is_first = self.equal(i, build.index_const(0))
        stays = b.across(ops.AND, dtypes.bool_, (is_first, split))
        start = self.rows(b.integer(ops.MUL, block, self.where(is_first, 0, b.plus(i, -1))))
        later = b.plus(table, b.times(b.integer(ops.MUL, block, b.plus(blocks, -1)), 2))
        states: Sequence[UOp] = (start, self.where(stays, self.n, block), build.index_const(1),
                                 self.where(is_first, table, later))
        for kind, r in enumerate(self.arg.kinds):
            counts = [build.var(COUNTS + 2 * kind + j, dtypes.index) for j in range(2)]
            b.open(build.index_const(0), self.where(is_first, *counts))
            source, length, q, at = [b.phi(s) for s in states]
            m = b.divide(length, r)
            is_last = self.equal(m, build.index_const(1))  # its outputs are where its inputs are
            in_place = b.across(ops.OR, dtypes.bool_, (stays, is_last))
            target = self.where(b.across(ops.OR, dtypes.bool_, (
                in_place, b.add(ops.CMPNE, dtypes.bool_, (source, start)))), start, other)
            self._stage(r, m, q, at, source, target, stays)
            states = b.close([target, m, b.times(q, r), b.plus(at, b.times(m, 2 * (r - 1)))])
        b.close([])

    def _stage(self, r: int, m: UOp, q: UOp, table: UOp, source: UOp, target: UOp, stays: UOp
               ) -> None:
        """Emit a stage; ``stays``: output k of p is in the place of its input k, and q is 1."""
        b = self.b
        count = b.integer(ops.MUL, m, q)
        distance = b.times(count, self.pair)  # of inputs
        between = self.where(stays, distance, b.times(q, self.pair))  # of outputs
        skip = self.where(stays, 0, b.times(q, self.pair * (r - 1)))
        i = b.open(build.index_const(0), count)
        left, writes, at = [b.phi(x) for x in (q, target, table)]
        i = self.opaque(i)
        reads = self.address(self.address(self.scratch, source), self.rows(i))
        twiddles = self.address(self.table, at)
        loads = [b.widen(self.scalar(twiddles, i), self.lanes) for i in range(2 * (r - 1))]
        y = self.butterfly([self.get(self.address(reads, b.times(distance, j)))
                            for j in range(r)])
        y[1:] = [self.times(v, w) for v, w in zip(y[1:], zip(loads[::2], loads[1::2]))]
        target = self.address(self.scratch, writes)
        for k, v in enumerate(y):
            self.put(self.address(target, b.times(between, k)), v)
        is_last = self.equal(left, build.index_const(1))  # q of this p
        b.close([self.where(is_last, q, b.plus(left, -1)),
                 b.plus(b.plus(writes, self.pair), self.where(is_last, skip, 0)),
                 b.plus(at, self.where(is_last, 2 * (r - 1), 0))])

    def _multiply_twiddles(self) -> None:
        """Multiply element (k, c) by w^(c * k): with k = j * rows + i, by two factors."""
        b = self.b
        base = build.var(TWIDDLES, dtypes.index, -1)
        rows = build.var(TWIDDLE_ROWS, dtypes.index)
        width = b.times(b.times(b.divide(b.plus(self.inner, _PAD - 1), _PAD), _PAD), 2)
        second = b.plus(base, b.integer(ops.MUL, rows, width))
        j = self.each(b.add(ops.IDIV, dtypes.index, (self.n, rows)))
        outer_factor = self._twiddle(second, j, width)
        i = self.each(rows)
        factor = self.times(self._twiddle(base, i, width), outer_factor)
        row = self.result_row(b.plus(b.integer(ops.MUL, j, rows), i))
        self.put(row, self.times(self.get(row), factor))
        b.close([])
        b.close([])

    def _twiddle(self, base: UOp, row: UOp, width: UOp) -> Complex:
        """Load the twiddles of the columns of this tile."""
        at = self.b.plus(self.b.plus(base, self.b.integer(ops.MUL, row, width)), self.column)
        part = self.address(self.table, at)
        return self.load(part), self.load(part, self.b.divide(width, 2))


def _interleave(lanes: int, width: int, size: int) -> tuple[list[int], list[int]]:
    """Return the lanes of two vectors that interleave blocks of their low and of their high halves,
    in each part of ``width`` lanes."""
    low: list[int] = []
    high: list[int] = []
    for part in range(0, lanes, width):
        for out, start in ((low, part), (high, part + width // 2)):
            for block in range(start, start + width // 2, size):
                out += [*range(block, block + size), *range(block + lanes, block + size + lanes)]
    return low, high


def _even_and_odd(lanes: int, width: int) -> tuple[list[int], list[int]]:
    """Return the lanes of the even parts of two vectors, and of the odd ones."""
    low, high = [[lane for part in range(start, 2 * lanes, 2 * width)
                  for lane in range(part, part + width)] for start in (0, width)]
    return low, high


def _columns(lanes: int, width: int) -> list[int]:
    """Return which column of the square each vector of ``_transpose`` is."""
    rows = [[(i, j) for j in range(lanes)] for i in range(lanes)]
    distance = 1
    while distance < lanes:
        pair = _interleave(lanes, width, distance) if distance < width else \
            _even_and_odd(lanes, width)
        for i in range(lanes):
            if not i & distance:
                both = rows[i] + rows[i | distance]
                rows[i], rows[i | distance] = [[both[lane] for lane in p] for p in pair]
        distance *= 2
    assert all([i for i, _ in row] == [*range(lanes)] for row in rows), rows
    return [row[0][1] for row in rows]
