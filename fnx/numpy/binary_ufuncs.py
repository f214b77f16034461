"""Binary universal functions: one entry of core/formulas/elementwise.py each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, cast

from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import apply, elementwise, static_power
from fnx.core.formulas import elementwise as rows
from fnx.core.support.process import lazy_import

ufunc_methods = lazy_import("fnx.numpy.ufunc_methods")

__all__ = [
    "add", "arctan2", "atan2", "bitwise_and", "bitwise_left_shift", "bitwise_or",
    "bitwise_right_shift", "bitwise_xor", "divide", "equal", "float_power", "floor_divide", "fmod",
    "greater", "greater_equal", "hypot", "left_shift", "less", "less_equal", "logaddexp",
    "logaddexp2", "logical_and", "logical_or", "logical_xor", "maximum", "minimum", "mod",
    "multiply", "not_equal", "pow", "power", "remainder", "right_shift", "subtract", "true_divide",
]


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


@with_ufunc_methods(0)
@elementwise(rows.ADD)
def add(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Add elementwise: x + y. For bools, logical or.

    >>> print(jnp.add(1, 2))
    3
    """
    return apply(rows.ADD, x, y)


@with_ufunc_methods()
@elementwise(rows.SUBTRACT)
def subtract(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Subtract elementwise: x - y.

    >>> print(jnp.subtract(1, 2))
    -1
    """
    return apply(rows.SUBTRACT, x, y)


@with_ufunc_methods(1)
@elementwise(rows.MULTIPLY)
def multiply(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Multiply elementwise: x * y. For bools, logical and.

    >>> print(jnp.multiply(2, 3))
    6
    """
    return apply(rows.MULTIPLY, x, y)


@elementwise(rows.DIVIDE)
def divide(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Divide elementwise: x / y. The result is a float.

    >>> print(jnp.divide(1, 2))
    0.5
    """
    return apply(rows.DIVIDE, x, y)


@elementwise(rows.FLOOR_DIVIDE)
def floor_divide(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return the quotient x / y, rounded down.

    >>> print(jnp.floor_divide(-7, 2))
    -4
    """
    return apply(rows.FLOOR_DIVIDE, x, y)


@elementwise(rows.REMAINDER)
def remainder(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return the remainder x - y * floor(x / y), which has the sign of y.

    >>> print(jnp.remainder(-7, 2))
    1
    """
    return apply(rows.REMAINDER, x, y)


@elementwise(rows.FMOD)
def fmod(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return the remainder of truncated division, which has the sign of x.

    >>> print(jnp.fmod(-7, 2))
    -1
    """
    return apply(rows.FMOD, x, y)


@with_ufunc_methods()
@elementwise(rows.MAXIMUM)
def maximum(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return the elementwise maximum. NaN propagates; ties split the derivative equally.

    >>> print(jnp.maximum(1, 2))
    2
    """
    return apply(rows.MAXIMUM, x, y)


@with_ufunc_methods()
@elementwise(rows.MINIMUM)
def minimum(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return the elementwise minimum. NaN propagates; ties split the derivative equally.

    >>> print(jnp.minimum(1, 2))
    1
    """
    return apply(rows.MINIMUM, x, y)


@with_ufunc_methods(-float("inf"))
@elementwise(rows.LOGADDEXP)
def logaddexp(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return log(exp(x) + exp(y)).

    >>> print(jnp.logaddexp(0.0, float('-inf')))
    0.0
    """
    return apply(rows.LOGADDEXP, x, y)


@with_ufunc_methods(-float("inf"))
@elementwise(rows.LOGADDEXP2)
def logaddexp2(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return log2(2**x + 2**y).

    >>> print(jnp.logaddexp2(0.0, 0.0))
    1.0
    """
    return apply(rows.LOGADDEXP2, x, y)


@elementwise(rows.ARCTAN2)
def arctan2(y: ArrayLike, x: ArrayLike, /) -> Array:
    """Return the angle of the point (x, y) in radians, from -pi to pi.

    >>> print(jnp.arctan2(1.0, 0.0))
    1.5707964
    """
    return apply(rows.ARCTAN2, y, x)


@elementwise(rows.HYPOT)
def hypot(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return sqrt(x**2 + y**2), without intermediate overflow.

    >>> print(jnp.hypot(3.0, 4.0))
    5.0
    """
    return apply(rows.HYPOT, x, y)


@elementwise(rows.LESS, "bool")
def less(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return x < y elementwise.

    >>> print(jnp.less(1, 2))
    True
    """
    return apply(rows.LESS, x, y)


@elementwise(rows.LESS_EQUAL, "bool")
def less_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return x <= y elementwise.

    >>> print(jnp.less_equal(2, 2))
    True
    """
    return apply(rows.LESS_EQUAL, x, y)


@elementwise(rows.GREATER, "bool")
def greater(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return x > y elementwise.

    >>> print(jnp.greater(1, 2))
    False
    """
    return apply(rows.GREATER, x, y)


@elementwise(rows.GREATER_EQUAL, "bool")
def greater_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return x >= y elementwise.

    >>> print(jnp.greater_equal(2, 2))
    True
    """
    return apply(rows.GREATER_EQUAL, x, y)


@elementwise(rows.EQUAL, "bool")
def equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return x == y elementwise.

    >>> print(jnp.equal(1, 1.0))
    True
    """
    return apply(rows.EQUAL, x, y)


@elementwise(rows.NOT_EQUAL, "bool")
def not_equal(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Return x != y elementwise.

    >>> print(jnp.not_equal(1, 2))
    True
    """
    return apply(rows.NOT_EQUAL, x, y)


@with_ufunc_methods(-1)
@elementwise(rows.BITWISE_AND)
def bitwise_and(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the bitwise AND.

    >>> print(jnp.bitwise_and(6, 3))
    2
    """
    return apply(rows.BITWISE_AND, x, y)


@with_ufunc_methods(0)
@elementwise(rows.BITWISE_OR)
def bitwise_or(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the bitwise OR.

    >>> print(jnp.bitwise_or(6, 3))
    7
    """
    return apply(rows.BITWISE_OR, x, y)


@with_ufunc_methods(0)
@elementwise(rows.BITWISE_XOR)
def bitwise_xor(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the bitwise XOR.

    >>> print(jnp.bitwise_xor(6, 3))
    5
    """
    return apply(rows.BITWISE_XOR, x, y)


@elementwise(rows.LEFT_SHIFT)
def left_shift(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Shift x left by y bits: x * 2**y, and 0 if y is at least the bit width.

    >>> print(jnp.left_shift(1, 4))
    16
    """
    return apply(rows.LEFT_SHIFT, x, y)


@elementwise(rows.RIGHT_SHIFT)
def right_shift(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Shift x right by y bits, arithmetically: the sign is kept.

    >>> print(jnp.right_shift(-8, 1))
    -4
    """
    return apply(rows.RIGHT_SHIFT, x, y)


@with_ufunc_methods(True)
@elementwise(rows.LOGICAL_AND, "bool")
def logical_and(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the logical AND of the truth values.

    >>> print(jnp.logical_and(True, 0))
    False
    """
    return apply(rows.LOGICAL_AND, x, y)


@with_ufunc_methods(False)
@elementwise(rows.LOGICAL_OR, "bool")
def logical_or(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the logical OR of the truth values.

    >>> print(jnp.logical_or(True, 0))
    True
    """
    return apply(rows.LOGICAL_OR, x, y)


@with_ufunc_methods(False)
@elementwise(rows.LOGICAL_XOR, "bool")
def logical_xor(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Compute the logical XOR of the truth values.

    >>> print(jnp.logical_xor(True, 1))
    False
    """
    return apply(rows.LOGICAL_XOR, x, y)


@elementwise(rows.POWER)
def power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Raise x to the power y. An integral exponent given as a Python number multiplies repeatedly.

    >>> print(jnp.power(3.0, 2))
    9.0
    """
    is_python = type(y) is int or type(y) is float
    return static_power(asarray(x), y) if is_python else apply(rows.POWER, x, y)


@elementwise(rows.FLOAT_POWER)
def float_power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """Raise x to the power y, computed in floating point.

    >>> print(jnp.float_power(2, -1))
    0.5
    """
    return apply(rows.FLOAT_POWER, x, y)


atan2 = arctan2
true_divide = divide
mod = remainder
bitwise_left_shift = left_shift
bitwise_right_shift = right_shift
pow = power
