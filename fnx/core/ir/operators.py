"""Python operators in terms of ops, shared by arrays, formulas and patterns.

A class defines ``_apply``, which applies an op to operands and returns a node, Array or pattern.

>>> class Spelled(Operators):
...     def _apply(self, op, *operands):
...         return op
>>> Spelled() * 2
MUL
"""

from __future__ import annotations

from typing import Any, TypeVar

from fnx.core.ir import ops
from fnx.core.ir.ops import Op
from fnx.core.support.errors import ArgumentError

Self = TypeVar("Self", bound="Operators")


class Operators:
    """Arithmetic, bitwise and order operators in terms of ``_apply``; ``==`` is identity."""

    __slots__ = ()

    def _apply(self: Self, op: Op, *operands: Any) -> Self:
        raise NotImplementedError

    def __add__(self: Self, o: Any) -> Self:
        return self._apply(ops.ADD, self, o)

    def __radd__(self: Self, o: Any) -> Self:
        return self._apply(ops.ADD, o, self)

    def __sub__(self: Self, o: Any) -> Self:
        return self._apply(ops.SUB, self, o)

    def __rsub__(self: Self, o: Any) -> Self:
        return self._apply(ops.SUB, o, self)

    def __mul__(self: Self, o: Any) -> Self:
        return self._apply(ops.MUL, self, o)

    def __rmul__(self: Self, o: Any) -> Self:
        return self._apply(ops.MUL, o, self)

    def __truediv__(self: Self, o: Any) -> Self:
        return self._apply(ops.DIV, self, o)

    def __rtruediv__(self: Self, o: Any) -> Self:
        return self._apply(ops.DIV, o, self)

    def __floordiv__(self: Self, o: Any) -> Self:
        return self._apply(ops.IDIV, self, o)

    def __rfloordiv__(self: Self, o: Any) -> Self:
        return self._apply(ops.IDIV, o, self)

    def __mod__(self: Self, o: Any) -> Self:
        return self._apply(ops.REM, self, o)

    def __rmod__(self: Self, o: Any) -> Self:
        return self._apply(ops.REM, o, self)

    def __pow__(self: Self, o: Any) -> Self:
        return self._apply(ops.POW, self, o)

    def __rpow__(self: Self, o: Any) -> Self:
        return self._apply(ops.POW, o, self)

    def __and__(self: Self, o: Any) -> Self:
        return self._apply(ops.AND, self, o)

    def __rand__(self: Self, o: Any) -> Self:
        return self._apply(ops.AND, o, self)

    def __or__(self: Self, o: Any) -> Self:
        return self._apply(ops.OR, self, o)

    def __ror__(self: Self, o: Any) -> Self:
        return self._apply(ops.OR, o, self)

    def __xor__(self: Self, o: Any) -> Self:
        return self._apply(ops.XOR, self, o)

    def __rxor__(self: Self, o: Any) -> Self:
        return self._apply(ops.XOR, o, self)

    def __lshift__(self: Self, o: Any) -> Self:
        return self._apply(ops.SHL, self, o)

    def __rshift__(self: Self, o: Any) -> Self:
        return self._apply(ops.SHR, self, o)

    def __neg__(self: Self) -> Self:
        return self._apply(ops.NEG, self)

    def __abs__(self: Self) -> Self:
        return self._apply(ops.ABS, self)

    def __invert__(self: Self) -> Self:
        return self._apply(ops.NOT, self)

    def __lt__(self: Self, o: Any) -> Self:
        return self._apply(ops.CMPLT, self, o)

    def __le__(self: Self, o: Any) -> Self:
        return self._apply(ops.CMPLE, self, o)

    def __gt__(self: Self, o: Any) -> Self:
        return self._apply(ops.CMPLT, o, self)

    def __ge__(self: Self, o: Any) -> Self:
        return self._apply(ops.CMPLE, o, self)


class ValueOperators(Operators):
    """Operators whose ``==`` and ``!=`` compare values, for users; not hashable."""

    __slots__ = ()

    def __eq__(self: Self, o: Any) -> Self:  # type: ignore[override]
        return self._apply(ops.CMPEQ, self, o)

    def __ne__(self: Self, o: Any) -> Self:  # type: ignore[override]
        return self._apply(ops.CMPNE, self, o)

    def __hash__(self) -> int:
        raise ArgumentError(f"unhashable: expected a dict key or an element of a set, got {self}",
                            hint="look up with an array, values[i], or fnx.lax.switch; "
                                 "x.item() is a number where the value is known")
