"""Mode, ranks and standard error of the mean, as in ``jax.scipy.stats``."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import arguments, axes, convert
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.documented import Family
from fnx.core.array.promotion import in_domain
from fnx.core.array.public import asarray
from fnx.numpy.sets import unique
from fnx.transforms.vmap import vmap

__all__ = ["mode", "rankdata", "sem"]

RankMethod = Literal["average", "min", "max", "dense", "ordinal"]

_family = Family(
    a="an Array or what ``asarray`` takes, of any shape.",
    axis="along which axis; None flattens first.",
    nan_policy='"propagate".', ddof="taken from the count before the division.",
    method='of equals: "average", "min" or "max" of their places, "dense" (they count once), or '
           '"ordinal" (the first comes first).',
    returns="An Array of a float dtype.", at="fnx.scipy.stats as stats",
    raises=("AxisError: an axis outside of the array.", "ArgumentError: another policy."))


class ModeResult(NamedTuple):
    """The result of ``mode``."""

    mode: Array
    count: Array  # type: ignore[assignment]  # JAX's name; tuples have a method count


def _most_frequent(x: Array) -> tuple[Array, Array]:
    values, counts = unique(x, return_counts=True, size=x.size)
    return values[jnp.argmax(counts)], counts.max()


@_family("mode and count, in a tuple with these names.")
def mode(a: ArrayLike, axis: int | None = 0, nan_policy: Literal["propagate"] = "propagate",
         keepdims: bool = False) -> ModeResult:
    """Return the most frequent element along an axis (the smallest of ties) and its count.

    >>> import fnx.numpy as jnp
    >>> stats.mode(jnp.asarray([3, 1, 3]))
    ModeResult(mode=Array(3, dtype=int32), count=Array(2, dtype=int32))
    """
    arguments.one_of("nan_policy", nan_policy, ("propagate",))
    arguments.flag("keepdims", keepdims)
    x = asarray(a)
    x = x if x.ndim else x.reshape(1)
    shape = x.shape
    at = 0 if axis is None else axes.one(axis, x.ndim)
    x = x.reshape(-1) if axis is None else x
    rows = jnp.moveaxis(x, at, -1)
    front = rows.shape[:-1]
    if not x.shape[at]:
        kind = convert.default_float().np
        found = [jnp.full(front, np.nan, kind), jnp.zeros(front, kind)]
    else:
        flat = rows.reshape(-1 if x.size else 0, rows.shape[-1])
        found = [y.reshape(front) for y in vmap(_most_frequent)(flat)] if x.size else \
            [jnp.zeros(front, x.dtype), jnp.zeros(front, "int32")]
    if keepdims:
        found = [y.reshape([1] * len(shape)) if axis is None else jnp.expand_dims(y, at)
                 for y in found]
    return ModeResult(*found)


def _ranks(x: Array, method: RankMethod) -> Array:
    n, t = x.size, convert.default_float().np
    order = jnp.argsort(x)
    ordered = x[order]
    first = jnp.concatenate([jnp.ones(min(n, 1), "bool"), ordered[1:] != ordered[:-1]])
    place = jnp.zeros(n, "int32").at[order].set(jnp.arange(n, dtype="int32"))
    if method == "ordinal":
        return (place + 1).astype(t)
    run = jnp.cumsum(first.astype("int32"))[place]
    if method == "dense":
        return run.astype(t)
    starts = jnp.nonzero(first, size=n + 1, fill_value=n)[0].astype(t)
    below, upto = starts[run - 1], starts[run]
    return {"max": upto, "min": below + 1, "average": 0.5 * (upto + below + 1)}[method]


@_family("An Array of the default float: from 1, of the shape of a (of one axis where the axis is "
         "None); NaN where an element is NaN.")
def rankdata(a: ArrayLike, method: RankMethod = "average", *, axis: int | None = None,
             nan_policy: Literal["propagate"] = "propagate") -> Array:
    """Rank the elements along an axis, from 1 in ascending order.

    >>> import fnx.numpy as jnp
    >>> stats.rankdata(jnp.asarray([3, 1, 3]))
    Array([2.5, 1. , 2.5], dtype=float32)
    """
    arguments.one_of("nan_policy", nan_policy, ("propagate",))
    arguments.one_of("method", method, ("average", "min", "max", "dense", "ordinal"))
    x = asarray(a)
    if axis is None:
        x, axis = x.reshape(-1), 0
    at = axes.one(axis, x.ndim)
    if not x.size:
        return jnp.zeros(x.shape, convert.default_float().np)
    rows = jnp.moveaxis(x, at, -1)
    flat = rows.reshape(-1, rows.shape[-1])
    found = vmap(lambda row: _ranks(row, method))(flat)
    if x._dtype.is_float:
        found = jnp.where(jnp.isnan(flat).any(-1, keepdims=True), np.nan, found)
    return jnp.moveaxis(found.reshape(rows.shape), -1, at)


@_family("An Array of a float dtype without the axis.", nan_policy='"propagate", or "omit": NaN is '
         "left out.")
def sem(a: ArrayLike, axis: int | None = 0, ddof: int = 1,
        nan_policy: Literal["propagate", "omit"] = "propagate", *, keepdims: bool = False) -> Array:
    """Return the standard error of the mean.

    >>> import fnx.numpy as jnp
    >>> print(stats.sem(jnp.asarray([1.0, 3.0])))
    1.0
    """
    arguments.one_of("nan_policy", nan_policy, ("propagate", "omit"))
    x = Array(in_domain("inexact", a, None))
    if nan_policy == "omit":
        count = (~jnp.isnan(x)).sum(axis, keepdims=keepdims)
        return jnp.nanstd(x, axis, ddof=ddof, keepdims=keepdims) / jnp.sqrt(count).astype(x.dtype)
    n = x.size if axis is None else x.shape[axes.one(axis, x.ndim)]
    return x.std(axis, ddof=ddof, keepdims=keepdims) / jnp.sqrt(jnp.asarray(n)).astype(x.dtype)
