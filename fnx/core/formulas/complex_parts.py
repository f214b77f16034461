"""Ops on complex numbers as formulas over their real and imaginary parts.

``PARTS[op](*operands)`` takes a pair (x, y) of Exprs for each operand x + iy, and returns the pair
of the result. Values at zeros, infinities and NaN are those of C99, Annex G, where NumPy has them,
too; products and quotients are NumPy's. Magnitudes are scaled where a square would overflow.

Sources: W. Kahan, "Branch cuts for complex elementary functions" (1987), for sqrt, asin and tanh;
R. Smith, "Algorithm 116: complex division" (1962).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fnx.core.formulas.elementwise import arctan2, cosh, hypot, isfinite, isinf, sinh
from fnx.core.formulas.elementwise_math import arcsinh, copysign
from fnx.core.formulas.formulas import evaluate_nodes
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.build import elementwise
from fnx.core.ir.cache import memoized
from fnx.core.ir.dtypes import DType, NDArray, as_dtype, float64
from fnx.core.ir.expr import (
    Expr,
    cos,
    exp,
    expm1,
    log,
    log1p,
    maximum,
    minimum,
    mulacc,
    sin,
    sqrt,
    where,
)
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, toposort

Pair = tuple[Expr, Expr]


def _each(op: Op) -> Callable[..., Pair]:
    """Return the formula of an op that acts on both parts separately."""
    def both(*operands: Pair) -> Pair:
        xs, ys = zip(*operands)
        return Expr(elementwise(op, *[x.node for x in xs])), \
            Expr(elementwise(op, *[y.node for y in ys]))
    return both


def multiply(a: Pair, b: Pair) -> Pair:
    """(ac - bd) + i (ad + bc)."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def divide(a: Pair, b: Pair) -> Pair:
    """Divide by Smith's method: both parts of b are divided by the larger one first."""
    (x, y), (c, d) = a, b
    real_is_larger = abs(c) >= abs(d)
    large, small = where(real_is_larger, c, d), where(real_is_larger, d, c)
    is_zero = c.eq(0) & d.eq(0)
    ratio = small / where(is_zero, 1, large)
    denominator = large + small * ratio
    re = where(real_is_larger, x + y * ratio, x * ratio + y)
    im = where(real_is_larger, y - x * ratio, y * ratio - x)
    divisor = where(is_zero, abs(c), denominator)
    return where(is_zero, x, re) / divisor, where(is_zero, y, im) / divisor


def exponential(z: Pair) -> Pair:
    """exp(x) cos(y) + i exp(x) sin(y); exp(x) in two factors where it overflows."""
    x, y = z
    limit = 88.0 if x.dtype.bits == 32 else 709.0
    is_large = x > limit
    size, scale = exp(where(is_large, x - limit, x)), where(is_large, x.like(math.exp(limit)), 1)
    is_infinite = x.eq(math.inf)  # whatever finite factors come first
    scale = where(is_infinite, 1, scale)
    re, im = size * cos(y) * scale, size * sin(y) * scale
    no_angle = ~isfinite(y)
    dead = no_angle & x.eq(-math.inf)
    return where(dead, 0, where(no_angle & is_infinite, math.inf, re)), \
        where(y.eq(0), y, where(dead, 0, im))


def _log_abs(x: Expr, y: Expr) -> Expr:
    """log |x + iy|. Near 1 it is log1p(|z|**2 - 1) / 2, with the squares as exact pairs."""
    a, b = abs(x), abs(y)
    high, low = maximum(a, b), minimum(a, b)
    infinite = isinf(a) | isinf(b)
    is_near = (high > 0.5) & (high < 2)
    h, w = where(is_near, high, 1), where(is_near, low, 0)
    square, square_low = h * h, w * w
    rounding = mulacc(h, h, -square) + mulacc(w, w, -square_low)
    near = 0.5 * log1p(square - 1 + square_low + rounding)
    ratio = where(infinite | high.eq(0), 0, low / where(high.eq(0), 1, high))
    far = log(high) + 0.5 * log1p(ratio * ratio)
    return where(infinite, math.inf, where(is_near, near, far))


def logarithm(z: Pair) -> Pair:
    """log |z| + i angle(z)."""
    return _log_abs(*z), arctan2(z[1], z[0])


