"""Keys of other generators than Threefry: JAX's rbg and unsafe_rbg, and those that users define.

    keys of key<rbg>[3]  are a pytree of their words, uint32[3, 4]

rbg draws by Philox-4x32 (Salmon et al., 2011) in counter mode, as XLA does on processors, and
splits keys by Threefry; unsafe_rbg splits them by Philox, too.

>>> import fnx.random
>>> keys = fnx.random.split(fnx.random.key(0, impl="rbg"))
>>> keys.shape, keys.dtype, fnx.random.uniform(keys[1], ())
((2,), key<rbg>, Array(0.19839776, dtype=float32))
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fnx.core.array import axes
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.pytree_registry import register_pytree_node
from fnx.core.ir import build, dtypes
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr
from fnx.core.ir.ops import Shape
from fnx.core.support.errors import ArgumentError, DTypeError, NotBuiltError, ShapeError
from fnx.core.support.record import Record
from fnx.numpy import concatenate
from fnx.numpy.dtypes import prng_key
from fnx.random import keys
from fnx.random.keys import OtherKeys, OtherWords

_ROUNDS = 10
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_KEY_STEPS = 0x9E3779B9, 0xBB67AE85


class Generator(Record):
    """A random number generator: the arguments of ``define_prng_impl``."""

    key_shape: Shape
    seed: Callable[[Any], Any]
    split: Callable[[Any, Shape], Any]
    random_bits: Callable[[Any, int, Shape], Any]
    fold_in: Callable[[Any, Any], Any]
    name: str
    tag: str


class PRNGSpec(Record):
    """A generator as ``impl`` of ``random.key``."""

    generator: Generator

    def __repr__(self) -> str:
        return f"PRNGSpec({self.generator.name!r})"

    def __str__(self) -> str:
        return self.generator.tag


class KeyType(Record):
    """The dtype of keys of a generator."""

    generator: Generator

    @property
    def type(self) -> type:
        """Its kind."""
        return prng_key

    @property
    def name(self) -> str:
        """Its name."""
        return f"key<{self.generator.tag}>"

    @property
    def itemsize(self) -> int:
        """The number of bytes of a key."""
        return 4 * math.prod(self.generator.key_shape)

    def __repr__(self) -> str:
        return self.name


class GeneratorWords(OtherWords):
    """The words of one key, and their generator."""

    def __init__(self, generator: Generator, words: Array) -> None:
        self.generator, self.words = generator, words

    def uints(self, shape: Shape, t: DType) -> Expr:
        """Return random unsigned integers."""
        drawn = _result(self.generator.random_bits(self.words, t.bits, shape), self.generator,
                        "random_bits", shape, t)
        return Expr(drawn._node)

    def split(self, n: int) -> list[OtherWords]:
        """Return the words of n new keys."""
        new = GeneratorKeys(self.generator, self.words).split((n,))
        return [GeneratorWords(self.generator, words) for words in new.words]


class GeneratorKeys(OtherKeys):
    """Keys of a generator; a pytree of their words.

    Attributes:
        generator: the generator.
        words: an Array of uint32, of the shape of the keys and then that of the words of one.
    """

    __slots__ = ("generator",)

    def __init__(self, generator: Generator, words: Any) -> None:
        self.generator, self.words = generator, words

    @property
    def shape(self) -> Shape:
        """The lengths of the axes."""
        shape: Shape = self.words.shape
        return shape[:len(shape) - len(self.generator.key_shape)]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of keys."""
        return math.prod(self.shape)

    @property
    def dtype(self) -> KeyType:
        """The dtype."""
        return KeyType(self.generator)

    def __repr__(self) -> str:
        words = self.words if getattr(self.words, "_storage", None) is None \
            else np.asarray(self.words)
        return f"Array({self.shape}, dtype={self.dtype}) overlaying:\n{words}"

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise dtypes.random_key_error()

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("expected keys along an axis, got one key, which has no len()",
                             hint="fnx.random.split(key, n) makes n keys")
        return self.shape[0]

    def __iter__(self) -> Iterator[GeneratorKeys]:
        return iter([self[i] for i in range(len(self))])

    def __getitem__(self, index: Any) -> GeneratorKeys:
        positions = index if isinstance(index, tuple) else (index,)
        rest = () if any(i is Ellipsis for i in positions) else (Ellipsis,)
        of_words = (slice(None),) * len(self.generator.key_shape)
        return GeneratorKeys(self.generator, self.words[(*positions, *rest, *of_words)])

    def reshape(self, *shape: Any) -> GeneratorKeys:
        """Return the keys in another shape.

        Args:
            shape: its lengths, one of which may be -1.

        Returns:
            Keys.
        """
        lengths = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        whole = np.empty(self.shape, bool).reshape(lengths).shape
        return GeneratorKeys(self.generator,
                             self.words.reshape((*whole, *self.generator.key_shape)))

    def ravel(self) -> GeneratorKeys:
        """Return the keys along one axis.

        Returns:
            Keys.
        """
        return self.reshape(-1)

    flatten = ravel

    def __eq__(self, other: object) -> Any:
        if not isinstance(other, GeneratorKeys) or other.generator != self.generator:
            return NotImplemented
        return self._are_all(self.words == other.words)

    def __ne__(self, other: object) -> Any:
        if not isinstance(other, GeneratorKeys) or other.generator != self.generator:
            return NotImplemented
        return ~self._are_all(self.words == other.words)

    def _are_all(self, equal: Any) -> Any:
        return equal.all(tuple(range(-len(self.generator.key_shape), 0)))

    # ---- what the functions of random ask

    def single_words(self) -> GeneratorWords:
        """Return the words of one key."""
        if self.shape:
            raise ShapeError(f"expected one key, got keys of shape {self.shape}",
                             hint="use fnx.vmap, or index one of them")
        return GeneratorWords(self.generator, self.words)

    def split(self, shape: Shape) -> GeneratorKeys:
        """Return new keys of a shape."""
        of_one, key_shape = self.single_words(), self.generator.key_shape
        return GeneratorKeys(self.generator, _result(
            self.generator.split(of_one.words, shape), self.generator, "split",
            (*shape, *key_shape), dtypes.uint32))

    def fold_in(self, data: Any) -> GeneratorKeys:
        """Return a new key, derived with an integer."""
        of_one = self.single_words()
        number = asarray(np.uint32(data & 0xFFFFFFFF)) if isinstance(data, (int, np.integer)) \
            else asarray(data).astype("uint32")
        return GeneratorKeys(self.generator, _result(
            self.generator.fold_in(of_one.words, number), self.generator, "fold_in",
            self.generator.key_shape, dtypes.uint32))

    def impl(self) -> Any:
        """Return the name of the generator, or what describes one of the user's."""
        name = self.generator.name
        return name if BY_NAME.get(name) == self.generator else PRNGSpec(self.generator)


