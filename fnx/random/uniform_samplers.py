"""Random bits, uniform numbers and integers, and two-valued distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

from fnx.core.array import arguments, array_operators, axes, convert
from fnx.core.array.api_boundary import (
    asarray,
    dtype_and_weak,
    public_api,
    takes_out_sharding,
)
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.eager_cache import lift_ints
from fnx.core.array.promotion import as_node, as_operand
from fnx.core.ir import build, dtypes, expr
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr, where
from fnx.core.ir.ops import Shape
from fnx.core.support.errors import DTypeError, NotBuiltError, ShapeError
from fnx.core.support.process import lazy_import
from fnx.numpy import maximum, minimum
from fnx.random.keys import (
    ONE_KEY,
    Words,
    random_bits,
    random_uints,
    random_words,
    single_key_words,
    split_words,
)

sharding = lazy_import("fnx.sharding")

__all__ = ["bernoulli", "bits", "rademacher", "randint", "uniform"]


def public_sampler(f: Callable[..., Array]) -> Callable[..., Array]:
    """Decorate a sampler: public, and its results have its ``out_sharding``."""
    return public_api(takes_out_sharding(f))


ShardingLike: TypeAlias = Any  # NamedSharding, PartitionSpec or None
DrawMode: TypeAlias = Literal["low", "high"] | None

_NO_FLOAT = "DTypeError: ``dtype`` is not a float dtype."
BOUNDS_RAISE = (ONE_KEY, _NO_FLOAT, "ShapeError: the bounds do not broadcast to the shape.")
MODE_RAISES = (ONE_KEY, _NO_FLOAT, 'NotBuiltError: ``mode`` is "high".')
sampler_docs = DocTemplate(
    key="a key from ``random.key``.", shape="the shape of the result: a static int or ints.",
    dtype="a float dtype; by default the default float.", mode='None or "low".',
    minval="the lower bound; broadcasts to the shape.",
    maxval="the upper bound; broadcasts to the shape.",
    lower="the lower bound, in standard deviations.",
    upper="the upper bound, in standard deviations.",
    out_sharding="None, or the sharding of the result; the numbers do not depend on it.",
    returns="An Array.", imports="fnx.random", raises=(ONE_KEY, _NO_FLOAT), wrap=public_sampler)


@sampler_docs(
    "An Array of the dtype.", (ONE_KEY, "DTypeError: ``dtype`` is not such a type."),
    dtype="an unsigned type of 8 bits or more; by default uint32 (uint64 with config.x64).")
def bits(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
         out_sharding: ShardingLike = None) -> Array:
    """Draw random bits.

    >>> fnx.random.bits(fnx.random.key(0), (1,))
    Array([4070199207], dtype=uint32)
    """
    t = dtypes.default_width(dtypes.uint64) if dtype is None else dtypes.as_dtype(dtype)
    if t.kind != "uint" or t.bits < 8:
        raise DTypeError(f"bits: expected an unsigned dtype of 8 bits or more, got {t}",
                         hint="use randint, or .view(...) for signed integers")
    return Array(random_uints(single_key_words(key), axes.normalize_shape(shape), t).node)


def float_dtype(dtype: Any) -> DType:
    t = convert.default_float() if dtype is None else convert.parse_dtype(dtype)
    if not t.is_float:
        raise DTypeError(f"expected a float dtype, got {t}", hint="use randint")
    return t


def unit_uniform(words: Words, shape: Shape, t: DType) -> Expr:
    """Draw uniform numbers in [0, 1): random bits as mantissas of numbers in [1, 2), minus 1."""
    if t.bits < 64:
        drawn_bits = 8 if t.mantissa < 8 else t.bits
        mantissa = random_bits(words, shape, drawn_bits) & (1 << drawn_bits) - 1
        ones = t.bias << t.mantissa  # the bits of 1.0
        return (mantissa >> drawn_bits - t.mantissa | ones).cast(uint_dtype(t)).bitcast(t) - 1
    high, low = map(Expr, random_words(words, shape))  # 52 bits of the 64; every step is exact
    return high.cast(t) * 2.0 ** -32 + (low >> 12).cast(t) * 2.0 ** -52


def uint_dtype(t: DType) -> DType:
    """Return the unsigned type of the width of a float type."""
    return dtypes.unsigned(t.integer)


def broadcast_bounds(xs: tuple[Any, ...], t: DType, shape: Shape) -> list[Expr]:
    nodes = [as_node(as_operand(x), t) for x in xs]
    for n in nodes:
        if axes.broadcast_shapes(n.shape, shape) != shape:
            raise ShapeError(f"expected arguments that broadcast to {shape}, got "
                             f"{n.shape}", hint="pass the full shape as shape=")
    return [Expr(build.expand(n, shape)) for n in nodes]


def uniform_between(words: Words, low: Expr, high: Expr | float) -> Expr:
    """Draw uniform numbers in [low, high), in the compute dtype of low's dtype, for formulas."""
    samples = expr.maximum(low, unit_uniform(words, low.shape, low.dtype) * (high - low) + low)
    return Expr(build.to_compute(samples.node))


@sampler_docs(raises=BOUNDS_RAISE)
def uniform(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None,
            minval: ArrayLike = 0.0, maxval: ArrayLike = 1.0, *,
            out_sharding: ShardingLike = None) -> Array:
    """Draw uniform numbers in [minval, maxval).

    >>> print(fnx.random.uniform(fnx.random.key(0)))
    0.947667
    """
    t, size = float_dtype(dtype), axes.normalize_shape(shape)
    low, high = broadcast_bounds((minval, maxval), t, size)
    return Array(build.cast(uniform_between(single_key_words(key), low, high).node, t))


