"""Random numbers from explicit keys: Threefry-2x32 in counter mode, with JAX's bits.

The same key gives the same bits as JAX 0.10 (``jax_threefry_partitionable``, its default), and
from these the same uniform, normal, ... numbers up to the last places of log. Element i of an
array depends on the key and i only, so random work fuses like any elementwise work.

A key is a uint32 array of shape (2,). Never use one key twice: ``split`` it.

>>> import fnx.random
>>> key = fnx.random.key(0)
>>> fnx.random.uniform(key, (2,))
Array([0.947667 , 0.9785799], dtype=float32)
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fnx.core import build, dtypes, expr, ops
from fnx.core.array import array as core
from fnx.core.array import axes, convert, operate, scope, special, storage
from fnx.core.array.array import Array, ArrayLike, public
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import as_node, operand
from fnx.core.dtypes import DType
from fnx.core.errors import ArgumentError, DTypeError, NotBuiltError, ShapeError
from fnx.core.expr import Expr, log, log1p, where
from fnx.core.ops import Shape
from fnx.core.uop import UOp
from fnx.numpy import cumsum, maximum, minimum
from fnx.numpy.reductions import argmax

__all__ = [
    "PRNGKey", "bernoulli", "bits", "categorical", "choice", "exponential", "fold_in", "gumbel",
    "key", "key_data", "laplace", "logistic", "normal", "permutation", "rademacher", "randint",
    "split", "truncated_normal", "uniform", "wrap_key_data",
]


# ---- keys -------------------------------------------------------------------------------------


@public
def key(seed: ArrayLike, *, impl: Any = None) -> Array:
    """A key from an integer (of which the low 32 bits count).

    >>> import fnx.random
    >>> fnx.random.key(7)
    Array([0, 7], dtype=uint32)
    """
    if isinstance(seed, (int, np.integer)):
        low = build.const(int(seed) & 0xFFFFFFFF, dtypes.uint32)
    else:
        x = core.asarray(seed)
        if x.shape or not x._dtype.is_integer:
            raise DTypeError(f"key: expected one integer as seed, got {x._dtype}{list(x.shape)}",
                             hint="use split to make several keys")
        low = build.cast(x._node, dtypes.uint32)
    return Array(_pair(build.const(0, dtypes.uint32), low))


PRNGKey = key


def _pair(a: UOp, b: UOp) -> UOp:
    """Two nodes of one shape on a new last axis."""
    return build.concat([build.reshape(n, (*n.shape, 1)) for n in (a, b)], len(a.shape))


def _words(name: str, key: Any) -> tuple[UOp, UOp]:
    """The two words of a key, 0-d."""
    x = core.asarray(key)
    if x.shape != (2,) or x._dtype is not dtypes.uint32:
        raise ShapeError(f"{name}: expected a key, uint32[2]; got {x._dtype}{list(x.shape)}",
                         hint="make one with fnx.random.key(seed); take one of split's by index")
    node = x._node
    return (build.reshape(build.shrink(node, [(0, 1)]), ()),
            build.reshape(build.shrink(node, [(1, 2)]), ()))


def _threefry(words: tuple[UOp, UOp], high: UOp, low: UOp) -> tuple[UOp, UOp]:
    keys = [build.expand(w, low.shape) for w in words]
    one, two = (build.elementwise(ops.THREEFRY, *keys, high, low, arg=i) for i in (0, 1))
    return one, two


def _counted(words: tuple[UOp, UOp], shape: Shape) -> tuple[UOp, UOp]:
    """Both words for each element; the counter is the element's row-major number."""
    n = math.prod(shape)
    if n >= 1 << 32:
        raise ArgumentError(f"expected fewer than 2**32 random elements, got shape {shape}",
                            hint="split the key and draw in parts")
    low = build.reshape(build.iota(n, dtypes.uint32), shape)
    return _threefry(words, build.like(low, 0), low)


def _word(words: tuple[UOp, UOp], shape: Shape) -> Expr:
    """32 random bits for each element."""
    one, two = map(Expr, _counted(words, shape))
    return one ^ two