register_pytree_node(GeneratorKeys, lambda x: ((x.words,), x.generator),
                     lambda generator, words: GeneratorKeys(generator, words[0]))


def _result(x: Any, generator: Generator, rule: str, shape: Shape, t: DType) -> Array:
    """Return a result of a function of a generator, checked."""
    out = asarray(x)
    if out.shape != shape or out._dtype is not t:
        kind = ShapeError if out.shape != shape else DTypeError
        raise kind(f"expected {rule} of the generator {generator.name} to return "
                   f"{t}{list(shape)}, got {out._aval}",
                   hint="define_prng_impl says what each function takes and returns")
    return out


def find(impl: Any) -> Generator:
    """Return the generator of a name, a PRNGSpec or a dtype of keys.

    Raises:
        ArgumentError: there is none.
    """
    generator = impl.generator if isinstance(impl, (PRNGSpec, KeyType)) else \
        BY_NAME.get(impl) if isinstance(impl, str) else impl
    if not isinstance(generator, Generator):
        raise ArgumentError(f"expected impl 'threefry2x32', 'rbg', 'unsafe_rbg' or None; got "
                            f"{impl!r}", hint="fnx.random.generators.define_prng_impl makes others")
    return generator


def seeded(generator: Generator, seed: Any) -> GeneratorKeys:
    """Return the key of a seed."""
    if isinstance(seed, (int, np.integer)):
        seed = np.uint32(int(seed) & 0xFFFFFFFF).astype(np.int32)
    return GeneratorKeys(generator, _result(generator.seed(asarray(seed)), generator, "seed",
                                            generator.key_shape, dtypes.uint32))


