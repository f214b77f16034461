"""Elementwise functions of ``fnx.numpy``: a row each, over core/array/elementwise.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.core import build, dtypes
from fnx.core.array import elementwise
from fnx.core.array.array import Array, asarray, public
from fnx.core.array.elementwise import Function
from fnx.core.array.operate import apply, static_power
from fnx.core.array.promotion import as_node, operand, promoted, same_shape
from fnx.core.errors import ArgumentError

Unary = Callable[[Any], Array]
Binary = Callable[[Any, Any], Array]


def _document(f: Any, row: Function, text: str, call: str, value: str) -> None:
    f.__name__ = f.__qualname__ = row.name
    f.__doc__ = f"""{text}

    >>> import fnx.numpy as jnp
    >>> {call}
    {value}
    """


def _unary(row: Function, text: str, argument: str, value: str) -> Unary:
    def f(x: Any, /) -> Array:
        return apply(row, x)
    _document(f, row, text, f"print(jnp.{row.name}({argument}))", value)
    return f


def _binary(row: Function, text: str, arguments: str, value: str) -> Binary:
    def f(x: Any, y: Any, /) -> Array:
        return apply(row, x, y)
    _document(f, row, text, f"print(jnp.{row.name}({arguments}))", value)
    return f


# fmt: off
_e = elementwise
negative = _unary(_e.NEGATIVE, "-x.", "2.0", "-2.0")
positive = _unary(_e.POSITIVE, "x itself.", "2.0", "2.0")
absolute = _unary(_e.ABSOLUTE, "Size without sign; its derivative at 0 is 0.", "-2.0", "2.0")
sign = _unary(_e.SIGN, "-1, 0 or 1; NaN of NaN.", "-2.0", "-1.0")
square = _unary(_e.SQUARE, "x * x.", "-3", "9")
floor = _unary(_e.FLOOR, "The whole number below or at x.", "-1.5", "-2.0")
ceil = _unary(_e.CEIL, "The whole number above or at x.", "-1.5", "-1.0")
trunc = _unary(_e.TRUNC, "The whole number towards zero.", "-1.5", "-1.0")
rint = _unary(_e.RINT, "The nearest whole number; of two, the even one.", "2.5", "2.0")
isnan = _unary(_e.ISNAN, "Whether x is not a number.", "float('nan')", "True")
isinf = _unary(_e.ISINF, "Whether x is an infinity.", "1.0", "False")
isfinite = _unary(_e.ISFINITE, "Whether x is neither an infinity nor NaN.", "1.0", "True")
invert = _unary(_e.INVERT, "Every bit flipped; of a bool, not.", "5", "-6")
logical_not = _unary(_e.LOGICAL_NOT, "Whether x is zero or False.", "0.0", "True")

sqrt = _unary(_e.SQRT, "Square root; NaN below zero.", "9.0", "3.0")
reciprocal = _unary(_e.RECIPROCAL, "1 / x.", "4.0", "0.25")
exp = _unary(_e.EXP, "e to the power x.", "0.0", "1.0")
exp2 = _unary(_e.EXP2, "2 to the power x.", "3.0", "8.0")
expm1 = _unary(_e.EXPM1, "exp(x) - 1, exact for small x.", "0.0", "0.0")
log = _unary(_e.LOG, "Natural logarithm.", "1.0", "0.0")
log1p = _unary(_e.LOG1P, "log(1 + x), exact for small x.", "0.0", "0.0")
log2 = _unary(_e.LOG2, "Logarithm of base 2.", "8.0", "3.0")
log10 = _unary(_e.LOG10, "Logarithm of base 10.", "1.0", "0.0")
sin = _unary(_e.SIN, "Sine.", "0.0", "0.0")
cos = _unary(_e.COS, "Cosine.", "0.0", "1.0")
tan = _unary(_e.TAN, "Tangent.", "0.0", "0.0")
sinh = _unary(_e.SINH, "Hyperbolic sine.", "0.0", "0.0")
cosh = _unary(_e.COSH, "Hyperbolic cosine.", "0.0", "1.0")
tanh = _unary(_e.TANH, "Hyperbolic tangent.", "0.0", "0.0")

add = _binary(_e.ADD, "x + y; on bools, or.", "1, 2", "3")
subtract = _binary(_e.SUBTRACT, "x - y.", "1, 2", "-1")
multiply = _binary(_e.MULTIPLY, "x * y; on bools, and.", "2, 3", "6")
divide = _binary(_e.DIVIDE, "x / y, a float.", "1, 2", "0.5")
floor_divide = _binary(_e.FLOOR_DIVIDE, "x / y rounded down.", "-7, 2", "-4")
remainder = _binary(_e.REMAINDER, "x - y * floor(x / y): the sign is that of y.", "-7, 2", "1")
fmod = _binary(_e.FMOD, "The remainder that has the sign of x.", "-7, 2", "-1")
maximum = _binary(_e.MAXIMUM, "The larger; NaN wins. Ties share the derivative.", "1, 2", "2")
minimum = _binary(_e.MINIMUM, "The smaller; NaN wins. Ties share the derivative.", "1, 2", "1")
logaddexp = _binary(_e.LOGADDEXP, "log(exp(x) + exp(y)).", "0.0, float('-inf')", "0.0")
logaddexp2 = _binary(_e.LOGADDEXP2, "log2(2**x + 2**y).", "0.0, 0.0", "1.0")
hypot = _binary(_e.HYPOT, "sqrt(x**2 + y**2), without overflow.", "3.0, 4.0", "5.0")
less = _binary(_e.LESS, "x < y.", "1, 2", "True")
less_equal = _binary(_e.LESS_EQUAL, "x <= y.", "2, 2", "True")
greater = _binary(_e.GREATER, "x > y.", "1, 2", "False")
greater_equal = _binary(_e.GREATER_EQUAL, "x >= y.", "2, 2", "True")
equal = _binary(_e.EQUAL, "x == y.", "1, 1.0", "True")
not_equal = _binary(_e.NOT_EQUAL, "x != y.", "1, 2", "True")
bitwise_and = _binary(_e.BITWISE_AND, "Bits that both have.", "6, 3", "2")
bitwise_or = _binary(_e.BITWISE_OR, "Bits that either has.", "6, 3", "7")
bitwise_xor = _binary(_e.BITWISE_XOR, "Bits that one has.", "6, 3", "5")
left_shift = _binary(_e.LEFT_SHIFT, "x * 2**y; 0 past the width.", "1, 4", "16")
right_shift = _binary(_e.RIGHT_SHIFT, "x shifted down by y bits, keeping its sign.", "-8, 1", "-4")
logical_and = _binary(_e.LOGICAL_AND, "Whether both are true.", "True, 0", "False")
logical_or = _binary(_e.LOGICAL_OR, "Whether either is true.", "True, 0", "True")
logical_xor = _binary(_e.LOGICAL_XOR, "Whether one is true.", "True, 1", "False")

abs = absolute
true_divide = divide
mod = remainder
fabs = absolute
bitwise_not = invert
bitwise_invert = invert
bitwise_left_shift = left_shift
bitwise_right_shift = right_shift
# fmt: on


def power(x: Any, y: Any, /) -> Array:
    """x to the power y; a whole power that is a Python int multiplies.

    >>> import fnx.numpy as jnp
    >>> print(jnp.power(3.0, 2))
    9.0
    """
    return _whole_power(x, y) if type(y) in (int, float) else apply(elementwise.POWER, x, y)


@public
def _whole_power(x: Any, y: float) -> Array:
    return static_power(asarray(x), y)


pow = power
float_power = power


@public
def where(condition: Any, x: Any = None, y: Any = None, /) -> Array:
    """x where the condition holds, else y; the branch not taken has no derivative.

    >>> import fnx.numpy as jnp
    >>> jnp.where(jnp.arange(3) > 0, jnp.ones(3), 0.0)
    Array([0., 1., 1.], dtype=float32)
    """
    if x is None or y is None:
        raise ArgumentError("where: expected a condition and two values, got a condition alone",
                            hint="the number of True elements would be a shape; use numpy.where")
    (a, b), weak = promoted("any", "where", (x, y), broadcast=False)
    test = as_node(operand(condition), dtypes.bool_)
    return Array(build.where(*same_shape("where", [test, a, b])), weak)


@public
def clip(arr: Any, /, min: Any = None, max: Any = None) -> Array:
    """``arr`` kept between ``min`` and ``max``, where they are given.

    >>> import fnx.numpy as jnp
    >>> jnp.clip(jnp.arange(4), 1, 2)
    Array([1, 1, 2, 2], dtype=int32)
    """
    x = asarray(arr)
    if min is not None:
        x = maximum(min, x)
    return x if max is None else minimum(max, x)


@public
def round(a: Any, decimals: int = 0) -> Array:
    """To the nearest multiple of 10**-decimals; of two, the even one.

    >>> import fnx.numpy as jnp
    >>> print(jnp.round(2.345, 1))
    2.3
    """
    x = asarray(a)
    if x._dtype.is_integer and decimals >= 0:
        return x
    if decimals == 0:
        return rint(x)
    scale = float(10 ** decimals) if decimals >= 0 else 1.0 / 10 ** -decimals
    rounded = rint(x * scale) / scale
    return rounded if x._dtype.is_float else rounded.astype(x.dtype)


@public
def nan_to_num(x: Any, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Array:
    """x with NaN and infinities replaced; infinities by default by the largest finite numbers.

    >>> import fnx.numpy as jnp
    >>> print(jnp.nan_to_num(float("nan")))
    0.0
    """
    array = asarray(x)
    if not array._dtype.is_float:
        return array
    info = np.finfo(array.dtype)
    top = float(info.max) if posinf is None else posinf
    bottom = float(info.min) if neginf is None else neginf
    array = where(isnan(array), nan, array)
    array = where(equal(array, math.inf), top, array)
    return where(equal(array, -math.inf), bottom, array)


@public
def isclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8,
            equal_nan: bool = False) -> Array:
    """Whether |a - b| <= atol + rtol * |b|.

    >>> import fnx.numpy as jnp
    >>> print(jnp.isclose(1.0, 1.000001))
    True
    """
    a, b = asarray(a), asarray(b)
    near = less_equal(absolute(subtract(a, b)), add(atol, multiply(rtol, absolute(b))))
    both = logical_and(isfinite(a), isfinite(b))
    same = where(both, near, equal(a, b))
    return logical_or(same, logical_and(isnan(a), isnan(b))) if equal_nan else same
