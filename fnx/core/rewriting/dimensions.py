"""Bounded dimensions: lengths that are variables while a function is traced.

A ``Dim`` is an index expression over named variables with bounds, in the normal form of
symbolic.py. It stands in shapes in place of an int:

>>> t = dim("T", 1, 4096)
>>> 2 * t + 1, (t * 8) // 8 == t, t + 1 > 1
(2*T + 1, True, True)

A comparison is decided by the bounds. If they leave it open, ``<`` raises, and ``==`` is False and
recorded as an assumption (``Assumptions``): the trace does not hold for lengths at which the two
are equal. Choices of fnx's own code are assumptions, too, but for its ``==``, which only saves work
(a broadcast of what has the shape already); where a result depends on it, ``is_equal`` is asked.

The length itself, as a value in the graph, is a DIMENSION node.
"""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Callable, Mapping
from numbers import Integral
from types import FrameType
from typing import Any
from zlib import crc32

from fnx.core.ir import build, dtypes, kernel_args, op_args, ops
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.support.errors import PACKAGE, ArgumentError, InconclusiveDimensionError
from fnx.core.support.process import lazy_import

algebra = lazy_import("fnx.core.rewriting.algebra")
symbolic = lazy_import("fnx.core.rewriting.symbolic")

MAX_LENGTH = (1 << 31) - 1
TYPICAL_LENGTH = 1 << 10  # of a dimension without narrower bounds
_HINT = "give the dimension tighter bounds, fnx.dim(name, low, high), or make this length static"


