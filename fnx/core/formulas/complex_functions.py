"""Elementwise functions of complex numbers, where they differ from those of real numbers.

``formula_of(name, dtype)`` returns the formula of an ElementwiseFn on complex operands, by its
name. Functions in ``SAME`` keep the formula of real numbers; those in neither table are defined for
real numbers only. Numbers are ordered by their real parts, then by their imaginary parts, as in
NumPy.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fnx.core.formulas import elementwise as real_functions
from fnx.core.formulas.elementwise_math import arcsinh as real_arcsinh
from fnx.core.formulas.elementwise_math import copysign
from fnx.core.ir import build, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import (
    Expr,
    arcsin,
    arctan,
    complex_number,
    cos,
    exp,
    imag,
    isnan,
    log,
    log1p,
    real,
    rint,
    sin,
    sqrt,
    where,
)
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import DTypeError


def is_real(node: UOp) -> bool:
    """Return whether a complex node is known to be real: it was cast from real numbers."""
    while node.op in (ops.EXPAND, ops.RESHAPE, ops.PERMUTE):
        node = node.src[0]
    if node.op is ops.CONST:
        return bool(build.const_of(node).imag == 0)
    return node.op is ops.CAST and not node.src[0].dtype.is_complex


def _is_imaginary(node: UOp) -> bool:
    """Return whether a node is a constant without a real part, as ``1j`` is."""
    while node.op in (ops.EXPAND, ops.RESHAPE):
        node = node.src[0]
    return node.op is ops.CONST and build.const_of(node).real == 0


def multiply(a: Expr, b: Expr) -> Expr:
    """a * b. A real operand multiplies both parts, as in C99: inf * (1 + 0i) is inf + 0i."""
    a, b = (b, a) if is_real(a.node) else (a, b)
    if not is_real(b.node):
        return a * b
    factor = real(b)
    if _is_imaginary(a.node):
        return complex_number(factor.like(0), imag(a) * factor)
    return complex_number(real(a) * factor, imag(a) * factor)


def divide(a: Expr, b: Expr) -> Expr:
    """a / b. A real divisor divides both parts."""
    if not is_real(b.node):
        return a / b
    return complex_number(real(a) / real(b), imag(a) / real(b))


def conjugate(z: Expr) -> Expr:
    """x - iy."""
    return complex_number(real(z), -imag(z))


def absolute(z: Expr) -> Expr:
    """|z|, without overflow; its derivative at 0 is 0."""
    return real_functions.hypot(real(z), imag(z))


def sign(z: Expr) -> Expr:
    """z / |z|, and 0 at 0."""
    size = absolute(z)
    is_zero = size.eq(0)
    divisor = where(is_zero, 1, size)
    return complex_number(where(is_zero, 0, real(z) / divisor),
                          where(is_zero, 0, imag(z) / divisor))


def _times_i(z: Expr) -> Expr:
    return complex_number(-imag(z), real(z))


def _divided_by_i(z: Expr) -> Expr:
    return complex_number(imag(z), -real(z))


def sinh(z: Expr) -> Expr:
    return _divided_by_i(sin(_times_i(z)))


def cosh(z: Expr) -> Expr:
    return cos(_times_i(z))


def arcsinh(z: Expr) -> Expr:
    return _divided_by_i(arcsin(_times_i(z)))


def arctanh(z: Expr) -> Expr:
    return _divided_by_i(arctan(_times_i(z)))


def arccos(z: Expr) -> Expr:
    """2 atan2(re a, re b) + i asinh(im(conj(b) a)), of a = sqrt(1 - z) and b = sqrt(1 + z)."""
    x, y = real(z), imag(z)
    a, b = sqrt(complex_number(1 - x, -y)), sqrt(1 + z)  # keeps the sign of a zero
    infinite = isinf(z)
    re = where(infinite, real_functions.arctan2(abs(y), x),
               2 * real_functions.arctan2(real(a), real(b)))
    im = real_arcsinh(real(b) * imag(a) - imag(b) * real(a))
    return complex_number(re, where(infinite, copysign(x.like(math.inf), -y), im))


def arccosh(z: Expr) -> Expr:
    """asinh(re(conj(a) b)) + 2i atan2(im a, re b), of a = sqrt(z - 1) and b = sqrt(z + 1)."""
    a, b = sqrt(z - 1), sqrt(z + 1)
    infinite = isinf(z)
    re = where(infinite, math.inf, real_arcsinh(real(a) * real(b) + imag(a) * imag(b)))
    return complex_number(re, where(infinite, real_functions.arctan2(imag(z), real(z)),
                                    2 * real_functions.arctan2(imag(a), real(b))))


def _scale(z: Expr, factor: float) -> Expr:
    """Multiply by a real number, part by part, so that an infinite part stays one."""
    return complex_number(real(z) * factor, imag(z) * factor)


def _of_parts(f: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """Apply a function of real numbers to both parts."""
    return lambda z: complex_number(f(real(z)), f(imag(z)))


def isinf(z: Expr) -> Expr:
    return real_functions.isinf(real(z)) | real_functions.isinf(imag(z))


def isfinite(z: Expr) -> Expr:
    return real_functions.isfinite(real(z)) & real_functions.isfinite(imag(z))


def less(a: Expr, b: Expr) -> Expr:
    return (real(a) < real(b)) | real(a).eq(real(b)) & (imag(a) < imag(b))


def less_equal(a: Expr, b: Expr) -> Expr:
    return (real(a) < real(b)) | real(a).eq(real(b)) & (imag(a) <= imag(b))


def _winner(wins: Callable[[Expr, Expr], Expr]) -> Callable[[Expr, Expr], Expr]:
    """Return the operand that wins, or that is NaN; equal ones share the derivative."""
    def chosen(a: Expr, b: Expr) -> Expr:
        mean = _scale(a, 0.5) + _scale(b, 0.5)
        return where(isnan(a) | wins(a, b), a, where(a.eq(b), mean, b))
    return chosen


def fmax(a: Expr, b: Expr) -> Expr:
    return where(isnan(b) | less(b, a), a, b)


def fmin(a: Expr, b: Expr) -> Expr:
    return where(isnan(b) | less(a, b), a, b)


def arctan2(y: Expr, x: Expr) -> Expr:
    """-i log((x + iy) / sqrt(x**2 + y**2))."""
    return _divided_by_i(log((x + _times_i(y)) / sqrt(x * x + y * y)))


def logaddexp(a: Expr, b: Expr) -> Expr:
    """log(exp(a) + exp(b)), from the operand with the larger real part; the angle is in -pi..pi."""
    a_is_larger = real(a) > real(b)
    high, low = where(a_is_larger, a, b), where(a_is_larger, b, a)
    out = where(real(high).eq(-math.inf), high, high + log1p(exp(low - high)))
    turns = rint(imag(out) / (2 * math.pi))
    return complex_number(real(out), imag(out) - turns * (2 * math.pi))


def sinc(z: Expr) -> Expr:
    """sin(pi z) / (pi z), and its series near 0."""
    near = absolute(z) < 1e-2
    t = math.pi * where(near, 1, z)
    square = math.pi ** 2 * where(near, z * z, 0)
    series = 1 - square / 6 * (1 - square / 20 * (1 - square / 42))
    return where(near, series, sin(t) / t)


def _sigmoid(z: Expr) -> Expr:
    return 1 / (1 + exp(-z))


_LOG2 = math.log(2.0)

FORMULAS: dict[str, Callable[..., Expr]] = {
    "multiply": multiply, "divide": divide, "div": divide, "reciprocal": lambda z: 1 / z,
    "real": real, "imag": imag, "conjugate": conjugate, "absolute": absolute, "sign": sign,
    "sinh": sinh, "cosh": cosh, "arcsinh": arcsinh, "arctanh": arctanh, "arccos": arccos,
    "arccosh": arccosh, "arctan2": arctan2, "sinc": sinc, "logaddexp": logaddexp,
    "isinf": isinf, "isfinite": isfinite, "rint": _of_parts(rint),
    "less": less, "less_equal": less_equal, "greater": lambda a, b: less(b, a),
    "greater_equal": lambda a, b: less_equal(b, a), "fmax": fmax, "fmin": fmin,
    "maximum": _winner(lambda a, b: less(b, a)), "minimum": _winner(less),
    "power": lambda a, b: a ** b, "float_power": lambda a, b: a ** b,
    "exp2": lambda z: exp(_scale(z, _LOG2)), "log2": lambda z: _scale(log(z), 1 / _LOG2),
    "log10": lambda z: _scale(log(z), 1 / math.log(10.0)),
    "logaddexp2": lambda a, b: _scale(logaddexp(_scale(a, _LOG2), _scale(b, _LOG2)), 1 / _LOG2),
    "deg2rad": lambda z: _scale(z, math.pi / 180), "rad2deg": lambda z: _scale(z, 180 / math.pi),
    "sigmoid": _sigmoid, "silu": lambda z: z * _sigmoid(z),
    "softplus": lambda z: logaddexp(z, z.like(0)),
    "log_sigmoid": lambda z: -logaddexp(-z, z.like(0))}
SAME = frozenset({
    "add", "subtract", "equal", "not_equal", "negative", "positive",
    "square", "isnan", "sqrt", "rsqrt", "exp", "expm1", "log", "log1p", "sin",
    "cos", "tan", "tanh", "arcsin", "arctan", "xlogy", "xlog1py"})


def formula_of(name: str, dtype: DType) -> Callable[..., Expr] | None:
    """Return the formula of a function for complex numbers; None: that of real numbers.

    Raises:
        DTypeError: the function is not defined for complex numbers.

    >>> from fnx.core.ir import dtypes
    >>> formula_of("exp", dtypes.complex64) is None
    True
    """
    if name in SAME:
        return None
    if name not in FORMULAS:
        raise DTypeError(f"{name}: expected real numbers, got {dtype}",
                         hint="use the real part z.real, the imaginary part z.imag, or abs(z)")
    return FORMULAS[name]

