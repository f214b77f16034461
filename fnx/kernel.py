"""User-written kernels: an algorithm per element, and separately a schedule that tiles it.

    import fnx.kernel as k

    @fnx.call(out=lambda x, w: fnx.ShapeDtypeStruct((x.shape[0], w.shape[1]), x.dtype),
              schedule=[k.split("m", 14), k.split("n", 16), k.vectorize("ni"), ...])
    def matmul(x, w, o):
        m, n, kk = k.range(o.shape[0], "m"), k.range(o.shape[1], "n"), k.range(x.shape[1], "k")
        o[m, n] = k.sum(x[m, kk] * w[kk, n], over=kk)

A kernel takes references, first the inputs, then the outputs. It creates ranges, loads elements
(``x[m, kk]``), computes with operators and the functions here, and stores elements
(``o[m, n] = ...``). Python runs once, when the kernel is traced; loops come from the ranges.

A kernel may do the same on every device; anything else raises at the line that does it:

- The length of a range is a number. Mask ragged accesses: ``x.load(i, j, valid=j <= i)``.
- Outputs are written and not read. Iterations are unordered: the iterations of a plain
  store write different elements, and of two stores to an element the later in the code counts.
  ``o.combine("add", i, value)`` reduces colliding values, "set" keeps the last one.
- Elements that nothing writes are 0; with ``combine`` they start from the identity of the
  reduction.
- An index built from ranges must be in bounds, or ``valid=`` must mask it. An index that is data is
  clamped by a load and skipped by a store, unless bounds prove it in range;
  ``config.check_index`` makes it an error, ``checked=False`` states that you have proved it.
- ``k.loop`` carries values from one iteration to the next; ``k.when`` skips work; ``k.print``
  shows values, on the interpreter.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, SupportsIndex, TypeAlias, TypeVar

import numpy as np

from fnx.core.array.call_validation import validate_call
from fnx.core.array.convert import DTypeLike
from fnx.core.formulas import elementwise, error_functions
from fnx.core.formulas.elementwise import ElementwiseFn
from fnx.core.ir import ops, tiling
from fnx.core.support.errors import KernelError, lazy_module
from fnx.transforms.kernel_lang import kernel_prints, loops, references, values
from fnx.transforms.kernel_lang.references import Reference
from fnx.transforms.kernel_lang.values import Value

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

collect = validate_call(tiling.collect)
grid = validate_call(tiling.grid)
order = validate_call(tiling.order)
parallel = validate_call(tiling.parallel)
split = validate_call(tiling.split)
stage = validate_call(tiling.stage)
subtotal = validate_call(tiling.subtotal)
tensorize = validate_call(tiling.tensorize)
thread = validate_call(tiling.thread)
unroll = validate_call(tiling.unroll)
vectorize = validate_call(tiling.vectorize)


@validate_call
def range(n: Value | SupportsIndex, name: str = "") -> Value:
    """Create a loop 0 <= i < n.

    Args:
        n: its length: a number, or a value that depends on no other range.
        name: its name in schedules; it must be unique.

    Returns:
        The range: a value of dtype ``index``, for use as an index.

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


@validate_call
def local(value: Operand, over: Ranges) -> Reference:
    """Store a value over ranges in a local array, to read it by index in other loops.

    Args:
        value: a value of the kernel.
        over: a range, or a tuple of ranges; these loops end here.

    Returns:
        A reference with one axis per range.

    Raises:
        KernelError: ``over`` is not a range.

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


@validate_call
def loop(n: Value | SupportsIndex, step: Callable[..., Any], *first: Operand,
         until: Callable[..., Any] | None = None, name: str = "") -> Any:
    """Run iterations in order, with values carried from each to the next.

    Args:
        n: the number of iterations.
        step: maps (i, *values), the iteration and the carried values, to the next values. It may
            store to outputs.
        first: the initial values.
        until: maps (i, *values) to a condition; if it holds, this and later iterations do not run.
            Elements of parallel ranges may end in different iterations.
        name: the name of the range of i in schedules.

    Returns:
        The final values: one, or a tuple.

    Raises:
        KernelError: no initial values, or ``step`` returns another number of values.
        DTypeError: ``step`` returns a value of another dtype than the initial one.

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


