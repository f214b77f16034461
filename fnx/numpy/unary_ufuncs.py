"""Unary universal functions: one elementwise entry each.

The entry of a function that is an op stands above it; the others are in
core/formulas/elementwise.py.
"""

from __future__ import annotations

from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import apply, elementwise
from fnx.core.formulas import elementwise as rows
from fnx.core.formulas.elementwise import ElementwiseFn
from fnx.core.ir import ops
from fnx.numpy.binary_ufuncs import with_ufunc_methods

__all__ = [
    "abs", "absolute", "arctan", "atan", "bitwise_invert", "bitwise_not", "cbrt", "ceil", "cos",
    "cosh", "exp", "exp2", "expm1", "fabs", "floor", "invert", "isfinite", "isinf", "isnan",
    "log", "log1p", "log2", "log10", "logical_not", "negative", "positive", "reciprocal", "rint",
    "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc",
]


@with_ufunc_methods(nin=1)
@elementwise(rows.NEGATIVE)
def negative(x: ArrayLike, /) -> Array:
    """Negate elementwise: -x.

    >>> print(jnp.negative(2.0))
    -2.0
    """
    return apply(rows.NEGATIVE, x)


@elementwise(rows.POSITIVE)
def positive(x: ArrayLike, /) -> Array:
    """Return x unchanged: +x.

    >>> print(jnp.positive(2.0))
    2.0
    """
    return apply(rows.POSITIVE, x)


@elementwise(rows.ABSOLUTE)
def absolute(x: ArrayLike, /) -> Array:
    """Return the absolute value; its derivative at 0 is 0.

    >>> print(jnp.absolute(-2.0))
    2.0
    """
    return apply(rows.ABSOLUTE, x)


@elementwise(rows.FABS)
def fabs(x: ArrayLike, /) -> Array:
    """Return the absolute value, as a float.

    >>> print(jnp.fabs(-2))
    2.0
    """
    return apply(rows.FABS, x)


@elementwise(rows.SIGN)
def sign(x: ArrayLike, /) -> Array:
    """Return the sign: -1, 0 or 1; NaN for NaN.

    >>> print(jnp.sign(-2.0))
    -1.0
    """
    return apply(rows.SIGN, x)


@elementwise(rows.SQUARE)
def square(x: ArrayLike, /) -> Array:
    """Return the square x * x.

    >>> print(jnp.square(-3))
    9
    """
    return apply(rows.SQUARE, x)


@elementwise(rows.FLOOR)
def floor(x: ArrayLike, /) -> Array:
    """Round down to the next integer.

    >>> print(jnp.floor(-1.5))
    -2.0
    """
    return apply(rows.FLOOR, x)


@elementwise(rows.CEIL)
def ceil(x: ArrayLike, /) -> Array:
    """Round up to the next integer.

    >>> print(jnp.ceil(-1.5))
    -1.0
    """
    return apply(rows.CEIL, x)


@elementwise(rows.TRUNC)
def trunc(x: ArrayLike, /) -> Array:
    """Round towards zero to an integer.

    >>> print(jnp.trunc(-1.5))
    -1.0
    """
    return apply(rows.TRUNC, x)


@elementwise(rows.RINT)
def rint(x: ArrayLike, /) -> Array:
    """Round to the nearest integer; ties round to even.

    >>> print(jnp.rint(2.5))
    2.0
    """
    return apply(rows.RINT, x)


@elementwise(rows.ISNAN, "bool")
def isnan(x: ArrayLike, /) -> Array:
    """Return whether x is NaN.

    >>> print(jnp.isnan(float('nan')))
    True
    """
    return apply(rows.ISNAN, x)


@elementwise(rows.ISINF, "bool")
def isinf(x: ArrayLike, /) -> Array:
    """Return whether x is positive or negative infinity.

    >>> print(jnp.isinf(1.0))
    False
    """
    return apply(rows.ISINF, x)


@elementwise(rows.ISFINITE, "bool")
def isfinite(x: ArrayLike, /) -> Array:
    """Return whether x is finite: neither infinity nor NaN.

    >>> print(jnp.isfinite(1.0))
    True
    """
    return apply(rows.ISFINITE, x)


@elementwise(rows.INVERT)
def invert(x: ArrayLike, /) -> Array:
    """Invert every bit; for bools, logical not.

    >>> print(jnp.invert(5))
    -6
    """
    return apply(rows.INVERT, x)


@elementwise(rows.LOGICAL_NOT, "bool")
def logical_not(x: ArrayLike, /) -> Array:
    """Return whether x is zero or False.

    >>> print(jnp.logical_not(0.0))
    True
    """
    return apply(rows.LOGICAL_NOT, x)


SQRT = ElementwiseFn("sqrt", "inexact", ops.SQRT)


