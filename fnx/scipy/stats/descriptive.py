"""Mode, ranks and standard error of the mean, as in ``jax.scipy.stats``."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import arguments, axes, convert
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import as_float
from fnx.numpy.sets import unique
from fnx.transforms.vmap import vmap

__all__ = ["mode", "rankdata", "sem"]

RankMethod = Literal["average", "min", "max", "dense", "ordinal"]

_docstr = DocTemplate(
    a="an Array or array-like.",
    axis="the axis; None flattens first.",
    nan_policy='"propagate".', ddof="subtracted from the divisor.",
    method='of equals: "average", "min" or "max" of their places, "dense" (they count once), or '
           '"ordinal" (the first comes first).',
    returns="An Array of a float dtype.", imports="fnx.scipy.stats as stats",
    raises=("AxisError: the axis is out of range.", "ArgumentError: unknown policy."))


class ModeResult(NamedTuple):
    """The result of ``mode``."""

    mode: Array
    count: Array  # type: ignore[assignment]  # JAX's name; tuples have a method count


def _most_frequent(x: Array) -> tuple[Array, Array]:
    values, counts = unique(x, return_counts=True, size=x.size)
    return values[jnp.argmax(counts)], counts.max()


@_docstr("A named tuple (mode, count).")
def mode(a: ArrayLike, axis: int | None = 0, nan_policy: Literal["propagate"] = "propagate",
         keepdims: bool = False) -> ModeResult:
    """Return the most frequent element along an axis (the smallest of ties) and its count.

    >>> import fnx.numpy as jnp
    >>> stats.mode(jnp.asarray([3, 1, 3]))
    ModeResult(mode=Array(3, dtype=int32), count=Array(2, dtype=int32))
    """
    arguments.check_choice("nan_policy", nan_policy, ("propagate",))
    x = asarray(a)
    x = x if x.ndim else x.reshape(1)
    shape = x.shape
    at = 0 if axis is None else axes.normalize_axis(axis, x.ndim)
    x = x.reshape(-1) if axis is None else x
    rows = jnp.moveaxis(x, at, -1)
    front = rows.shape[:-1]
    if not x.shape[at]:
        kind = convert.default_float().np
        results = [jnp.full(front, np.nan, kind), jnp.zeros(front, kind)]
    else:
        flat = rows.reshape(-1 if x.size else 0, rows.shape[-1])
        results = [y.reshape(front) for y in vmap(_most_frequent)(flat)] if x.size else \
            [jnp.zeros(front, x.dtype), jnp.zeros(front, "int32")]
    if keepdims:
        results = [y.reshape([1] * len(shape)) if axis is None else jnp.expand_dims(y, at)
                   for y in results]
    return ModeResult(*results)


def _ranks(x: Array, method: RankMethod) -> Array:
    n, t = x.size, convert.default_float().np
    order = jnp.argsort(x)
    ordered = x[order]
    first = jnp.concatenate([jnp.ones(min(n, 1), "bool"), ordered[1:] != ordered[:-1]])
    position = jnp.zeros(n, "int32").at[order].set(jnp.arange(n, dtype="int32"))
    if method == "ordinal":
        return (position + 1).astype(t)
    run_index = jnp.cumsum(first.astype("int32"))[position]
    if method == "dense":
        return run_index.astype(t)
    starts = jnp.nonzero(first, size=n + 1, fill_value=n)[0].astype(t)
    below, at_most = starts[run_index - 1], starts[run_index]
    return {"max": at_most, "min": below + 1, "average": 0.5 * (at_most + below + 1)}[method]


@_docstr("An Array of the default float: from 1, of the shape of a (of one axis where the axis is "
         "None); NaN where an element is NaN.")
def rankdata(a: ArrayLike, method: RankMethod = "average", *, axis: int | None = None,
             nan_policy: Literal["propagate"] = "propagate") -> Array:
    """Rank the elements along an axis, from 1 in ascending order.

    >>> import fnx.numpy as jnp
    >>> stats.rankdata(jnp.asarray([3, 1, 3]))
    Array([2.5, 1. , 2.5], dtype=float32)
    """
    arguments.check_choice("nan_policy", nan_policy, ("propagate",))
    arguments.check_choice("method", method, ("average", "min", "max", "dense", "ordinal"))
    x = asarray(a)
    if axis is None:
        x, axis = x.reshape(-1), 0
    at = axes.normalize_axis(axis, x.ndim)
    if not x.size:
        return jnp.zeros(x.shape, convert.default_float().np)
    rows = jnp.moveaxis(x, at, -1)
    flat = rows.reshape(-1, rows.shape[-1])
    ranks = vmap(lambda row: _ranks(row, method))(flat)
    if x._dtype.is_float:
        ranks = jnp.where(jnp.isnan(flat).any(-1, keepdims=True), np.nan, ranks)
    return jnp.moveaxis(ranks.reshape(rows.shape), -1, at)


@_docstr("An Array of a float dtype without the axis.", nan_policy='"propagate", or "omit": NaN is '
         "left out.")
def sem(a: ArrayLike, axis: int | None = 0, ddof: int = 1,
        nan_policy: Literal["propagate", "omit"] = "propagate", *, keepdims: bool = False) -> Array:
    """Return the standard error of the mean.

    >>> import fnx.numpy as jnp
    >>> print(stats.sem(jnp.asarray([1.0, 3.0])))
    1.0
    """
    arguments.check_choice("nan_policy", nan_policy, ("propagate", "omit"))
    x = as_float(a)
    if nan_policy == "omit":
        count = (~jnp.isnan(x)).sum(axis, keepdims=keepdims)
        return jnp.nanstd(x, axis, ddof=ddof, keepdims=keepdims) / jnp.sqrt(count).astype(x.dtype)
    n = x.size if axis is None else x.shape[axes.normalize_axis(axis, x.ndim)]
    return x.std(axis, ddof=ddof, keepdims=keepdims) / jnp.sqrt(jnp.asarray(n)).astype(x.dtype)
