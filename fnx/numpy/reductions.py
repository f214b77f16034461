"""Functions of ``fnx.numpy`` that fold axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from fnx.core import build, dtypes, ops
from fnx.core.array import array as core
from fnx.core.array import axes, convert
from fnx.core.array.array import Array, public
from fnx.core.array.elementwise import DOMAINS
from fnx.core.array.promotion import as_node, operand
from fnx.core.dtypes import DType
from fnx.core.errors import ShapeError
from fnx.core.ops import Op
from fnx.core.uop import UOp
from fnx.numpy.elementwise import isclose
from fnx.numpy.movement import diagonal


def fold(name: str, node: UOp, monoid: Op, axis: Any, keepdims: bool) -> UOp:
    """REDUCE over an axis argument, with the axes kept as 1 on request."""
    over = axes.several(name, axis, len(node.shape))
    out = build.reduce(node, monoid, over)
    return build.reshape(out, tuple(1 if i in over else n for i, n in enumerate(node.shape))) \
        if keepdims else out


def counted(node: UOp, axis: Any) -> int:
    """How many elements an axis argument folds into one."""
    return math.prod(node.shape[a] for a in axes.several("mean", axis, len(node.shape)))


def _masked(node: UOp, where: Any, monoid: Op) -> UOp:
    """Elements that ``where`` leaves out are the identity of the monoid."""
    if where is None:
        return node
    test = as_node(operand(where), dtypes.bool_)
    shape = build.broadcast_shapes(node.shape, test.shape)
    node = build.expand(node, shape)
    assert monoid.identity is not None
    return build.where(build.expand(test, shape), node,
                       build.like(node, monoid.identity(node.dtype)))


Reduction = Callable[..., Array]


def _reduction(name: str, monoid: Op, domain: str, text: str, example: str, value: str
               ) -> Reduction:
    """A public fold. ``domain``: dtype of the elements, as in core/array/elementwise.py."""
    @public
    def f(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False,
          initial: Any = None, where: Any = None) -> Array:
        x = core.asarray(a)
        t = DOMAINS[domain](name, x._dtype, convert.default_float()) if dtype is None else \
            convert.dtype_argument(dtype)
        node = as_node(x, t)
        if monoid in (ops.MAX, ops.MIN):
            _nonempty(name, node, axis, initial)
        of = _LOGICAL.get(monoid, monoid) if t.is_bool else monoid
        result = fold(name, _masked(node, where, of), of, axis, keepdims)
        if initial is not None:
            start = build.expand(as_node(operand(initial), t), result.shape)
            result = build.elementwise(of, result, start)
        return Array(result)
    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"""{text}

    Args:
        axis: an axis or a tuple of axes; None folds all.
        keepdims: folded axes stay, with length 1.
        initial: a value to start from.
        where: a mask of the elements that count.

    >>> import fnx.numpy as jnp
    >>> {example}
    {value}
    """
    return f


_LOGICAL = {ops.ADD: ops.OR, ops.MAX: ops.OR, ops.MUL: ops.AND, ops.MIN: ops.AND}


def _nonempty(name: str, node: UOp, axis: Any, initial: Any) -> None:
    if initial is None and counted(node, axis) == 0:
        raise ShapeError(f"{name}: expected at least one element to fold, got shape {node.shape}",
                         hint="give initial=, or test x.size first")


# fmt: off
sum = _reduction("sum", ops.ADD, "integer", "The sum.",
                 "print(jnp.sum(jnp.arange(4)))", "6")
prod = _reduction("prod", ops.MUL, "integer", "The product.",
                  "print(jnp.prod(jnp.arange(1, 4)))", "6")
max = _reduction("max", ops.MAX, "any", "The largest; NaN wins. Ties share the derivative.",
                 "print(jnp.max(jnp.arange(4)))", "3")
min = _reduction("min", ops.MIN, "any", "The smallest; NaN wins. Ties share the derivative.",
                 "print(jnp.min(jnp.arange(4)))", "0")
all = _reduction("all", ops.AND, "truth", "Whether all are true.",
                 "print(jnp.all(jnp.arange(4)))", "False")
any = _reduction("any", ops.OR, "truth", "Whether any is true.",
                 "print(jnp.any(jnp.arange(4)))", "True")
# fmt: on
amax, amin = max, min


@public
def count_nonzero(a: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """How many are not zero.

    >>> import fnx.numpy as jnp
    >>> print(jnp.count_nonzero(jnp.asarray([0, 3, 4])))
    2
    """
    node = build.cast(as_node(core.asarray(a), dtypes.bool_), dtypes.int32)
    return Array(fold("count_nonzero", node, ops.ADD, axis, keepdims))


def _inexact(x: Array, dtype: Any) -> UOp:
    t = DOMAINS["inexact"]("mean", x._dtype, convert.default_float()) if dtype is None else \
        convert.dtype_argument(dtype)
    return as_node(x, t)


def _mean(name: str, node: UOp, axis: Any, keepdims: bool, where: Any, less: float = 0) -> UOp:
    """Sum over (number of elements - ``less``), in the dtype of the node."""
    if where is None:
        total = fold(name, node, ops.ADD, axis, keepdims)
        return build.div(total, build.like(total, counted(node, axis) - less))
    total = fold(name, _masked(node, where, ops.ADD), ops.ADD, axis, keepdims)
    count = fold(name, _masked(build.like(node, 1), where, ops.ADD), ops.ADD, axis, keepdims)
    return build.div(total, build.sub(count, build.like(count, less)))


@public
def mean(a: Any, axis: Any = None, dtype: Any = None, out: None = None, keepdims: bool = False,
         *, where: Any = None) -> Array:
    """The arithmetic mean; of integers a float32. It accumulates in its dtype.

    >>> import fnx.numpy as jnp
    >>> print(jnp.mean(jnp.arange(4)))
    1.5
    """
    return Array(_mean("mean", _inexact(core.asarray(a), dtype), axis, keepdims, where))


@public
def var(a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0,
        keepdims: bool = False, *, where: Any = None, correction: float | None = None) -> Array:
    """The mean squared distance from the mean, over n - ddof.

    >>> import fnx.numpy as jnp
    >>> print(jnp.var(jnp.asarray([1.0, 3.0])))
    1.0
    """
    node = _inexact(core.asarray(a), dtype)
    middle = build.expand(_mean("var", node, axis, True, where), node.shape)
    away = build.sub(node, middle)
    return Array(_mean("var", build.mul(away, away), axis, keepdims, where,
                       ddof if correction is None else correction))


@public
def std(a: Any, axis: Any = None, dtype: Any = None, out: None = None, ddof: float = 0,
        keepdims: bool = False, *, where: Any = None, correction: float | None = None) -> Array:
    """The square root of ``var``.

    >>> import fnx.numpy as jnp
    >>> print(jnp.std(jnp.asarray([1.0, 3.0])))
    1.0
    """
    return Array(build.sqrt(var(a, axis, dtype, None, ddof, keepdims, where=where,
                                correction=correction)._node))


@public
def ptp(a: Any, axis: Any = None, keepdims: bool = False) -> Array:
    """The largest minus the smallest.

    >>> import fnx.numpy as jnp
    >>> print(jnp.ptp(jnp.asarray([1.0, 3.0])))
    2.0
    """
    return max(a, axis, keepdims=keepdims) - min(a, axis, keepdims=keepdims)


# ---- where the largest and smallest are -------------------------------------------------------


def _place(name: str, a: Any, axis: Any, keepdims: bool, monoid: Op) -> Array:
    """The first index of the extreme element; the first NaN, where there is one."""
    x = core.asarray(a)
    node = as_node(x, dtypes.int32) if x._dtype.is_bool else x._node
    if axis is None:
        flat = build.reshape(node, (x.size,))
        out = _first_extreme(name, flat, 0, monoid)
        return Array(build.reshape(out, (1,) * x.ndim) if keepdims else out)
    at = axes.one(name, axis, x.ndim)
    out = _first_extreme(name, node, at, monoid)
    return Array(build.reshape(out, (*x.shape[:at], 1, *x.shape[at + 1:])) if keepdims else out)


def _first_extreme(name: str, x: UOp, at: int, monoid: Op) -> UOp:
    _nonempty(name, x, at, None)
    extreme = build.expand(fold(name, x, monoid, at, True), x.shape)
    hit = build.or_(build.eq(x, extreme), build.ne(x, x)) if x.dtype.is_float else \
        build.eq(x, extreme)
    n = x.shape[at]
    line = build.reshape(build.iota(n), tuple(n if i == at else 1 for i in range(len(x.shape))))
    places = build.where(hit, build.expand(line, x.shape), build.const(n, dtypes.int32, x.shape))
    return build.reduce(places, ops.MIN, (at,))


@public
def argmax(a: Any, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """The first index of the largest element; of the first NaN, where there is one.

    >>> import fnx.numpy as jnp
    >>> print(jnp.argmax(jnp.asarray([1, 5, 5])))
    1
    """
    return _place("argmax", a, axis, keepdims, ops.MAX)


@public
def argmin(a: Any, axis: int | None = None, out: None = None, keepdims: bool = False) -> Array:
    """The first index of the smallest element; of the first NaN, where there is one.

    >>> import fnx.numpy as jnp
    >>> print(jnp.argmin(jnp.asarray([5, 1, 1])))
    1
    """
    return _place("argmin", a, axis, keepdims, ops.MIN)


# ---- running folds ----------------------------------------------------------------------------


def _running(name: str, a: Any, axis: int | None, dtype: Any, monoid: Op) -> Array:
    """Inclusive scan in log2(n) steps: x[i] takes in x[i - 1], then i - 2, i - 4, ..."""
    x = core.asarray(a)
    t: DType = DOMAINS["integer"](name, x._dtype, x._dtype) if dtype is None else \
        convert.dtype_argument(dtype)
    node = as_node(x, t)
    if axis is None:
        node, axis = build.reshape(node, (x.size,)), 0
    at = axes.one(name, axis, len(node.shape))
    assert monoid.identity is not None
    n, step = node.shape[at], 1
    while step < n:
        bounds = [(0, m) for m in node.shape]
        bounds[at] = (0, n - step)
        widths = [(0, 0)] * len(bounds)
        widths[at] = (step, 0)
        shifted = build.pad(build.shrink(node, bounds), widths, monoid.identity(t))
        node = build.elementwise(monoid, node, shifted)
        step *= 2
    return Array(node)


@public
def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """The sums of the first 1, 2, 3, ... elements.

    >>> import fnx.numpy as jnp
    >>> jnp.cumsum(jnp.arange(4))
    Array([0, 1, 3, 6], dtype=int32)
    """
    return _running("cumsum", a, axis, dtype, ops.ADD)


@public
def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """The products of the first 1, 2, 3, ... elements.

    >>> import fnx.numpy as jnp
    >>> jnp.cumprod(jnp.arange(1, 4))
    Array([1, 2, 6], dtype=int32)
    """
    return _running("cumprod", a, axis, dtype, ops.MUL)


@public
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Array:
    """The sum of a diagonal.

    >>> import fnx.numpy as jnp
    >>> print(jnp.trace(jnp.eye(3)))
    3.0
    """
    return sum(diagonal(a, offset, axis1, axis2), -1, dtype)


@public
def allclose(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-8,
             equal_nan: bool = False) -> Array:
    """Whether all are close: see ``isclose``.

    >>> import fnx.numpy as jnp
    >>> print(jnp.allclose(jnp.ones(2), 1.0))
    True
    """
    return all(isclose(a, b, rtol, atol, equal_nan))


@public
def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Array:
    """Whether shapes and all elements are equal.

    >>> import fnx.numpy as jnp
    >>> print(jnp.array_equal(jnp.ones(2), jnp.ones(3)))
    False
    """
    x, y = core.asarray(a1), core.asarray(a2)
    if x.shape != y.shape:
        return core.asarray(False)
    same = x == y
    return all(same | ((x != x) & (y != y)) if equal_nan else same)
