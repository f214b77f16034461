"""Build elementwise graphs in mathematical notation: ``0.5 * x * (1 + tanh(x))``.

An ``Expr`` wraps a node with Python's operators; each builds a node of the same level by
``build.elementwise``, so ``//`` and ``%`` round toward zero, as IDIV and REM do. A number operand
becomes a constant of the Expr's dtype and shape. ``==`` is identity, as between nodes: values are
compared by ``x.eq(y)`` and ``x.ne(y)``.

A formula is written over Exprs; ``as_node_function`` turns it into a function of nodes.

>>> from fnx.core.ir import dtypes
>>> x = Expr(build.param(0, dtypes.float32, (3,)))
>>> (2.0 * x + 1.0).node.op
ADD
>>> @as_node_function
... def softsign(x: Expr) -> Expr:
...     return x / (1 + abs(x))
>>> softsign(x.node).op
DIV

``Operators`` are Python's operators in terms of ops, shared by arrays, formulas and patterns: a
class defines ``_apply``, which applies an op to operands and returns a node, Array or pattern.

>>> class Spelled(Operators):
...     def _apply(self, op, *operands):
...         return op
>>> Spelled() * 2
MUL
"""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fnx.core.ir import build, ops
from fnx.core.ir.build import elementwise
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op, Shape
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError

Self = TypeVar("Self", bound="Operators")


def _binary(op: Op) -> Callable[[Self, Any], Self]:
    def apply(x: Self, o: Any) -> Self:
        return x._apply(op, x, o)
    return apply


def _reflected(op: Op) -> Callable[[Self, Any], Self]:
    def apply(x: Self, o: Any) -> Self:
        return x._apply(op, o, x)
    return apply


def _unary(op: Op) -> Callable[[Self], Self]:
    def apply(x: Self) -> Self:
        return x._apply(op, x)
    return apply


class Operators:
    """Arithmetic, bitwise and order operators in terms of ``_apply``; ``==`` is identity."""

    __slots__ = ()

    def _apply(self: Self, op: Op, *operands: Any) -> Self:
        raise NotImplementedError

    __add__ = _binary(ops.ADD)
    __radd__ = _reflected(ops.ADD)
    __sub__ = _binary(ops.SUB)
    __rsub__ = _reflected(ops.SUB)
    __mul__ = _binary(ops.MUL)
    __rmul__ = _reflected(ops.MUL)
    __truediv__ = _binary(ops.DIV)
    __rtruediv__ = _reflected(ops.DIV)
    __floordiv__ = _binary(ops.IDIV)
    __rfloordiv__ = _reflected(ops.IDIV)
    __mod__ = _binary(ops.REM)
    __rmod__ = _reflected(ops.REM)
    __pow__ = _binary(ops.POW)
    __rpow__ = _reflected(ops.POW)
    __and__ = _binary(ops.AND)
    __rand__ = _reflected(ops.AND)
    __or__ = _binary(ops.OR)
    __ror__ = _reflected(ops.OR)
    __xor__ = _binary(ops.XOR)
    __rxor__ = _reflected(ops.XOR)
    __lshift__ = _binary(ops.SHL)
    __rshift__ = _binary(ops.SHR)
    __neg__ = _unary(ops.NEG)
    __abs__ = _unary(ops.ABS)
    __invert__ = _unary(ops.NOT)
    __lt__ = _binary(ops.CMPLT)
    __le__ = _binary(ops.CMPLE)
    __gt__ = _reflected(ops.CMPLT)
    __ge__ = _reflected(ops.CMPLE)


for _name, _method in [(n, m) for n, m in vars(Operators).items() if n.startswith("__")]:
    if getattr(_method, "__name__", "") == "apply":
        _method.__name__, _method.__qualname__ = _name, f"Operators.{_name}"


class ValueOperators(Operators):
    """Operators whose ``==`` and ``!=`` compare values, for users; not hashable."""

    __slots__ = ()

    def __eq__(self: Self, o: Any) -> Self:  # type: ignore[override]
        return self._apply(ops.CMPEQ, self, o)

    def __ne__(self: Self, o: Any) -> Self:  # type: ignore[override]
        return self._apply(ops.CMPNE, self, o)

    def __hash__(self) -> int:
        raise ArgumentError(f"unhashable: expected a dict key or an element of a set, got "
                            f"{textwrap.shorten(str(self), 60)}",
                            hint="index an array, values[i], or use fnx.lax.switch; x.item() "
                                 "gives a number if the value is concrete")


