"""Elementwise functions of users, made of ops: one row says domain and how to build the nodes.

A ``Function`` is what an operator of Array, a name of ``fnx.numpy`` and a name of ``fnx.lax``
have in common. Its ``build`` takes nodes of one shape (and, but for ``where``, one dtype); its
``domain`` says what promotion gives the operands before:

    any      their common dtype
    number   the same; bool is refused
    integer  the same; bool becomes int32
    inexact  the same; bool and integers become the default float
    bits     bool or integers; floats are refused
    truth    each operand becomes bool by itself (x != 0)

>>> from fnx.core import dtypes
>>> x = build.param(0, dtypes.bool_, ())
>>> ADD.build(x, x).op      # on bools + is "or", as in NumPy
OR
"""

from __future__ import annotations

import math
from collections.abc import Callable

from fnx.core import build, dtypes, ops
from fnx.core.dtypes import DType
from fnx.core.errors import DTypeError
from fnx.core.ops import Op
from fnx.core.uop import UOp


class Function:
    """A row: see the module's docstring."""

    __slots__ = ("name", "domain", "build")

    def __init__(self, name: str, domain: str, build: Callable[..., UOp]) -> None:
        self.name, self.domain, self.build = name, domain, build

    def __repr__(self) -> str:
        return self.name


# ---- domains: (name of the function, promoted dtype, default float) -> dtype of the operands --


def _any(name: str, t: DType, default: DType) -> DType:
    return t


def _number(name: str, t: DType, default: DType) -> DType:
    if t.is_bool:
        raise DTypeError(f"{name}: expected numbers, got bool",
                         hint="convert with .astype(...), or use & | ^ ~ on bools")
    return t


def _integer(name: str, t: DType, default: DType) -> DType:
    return dtypes.int32 if t.is_bool else t


def _inexact(name: str, t: DType, default: DType) -> DType:
    return t if t.is_float else default


def _bits(name: str, t: DType, default: DType) -> DType:
    if t.is_float:
        raise DTypeError(f"{name}: expected integers or bools, got {t}",
                         hint="convert with .astype(int32), or use the logical_ functions")
    return t


def _truth(name: str, t: DType, default: DType) -> DType:
    return dtypes.bool_


DOMAINS: dict[str, Callable[[str, DType, DType], DType]] = {
    "any": _any, "number": _number, "integer": _integer, "inexact": _inexact, "bits": _bits,
    "truth": _truth}


# ---- functions that are more than one op ------------------------------------------------------

_e = build.elementwise


def _or_bool(op: Op, on_bool: Op) -> Callable[[UOp, UOp], UOp]:
    def make(a: UOp, b: UOp) -> UOp:
        return _e(on_bool if a.dtype.is_bool else op, a, b)
    return make


def floor_divide(a: UOp, b: UOp) -> UOp:
    """Rounds down. Float: by the remainder, so that q * b + r = a as nearly as can be.

    An integer by zero is -1 or -2, as in JAX.
    """
    zero = build.like(a, 0)
    by_zero = build.eq(b, zero)
    if a.dtype.is_float:
        left = build.rem(a, b)
        whole = build.div(build.sub(a, left), b)
        other = build.and_(build.ne(left, zero), build.ne(build.lt(left, zero),
                                                          build.lt(b, zero)))
        whole = build.where(other, build.sub(whole, build.like(a, 1)), whole)
        return build.where(by_zero, build.div(a, b), _e(ops.ROUND, whole))
    quotient = build.idiv(a, b)
    if a.dtype.kind == "uint":
        return quotient
    opposite = build.or_(build.ne(build.lt(a, zero), build.lt(b, zero)), by_zero)
    down = build.and_(build.ne(build.rem(a, b), zero), opposite)
    return build.where(down, build.sub(quotient, build.like(a, 1)), quotient)


