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

__all__ = [
    "PRNGKey", "clone", "fold_in", "key", "key_data", "key_dtype", "key_impl", "split",
    "wrap_key_data",
]


@public
def key(seed: ArrayLike, *, impl: str | None = None, dtype: Any = None) -> Array:
    """A key from an integer (of which the low 32 bits count), of the dtype ``key<fry>``.

    Args:
        seed: an int, or an Array of one integer, of which the low 32 bits count.
        impl: None or "threefry2x32".
        dtype: None or ``key_dtype()``.

    Returns:
        A key: a 0-d Array that is no number.

    Raises:
        DTypeError: no single integer.
        ArgumentError: another ``impl``.

    >>> import fnx.random
    >>> fnx.random.key(7)
    Array((), dtype=key<fry>) of words [0 7]
    """
    _check_impl(impl, dtype)
    return Array(_typed(build.const(0, dtypes.uint32), _seeded(seed)))


@public
def PRNGKey(seed: ArrayLike, *, impl: str | None = None) -> Array:
    """The words of a key from an integer: what a key was before there were dtypes of keys.

    Args:
        seed: an int, or an Array of one integer, of which the low 32 bits count.
        impl: None or "threefry2x32".

    Returns:
        An Array of uint32, of shape (2,); every function of keys takes it.

    Raises:
        DTypeError: no single integer.
        ArgumentError: another ``impl``.

    >>> import fnx.random
    >>> fnx.random.PRNGKey(7)
    Array([0, 7], dtype=uint32)
    """
    _check_impl(impl)
    return Array(pair(build.const(0, dtypes.uint32), _seeded(seed)))


def _seeded(seed: ArrayLike) -> UOp:
    if isinstance(seed, (int, np.integer)):
        return build.const(int(seed) & 0xFFFFFFFF, dtypes.uint32)
    x = asarray(seed)
    if x.shape or not x._dtype.is_integer:
        raise DTypeError(f"expected one integer as seed, got {x._dtype}{list(x.shape)}",
                         hint="use split to make several keys" if x.shape else
                         "convert it with int(...)")
    return build.cast(x._node, dtypes.uint32)


def _check_impl(impl: str | None, dtype: Any = None) -> None:
    arguments.one_of("impl", impl, ("threefry2x32", "fry", None))
    if dtype is not None and dtype is not dtypes.key_fry:
        raise DTypeError(f"expected dtype={dtypes.key_fry}, got {dtype!r}",
                         hint="leave dtype= out")


@public
def key_dtype(impl_spec: str | None = None) -> Any:
    """The dtype of keys.

    Args:
        impl_spec: None or "threefry2x32".

    Returns:
        A dtype.

    Raises:
        ArgumentError: another ``impl_spec``.

    >>> import fnx.random
    >>> fnx.random.key(0).dtype == fnx.random.key_dtype()
    True
    """
    _check_impl(impl_spec)
    return dtypes.key_fry


@public
def key_impl(keys: ArrayLike) -> str:
    """How numbers come from keys.

    Args:
        keys: a key, or an Array of keys.

    Returns:
        "threefry2x32".

    Raises:
        ShapeError: no keys.

    >>> import fnx.random
    >>> fnx.random.key_impl(fnx.random.key(0))
    'threefry2x32'
    """
    _words(asarray(keys))
    return "threefry2x32"


@public
def clone(key: ArrayLike) -> Array:
    """The same key; JAX's checks of reuse let it be used again.

    Args:
        key: a key, or an Array of keys.

    Returns:
        The same key.

    Raises:
        ShapeError: no keys.

    >>> import fnx.random
    >>> fnx.random.clone(fnx.random.key(7))
    Array((), dtype=key<fry>) of words [0 7]
    """
    keys = asarray(key)
    _words(keys)
    return keys


# ---- keys and their words -----------------------------------------------------------------------


def pair(a: UOp, b: UOp) -> UOp:
    """Two nodes of one shape on a new last axis."""
    return build.concat([build.reshape(n, (*n.shape, 1)) for n in (a, b)], len(a.shape))


def _typed(high: UOp, low: UOp) -> UOp:
    """Keys of their words: 64 bits, the first word high."""
    wide = Expr(high).cast(dtypes.uint64) << 32 | Expr(low).cast(dtypes.uint64)
    return build.bitcast(wide.node, dtypes.key_fry)