def _split(words: tuple[UOp, UOp], n: int = 2) -> list[tuple[UOp, UOp]]:
    one, two = _counted(words, (n,))
    return [(build.reshape(build.shrink(one, [(i, i + 1)]), ()),
             build.reshape(build.shrink(two, [(i, i + 1)]), ())) for i in range(n)]


@public
def split(key: ArrayLike, num: ShapeLike = 2) -> Array:
    """New keys from a key, of shape (num, 2).

    >>> import fnx.random
    >>> a, b = fnx.random.split(fnx.random.key(0))
    """
    return Array(_pair(*_counted(_words("split", key), axes.shape(num))))


@public
def fold_in(key: ArrayLike, data: ArrayLike) -> Array:
    """A new key from a key and an integer, such as the number of a step.

    >>> import fnx.random
    >>> fnx.random.fold_in(fnx.random.key(0), 1).shape
    (2,)
    """
    if isinstance(data, (int, np.integer)):
        low = build.const(int(data) & 0xFFFFFFFF, dtypes.uint32)
    else:
        low = as_node(core.asarray(data), dtypes.uint32)
    return Array(_pair(*_threefry(_words("fold_in", key), build.like(low, 0), low)))


def key_data(keys: ArrayLike) -> Array:
    """The uint32 words of a key, which here are the key itself.

    >>> import fnx.random
    >>> fnx.random.key_data(fnx.random.key(7))
    Array([0, 7], dtype=uint32)
    """
    return core.asarray(keys)


def wrap_key_data(key_bits_array: ArrayLike, *, impl: Any = None) -> Array:
    """A key from its words.

    >>> import fnx.random
    >>> fnx.random.wrap_key_data([0, 7])
    Array([0, 7], dtype=uint32)
    """
    return core.asarray(key_bits_array, dtypes.uint32)


# ---- bits and uniform numbers -----------------------------------------------------------------


