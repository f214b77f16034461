"""Values of a user-written kernel: one number at each point of the ranges it depends on.

Ranges are values of dtype ``index``: integers that address elements. Combined with an operand
that is not an index they act as weakly typed numbers (``i * 0.5``). Promotion is that of
fnx.numpy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fnx.core.array.convert import SCALAR_DTYPES, truncate_scalar
from fnx.core.formulas import elementwise
from fnx.core.formulas.elementwise import DOMAINS, OPERATORS, ElementwiseFn
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import ValueOperators
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, add_location, current_loc, rebuild
from fnx.core.rewriting import symbolic
from fnx.core.scope.scope import recorded_location
from fnx.core.support.errors import KernelError, set_missing_names, user_location
from fnx.core.support.line_visits import recording
from fnx.core.support.name_hints import CURES_OF_KERNEL_VALUES
from fnx.transforms.kernel_lang.trace_state import check_owner, current, range_names

# The functions that unbounded integers (dtype index) support.
_INDEX_FUNCTIONS = frozenset({
    elementwise.ADD, elementwise.SUBTRACT, elementwise.MULTIPLY, elementwise.FLOOR_DIVIDE,
    elementwise.REMAINDER, elementwise.MAXIMUM, elementwise.MINIMUM, elementwise.NEGATIVE,
    elementwise.LESS, elementwise.LESS_EQUAL, elementwise.GREATER, elementwise.GREATER_EQUAL,
    elementwise.EQUAL, elementwise.NOT_EQUAL})

# Python's operators by their NumPy names.
_NUMPY_OPERATORS = {row.name: row for row in (
    *OPERATORS.values(), elementwise.GREATER, elementwise.GREATER_EQUAL)}


KERNEL_FUNCTIONS: set[str] = set()  # the names in fnx.kernel, which adds them


def _hint_instead_of(name: str) -> str:
    """Return what to use in a kernel instead of a function of arrays."""
    return f"use k.{name}" if name in KERNEL_FUNCTIONS else \
        "in a kernel use operators and the functions of fnx.kernel: k.sin(x), k.loop for loops, " \
        "k.when or k.where for branches; and x[i] where x is an argument of the kernel"


_KINDS_WITH_LINES = frozenset({"elementwise", "reduce", "pair"})


class Value(ValueOperators):
    """A number at each point of the ranges it depends on, in a kernel that is being traced.

    >>> import fnx, fnx.kernel as k
    >>> @fnx.call(out=lambda x: x)
    ... def twice(x, o):
    ...     i = k.range(x.shape[0])  # a Value, as are x[i] and 2 * x[i]
    ...     o[i] = 2 * x[i]
    >>> twice(fnx.numpy.ones(2))
    Array([2., 2.], dtype=float32)
    """

    __slots__ = ("node", "weak", "tracing")
    node: UOp

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Value:
        """Handle ``number * value`` for a NumPy scalar; reject NumPy functions of a value."""
        row = _NUMPY_OPERATORS.get(ufunc.__name__)
        if method != "__call__" or kwargs or row is None or isinstance(inputs[0], Value):
            raise KernelError(f"np.{ufunc.__name__}: expected an array or a number, got a value in "
                              "a kernel", hint=_hint_instead_of(ufunc.__name__))
        return apply(row, *[x[()] if isinstance(x, np.ndarray) and not x.ndim else x
                            for x in inputs])  # np.less passes the number as a 0-d array

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        name = getattr(current_loc.loc, "function", "")  # of fnx.numpy
        raise KernelError(f"expected an array or a number, got {self!r}",
                          hint=_hint_instead_of(name))

    def __init__(self, node: UOp, weak: bool = False) -> None:
        self.node, self.weak, self.tracing = node, weak, current()
        self.tracing.values[node] = None
        if recording.recorder is None and node.op.kind in _KINDS_WITH_LINES:
            add_location(node, recorded_location(2))

    @property
    def dtype(self) -> DType:
        """The element type; ``index`` for ranges and for values computed from them."""
        return self.node.dtype

    def _apply(self, op: Op, *operands: Any) -> Value:
        return apply(OPERATORS[op], *operands)

    def __bool__(self) -> bool:
        raise _unknown_error(
            "write (a > 0) & (b > 0), | and ~ instead of `and`, `or` and `not`, (0 <= i) & (i < n) "
            "instead of 0 <= i < n, and k.where(condition, a, b) or k.when instead of `if`")

    def __float__(self) -> float:
        raise _unknown_error("compute with the kernel value directly; k.cast(x, dtype) converts it")

    def __int__(self) -> int:
        raise _unknown_error("compute with the kernel value directly; k.cast(x, dtype) converts it")

    def __index__(self) -> int:
        raise _unknown_error("for a loop use k.range(n); to look up a table pass it as an "
                             "argument of the kernel and read table[i]")

    def __iter__(self) -> Iterator[Value]:
        raise self._scalar_error()

    def __len__(self) -> int:
        raise self._scalar_error()

    def __getitem__(self, index: Any) -> Value:
        raise self._scalar_error()

    def _scalar_error(self) -> KernelError:
        return KernelError(f"expected values to iterate over or to index, got one number: {self}",
                           hint="a range loops by itself: write o[i] = x[i], and k.sum(x[i], "
                                "over=i) or k.max(x[i], over=i) for Python's sum and max")

    def __repr__(self) -> str:
        names = ", ".join(sorted(r.arg.name or f"r{r.arg.id}" for r in self.node.ranges))
        return f"<kernel value {'weak ' if self.weak else ''}{self.dtype} over ({names})>"


set_missing_names(Value, "a value in a kernel", CURES_OF_KERNEL_VALUES)


def _unknown_error(hint: str) -> KernelError:
    return KernelError("expected a concrete Python value, got a value in a kernel",
                       hint=hint)


class NotAValue(ValueOperators):
    """Base of objects, such as a Reference, that cannot be used as a single value."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """The name used in errors."""
        raise NotImplementedError

    def _apply(self, op: Op, *operands: Any) -> NotAValue:
        raise _no_value_error(self)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise _no_value_error(self)


def _no_value_error(x: NotAValue) -> KernelError:
    return KernelError(f"expected an element, got the whole array {x.name!r}",
                       hint="read one element: x[i], or x[()] of a 0-d array")


def kind_of(x: Any) -> tuple[DType, bool]:
    """Return (dtype, whether the dtype is weak, as of a Python scalar)."""
    if isinstance(x, Value):
        check_owner("a value", x.tracing)
        return x.dtype, x.weak
    scalar = SCALAR_DTYPES.get(type(x))
    if scalar is not None:
        return scalar(), type(x) is not bool
    if isinstance(x, np.generic):
        return dtypes.as_dtype(x.dtype), False
    if isinstance(x, NotAValue):
        raise _no_value_error(x)
    in_trace = getattr(x, "_storage", x) is None  # as in the body of a loop of fnx.lax
    raise KernelError(f"expected a value of the kernel or a number, got {type(x).__name__}",
                      hint="in a kernel write loops with k.loop, branches with k.when or k.where"
                      if in_trace else "pass arrays as arguments of the kernel")


def number_kind(x: Any) -> tuple[DType, bool]:
    """Like ``kind_of``, with a range as a weakly typed int32."""
    t, weak = kind_of(x)
    return (dtypes.int32, True) if t is dtypes.index else (t, weak)


def fits(x: Any, to: DType) -> bool:
    """Whether a value or a number is stored as a dtype without k.cast.

    A value has that dtype; a number may have another one of its kind, or of a lower kind: an
    integer fits a float, but no float fits an integer.
    """
    t, weak = number_kind(x)
    return t is to or (weak or not isinstance(x, Value)) and \
        dtypes.promote(to, False, t, not t.is_bool)[0] is to


def as_node(x: Any, to: DType) -> UOp:
    """Convert a value or a number to a node of a dtype."""
    if not isinstance(x, Value):
        return build.const(truncate_scalar(x, to), to)
    if to.is_bool and not x.dtype.is_bool:
        return build.ne(x.node, build.const_like(x.node, 0))
    return build.cast(x.node, to)


def as_index(x: Any) -> UOp:
    """Convert a range, a value or a number to an index along an axis."""
    if isinstance(x, Value):
        check_owner("a value", x.tracing)
    if isinstance(x, int | np.integer) and not isinstance(x, bool):
        return build.index_const(int(x))
    if isinstance(x, Value) and x.dtype.is_integer:
        return build.cast(x.node, dtypes.index)
    raise KernelError(f"expected an index (a range, or an integer value), got {x!r}",
                      hint="create a range with k.range(n); write a slice as a loop over it")


def as_condition(x: Any) -> UOp:
    """Return the node of a bool value."""
    if isinstance(x, Value) and x.dtype.is_bool:
        check_owner("a value", x.tracing)
        return x.node
    raise KernelError(f"expected a condition, got {x!r}", hint="compare values: i < n")


def apply(f: ElementwiseFn, *operands: Any) -> Value:
    """Apply an elementwise function to values and Python scalars, with fnx's promotion."""
    kinds = [kind_of(x) for x in operands]
    if any(t is dtypes.index for t, _ in kinds):
        if f in _INDEX_FUNCTIONS and all(t.is_integer for t, _ in kinds):
            return _apply_index(f, operands)
        kinds = [number_kind(x) for x in operands]
    t, weak = kinds[0]
    for other in kinds[1:]:
        t, weak = dtypes.promote(t, weak, *other)
    to = DOMAINS[f.domain](f.name, t)
    result = _strip_stop_gradient(f.build(*[as_node(x, to) for x in operands]))
    return Value(result, weak and result.dtype is to)


