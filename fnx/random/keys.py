"""Keys, and the random words derived from them: Threefry-2x32 in counter mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from fnx.core.array import axes
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike, from_numpy
from fnx.core.array.axes import ShapeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.eager_cache import lift_ints
from fnx.core.array.promotion import as_node
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr, where
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp, set_composite
from fnx.core.scope import scope
from fnx.core.support.config import config
from fnx.core.support.errors import ArgumentError, DTypeError, ShapeError
from fnx.core.support.process import lazy_import

generators = lazy_import("fnx.random.generators")

__all__ = [
    "PRNGKey", "clone", "fold_in", "key", "key_data", "key_dtype", "key_impl", "split",
    "wrap_key_data",
]

_docstr = DocTemplate(
    seed="an int, or an Array of one integer; the low 32 bits are used.",
    impl='None or "threefry2x32"; "rbg", "unsafe_rbg", or what ``define_prng_impl`` returns, for '
         "keys of another generator.",
    dtype="None or a dtype of keys.",
    impl_spec="as ``impl`` of ``key``.", keys="a key, or an Array of keys.",
    key="a key from ``random.key``.",
    num="the number or shape of the new keys: a static int or ints.",
    data="an integer, which may be traced; the low 32 bits are used.",
    returns="A key: a scalar Array that does not support arithmetic.", imports="fnx.random",
    raises=("DTypeError: the argument is not keys.",))
ONE_KEY = "DTypeError, ShapeError: ``key`` is not a single key."
_SEED_RAISES = ("DTypeError: the seed is not a single integer.",
                "ArgumentError: ``impl`` is unknown.")


class OtherKeys:
    """Base of keys of other generators (generators.py)."""

    __slots__ = ("words",)
    words: Any

    def single_words(self) -> OtherWords:
        """Return the words of one key."""
        raise NotImplementedError

    def split(self, shape: Shape) -> Any:
        """Return new keys of a shape."""
        raise NotImplementedError

    def fold_in(self, data: Any) -> Any:
        """Return a new key, derived with an integer."""
        raise NotImplementedError

    def impl(self) -> Any:
        """Return the name of the generator, or what describes one of the user's."""
        raise NotImplementedError


class OtherWords:
    """Base of the words of a key of another generator."""

    def uints(self, shape: Shape, t: DType) -> Expr:
        """Return random unsigned integers."""
        raise NotImplementedError

    def split(self, n: int) -> list[OtherWords]:
        """Return the words of n new keys."""
        raise NotImplementedError


Words: TypeAlias = tuple[UOp, UOp] | OtherWords  # of one key


@_docstr(raises=_SEED_RAISES)
def key(seed: ArrayLike, *, impl: Any = None, dtype: Any = None) -> Array:
    """Make a key of the dtype ``key<fry>`` from an integer.

    >>> fnx.random.key(7)
    Array((), dtype=key<fry>) overlaying:
    [0 7]
    """
    other = _other_generator(impl, dtype)
    if other is not None:
        _seed_word(seed)
        other_key: Array = generators.seeded(other, seed)
        return other_key
    if isinstance(seed, (int, np.integer)) and not scope.is_open():  # no kernel for each seed
        return from_numpy(np.array(int(seed) & 0xFFFFFFFF, np.uint64).view(dtypes.key_fry.np))
    keys = _make_keys(build.const(0, dtypes.uint32), _seed_word(seed))
    return Array(set_composite(keys, "random_seed", _seed_key, [asarray(seed)._node], impl="fry"))


@_docstr("An Array of uint32, of shape (2,); every function of keys accepts it. Of another "
         "generator, the words of a key, for ``wrap_key_data``.", _SEED_RAISES)
def PRNGKey(seed: ArrayLike, *, impl: Any = None) -> Array:
    """Make a raw key, two uint32 words, from an integer: the legacy form of ``key``.

    >>> fnx.random.PRNGKey(7)
    Array([0, 7], dtype=uint32)
    """
    if _other_generator(impl) is not None:
        return key_data(key(seed, impl=impl))
    if isinstance(seed, (int, np.integer)) and not scope.is_open():
        return from_numpy(np.array([0, int(seed) & 0xFFFFFFFF], np.uint32))
    return Array(stack_pair(build.const(0, dtypes.uint32), _seed_word(seed)))


def _seed_word(seed: ArrayLike) -> UOp:
    if isinstance(seed, (int, np.integer)):
        return build.const(int(seed) & 0xFFFFFFFF, dtypes.uint32)
    x = asarray(seed)
    if x.shape or not x._dtype.is_integer:
        raise DTypeError(f"expected one integer as seed, got {x._dtype}{list(x.shape)}",
                         hint="use split to make several keys" if x.shape else
                         "convert it with int(...)")
    return build.cast(x._node, dtypes.uint32)