class Expr(Operators):
    """A node with Python's operators."""

    __slots__ = ("node",)

    def __init__(self, node: UOp) -> None:
        self.node = node

    def __repr__(self) -> str:
        return f"Expr({self.node!r})"

    def __bool__(self) -> bool:
        raise TypeError("an Expr has no truth value; choose with where(condition, a, b)")

    def _apply(self, op: Op, *operands: Any) -> Expr:
        if len(operands) == 2:  # fast path, as the user waits for tracing
            a, b = operands
            return Expr(elementwise(op,
                                    a.node if type(a) is Expr else build.const_like(self.node, a),
                                    b.node if type(b) is Expr else build.const_like(self.node, b)))
        return Expr(elementwise(op, *[self._node_of(o) for o in operands]))

    def _node_of(self, x: Expr | float) -> UOp:
        return x.node if isinstance(x, Expr) else build.const_like(self.node, x)

    def __pow__(self, n: Any) -> Expr:
        """Raise to a power; an integer power becomes multiplications (and a reciprocal)."""
        return integer_power(self, n) if type(n) is int else self._apply(ops.POW, self, n)

    def eq(self, other: Any) -> Expr:
        """Compare the values for equality."""
        return self._apply(ops.CMPEQ, self, other)

    def ne(self, other: Any) -> Expr:
        """Compare the values for inequality."""
        return self._apply(ops.CMPNE, self, other)

    @property
    def dtype(self) -> DType:
        return self.node.dtype

    @property
    def shape(self) -> Shape:
        return self.node.shape

    def like(self, value: Any) -> Expr:
        """Return a constant of this dtype and shape."""
        return Expr(build.const_like(self.node, value))

    def cast(self, dtype: DType) -> Expr:
        """Convert the values to another dtype."""
        return Expr(build.cast(self.node, dtype))

    def bitcast(self, dtype: DType) -> Expr:
        """Reinterpret the bits as another dtype."""
        return Expr(build.bitcast(self.node, dtype))

    def bits(self) -> Expr:
        """Return the bit pattern, as a signed integer of the same width."""
        return Expr(build.bitcast(self.node, self.node.dtype.integer))


def as_node_function(formula: Callable[..., Expr]) -> Callable[..., UOp]:
    """Turn a formula over Exprs into a function of nodes."""
    @functools.wraps(formula)
    def apply(*nodes: UOp) -> UOp:
        return formula(*map(Expr, nodes)).node
    return apply


# ---- functions --------------------------------------------------------------------------------


def _function(op: Op) -> Callable[[Expr], Expr]:
    def apply(x: Expr) -> Expr:
        return Expr(elementwise(op, x.node))
    return apply


real = _function(ops.REAL)
imag = _function(ops.IMAG)
exp = _function(ops.EXP)
expm1 = _function(ops.EXPM1)
log = _function(ops.LOG)
log1p = _function(ops.LOG1P)
sqrt = _function(ops.SQRT)
sin = _function(ops.SIN)
cos = _function(ops.COS)
tanh = _function(ops.TANH)
arctan = _function(ops.ATAN)
arcsin = _function(ops.ASIN)
floor = _function(ops.FLOOR)
ceil = _function(ops.CEIL)
trunc = _function(ops.TRUNC)  # toward zero
erf = _function(ops.ERF)
erfc = _function(ops.ERFC)  # 1 - erf(x)
lgamma = _function(ops.LGAMMA)  # log |gamma(x)|
digamma = _function(ops.DIGAMMA)  # the derivative of lgamma
rint = _function(ops.ROUND)  # to the nearest integer, ties to even


def complex_number(x: Expr, y: Expr) -> Expr:
    """Return x + iy."""
    return Expr(elementwise(ops.COMPLEX, x.node, y.node))


def isnan(x: Expr) -> Expr:
    return x.ne(x)


def maximum(a: Expr, b: Expr | float) -> Expr:
    return a._apply(ops.MAX, a, b)


def minimum(a: Expr, b: Expr | float) -> Expr:
    return a._apply(ops.MIN, a, b)


def clamp(x: Expr, low: float, high: float) -> Expr:
    """Clamp ``x`` to low .. high."""
    return minimum(maximum(x, low), high)


def where(condition: Expr, a: Expr | float, b: Expr | float) -> Expr:
    """Select ``a`` where the condition holds, else ``b``; a number takes the other's dtype."""
    x = a if isinstance(a, Expr) else b
    assert isinstance(x, Expr), "one of the two has a dtype"
    return Expr(elementwise(ops.WHERE, condition.node, x._node_of(a), x._node_of(b)))


def unlikely(condition: Expr, a: Expr, b: Expr) -> Expr:
    """Build a ``where`` with an unlikely condition: ``a`` is computed behind a branch."""
    return Expr(where(condition, a, b).node.replace(arg=ops.UNLIKELY))


def mulacc(a: Expr, b: Expr | float, c: Expr | float) -> Expr:
    """Build a * b + c with one rounding, if the target supports it."""
    return Expr(elementwise(ops.MULACC, a.node, a._node_of(b), a._node_of(c)))


def polynomial(coefficients: Sequence[float], x: Expr) -> Expr:
    """Evaluate a polynomial by Horner's scheme; coefficients from the constant term up."""
    *lower, highest = coefficients
    out = x.like(highest)
    for c in reversed(lower):
        out = mulacc(x, out, c)
    return out


def stop_gradient(x: Expr) -> Expr:
    """Return x as a constant for derivatives (in formulas over arrays)."""
    return Expr(build.stop_gradient(x.node))


def integer_power(x: Expr, n: int) -> Expr:
    """Raise x to a constant integer power by repeated squaring; take the reciprocal if n < 0."""
    if n < 0:
        return 1 / integer_power(x, -n)
    out: Expr | None = None
    while n:
        if n & 1:
            out = x if out is None else out * x
        n >>= 1
        x = x * x if n else x
    return x.like(1) if out is None else out
