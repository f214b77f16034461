"""Hand-written kernels: what is computed at each place, and separately how to tile it.

    import fnx.kernel as k

    @fnx.call(out=lambda x, w: fnx.ShapeDtypeStruct((x.shape[0], w.shape[1]), x.dtype),
              schedule=[k.split("m", 14), k.split("n", 16), k.vectorize("ni"), ...])
    def matmul(x, w, o):
        m, n, kk = k.range(o.shape[0], "m"), k.range(o.shape[1], "n"), k.range(x.shape[1], "k")
        o[m, n] = k.sum(x[m, kk] * w[kk, n], over=kk)

A kernel gets references, inputs then outputs. It makes ranges, reads places (``x[m, kk]``),
computes with operators and the functions here, and writes places (``o[m, n] = ...``). Python
runs once, when the kernel is traced; loops come from the ranges.

What a kernel may do is the same on every device, and the rest is refused where it is written:

- The length of a range is a number. Mask what is ragged: ``x.load(i, j, valid=j <= i)``.
- Outputs are written and not read. Iterations have no order: a plain store writes each place
  once; ``o.combine("add", i, value)`` folds what meets, "set" keeps the last one.
- Places that nothing writes are 0; where a kernel combines, they start from what changes nothing.
- An index made of ranges is inside, or ``valid=`` leaves out where it is not. An index that is
  data is clamped when it reads and left out when it writes, where bounds do not prove it inside;
  ``config.check_index`` makes it an error, ``checked=False`` says that you have proved it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeAlias, TypeVar

import numpy as np

from fnx.core import ops
from fnx.core.array import elementwise
from fnx.core.array.convert import DTypeLike
from fnx.core.array.elementwise import Function
from fnx.core.errors import module_face
from fnx.core.tiling import order, parallel, split, stage, unroll, vectorize
from fnx.transforms.kernels import kernel_trace
from fnx.transforms.kernels.kernel_trace import Reference, Value

__all__ = [
    "Reference", "Value", "abs", "all", "any", "cast", "ceil", "cos", "exp", "expm1", "floor",
    "isfinite", "isinf", "isnan", "local", "log", "log1p", "logical_and", "logical_not",
    "logical_or", "max", "maximum", "min", "minimum", "order", "parallel", "prod", "range",
    "rsqrt", "sigmoid", "sign", "sin", "split", "sqrt", "square", "stage", "sum", "tan", "tanh",
    "trunc", "unroll", "vectorize", "where",
]

Operand: TypeAlias = Value | np.generic | float
Ranges: TypeAlias = Value | tuple[Value, ...] | list[Value]
F = TypeVar("F", bound=Callable[..., Any])


def range(n: Value | SupportsIndex, name: str = "") -> Value:
    """A loop 0 <= i < n.

    Args:
        n: its length: a number, or a value that depends on no other range.
        name: what schedules call it; each name once.

    Returns:
        The range: a value of dtype ``index``, for places.

    Raises:
        KernelError: a negative length, or a name that is taken.

    >>> import fnx, fnx.kernel as k
    >>> @fnx.call(out=lambda x: x)
    ... def reverse(x, o):
    ...     i = k.range(x.shape[0], "i")
    ...     o[i] = x[x.shape[0] - 1 - i]
    >>> reverse(fnx.numpy.arange(4))
    Array([3, 2, 1, 0], dtype=int32)
    """
    return kernel_trace.make_range(n, name)


def local(value: Operand, over: Ranges) -> Reference:
    """Keep a value over ranges, to read it by index in other loops.

    Args:
        value: a value of the kernel.
        over: a range, or a tuple of ranges, which are closed.

    Returns:
        A reference with one axis for each range.

    Raises:
        KernelError: ``over`` is no range.

    >>> import fnx, fnx.kernel as k
    >>> @fnx.call(out=lambda x: x)
    ... def softmax(x, o):
    ...     row, c0, c1, c2 = k.range(x.shape[0]), *(k.range(x.shape[1]) for _ in "012")
    ...     e = k.exp(x[row, c1] - k.max(x[row, c0], over=c0))
    ...     kept = k.local(e, over=c1)
    ...     o[row, c2] = kept[c2] / k.sum(e, over=c1)
    >>> softmax(fnx.numpy.zeros((1, 4)))
    Array([[0.25, 0.25, 0.25, 0.25]], dtype=float32)
    """
    return kernel_trace.make_local(value, over)


def cast(x: Operand, dtype: DTypeLike) -> Value:
    """A value (or a range) as another dtype.

    Args:
        x: a value of the kernel or a number.
        dtype: the dtype of the result.

    Returns:
        A value of that dtype.

    Raises:
        DTypeError: a dtype that fnx does not hold.

    >>> import fnx, fnx.kernel as k
    >>> @fnx.call(out=lambda x: x)
    ... def places(x, o):
    ...     i = k.range(x.shape[0])
    ...     o[i] = k.cast(i, "float32")
    >>> places(fnx.numpy.zeros(3))
    Array([0., 1., 2.], dtype=float32)
    """
    return kernel_trace.convert(x, dtype)


def where(condition: Value, a: Operand, b: Operand) -> Value:
    """``a`` where the condition holds, else ``b``; both are computed.

    Args:
        condition: a value of dtype bool.
        a, b: values of the kernel or numbers; they promote as in fnx.numpy.

    Returns:
        A value of the dtype of a and b.

    Raises:
        KernelError: the condition is no comparison.

    >>> import fnx, fnx.kernel as k
    >>> @fnx.call(out=lambda x: x)
    ... def clipped(x, o):
    ...     i = k.range(x.shape[0])
    ...     o[i] = k.where(x[i] < 0, 0, x[i])
    >>> clipped(fnx.numpy.asarray([-1.0, 2.0]))
    Array([0., 2.], dtype=float32)
    """
    return kernel_trace.select(condition, a, b)


class _Fold(Protocol):
    def __call__(self, value: Operand, over: Ranges) -> Value: ...


class _Unary(Protocol):
    def __call__(self, x: Operand, /) -> Value: ...


class _Binary(Protocol):
    def __call__(self, x: Operand, y: Operand, /) -> Value: ...


def _fold(name: str, monoid: ops.Op, what: str, result: str) -> _Fold:
    def fold(value: Operand, over: Ranges) -> Value:
        return kernel_trace.fold(name, monoid, value, over)
    fold.__name__ = fold.__qualname__ = name
    fold.__doc__ = f"""{what} of a value over ranges.

    Args:
        value: a value of the kernel or a number.
        over: a range, or a tuple of ranges; they are closed, so the result is free of them.

    Returns:
        A value of the dtype of ``value``.

    Raises:
        KernelError: ``over`` is no range.

    >>> import fnx, fnx.kernel as k
    >>> @fnx.call(out=lambda x: fnx.ShapeDtypeStruct((), "int32"))
    ... def kernel(x, o):
    ...     i = k.range(x.shape[0])
    ...     o[()] = k.{name}(x[i], over=i)
    >>> print(kernel(fnx.numpy.asarray([3, 1, 2])))
    {result}
    """
    return fold


sum = _fold("sum", ops.ADD, "The sum", "6")
prod = _fold("prod", ops.MUL, "The product", "6")
max = _fold("max", ops.MAX, "The largest", "3")
min = _fold("min", ops.MIN, "The smallest", "1")
all = _fold("all", ops.AND, "Whether all hold, or the bits that all have,", "0")
any = _fold("any", ops.OR, "Whether any holds, or the bits that any has,", "3")


def _unary(row: Function, name: str = "") -> _Unary:
    def apply(x: Operand, /) -> Value:
        return kernel_trace.apply(row, x)
    return _described(apply, name or row.name, "x", "x[i]")


def _binary(row: Function) -> _Binary:
    def apply(x: Operand, y: Operand, /) -> Value:
        return kernel_trace.apply(row, x, y)
    return _described(apply, row.name, "x, y", "x[i], x[0]")


def _described(f: F, name: str, operands: str, example: str) -> F:
    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"""``fnx.numpy.{name}`` at each place.

    Args:
        {operands}: values of the kernel or numbers.

    Returns:
        A value of the dtype that ``fnx.numpy.{name}`` has.

    Raises:
        KernelError: an operand is neither a value nor a number.
        DTypeError: an operand is a range, which is for places.

    >>> import fnx, fnx.kernel as k
    >>> @fnx.call(out=lambda x: x)
    ... def kernel(x, o):
    ...     i = k.range(x.shape[0])
    ...     o[i] = k.cast(k.{name}({example}), "float32")
    >>> kernel(fnx.numpy.ones(2)).shape
    (2,)
    """
    return f


abs = _unary(elementwise.ABSOLUTE, "abs")
ceil = _unary(elementwise.CEIL)
cos = _unary(elementwise.COS)
exp = _unary(elementwise.EXP)
expm1 = _unary(elementwise.EXPM1)
floor = _unary(elementwise.FLOOR)
isfinite = _unary(elementwise.ISFINITE)
isinf = _unary(elementwise.ISINF)
isnan = _unary(elementwise.ISNAN)
log = _unary(elementwise.LOG)
log1p = _unary(elementwise.LOG1P)
logical_and = _binary(elementwise.LOGICAL_AND)
logical_not = _unary(elementwise.LOGICAL_NOT)
logical_or = _binary(elementwise.LOGICAL_OR)
maximum = _binary(elementwise.MAXIMUM)
minimum = _binary(elementwise.MINIMUM)
rsqrt = _unary(elementwise.RSQRT)
sigmoid = _unary(elementwise.SIGMOID)
sign = _unary(elementwise.SIGN)
sin = _unary(elementwise.SIN)
sqrt = _unary(elementwise.SQRT)
square = _unary(elementwise.SQUARE)
tan = _unary(elementwise.TAN)
tanh = _unary(elementwise.TANH)
trunc = _unary(elementwise.TRUNC)

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_face(__name__, __all__)
