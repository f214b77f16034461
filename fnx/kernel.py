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
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fnx.core import ops
from fnx.core.array import elementwise
from fnx.core.array.elementwise import Function
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


def range(n: Any, name: str = "") -> Value:
    """A loop 0 <= i < n; ``name`` is what schedules call it.

    >>> import fnx, fnx.kernel as k
    >>> @fnx.call(out=lambda x: x)
    ... def reverse(x, o):
    ...     i = k.range(x.shape[0], "i")
    ...     o[i] = x[x.shape[0] - 1 - i]
    >>> reverse(fnx.numpy.arange(4))
    Array([3, 2, 1, 0], dtype=int32)
    """
    return kernel_trace.make_range(n, name)


def local(value: Any, over: Any) -> Reference:
    """Keep a value over ranges, to read it by index in other loops.

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


def cast(x: Any, dtype: Any) -> Value:
    """A value (or a range) as another dtype."""
    return kernel_trace.convert(x, dtype)


def where(condition: Any, a: Any, b: Any) -> Value:
    """``a`` where the condition holds, else ``b``; both are computed."""
    return kernel_trace.select(condition, a, b)


def _fold(name: str, monoid: ops.Op, what: str) -> Callable[..., Value]:
    def fold(value: Any, over: Any) -> Value:
        return kernel_trace.fold(name, monoid, value, over)
    fold.__name__ = fold.__qualname__ = name
    fold.__doc__ = f"{what} of a value over a range, or a tuple of ranges."
    return fold


sum = _fold("sum", ops.ADD, "The sum")
prod = _fold("prod", ops.MUL, "The product")
max = _fold("max", ops.MAX, "The largest")
min = _fold("min", ops.MIN, "The smallest")
all = _fold("all", ops.AND, "Whether all hold, or the bits that all have,")
any = _fold("any", ops.OR, "Whether any holds, or the bits that any has,")


def _elementwise(f: Function) -> Callable[..., Value]:
    def apply(*values: Any) -> Value:
        return kernel_trace.apply(f, *values)
    apply.__name__ = apply.__qualname__ = f.name
    apply.__doc__ = f"{f.name}, at each place; as in fnx.numpy."
    return apply


abs = _elementwise(elementwise.ABSOLUTE)
ceil = _elementwise(elementwise.CEIL)
cos = _elementwise(elementwise.COS)
exp = _elementwise(elementwise.EXP)
expm1 = _elementwise(elementwise.EXPM1)
floor = _elementwise(elementwise.FLOOR)
isfinite = _elementwise(elementwise.ISFINITE)
isinf = _elementwise(elementwise.ISINF)
isnan = _elementwise(elementwise.ISNAN)
log = _elementwise(elementwise.LOG)
log1p = _elementwise(elementwise.LOG1P)
logical_and = _elementwise(elementwise.LOGICAL_AND)
logical_not = _elementwise(elementwise.LOGICAL_NOT)
logical_or = _elementwise(elementwise.LOGICAL_OR)
maximum = _elementwise(elementwise.MAXIMUM)
minimum = _elementwise(elementwise.MINIMUM)
rsqrt = _elementwise(elementwise.RSQRT)
sigmoid = _elementwise(elementwise.SIGMOID)
sign = _elementwise(elementwise.SIGN)
sin = _elementwise(elementwise.SIN)
sqrt = _elementwise(elementwise.SQRT)
square = _elementwise(elementwise.SQUARE)
tan = _elementwise(elementwise.TAN)
tanh = _elementwise(elementwise.TANH)
trunc = _elementwise(elementwise.TRUNC)
