"""Elementwise functions of ``jax.lax``.

Those that ``fnx.numpy`` also has are the same functions: operands promote and broadcast, whereas
``jax.lax`` requires equal dtypes and shapes.
"""

from __future__ import annotations

import operator
from typing import Literal, TypeVar

import fnx.numpy as jnp
from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import alias, apply, astype, elementwise_family
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import promote_operands
from fnx.core.formulas import elementwise as rows
from fnx.core.formulas import error_functions
from fnx.core.formulas.elementwise import ElementwiseFn
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import set_composite
from fnx.core.support.errors import ArgumentError, DTypeError
from fnx.numpy.ufuncs import (
    add,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    cbrt,
    ceil,
    cos,
    cosh,
    exp,
    exp2,
    expm1,
    floor,
    log,
    log1p,
    reciprocal,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
)

__all__ = [
    "abs", "add", "atan", "atan2", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor",
    "cbrt", "ceil", "clamp", "complex", "convert_element_type", "cos", "cosh", "div", "eq",
    "erf", "erf_inv", "erfc", "exp", "exp2", "expm1", "floor", "ge", "gt", "integer_pow",
    "is_finite", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg",
    "pow", "reciprocal", "rem", "round", "rsqrt", "select", "select_n", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "sinh", "sqrt", "square",
    "stop_gradient", "sub", "tan", "tanh",
]

Tree = TypeVar("Tree")


def _divide(a: Expr, b: Expr) -> Expr:
    return a / b if a.dtype.is_inexact else a // b


def _logical_shift(a: Expr, b: Expr) -> Expr:
    """Shift right and fill with zeros, whatever the sign."""
    bits = dtypes.unsigned(a.dtype)
    return (a.bitcast(bits) >> b.bitcast(bits)).bitcast(a.dtype)


_DIV = ElementwiseFn("div", "number", _divide)
_SHIFT_RIGHT_LOGICAL = ElementwiseFn("shift_right_logical", "whole", _logical_shift)
_REM = ElementwiseFn("rem", "number", ops.REM)


@elementwise_family("fnx.lax as lax")
def _unary(fn: ElementwiseFn, x: ArrayLike) -> Array:
    return apply(fn, x)


@elementwise_family("fnx.lax as lax")
def _binary(fn: ElementwiseFn, x: ArrayLike, y: ArrayLike) -> Array:
    return apply(fn, x, y)


neg = alias("neg", jnp.negative)
abs = alias("abs", jnp.absolute)
atan = alias("atan", jnp.arctan)
is_finite = alias("is_finite", jnp.isfinite)
bitwise_not = alias("bitwise_not", jnp.invert)
sub = alias("sub", jnp.subtract)
mul = alias("mul", jnp.multiply)
pow = alias("pow", jnp.power)
max = alias("max", jnp.maximum)
min = alias("min", jnp.minimum)
eq = alias("eq", jnp.equal)
ne = alias("ne", jnp.not_equal)
lt = alias("lt", jnp.less)
le = alias("le", jnp.less_equal)
gt = alias("gt", jnp.greater)
ge = alias("ge", jnp.greater_equal)
shift_left = alias("shift_left", jnp.left_shift)
shift_right_arithmetic = alias("shift_right_arithmetic", jnp.right_shift)


logistic = _unary(
    rows.SIGMOID, "logistic", "Return 1 / (1 + exp(-x)), computed without overflow.",
    "print(lax.logistic(0.0))", "0.5")
rsqrt = _unary(rows.RSQRT, "rsqrt", "Return 1 / sqrt(x).", "print(lax.rsqrt(4.0))", "0.5")
erf = _unary(
    error_functions.ERF, "erf",
    "Return the error function. core/formulas/error_functions.py describes the method.",
    "print(lax.erf(0.0))", "0.0")
erfc = _unary(
    error_functions.ERFC, "erfc", "Return 1 - erf(x), without cancellation for large x.",
    "print(lax.erfc(0.0))", "1.0")
erf_inv = _unary(
    error_functions.ERF_INV, "erf_inv", "Return the inverse of erf; NaN outside of [-1, 1].",
    "print(lax.erf_inv(0.0))", "0.0")
atan2 = _binary(
    rows.ARCTAN2, "atan2", "Return the angle of the point (y, x), where y is the first argument.",
    "print(lax.atan2(0.0, 1.0))", "0.0")
div = _binary(
    _DIV, "div", "Return x / y; integer quotients are rounded towards zero.",
    "print(lax.div(-7, 2))", "-3")
rem = _binary(
    _REM, "rem", "Return the remainder with the sign of x; for integers and y = 0 return x.",
    "print(lax.rem(-7, 2), lax.rem(5, 0))", "-1 5")
shift_right_logical = _binary(
    _SHIFT_RIGHT_LOGICAL, "shift_right_logical",
    "Shift x right by y bits and fill with zeros, whatever the sign.",
    "print(lax.shift_right_logical(-1, 28))", "15")