@public
def bits(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Array:
    """Random uint32 words.

    >>> import fnx.random
    >>> fnx.random.bits(fnx.random.key(0), (1,))
    Array([4070199207], dtype=uint32)
    """
    t = dtypes.uint32 if dtype is None else dtypes.as_dtype(dtype)
    if t is not dtypes.uint32:
        raise DTypeError(f"bits: expected dtype uint32, got {t}")
    return Array(_word(_words("bits", key), axes.shape(shape)).node)


def _float_type(name: str, dtype: Any) -> DType:
    t = convert.default_float() if dtype is None else convert.dtype_argument(dtype)
    if not t.is_float:
        raise DTypeError(f"{name}: expected a float dtype, got {t}", hint="use randint")
    return t


def _unit(words: tuple[UOp, UOp], shape: Shape, t: DType) -> Expr:
    """Uniform in [0, 1): random bits as the mantissa of a number in [1, 2), less 1."""
    if t is dtypes.float32:
        return (_word(words, shape) >> 9 | 0x3F800000).bitcast(t) - 1
    high, low = map(Expr, _counted(words, shape))  # 52 bits of the 64; every step is exact
    return high.cast(t) * 2.0 ** -32 + (low >> 12).cast(t) * 2.0 ** -52


def _bounds(name: str, xs: tuple[Any, ...], t: DType, shape: Shape) -> list[Expr]:
    nodes = [as_node(operand(x), t) for x in xs]
    for n in nodes:
        if build.broadcast_shapes(n.shape, shape) != shape:
            raise ShapeError(f"{name}: expected arguments that broadcast to {shape}, got "
                             f"{n.shape}", hint="give shape= the full shape")
    return [Expr(build.expand(n, shape)) for n in nodes]


def _between(words: tuple[UOp, UOp], low: Expr, high: Expr | float) -> Expr:
    """Uniform in [low, high)."""
    return expr.maximum(low, _unit(words, low.shape, low.dtype) * (high - low) + low)


@public
def uniform(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None,
            minval: ArrayLike = 0.0, maxval: ArrayLike = 1.0) -> Array:
    """Uniform in [minval, maxval).

    >>> import fnx.random
    >>> print(fnx.random.uniform(fnx.random.key(0)))
    0.947667
    """
    t, size = _float_type("uniform", dtype), axes.shape(shape)
    low, high = _bounds("uniform", (minval, maxval), t, size)
    return Array(_between(_words("uniform", key), low, high).node)


@public
def randint(key: ArrayLike, shape: ShapeLike, minval: ArrayLike, maxval: ArrayLike,
            dtype: DTypeLike | None = None) -> Array:
    """Integers in [minval, maxval); minval where that is empty.

    >>> import fnx.random
    >>> fnx.random.randint(fnx.random.key(0), (3,), 0, 10)
    Array([9, 0, 2], dtype=int32)
    """
    t = dtypes.int32 if dtype is None else dtypes.as_dtype(dtype)
    if not t.is_integer:
        raise DTypeError(f"randint: expected an integer dtype, got {t}", hint="use uniform")
    size = axes.shape(shape)
    past = isinstance(maxval, int) and maxval > ops.highest(t)
    low, high = _bounds("randint", (_clamped(minval, t), _clamped(maxval, t)), t, size)
    span = (high - low).cast(dtypes.uint32)
    span = where(high <= low, 1, span + 1 if past else span)
    first, second = (_word(w, size) for w in _split(_words("randint", key)))
    factor = (1 << 16) % span
    factor = factor * factor % span
    offset = first % span * factor + second % span
    return Array((low + (offset % span).cast(t)).node)


def _clamped(x: Any, t: DType) -> Any:
    """A bound in the range of t; float bounds are cut to whole numbers."""
    if isinstance(x, (int, float)):
        return min(max(int(x), ops.lowest(t)), ops.highest(t))
    x = core.asarray(x)
    if x._dtype is t:
        return x
    if t is dtypes.uint32 and not x._dtype.is_float:
        return maximum(x, 0) if x._dtype.kind == "int" else x
    return minimum(x, ops.highest(t)) if x._dtype.kind == "uint" else x


@public
def bernoulli(key: ArrayLike, p: ArrayLike = 0.5, shape: ShapeLike | None = None, mode: str = "low"
             ) -> Array:
    """True with probability p.

    >>> import fnx.random
    >>> fnx.random.bernoulli(fnx.random.key(0), 0.5, (3,))
    Array([False, False,  True], dtype=bool)
    """
    x = operand(p)
    t, _ = core.kind_of(x)
    if not t.is_float:
        raise DTypeError(f"bernoulli: expected a float probability, got {t}",
                         hint="write 1.0 instead of 1")
    if mode != "low":
        raise NotBuiltError(f"bernoulli: expected mode 'low', got {mode!r}")
    size = core.asarray(x).shape if shape is None else axes.shape(shape)
    (bound,) = _bounds("bernoulli", (x,), t, size)
    return Array((_unit(_words("bernoulli", key), size, t) < bound).node)


@public
def rademacher(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Array:
    """-1 or 1, each with probability 1/2.

    >>> import fnx.random
    >>> fnx.random.rademacher(fnx.random.key(0), (3,))
    Array([-1, -1,  1], dtype=int32)
    """
    t = dtypes.int32 if dtype is None else dtypes.as_dtype(dtype)
    return operate.astype(2 * bernoulli(key, 0.5, axes.shape(shape)).astype(int) - 1,
                       t)


# ---- other distributions ----------------------------------------------------------------------


@public
def normal(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Array:
    """Normal with mean 0 and variance 1: sqrt(2) erf_inv of a uniform number in (-1, 1).

    >>> import fnx.random
    >>> print(fnx.random.normal(fnx.random.key(0)))
    1.6226422
    """
    t, size = _float_type("normal", dtype), axes.shape(shape)
    lowest = np.nextafter(np.array(-1, t.np), np.array(0, t.np))
    u = _between(_words("normal", key), Expr(build.const(lowest, t, size)), 1.0)
    return Array((special.erf_inv(u) * math.sqrt(2.0)).node)


@public
def truncated_normal(key: ArrayLike, lower: ArrayLike, upper: ArrayLike,
                     shape: ShapeLike | None = None, dtype: DTypeLike | None = None) -> Array:
    """Normal, given that it falls between lower and upper.

    >>> import fnx.random
    >>> x = fnx.random.truncated_normal(fnx.random.key(0), -2.0, 2.0, (100,))
    >>> bool((abs(x) < 2).all())
    True
    """
    t = _float_type("truncated_normal", dtype)
    size = build.broadcast_shapes(core.asarray(lower).shape, core.asarray(upper).shape) \
        if shape is None else axes.shape(shape)
    low, high = _bounds("truncated_normal", (lower, upper), t, size)
    root = math.sqrt(2.0)
    u = _between(_words("truncated_normal", key), special.erf(low / root),
                 special.erf(high / root))
    x = Array((root * special.erf_inv(u)).node)
    least, most = _inner(lower, t, math.inf), _inner(upper, t, -math.inf)
    return minimum(maximum(x, least), most)


def _inner(bound: Any, t: DType, towards: float) -> Any:
    """The next number inside a bound that is a plain number; an array bounds as it is."""
    if type(bound) is Array:
        return operate.astype(bound, t)
    return np.nextafter(np.asarray(bound, t.np), np.asarray(towards, t.np), dtype=t.np)


@public
def exponential(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Array:
    """Exponential with mean 1.

    >>> import fnx.random
    >>> fnx.random.exponential(fnx.random.key(0), (2,)).shape
    (2,)
    """
    t = _float_type("exponential", dtype)
    u = _unit(_words("exponential", key), axes.shape(shape), t)
    return Array((-log1p(-u)).node)


@public
def gumbel(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None,
           mode: str | None = None) -> Array:
    """Standard Gumbel: -log(-log(u)).

    >>> import fnx.random
    >>> fnx.random.gumbel(fnx.random.key(0), (2,)).shape
    (2,)
    """
    if mode not in (None, "low"):
        raise NotBuiltError(f"gumbel: expected mode 'low', got {mode!r}")
    t, size = _float_type("gumbel", dtype), axes.shape(shape)
    tiny = Expr(build.const(np.finfo(t.np).tiny, t, size))
    return Array((-log(-log(_between(_words("gumbel", key), tiny, 1.0)))).node)


@public
def laplace(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Array:
    """Standard Laplace: exponential with a random sign.

    >>> import fnx.random
    >>> fnx.random.laplace(fnx.random.key(0), (2,)).shape
    (2,)
    """
    t, size = _float_type("laplace", dtype), axes.shape(shape)
    lowest = Expr(build.const(-1 + np.finfo(t.np).epsneg, t, size))
    u = _between(_words("laplace", key), lowest, 1.0)
    tail = log1p(-abs(u))
    return Array(where(u.eq(0), u, where(u < 0, -tail, tail)).node)


@public
def logistic(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Array:
    """Standard logistic: log(u / (1 - u)).

    >>> import fnx.random
    >>> fnx.random.logistic(fnx.random.key(0), (2,)).shape
    (2,)
    """
    t, size = _float_type("logistic", dtype), axes.shape(shape)
    u = _between(_words("logistic", key), Expr(build.const(np.finfo(t.np).tiny, t, size)), 1.0)
    return Array(log(u / (1 - u)).node)


@public
def categorical(key: ArrayLike, logits: ArrayLike, axis: int = -1, shape: ShapeLike | None = None,
                replace: bool = True, mode: str | None = None) -> Array:
    """Indices drawn with probabilities softmax(logits), by the largest of logits + Gumbel.

    >>> import fnx.numpy as jnp
    >>> import fnx.random
    >>> print(fnx.random.categorical(fnx.random.key(0), jnp.asarray([0.0, -jnp.inf])))
    0
    """
    if not replace:
        raise NotBuiltError("categorical: expected replace=True",
                            hint="draws without replacement need a sort, which is to come")
    x = core.asarray(logits)
    at = axes.one(axis, x.ndim)
    batch = x.shape[:at] + x.shape[at + 1:]
    wanted = batch if shape is None else axes.shape(shape)
    lead = wanted[:len(wanted) - len(batch)]
    if build.broadcast_shapes(wanted, batch) != wanted:
        raise ShapeError(f"categorical: expected a shape that ends in {batch}, got {wanted}",
                         hint="shape is that of the result: batch axes last")
    rest = list(wanted[len(lead):])
    rest.insert(at, x.shape[at])
    noise = gumbel(key, (*lead, *rest), x.dtype, mode)
    return argmax(noise + x, axis=at - x.ndim)


# ---- orders -----------------------------------------------------------------------------------


@public
def permutation(key: ArrayLike, x: ArrayLike, axis: int = 0, independent: bool = False) -> Array:
    """An array in random order along an axis; of an int n, the numbers 0..n-1.

    Elements are sorted by random words, a few times over. Outside of traces NumPy sorts. In a
    trace an element's place is how many words are smaller, which takes n**2 comparisons.

    >>> import fnx.random
    >>> fnx.random.permutation(fnx.random.key(0), 4)
    Array([0, 1, 3, 2], dtype=int32)
    """
    if independent:
        raise NotBuiltError("permutation: expected independent=False",
                            hint="that needs a sort along an axis, which is to come")
    words = _words("permutation", key)
    if isinstance(x, (int, np.integer)):
        return Array(_shuffled(words, int(x), int(x)))
    array = core.asarray(x)
    if array.ndim == 0:
        return permutation(key, int(array), axis)
    at = axes.one(axis, array.ndim)
    order = Array(_shuffled(words, array.shape[at], array.shape[at]))
    return operate.get_item(array, (slice(None),) * at + (order,))


def _shuffled(words: tuple[UOp, UOp], n: int, size: int) -> UOp:
    """A random order of 0..n-1. Rounds make up for words that are equal by chance."""
    order = build.iota(n)
    rounds = math.ceil(3 * math.log(max(1, size)) / math.log(0xFFFFFFFF))
    for _ in range(rounds):
        words, fresh = _split(words)
        order = _sorted_by(_word(fresh, (n,)).node, order)
    return order


def _sorted_by(word: UOp, values: UOp) -> UOp:
    """``values`` in the order of ``word``; equal words keep their order."""
    n = word.shape[0]
    if not scope.is_open():
        first, second = storage.evaluate([word, values])
        keys, data = (s.view(x.dtype.np, (n,)) for s, x in ((first, word), (second, values)))
        return storage.buffer(data[np.argsort(keys, kind="stable")])
    mine, other, row, column = (Expr(build.expand(build.reshape(x, shape), (n, n)))
                                for x in (word, build.iota(n)) for shape in ((n, 1), (1, n)))
    before = (other < mine) | other.eq(mine) & (column < row)
    place = build.reduce(before.cast(dtypes.int32).node, ops.ADD, (1,))
    return build.scatter(build.like(values, 0), [place], values, "set")


@public
def choice(key: ArrayLike, a: ArrayLike, shape: ShapeLike = (), replace: bool = True,
           p: ArrayLike | None = None, axis: int = 0) -> Array:
    """Random elements of an array along an axis, or of 0..a-1.

    >>> import fnx.random
    >>> fnx.random.choice(fnx.random.key(0), 5, (2,), replace=False).shape
    (2,)
    """
    size = axes.shape(shape)
    count = math.prod(size)
    of = None if isinstance(a, int) else core.asarray(a)
    n = int(a) if of is None else of.shape[axes.one(axis, of.ndim)]
    if n < 1 or (not replace and count > n):
        raise ArgumentError(f"choice: expected at least {1 if replace else count} elements to "
                            f"draw {count} from, got {n}", hint="use replace=True")
    if p is not None and not replace:
        raise NotBuiltError("choice: expected p=None where replace=False",
                            hint="that needs a sort, which is to come")
    if p is not None:
        index = _weighted(key, p, n, size)
    elif replace:
        index = randint(key, size, 0, n)
    else:
        index = Array(_shuffled(_words("choice", key), n, n))[:count].reshape(size)
    if of is None:
        return index
    at = axes.one(axis, of.ndim)
    return operate.get_item(of, (slice(None),) * at + (index,))


def _weighted(key: Any, p: Any, n: int, size: Shape) -> Array:
    weights = core.asarray(p)
    if weights.shape != (n,):
        raise ShapeError(f"choice: expected p of shape {(n,)}, got {weights.shape}",
                         hint="one probability for each element")
    running = cumsum(weights.astype(convert.default_float()) if not weights._dtype.is_float
                     else weights)
    drawn = running[-1] * (1 - uniform(key, size, running.dtype))
    return (running < drawn[..., None]).sum(-1)

