"""Formulas in Python's operators: what the elementary functions are written with.

A ``Value`` stands for a node; numbers beside it become constants of its dtype.

>>> from fnx.core import build, dtypes
>>> x = Value(build.param(0, dtypes.float32, ()))
>>> (2.0 * x + 1.0).node.op
ADD
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from fnx.core import build, dtypes, ops
from fnx.core.dtypes import DType
from fnx.core.operators import Operators
from fnx.core.ops import Op
from fnx.core.uop import UOp


class Value(Operators):
    """A node with Python's operators; each one builds a node of the same level."""

    __slots__ = ("node",)

    def __init__(self, node: UOp) -> None:
        self.node = node

    def _apply(self, op: Op, *operands: Any) -> Value:
        return Value(build.elementwise(
            op, *[o.node if isinstance(o, Value) else self.constant(o).node for o in operands]))

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    def constant(self, value: Any) -> Value:
        """A constant of this value's dtype."""
        return Value(build.const(value, self.node.dtype, self.node.shape))

    def cast(self, dtype: DType) -> Value:
        """The same number as another dtype."""
        return Value(build.cast(self.node, dtype))

    def bits(self) -> Value:
        """The bit pattern of a float, as a signed integer of the same width."""
        return Value(build.bitcast(self.node, FORMATS[self.node.dtype].integer))

    def as_float(self, dtype: DType) -> Value:
        """The float that has this integer as its bit pattern."""
        return Value(build.bitcast(self.node, dtype))

    def round(self) -> Value:
        """The nearest integer, ties to even."""
        return self._apply(ops.ROUND, self)

    def trunc(self) -> Value:
        """The integer part."""
        return self._apply(ops.TRUNC, self)

    def equals(self, other: Any) -> Value:
        return self._apply(ops.CMPEQ, self, other)

    def differs(self, other: Any) -> Value:
        return self._apply(ops.CMPNE, self, other)


class Format(NamedTuple):
    """An IEEE format: an integer as wide, fraction bits, exponent bias, masks.

    ``rounder`` is 1.5 * 2**mantissa: x + rounder holds round(x) in its low bits.
    """

    integer: DType
    mantissa: int
    bias: int
    magnitude: int
    rounder: float


FORMATS = {
    dtypes.float32: Format(dtypes.int32, 23, 127, 0x7FFF_FFFF, 1.5 * 2.0 ** 23),
    dtypes.float64: Format(dtypes.index, 52, 1023, 0x7FFF_FFFF_FFFF_FFFF, 1.5 * 2.0 ** 52),
}
INF = float("inf")
NAN = float("nan")


def where(condition: Value, a: Value | float, b: Value | float, of: Value | None = None) -> Value:
    """``a`` where the condition holds, else ``b``; numbers take the dtype of the other, or of."""
    like = a if isinstance(a, Value) else b if isinstance(b, Value) else of
    assert like is not None
    x = a if isinstance(a, Value) else like.constant(a)
    y = b if isinstance(b, Value) else like.constant(b)
    return Value(build.where(condition.node, x.node, y.node))


def mulacc(a: Value, b: Value | float, c: Value | float) -> Value:
    """a * b + c, fused where the target can."""
    return a._apply(ops.MULACC, a, b, c)


def polynomial(coefficients: Sequence[float], x: Value) -> Value:
    """Horner's scheme; coefficients from the constant term up."""
    out: Value | float = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        out = mulacc(x, out, c)
    assert isinstance(out, Value)
    return out


def clamp(x: Value, low: float, high: float) -> Value:
    """x inside low..high; NaN stays NaN."""
    x = where(x < low, low, x)
    return where(x > high, high, x)


def magnitude(x: Value) -> Value:
    """|x|"""
    return x._apply(ops.ABS, x)


def with_sign(x: Value, sign: Value) -> Value:
    """x >= 0 with the sign bit of ``sign``."""
    low = ~FORMATS[x.dtype].magnitude
    return (x.bits() | (sign.bits() & low)).as_float(x.dtype)


# ---- unevaluated sums of two floats (Dekker 1971, Knuth) --------------------------------------
# Written without fused operations, so that a target without them gets the same results.

Pair = tuple[Value, Value]


def fast_two_sum(a: Value, b: Value) -> Pair:
    """a + b and its rounding error, for |a| >= |b| or a = 0."""
    s = a + b
    return s, b - (s - a)


def two_sum(a: Value, b: Value) -> Pair:
    """a + b and its rounding error."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def split(x: Value) -> Pair:
    """x as a sum: its leading 26 bits (float64), and the rest."""
    high = (x.bits() & ~0x7FF_FFFF).as_float(x.dtype)
    return high, x - high


def two_product(a: Value, b: Value) -> Pair:
    """a * b and its rounding error (float64)."""
    p = a * b
    (ah, al), (bh, bl) = split(a), split(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def times(a: Pair, b: Pair) -> Pair:
    """Product of two unevaluated sums, to about 104 bits."""
    p, e = two_product(a[0], b[0])
    return fast_two_sum(p, e + (a[0] * b[1] + a[1] * b[0]))


def plus(a: Pair, b: Pair) -> Pair:
    """Sum of two unevaluated sums, to about 104 bits where nothing cancels."""
    s, e = two_sum(a[0], b[0])
    return fast_two_sum(s, e + (a[1] + b[1]))


def pair(like: Value, parts: tuple[float, float]) -> Pair:
    """A constant as an unevaluated sum."""
    return like.constant(parts[0]), like.constant(parts[1])