@validate_call
def when(condition: Value, then: Callable[[], Any], *otherwise: Operand) -> Any:
    """Evaluate ``then()`` only if a condition holds.

    Args:
        condition: a value of dtype bool.
        then: returns as many values as ``otherwise`` has. It may store to outputs.
        otherwise: the values if the condition does not hold.

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


@validate_call
def print(fmt: str, *args: Any, **kwargs: Any) -> None:
    """Print a line in each iteration; only on the interpreter (``device="interp"``).

    A line is printed for each value of the ranges that the arguments depend on, and of the
    enclosing loops; none where ``k.when`` skips it. Lines are in program order: consecutive prints
    share their common loops. A kernel that prints ignores its schedule.

    Args:
        fmt: a format string for ``str.format``.
        args: values of the kernel, or anything that is known while it is traced.
        kwargs: like ``args``, by name.

    Raises:
        ArgumentError: the format string does not match the arguments.
        KernelError: another device.

    >>> import fnx, fnx.kernel as k
    >>> from fnx.core.support.config import override
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
    kernel_prints.record_print(fmt, args, kwargs)


@validate_call
def cast(x: Operand, dtype: DTypeLike) -> Value:
    """Convert a value (or a range) to another dtype.

    Args:
        x: a value of the kernel or a number.
        dtype: the dtype of the result.

    Returns:
        A value of that dtype.

    Raises:
        DTypeError: an unsupported dtype.

    >>> import fnx, fnx.kernel as k
    >>> @fnx.call(out=lambda x: x)
    ... def places(x, o):
    ...     i = k.range(x.shape[0])
    ...     o[i] = k.cast(i, "float32")
    >>> places(fnx.numpy.zeros(3))
    Array([0., 1., 2.], dtype=float32)
    """
    return values.convert(x, dtype)


