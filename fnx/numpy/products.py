"""Functions of ``fnx.numpy.linalg`` that need no factorization: products, norms, diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fnx.numpy.basic as basic
import fnx.numpy.calculus as calculus
from fnx.core.array import arguments, axes
from fnx.core.array.arguments import PrecisionLike
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import AxisLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.documented import Family
from fnx.core.array.public import asarray
from fnx.core.errors import ArgumentError, NotBuiltError, ShapeError
from fnx.numpy.norms import norm

__all__ = [
    "cross", "diagonal", "matrix_norm", "matrix_power", "multi_dot", "outer", "trace",
    "vector_norm",
]

_family = Family(
    x="of at least two axes: matrices lie on the last two.", x1="an Array.", x2="an Array.",
    a="of at least two axes: matrices lie on the last two.",
    offset="0 for the main diagonal, positive above, negative below.",
    ord="which norm, as for ``norm``.", returns="An Array.",
    raises=("ShapeError: fewer axes, or lengths that do not fit.",))


@_family(axis="where the vectors lie.",
         raises=("ShapeError: vectors of other lengths than 3.",))
def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """The cross product of vectors of length 3.

    >>> print(jnp.linalg.cross(jnp.asarray([1, 0, 0]), jnp.asarray([0, 1, 0])))
    [0 0 1]
    """
    a, b = asarray(x1), asarray(x2)
    for x in (a, b):
        if x.shape[axes.one(axis, x.ndim)] != 3:
            raise ShapeError(f"expected vectors of length 3 along axis {axis}, got shape {x.shape}")
    return calculus.cross(a, b, axis=axis)


@_family("An Array whose last axis is the diagonal.")
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """The diagonals of matrices.

    >>> print(jnp.linalg.diagonal(jnp.asarray([[1, 2], [3, 4]])))
    [1 4]
    """
    return basic.diagonal(x, offset, -2, -1)


@_family("An Array without the last two axes.", dtype="of the sums.")
def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """The sums of the diagonals of matrices.

    >>> print(jnp.linalg.trace(jnp.asarray([[1, 2], [3, 4]])))
    5
    """
    return basic.trace(x, offset, -2, -1, dtype)


@_family("A matrix.", x1="a vector.", x2="a vector.", raises=("ShapeError: no vectors.",))
def outer(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The products of each element of one vector with each of another.

    >>> jnp.linalg.outer(jnp.asarray([1, 2]), jnp.asarray([3, 4]))
    Array([[3, 4],
           [6, 8]], dtype=int32)
    """
    a, b = asarray(x1), asarray(x2)
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"expected two vectors, got shapes {a.shape} and {b.shape}")
    return a[:, None] * b


@_family("An Array without the last two axes, of a float dtype.",
         raises=("NotBuiltError: an ``ord`` that needs singular values.",
                 "ShapeError: fewer than two axes."))
def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """Norms of matrices.

    >>> print(jnp.linalg.matrix_norm(jnp.asarray([[3.0, 0.0], [0.0, 4.0]])))
    5.0
    """
    array = _matrices(x)
    return norm(array, ord, (array.ndim - 2, array.ndim - 1), keepdims)


@_family("An Array without these axes, of a float dtype.", x="of any shape.",
         axis="over which axes; None: all.", raises=("AxisError: an axis outside of the array.",))
def vector_norm(x: ArrayLike, /, *, axis: AxisLike = None, keepdims: bool = False, ord: Any = 2
                ) -> Array:
    """Norms of vectors, which may lie on several axes.

    >>> print(jnp.linalg.vector_norm(jnp.asarray([[3.0], [4.0]])))
    5.0
    """
    arguments.flag("keepdims", keepdims)
    array = asarray(x)
    over = axes.several(axis, array.ndim)
    kept = tuple([i for i in range(array.ndim) if i not in over])
    shape = tuple([array.shape[i] for i in kept])
    rows = basic.transpose(array, (*kept, *over)).reshape(*shape, _size(array, over))
    out = norm(rows, ord, -1)
    return out.reshape([1 if i in over else n for i, n in enumerate(array.shape)]) if keepdims \
        else out


def _size(x: Array, over: Sequence[int]) -> int:
    return basic.size(x, tuple(over))


def _matrices(x: ArrayLike) -> Array:
    array = asarray(x)
    if array.ndim < 2:
        raise ShapeError(f"expected matrices on the last two axes, got shape {array.shape}")
    return array


@_family("An Array of the shape of a.", n="an int >= 0.",
         raises=("ShapeError: matrices that are not square.", "NotBuiltError: n < 0."))
def matrix_power(a: ArrayLike, n: int) -> Array:
    """Square matrices multiplied by themselves.

    Source: the bits of n, by squaring.

    >>> jnp.linalg.matrix_power(jnp.asarray([[1, 1], [0, 1]]), 5)
    Array([[1, 5],
           [0, 1]], dtype=int32)
    """
    square = _matrices(a)
    if square.shape[-1] != square.shape[-2]:
        raise ShapeError(f"expected square matrices, got shape {square.shape}")
    left = arguments.integer("n", n)
    if left < 0:
        raise NotBuiltError("expected n >= 0: inverses of matrices come later",
                            hint="hand values to numpy.linalg.matrix_power")
    out: Array | None = None
    while left:
        if left & 1:
            out = square if out is None else basic.matmul(out, square)
        left >>= 1
        square = basic.matmul(square, square) if left else square
    return out if out is not None else basic.broadcast_to(
        basic.eye(square.shape[-1], dtype=square.dtype), square.shape)


@_family("The product.", arrays="matrices; the first and the last may be vectors.",
         precision="accepted as JAX's: products are of full precision.",
         raises=("ArgumentError: no array.", "ShapeError: shapes that do not fit."))
def multi_dot(arrays: Sequence[ArrayLike], *, precision: PrecisionLike = None) -> Array:
    """The product of several matrices, in the order that costs least.

    >>> a = jnp.ones((2, 3))
    >>> jnp.linalg.multi_dot([a, a.T, a]).shape
    (2, 3)
    """
    given = [asarray(x) for x in arrays]
    if not given:
        raise ArgumentError("expected at least one array, got none")
    for i, x in enumerate(given):
        if x.ndim != 2 and not (x.ndim == 1 and i in (0, len(given) - 1)):
            raise ShapeError("expected matrices, and vectors at the ends only; got shape "
                             f"{x.shape}")
    if len(given) == 1:
        return given[0]
    terms: list[Any] = []
    for i, x in enumerate(given):
        terms += [x, [i, i + 1] if x.ndim == 2 else [i] if i else [1]]
    ends = [0] * (given[0].ndim == 2) + [len(given)] * (given[-1].ndim == 2)
    out: Array = basic.einsum(*terms, ends, precision=precision)
    return out