@lift_ints(minval=2, maxval=3)
@sampler_docs(
    raises=(ONE_KEY, "DTypeError: ``dtype`` is not such an integer dtype.", BOUNDS_RAISE[-1]),
    maxval="the upper bound, exclusive; broadcasts to the shape.",
    dtype="an integer dtype of 8 bits or more; by default the default int.")
def randint(key: ArrayLike, shape: ShapeLike, minval: ArrayLike, maxval: ArrayLike,
            dtype: DTypeLike | None = None, *, out_sharding: ShardingLike = None) -> Array:
    """Draw uniform integers in [minval, maxval); minval if the range is empty.

    >>> fnx.random.randint(fnx.random.key(0), (3,), 0, 10)
    Array([9, 0, 2], dtype=int32)
    """
    t = convert.default_int() if dtype is None else dtypes.as_dtype(dtype)
    if not t.is_integer or t.bits < 8:
        raise DTypeError(f"randint: expected an integer dtype of 8 bits or more, got {t}",
                         hint="use uniform for floats, and .astype(...) for fewer bits")
    if t.bits < 32:  # drawn in 32 bits, as in JAX, which reduces the bias
        least, most = t.limits
        samples = _draw_integers(key, shape, _clamp_bound(minval, least, most),
                                 _clamp_bound(maxval, least, most + 1), dtypes.int32)
    else:
        samples = _draw_integers(key, shape, minval, maxval, t)
    return Array(samples.cast(t).node)


def _draw_integers(key: ArrayLike, shape: ShapeLike, minval: ArrayLike, maxval: ArrayLike, t: DType
                   ) -> Expr:
    """Draw integers of at least 32 bits in [minval, maxval)."""
    size, uint = axes.normalize_shape(shape), dtypes.unsigned(t)
    low, high = broadcast_bounds((_clamp_bound(minval, *t.limits), _clamp_bound(maxval, *t.limits)),
                                 t, size)
    includes_max, = broadcast_bounds((_exceeds_range(maxval, t),), dtypes.bool_, size)
    span = (high - low).cast(uint)
    span = where(high <= low, 1, where(includes_max, span + 1, span))
    first, second = (random_uints(w, size, uint) for w in split_words(single_key_words(key)))
    factor = (1 << t.bits // 2) % span
    factor = factor * factor % span
    offset = first % span * factor + second % span
    return low + (offset % span).cast(t)


def _clamp_bound(x: Any, lo: int, hi: int) -> Any:
    """Clamp a bound to a range; Python float bounds are truncated to integers."""
    if isinstance(x, (int, float)):
        return min(max(int(x), lo), hi)
    x = asarray(as_operand(x))
    if not x._dtype.is_integer:
        return x
    low, high = x._dtype.limits
    x = maximum(x, lo) if low < lo else x
    return minimum(x, hi) if high > hi else x


def _exceeds_range(x: Any, t: DType) -> Any:
    """Return whether an exclusive bound exceeds all of t, so that t's maximum is included."""
    if isinstance(x, (int, float)):
        return x > t.limits[1]
    x = asarray(as_operand(x))
    return x > t.limits[1] if x._dtype.is_integer and x._dtype.limits[1] > t.limits[1] else False


def check_mode(mode: DrawMode) -> None:
    arguments.check_choice("mode", mode, ("low", "high", None))
    if mode == "high":
        raise NotBuiltError("expected mode 'low', got 'high'", hint="leave out mode=")


@sampler_docs(
    "An Array of bool.", (ONE_KEY, "DTypeError: p is not of a float dtype.", MODE_RAISES[-1]),
    p="a float or floats.", shape="the shape of the result; by default that of p.", mode='"low".')
def bernoulli(key: ArrayLike, p: ArrayLike = 0.5, shape: ShapeLike | None = None,
              mode: DrawMode = "low", *, out_sharding: ShardingLike = None) -> Array:
    """Draw bools that are True with probability p.

    >>> fnx.random.bernoulli(fnx.random.key(0), 0.5, (3,))
    Array([False, False,  True], dtype=bool)
    """
    x = as_operand(p)
    t, _ = dtype_and_weak(x)
    if not t.is_float:
        raise DTypeError(f"bernoulli: expected a float probability, got {t}",
                         hint="write 1.0 instead of 1")
    check_mode(mode)
    size = asarray(x).shape if shape is None else axes.normalize_shape(shape)
    (bound,) = broadcast_bounds((x,), t, size)
    return Array((unit_uniform(single_key_words(key), size, t) < bound).node)


@sampler_docs(raises=(ONE_KEY,), dtype="the dtype of the result; by default int32.")
def rademacher(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None, *,
               out_sharding: ShardingLike = None) -> Array:
    """Draw -1 or 1, each with probability 1/2.

    >>> fnx.random.rademacher(fnx.random.key(0), (3,))
    Array([-1, -1,  1], dtype=int32)
    """
    t = dtypes.int32 if dtype is None else dtypes.as_dtype(dtype)
    return array_operators.astype(2 * bernoulli(key, 0.5,
                                                axes.normalize_shape(shape)).astype(int) - 1,
                                  t)
