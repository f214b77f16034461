"""Random permutations, and random choices of elements."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from fnx.core.array import arguments, array_operators, axes, convert
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.ir import build, dtypes
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp
from fnx.core.rewriting.dimensions import Dim
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.core.support.process import lazy_import
from fnx.lax.sorting import top_k
from fnx.numpy import cumsum, log
from fnx.random.inverse_cdf import gumbel
from fnx.random.keys import Words, random_uint32, single_key_words, split_words
from fnx.random.uniform_samplers import ShardingLike, public_sampler, randint, uniform

histograms = lazy_import("fnx.numpy.histograms")
sorting = lazy_import("fnx.numpy.sorting")

__all__ = ["choice", "permutation"]


@public_sampler
def permutation(key: ArrayLike, x: ArrayLike, axis: int = 0, independent: bool = False, *,
                out_sharding: ShardingLike = None) -> Array:
    """Permute an array randomly along an axis; for an int n, permute 0..n-1.

    Elements are sorted by random words, several times.

    Args:
        key: a key from ``random.key``.
        x: an Array, or an int n.
        axis: the axis to permute.
        independent: whether each vector along the axis gets a permutation of its own, rather than
            all the same.
        out_sharding: None, or the sharding of the result.

    Returns:
        An Array of the shape and dtype of x, or int32 of shape (n,).

    Raises:
        ShapeError: ``key`` is not a single key.
        AxisError: the axis is out of range.

    Source: a stable sort by random words, repeated until ties are unlikely.

    >>> import fnx.random
    >>> fnx.random.permutation(fnx.random.key(0), 4)
    Array([0, 1, 3, 2], dtype=int32)
    """
    words = single_key_words(key)
    if isinstance(x, (int, np.integer, Dim)):
        n = arguments.check_int("x", x)
        return _random_order(words, n)
    array = asarray(x)
    if array.ndim == 0:
        length: Any = array if array._dtype.is_integer else x
        return permutation(key, arguments.check_int("x", length), axis)
    at = axes.normalize_axis(axis, array.ndim)
    if independent or array.ndim == 1:
        return Array(_shuffle(words, array._node, at))
    order = _random_order(words, array.shape[at])
    return array_operators.get_item(array, (slice(None),) * at + (order,))


# The longest arrays for 0, 1, 2 rounds: their cube is at most 2**32 to this power.
_MOST_BY_ROUNDS = (1, 1625, 2642245)


def _random_order(words: Words, n: int) -> Array:
    """Return a random permutation of 0..n-1."""
    return Array(_shuffle(words, build.iota(n, convert.default_int()), 0))


def _shuffle(words: Words, x: UOp, axis: int) -> UOp:
    """Sort each vector along an axis by random words, stably; several rounds make ties of words
    unlikely."""
    for _ in range(sum([math.prod(x.shape) > most for most in _MOST_BY_ROUNDS])):
        words, fresh = split_words(words)
        x, = sorting.sort_along([random_uint32(fresh, x.shape).node, x], axis, 1, (1,))
    return x


@public_sampler
def choice(key: ArrayLike, a: ArrayLike, shape: ShapeLike = (), replace: bool = True,
           p: ArrayLike | None = None, axis: int = 0,
           mode: Literal["high", "low"] | None = None) -> Array:
    """Draw random elements of an array along an axis, or of 0..a-1.

    Args:
        key: a key from ``random.key``.
        a: an Array, or an int n.
        shape: the shape of the result: a static int or ints.
        replace: whether an element may be drawn twice.
        p: probabilities of the elements; by default equal.
        axis: the axis of a along which to draw.
        mode: "low", "high" or None: the range of Gumbel noise, which is the same for all here.

    Returns:
        An Array of the shape, of the dtype of a; int32 if a is an int.

    Raises:
        ShapeError: ``key`` is not a single key.
        ArgumentError: there are more draws than elements, without replacement.
        ShapeError: p has another shape.

    Source: without replacement, p's logarithms and Gumbel noise are sorted (Vieira, 2014).

    >>> import fnx.random
    >>> fnx.random.choice(fnx.random.key(0), 5, (2,), replace=False).shape
    (2,)
    """
    arguments.check_choice("mode", mode, ("high", "low", None))
    size = axes.normalize_shape(shape)
    count = math.prod(size)
    length: Any = a
    array, n = (None, arguments.check_int("a", length)) if np.ndim(a) == 0 else (asarray(a), 0)
    at = axes.normalize_axis(axis, 1 if array is None else array.ndim)
    n = n if array is None else array.shape[at]
    required = min(count, 1) if replace else count
    if n < required:
        hint = "use replace=True" if n else "pass at least one element"
        raise ArgumentError(f"choice: expected at least {required} elements to "
                            f"draw {count} from, got {n}", hint=hint)
    if p is not None:
        index = _weighted_indices(key, p, n, size, replace)
    elif replace:
        index = randint(key, size, 0, n)
    else:
        index = _random_order(single_key_words(key), n)[:count].reshape(size)
    if array is None:
        return index
    return array_operators.get_item(array, (slice(None),) * at + (index,))


def _weighted_indices(key: Any, p: Any, n: int, size: Shape, replace: bool) -> Array:
    weights = asarray(p)
    if weights.shape != (n,):
        raise ShapeError(f"choice: expected p of shape {(n,)}, got {weights.shape}",
                         hint="pass one probability per element")
    if not weights._dtype.is_float:
        weights = weights.astype(dtypes.inexact(weights._dtype).np)
    if not replace:
        noisy = gumbel(key, (n,), weights.dtype) + log(weights)
        index: Array = top_k(noisy, math.prod(size))[1].reshape(size)
        return index.astype(convert.default_int().np)
    cdf = cumsum(weights)
    targets = cdf[-1] * (1 - uniform(key, size, cdf.dtype))
    index = histograms.searchsorted(cdf, targets)
    return index.astype(convert.default_int().np)
