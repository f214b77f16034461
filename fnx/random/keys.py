"""Keys, and the random words that come from them: Threefry-2x32 in counter mode."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fnx.core import build, dtypes, ops
from fnx.core.array import arguments, axes
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.promotion import as_node
from fnx.core.array.public import asarray, public
from fnx.core.dtypes import DType
from fnx.core.errors import ArgumentError, DTypeError, ShapeError
from fnx.core.expr import Expr
from fnx.core.ops import Shape
from fnx.core.uop import UOp

__all__ = ["PRNGKey", "fold_in", "key", "key_data", "split", "wrap_key_data"]


@public
def key(seed: ArrayLike, *, impl: str | None = None) -> Array:
    """A key from an integer (of which the low 32 bits count).

    Args:
        seed: an int, or an Array of one integer, of which the low 32 bits count.
        impl: None or "threefry2x32".

    Returns:
        A key: an Array of uint32, of shape (2,).

    Raises:
        DTypeError: no single integer.
        ArgumentError: another ``impl``.

    >>> import fnx.random
    >>> fnx.random.key(7)
    Array([0, 7], dtype=uint32)
    """
    _check_impl(impl)
    if isinstance(seed, (int, np.integer)):
        low = build.const(int(seed) & 0xFFFFFFFF, dtypes.uint32)
    else:
        x = asarray(seed)
        if x.shape or not x._dtype.is_integer:
            raise DTypeError(f"key: expected one integer as seed, got {x._dtype}{list(x.shape)}",
                             hint="use split to make several keys" if x.shape else
                             "convert it with int(...)")
        low = build.cast(x._node, dtypes.uint32)
    return Array(pair(build.const(0, dtypes.uint32), low))


def _check_impl(impl: str | None) -> None:
    arguments.one_of("impl", impl, ("threefry2x32", None))


PRNGKey = key

def pair(a: UOp, b: UOp) -> UOp:
    """Two nodes of one shape on a new last axis."""
    return build.concat([build.reshape(n, (*n.shape, 1)) for n in (a, b)], len(a.shape))


def words_of(key: Any) -> tuple[UOp, UOp]:
    """The two words of a key, 0-d."""
    x = asarray(key)
    if x.shape != (2,) or x._dtype is not dtypes.uint32:
        raise ShapeError(f"expected a key, uint32[2]; got {x._dtype}{list(x.shape)}",
                         hint="make one with fnx.random.key(seed); take one of split's by index")
    node = x._node
    return (build.reshape(build.shrink(node, [(0, 1)]), ()),
            build.reshape(build.shrink(node, [(1, 2)]), ()))


def _threefry(words: tuple[UOp, UOp], high: UOp, low: UOp) -> tuple[UOp, UOp]:
    keys = [build.expand(w, low.shape) for w in words]
    one, two = (build.elementwise(ops.THREEFRY, *keys, high, low, arg=i) for i in (0, 1))
    return one, two


def counted(words: tuple[UOp, UOp], shape: Shape) -> tuple[UOp, UOp]:
    """Both words for each element; the counter is the element's row-major number."""
    n = math.prod(shape)
    if n >= 1 << 32:
        raise ArgumentError(f"expected fewer than 2**32 random elements, got shape {shape}",
                            hint="split the key and draw in parts")
    low = build.reshape(build.iota(n, dtypes.uint32), shape)
    return _threefry(words, build.like(low, 0), low)


def word_each(words: tuple[UOp, UOp], shape: Shape) -> Expr:
    """32 random bits for each element."""
    one, two = map(Expr, counted(words, shape))
    return one ^ two


def bits_each(words: tuple[UOp, UOp], shape: Shape, t: DType) -> Expr:
    """Random bits for each element as an unsigned type: of 64 both words, the first one high."""
    if t.bits < 64:
        return word_each(words, shape).cast(t)
    high, low = (Expr(w).cast(t) for w in counted(words, shape))
    return high << 32 | low


def split_words(words: tuple[UOp, UOp], n: int = 2) -> list[tuple[UOp, UOp]]:
    one, two = counted(words, (n,))
    return [(build.reshape(build.shrink(one, [(i, i + 1)]), ()),
             build.reshape(build.shrink(two, [(i, i + 1)]), ())) for i in range(n)]


@public
def split(key: ArrayLike, num: ShapeLike = 2) -> Array:
    """New keys from a key, of shape (num, 2).

    Args:
        key: a key: uint32 of shape (2,), as ``random.key`` makes it.
        num: how many: an int or ints, known while tracing.

    Returns:
        An Array of uint32, of shape (num, 2): a key a row.

    Raises:
        ShapeError: not one key.

    >>> import fnx.random
    >>> a, b = fnx.random.split(fnx.random.key(0))
    """
    return Array(pair(*counted(words_of(key), axes.shape(num))))


@public
def fold_in(key: ArrayLike, data: ArrayLike) -> Array:
    """A new key from a key and an integer, such as the number of a step.

    Args:
        key: a key: uint32 of shape (2,), as ``random.key`` makes it.
        data: an integer, of which the low 32 bits count; it may be traced.

    Returns:
        A key.

    Raises:
        ShapeError: not one key.

    >>> import fnx.random
    >>> fnx.random.fold_in(fnx.random.key(0), 1).shape
    (2,)
    """
    if isinstance(data, (int, np.integer)):
        low = build.const(int(data) & 0xFFFFFFFF, dtypes.uint32)
    else:
        low = as_node(asarray(data), dtypes.uint32)
    return Array(pair(*_threefry(words_of(key), build.like(low, 0), low)))


@public
def key_data(keys: ArrayLike) -> Array:
    """The uint32 words of a key, which here are the key itself.

    Args:
        keys: a key, or an Array of keys.

    Returns:
        The same key.

    >>> import fnx.random
    >>> fnx.random.key_data(fnx.random.key(7))
    Array([0, 7], dtype=uint32)
    """
    return asarray(keys)


@public
def wrap_key_data(key_bits_array: ArrayLike, *, impl: str | None = None) -> Array:
    """A key from its words.

    Args:
        key_bits_array: uint32 of shape (..., 2).
        impl: None or "threefry2x32".

    Returns:
        A key, or an Array of keys.

    Raises:
        ArgumentError: another ``impl``.

    >>> import fnx.random
    >>> fnx.random.wrap_key_data([0, 7])
    Array([0, 7], dtype=uint32)
    """
    _check_impl(impl)
    return asarray(key_bits_array, dtypes.uint32)