def _strip_stop_gradient(node: UOp) -> UOp:
    """Remove STOP_GRADIENTs, which matter only to derivatives."""
    return rebuild([node], lambda n, src: src[0] if n.op is ops.STOP_GRADIENT else None)[0]


def _apply_index(f: ElementwiseFn, operands: Sequence[Any]) -> Value:
    nodes = [as_index(x) for x in operands]
    truncating = {elementwise.FLOOR_DIVIDE: build.idiv, elementwise.REMAINDER: build.rem}.get(f)
    if truncating is not None and symbolic.bounds(nodes[0])[0] >= 0 < symbolic.bounds(nodes[1])[0]:
        return Value(symbolic.simplify(truncating(*nodes)))
    return Value(symbolic.simplify(f.build(*nodes)))


def select(condition: Any, a: Any, b: Any) -> Value:
    """Return ``a`` where the condition holds, else ``b``."""
    where, kinds = as_condition(condition), (kind_of(a), kind_of(b))
    if any(t is dtypes.index for t, _ in kinds) and all(t.is_integer for t, _ in kinds):
        return Value(build.where(where, as_index(a), as_index(b)))
    t, _ = dtypes.promote(*number_kind(a), *number_kind(b))
    return Value(build.where(where, as_node(a, t), as_node(b, t)))


