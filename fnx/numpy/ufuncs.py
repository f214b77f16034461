# mypy: disable-error-code="empty-body"
"""Universal functions: the function of Expr, the signature, one sentence and an example of each.

``universal`` completes a signature: it supplies the body, which is the same for all functions of
one operand and for all of two, and the sections of the docstring that follow from the function's
domain (core/formulas/elementwise.py). The signatures are written out so that type checkers and
editors see them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, cast

from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import apply, elementwise, static_power
from fnx.core.formulas import elementwise as rows
from fnx.core.formulas.elementwise import ElementwiseFn
from fnx.core.support.process import lazy_import

__all__ = [
    "abs", "absolute", "add", "arctan", "arctan2", "atan", "atan2", "bitwise_and", "bitwise_invert",
    "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "cbrt",
    "ceil", "cos", "cosh", "divide", "equal", "exp", "exp2", "expm1", "fabs", "float_power",
    "floor", "floor_divide", "fmod", "greater", "greater_equal", "hypot", "invert", "isfinite",
    "isinf", "isnan", "left_shift", "less", "less_equal", "log", "log1p", "log2", "log10",
    "logaddexp", "logaddexp2", "logical_and", "logical_not", "logical_or", "logical_xor", "maximum",
    "minimum", "mod", "multiply", "negative", "not_equal", "positive", "pow", "power", "reciprocal",
    "remainder", "right_shift", "rint", "sign", "sin", "sinh", "sqrt", "square", "subtract", "tan",
    "tanh", "true_divide", "trunc",
]

ufunc_methods = lazy_import("fnx.numpy.ufunc_methods")

P = ParamSpec("P")
_METHODS = ("accumulate", "at", "outer", "reduce", "reduceat")


class UniversalFunction(Protocol[P]):
    """An elementwise function with the attributes of ``fnx.numpy.ufunc``."""

    nin: int
    nout: int
    nargs: int
    identity: Any
    accumulate: Callable[..., Array]
    at: Callable[..., Array]
    outer: Callable[..., Array]
    reduce: Callable[..., Array]
    reduceat: Callable[..., Array]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Array: ...


def with_ufunc_methods(identity: Any = None, nin: int = 2
                       ) -> Callable[[Callable[P, Array]], UniversalFunction[P]]:
    """Decorate a function of ``nin`` operands with ufunc methods, which load on first call."""
    def decorate(f: Callable[P, Array]) -> UniversalFunction[P]:
        ufunc = cast(UniversalFunction[P], f)
        ufunc.nin, ufunc.nout, ufunc.nargs, ufunc.identity = nin, 1, nin, identity
        for name in _METHODS:
            setattr(f, name, _lazy_method(f, identity, nin, name))
        return ufunc
    return decorate


def _lazy_method(f: Callable[..., Any], identity: Any, nin: int, name: str) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        return ufunc_methods.method(f, identity, nin, name)(*args, **options)

    call.__name__ = name
    return call


def universal(fn: ElementwiseFn, operands: str, answer: str, result: str = ""
              ) -> Callable[[Callable[P, Array]], Callable[P, Array]]:
    """Decorate the signature and summary of a public elementwise function of x, or of x and y.

    Args:
        operands, answer: the docstring's example: the operands, and the result as printed.
        result: the result dtype in words, if it differs from that of the operands.
    """
    def unary(x: ArrayLike, /) -> Array:
        return apply(fn, x)

    def binary(x: ArrayLike, y: ArrayLike, /) -> Array:
        return apply(fn, x, y)

    def decorate(signature: Callable[P, Array]) -> Callable[P, Array]:
        name = signature.__name__
        body = cast(Callable[P, Array], unary if signature.__code__.co_argcount == 1 else binary)
        body.__name__ = body.__qualname__ = name
        body.__module__ = signature.__module__
        body.__doc__ = f"{signature.__doc__}\n\n    >>> print(jnp.{name}({operands}))\n" \
            f"    {answer}\n    "
        return elementwise(fn, result)(body)
    return decorate


@with_ufunc_methods(0)
@universal(rows.ADD, "1, 2", "3")
def add(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Add elementwise: x + y. For bools, logical or."""


