"""Rounding to integers, for processors without an instruction for it (x86-64 before SSE4.1).

Adding and subtracting 2**mantissa rounds smaller numbers half to even, by the machine's rounding
mode. Larger numbers are integers already; NaN and infinities do not compare as smaller either. All
functions keep the sign, also of zeros: floor(-0.0) = -0.0, ceil(-0.5) = -0.0 (IEEE 754-2019, 5.9).
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.ir import ops
from fnx.core.ir.expr import Expr, where
from fnx.core.ir.op import Op
from fnx.lower.legalize.elementary.floats import magnitude, with_sign


def _round_magnitude(round_small: Callable[[Expr, Expr], Expr]) -> Callable[[Expr], Expr]:
    """Return a function: ``round_small(x, nearest)``, or x if it is large, with the sign of
    x."""
    def rounded(x: Expr) -> Expr:
        large = 2.0 ** x.dtype.mantissa
        size = (x.bits() & magnitude(x.dtype)).bitcast(x.dtype)
        small = where(size < large, size, 0.0)
        nearest = with_sign((small + large) - large, x)
        result = round_small(x, nearest)
        magnitude_bits = (result.bits() & magnitude(x.dtype)).bitcast(x.dtype)
        return where(size < large, with_sign(magnitude_bits, x), x)
    return rounded


def _floor(x: Expr, nearest: Expr) -> Expr:
    return where(nearest > x, nearest - 1.0, nearest)


def _ceil(x: Expr, nearest: Expr) -> Expr:
    return where(nearest < x, nearest + 1.0, nearest)


def _trunc(x: Expr, nearest: Expr) -> Expr:
    return where(x < 0.0, _ceil(x, nearest), _floor(x, nearest))


FORMULAS: dict[Op, Callable[[Expr], Expr]] = {
    ops.ROUND: _round_magnitude(lambda x, nearest: nearest), ops.FLOOR: _round_magnitude(_floor),
    ops.CEIL: _round_magnitude(_ceil), ops.TRUNC: _round_magnitude(_trunc)}
