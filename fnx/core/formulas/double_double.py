"""Double-double arithmetic: unevaluated sums of two floats (Dekker 1971, Knuth).

No fused operations are used, so that targets without them get the same results.
"""

from __future__ import annotations

from fnx.core.ir.expr import Expr

DoubleDouble = tuple[Expr, Expr]


def fast_two_sum(a: Expr, b: Expr) -> DoubleDouble:
    """Return a + b and its rounding error, for |a| >= |b| or a = 0."""
    s = a + b
    return s, b - (s - a)


def two_sum(a: Expr, b: Expr) -> DoubleDouble:
    """Return a + b and its rounding error."""
    s = a + b
    t = s - a
    return s, (a - (s - t)) + (b - t)


def split(x: Expr) -> DoubleDouble:
    """Split x into a sum: the leading half of its bits, and the rest."""
    low = (1 << x.dtype.mantissa // 2 + 1) - 1
    high = (x.bits() & ~low).bitcast(x.dtype)
    return high, x - high


def two_product(a: Expr, b: Expr) -> DoubleDouble:
    """Return a * b and its rounding error."""
    p = a * b
    (ah, al), (bh, bl) = split(a), split(b)
    return p, ((ah * bh - p) + ah * bl + al * bh) + al * bl


def multiply(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """Multiply two double-doubles, to twice the bits of the type but a few."""
    p, e = two_product(a[0], b[0])
    return fast_two_sum(p, e + (a[0] * b[1] + a[1] * b[0]))


def add_doubles(a: DoubleDouble, b: DoubleDouble) -> DoubleDouble:
    """Add two double-doubles, to twice the bits but a few if nothing cancels."""
    s, e = two_sum(a[0], b[0])
    return fast_two_sum(s, e + (a[1] + b[1]))


def double_const(like: Expr, parts: tuple[float, float]) -> DoubleDouble:
    """Return a double-double constant."""
    return like.like(parts[0]), like.like(parts[1])
