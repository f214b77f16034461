# mypy: disable-error-code="empty-body"
"""Inverse functions, parts and bits of floats, and integer functions of ``fnx.numpy``.

Some are signatures that ``universal`` completes, as in fnx/numpy/ufuncs.py.
"""

from __future__ import annotations

import math

from fnx.core.array import axes
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import apply, elementwise
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import domain_node, promote_arrays
from fnx.core.formulas import elementwise_math as rows
from fnx.core.formulas.elementwise import EQUAL, NOT_EQUAL, ElementwiseFn
from fnx.core.ir import build, dtypes
from fnx.core.ir.expr import Expr
from fnx.core.support.errors import DTypeError
from fnx.core.support.process import lazy_import
from fnx.numpy.base import (
    abs,
    arctan2,
    equal,
    floor_divide,
    isnan,
    multiply,
    not_equal,
    remainder,
    trunc,
    where,
)
from fnx.numpy.ufuncs import universal

while_loop = lazy_import("fnx.transforms.control_flow.while_loop")

__all__ = [
    "acos", "acosh", "angle", "arccos", "arccosh", "arcsin", "arcsinh", "arctanh", "asin", "asinh",
    "atanh", "bitwise_count", "conj", "conjugate", "copysign", "deg2rad", "degrees", "divmod",
    "fmax", "fmin", "frexp", "gcd", "heaviside", "imag", "iscomplex", "isneginf", "isposinf",
    "isreal", "lcm", "ldexp", "modf", "nextafter", "rad2deg", "radians", "real", "signbit", "sinc",
    "spacing", "unwrap",
]


@universal(rows.ARCSIN, "1.0", "1.5707964")
def arcsin(x: ArrayLike, /) -> Array:
    """Return the inverse sine, from -pi / 2 to pi / 2; NaN outside of -1..1."""


@universal(rows.ARCCOS, "1.0", "0.0")
def arccos(x: ArrayLike, /) -> Array:
    """Return the inverse cosine, from 0 to pi; NaN outside of -1..1."""


@universal(rows.ARCSINH, "0.0", "0.0")
def arcsinh(x: ArrayLike, /) -> Array:
    """Return the inverse hyperbolic sine."""


@universal(rows.ARCCOSH, "1.0", "0.0")
def arccosh(x: ArrayLike, /) -> Array:
    """Return the non-negative inverse hyperbolic cosine; NaN below 1."""


@universal(rows.ARCTANH, "0.0", "0.0")
def arctanh(x: ArrayLike, /) -> Array:
    """Return the inverse hyperbolic tangent; infinite at -1 and 1, NaN beyond."""


asin, acos, asinh, acosh, atanh = arcsin, arccos, arcsinh, arccosh, arctanh


@universal(rows.DEG2RAD, "180.0", "3.1415927")
def deg2rad(x: ArrayLike, /) -> Array:
    """Convert degrees to radians."""


@universal(rows.RAD2DEG, "0.0", "0.0")
def rad2deg(x: ArrayLike, /) -> Array:
    """Convert radians to degrees."""


radians, degrees = deg2rad, rad2deg


@universal(rows.SIGNBIT, "-0.0", "True", "bool")
def signbit(x: ArrayLike, /) -> Array:
    """Return whether the sign bit is set, also for -0.0 and NaN."""


@elementwise(rows.COPYSIGN)
def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return x1 with the sign of x2.

    >>> print(jnp.copysign(2.0, -0.0))
    -2.0
    """
    return apply(rows.COPYSIGN, x1, x2)


@universal(rows.NEXTAFTER, "1.0, 2.0", "1.0000001")
def nextafter(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return the next representable float after x in the direction of y."""


@elementwise(rows.SPACING)
def spacing(x: ArrayLike, /) -> Array:
    """Return the distance from x to the next float away from zero, with the sign of x.

    >>> print(jnp.spacing(1.0))
    1.1920929e-07
    """
    return Array(apply(rows.SPACING, x)._node)


@universal(rows.SINC, "0.0", "1.0")
def sinc(x: ArrayLike, /) -> Array:
    """Return the normalized sinc function sin(pi x) / (pi x), which is 1 at 0."""