def square_root(z: Pair) -> Pair:
    """The root with a real part >= 0, and the sign of y in its imaginary part."""
    x, y = z
    a, b = abs(x), abs(y)
    high = maximum(a, b)
    t = x.dtype
    is_large, is_small = high > 2.0 ** (t.bias - 2), high < 2.0 ** (2 - t.bias + t.mantissa)
    up = 2.0 ** (2 * (t.mantissa // 2 + 1))
    scale = where(is_large, x.like(1 / 16), where(is_small, x.like(up), 1))
    back = where(is_large, x.like(4), where(is_small, x.like(up ** -0.5), 1))
    a, b = a * scale, b * scale
    main = sqrt(0.5 * a + 0.5 * hypot(a, b))
    other = where(main.eq(0), 0, b / (2 * where(main.eq(0), 1, main)))
    main, other = main * back, other * back
    below = x < 0
    re, im = where(below, other, main), where(below, main, other)
    infinite = isinf(y)
    return where(infinite, math.inf, re), where(infinite, y, copysign(im, y))


def sine(z: Pair) -> Pair:
    """sin(x) cosh(y) + i cos(x) sinh(y); a zero factor wins over an infinite one."""
    x, y = z
    no_size = y.eq(0) | isinf(y) & ~isfinite(x)
    return where(x.eq(0), x, sin(x) * cosh(y)), where(no_size, y, cos(x) * sinh(y))


def cosine(z: Pair) -> Pair:
    """cos(x) cosh(y) - i sin(x) sinh(y); a zero factor wins over an infinite one."""
    x, y = z
    no_angle = ~isfinite(x)
    re = where(isinf(y) & no_angle, math.inf, cos(x) * cosh(y))
    im = where(x.eq(0), x * copysign(y.like(1), y), sin(x) * sinh(y))
    return re, -where(y.eq(0) & no_angle, y, im)


def hyperbolic_tangent(z: Pair) -> Pair:
    """Kahan's formula in tan(y) and sinh(x); its limit where sinh(x)**2 would overflow."""
    x, y = z
    is_large = abs(x) > (10.0 if x.dtype.bits == 32 else 20.0)
    bounded = where(is_large, 0, x)
    t = Expr(elementwise(ops.TAN, y.node))
    s = sinh(bounded)
    beta = 1 + t * t
    denominator = 1 + beta * s * s
    re = where(x.eq(0), x, beta * sqrt(1 + s * s) * s / denominator)
    im = t / denominator
    decay = exp(-2 * where(is_large, abs(x), 0))
    limit = where(isfinite(y), 4 * sin(y) * cos(y) * decay, copysign(x.like(0), y))
    return where(is_large, copysign(x.like(1), x), re), where(is_large, limit, im)


def _rotate(f: Callable[[Pair], Pair]) -> Callable[[Pair], Pair]:
    """Return z -> -i f(iz)."""
    def rotated(z: Pair) -> Pair:
        re, im = f((-z[1], z[0]))
        return im, -re
    return rotated


def arcsine(z: Pair) -> Pair:
    """atan2(x, re(ab)) + i asinh(im(conj(a) b)), of a = sqrt(1 - z) and b = sqrt(1 + z)."""
    x, y = z
    a, b = square_root((1 - x, -y)), square_root((1 + x, y))
    infinite = isinf(x) | isinf(y)
    re = where(infinite, abs(y), a[0] * b[0] - a[1] * b[1])
    im = a[0] * b[1] - a[1] * b[0]
    return arctan2(x, re), where(infinite, copysign(x.like(math.inf), y), arcsinh(im))


def arctangent(z: Pair) -> Pair:
    """atan2(2x, (1 - x)(1 + x) - y**2) / 2 + i log(|z + i|**2 / |z - i|**2) / 4."""
    x, y = z
    b = abs(y)
    infinite = isinf(x) | isinf(y)
    twice = where(infinite, copysign(x.like(0), x), 2 * x)
    re = 0.5 * arctan2(twice, where(infinite, -math.inf, (1 - x) * (1 + x) - y * y))
    gap = 1 - b
    im = 0.25 * log1p(where(infinite, 0, 4 * b / (x * x + gap * gap)))
    return re, copysign(im, y)


def exponential_minus_1(z: Pair) -> Pair:
    """expm1(x) cos(y) - 2 sin(y / 2)**2 + i exp(x) sin(y)."""
    x, y = z
    half = sin(0.5 * y)
    return expm1(x) * cos(y) - 2 * half * half, where(y.eq(0), y, exp(x) * sin(y))


def logarithm_of_1_plus(z: Pair) -> Pair:
    """log(1 + z); its real part for small z is log1p(x (2 + x) + y**2) / 2."""
    x, y = z
    is_small = maximum(abs(x), abs(y)) < 0.5
    near_x, near_y = where(is_small, x, 0), where(is_small, y, 0)
    near = 0.5 * log1p(near_x * (2 + near_x) + near_y * near_y)
    return where(is_small, near, _log_abs(1 + x, y)), arctan2(y, 1 + x)


def power(a: Pair, b: Pair) -> Pair:
    """exp(b log(a)); 1 if b is 0, and 0**b is 0 for a positive b, else NaN."""
    is_zero = a[0].eq(0) & a[1].eq(0)
    base = where(is_zero, 1, a[0]), a[1]
    re, im = exponential(multiply(b, logarithm(base)))
    of_zero = where((b[0] > 0) & b[1].eq(0), b[0].like(0), math.nan)
    is_one = b[0].eq(0) & b[1].eq(0)
    return where(is_one, 1, where(is_zero, of_zero, re)), \
        where(is_one, 0, where(is_zero, of_zero, im))


PARTS: dict[Op, Callable[..., Pair]] = {
    ops.NEG: _each(ops.NEG), ops.ADD: _each(ops.ADD), ops.SUB: _each(ops.SUB),
    ops.MUL: multiply, ops.DIV: divide, ops.POW: power, ops.SQRT: square_root,
    ops.EXP: exponential, ops.EXPM1: exponential_minus_1, ops.LOG: logarithm,
    ops.LOG1P: logarithm_of_1_plus, ops.SIN: sine, ops.COS: cosine,
    ops.TAN: _rotate(hyperbolic_tangent), ops.TANH: hyperbolic_tangent, ops.ASIN: arcsine,
    ops.ATAN: arctangent}
"""The formulas of elementwise ops of complex numbers."""

COMPARISONS: dict[Op, Callable[[Pair, Pair], Expr]] = {
    ops.CMPEQ: lambda a, b: a[0].eq(b[0]) & a[1].eq(b[1]),
    ops.CMPNE: lambda a, b: a[0].ne(b[0]) | a[1].ne(b[1])}

@memoized
def _formula_graph(op: Op, dtype: DType) -> tuple[list[UOp], list[UOp], list[UOp]]:
    """Return the parts of the operands as VARs, those of the result, and all nodes of a formula."""
    variables = [build.var(i, dtype) for i in range(2 * (op.arity or 0))]
    pairs = [(Expr(x), Expr(y)) for x, y in zip(variables[::2], variables[1::2])]
    roots = [COMPARISONS[op](*pairs).node] if op in COMPARISONS else \
        [x.node for x in PARTS[op](*pairs)]
    return variables, roots, toposort(roots)


def evaluate(op: Op, *xs: NDArray) -> NDArray:
    """Return the value of an op on arrays of complex numbers, by its formula.

    Exact ops are computed in the type of the parts, the others in float64.

    >>> evaluate(ops.MUL, np.array(1 + 2j), np.array(2j))
    array(-4.+2.j)
    """
    t = as_dtype(xs[0].dtype)
    part_type = t.real if op.exact else float64
    variables, roots, nodes = _formula_graph(op, part_type)
    parts = [part.astype(part_type.np) for x in xs for part in (x.real, x.imag)]
    values: dict[UOp, NDArray] = dict(zip(variables, parts))
    evaluate_nodes(nodes, values)
    if op in COMPARISONS:
        return np.asarray(values[roots[0]])
    out = np.empty(xs[0].shape, t.np)
    with np.errstate(all="ignore"):
        out.real, out.imag = (np.broadcast_to(values[root], out.shape) for root in roots)
    return out


assert {op for op in ops.ELEMENTWISE if dtypes.complex64 in op.types} == {
    *PARTS, *COMPARISONS, ops.REAL, ops.IMAG, ops.CAST, ops.WHERE}, "each op has a formula"