def remainder(a: UOp, b: UOp) -> UOp:
    """The remainder that has the sign of the divisor."""
    left = build.rem(a, b)
    if a.dtype.kind == "uint":
        return left
    zero = build.like(a, 0)
    other = build.ne(build.lt(left, zero), build.lt(b, zero))
    return build.where(build.and_(build.ne(left, zero), other), build.add(left, b), left)


def power(a: UOp, b: UOp) -> UOp:
    """a to the b, of floats; integers by squaring, over the bits of b."""
    if a.dtype.is_float:
        return build.power(a, b)
    out, factor = build.like(a, 1), a
    one = build.like(b, 1)
    for bit in range(b.dtype.bits - (b.dtype.kind == "int")):
        digit = _e(ops.AND, _e(ops.SHR, b, build.like(b, bit)), one)
        out = build.where(build.eq(digit, one), build.mul(out, factor), out)
        factor = build.mul(factor, factor)
    return build.where(build.lt(b, build.like(b, 0)), build.like(a, 0), out) \
        if b.dtype.kind == "int" else out


def integer_power(x: UOp, n: int) -> UOp:
    """x to a known whole power, by multiplication; a negative one takes the reciprocal."""
    if n < 0:
        return build.div(build.like(x, 1), integer_power(x, -n))
    out: UOp | None = None
    while n:
        if n & 1:
            out = x if out is None else build.mul(out, x)
        n >>= 1
        x = build.mul(x, x) if n else x
    return build.like(x, 1) if out is None else out


def sign(x: UOp) -> UOp:
    """-1, 0 or 1; of a float zero or NaN, itself."""
    zero, one = build.like(x, 0), build.like(x, 1)
    if x.dtype.kind == "uint":
        return build.where(build.eq(x, zero), zero, one)
    below = build.where(build.lt(x, zero), build.like(x, -1), x)
    return build.where(build.lt(zero, x), one, below)


def logical_not(x: UOp) -> UOp:
    return _e(ops.NOT, x)


def _rounding(op: Op) -> Callable[[UOp], UOp]:
    """Whole numbers stay what they are."""
    return lambda x: _e(op, x) if x.dtype.is_float else x


def absolute(x: UOp) -> UOp:
    return x if x.dtype.kind in ("bool", "uint") else _e(ops.ABS, x)


def isnan(x: UOp) -> UOp:
    return build.ne(x, x)


def isinf(x: UOp) -> UOp:
    return build.eq(_e(ops.ABS, x), build.like(x, math.inf)) if x.dtype.is_float else \
        build.const(False, dtypes.bool_, x.shape)


def isfinite(x: UOp) -> UOp:
    return build.lt(_e(ops.ABS, x), build.like(x, math.inf)) if x.dtype.is_float else \
        build.const(True, dtypes.bool_, x.shape)


def logaddexp(a: UOp, b: UOp) -> UOp:
    """log(exp(a) + exp(b)); where a - b is not a number (two equal infinities), a + b."""
    high, low = build.maximum(a, b), build.minimum(a, b)
    gap = build.sub(low, high)
    near = build.add(high, _e(ops.LOG1P, build.exp(gap)))
    return build.where(isnan(gap), build.add(a, b), near)


def logaddexp2(a: UOp, b: UOp) -> UOp:
    """log2(2**a + 2**b)."""
    scale = build.like(a, math.log(2.0))
    return build.div(logaddexp(build.mul(a, scale), build.mul(b, scale)), scale)


def hypot(a: UOp, b: UOp) -> UOp:
    """sqrt(a**2 + b**2) without overflow; 0 at the origin, inf beside an infinity."""
    x, y = _e(ops.ABS, a), _e(ops.ABS, b)
    high, low = build.maximum(x, y), build.minimum(x, y)
    zero, one = build.like(a, 0), build.like(a, 1)
    plain = build.or_(build.eq(high, zero), build.eq(high, build.like(a, math.inf)))
    ratio = build.div(low, build.where(plain, one, high))
    inside = build.mul(high, build.sqrt(build.add(one, build.mul(ratio, ratio))))
    infinite = build.or_(isinf(x), isinf(y))
    return build.where(infinite, build.like(a, math.inf), build.where(plain, high, inside))