@with_ufunc_methods()
@universal(rows.SUBTRACT, "1, 2", "-1")
def subtract(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Subtract elementwise: x - y."""


@with_ufunc_methods(1)
@universal(rows.MULTIPLY, "2, 3", "6")
def multiply(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Multiply elementwise: x * y. For bools, logical and."""


@universal(rows.DIVIDE, "1, 2", "0.5")
def divide(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Divide elementwise: x / y. The result is a float."""


@universal(rows.FLOOR_DIVIDE, "-7, 2", "-4")
def floor_divide(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return the quotient x / y, rounded down."""


@universal(rows.REMAINDER, "-7, 2", "1")
def remainder(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return the remainder x - y * floor(x / y), which has the sign of y."""


@universal(rows.FMOD, "-7, 2", "-1")
def fmod(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return the remainder of truncated division, which has the sign of x."""


@with_ufunc_methods()
@universal(rows.MAXIMUM, "1, 2", "2")
def maximum(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return the elementwise maximum. NaN propagates; ties split the derivative equally."""


@with_ufunc_methods()
@universal(rows.MINIMUM, "1, 2", "1")
def minimum(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return the elementwise minimum. NaN propagates; ties split the derivative equally."""


@with_ufunc_methods(-float('inf'))
@universal(rows.LOGADDEXP, "0.0, float('-inf')", "0.0")
def logaddexp(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return log(exp(x) + exp(y))."""


@with_ufunc_methods(-float('inf'))
@universal(rows.LOGADDEXP2, "0.0, 0.0", "1.0")
def logaddexp2(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return log2(2**x + 2**y)."""


@elementwise(rows.ARCTAN2)
def arctan2(y: ArrayLike, x: ArrayLike, /) -> Array:
    """Return the angle of the point (x, y) in radians, from -pi to pi.

    >>> print(jnp.arctan2(1.0, 0.0))
    1.5707964
    """
    return apply(rows.ARCTAN2, y, x)


@universal(rows.HYPOT, "3.0, 4.0", "5.0")
def hypot(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return sqrt(x**2 + y**2), without intermediate overflow."""


@universal(rows.LESS, "1, 2", "True", "bool")
def less(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return x < y elementwise."""


@universal(rows.LESS_EQUAL, "2, 2", "True", "bool")
def less_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return x <= y elementwise."""


@universal(rows.GREATER, "1, 2", "False", "bool")
def greater(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return x > y elementwise."""


@universal(rows.GREATER_EQUAL, "2, 2", "True", "bool")
def greater_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return x >= y elementwise."""


@universal(rows.EQUAL, "1, 1.0", "True", "bool")
def equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return x == y elementwise."""


@universal(rows.NOT_EQUAL, "1, 2", "True", "bool")
def not_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return x != y elementwise."""


@with_ufunc_methods(-1)
@universal(rows.BITWISE_AND, "6, 3", "2")
def bitwise_and(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the bitwise AND."""


@with_ufunc_methods(0)
@universal(rows.BITWISE_OR, "6, 3", "7")
def bitwise_or(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the bitwise OR."""


@with_ufunc_methods(0)
@universal(rows.BITWISE_XOR, "6, 3", "5")
def bitwise_xor(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the bitwise XOR."""


@universal(rows.LEFT_SHIFT, "1, 4", "16")
def left_shift(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Shift x left by y bits: x * 2**y, and 0 if y is at least the bit width."""


@universal(rows.RIGHT_SHIFT, "-8, 1", "-4")
def right_shift(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Shift x right by y bits, arithmetically: the sign is kept."""


@with_ufunc_methods(True)
@universal(rows.LOGICAL_AND, "True, 0", "False", "bool")
def logical_and(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the logical AND of the truth values."""


@with_ufunc_methods(False)
@universal(rows.LOGICAL_OR, "True, 0", "True", "bool")
def logical_or(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the logical OR of the truth values."""


@with_ufunc_methods(False)
@universal(rows.LOGICAL_XOR, "True, 1", "False", "bool")
def logical_xor(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the logical XOR of the truth values."""


@elementwise(rows.POWER)
def power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Raise x to the power y. An integral exponent given as a Python number multiplies repeatedly.

    >>> print(jnp.power(3.0, 2))
    9.0
    """
    is_python = type(y) is int or type(y) is float
    return static_power(asarray(x), y) if is_python else apply(rows.POWER, x, y)


@universal(rows.FLOAT_POWER, "2, -1", "0.5")
def float_power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Raise x to the power y, computed in floating point."""


atan2 = arctan2
true_divide = divide
mod = remainder
bitwise_left_shift = left_shift
bitwise_right_shift = right_shift
pow = power


@with_ufunc_methods(nin=1)
@universal(rows.NEGATIVE, "2.0", "-2.0")
def negative(x: ArrayLike, /) -> Array:
    """Negate elementwise: -x."""


@universal(rows.POSITIVE, "2.0", "2.0")
def positive(x: ArrayLike, /) -> Array:
    """Return x unchanged: +x."""


@universal(rows.ABSOLUTE, "-2.0", "2.0")
def absolute(x: ArrayLike, /) -> Array:
    """Return the absolute value; its derivative at 0 is 0."""


@universal(rows.FABS, "-2", "2.0")
def fabs(x: ArrayLike, /) -> Array:
    """Return the absolute value, as a float."""


@universal(rows.SIGN, "-2.0", "-1.0")
def sign(x: ArrayLike, /) -> Array:
    """Return the sign: -1, 0 or 1; NaN for NaN."""


@universal(rows.SQUARE, "-3", "9")
def square(x: ArrayLike, /) -> Array:
    """Return the square x * x."""


@universal(rows.FLOOR, "-1.5", "-2.0")
def floor(x: ArrayLike, /) -> Array:
    """Round down to the next integer."""


@universal(rows.CEIL, "-1.5", "-1.0")
def ceil(x: ArrayLike, /) -> Array:
    """Round up to the next integer."""


@universal(rows.TRUNC, "-1.5", "-1.0")
def trunc(x: ArrayLike, /) -> Array:
    """Round towards zero to an integer."""


@universal(rows.RINT, "2.5", "2.0")
def rint(x: ArrayLike, /) -> Array:
    """Round to the nearest integer; ties round to even."""


@universal(rows.ISNAN, "float('nan')", "True", "bool")
def isnan(x: ArrayLike, /) -> Array:
    """Return whether x is NaN."""


@universal(rows.ISINF, "1.0", "False", "bool")
def isinf(x: ArrayLike, /) -> Array:
    """Return whether x is positive or negative infinity."""


@universal(rows.ISFINITE, "1.0", "True", "bool")
def isfinite(x: ArrayLike, /) -> Array:
    """Return whether x is finite: neither infinity nor NaN."""


@universal(rows.INVERT, "5", "-6")
def invert(x: ArrayLike, /) -> Array:
    """Invert every bit; for bools, logical not."""


@universal(rows.LOGICAL_NOT, "0.0", "True", "bool")
def logical_not(x: ArrayLike, /) -> Array:
    """Return whether x is zero or False."""


@universal(rows.SQRT, "9.0", "3.0")
def sqrt(x: ArrayLike, /) -> Array:
    """Return the square root; NaN for negative x."""


@universal(rows.RECIPROCAL, "4.0", "0.25")
def reciprocal(x: ArrayLike, /) -> Array:
    """Return the reciprocal 1 / x."""


@universal(rows.EXP, "0.0", "1.0")
def exp(x: ArrayLike, /) -> Array:
    """Return the exponential e**x."""


@universal(rows.EXP2, "3.0", "8.0")
def exp2(x: ArrayLike, /) -> Array:
    """Return 2**x."""


@universal(rows.EXPM1, "0.0", "0.0")
def expm1(x: ArrayLike, /) -> Array:
    """Return exp(x) - 1, accurate for small x."""


@universal(rows.LOG, "1.0", "0.0")
def log(x: ArrayLike, /) -> Array:
    """Return the natural logarithm."""


@universal(rows.LOG1P, "0.0", "0.0")
def log1p(x: ArrayLike, /) -> Array:
    """Return log(1 + x), accurate for small x."""


@universal(rows.LOG2, "8.0", "3.0")
def log2(x: ArrayLike, /) -> Array:
    """Return the base-2 logarithm."""


@universal(rows.LOG10, "1.0", "0.0")
def log10(x: ArrayLike, /) -> Array:
    """Return the base-10 logarithm."""


@universal(rows.SIN, "0.0", "0.0")
def sin(x: ArrayLike, /) -> Array:
    """Return the sine of x, in radians."""


@universal(rows.COS, "0.0", "1.0")
def cos(x: ArrayLike, /) -> Array:
    """Return the cosine of x, in radians."""


@universal(rows.TAN, "0.0", "0.0")
def tan(x: ArrayLike, /) -> Array:
    """Return the tangent of x, in radians."""


@universal(rows.CBRT, "-8.0", "-2.0")
def cbrt(x: ArrayLike, /) -> Array:
    """Return the real cube root, which is negative for negative x."""


@universal(rows.ARCTAN, "0.0", "0.0")
def arctan(x: ArrayLike, /) -> Array:
    """Return the inverse tangent in radians, from -pi/2 to pi/2."""


@universal(rows.SINH, "0.0", "0.0")
def sinh(x: ArrayLike, /) -> Array:
    """Return the hyperbolic sine."""


@universal(rows.COSH, "0.0", "1.0")
def cosh(x: ArrayLike, /) -> Array:
    """Return the hyperbolic cosine."""


@universal(rows.TANH, "0.0", "0.0")
def tanh(x: ArrayLike, /) -> Array:
    """Return the hyperbolic tangent."""


abs = absolute
atan = arctan
bitwise_not = invert
bitwise_invert = invert
