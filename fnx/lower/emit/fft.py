"""The PROGRAM of an FFT_STEP: transforms of the columns of matrices of complex numbers.

    FOR tile in lo..hi            16 columns (of float32), a lane for each
      first stage                 input -> scratch: loads split pairs into vectors re and im
      FOR each stage between      scratch -> scratch, in Stockham order
      last stage                  scratch -> output; or times twiddles -> scratch, then squares
                                  of lanes are transposed to rows of the output

All lengths are scalars, so all steps with the same first and last radix, and the same kinds of
radices between them, share a program. A twiddle of a stage is one number for all lanes. A stage of
radix r maps x[j, p, q], j < r, p < m, to y[p, k, q] = w^(p * k) * sum over j of x[j, p, q] *
w(r)^(j * k), where q counts what earlier stages have transformed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from fnx.core.ir import build, dtypes, op_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp
from fnx.lower.emit.builder import ProgramBuilder

_VECTOR_BYTES = 64
_PAD = 16  # columns to which tables are padded (core/formulas/fft_plan.py)
Complex = tuple[UOp, UOp]

OUTER, N, INNER, TABLE, TWIDDLES, SIGN, SCALE, COUNTS = range(8)  # slots of scalars


def scalars(step: UOp) -> tuple[UOp, ...]:
    """Return the scalars of an FFT_STEP as CONSTs."""
    arg = step.arg
    outer, n, inner = arg.lengths
    return (*[build.index_const(i) for i in (outer, n, inner, arg.table, max(arg.twiddles, 0),
                                             -1 if arg.inverse else 1)],
            build.const(arg.scale, arg.dtype),
            *[build.index_const(arg.middle.count(r)) for r in _kinds(arg.middle)])


def generalize(step: UOp) -> UOp:
    """Return an FFT_STEP for any lengths that its radices allow."""
    arg = step.arg
    return step.replace(arg=arg.replace(lengths=None, table=0, inverse=False, scale=1.0,
                                        twiddles=min(arg.twiddles, 0), middle=_kinds(arg.middle)))


def _kinds(middle: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(set(middle), reverse=True))


def lanes_of(t: DType) -> int:
    return _VECTOR_BYTES // t.itemsize


def extents(step: UOp) -> dict[str, UOp]:
    """Return the launch parameters: tiles, and scratch bytes per worker."""
    lanes = lanes_of(step.arg.dtype)
    outer, n, inner = [build.var(slot, dtypes.index) for slot in (OUTER, N, INNER)]
    tiles = build.idiv(build.add(inner, build.index_const(lanes - 1)), build.index_const(lanes))
    nbytes = build.index_const(4 * _VECTOR_BYTES)
    return {"parallel": build.mul(outer, tiles), "scratch": build.mul(n, nbytes)}


def program(step: UOp) -> UOp:
    """Return the PROGRAM of a generalized FFT_STEP over a part of its tiles."""
    return _FftEmitter(step.arg).program()


class _FftEmitter:
    def __init__(self, arg: op_args.FftStep) -> None:
        self.arg, self.t = arg, arg.dtype
        self.lanes = lanes_of(self.t)
        self.vec = self.t.vec(self.lanes)
        self.b = ProgramBuilder()
        self.scratch = UOp(ops.SCRATCH, self.t, (build.index_const(0),),
                           op_args.Stage(0, "PRIV"))
        self.x, self.table, self.out = [
            UOp(ops.REF, self.t, (), op_args.Ref(i, "", self.t.itemsize)) for i in range(3)]
        self.outer, self.n, self.inner = [
            build.var(slot, dtypes.index) for slot in (OUTER, N, INNER)]
        self.block = 2 * self.lanes  # elements of a pair of vectors

    # ---- lines

    def op(self, op: ops.Op, *src: UOp) -> UOp:
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

    # ---- complex numbers

    def times(self, a: Complex, w: Complex) -> Complex:
        (x, y), (c, s) = a, w
        re = self.op(ops.MULACC, self.op(ops.NEG, y), s, self.op(ops.MUL, x, c))
        return re, self.op(ops.MULACC, y, c, self.op(ops.MUL, x, s))

    def plus(self, a: Complex, b: Complex) -> Complex:
        return self.op(ops.ADD, a[0], b[0]), self.op(ops.ADD, a[1], b[1])

    def less(self, a: Complex, b: Complex) -> Complex:
        return self.op(ops.SUB, a[0], b[0]), self.op(ops.SUB, a[1], b[1])

    def plus_rotated(self, a: Complex, b: Complex) -> Complex:
        """Return a - i * b."""
        return self.op(ops.ADD, a[0], b[1]), self.op(ops.SUB, a[1], b[0])

    def less_rotated(self, a: Complex, b: Complex) -> Complex:
        """Return a + i * b."""
        return self.op(ops.SUB, a[0], b[1]), self.op(ops.ADD, a[1], b[0])

    def butterfly(self, x: list[Complex]) -> list[Complex]:
        """Return the transform of a few numbers."""
        r = len(x)
        if r == 1:
            return x
        if r == 2:
            return [self.plus(*x), self.less(*x)]
        if r == 4:
            a, b = self.plus(x[0], x[2]), self.less(x[0], x[2])
            c, d = self.plus(x[1], x[3]), self.less(x[1], x[3])
            return [self.plus(a, c), self.plus_rotated(b, d), self.less(a, c),
                    self.less_rotated(b, d)]
        if r == 8:
            return self._radix_8(x)
        return self._odd(x)

    def _radix_8(self, x: list[Complex]) -> list[Complex]:
        even, odd = self.butterfly(x[::2]), self.butterfly(x[1::2])
        half = self.const(math.sqrt(0.5))
        p, q = odd[1]
        sum1, diff1 = self.op(ops.ADD, p, q), self.op(ops.SUB, q, p)
        u, v = odd[3]
        sum3, diff3 = self.op(ops.ADD, u, v), self.op(ops.SUB, v, u)
        neg = self.const(-math.sqrt(0.5))

        def fma(a: UOp, b: UOp, c: UOp) -> UOp:
            return self.op(ops.MULACC, a, b, c)
        e = even
        return [self.plus(e[0], odd[0]),
                (fma(sum1, half, e[1][0]), fma(diff1, half, e[1][1])),
                self.plus_rotated(e[2], odd[2]),
                (fma(diff3, half, e[3][0]), fma(sum3, neg, e[3][1])),
                self.less(e[0], odd[0]),
                (fma(sum1, neg, e[1][0]), fma(diff1, neg, e[1][1])),
                self.less_rotated(e[2], odd[2]),
                (fma(diff3, neg, e[3][0]), fma(sum3, half, e[3][1]))]

    def _odd(self, x: list[Complex]) -> list[Complex]:
        """Return the transform of an odd number of them: sums and differences of j and r - j."""
        r = len(x)
        half = range(1, (r + 1) // 2)
        sums = [self.plus(x[j], x[r - j]) for j in half]
        differences = [self.less(x[j], x[r - j]) for j in half]
        out = [x[0]] * r
        for s in sums:
            out[0] = self.plus(out[0], s)
        for k in half:
            a = x[0]
            b: Complex | None = None
            for j, s, d in zip(half, sums, differences):
                c, sin = [self.const(f(2 * math.pi * (j * k % r) / r)) for f in (math.cos,
                                                                                 math.sin)]
                a = self.op(ops.MULACC, s[0], c, a[0]), self.op(ops.MULACC, s[1], c, a[1])
                b = (self.op(ops.MUL, d[0], sin), self.op(ops.MUL, d[1], sin)) if b is None else \
                    (self.op(ops.MULACC, d[0], sin, b[0]), self.op(ops.MULACC, d[1], sin, b[1]))
            assert b is not None
            out[k], out[r - k] = self.plus_rotated(a, b), self.less_rotated(a, b)
        return out

    # ---- stages

    def program(self) -> UOp:
        b, arg = self.b, self.arg
        b.put(self.scratch.op, self.t, self.scratch.src, self.scratch.arg)
        row = b.open(*[UOp(ops.PARALLEL_RANGE, dtypes.index, (), i) for i in (0, 1)])
        tiles = b.divide(b.plus(self.inner, self.lanes - 1), self.lanes)
        self.matrix = b.add(ops.IDIV, dtypes.index, (row, tiles))
        self.column = b.times(self.minus(row, b.times(self.matrix, tiles)), self.lanes)
        left = self.minus(self.inner, self.column)
        self.pairs = [self.mask(b.plus(b.times(left, 2), -self.lanes * i)) for i in range(2)]
        self.columns_left = left
        sign = b.add(ops.CAST, self.t, (build.var(SIGN, dtypes.index),))
        scale = build.var(SCALE, self.t)
        self.sign = b.widen(sign, self.lanes)
        self.scales = [b.widen(s, self.lanes) for s in (
            scale, b.add(ops.MUL, self.t, (scale, sign)))]
        self.start = b.times(b.plus(b.times(b.integer(ops.MUL, self.matrix, self.n), self.inner),
                                    self.column), 2)
        if not arg.last:
            self._last(arg.first, None)
        else:
            self._stages()
        b.close([])
        return b.program()

    def input(self, at: UOp) -> Complex:
        """Load the numbers of a row of the tile."""
        at = self.b.plus(self.start, self.b.times(self.b.times(at, self.inner), 2))
        low = self.load(self.x, at, self.pairs[0])
        high = self.load(self.x, self.b.plus(at, self.lanes), self.pairs[1])
        re, im = [self.shuffle(low, high, range(i, self.block, 2)) for i in range(2)]
        return re, self.op(ops.MUL, im, self.sign)

    def put_pairs(self, at: UOp, value: Complex, masks: Sequence[UOp]) -> None:
        """Store numbers side by side."""
        half = self.lanes // 2
        for i, mask in enumerate(masks):
            lanes = [j + k for j in range(half * i, half * (i + 1)) for k in (0, self.lanes)]
            self.store(self.out, self.b.plus(at, self.lanes * i), self.shuffle(*value, lanes),
                       mask)

    def get(self, base: UOp, at: UOp) -> Complex:
        """Load a row of the tile from scratch memory."""
        at = self.b.plus(base, self.b.times(at, self.block))
        return self.load(self.scratch, at), self.load(self.scratch, self.b.plus(at, self.lanes))

    def keep(self, base: UOp, at: UOp, value: Complex) -> None:
        at = self.b.plus(base, self.b.times(at, self.block))
        self.store(self.scratch, at, value[0])
        self.store(self.scratch, self.b.plus(at, self.lanes), value[1])

    def twiddles(self, table: UOp, p: UOp, r: int) -> list[Complex]:
        at = self.b.plus(table, self.b.times(p, 2 * (r - 1)))
        loads = [self.b.widen(self.scalar(self.b.plus(at, i)), self.lanes)
                 for i in range(2 * (r - 1))]
        return list(zip(loads[::2], loads[1::2]))

    def stage(self, r: int, m: UOp, q: UOp | None, table: UOp,
              load: Callable[[UOp], Complex], keep: Callable[[UOp, Complex], None]) -> None:
        """Emit the loops of a stage; without q there is one column per p."""
        b = self.b
        p = self.each(m)
        w = self.twiddles(table, p, r)
        i = None if q is None else self.each(q)

        def row(j: UOp) -> UOp:
            return j if q is None or i is None else b.plus(b.integer(ops.MUL, j, q), i)
        x = [load(row(b.plus(b.times(m, j), p))) for j in range(r)]
        y = self.butterfly(x)
        y[1:] = [self.times(v, factor) for v, factor in zip(y[1:], w)]
        for k, v in enumerate(y):
            keep(row(b.plus(b.times(p, r), k)), v)
        if q is not None:
            b.close([])
        b.close([])

    def _stages(self) -> None:
        b, arg = self.b, self.arg
        zero = build.index_const(0)
        other = b.times(self.n, self.block)
        table: UOp = build.var(TABLE, dtypes.index)
        m, q = self._divide(self.n, arg.first), build.index_const(arg.first)
        self.stage(arg.first, m, None, table, self.input, partial(self.keep, zero))
        table = b.plus(table, b.times(m, 2 * (arg.first - 1)))
        source, target = zero, other
        for i, r in enumerate(arg.middle):
            self.each(build.var(COUNTS + i, dtypes.index))
            states = [b.phi(s) for s in (source, target, m, q, table)]
            source, target, m, q, table = states
            rows = self._divide(m, r)
            self.stage(r, rows, q, table, partial(self.get, source), partial(self.keep, target))
            source, target, m, q, table = b.close([
                target, source, rows, b.times(q, r),
                b.plus(table, b.times(rows, 2 * (r - 1)))])
        self._last(arg.last, (source, target))

    def _divide(self, n: UOp, r: int) -> UOp:
        return self.b.divide(n, r)

    def _last(self, r: int, bases: tuple[UOp, UOp] | None) -> None:
        """Emit the last stage: the output, or rows times the twiddles between two steps."""
        b = self.b
        q = self._divide(self.n, r)
        i = self.each(q)
        x = [self.input(b.plus(b.times(q, j), i)) if bases is None
             else self.get(bases[0], b.plus(b.times(q, j), i)) for j in range(r)]
        y = self.butterfly(x)
        target = build.index_const(0) if bases is None else bases[1]
        twiddled = self.arg.twiddles >= 0
        rows = [b.plus(b.times(q, k), i) for k in range(r)]
        if twiddled:
            base: UOp = build.var(TWIDDLES, dtypes.index)
            width = b.times(b.times(self._vectors(_PAD), _PAD), 2)
            first = self._vector_twiddle(base, i, width)
            second = b.plus(base, b.integer(ops.MUL, q, width))
            for k, row in enumerate(rows):
                w = first if k == 0 else self.times(
                    self._vector_twiddle(second, build.index_const(k), width), first)
                self.keep(target, row, self.times(y[k], w))
            b.close([])
            self._transpose(target)
            return
        for k, row in enumerate(rows):
            at = b.plus(self.start, b.times(b.times(row, self.inner), 2))
            self.put_pairs(at, self._scaled(y[k]), self.pairs)
        b.close([])

    def _scaled(self, value: Complex) -> Complex:
        return (self.op(ops.MUL, value[0], self.scales[0]),
                self.op(ops.MUL, value[1], self.scales[1]))

    def _vectors(self, lanes: int) -> UOp:
        return self.b.divide(self.b.plus(self.inner, lanes - 1), lanes)

    def _vector_twiddle(self, base: UOp, row: UOp, width: UOp) -> Complex:
        """Load the twiddles of the columns of this tile."""
        at = self.b.plus(self.b.plus(base, self.b.integer(ops.MUL, row, width)), self.column)
        half = self.b.divide(width, 2)
        return self.load(self.table, at), self.load(self.table, self.b.plus(at, half))

    def _transpose(self, base: UOp) -> None:
        """Write columns of the tile as rows of the output."""
        b, lanes = self.b, self.lanes
        block = self.each(b.divide(b.plus(self.n, lanes - 1), lanes))
        row = b.times(block, lanes)
        pairs = [self.get(base, b.plus(row, i)) for i in range(lanes)]
        re = self._transposed([p[0] for p in pairs])
        im = self._transposed([p[1] for p in pairs])
        left = b.times(self.minus(self.n, row), 2)
        start = b.plus(b.integer(ops.MUL, b.plus(b.integer(ops.MUL, self.matrix, self.inner),
                                                 self.column), self.n), row)
        zero = build.index_const(0)
        for i in range(lanes):
            inside = b.add(ops.CMPLT, dtypes.bool_, (build.index_const(i), self.columns_left))
            count = b.add(ops.WHERE, dtypes.index, (inside, left, zero))
            masks = [self.mask(b.plus(count, -lanes * h)) for h in range(2)]
            at = b.times(b.plus(start, b.times(self.n, i)), 2)
            self.put_pairs(at, self._scaled((re[i], im[i])), masks)
        b.close([])

    def _transposed(self, rows: list[UOp]) -> list[UOp]:
        """Transpose a square of lanes: blocks of 1, 2, 4 ... are exchanged."""
        size = 1
        while size < self.lanes:
            low = [j + self.lanes - size if j & size else j for j in range(self.lanes)]
            high = [j + self.lanes if j & size else j + size for j in range(self.lanes)]
            out = list(rows)
            for i in range(self.lanes):
                if not i & size:
                    a, b = rows[i], rows[i | size]
                    out[i], out[i | size] = self.shuffle(a, b, low), self.shuffle(a, b, high)
            rows = out
            size *= 2
        return rows