def log2(x: UOp) -> UOp:
    return build.div(build.log(x), build.like(x, math.log(2.0)))


def log10(x: UOp) -> UOp:
    return build.div(build.log(x), build.like(x, math.log(10.0)))


def exp2(x: UOp) -> UOp:
    return build.power(build.like(x, 2), x)


def tan(x: UOp) -> UOp:
    return build.div(_e(ops.SIN, x), _e(ops.COS, x))


def sinh(x: UOp) -> UOp:
    """By expm1 where that keeps digits, else (exp(x) - exp(-x)) / 2."""
    half, one = build.like(x, 0.5), build.like(x, 1)
    grown = _e(ops.EXPM1, x)
    near = build.mul(half, build.add(grown, build.div(grown, build.add(grown, one))))
    far = build.sub(_half_exp(x), _half_exp(build.neg(x)))
    return build.where(build.lt(_e(ops.ABS, x), one), near, far)


def cosh(x: UOp) -> UOp:
    return build.add(_half_exp(x), _half_exp(build.neg(x)))


def _half_exp(x: UOp) -> UOp:
    """exp(x) / 2, finite wherever the result is."""
    half = build.like(x, 0.5)
    root = build.exp(build.mul(half, x))
    return build.mul(build.mul(half, root), root)


def sigmoid(x: UOp) -> UOp:
    """1 / (1 + exp(-x)) by the exponential that does not overflow."""
    zero, one = build.like(x, 0), build.like(x, 1)
    negative = build.lt(x, zero)
    small = build.exp(build.where(negative, x, build.neg(x)))
    return build.div(build.where(negative, small, one), build.add(one, small))


def rsqrt(x: UOp) -> UOp:
    return build.div(build.like(x, 1), build.sqrt(x))


def reciprocal(x: UOp) -> UOp:
    return build.div(build.like(x, 1), x)


def _swapped(f: Callable[[UOp, UOp], UOp]) -> Callable[[UOp, UOp], UOp]:
    return lambda a, b: f(b, a)


def _unary(op: Op) -> Callable[[UOp], UOp]:
    return lambda x: _e(op, x)


def _binary(op: Op) -> Callable[[UOp, UOp], UOp]:
    return lambda a, b: _e(op, a, b)


# ---- the rows ---------------------------------------------------------------------------------
# fmt: off

ADD = Function("add", "any", _or_bool(ops.ADD, ops.OR))
SUBTRACT = Function("subtract", "number", _binary(ops.SUB))
MULTIPLY = Function("multiply", "any", _or_bool(ops.MUL, ops.AND))
DIVIDE = Function("divide", "inexact", _binary(ops.DIV))
FLOOR_DIVIDE = Function("floor_divide", "integer", floor_divide)
REMAINDER = Function("remainder", "integer", remainder)
FMOD = Function("fmod", "integer", _binary(ops.REM))
POWER = Function("power", "integer", power)
FLOAT_POWER = Function("float_power", "inexact", power)
MAXIMUM = Function("maximum", "any", _or_bool(ops.MAX, ops.OR))
MINIMUM = Function("minimum", "any", _or_bool(ops.MIN, ops.AND))
LOGADDEXP = Function("logaddexp", "inexact", logaddexp)
LOGADDEXP2 = Function("logaddexp2", "inexact", logaddexp2)
HYPOT = Function("hypot", "inexact", hypot)

LESS = Function("less", "any", _binary(ops.CMPLT))
LESS_EQUAL = Function("less_equal", "any", _binary(ops.CMPLE))
GREATER = Function("greater", "any", _swapped(_binary(ops.CMPLT)))
GREATER_EQUAL = Function("greater_equal", "any", _swapped(_binary(ops.CMPLE)))
EQUAL = Function("equal", "any", _binary(ops.CMPEQ))
NOT_EQUAL = Function("not_equal", "any", _binary(ops.CMPNE))