@validate_call
def clip(x: Operand, min: Operand | None = None, max: Operand | None = None) -> Value:
    """Clamp a value to the given bounds; the upper bound wins.

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


@validate_call
def where(condition: Value, a: Operand, b: Operand) -> Value:
    """Select ``a`` where the condition holds, else ``b``; both are computed.

    Args:
        condition: a value of dtype bool.
        a, b: values of the kernel or numbers; they promote as in fnx.numpy.

    Returns:
        A value of the dtype of a and b.

    Raises:
        KernelError: the condition is not a bool value.

    >>> import fnx, fnx.kernel as k
    >>> @fnx.call(out=lambda x: x)
    ... def clipped(x, o):
    ...     i = k.range(x.shape[0])
    ...     o[i] = k.where(x[i] < 0, 0, x[i])
    >>> clipped(fnx.numpy.asarray([-1.0, 2.0]))
    Array([0., 2.], dtype=float32)
    """
    return values.select(condition, a, b)


class _Reduction(Protocol):
    def __call__(self, value: Operand, over: Ranges = ()) -> Value: ...


class _Unary(Protocol):
    def __call__(self, x: Operand, /) -> Value: ...


class _Binary(Protocol):
    def __call__(self, x: Operand, y: Operand, /) -> Value: ...


def _reduction(name: str, monoid: ops.Op, summary: str, result: str) -> _Reduction:
    def reduce(value: Operand, over: Ranges = ()) -> Value:
        if isinstance(over, tuple | list) and not over:
            raise KernelError(f"{name}: expected the ranges to reduce over",
                              hint=f"write k.{name}(x[i], over=i), or over=(i, j)")
        return values.reduce_over(name, monoid, value, over)
    reduce.__name__ = reduce.__qualname__ = name
    reduce.__doc__ = f"""{summary} of a value over ranges.

    Args:
        value: a value of the kernel or a number.
        over: a range, or a tuple of ranges; they are closed, so the result is free of them.

    Returns:
        A value of the dtype of ``value``.

    Raises:
        KernelError: ``over`` is no range, or left out.

    >>> import fnx, fnx.kernel as k
    >>> @fnx.call(out=lambda x: fnx.ShapeDtypeStruct((), "int32"))
    ... def kernel(x, o):
    ...     i = k.range(x.shape[0])
    ...     o[()] = k.{name}(x[i], over=i)
    >>> kernel(fnx.numpy.asarray([3, 1, 2])).item()
    {result}
    """
    return validate_call(reduce)


sum = _reduction("sum", ops.ADD, "The sum", "6")
prod = _reduction("prod", ops.MUL, "The product", "6")
max = _reduction("max", ops.MAX, "The largest", "3")
min = _reduction("min", ops.MIN, "The smallest", "1")
all = _reduction("all", ops.AND, "Whether all hold, or the bits that all have,", "0")
any = _reduction("any", ops.OR, "Whether any holds, or the bits that any has,", "3")


_BITS = ("bits", "whole")  # domains without floats


def _unary(fn: ElementwiseFn, name: str = "") -> _Unary:
    def apply(x: Operand, /) -> Value:
        return values.apply(fn, x)
    example = "i" if fn.domain in _BITS else "x[i]"
    return validate_call(_document(apply, name or fn.name, "x", example))


def _binary(fn: ElementwiseFn) -> _Binary:
    def apply(x: Operand, y: Operand, /) -> Value:
        return values.apply(fn, x, y)
    example = "i, 1" if fn.domain in _BITS else "x[i], x[0]"
    return validate_call(_document(apply, fn.name, "x, y", example))


def _document(f: F, name: str, operands: str, example: str) -> F:
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
arctan = _unary(elementwise.ARCTAN)
arctan2 = _binary(elementwise.ARCTAN2)
atan2 = arctan2
bitwise_and = _binary(elementwise.BITWISE_AND)
bitwise_or = _binary(elementwise.BITWISE_OR)
bitwise_xor = _binary(elementwise.BITWISE_XOR)
cbrt = _unary(elementwise.CBRT)
ceil = _unary(elementwise.CEIL)
cos = _unary(elementwise.COS)
cosh = _unary(elementwise.COSH)
erf = _unary(error_functions.ERF)
erfc = _unary(error_functions.ERFC)
exp = _unary(elementwise.EXP)
exp2 = _unary(elementwise.EXP2)
expm1 = _unary(elementwise.EXPM1)
floor = _unary(elementwise.FLOOR)
floor_divide = _binary(elementwise.FLOOR_DIVIDE)
fmod = _binary(elementwise.FMOD)
hypot = _binary(elementwise.HYPOT)
invert = _unary(elementwise.INVERT)
isfinite = _unary(elementwise.ISFINITE)
isinf = _unary(elementwise.ISINF)
isnan = _unary(elementwise.ISNAN)
left_shift = _binary(elementwise.LEFT_SHIFT)
log = _unary(elementwise.LOG)
log10 = _unary(elementwise.LOG10)
log1p = _unary(elementwise.LOG1P)
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
sin = _unary(elementwise.SIN)
sinh = _unary(elementwise.SINH)
sqrt = _unary(elementwise.SQRT)
square = _unary(elementwise.SQUARE)
tan = _unary(elementwise.TAN)
tanh = _unary(elementwise.TANH)
trunc = _unary(elementwise.TRUNC)


values.KERNEL_FUNCTIONS.update(__all__)


class _Module(ModuleType):
    """This module: used as a decorator, it says which one is meant."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise KernelError("expected a decorator, got the module fnx.kernel",
                          hint="decorate a kernel with @fnx.call(out=lambda x: x)")


sys.modules[__name__].__class__ = _Module

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_module(__name__, __all__)