def _other_generator(impl: Any, dtype: Any = None) -> Any:
    """Return the generator of an implementation or a dtype of keys; None for Threefry."""
    if dtype is not None and dtype is not dtypes.key_fry:
        if not hasattr(dtype, "generator"):
            raise DTypeError(f"expected dtype={dtypes.key_fry}, got {dtype!r}",
                             hint="leave out dtype=")
        impl = dtype
    if impl is None or impl == "threefry2x32" or impl == "fry":
        return None
    generator = generators.find(impl)
    return None if generator == generators.THREEFRY else generator


@_docstr("A dtype.", ("ArgumentError: ``impl_spec`` is unknown.",))
def key_dtype(impl_spec: Any = None) -> Any:
    """Return the dtype of keys.

    >>> fnx.random.key(0).dtype == fnx.random.key_dtype()
    True
    """
    other = _other_generator(impl_spec)
    return dtypes.key_fry if other is None else generators.KeyType(other)


@_docstr("A str; for keys of a generator of the user's, what ``define_prng_impl`` returned.")
def key_impl(keys: ArrayLike) -> Any:
    """Return the name of the generator of keys.

    >>> fnx.random.key_impl(fnx.random.key(0))
    'threefry2x32'
    """
    if isinstance(keys, OtherKeys):
        return keys.impl()
    _key_words(_as_keys(keys))
    return "threefry2x32"


@_docstr("The same key.", key="a key, or an Array of keys.")
def clone(key: ArrayLike) -> Array:
    """Return the same key; in JAX its key-reuse checks then accept a second use.

    >>> fnx.random.clone(fnx.random.key(7))
    Array((), dtype=key<fry>) overlaying:
    [0 7]
    """
    same: Any = key
    if isinstance(same, OtherKeys):
        return same  # type: ignore[return-value] # keys as any others
    keys = _as_keys(key)
    _key_words(keys)
    return keys


# ---- keys and their words -----------------------------------------------------------------------


def stack_pair(a: UOp, b: UOp) -> UOp:
    """Stack two nodes of one shape along a new last axis."""
    return build.concat([build.reshape(n, (*n.shape, 1)) for n in (a, b)], len(a.shape))


def _make_keys(high: UOp, low: UOp) -> UOp:
    """Make typed keys of their words: 64 bits, the first word high."""
    wide = Expr(high).cast(dtypes.uint64) << 32 | Expr(low).cast(dtypes.uint64)
    return build.bitcast(wide.node, dtypes.key_fry)


def _as_keys(key: Any) -> Array:
    """Convert an argument to an Array of keys; a seed or a shape in its place gets the cure."""
    if isinstance(key, (int, np.integer)):
        raise DTypeError(f"expected a key, got the number {key}",
                         hint=f"use fnx.random.key({key}), and split it for more than one draw")
    if isinstance(key, (tuple, list)) and all(isinstance(n, int) for n in key):
        raise DTypeError(f"expected a key, got {key}",
                         hint=f"the key comes first: pass (fnx.random.key(0), {key})")
    if key is None or isinstance(key, np.random.Generator):
        raise DTypeError(f"expected a key, got {'None' if key is None else 'a NumPy generator'}",
                         hint="use fnx.random.key(seed), and split it for more than one draw")
    return asarray(key)


def _key_words(keys: Array) -> tuple[UOp, UOp]:
    """Return both words of each key, in the shape of the keys."""
    node = keys._node
    if keys._dtype is dtypes.key_fry:
        bits = Expr(build.bitcast(node, dtypes.uint64))
        return (bits >> 32).cast(dtypes.uint32).node, bits.cast(dtypes.uint32).node
    if keys._dtype is not dtypes.uint32 or keys.shape[-1:] != (2,):
        raise DTypeError(f"expected a key, got {keys._dtype}{list(keys.shape)}",
                         hint="make one with fnx.random.key(seed), or index the result of split")
    front = tuple([(0, n) for n in keys.shape[:-1]])
    first, second = (build.reshape(build.shrink(node, (*front, part)), keys.shape[:-1])
                     for part in ((0, 1), (1, 2)))
    return first, second


def key_argument(key: Any) -> Any:
    """Return keys as they are, and raw keys as an Array."""
    return key if isinstance(key, OtherKeys) else asarray(key)


def single_key_words(key: Any) -> Words:
    """Return the two words of a single key, as scalars, or those of another generator."""
    return key.single_words() if isinstance(key, OtherKeys) else _single_words(key)