def wrapped(generator: Generator, words: Array) -> GeneratorKeys:
    """Return the keys of words."""
    n = len(generator.key_shape)
    if words._dtype is not dtypes.uint32 or words.shape[len(words.shape) - n:] != \
            generator.key_shape:
        raise ShapeError(f"expected uint32 key data of shape (..., "
                         f"{', '.join(map(str, generator.key_shape))}), got {words._aval}",
                         hint="key_data(keys) gives the words of keys")
    return GeneratorKeys(generator, words)


@public_api
def define_prng_impl(*, key_shape: ShapeLike, seed: Callable[[Any], Any],
                     split: Callable[[Any, Shape], Any],
                     random_bits: Callable[[Any, int, Shape], Any],
                     fold_in: Callable[[Any, Any], Any], name: str = "<unnamed>", tag: str = "?"
                     ) -> PRNGSpec:
    """Define a random number generator by functions of the words of its keys.

    Args:
        key_shape: the shape of the words of a key, which are uint32.
        seed: an integer -> the words of a key.
        split: (words, shape) -> the words of keys, of this shape and then ``key_shape``.
        random_bits: (words, width, shape) -> unsigned integers of this width and shape.
        fold_in: (words, a uint32) -> the words of a key.
        name: the name of the generator.
        tag: the name of the dtype of its keys, ``key<tag>``.

    Returns:
        What ``fnx.random.key`` takes as ``impl``.

    >>> import fnx.numpy as jnp, fnx.random
    >>> counting = define_prng_impl(
    ...     key_shape=(1,), seed=lambda s: s.astype("uint32").reshape(1),
    ...     split=lambda w, shape: w + jnp.arange(shape[0], dtype="uint32")[:, None],
    ...     random_bits=lambda w, width, shape: jnp.full(shape, w[0], f"uint{width}"),
    ...     fold_in=lambda w, data: w + data, name="counting", tag="count")
    >>> fnx.random.bits(fnx.random.key(7, impl=counting), (2,))
    Array([7, 7], dtype=uint32)
    """
    return PRNGSpec(Generator(axes.normalize_shape(key_shape), seed, split, random_bits, fold_in,
                              name, tag))


# ---- Philox