@public_api
def round(x: ArrayLike, rounding_method: Literal[0, 1] = 0) -> Array:
    """Round to the nearest integer.

    Args:
        x: floats; integers become the default float.
        rounding_method: how to round halves: 0 away from zero, 1 to the nearest even integer.

    Returns:
        An Array of the shape of x, of a float dtype.

    Raises:
        ArgumentError: ``rounding_method`` is neither 0 nor 1.

    >>> import fnx.lax as lax
    >>> print(lax.round(2.5), lax.round(2.5, 1))
    3.0 2.0
    """
    if not isinstance(rounding_method, int) or rounding_method not in (0, 1):
        raise ArgumentError(f"expected rounding_method 0 or 1, got {rounding_method!r}",
                            hint="0 rounds halves away from zero, 1 to even")
    if rounding_method:
        return jnp.rint(x)
    truncated = jnp.trunc(x)
    return jnp.where(jnp.abs(x - truncated) >= 0.5, truncated + jnp.sign(x), truncated)


@public_api
def complex(x: ArrayLike, y: ArrayLike) -> Array:
    """Make complex numbers of their real and imaginary parts.

    Args:
        x: the real parts: an Array of float32 or float64, or numbers.
        y: the imaginary parts; promoted with x.

    Returns:
        An Array of complex64 or complex128, of the shape that both broadcast to.

    Raises:
        DTypeError: the parts promote to a type that no complex type has.
        ShapeError: the shapes do not broadcast.

    >>> import fnx.lax as lax
    >>> print(lax.complex(1.0, 2.0))
    (1+2j)
    """
    parts, weak = promote_operands("inexact", "complex", (x, y))
    if parts[0].dtype not in ops.COMPLEX.types:
        raise DTypeError(f"complex: expected parts of float32 or float64, got {parts[0].dtype}",
                         hint="convert them with .astype(float32)")
    return Array(build.complex_number(*parts), weak)


@public_api
def integer_pow(x: ArrayLike, y: int) -> Array:
    """Raise x to a static integer power by repeated multiplication.

    Args:
        x: an Array or array-like of any shape and dtype.
        y: an int.

    Returns:
        An Array of the shape and dtype of x.

    Raises:
        DTypeError: x has an integer dtype and y is negative.

    >>> import fnx.lax as lax
    >>> print(lax.integer_pow(2.0, 3))
    8.0
    """
    return jnp.power(x, operator.index(y))


@public_api
def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """Select elements of on_true where pred holds, else of on_false.

    Args:
        pred: an Array of any dtype; nonzero values are true.
        on_true: an Array or a number; promoted with on_false.
        on_false: an Array or a number; promoted with on_true.

    Returns:
        An Array of the broadcast shape of all three.

    Raises:
        ShapeError: the shapes do not broadcast.

    >>> import fnx.lax as lax
    >>> print(lax.select(True, 1.0, 2.0))
    1.0
    """
    return jnp.where(pred, on_true, on_false)


@public_api
def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """Select one of the cases elementwise, by a bool or an integer.

    Args:
        which: bool, or integers in 0..len(cases)-1; others are clamped to this range.
        cases: Arrays or numbers; promoted to a common dtype.

    Returns:
        An Array of the common dtype of the cases.

    Raises:
        ArgumentError: there are no cases.
        ShapeError: the shapes do not broadcast.

    >>> import fnx.lax as lax
    >>> print(lax.select_n(True, 1.0, 2.0))
    2.0
    """
    if not cases:
        raise ArgumentError("select_n: expected at least one case, got none")
    x = asarray(which)
    out = asarray(cases[0])
    for i, case in enumerate(cases[1:], 1):
        out = jnp.where(x if x._dtype.is_bool else x >= i, case, out)
    return out


@public_api
def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array:
    """Clamp x to the range from min to max.

    Args:
        min: lower bounds.
        x: an Array or array-like of any shape and dtype.
        max: upper bounds; where they are below the lower ones, they are the result.

    Returns:
        An Array of the common dtype.

    Raises:
        ShapeError: the shapes do not broadcast.

    >>> import fnx.lax as lax
    >>> print(lax.clamp(0, 5, 3))
    3
    """
    out = jnp.minimum(jnp.maximum(min, x), max)
    operands = [asarray(a)._node for a in (min, x, max)]
    if all(a.dtype is out._dtype for a in operands) and operands[1].shape == out.shape:
        set_composite(out._node, "clamp", clamp, operands)
    return out


@public_api
def convert_element_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    """Convert an array to another dtype.

    Args:
        operand: an Array or array-like of any shape and dtype.
        new_dtype: the dtype of the result.

    Returns:
        An Array of the shape of the operand.

    Raises:
        DTypeError: fnx does not support the dtype.

    >>> import fnx.lax as lax
    >>> print(lax.convert_element_type(1.5, int))
    1
    """
    return astype(operand, new_dtype)


@public_api
def stop_gradient(x: Tree) -> Tree:
    """Return x, a pytree, as a constant for differentiation.

    Args:
        x: a pytree of Arrays and numbers.

    Returns:
        A pytree like x.

    >>> import fnx.lax as lax
    >>> print(lax.stop_gradient(1.0))
    1.0
    """
    out: Tree = tree.map(_stop_leaf, x)
    return out


def _stop_leaf(x: ArrayLike) -> Array:
    array = asarray(x)
    return Array(build.stop_gradient(array._node), array.weak)
