"""Elementwise functions under the names of ``jax.lax``. Operands promote as in fnx.numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fnx.numpy as jnp
from fnx.core import build, dtypes, ops
from fnx.core.array import array as core
from fnx.core.array import elementwise, operate, special, tree
from fnx.core.array.array import Array, public
from fnx.core.array.elementwise import Function
from fnx.core.array.operate import apply
from fnx.core.errors import ArgumentError
from fnx.core.uop import UOp


def _unary(name: str, row: Function, text: str, argument: str, value: str
           ) -> Callable[[Any], Array]:
    def f(x: Any, /) -> Array:
        return apply(row, x)
    _document(f, name, text, f"{name}({argument})", value)
    return f


def _binary(name: str, row: Function, text: str, arguments: str, value: str
            ) -> Callable[[Any, Any], Array]:
    def f(x: Any, y: Any, /) -> Array:
        return apply(row, x, y)
    _document(f, name, text, f"{name}({arguments})", value)
    return f


def _document(f: Any, name: str, text: str, call: str, value: str) -> None:
    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"""{text}

    >>> import fnx.lax as lax
    >>> print(lax.{call})
    {value}
    """


def _quotient(a: UOp, b: UOp) -> UOp:
    return build.div(a, b) if a.dtype.is_float else build.idiv(a, b)


def _logical_shift(a: UOp, b: UOp) -> UOp:
    """Zeros come in from above, whatever the sign."""
    words = build.bitcast(a, dtypes.uint32), build.bitcast(b, dtypes.uint32)
    return build.bitcast(build.elementwise(ops.SHR, *words), a.dtype)


# fmt: off
_e = elementwise
neg = _unary("neg", _e.NEGATIVE, "-x.", "1.0", "-1.0")
abs = _unary("abs", _e.ABSOLUTE, "Size without sign.", "-1.0", "1.0")
sign = _unary("sign", _e.SIGN, "-1, 0 or 1.", "-3.0", "-1.0")
floor = _unary("floor", _e.FLOOR, "The whole number below or at x.", "1.5", "1.0")
ceil = _unary("ceil", _e.CEIL, "The whole number above or at x.", "1.5", "2.0")
is_finite = _unary("is_finite", _e.ISFINITE, "Neither an infinity nor NaN.", "1.0", "True")
exp = _unary("exp", _e.EXP, "e to the power x.", "0.0", "1.0")
exp2 = _unary("exp2", _e.EXP2, "2 to the power x.", "1.0", "2.0")
expm1 = _unary("expm1", _e.EXPM1, "exp(x) - 1.", "0.0", "0.0")
log = _unary("log", _e.LOG, "Natural logarithm.", "1.0", "0.0")
log1p = _unary("log1p", _e.LOG1P, "log(1 + x).", "0.0", "0.0")
sin = _unary("sin", _e.SIN, "Sine.", "0.0", "0.0")
cos = _unary("cos", _e.COS, "Cosine.", "0.0", "1.0")
tan = _unary("tan", _e.TAN, "Tangent.", "0.0", "0.0")
sinh = _unary("sinh", _e.SINH, "Hyperbolic sine.", "0.0", "0.0")
cosh = _unary("cosh", _e.COSH, "Hyperbolic cosine.", "0.0", "1.0")
tanh = _unary("tanh", _e.TANH, "Hyperbolic tangent.", "0.0", "0.0")
logistic = _unary("logistic", _e.SIGMOID, "1 / (1 + exp(-x)).", "0.0", "0.5")
sqrt = _unary("sqrt", _e.SQRT, "Square root.", "4.0", "2.0")
rsqrt = _unary("rsqrt", _e.RSQRT, "1 / sqrt(x).", "4.0", "0.5")
square = _unary("square", _e.SQUARE, "x * x.", "3.0", "9.0")
reciprocal = _unary("reciprocal", _e.RECIPROCAL, "1 / x.", "4.0", "0.25")
erf = _unary("erf", special.ERF, "The error function.", "0.0", "0.0")
erfc = _unary("erfc", special.ERFC, "1 - erf(x).", "0.0", "1.0")
erf_inv = _unary("erf_inv", special.ERF_INV, "The inverse of erf.", "0.0", "0.0")
bitwise_not = _unary("bitwise_not", _e.INVERT, "Every bit flipped.", "5", "-6")

add = _binary("add", _e.ADD, "x + y.", "1, 2", "3")
sub = _binary("sub", _e.SUBTRACT, "x - y.", "1, 2", "-1")
mul = _binary("mul", _e.MULTIPLY, "x * y.", "2, 3", "6")
div = _binary("div", Function("div", "number", _quotient),
              "x / y; of integers, rounded to zero.", "-7, 2", "-3")
rem = _binary("rem", _e.FMOD, "The remainder, with the sign of x.", "-7, 2", "-1")
pow = _binary("pow", _e.POWER, "x to the power y.", "2.0, 3.0", "8.0")
max = _binary("max", _e.MAXIMUM, "The larger; NaN wins.", "1, 2", "2")
min = _binary("min", _e.MINIMUM, "The smaller; NaN wins.", "1, 2", "1")
eq = _binary("eq", _e.EQUAL, "x == y.", "1, 2", "False")
ne = _binary("ne", _e.NOT_EQUAL, "x != y.", "1, 2", "True")
lt = _binary("lt", _e.LESS, "x < y.", "1, 2", "True")
le = _binary("le", _e.LESS_EQUAL, "x <= y.", "1, 2", "True")
gt = _binary("gt", _e.GREATER, "x > y.", "1, 2", "False")
ge = _binary("ge", _e.GREATER_EQUAL, "x >= y.", "1, 2", "False")
bitwise_and = _binary("bitwise_and", _e.BITWISE_AND, "Bits that both have.", "6, 3", "2")
bitwise_or = _binary("bitwise_or", _e.BITWISE_OR, "Bits that either has.", "6, 3", "7")
bitwise_xor = _binary("bitwise_xor", _e.BITWISE_XOR, "Bits that one has.", "6, 3", "5")
shift_left = _binary("shift_left", _e.LEFT_SHIFT, "x shifted up by y bits.", "1, 4", "16")
shift_right_logical = _binary(
    "shift_right_logical", Function("shift_right_logical", "bits", _logical_shift),
    "x shifted down by y bits; zeros come in.", "-1, 28", "15")
shift_right_arithmetic = _binary(
    "shift_right_arithmetic", _e.RIGHT_SHIFT,
    "x shifted down by y bits; copies of the sign come in.", "-8, 1", "-4")
# fmt: on


@public
def round(x: Any, rounding_method: Any = 1) -> Array:
    """The nearest whole number; of two, the even one.

    >>> import fnx.lax as lax
    >>> print(lax.round(2.5))
    2.0
    """
    return jnp.rint(x)


@public
def integer_pow(x: Any, y: int) -> Array:
    """x to a known whole power, by multiplication.

    >>> import fnx.lax as lax
    >>> print(lax.integer_pow(2.0, 3))
    8.0
    """
    return jnp.power(x, int(y))


@public
def select(pred: Any, on_true: Any, on_false: Any) -> Array:
    """on_true where pred holds, else on_false.

    >>> import fnx.lax as lax
    >>> print(lax.select(True, 1.0, 2.0))
    1.0
    """
    return jnp.where(pred, on_true, on_false)


@public
def select_n(which: Any, *cases: Any) -> Array:
    """The case that a bool or an integer picks, elementwise.

    >>> import fnx.lax as lax
    >>> print(lax.select_n(True, 1.0, 2.0))
    2.0
    """
    if not cases:
        raise ArgumentError("select_n: expected at least one case, got none")
    x = core.asarray(which)
    out = core.asarray(cases[0])
    for i, case in enumerate(cases[1:], 1):
        out = jnp.where(x if x._dtype.is_bool else x >= i, case, out)
    return out


@public
def clamp(min: Any, x: Any, max: Any) -> Array:
    """x kept between min and max.

    >>> import fnx.lax as lax
    >>> print(lax.clamp(0, 5, 3))
    3
    """
    return jnp.minimum(jnp.maximum(min, x), max)


@public
def convert_element_type(operand: Any, new_dtype: Any) -> Array:
    """The values as another dtype.

    >>> import fnx.lax as lax
    >>> print(lax.convert_element_type(1.5, int))
    1
    """
    return operate.astype(operand, new_dtype)


@public
def bitcast_convert_type(operand: Any, new_dtype: Any) -> Array:
    """The bits as another dtype of equal width.

    >>> import fnx.lax as lax
    >>> print(lax.bitcast_convert_type(1.0, "uint32"))
    1065353216
    """
    return operate.bitcast(operand, new_dtype)


@public
def stop_gradient(x: Any) -> Any:
    """x (a pytree), which derivatives take for a constant.

    >>> import fnx.lax as lax
    >>> print(lax.stop_gradient(1.0))
    1.0
    """
    return tree.map(_stopped, x)


def _stopped(x: Any) -> Any:
    array = core.asarray(x)
    return Array(build.stop_gradient(array._node), array.weak)