def _single_words(key: Any) -> tuple[UOp, UOp]:
    keys = _as_keys(key)
    words = _key_words(keys)
    if words[0].shape:
        raise ShapeError(f"expected one key, got keys of shape {words[0].shape}",
                         hint="use fnx.vmap, or index one of them")
    return words


def _wrap_like(key: Any, high: UOp, low: UOp) -> Array:
    """Make keys of their words, typed or raw as the key that they are derived from."""
    is_typed = type(key) is Array and key._dtype is dtypes.key_fry
    return Array(_make_keys(high, low) if is_typed else stack_pair(high, low))


def _threefry(words: tuple[UOp, UOp], high: UOp, low: UOp) -> tuple[UOp, UOp]:
    keys = [build.expand(w, low.shape) for w in words]
    one, two = (build.elementwise(ops.THREEFRY, *keys, high, low, arg=i) for i in (0, 1))
    return one, two


def random_words(words: Words, shape: Shape) -> tuple[UOp, UOp]:
    """Return two random words for each element; the counter is its row-major index.

    Without ``config.threefry_partitionable``, a counter is two numbers: the index, and the index
    plus the number of elements.
    """
    if isinstance(words, OtherWords):
        wide = words.uints(shape, dtypes.uint64)
        return (wide >> 32).cast(dtypes.uint32).node, wide.cast(dtypes.uint32).node
    n = math.prod(shape)
    if n >= 1 << 32:
        raise ArgumentError(f"expected fewer than 2**32 random elements, got shape {shape}",
                            hint="split the key and draw in parts")
    low = build.reshape(build.iota(n, dtypes.uint32), shape)
    if config.threefry_partitionable:
        return _threefry(words, build.const_like(low, 0), low)
    return _threefry(words, low, build.add(low, build.const_like(low, n)))


def random_uint32(words: Words, shape: Shape) -> Expr:
    """Return 32 random bits for each element."""
    if isinstance(words, OtherWords):
        return words.uints(shape, dtypes.uint32)
    if config.threefry_partitionable:
        one, two = map(Expr, random_words(words, shape))
        bits = one ^ two
    else:
        bits = Expr(build.reshape(_words_in_halves(words, math.prod(shape)), shape))
    return _record_draw(bits, words, 32, shape)


def _record_draw(bits: Expr, words: tuple[UOp, UOp], width: int, shape: Shape) -> Expr:
    """Record random bits as a draw by the typed key that words are of, if they are of one."""
    low = words[1].src
    if low and low[0].src and low[0].src[0].dtype is dtypes.key_fry:
        set_composite(bits.node, "random_bits", _draw_bits, [low[0].src[0]], bit_width=width,
                      shape=shape)
    return bits


def _draw_bits(key: Any, *, bit_width: int, shape: Shape) -> Array:
    t = dtypes.as_dtype(f"uint{bit_width}")
    return Array(random_uints(single_key_words(key), shape, t).node)


def _words_in_halves(words: tuple[UOp, UOp], n: int) -> UOp:
    """Return n random words: the first words of n / 2 counters, then their second words. Of an odd
    n, 0 stands for the counter that is missing."""
    half = (n + 1) // 2
    first = Expr(build.iota(half, dtypes.uint32))
    second = first + half
    second = where(second >= n, 0, second) if n % 2 else second
    pair = _threefry(words, first.node, second.node)
    return build.shrink(build.concat(pair, 0), [(0, n)])