def _words(keys: Array) -> tuple[UOp, UOp]:
    """Both words of each key, of the shape of the keys."""
    node = keys._node
    if keys._dtype is dtypes.key_fry:
        bits = Expr(build.bitcast(node, dtypes.uint64))
        return (bits >> 32).cast(dtypes.uint32).node, bits.cast(dtypes.uint32).node
    if keys._dtype is not dtypes.uint32 or keys.shape[-1:] != (2,):
        raise ShapeError(f"expected a key, got {keys._dtype}{list(keys.shape)}",
                         hint="make one with fnx.random.key(seed); take one of split's by index")
    front = tuple([(0, n) for n in keys.shape[:-1]])
    first, second = (build.reshape(build.shrink(node, (*front, part)), keys.shape[:-1])
                     for part in ((0, 1), (1, 2)))
    return first, second


def words_of(key: Any) -> tuple[UOp, UOp]:
    """The two words of a key, 0-d."""
    keys = asarray(key)
    words = _words(keys)
    if words[0].shape:
        raise ShapeError(f"expected one key, got keys of shape {words[0].shape}",
                         hint="use fnx.vmap, or take one by index")
    return words


def _like(key: Any, high: UOp, low: UOp) -> Array:
    """Keys of their words, as the key they come from: with a dtype of their own, or words."""
    typed = type(key) is Array and key._dtype is dtypes.key_fry
    return Array(_typed(high, low) if typed else pair(high, low))


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
    """New keys from a key.

    Args:
        key: a key, as ``random.key`` makes it.
        num: how many: an int or ints, known while tracing.

    Returns:
        An Array of keys, of shape (num,); of words (num, 2), where the key is one of words.

    Raises:
        ShapeError: not one key.

    >>> import fnx.random
    >>> a, b = fnx.random.split(fnx.random.key(0))
    """
    return _like(key, *counted(words_of(key), axes.shape(num)))


@public
def fold_in(key: ArrayLike, data: ArrayLike) -> Array:
    """A new key from a key and an integer, such as the number of a step.

    Args:
        key: a key, as ``random.key`` makes it.
        data: an integer, of which the low 32 bits count; it may be traced.

    Returns:
        A key.

    Raises:
        ShapeError: not one key.

    >>> import fnx.random
    >>> fnx.random.fold_in(fnx.random.key(0), 1).shape
    ()
    """
    if isinstance(data, (int, np.integer)):
        low = build.const(int(data) & 0xFFFFFFFF, dtypes.uint32)
    else:
        low = as_node(asarray(data), dtypes.uint32)
    return _like(key, *_threefry(words_of(key), build.like(low, 0), low))


@public
def key_data(keys: ArrayLike) -> Array:
    """The words of keys.

    Args:
        keys: a key, or an Array of keys.

    Returns:
        An Array of uint32, with a last axis of length 2.

    Raises:
        ShapeError: no keys.

    >>> import fnx.random
    >>> fnx.random.key_data(fnx.random.key(7))
    Array([0, 7], dtype=uint32)
    """
    given = asarray(keys)
    words = _words(given)
    return Array(pair(*words)) if given._dtype is dtypes.key_fry else given


@public
def wrap_key_data(key_bits_array: ArrayLike, *, impl: str | None = None, dtype: Any = None
                  ) -> Array:
    """Keys from their words.

    Args:
        key_bits_array: uint32 of shape (..., 2).
        impl: None or "threefry2x32".
        dtype: None or ``key_dtype()``.

    Returns:
        A key, or an Array of keys.

    Raises:
        ArgumentError: another ``impl``.
        DTypeError: words that are not uint32.
        ShapeError: a last axis of another length.

    >>> import fnx.numpy as jnp, fnx.random
    >>> fnx.random.wrap_key_data(jnp.asarray([0, 7], "uint32"))
    Array((), dtype=key<fry>) of words [0 7]
    """
    _check_impl(impl, dtype)
    words = asarray(key_bits_array)
    if words._dtype is not dtypes.uint32:
        raise DTypeError(f"expected words of uint32, got {words._dtype}",
                         hint='convert them with .astype("uint32")')
    return Array(_typed(*_words(words)))