def clip(x: Any, low: Any, high: Any) -> Value:
    """Clamp a value to bounds; None means unbounded."""
    out = x if low is None else apply(elementwise.MAXIMUM, low, x)
    return apply(elementwise.POSITIVE, out) if high is None else \
        apply(elementwise.MINIMUM, high, out)


def convert(x: Any, dtype: Any) -> Value:
    """Convert a value to another dtype."""
    kind_of(x)
    return Value(as_node(x, dtypes.as_dtype(dtype)))


def make_range(n: Any, name: str) -> Value:
    """Create a range of the kernel being traced."""
    tracing = current()
    if not isinstance(name, str):
        raise KernelError(f"range: expected a length and a name, got {n!r} and {name!r}",
                          hint="a range starts at 0: i = k.range(stop - start) + start")
    extent = symbolic.simplify(as_index(n))
    if extent.op is not ops.CONST:
        raise KernelError(
            "range: expected a concrete length, got one that depends on "
            + (range_names(sorted(extent.ranges, key=lambda r: r.arg.id)) if extent.ranges
               else "data"),
            hint="use the maximum length and mask the rest: j = k.range(n), "
            "x.load(i, j, valid=j <= i)")
    if symbolic.bounds(extent)[0] < 0:
        raise KernelError(f"range: expected a length >= 0, got {n!r}")
    if name and any(r.arg.name == name for r in tracing.ranges):
        raise KernelError(f"range: expected a new name, got {name!r} again")
    r = build.range_(extent, len(tracing.ranges), "SEQ", name)
    tracing.ranges.append(r)
    tracing.range_locs[r] = user_location()
    return Value(r)


def ranges_of(name: str, over: Any) -> list[UOp]:
    """Return the RANGEs of an argument ``over``."""
    ranges = over if isinstance(over, tuple | list) else (over,)
    for r in ranges:
        if not (isinstance(r, Value) and r.node.op is ops.RANGE):
            raise KernelError(f"{name}: expected ranges in over=, got {r!r}",
                              hint="pass ranges returned by k.range(...) as over=" + (
                                  f"; of two values: k.{name}imum(a, b)"
                                  if name in ("max", "min") else ""))
    return [r.node for r in ranges]


def reduce_over(name: str, monoid: Op, x: Any, over: Any) -> Value:
    """Reduce a value over ranges; the result no longer depends on them."""
    t, _ = number_kind(x)
    to = t if t is not dtypes.bool_ or monoid in (ops.AND, ops.OR) else dtypes.int32
    return Value(build.reduce_ranges(as_node(x, to), monoid, ranges_of(name, over)))