@elementwise(rows.FMAX)
def fmax(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Return the elementwise maximum, ignoring NaN where the other operand is a number.

    >>> print(jnp.fmax(1.0, float("nan")))
    1.0
    """
    return apply(rows.FMAX, x1, x2)


@elementwise(rows.FMIN)
def fmin(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Return the elementwise minimum, ignoring NaN where the other operand is a number.

    >>> print(jnp.fmin(1.0, float("nan")))
    1.0
    """
    return apply(rows.FMIN, x1, x2)


@elementwise(rows.HEAVISIDE)
def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return the step function: 0 where x1 < 0, x2 where x1 == 0, and 1 where x1 > 0.

    >>> print(jnp.heaviside(0.0, 0.5))
    0.5
    """
    out = apply(rows.HEAVISIDE, x1, x2)
    return Array(out._node, out.weak and asarray(x1).weak)


@elementwise(rows.BITWISE_COUNT, "int32")
def bitwise_count(x: ArrayLike, /) -> Array:
    """Count the set bits in the absolute value of x.

    >>> print(jnp.bitwise_count(7))
    3
    """
    count = apply(rows.BITWISE_COUNT, x)
    return count.astype("uint8") if any(t.name == "uint8" for t in dtypes.USER) else count


_docstr = DocTemplate(
    x="an Array or array-like of any shape.", val="an Array or array-like of any shape.",
    returns="An Array of the shape of x.")


@_docstr()
def conjugate(x: ArrayLike, /) -> Array:
    """Return the complex conjugate; a real number is its own.

    >>> print(jnp.conjugate(1 + 2j))
    (1-2j)
    """
    return apply(rows.CONJUGATE, x)


conj = conjugate


@_docstr()
def real(val: ArrayLike, /) -> Array:
    """Return the real part; of real numbers, ``val`` itself.

    >>> print(jnp.real(1 + 2j))
    1.0
    """
    return apply(rows.REAL, val)


@_docstr()
def imag(val: ArrayLike, /) -> Array:
    """Return the imaginary part; of real numbers, zero.

    >>> print(jnp.imag(1 + 2j))
    2.0
    """
    return apply(rows.IMAG, val)


@_docstr.family("A bool Array of the shape of x.")
def _compare_imag(fn: ElementwiseFn, x: ArrayLike) -> Array:
    return apply(fn, imag(x), 0)


isreal = _compare_imag(
    EQUAL, "isreal", "Return whether the imaginary part is 0.", "print(jnp.isreal(2.0))", "True")
iscomplex = _compare_imag(
    NOT_EQUAL, "iscomplex", "Return whether the imaginary part is not 0.",
    "print(jnp.iscomplex(2j))", "True")


@_docstr(z="an Array or array-like of any shape.",
         deg="whether the result is in degrees instead of radians.",
         returns="An Array of the shape of z, of a float dtype.")
def angle(z: ArrayLike, deg: bool = False) -> Array:
    """Return the angle in the complex plane, from -pi to pi; of real numbers 0 or pi.

    >>> print(jnp.angle(-1.0), jnp.angle(2j))
    3.1415927 1.5707964
    """
    x = Array(domain_node("float", z))
    if x.ndim == 0 and not x._dtype.is_complex:
        x = x.astype(float)  # as in JAX, a scalar gives the default dtype
    radians = arctan2(imag(x), real(x))
    return rad2deg(radians) if deg else radians


@_docstr.family("A bool Array of the shape of x.", out="unsupported; must be None.")
def _is_infinity(fn: ElementwiseFn, x: ArrayLike, /, out: None = None) -> Array:
    return apply(fn, x)


isneginf = _is_infinity(rows.ISNEGINF, "isneginf", "Return whether x is negative infinity.",
                        'print(jnp.isneginf(-float("inf")))', "True")
isposinf = _is_infinity(rows.ISPOSINF, "isposinf", "Return whether x is positive infinity.",
                        'print(jnp.isposinf(float("inf")))', "True")


@_docstr(out="unsupported; must be None.",
         returns="(fractional parts, integral parts), Arrays of the shape of x.")
def modf(x: ArrayLike, /, out: None = None) -> tuple[Array, Array]:
    """Return the fractional and integral parts of x, both with the sign of x.

    >>> print(*jnp.modf(-2.5))
    -0.5 -2.0
    """
    array = asarray(x)
    return apply(rows.MODF, x), Array(trunc(Array(domain_node("inexact", x)))._node, array.weak)


@_docstr(returns="(m, k), Arrays of the shape of x: mantissas (floats) and exponents (int32).")
def frexp(x: ArrayLike, /) -> tuple[Array, Array]:
    """Split x into mantissa and exponent: x = m * 2**k with 0.5 <= abs(m) < 1.

    >>> print(*jnp.frexp(6.0))
    0.75 3
    """
    node = Expr(domain_node("inexact", x))
    return Array(rows.mantissa(node).node), Array(rows.exponent(node).node)


_binary_docstr = DocTemplate(
    x1="Arrays, NumPy data or Python numbers of any shape.",
    x2="Arrays, NumPy data or Python numbers that broadcast with x1.",
    returns="An Array of the common broadcast shape.",
    raises=("ShapeError: the shapes do not broadcast.",
            "DTypeError: an operand that must be an integer is a float."))


@_binary_docstr()
def ldexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return x1 * 2**x2, rounded once.

    >>> print(jnp.ldexp(0.75, 3))
    6.0
    """
    k = asarray(x2)
    x = Array(domain_node("inexact", x1))
    if k._dtype.is_inexact or x._dtype.is_complex:
        raise DTypeError(f"expected real numbers and integer exponents, got {x._dtype} and "
                         f"{k._dtype}", hint="multiply by 2**x2")
    if k._dtype.bits >= 32:  # clipped so that it fits int32
        k = k.clip(None if k._dtype.kind == "uint" else -_MAX_EXPONENT, _MAX_EXPONENT)
    shape = axes.broadcast_shapes(x.shape, k.shape)
    return Array(rows.ldexp(Expr(build.expand(x._node, shape)),
                            Expr(build.expand(build.cast(k._node, dtypes.int32), shape))).node)


_MAX_EXPONENT = 1 << 20


@_binary_docstr(returns="(quotients, remainders), Arrays of the common broadcast shape.")
def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Array, Array]:
    """Return the quotient rounded down, and the remainder, which has the sign of x2.

    >>> print(*jnp.divmod(-7, 2))
    -4 1
    """
    return floor_divide(x1, x2), remainder(x1, x2)


