"""Random bits, and what is uniform or of two values."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from fnx.core import build, dtypes, expr
from fnx.core.array import arguments, axes, convert, operate
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import as_node, operand
from fnx.core.array.public import asarray, kind_of, public
from fnx.core.dtypes import DType
from fnx.core.errors import DTypeError, NotBuiltError, ShapeError
from fnx.core.expr import Expr, where
from fnx.core.ops import Shape
from fnx.core.row_parts import highest, lowest
from fnx.core.uop import UOp
from fnx.numpy import maximum, minimum
from fnx.random.keys import counted, split_words, word_each, words_of

__all__ = ["bernoulli", "bits", "rademacher", "randint", "uniform"]

DrawMode: TypeAlias = Literal["low", "high"] | None

@public
def bits(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Array:
    """Random uint32 words.

    Args:
        key: a key: uint32 of shape (2,), as ``random.key`` makes it.
        shape: of the result: an int or ints, known while tracing.
        dtype: uint32, which is the default.

    Returns:
        An Array of uint32.

    Raises:
        ShapeError: not one key.
        DTypeError: another dtype.

    >>> import fnx.random
    >>> fnx.random.bits(fnx.random.key(0), (1,))
    Array([4070199207], dtype=uint32)
    """
    t = dtypes.uint32 if dtype is None else dtypes.as_dtype(dtype)
    if t is not dtypes.uint32:
        raise DTypeError(f"bits: expected dtype uint32, got {t}")
    return Array(word_each(words_of(key), axes.shape(shape)).node)


def float_dtype(dtype: Any) -> DType:
    t = convert.default_float() if dtype is None else convert.dtype_argument(dtype)
    if not t.is_float:
        raise DTypeError(f"expected a float dtype, got {t}", hint="use randint")
    return t


def unit(words: tuple[UOp, UOp], shape: Shape, t: DType) -> Expr:
    """Uniform in [0, 1): random bits as the mantissa of a number in [1, 2), less 1."""
    if t is dtypes.float32:
        return (word_each(words, shape) >> 9 | 0x3F800000).bitcast(t) - 1
    high, low = map(Expr, counted(words, shape))  # 52 bits of the 64; every step is exact
    return high.cast(t) * 2.0 ** -32 + (low >> 12).cast(t) * 2.0 ** -52


def bounds(xs: tuple[Any, ...], t: DType, shape: Shape) -> list[Expr]:
    nodes = [as_node(operand(x), t) for x in xs]
    for n in nodes:
        if axes.broadcast_shapes(n.shape, shape) != shape:
            raise ShapeError(f"expected arguments that broadcast to {shape}, got "
                             f"{n.shape}", hint="give shape= the full shape")
    return [Expr(build.expand(n, shape)) for n in nodes]


def between(words: tuple[UOp, UOp], low: Expr, high: Expr | float) -> Expr:
    """Uniform in [low, high)."""
    return expr.maximum(low, unit(words, low.shape, low.dtype) * (high - low) + low)


@public
def uniform(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None,
            minval: ArrayLike = 0.0, maxval: ArrayLike = 1.0) -> Array:
    """Uniform in [minval, maxval).

    Args:
        key: a key: uint32 of shape (2,), as ``random.key`` makes it.
        shape: of the result: an int or ints, known while tracing.
        dtype: a float dtype; by default the default float.
        minval: the lower bound; broadcasts to the shape.
        maxval: the upper bound; broadcasts to the shape.

    Returns:
        An Array.

    Raises:
        ShapeError: not one key.
        DTypeError: no float dtype.
        ShapeError: bounds that do not broadcast to the shape.

    >>> import fnx.random
    >>> print(fnx.random.uniform(fnx.random.key(0)))
    0.947667
    """
    t, size = float_dtype(dtype), axes.shape(shape)
    low, high = bounds((minval, maxval), t, size)
    return Array(between(words_of(key), low, high).node)


@public
def randint(key: ArrayLike, shape: ShapeLike, minval: ArrayLike, maxval: ArrayLike,
            dtype: DTypeLike | None = None) -> Array:
    """Integers in [minval, maxval); minval where that is empty.

    Args:
        key: a key: uint32 of shape (2,), as ``random.key`` makes it.
        shape: of the result: an int or ints, known while tracing.
        minval: the lower bound; broadcasts to the shape.
        maxval: the upper bound, which is not drawn.
        dtype: an integer dtype; by default int32.

    Returns:
        An Array.

    Raises:
        ShapeError: not one key.
        DTypeError: no integer dtype.
        ShapeError: bounds that do not broadcast to the shape.

    >>> import fnx.random
    >>> fnx.random.randint(fnx.random.key(0), (3,), 0, 10)
    Array([9, 0, 2], dtype=int32)
    """
    t = dtypes.int32 if dtype is None else dtypes.as_dtype(dtype)
    if not t.is_integer:
        raise DTypeError(f"randint: expected an integer dtype, got {t}", hint="use uniform")
    size = axes.shape(shape)
    past = isinstance(maxval, int) and maxval > highest(t)
    low, high = bounds((_clamped(minval, t), _clamped(maxval, t)), t, size)
    span = (high - low).cast(dtypes.uint32)
    span = where(high <= low, 1, span + 1 if past else span)
    first, second = (word_each(w, size) for w in split_words(words_of(key)))
    factor = (1 << 16) % span
    factor = factor * factor % span
    offset = first % span * factor + second % span
    return Array((low + (offset % span).cast(t)).node)


def _clamped(x: Any, t: DType) -> Any:
    """A bound in the range of t; float bounds are cut to whole numbers."""
    if isinstance(x, (int, float)):
        return min(max(int(x), lowest(t)), highest(t))
    x = asarray(x)
    if x._dtype is t:
        return x
    if t is dtypes.uint32 and not x._dtype.is_float:
        return maximum(x, 0) if x._dtype.kind == "int" else x
    return minimum(x, highest(t)) if x._dtype.kind == "uint" else x


def check_mode(mode: DrawMode) -> None:
    arguments.one_of("mode", mode, ("low", "high", None))
    if mode == "high":
        raise NotBuiltError("expected mode 'low', got 'high'", hint="leave mode= out")


@public
def bernoulli(key: ArrayLike, p: ArrayLike = 0.5, shape: ShapeLike | None = None,
              mode: DrawMode = "low") -> Array:
    """True with probability p.

    Args:
        key: a key: uint32 of shape (2,), as ``random.key`` makes it.
        p: a float or floats.
        shape: of the result; by default that of p.
        mode: "low".

    Returns:
        An Array of bool.

    Raises:
        ShapeError: not one key.
        DTypeError: p is no float.
        NotBuiltError: mode "high".

    >>> import fnx.random
    >>> fnx.random.bernoulli(fnx.random.key(0), 0.5, (3,))
    Array([False, False,  True], dtype=bool)
    """
    x = operand(p)
    t, _ = kind_of(x)
    if not t.is_float:
        raise DTypeError(f"bernoulli: expected a float probability, got {t}",
                         hint="write 1.0 instead of 1")
    check_mode(mode)
    size = asarray(x).shape if shape is None else axes.shape(shape)
    (bound,) = bounds((x,), t, size)
    return Array((unit(words_of(key), size, t) < bound).node)


@public
def rademacher(key: ArrayLike, shape: ShapeLike = (), dtype: DTypeLike | None = None) -> Array:
    """-1 or 1, each with probability 1/2.

    Args:
        key: a key: uint32 of shape (2,), as ``random.key`` makes it.
        shape: of the result: an int or ints, known while tracing.
        dtype: of the result; by default int32.

    Returns:
        An Array.

    Raises:
        ShapeError: not one key.

    >>> import fnx.random
    >>> fnx.random.rademacher(fnx.random.key(0), (3,))
    Array([-1, -1,  1], dtype=int32)
    """
    t = dtypes.int32 if dtype is None else dtypes.as_dtype(dtype)
    return operate.astype(2 * bernoulli(key, 0.5, axes.shape(shape)).astype(int) - 1,
                       t)