def random_bits(words: Words, shape: Shape, bits: int) -> Expr:
    """Return random bits for each element, at most 32, as uint32; what is above them is random or
    0."""
    if isinstance(words, OtherWords):
        return words.uints(shape, dtypes.as_dtype(f"uint{bits}")).cast(dtypes.uint32)
    n, parts = math.prod(shape), 32 // bits
    if config.threefry_partitionable or parts == 1:
        return random_uint32(words, shape)
    count = -(-n // parts)  # words of several elements each, the lowest bits first
    word = build.expand(build.reshape(_words_in_halves(words, count), (count, 1)), (count, parts))
    part = build.expand(build.reshape(build.iota(parts, dtypes.uint32), (1, parts)), (count, parts))
    shifted = Expr(word) >> Expr(part) * bits
    flat = build.reshape(shifted.node, (count * parts,))
    return Expr(build.reshape(build.shrink(flat, [(0, n)]), shape))


def random_uints(words: Words, shape: Shape, t: DType) -> Expr:
    """Return random bits for each element as an unsigned type; 64 bits are both words, the first
    one high.
    """
    if isinstance(words, OtherWords):
        return words.uints(shape, t)
    if t.bits < 64:
        return random_bits(words, shape, t.bits).cast(t)
    high, low = (Expr(w).cast(t) for w in random_words(words, shape))
    return _record_draw(high << 32 | low, words, 64, shape)


def _new_words(words: tuple[UOp, UOp], shape: Shape) -> tuple[UOp, UOp]:
    """Return the two words of each of several new keys."""
    if config.threefry_partitionable:
        return random_words(words, shape)
    n = math.prod(shape)
    pairs = build.reshape(build.concat(random_words(words, (n,)), 0), (n, 2))
    one, two = (build.reshape(build.shrink(pairs, [(0, n), (i, i + 1)]), shape) for i in (0, 1))
    return one, two


def split_words(words: Words, n: int = 2) -> Sequence[Words]:
    if isinstance(words, OtherWords):
        return words.split(n)
    one, two = _new_words(words, (n,))
    return [(build.reshape(build.shrink(one, [(i, i + 1)]), ()),
             build.reshape(build.shrink(two, [(i, i + 1)]), ())) for i in range(n)]


@_docstr("An Array of keys of shape (num,); for a raw key, an Array of words of shape (num, 2).",
         (ONE_KEY,))
def split(key: ArrayLike, num: ShapeLike = 2) -> Array:
    """Derive new keys from a key.

    >>> a, b = fnx.random.split(fnx.random.key(0))
    """
    shape = axes.normalize_shape(num)
    if isinstance(key, OtherKeys):
        new: Array = key.split(shape)
        return new
    keys = _wrap_like(key, *_new_words(_single_words(key), shape))
    if keys._dtype is dtypes.key_fry:
        set_composite(keys._node, "random_split", _split, [asarray(key)._node], shape=shape)
    return keys


def _split(key: Any, *, shape: Shape) -> Array:
    return split(key, shape)


@lift_ints(data=1)
@_docstr("A key.", (ONE_KEY,))
def fold_in(key: ArrayLike, data: ArrayLike) -> Array:
    """Derive a new key from a key and an integer, such as the number of a step.

    >>> fnx.random.fold_in(fnx.random.key(0), 1).shape
    ()
    """
    if isinstance(key, OtherKeys):
        folded: Array = key.fold_in(data)
        return folded
    if isinstance(data, (int, np.integer)):
        low = build.const(int(data) & 0xFFFFFFFF, dtypes.uint32)
    else:
        low = as_node(asarray(data), dtypes.uint32)
    new = _wrap_like(key, *_threefry(_single_words(key), build.const_like(low, 0), low))
    if new._dtype is dtypes.key_fry:
        set_composite(new._node, "random_fold_in", fold_in, [asarray(key)._node, low])
    return new


@_docstr("An Array of uint32, with a last axis of length 2.")
def key_data(keys: ArrayLike) -> Array:
    """Return the words of keys.

    >>> fnx.random.key_data(fnx.random.key(7))
    Array([0, 7], dtype=uint32)
    """
    if isinstance(keys, OtherKeys):
        of_keys: Array = keys.words
        return of_keys
    key_array = _as_keys(keys)
    words = _key_words(key_array)
    if key_array._dtype is not dtypes.key_fry:
        return key_array
    node = stack_pair(*words)
    return Array(set_composite(node, "random_unwrap", key_data, [key_array._node]))


@public_api
def wrap_key_data(key_bits_array: ArrayLike, *, impl: Any = None, dtype: Any = None
                  ) -> Array:
    """Make keys of their words.

    Args:
        key_bits_array: uint32 of shape (..., 2).
        impl: as of ``key``.
        dtype: None or a dtype of keys.

    Returns:
        A key, or an Array of keys.

    Raises:
        ArgumentError: ``impl`` is unknown.
        DTypeError: the words are not uint32.
        ShapeError: the last axis does not have length 2.

    >>> import fnx.numpy as jnp, fnx.random
    >>> fnx.random.wrap_key_data(jnp.asarray([0, 7], "uint32"))
    Array((), dtype=key<fry>) overlaying:
    [0 7]
    """
    other = _other_generator(impl, dtype)
    if other is not None:
        other_keys: Array = generators.wrapped(other, asarray(key_bits_array))
        return other_keys
    words = asarray(key_bits_array)
    if words._dtype is not dtypes.uint32:
        raise DTypeError(f"expected uint32 key data, got {words._dtype}",
                         hint="it is a key already" if words._dtype is dtypes.key_fry else
                         'convert them with .astype("uint32")')
    keys = _make_keys(*_key_words(words))
    return Array(set_composite(keys, "random_wrap", _wrap, [words._node], impl="fry"))


def _seed_key(seed: Any, *, impl: Any) -> Array:
    return key(seed)


def _wrap(words: Any, *, impl: Any) -> Array:
    return wrap_key_data(words)