@elementwise(SQRT)
def sqrt(x: ArrayLike, /) -> Array:
    """Return the square root; NaN for negative x.

    >>> print(jnp.sqrt(9.0))
    3.0
    """
    return apply(SQRT, x)


@elementwise(rows.RECIPROCAL)
def reciprocal(x: ArrayLike, /) -> Array:
    """Return the reciprocal 1 / x.

    >>> print(jnp.reciprocal(4.0))
    0.25
    """
    return apply(rows.RECIPROCAL, x)


EXP = ElementwiseFn("exp", "inexact", ops.EXP)


@elementwise(EXP)
def exp(x: ArrayLike, /) -> Array:
    """Return the exponential e**x.

    >>> print(jnp.exp(0.0))
    1.0
    """
    return apply(EXP, x)


@elementwise(rows.EXP2)
def exp2(x: ArrayLike, /) -> Array:
    """Return 2**x.

    >>> print(jnp.exp2(3.0))
    8.0
    """
    return apply(rows.EXP2, x)


EXPM1 = ElementwiseFn("expm1", "inexact", ops.EXPM1)


@elementwise(EXPM1)
def expm1(x: ArrayLike, /) -> Array:
    """Return exp(x) - 1, accurate for small x.

    >>> print(jnp.expm1(0.0))
    0.0
    """
    return apply(EXPM1, x)


LOG = ElementwiseFn("log", "inexact", ops.LOG)


@elementwise(LOG)
def log(x: ArrayLike, /) -> Array:
    """Return the natural logarithm.

    >>> print(jnp.log(1.0))
    0.0
    """
    return apply(LOG, x)


LOG1P = ElementwiseFn("log1p", "inexact", ops.LOG1P)


@elementwise(LOG1P)
def log1p(x: ArrayLike, /) -> Array:
    """Return log(1 + x), accurate for small x.

    >>> print(jnp.log1p(0.0))
    0.0
    """
    return apply(LOG1P, x)


@elementwise(rows.LOG2)
def log2(x: ArrayLike, /) -> Array:
    """Return the base-2 logarithm.

    >>> print(jnp.log2(8.0))
    3.0
    """
    return apply(rows.LOG2, x)


@elementwise(rows.LOG10)
def log10(x: ArrayLike, /) -> Array:
    """Return the base-10 logarithm.

    >>> print(jnp.log10(1.0))
    0.0
    """
    return apply(rows.LOG10, x)


SIN = ElementwiseFn("sin", "inexact", ops.SIN)


@elementwise(SIN)
def sin(x: ArrayLike, /) -> Array:
    """Return the sine of x, in radians.

    >>> print(jnp.sin(0.0))
    0.0
    """
    return apply(SIN, x)


COS = ElementwiseFn("cos", "inexact", ops.COS)


@elementwise(COS)
def cos(x: ArrayLike, /) -> Array:
    """Return the cosine of x, in radians.

    >>> print(jnp.cos(0.0))
    1.0
    """
    return apply(COS, x)


TAN = ElementwiseFn("tan", "inexact", ops.TAN)


@elementwise(TAN)
def tan(x: ArrayLike, /) -> Array:
    """Return the tangent of x, in radians.

    >>> print(jnp.tan(0.0))
    0.0
    """
    return apply(TAN, x)


CBRT = ElementwiseFn("cbrt", "inexact", ops.CBRT)


@elementwise(CBRT)
def cbrt(x: ArrayLike, /) -> Array:
    """Return the real cube root, which is negative for negative x.

    >>> print(jnp.cbrt(-8.0))
    -2.0
    """
    return apply(CBRT, x)


ARCTAN = ElementwiseFn("arctan", "inexact", ops.ATAN)


@elementwise(ARCTAN)
def arctan(x: ArrayLike, /) -> Array:
    """Return the inverse tangent in radians, from -pi/2 to pi/2.

    >>> print(jnp.arctan(0.0))
    0.0
    """
    return apply(ARCTAN, x)


@elementwise(rows.SINH)
def sinh(x: ArrayLike, /) -> Array:
    """Return the hyperbolic sine.

    >>> print(jnp.sinh(0.0))
    0.0
    """
    return apply(rows.SINH, x)


@elementwise(rows.COSH)
def cosh(x: ArrayLike, /) -> Array:
    """Return the hyperbolic cosine.

    >>> print(jnp.cosh(0.0))
    1.0
    """
    return apply(rows.COSH, x)


TANH = ElementwiseFn("tanh", "inexact", ops.TANH)


@elementwise(TANH)
def tanh(x: ArrayLike, /) -> Array:
    """Return the hyperbolic tangent.

    >>> print(jnp.tanh(0.0))
    0.0
    """
    return apply(TANH, x)


abs = absolute
atan = arctan
bitwise_not = invert
bitwise_invert = invert