class RandomAlgorithm(enum.IntEnum):
    """The algorithms of ``rng_bit_generator``."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2


def _high_and_low(wide: Expr) -> tuple[Expr, Expr]:
    return (wide >> 32).cast(dtypes.uint32), wide.cast(dtypes.uint32)


def _philox(counter: list[Expr], key: list[Expr]) -> list[Expr]:
    """Return four words for each counter of four words."""
    for _ in range(_ROUNDS):
        (high0, low0), (high1, low1) = (
            _high_and_low(counter[i].cast(dtypes.uint64) * multiplier)
            for i, multiplier in zip((0, 2), _MULTIPLIERS))
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [k + step for k, step in zip(key, _KEY_STEPS)]
    return counter


@public_api
def rng_bit_generator(key: Any, shape: ShapeLike, dtype: DTypeLike = "uint32",
                      algorithm: Any = RandomAlgorithm.RNG_DEFAULT, *, out_sharding: Any = None
                      ) -> tuple[Array, Array]:
    """Draw random bits by Philox from a state, and return the next state.

    Args:
        key: the state, four words as uint32 or two as uint64: the first half is the key and the
            upper half of the counter, the second one the lower half.
        shape: the shape of the result.
        dtype: an unsigned type of 8 to 64 bits.
        algorithm: a ``RandomAlgorithm``, but not Threefry.
        out_sharding: accepted for compatibility with JAX.

    Returns:
        (next state, bits).

    Raises:
        DTypeError: the state is none, or the dtype is not such a type.
        NotBuiltError: another algorithm.

    >>> import fnx.numpy as jnp
    >>> rng_bit_generator(jnp.arange(4, dtype="uint32"), (2,))
    (Array([0, 1, 3, 3], dtype=uint32), Array([ 895509795, 3230209149], dtype=uint32))
    """
    if algorithm not in (RandomAlgorithm.RNG_DEFAULT, RandomAlgorithm.RNG_PHILOX):
        raise NotBuiltError(f"rng_bit_generator: expected Philox, got {algorithm!r}",
                            hint="fnx.random.bits(fnx.random.key(seed), shape) draws by Threefry")
    state, t, size = asarray(key), dtypes.as_dtype(dtype), axes.normalize_shape(shape)
    if t.kind != "uint" or t.bits < 8:
        raise DTypeError(f"rng_bit_generator: expected an unsigned dtype of 8 bits or more, got "
                         f"{t}", hint="use .view(...) for other types")
    first, second = _halves(state)
    n = math.prod(size)
    each = 2 if t.bits == 64 else 4
    blocks = -(-n // each)
    upper, lower = (build.expand(build.reshape(half.node, (1,)), (blocks,))
                    for half in (first, second))
    low = Expr(lower) + Expr(build.iota(blocks, dtypes.uint32)).cast(dtypes.uint64)
    key_words = [*reversed(_high_and_low(Expr(upper)))]
    words = _philox([*reversed(_high_and_low(low)), *key_words], key_words)
    if each == 2:
        wide = [w.cast(dtypes.uint64) for w in words]
        words = [wide[1] << 32 | wide[0], wide[3] << 32 | wide[2]]
    columns = build.concat([build.reshape(w.node, (blocks, 1)) for w in words], 1)
    flat = build.shrink(build.reshape(columns, (blocks * each,)), [(0, n)])
    return (_state_like(state, first, second + blocks),
            Array(build.cast(build.reshape(flat, size), t)))


def _halves(state: Array) -> tuple[Expr, Expr]:
    """Return both halves of a state, as uint64."""
    wide = state._dtype is dtypes.uint64
    if state._dtype not in (dtypes.uint32, dtypes.uint64) or state.shape != (2 if wide else 4,):
        raise DTypeError(f"rng_bit_generator: expected uint32[4] or uint64[2] as key, got "
                         f"{state._aval}",
                         hint='fnx.random.key_data(fnx.random.key(seed, impl="rbg")) makes one')
    parts = [Expr(build.reshape(build.shrink(state._node, [(i, i + 1)]), ())).cast(dtypes.uint64)
             for i in range(state.shape[0])]
    return (parts[0], parts[1]) if wide else \
        (parts[1] << 32 | parts[0], parts[3] << 32 | parts[2])


def _state_like(state: Array, first: Expr, second: Expr) -> Array:
    """Return two halves in the form of a state."""
    parts = [first, second] if state._dtype is dtypes.uint64 else \
        [*reversed(_high_and_low(first)), *reversed(_high_and_low(second))]
    return Array(build.concat([build.reshape(p.node, (1,)) for p in parts], 0))


# ---- the generators of JAX


def _rbg_seed(seed: Any) -> Array:
    half = keys.PRNGKey(seed)
    return concatenate([half, half])


def _rbg_split(words: Any, shape: Shape) -> Array:
    return concatenate([keys.split(words[:2], shape), keys.split(words[2:], shape)], -1)


def _rbg_fold_in(words: Any, data: Any) -> Array:
    return concatenate([keys.fold_in(words[:2], data), keys.fold_in(words[2:], data)])


def _rbg_bits(words: Any, width: int, shape: Shape) -> Array:
    return rng_bit_generator(words, shape, f"uint{width}")[1]


_DISTANCE = 10  # rows of bits between two keys, which stand for the rounds of a hash


def _unsafe_split(words: Any, shape: Shape) -> Array:
    n = math.prod(shape)
    rows = rng_bit_generator(words, (_DISTANCE * n, 4))[1]
    return rows[::_DISTANCE].reshape((*shape, 4))


def _unsafe_fold_in(words: Any, data: Any) -> Array:
    out: Array = words ^ rng_bit_generator(_rbg_seed(data), (_DISTANCE, 4))[1][-1]
    return out


def _threefry_bits(words: Any, width: int, shape: Shape) -> Array:
    t = dtypes.as_dtype(f"uint{width}")
    return Array(keys.random_uints(keys.single_key_words(words), shape, t).node)


RBG = Generator((4,), _rbg_seed, _rbg_split, _rbg_bits, _rbg_fold_in, "rbg", "rbg")
UNSAFE_RBG = Generator((4,), _rbg_seed, _unsafe_split, _rbg_bits, _unsafe_fold_in, "unsafe_rbg",
                       "urbg")
THREEFRY = Generator((2,), keys.PRNGKey, keys.split, _threefry_bits, keys.fold_in, "threefry2x32",
                     "fry")
BY_NAME = {g.name: g for g in (RBG, UNSAFE_RBG, THREEFRY)}