class Dim(op_args.Dimension):
    """A length that is known at the call: an integer expression over bounded variables."""

    __slots__ = ()

    # ---- arithmetic

    def __add__(self, other: Any) -> Any:
        return _combine(build.add, self, other, operator.add)

    def __radd__(self, other: Any) -> Any:
        return _combine(build.add, self, other, operator.add)

    def __sub__(self, other: Any) -> Any:
        return _combine(build.sub, self, other, operator.sub)

    def __rsub__(self, other: Any) -> Any:
        return _combine(lambda a, b: build.sub(b, a), self, other, lambda a, b: b - a)

    def __mul__(self, other: Any) -> Any:
        return _combine(build.mul, self, other, operator.mul)

    __rmul__ = __mul__

    def __neg__(self) -> Any:
        return 0 - self

    def __pos__(self) -> Dim:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __floordiv__(self, other: Any) -> Any:
        return _combine(_floor_divide, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return _combine(lambda a, b: _floor_divide(b, a), self, other)

    def __mod__(self, other: Any) -> Any:
        return _combine(_remainder, self, other)

    def __rmod__(self, other: Any) -> Any:
        return _combine(lambda a, b: _remainder(b, a), self, other)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __pow__(self, other: Any) -> Any:
        if type(other) is int and other >= 0:
            result: Any = 1
            for _ in range(other):
                result = result * self
            return result
        return self.__jax_array__() ** other

    def __rpow__(self, other: Any) -> Any:
        return other ** self.__jax_array__()

    def __truediv__(self, other: Any) -> Any:
        return self.__jax_array__() / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.__jax_array__()

    # ---- order

    def __lt__(self, other: Any) -> Any:
        return _decide(build.lt, "<", self, other)

    def __le__(self, other: Any) -> Any:
        return _decide(build.le, "<=", self, other)

    def __gt__(self, other: Any) -> Any:
        return _decide(lambda a, b: build.lt(b, a), ">", self, other)

    def __ge__(self, other: Any) -> Any:
        return _decide(lambda a, b: build.le(b, a), ">=", self, other)

    def __eq__(self, other: object) -> bool:
        node = as_operand(other)
        if node is None:
            return NotImplemented
        if node is self.node:
            return True
        condition = build.eq(self.node, node)
        equal = symbolic.prove(condition)
        return bool(equal) if equal is not None or _in_fnx() else _assume_unequal(condition)

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __hash__(self) -> int:
        return hash(self.node)

    def __bool__(self) -> bool:
        return self != 0

    # ---- conversions

    def __index__(self) -> int:
        raise self._needs_number("an integer")

    def __int__(self) -> int:
        raise self._needs_number("an integer")

    def __float__(self) -> float:
        raise self._needs_number("a float")

    def __getattr__(self, name: str) -> Any:
        if hasattr(int, name) and not name.startswith("_"):
            raise self._needs_number("an integer")  # n.bit_length()
        raise AttributeError(f"a dimension has no attribute {name!r}", name=name, obj=self)

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **_: Any) -> Any:
        f = _OPERATORS.get(ufunc.__name__) if method == "__call__" and len(operands) == 2 else None
        if f is None:
            raise self._needs_number(f"an integer for numpy.{ufunc.__name__}")
        return f(*[x.item() if hasattr(x, "item") else x for x in operands])

    def _needs_number(self, what: str) -> InconclusiveDimensionError:
        return InconclusiveDimensionError(
            f"expected {what}, got the dimension {self}, which is known at the call only",
            hint="compute with it by fnx.numpy (jnp.arange(n), jnp.sqrt(n)), loop with lax.scan "
                 "or lax.fori_loop, or make this length static")

    def __jax_array__(self) -> Any:
        return _as_array[0](self)

    def __repr__(self) -> str:
        return _text(self.node)

    # ---- reading

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest length that it can have."""
        low, high = symbolic.bounds(self.node)
        return low, high

    def at(self, lengths: Mapping[Any, Any]) -> Any:
        """Return the length for these values of the variables, ints or Dims."""
        for v in variables(self):
            if v not in lengths:
                raise ArgumentError(f"expected dimensions of the arguments, got {v.arg.name}",
                                    hint="take lengths from the shape of an argument, "
                                         "x.shape[0]")
        if any(type(n) is Dim for n in lengths.values()):
            nodes: dict[UOp, Any] = {v: as_operand(lengths[v]) for v in variables(self)}
            length = length_of(substitute([self.node], nodes)[0])
        else:
            length = algebra.evaluate(self.node, lengths)
        return length


# by NumPy's names: a NumPy number comes first in ``np.float32(2) * n``
_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul,
    "floor_divide": operator.floordiv, "remainder": operator.mod, "power": operator.pow,
    "divide": operator.truediv, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge, "equal": operator.eq,
    "not_equal": operator.ne}
_as_array: list[Callable[[Dim], Any]] = []


def set_as_array(convert: Callable[[Dim], Any]) -> None:
    """Register how a Dim becomes an Array."""
    _as_array[:] = [convert]


def dim(name: str, low: int = 1, high: int = MAX_LENGTH) -> Dim:
    """Return a dimension: a length between ``low`` and ``high`` that is known at the call.

    >>> rows = dim("rows", 1, 64)
    >>> rows.bounds
    (1, 64)

    Args:
        name: a Python name; equal names with equal bounds are one dimension.
        low: the least length, at least 0.
        high: the greatest length.

    Returns:
        A length for shapes of ``fnx.ShapeDtypeStruct``.

    Raises:
        ArgumentError: no name, or no such bounds.
    """
    if not name.isidentifier():
        raise ArgumentError(f"expected a Python name for a dimension, got {name!r}")
    if not 0 <= low <= high <= MAX_LENGTH:
        raise ArgumentError(f"expected 0 <= low <= high < 2**31 for the dimension {name}, got "
                            f"{low} and {high}")
    return Dim(build.var(crc32(name.encode()), dtypes.index, low, high, name))


def variables(length: Any) -> list[UOp]:
    """Return the variables of a length, in the order of first use; none of an int."""
    return [n for n in toposort([length.node]) if n.op is ops.VAR] if type(length) is Dim else []


# ---- assumptions --------------------------------------------------------------------------------


class _Current(threading.local):
    current: Assumptions | None = None


_assumptions = _Current()


class Assumptions:
    """Conditions on lengths that a trace took for true or false, as their bounds left them open.

    ``typical`` are lengths for which fnx's own choices (the order of two products, say) are made.
    In the user's code only ``==`` is assumed, to be False, and not ``<``.
    """

    def __init__(self, typical: Mapping[UOp, int] | None = None) -> None:
        self.conditions: dict[UOp, bool] = {}
        self._typical = typical
        self._outer: Assumptions | None = None

    def __enter__(self) -> Assumptions:
        self._outer, _assumptions.current = _assumptions.current, self
        return self

    def __exit__(self, *_: Any) -> None:
        _assumptions.current = self._outer

    def add(self, condition: UOp, value: bool) -> None:
        """Record what the trace assumes."""
        self.conditions[symbolic.simplify(condition)] = value

    def choose(self, condition: UOp) -> bool:
        """Decide a choice of fnx's by typical lengths, and record it."""
        lengths = {v: _typical_length(v) for v in toposort([condition]) if v.op is ops.VAR} \
            if self._typical is None else self._typical
        value = bool(algebra.evaluate(condition, lengths))
        self.add(condition, value)
        return value

    def broken_by(self, lengths: Mapping[UOp, int]) -> str:
        """Return a condition that does not hold for these values of the variables; "" if all do."""
        return next((_text(c) if not value else f"not {_text(c)}"
                     for c, value in self.conditions.items()
                     if bool(algebra.evaluate(c, lengths)) is not value), "")


def _typical_length(variable: UOp) -> int:
    bounds: kernel_args.Var = variable.arg
    return max(bounds.low, min(bounds.high, TYPICAL_LENGTH))


def _assume_unequal(condition: UOp) -> bool:
    """Take two lengths for unequal, and return False."""
    current = _assumptions.current
    if current is not None:
        current.add(condition, False)
    return False


