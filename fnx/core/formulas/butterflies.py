"""Transforms of a few complex numbers, as formulas over real operations.

    radix 2    x0 + x1, x0 - x1
    radix 4    two of radix 2, then two of them, one rotated by -i
    radix 8    two of radix 4; of the odd half two numbers are rotated by sqrt(1/2) (1 - i)
    odd        sums and differences of numbers j and r - j, times cosines and sines

A subclass says what an operation is: a line of a program (lower/emit/fft.py), or a node of a graph
(lower/tensor/plan_fft.py).
"""

from __future__ import annotations

import math

import numpy as np

from fnx.core.formulas.fft_plan import roots
from fnx.core.ir import ops
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp

Complex = tuple[UOp, UOp]


class Butterflies:
    """Arithmetic of complex numbers, each two nodes."""

    def op(self, op: Op, *src: UOp) -> UOp:
        raise NotImplementedError

    def const(self, x: float) -> UOp:
        raise NotImplementedError

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
        w = roots(np.arange(r), r)
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
                root = w[j * k % r]
                c, sin = self.const(float(root.real)), self.const(float(-root.imag))
                a = self.op(ops.MULACC, s[0], c, a[0]), self.op(ops.MULACC, s[1], c, a[1])
                b = (self.op(ops.MUL, d[0], sin), self.op(ops.MUL, d[1], sin)) if b is None else \
                    (self.op(ops.MULACC, d[0], sin, b[0]), self.op(ops.MULACC, d[1], sin, b[1]))
            assert b is not None
            out[k], out[r - k] = self.plus_rotated(a, b), self.less_rotated(a, b)
        return out
