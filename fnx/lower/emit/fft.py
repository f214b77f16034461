"""The PROGRAM of an FFT_STEP: transforms of the columns of matrices of complex numbers.

    FOR tile in lo..hi            16 columns (of float32), a lane for each
      load                        pairs of the input become vectors of real and imaginary parts, in
                                  scratch memory
      FOR each radix r
        FOR each stage            scratch -> scratch, in Stockham order
      store                       pairs; or times twiddles, and transposed to rows of the output

All lengths, and the number of stages of each radix, are scalars, so all steps of the same radices
share a program, which a few hundred lines keep quick to compile. A twiddle of a stage is one number
for all lanes. A stage of radix r maps x[j, p, q], j < r, p < m, to y[p, k, q] = w^(p * k) * sum
over j of x[j, p, q] * w(r)^(j * k), where q counts what earlier stages have transformed.

With ``rows`` the matrices are transposed before and after: the rows of an array are transformed, 16
at a time. Squares of 16 by 16 numbers are transposed in registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.formulas import fft_plan
from fnx.core.formulas.butterflies import Butterflies, Complex
from fnx.core.ir import build, dtypes, op_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.lower.emit.builder import ProgramBuilder

_VECTOR_BYTES = 64
_PART_BYTES = 16  # inside which lanes are moved by cheap instructions
_PAD = 16  # columns to which tables are padded (core/formulas/fft_plan.py)

OUTER, N, INNER, TABLE, TWIDDLES, TWIDDLE_ROWS, SIGN, SCALE, COUNTS = range(9)  # slots of scalars


def scalars(step: UOp) -> tuple[UOp, ...]:
    """Return the scalars of an FFT_STEP as CONSTs."""
    arg = step.arg
    outer, n, inner = arg.lengths
    return (*[build.index_const(i) for i in (
                outer, n, inner, arg.table, arg.twiddles, fft_plan.twiddle_rows(n),
                -1 if arg.inverse else 1)],
            build.const(arg.scale, arg.dtype),
            *[build.index_const(arg.radices.count(r)) for r in arg.kinds])


def generalize(step: UOp) -> UOp:
    """Return an FFT_STEP for any lengths that its radices allow."""
    return step.replace(arg=step.arg.replace(lengths=None, radices=(), table=0, twiddles=-1,
                                             inverse=False, scale=1.0))


def lanes_of(t: DType) -> int:
    return _VECTOR_BYTES // t.itemsize


def extents(step: UOp) -> dict[str, UOp]:
    """Return the launch parameters: tiles, and scratch bytes per worker."""
    lanes = lanes_of(step.arg.dtype)
    outer, n, inner = [build.var(slot, dtypes.index) for slot in (OUTER, N, INNER)]
    tiles = build.idiv(build.add(inner, build.index_const(lanes - 1)), build.index_const(lanes))
    vectors = build.mul(build.add(n, build.index_const(lanes)), build.index_const(4))
    return {"parallel": build.mul(outer, tiles),
            "scratch": build.mul(vectors, build.index_const(_VECTOR_BYTES))}


def program(step: UOp, fma: bool = True) -> UOp:
    """Return the PROGRAM of a generalized FFT_STEP over a part of its tiles; ``fma``: the machine
    has fused multiply-add."""
    return _FftEmitter(step.arg, fma).program()


class _FftEmitter(Butterflies):
    def __init__(self, arg: op_args.FftStep, fma: bool) -> None:
        self.arg, self.t, self.fma = arg, arg.dtype, fma
        self.lanes = lanes_of(self.t)
        self.vec = self.t.vec(self.lanes)
        self.b = ProgramBuilder()
        self.scratch = UOp(ops.SCRATCH, self.t, (build.index_const(0),),
                           op_args.Stage(0, "PRIV"))
        self.x, self.table, self.out = [
            UOp(ops.REF, self.t, (), op_args.Ref(i, "", self.t.itemsize)) for i in range(3)]
        self.n, self.inner = [build.var(slot, dtypes.index) for slot in (N, INNER)]
        self.pair = 2 * self.lanes  # elements of a row of a tile

    # ---- lines

    def op(self, op: Op, *src: UOp) -> UOp:
        if op is ops.MULACC and not self.fma:
            return self.op(ops.ADD, self.op(ops.MUL, src[0], src[1]), src[2])
        return self.b.across(op, self.t, src)

    def const(self, x: float) -> UOp:
        return self.b.widen(build.const(x, self.t), self.lanes)

    def address(self, buffer: UOp, at: UOp, lanes: int) -> UOp:
        align = _VECTOR_BYTES if buffer is self.scratch else self.t.itemsize
        return self.b.add(ops.ADDRESS, self.t.vec(lanes) if lanes > 1 else self.t, (buffer, at),
                          align)

    def load(self, buffer: UOp, at: UOp, mask: UOp | None = None) -> UOp:
        src = (self.address(buffer, at, self.lanes), *([] if mask is None else [mask]))
        return self.b.put(ops.LOAD, self.vec, src)

    def store(self, buffer: UOp, at: UOp, value: UOp, mask: UOp | None = None) -> None:
        src = (self.address(buffer, at, self.lanes), value, *([] if mask is None else [mask]))
        self.b.put(ops.STORE, dtypes.void, src)

    def scalar(self, at: UOp) -> UOp:
        """Load an element of the table."""
        return self.b.put(ops.LOAD, self.t, (self.address(self.table, at, 1),))

    def each(self, n: UOp) -> UOp:
        return self.b.open(build.index_const(0), n)

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
        self.signs = self._alternating(build.const(1, self.t), sign)
        self.scales = self._alternating(scale, b.add(ops.MUL, self.t, (scale, sign)))
        first = build.index_const(0)  # of two tiles in scratch memory
        second = b.times(b.plus(self.n, lanes), self.pair)
        tile = b.open(*[UOp(ops.PARALLEL_RANGE, dtypes.index, (), i) for i in (0, 1)])
        tiles = b.divide(b.plus(self.inner, lanes - 1), lanes)
        self.matrix = b.add(ops.IDIV, dtypes.index, (tile, tiles))
        self.column = b.times(self.minus(tile, b.times(self.matrix, tiles)), lanes)
        left = self.minus(self.inner, self.column)
        self.columns = b.integer(ops.MIN, left, build.index_const(lanes))
        self.masks = [self.mask(b.plus(b.times(left, 2), -lanes * i)) for i in range(2)]
        start = b.integer(ops.MUL, b.integer(ops.MUL, self.matrix, self.n), self.inner)
        self.start = b.times(b.plus(start, self.column), 2)  # of columns
        self.row_start = b.times(b.plus(start, b.integer(ops.MUL, self.column, self.n)), 2)
        if arg.rows:
            self._load_rows(first)
        else:
            self._load_columns(first)
        source, target = self._stages(first, second)
        if arg.rows:
            self._store_rows(source)
        else:
            twiddles = build.var(TWIDDLES, dtypes.index, -1)
            minus_one = build.index_const(-1)
            branch = b.branch(b.add(ops.CMPLT, dtypes.bool_, (minus_one, twiddles)))
            self._multiply_twiddles(source, target)
            self._store_rows(target)
            b.end_branch(branch)
            branch = b.branch(b.add(ops.CMPEQ, dtypes.bool_, (minus_one, twiddles)))
            self._store_columns(source)
            b.end_branch(branch)
        b.close([])
        return b.program()

    def _alternating(self, re: UOp, im: UOp) -> UOp:
        """Return a vector of factors of pairs."""
        return self.shuffle(self.b.widen(re, self.lanes), self.b.widen(im, self.lanes),
                            [i for k in range(self.lanes // 2) for i in (k, k + self.lanes)])

    def row(self, base: UOp, i: UOp) -> UOp:
        """Return the offset of a row of a tile in scratch memory."""
        return self.b.plus(base, self.b.times(i, self.pair))

    def get(self, at: UOp) -> Complex:
        return self.load(self.scratch, at), self.load(self.scratch, self.b.plus(at, self.lanes))

    def put(self, at: UOp, value: Complex) -> None:
        self.store(self.scratch, at, value[0])
        self.store(self.scratch, self.b.plus(at, self.lanes), value[1])

    def _load_columns(self, base: UOp) -> None:
        b = self.b
        i = self.each(self.n)
        at = b.plus(self.start, b.times(b.integer(ops.MUL, i, self.inner), 2))
        halves = [self.op(ops.MUL, self.load(self.x, b.plus(at, self.lanes * h), mask), self.signs)
                  for h, mask in enumerate(self.masks)]
        low, high = halves
        re, im = [self.shuffle(low, high, range(part, self.pair, 2)) for part in range(2)]
        self.put(self.row(base, i), (re, im))
        b.close([])

    def _store_columns(self, base: UOp) -> None:
        b, half = self.b, self.lanes // 2
        i = self.each(self.n)
        value = self.get(self.row(base, i))
        at = b.plus(self.start, b.times(b.integer(ops.MUL, i, self.inner), 2))
        for h, mask in enumerate(self.masks):
            joined = self.shuffle(value[0], value[1], [
                j + k for j in range(half * h, half * (h + 1)) for k in (0, self.lanes)])
            self.store(self.out, b.plus(at, self.lanes * h), self.op(ops.MUL, joined, self.scales),
                       mask)
        b.close([])

    # ---- rows of the input or the output: half as many numbers of each as there are lanes

    def _each_square(self) -> tuple[UOp, UOp]:
        """Open a loop over parts of rows; return the offset of the part, and a mask."""
        b = self.b
        numbers = self.lanes // 2
        at = b.times(self.each(b.divide(b.plus(self.n, numbers - 1), numbers)), self.lanes)
        return at, self.mask(self.minus(b.times(self.n, 2), at))

    def _row_addresses(self, at: UOp) -> list[UOp]:
        """Return the offset of a part of each row; rows that are not there are the last one."""
        b = self.b
        last = b.plus(self.columns, -1)
        return [b.plus(b.plus(self.row_start, b.times(b.integer(ops.MUL, b.integer(
            ops.MIN, last, build.index_const(i)), self.n), 2)), at) for i in range(self.lanes)]

    def _load_rows(self, base: UOp) -> None:
        at, mask = self._each_square()
        rows = [self.op(ops.MUL, self.load(self.x, address, mask), self.signs)
                for address in self._row_addresses(at)]
        target = self.b.plus(base, self.b.times(at, self.lanes))
        for i, column in enumerate(self._transposed(rows)):
            self.store(self.scratch, self.b.plus(target, self.lanes * i), column)
        self.b.close([])

    def _store_rows(self, base: UOp) -> None:
        """Store the rows from the last to the first: those that are not there write to the last
        one, before it does."""
        at, mask = self._each_square()
        source = self.b.plus(base, self.b.times(at, self.lanes))
        columns = [self.load(self.scratch, self.b.plus(source, self.lanes * i))
                   for i in range(self.lanes)]
        rows = [self.op(ops.MUL, row, self.scales) for row in self._transposed(columns)]
        for address, row in reversed(list(zip(self._row_addresses(at), rows))):
            self.store(self.out, address, row, mask)
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

    # ---- stages

    def _stages(self, first: UOp, second: UOp) -> tuple[UOp, UOp]:
        """Emit all stages; return where the result is, and the other tile."""
        b = self.b
        states: Sequence[UOp] = (first, second, self.n, build.index_const(1),
                                 build.var(TABLE, dtypes.index))
        for i, r in enumerate(self.arg.kinds):
            self.each(build.var(COUNTS + i, dtypes.index))
            source, target, m, q, table = [b.phi(s) for s in states]
            rows = b.divide(m, r)
            self._stage(r, rows, q, table, source, target)
            states = b.close([target, source, rows, b.times(q, r),
                              b.plus(table, b.times(rows, 2 * (r - 1)))])
        return states[0], states[1]

    def _stage(self, r: int, m: UOp, q: UOp, table: UOp, source: UOp, target: UOp) -> None:
        b = self.b
        distance = b.times(b.integer(ops.MUL, m, q), self.pair)  # of inputs
        between = b.times(q, self.pair)  # of outputs
        p = self.each(m)
        at = b.plus(table, b.times(p, 2 * (r - 1)))
        loads = [b.widen(self.scalar(b.plus(at, i)), self.lanes) for i in range(2 * (r - 1))]
        reads = self.row(source, b.integer(ops.MUL, p, q))
        writes = self.row(target, b.times(b.integer(ops.MUL, p, q), r))
        i = b.times(self.each(q), self.pair)
        y = self.butterfly([self.get(b.plus(b.plus(reads, i), b.times(distance, j)))
                            for j in range(r)])
        y[1:] = [self.times(v, w) for v, w in zip(y[1:], zip(loads[::2], loads[1::2]))]
        for k, v in enumerate(y):
            self.put(b.plus(b.plus(writes, i), b.times(between, k)), v)
        b.close([])
        b.close([])

    def _multiply_twiddles(self, source: UOp, target: UOp) -> None:
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
        row = b.plus(b.integer(ops.MUL, j, rows), i)
        self.put(self.row(target, row), self.times(self.get(self.row(source, row)), factor))
        b.close([])
        b.close([])

    def _twiddle(self, base: UOp, row: UOp, width: UOp) -> Complex:
        """Load the twiddles of the columns of this tile."""
        at = self.b.plus(self.b.plus(base, self.b.integer(ops.MUL, row, width)), self.column)
        half = self.b.divide(width, 2)
        return self.load(self.table, at), self.load(self.table, self.b.plus(at, half))


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