def is_equal(a: Any, b: Any) -> bool:
    """Whether two lengths are equal where the result depends on it, as in ``squeeze``: what the
    bounds leave open is assumed, as in the user's code."""
    if a == b or Dim not in (type(a), type(b)):
        return bool(a == b)
    condition = build.eq(required_operand(a), required_operand(b))
    return _assume_unequal(condition) if symbolic.prove(condition) is None else False


# ---- operands -----------------------------------------------------------------------------------


def as_operand(x: Any) -> UOp | None:
    if type(x) is Dim:
        node: UOp = x.node
        return node
    return build.index_const(int(x)) if isinstance(x, Integral) else None


def required_operand(x: Any) -> UOp:
    node = as_operand(x)
    assert node is not None
    return node


def _combine(op: Callable[[UOp, UOp], UOp], a: Dim, x: Any,
             of_arrays: Callable[[Any, Any], Any] | None = None) -> Any:
    b = as_operand(x)
    if b is None:
        return of_arrays(a.__jax_array__(), x) if of_arrays and type(x) is float \
            else NotImplemented
    return length_of(op(a.node, b))


def length_of(node: UOp) -> Any:
    """Return an index expression as a length: an int, or a Dim."""
    node = symbolic.simplify(node)
    return build.const_of(node) if node.op is ops.CONST else Dim(node)


def _floor_divide(a: UOp, b: UOp) -> UOp:
    """Return the quotient rounded down: IDIV of a number that is made >= 0 first."""
    low, least = symbolic.bounds(a)[0], symbolic.bounds(b)[0]
    if least <= 0:
        raise InconclusiveDimensionError(f"expected a positive divisor, got {_text(b)}",
                                         hint=_HINT)
    raised = max(0, -(low // least))
    k = build.index_const(raised)
    return build.idiv(a, b) if not raised else \
        build.sub(build.idiv(build.add(a, build.mul(k, b)), b), k)


def _remainder(a: UOp, b: UOp) -> UOp:
    """Return a - b * floor(a / b), which is REM of a number >= 0."""
    return build.rem(a, b) if symbolic.bounds(a)[0] >= 0 < symbolic.bounds(b)[0] else \
        build.sub(a, build.mul(b, _floor_divide(a, b)))


def _decide(condition: Callable[[UOp, UOp], UOp], symbol: str, a: Dim, x: Any) -> Any:
    b = as_operand(x)
    if b is None:
        return NotImplemented
    node = condition(a.node, b)
    result: bool | None = symbolic.prove(node)
    if result is not None:
        return result
    if _assumptions.current is not None and _in_fnx():
        return _assumptions.current.choose(node)
    raise InconclusiveDimensionError(
        f"expected a comparison that the bounds decide, got {a} {symbol} {x} with "
        f"{_bounds_text(a, x)}", hint=_HINT + "; jnp.where and lax.cond choose at the call")


def _in_fnx() -> bool:
    """Whether fnx's own code compares."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(PACKAGE)


def _bounds_text(*lengths: Any) -> str:
    used = {v: None for x in lengths for v in variables(x)}
    return " and ".join([f"{v.arg.low} <= {v.arg.name} <= {v.arg.high}" for v in used])


# ---- text ---------------------------------------------------------------------------------------

_TEXT = {ops.ADD: "{} + {}", ops.SUB: "{} - {}", ops.MUL: "{}*{}", ops.IDIV: "floordiv({}, {})",
         ops.REM: "mod({}, {})", ops.CMPLT: "{} < {}", ops.CMPLE: "{} <= {}", ops.CMPEQ: "{} == {}",
         ops.CMPNE: "{} != {}", ops.MIN: "min({}, {})", ops.MAX: "max({}, {})", ops.NEG: "-{}"}
_SUMS, _CALLS = (ops.ADD, ops.SUB), (ops.MIN, ops.MAX, ops.IDIV, ops.REM)


def _text(node: UOp) -> str:
    """Return an index expression in Python's notation."""
    text: dict[UOp, str] = {}
    for n in toposort([node]):
        if n.op is ops.CONST:
            text[n] = str(build.const_of(n))
        elif n.op is ops.VAR:
            text[n] = n.arg.name
        elif n.op in _TEXT:
            operands = n.src[::-1] if n.op is ops.MUL and n.src[1].op is ops.CONST else n.src
            text[n] = _TEXT[n.op].format(*[_in_parentheses(s, n, text[s]) for s in operands])
        else:
            text[n] = f"{n.op.name.lower()}({', '.join([text[s] for s in n.src])})"
    return text[node]


def _in_parentheses(inner: UOp, outer: UOp, text: str) -> str:
    needed = inner.op in _SUMS and outer.op not in (ops.ADD, *_CALLS)
    return f"({text})" if needed else text