BITWISE_AND = Function("bitwise_and", "bits", _binary(ops.AND))
BITWISE_OR = Function("bitwise_or", "bits", _binary(ops.OR))
BITWISE_XOR = Function("bitwise_xor", "bits", _binary(ops.XOR))
LEFT_SHIFT = Function("left_shift", "bits", _binary(ops.SHL))
RIGHT_SHIFT = Function("right_shift", "bits", _binary(ops.SHR))
INVERT = Function("invert", "bits", _unary(ops.NOT))
LOGICAL_AND = Function("logical_and", "truth", _binary(ops.AND))
LOGICAL_OR = Function("logical_or", "truth", _binary(ops.OR))
LOGICAL_XOR = Function("logical_xor", "truth", _binary(ops.XOR))
LOGICAL_NOT = Function("logical_not", "truth", logical_not)

NEGATIVE = Function("negative", "number", _unary(ops.NEG))
POSITIVE = Function("positive", "any", lambda x: x)
ABSOLUTE = Function("absolute", "any", absolute)
FABS = Function("fabs", "inexact", absolute)
SIGN = Function("sign", "number", sign)
SQUARE = Function("square", "integer", lambda x: build.mul(x, x))
FLOOR = Function("floor", "any", _rounding(ops.FLOOR))
CEIL = Function("ceil", "any", _rounding(ops.CEIL))
TRUNC = Function("trunc", "any", _rounding(ops.TRUNC))
RINT = Function("rint", "inexact", _unary(ops.ROUND))
ISNAN = Function("isnan", "any", isnan)
ISINF = Function("isinf", "any", isinf)
ISFINITE = Function("isfinite", "any", isfinite)

SQRT = Function("sqrt", "inexact", _unary(ops.SQRT))
RSQRT = Function("rsqrt", "inexact", rsqrt)
RECIPROCAL = Function("reciprocal", "inexact", reciprocal)
EXP = Function("exp", "inexact", _unary(ops.EXP))
EXP2 = Function("exp2", "inexact", exp2)
EXPM1 = Function("expm1", "inexact", _unary(ops.EXPM1))
LOG = Function("log", "inexact", _unary(ops.LOG))
LOG1P = Function("log1p", "inexact", _unary(ops.LOG1P))
LOG2 = Function("log2", "inexact", log2)
LOG10 = Function("log10", "inexact", log10)
SIN = Function("sin", "inexact", _unary(ops.SIN))
COS = Function("cos", "inexact", _unary(ops.COS))
TAN = Function("tan", "inexact", tan)
SINH = Function("sinh", "inexact", sinh)
COSH = Function("cosh", "inexact", cosh)
TANH = Function("tanh", "inexact", _unary(ops.TANH))
SIGMOID = Function("sigmoid", "inexact", sigmoid)
# fmt: on

# Python's operators, by the op that core/operators.py names them with.
OPERATORS: dict[Op, Function] = {
    ops.ADD: ADD, ops.SUB: SUBTRACT, ops.MUL: MULTIPLY, ops.DIV: DIVIDE,
    ops.IDIV: FLOOR_DIVIDE, ops.REM: REMAINDER, ops.POW: POWER, ops.AND: BITWISE_AND,
    ops.OR: BITWISE_OR, ops.XOR: BITWISE_XOR, ops.SHL: LEFT_SHIFT, ops.SHR: RIGHT_SHIFT,
    ops.NEG: NEGATIVE, ops.ABS: ABSOLUTE, ops.NOT: INVERT, ops.CMPLT: LESS,
    ops.CMPLE: LESS_EQUAL, ops.CMPEQ: EQUAL, ops.CMPNE: NOT_EQUAL}
