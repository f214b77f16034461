"""User-level elementwise functions, built from ops: each has a domain and builds its nodes.

An ``ElementwiseFn`` is shared by an operator of Array, a function of ``fnx.numpy`` and one of
``fnx.lax``. It is an op, or a formula over Exprs; its ``build`` takes nodes of one shape (and,
except for ``where``, one dtype). Its ``domain`` says which dtype the operands are converted to:

    any      their common dtype
    number   the same; bool is an error
    integer  the same; bool becomes int32
    inexact  the same; bool and integers become a float
    float    the same; bool and integers become the default float
             (complex numbers stay complex in both)
    bits     bool or integers; floats are an error
    whole    the same, but bool becomes int32
    truth    each operand becomes bool separately (x != 0)

>>> from fnx.core.ir import dtypes
>>> x = build.param(0, dtypes.bool_, ())
>>> ADD.build(x, x).op      # on bools + is "or", as in NumPy
OR
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from fnx.core.formulas.formulas import logaddexp
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import (
    Expr,
    arctan,
    ceil,
    exp,
    expm1,
    floor,
    isnan,
    log,
    rint,
    sqrt,
    trunc,
    where,
)
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import DTypeError
from fnx.core.support.process import lazy_import

complex_functions = lazy_import("fnx.core.formulas.complex_functions")


class ElementwiseFn:
    """An elementwise function: see the module docstring. Bools may use another op (``Op.of``)."""

    __slots__ = ("name", "domain", "formula", "is_format_specific", "is_primitive")

    def __init__(self, name: str, domain: str, formula: Op | Callable[..., Expr],
                 is_format_specific: bool = False, is_primitive: bool = False) -> None:
        self.name, self.domain, self.formula = name, domain, formula
        self.is_primitive = is_primitive  # of JAX, of this name: jaxprs show it, not its formula
        # depends on the dtype's own format: not computed in a wider one
        self.is_format_specific = is_format_specific

    def build(self, *nodes: UOp) -> UOp:
        """Apply the function to nodes of the dtype that its domain asks for.

        For storage-only dtypes a formula is computed in a wider dtype and rounded once; complex
        numbers may have a formula of their own (core/formulas/complex_functions.py).
        """
        t = nodes[-1].dtype
        meaning = self.formula
        if t.is_complex:
            meaning = complex_functions.formula_of(self.name, t) or meaning
        if isinstance(meaning, Op):
            return build.elementwise(meaning.for_dtype(t), *nodes)
        if t.storage is None or self.is_format_specific:
            return meaning(*map(Expr, nodes)).node
        out = meaning(*[Expr(build.to_compute(n)) for n in nodes]).node
        return build.cast(out, t) if out.dtype is t.compute else out

    def __repr__(self) -> str:
        return self.name


# ---- domains: (name of the function, promoted dtype) -> dtype of the operands --------------------


def _number(name: str, t: DType) -> DType:
    if t.is_bool:
        raise DTypeError(f"{name}: expected numbers, got bool".removeprefix(": "),
                         hint="convert with .astype(...), or use & | ^ ~ on bools")
    return t


def _integer(name: str, t: DType) -> DType:
    return dtypes.int32 if t.is_bool else t


def _bits(name: str, t: DType) -> DType:
    if t.is_inexact:
        raise DTypeError(f"{name}: expected integers or bools, got {t}".removeprefix(": "),
                         hint="convert with .astype(int32), or use the logical_ functions")
    return t


def _real(name: str, t: DType) -> DType:
    if t.is_complex:
        raise DTypeError(f"{name}: expected real numbers, got {t}".removeprefix(": "),
                         hint="use the real part z.real, the imaginary part z.imag, or abs(z)")
    return dtypes.inexact(t)


DOMAINS: dict[str, Callable[[str, DType], DType]] = {
    "any": lambda name, t: t, "number": _number, "integer": _integer,
    "inexact": lambda name, t: dtypes.inexact(t), "real": _real,
    "float": lambda name, t: t if t.is_inexact else dtypes.default_width(dtypes.float64),
    "bits": _bits, "whole": lambda name, t: _integer(name, _bits(name, t)),
    "truth": lambda name, t: dtypes.bool_}


# ---- functions that are more than one op ------------------------------------------------------
# Where a formula selects between branches, each branch is smooth at the boundary and valid on both
# sides of it, so derivatives of every order are right there (MAX and ABS would split or drop them).


def floor_divide(a: Expr, b: Expr) -> Expr:
    """Divide and round down. Floats use the remainder, so q * b + r = a as closely as possible.

    An integer divided by zero is -1 or -2, as in JAX.
    """
    rem = a % b
    if a.dtype.is_float:
        floored = (a - rem) / b
        signs_differ = rem.ne(0) & (rem < 0).ne(b < 0)
        return rint(where(b.eq(0), a / b, where(signs_differ, floored - 1, floored)))
    quotient = a // b
    if a.dtype.kind == "uint":
        return quotient
    opposite = (a < 0).ne(b < 0) | b.eq(0)
    return where(rem.ne(0) & opposite, quotient - 1, quotient)


def fmod(a: Expr, b: Expr) -> Expr:
    """The remainder with the sign of the dividend; 0 for integers modulo zero."""
    rem = a % b
    return rem if a.dtype.is_float else where(b.eq(0), a.like(0), rem)


def remainder(a: Expr, b: Expr) -> Expr:
    """The remainder with the sign of the divisor; 0 for integers modulo zero."""
    rem = fmod(a, b)
    if a.dtype.kind == "uint":
        return rem
    return where(rem.ne(0) & (rem < 0).ne(b < 0), rem + b, rem)


def power(a: Expr, b: Expr) -> Expr:
    """a ** b. Integers by squaring over the bits of b; a negative b rounds towards zero."""
    if a.dtype.is_float:
        return a**b
    signed = b.dtype.kind == "int"
    out, factor = a.like(1), a
    for bit in range(b.dtype.bits - signed):
        out = where((b >> bit & 1).eq(1), out * factor, out)
        factor = factor * factor
    if not signed:
        return out
    units = a.eq(1) if a.dtype.kind == "uint" else a.eq(1) | a.eq(-1)  # 1 / a is an integer
    return where((b < 0) & ~units, 0, out)


def sign(x: Expr) -> Expr:
    """-1, 0 or 1; a float zero or NaN maps to itself (by rint, whose derivative is 0)."""
    if x.dtype.kind == "uint":
        return where(x.eq(0), x, 1)
    return where(x > 0, 1, where(x < 0, -1, rint(x) if x.dtype.is_float else x))


def positive(x: Expr) -> Expr:
    return x


def absolute(x: Expr) -> Expr:
    return x if x.dtype.kind in ("bool", "uint") else abs(x)


def square(x: Expr) -> Expr:
    return x * x


def isinf(x: Expr) -> Expr:
    return abs(x).eq(math.inf) if x.dtype.is_float else _full_bool(x, False)


def isfinite(x: Expr) -> Expr:
    return abs(x) < math.inf if x.dtype.is_float else _full_bool(x, True)


def _full_bool(x: Expr, value: bool) -> Expr:
    return Expr(build.const(value, dtypes.bool_, x.shape))


def logaddexp2(a: Expr, b: Expr) -> Expr:
    """log2(2**a + 2**b)."""
    scale = math.log(2.0)
    return logaddexp(a * scale, b * scale) / scale


def hypot(a: Expr, b: Expr) -> Expr:
    """sqrt(a**2 + b**2) without overflow; 0 at the origin, inf if either operand is infinite."""
    x, y = where(a < 0, -a, a), where(b < 0, -b, b)
    is_a_larger = x > y
    high, low = where(is_a_larger, x, y), where(is_a_larger, y, x)
    ratio = low / where(high.eq(0), 1, high)
    finite = where(high.eq(0), 0, high * sqrt(1 + ratio * ratio))
    finite = where(isnan(a) | isnan(b), math.nan, finite)
    return where(isinf(a) | isinf(b), math.inf, finite)


def log2(x: Expr) -> Expr:
    return log(x) / math.log(2.0)


def log10(x: Expr) -> Expr:
    return log(x) / math.log(10.0)


def exp2(x: Expr) -> Expr:
    return 2**x


def compute_in_float64(formula: Callable[..., Expr]) -> Callable[..., Expr]:
    """Decorate a formula to compute in float64 and round once, which hides its own error."""
    @functools.wraps(formula)
    def rounded(*xs: Expr) -> Expr:
        t = xs[0].dtype
        if t.bits == 64:
            return formula(*xs)
        return formula(*[x.cast(dtypes.float64) for x in xs]).cast(t)
    return rounded


def sinh(x: Expr) -> Expr:
    """sinh by expm1 for |x| < 1, where that avoids cancellation, else (exp(x) - exp(-x)) / 2."""
    expm1_x = expm1(x)
    near = 0.5 * (expm1_x + expm1_x / (expm1_x + 1))
    return where(abs(x) < 1, near, _half_exp(x) - _half_exp(-x))


def cosh(x: Expr) -> Expr:
    return _half_exp(x) + _half_exp(-x)


_SHIFT = 0.8115234375  # has few bits, so x - _SHIFT is exact for larger x. And exp(_SHIFT) / 2 is
_SCALE = math.exp(_SHIFT) / 2  # above 1, and very close to a float32


def _half_exp(x: Expr) -> Expr:
    """exp(x) / 2, finite wherever the result is."""
    return _SCALE * exp(x - _SHIFT)


def sigmoid(x: Expr) -> Expr:
    """1 / (1 + exp(-x)), using the exponential that does not overflow."""
    negative = x < 0
    small = exp(where(negative, x, -x))
    return where(negative, small, 1) / (1 + small)


def rsqrt(x: Expr) -> Expr:
    return 1 / sqrt(x)


def reciprocal(x: Expr) -> Expr:
    return 1 / x


def arctan2(y: Expr, x: Expr) -> Expr:
    """The angle of (x, y) in -pi..pi. Zeros are signed; two infinities lie on a diagonal.

    The partial derivatives at the origin are 0, like those of a norm.
    """
    x_negative, y_negative = x.bits() < 0, y.bits() < 0
    is_steep = abs(y) > abs(x)  # measure from the y axis: quotient and partials stay at most 1
    numerator, denominator = where(is_steep, x, y), where(is_steep, y, x)
    diagonal = where(x_negative.ne(y_negative), x.like(-1), x.like(1))
    origin = where(y_negative, x.like(-0.0), x.like(0.0))
    ratio = where(isinf(x) & isinf(y), diagonal,
                  where(x.eq(0) & y.eq(0), origin, numerator / denominator))
    angle = arctan(ratio)
    half = where(y_negative, x.like(-math.pi / 2), x.like(math.pi / 2))
    return where(isnan(x), x,
                 where(is_steep, half - angle, where(x_negative, angle + 2 * half, angle)))


def greater(a: Expr, b: Expr) -> Expr:
    return a > b


def greater_equal(a: Expr, b: Expr) -> Expr:
    return a >= b


def _floats_only(f: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    """Restrict a rounding function to floats; integers are returned unchanged."""
    def rounded(x: Expr) -> Expr:
        return f(x) if x.dtype.is_float else x
    return rounded


# ---- the functions ----------------------------------------------------------------------------
# fmt: off

ADD = ElementwiseFn("add", "any", ops.ADD)
SUBTRACT = ElementwiseFn("subtract", "number", ops.SUB)
MULTIPLY = ElementwiseFn("multiply", "any", ops.MUL)
DIVIDE = ElementwiseFn("divide", "inexact", ops.DIV)
FLOOR_DIVIDE = ElementwiseFn("floor_divide", "integer", floor_divide)
REMAINDER = ElementwiseFn("remainder", "integer", remainder)
FMOD = ElementwiseFn("fmod", "integer", fmod)
POWER = ElementwiseFn("power", "integer", power)
FLOAT_POWER = ElementwiseFn("float_power", "inexact", power)
MAXIMUM = ElementwiseFn("maximum", "any", ops.MAX)
MINIMUM = ElementwiseFn("minimum", "any", ops.MIN)
LOGADDEXP = ElementwiseFn("logaddexp", "inexact", ops.LOGADDEXP)
LOGADDEXP2 = ElementwiseFn("logaddexp2", "inexact", logaddexp2)
HYPOT = ElementwiseFn("hypot", "inexact", hypot)

LESS = ElementwiseFn("less", "any", ops.CMPLT)
LESS_EQUAL = ElementwiseFn("less_equal", "any", ops.CMPLE)
GREATER = ElementwiseFn("greater", "any", greater)
GREATER_EQUAL = ElementwiseFn("greater_equal", "any", greater_equal)
EQUAL = ElementwiseFn("equal", "any", ops.CMPEQ)
NOT_EQUAL = ElementwiseFn("not_equal", "any", ops.CMPNE)

BITWISE_AND = ElementwiseFn("bitwise_and", "bits", ops.AND)
BITWISE_OR = ElementwiseFn("bitwise_or", "bits", ops.OR)
BITWISE_XOR = ElementwiseFn("bitwise_xor", "bits", ops.XOR)
LEFT_SHIFT = ElementwiseFn("left_shift", "whole", ops.SHL)
RIGHT_SHIFT = ElementwiseFn("right_shift", "whole", ops.SHR)
INVERT = ElementwiseFn("invert", "bits", ops.NOT)
LOGICAL_AND = ElementwiseFn("logical_and", "truth", ops.AND)
LOGICAL_OR = ElementwiseFn("logical_or", "truth", ops.OR)
LOGICAL_XOR = ElementwiseFn("logical_xor", "truth", ops.XOR)
LOGICAL_NOT = ElementwiseFn("logical_not", "truth", ops.NOT)

NEGATIVE = ElementwiseFn("negative", "number", ops.NEG)
POSITIVE = ElementwiseFn("positive", "any", positive)
ABSOLUTE = ElementwiseFn("absolute", "any", absolute)
FABS = ElementwiseFn("fabs", "inexact", absolute)
SIGN = ElementwiseFn("sign", "number", sign)
SQUARE = ElementwiseFn("square", "integer", square, is_primitive=True)
FLOOR = ElementwiseFn("floor", "any", _floats_only(floor))
CEIL = ElementwiseFn("ceil", "any", _floats_only(ceil))
TRUNC = ElementwiseFn("trunc", "any", _floats_only(trunc))
RINT = ElementwiseFn("rint", "float", ops.ROUND)
ISNAN = ElementwiseFn("isnan", "any", isnan)
ISINF = ElementwiseFn("isinf", "any", isinf)
ISFINITE = ElementwiseFn("isfinite", "any", isfinite)

SQRT = ElementwiseFn("sqrt", "inexact", ops.SQRT)
CBRT = ElementwiseFn("cbrt", "inexact", ops.CBRT)
EXP = ElementwiseFn("exp", "inexact", ops.EXP)
EXPM1 = ElementwiseFn("expm1", "inexact", ops.EXPM1)
LOG = ElementwiseFn("log", "inexact", ops.LOG)
LOG1P = ElementwiseFn("log1p", "inexact", ops.LOG1P)
SIN = ElementwiseFn("sin", "inexact", ops.SIN)
COS = ElementwiseFn("cos", "inexact", ops.COS)
TAN = ElementwiseFn("tan", "inexact", ops.TAN)
ARCTAN = ElementwiseFn("arctan", "inexact", ops.ATAN)
TANH = ElementwiseFn("tanh", "inexact", ops.TANH)
RSQRT = ElementwiseFn("rsqrt", "inexact", rsqrt)
RECIPROCAL = ElementwiseFn("reciprocal", "inexact", reciprocal)
EXP2 = ElementwiseFn("exp2", "inexact", exp2)
LOG2 = ElementwiseFn("log2", "inexact", log2)
LOG10 = ElementwiseFn("log10", "inexact", log10)
SINH = ElementwiseFn("sinh", "inexact", sinh)
COSH = ElementwiseFn("cosh", "inexact", cosh)
ARCTAN2 = ElementwiseFn("arctan2", "inexact", arctan2)
SIGMOID = ElementwiseFn("sigmoid", "inexact", sigmoid)
# fmt: on

# Python's operators, keyed by the op that core/ir/expr.py uses for them.
OPERATORS: dict[Op, ElementwiseFn] = {
    ops.ADD: ADD, ops.SUB: SUBTRACT, ops.MUL: MULTIPLY, ops.DIV: DIVIDE,
    ops.IDIV: FLOOR_DIVIDE, ops.REM: REMAINDER, ops.POW: POWER, ops.AND: BITWISE_AND,
    ops.OR: BITWISE_OR, ops.XOR: BITWISE_XOR, ops.SHL: LEFT_SHIFT, ops.SHR: RIGHT_SHIFT,
    ops.NEG: NEGATIVE, ops.ABS: ABSOLUTE, ops.NOT: INVERT, ops.CMPLT: LESS,
    ops.CMPLE: LESS_EQUAL, ops.CMPEQ: EQUAL, ops.CMPNE: NOT_EQUAL}
