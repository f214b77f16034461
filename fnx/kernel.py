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
- ``k.loop`` hands values from one iteration to the next; ``k.when`` skips work; ``k.print``
  shows values, on the interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeAlias, TypeVar

import numpy as np

from fnx.core import ops
from fnx.core.array import elementwise, special
from fnx.core.array.convert import DTypeLike
from fnx.core.array.elementwise import ElementwiseRow
from fnx.core.errors import module_face
from fnx.core.tiling import (
    collect,
    grid,
    order,
    parallel,
    split,
    stage,
    subtotal,
    tensorize,
    thread,
    unroll,
    vectorize,
)
from fnx.numpy import unary
from fnx.transforms.kernels import kernel_prints, loops, references, values
from fnx.transforms.kernels.references import Reference
from fnx.transforms.kernels.values import Value

__all__ = [
    "Reference", "Value", "abs", "all", "any", "arctan", "arctan2", "atan2", "bitwise_and",
    "bitwise_or", "bitwise_xor", "cast", "cbrt", "ceil", "clip", "collect", "cos", "cosh", "erf",
    "erfc", "exp", "exp2", "expm1", "floor", "floor_divide", "fmod", "grid", "hypot",
    "invert", "isfinite", "isinf", "isnan", "left_shift", "local", "log", "log1p", "log2", "log10",
    "logaddexp", "logaddexp2", "logical_and", "logical_not", "logical_or", "logical_xor", "loop",
    "max", "maximum", "min", "minimum", "negative", "order", "parallel", "power", "print", "prod",
    "range", "reciprocal", "remainder", "right_shift", "rint", "rsqrt", "sigmoid", "sign", "sin",
    "sinh", "split", "sqrt", "square", "stage", "subtotal", "sum", "tan", "tanh", "tensorize",
    "thread", "trunc", "unroll", "vectorize", "when", "where",
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
    return values.make_range(n, name)


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
    return references.make_local(value, over)


def loop(n: Value | SupportsIndex, step: Callable[..., Any], *first: Operand,
         until: Callable[..., Any] | None = None, name: str = "") -> Any:
    """Iterations in order, each of which hands values to the next.

    Args:
        n: how many there are.
        step: (i, *values) -> the next values: of iteration i, and of what the one before it gave.
            It may store to outputs.
        first: the values that the first iteration gets.
        until: (i, *values) -> a condition; where it holds, this iteration and those after it
            are not run. Neighbours may end apart: each runs as long as its own does not hold.
        name: what schedules call the range of i.

    Returns:
        The last values: one, or a tuple.

    Raises:
        KernelError: no first values, or another number of next ones.
        DTypeError: a next value is of another dtype than the first one.

    >>> import fnx, fnx.kernel as k
    >>> @fnx.call(out=lambda x: x)
    ... def running(x, o):
    ...     def step(i, total):
    ...         o[i] = total + x[i]
    ...         return total + x[i]
    ...     k.loop(x.shape[0], step, 0)
    >>> running(fnx.numpy.arange(5))
    Array([ 0,  1,  3,  6, 10], dtype=int32)
    """
    return loops.loop(n, step, first, until, name)


def when(condition: Value, then: Callable[[], Any], *otherwise: Operand) -> Any:
    """What ``then()`` returns where a condition holds; elsewhere its work is not done.

    Args:
        condition: a value of dtype bool.
        then: returns as many values as ``otherwise`` has. It may store to outputs.
        otherwise: the values where the condition does not hold.

    Returns:
        None, a value, or a tuple of values.

    Raises:
        KernelError: another number of values.

    >>> import fnx, fnx.kernel as k
    >>> @fnx.call(out=lambda x: x)
    ... def roots(x, o):
    ...     i = k.range(x.shape[0])
    ...     o[i] = k.when(x[i] > 0, lambda: k.sqrt(x[i]), -1)
    >>> roots(fnx.numpy.asarray([4.0, -4.0]))
    Array([ 2., -1.], dtype=float32)
    """
    return loops.when(condition, then, otherwise)


def print(fmt: str, *args: Any, **kwargs: Any) -> None:
    """Print a line in each iteration; only on the interpreter (``device="interp"``).

    There is one for each value of the ranges that the arguments depend on, and of the loops
    around it; none where ``k.when`` skips it. Lines come in the order of the program: prints that
    follow one another share the loops that they have in common. A kernel that prints runs
    without its schedule.

    Args:
        fmt: a format string as ``str.format`` takes it.
        args: values of the kernel, or anything that is known while it is traced.
        kwargs: as ``args``, by name.

    Raises:
        ArgumentError: the format string does not name the arguments.
        KernelError: another device.

    >>> import fnx, fnx.kernel as k
    >>> from fnx.core.config import override
    >>> @fnx.call(out=lambda x: x)
    ... def kernel(x, o):
    ...     i = k.range(x.shape[0])
    ...     k.when(x[i] > 1, lambda: k.print("x[{}] = {value:.1f}", i, value=x[i]))
    ...     o[i] = x[i]
    >>> with override(device="interp"):
    ...     y = kernel(fnx.numpy.asarray([1.0, 2.0, 3.0]))
    x[1] = 2.0
    x[2] = 3.0
    """
    kernel_prints.record(fmt, args, kwargs)


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
    return values.convert(x, dtype)


def clip(x: Operand, min: Operand | None = None, max: Operand | None = None) -> Value:
    """A value kept between bounds, where they are given; the upper one wins.

    Args:
        x: a value of the kernel or a number.
        min, max: values of the kernel, numbers, or None.

    Returns:
        A value of their common dtype.

    Raises:
        KernelError: an operand is neither a value nor a number.

    >>> import fnx, fnx.kernel as k
    >>> @fnx.call(out=lambda x: x)
    ... def kernel(x, o):
    ...     i = k.range(x.shape[0])
    ...     o[i] = k.clip(x[i], 0, 2)
    >>> kernel(fnx.numpy.asarray([-1, 1, 3]))
    Array([0, 1, 2], dtype=int32)
    """
    return values.clip(x, min, max)


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
    return values.select(condition, a, b)


class _Fold(Protocol):
    def __call__(self, value: Operand, over: Ranges) -> Value: ...


class _Unary(Protocol):
    def __call__(self, x: Operand, /) -> Value: ...


class _Binary(Protocol):
    def __call__(self, x: Operand, y: Operand, /) -> Value: ...


def _fold(name: str, monoid: ops.Op, what: str, result: str) -> _Fold:
    def fold(value: Operand, over: Ranges) -> Value:
        return values.fold(name, monoid, value, over)
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
    >>> kernel(fnx.numpy.asarray([3, 1, 2])).item()
    {result}
    """
    return fold


sum = _fold("sum", ops.ADD, "The sum", "6")
prod = _fold("prod", ops.MUL, "The product", "6")
max = _fold("max", ops.MAX, "The largest", "3")
min = _fold("min", ops.MIN, "The smallest", "1")
all = _fold("all", ops.AND, "Whether all hold, or the bits that all have,", "0")
any = _fold("any", ops.OR, "Whether any holds, or the bits that any has,", "3")


_BITS = ("bits", "whole")  # domains without floats


def _unary(row: ElementwiseRow, name: str = "") -> _Unary:
    def apply(x: Operand, /) -> Value:
        return values.apply(row, x)
    return _described(apply, name or row.name, "x", "i" if row.domain in _BITS else "x[i]")


def _binary(row: ElementwiseRow) -> _Binary:
    def apply(x: Operand, y: Operand, /) -> Value:
        return values.apply(row, x, y)
    return _described(apply, row.name, "x, y", "i, 1" if row.domain in _BITS else "x[i], x[0]")


def _described(f: F, name: str, operands: str, example: str) -> F:
    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"""``fnx.numpy.{name}`` at each place.

    Args:
        {operands}: values of the kernel or numbers.

    Returns:
        A value of the dtype that ``fnx.numpy.{name}`` has.

    Raises:
        KernelError: an operand is neither a value nor a number.
        DTypeError: bits of a float, or arithmetic of bools.

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
arctan = _unary(unary.ARCTAN)
arctan2 = _binary(elementwise.ARCTAN2)
atan2 = arctan2
bitwise_and = _binary(elementwise.BITWISE_AND)
bitwise_or = _binary(elementwise.BITWISE_OR)
bitwise_xor = _binary(elementwise.BITWISE_XOR)
cbrt = _unary(unary.CBRT)
ceil = _unary(elementwise.CEIL)
cos = _unary(unary.COS)
cosh = _unary(elementwise.COSH)
erf = _unary(special.ERF)
erfc = _unary(special.ERFC)
exp = _unary(unary.EXP)
exp2 = _unary(elementwise.EXP2)
expm1 = _unary(unary.EXPM1)
floor = _unary(elementwise.FLOOR)
floor_divide = _binary(elementwise.FLOOR_DIVIDE)
fmod = _binary(elementwise.FMOD)
hypot = _binary(elementwise.HYPOT)
invert = _unary(elementwise.INVERT)
isfinite = _unary(elementwise.ISFINITE)
isinf = _unary(elementwise.ISINF)
isnan = _unary(elementwise.ISNAN)
left_shift = _binary(elementwise.LEFT_SHIFT)
log = _unary(unary.LOG)
log10 = _unary(elementwise.LOG10)
log1p = _unary(unary.LOG1P)
log2 = _unary(elementwise.LOG2)
logaddexp = _binary(elementwise.LOGADDEXP)
logaddexp2 = _binary(elementwise.LOGADDEXP2)
logical_and = _binary(elementwise.LOGICAL_AND)
logical_not = _unary(elementwise.LOGICAL_NOT)
logical_or = _binary(elementwise.LOGICAL_OR)
logical_xor = _binary(elementwise.LOGICAL_XOR)
maximum = _binary(elementwise.MAXIMUM)
minimum = _binary(elementwise.MINIMUM)
negative = _unary(elementwise.NEGATIVE)
power = _binary(elementwise.POWER)
reciprocal = _unary(elementwise.RECIPROCAL)
remainder = _binary(elementwise.REMAINDER)
right_shift = _binary(elementwise.RIGHT_SHIFT)
rint = _unary(elementwise.RINT)
rsqrt = _unary(elementwise.RSQRT)
sigmoid = _unary(elementwise.SIGMOID)
sign = _unary(elementwise.SIGN)
sin = _unary(unary.SIN)
sinh = _unary(elementwise.SINH)
sqrt = _unary(unary.SQRT)
square = _unary(elementwise.SQUARE)
tan = _unary(unary.TAN)
tanh = _unary(unary.TANH)
trunc = _unary(elementwise.TRUNC)

if not TYPE_CHECKING:
    __getattr__, __dir__ = module_face(__name__, __all__)