@_binary_docstr()
def gcd(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Return the greatest common divisor; gcd(0, 0) is 0.

    Source: Euclid's algorithm.

    >>> print(jnp.gcd(12, 18))
    6
    """
    a, b = map(abs, promote_arrays("gcd", x1, x2, domain="whole", broadcast=True))

    def step(pair: tuple[Array, Array]) -> tuple[Array, Array]:
        x, y = pair
        done = equal(y, 0)
        return where(done, x, y), where(done, y, remainder(x, where(done, 1, y)))

    result: tuple[Array, Array] = while_loop.while_loop(
        lambda pair: not_equal(pair[1], 0).any(), step, (a, b))
    return abs(result[0])  # the minimum of a signed dtype has no absolute value


@_binary_docstr()
def lcm(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Return the least common multiple; 0 if either operand is 0.

    >>> print(jnp.lcm(4, 6))
    12
    """
    a, b = map(abs, promote_arrays("lcm", x1, x2, domain="whole", broadcast=True))
    divisor = gcd(a, b)
    return where(equal(divisor, 0), divisor, multiply(a, floor_divide(
        b, where(equal(divisor, 0), 1, divisor))))


@public_api
def unwrap(p: ArrayLike, discont: ArrayLike | None = None, axis: int = -1,
           period: ArrayLike = 2 * math.pi) -> Array:
    """Unwrap angles: remove jumps by adding multiples of the period.

    Args:
        p: angles of any shape.
        discont: the largest jump that is left as it is; by default half of the period.
        axis: the axis.
        period: the size of a full turn.

    Returns:
        An Array of the shape of p, of a float dtype.

    Raises:
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> print(jnp.unwrap(jnp.asarray([0.0, 3.0, -3.0])))
    [0.        3.        3.2831855]
    """
    x, cycle = promote_arrays("unwrap", p, period, domain="number")
    threshold = cycle / 2 if discont is None else asarray(discont)
    x = x.swapaxes(axis, -1)
    if not x.shape[-1]:
        return x.swapaxes(axis, -1)
    jump = x[..., 1:] - x[..., :-1]
    half_cycle = cycle / 2 if not x._dtype.is_integer else cycle // 2
    wrapped = remainder(jump + half_cycle, cycle) - half_cycle
    if not x._dtype.is_integer:
        wrapped = where(equal(wrapped, -half_cycle) & (jump > 0), half_cycle, wrapped)
    correction = where((abs(jump) < threshold) | isnan(jump), 0, wrapped - jump).cumsum(-1)
    out = x + _prepend_zero(correction)
    return out.swapaxes(axis, -1)


def _prepend_zero(x: Array) -> Array:
    """Prepend a 0 to x along the last axis."""
    return Array(build.pad(x._node, [(0, 0)] * (x.ndim - 1) + [(1, 0)]), x.weak)
