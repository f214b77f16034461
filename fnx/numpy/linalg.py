"""``fnx.numpy.linalg``: norms, products, diagonals; factorizations load at their first use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import fnx.numpy.base as base
from fnx.core.array import arguments, axes
from fnx.core.array.api_boundary import asarray
from fnx.core.array.arguments import PrecisionLike
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import AxisLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.support.errors import ArgumentError, ShapeError, lazy_module
from fnx.core.support.process import lazy_import
from fnx.numpy.norms import norm

vector_math = lazy_import("fnx.numpy.vector_math")

linear_systems = lazy_import("fnx.numpy.linear_systems")

_HOMES = {
    "matrix_transpose": "fnx.numpy.manipulation", "vecdot": "fnx.numpy.vector_math",
    **dict.fromkeys(("cholesky", "eig", "eigh", "eigvals", "eigvalsh", "qr", "svd", "svdvals"),
                    "fnx.numpy.decompositions"),
    **dict.fromkeys(("cond", "det", "inv", "lstsq", "matrix_rank", "pinv", "slogdet", "solve",
                     "tensorinv", "tensorsolve"), "fnx.numpy.linear_systems"),
}

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh",
    "inv", "lstsq", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer",
    "pinv", "qr", "slogdet", "solve", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve",
    "trace", "vecdot", "vector_norm",
]

if TYPE_CHECKING:
    from fnx.numpy.decompositions import (
        cholesky,
        eig,
        eigh,
        eigvals,
        eigvalsh,
        qr,
        svd,
        svdvals,
    )
    from fnx.numpy.linear_systems import (
        cond,
        det,
        inv,
        lstsq,
        matrix_rank,
        pinv,
        slogdet,
        solve,
        tensorinv,
        tensorsolve,
    )
    from fnx.numpy.manipulation import matrix_transpose
    from fnx.numpy.vector_math import vecdot

if not TYPE_CHECKING:  # __getattr__ would make every name exist for type checkers
    __getattr__, __dir__ = lazy_module(__name__, __all__, modules=_HOMES)


_docstr = DocTemplate(
    x="an Array of at least two axes; the last two hold the matrices.", x1="an Array.",
    x2="an Array.", a="an Array of at least two axes; the last two hold the matrices.",
    offset="the diagonal: 0 is the main one, positive above, negative below.",
    ord="the order of the norm, as for ``norm``.", returns="An Array.",
    raises=("ShapeError: there are too few axes, or their lengths do not match.",))


@_docstr(axis="the axis that holds the vectors.",
         raises=("ShapeError: the length of the vectors is not 3.",))
def cross(x1: ArrayLike, x2: ArrayLike, /, *, axis: int = -1) -> Array:
    """Return the cross product of vectors of length 3.

    >>> print(jnp.linalg.cross(jnp.asarray([1, 0, 0]), jnp.asarray([0, 1, 0])))
    [0 0 1]
    """
    a, b = asarray(x1), asarray(x2)
    for x in (a, b):
        if x.shape[axes.normalize_axis(axis, x.ndim)] != 3:
            raise ShapeError(f"expected vectors of length 3 along axis {axis}, got shape {x.shape}")
    product: Array = vector_math.cross(a, b, axis=axis)
    return product


@_docstr("An Array whose last axis is the diagonal.")
def diagonal(x: ArrayLike, /, *, offset: int = 0) -> Array:
    """Return the diagonals of matrices.

    >>> print(jnp.linalg.diagonal(jnp.asarray([[1, 2], [3, 4]])))
    [1 4]
    """
    return base.diagonal(x, offset, -2, -1)


@_docstr("An Array without the last two axes.", dtype="the dtype of the sums.")
def trace(x: ArrayLike, /, *, offset: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Return the sums of the diagonals of matrices.

    >>> print(jnp.linalg.trace(jnp.asarray([[1, 2], [3, 4]])))
    5
    """
    return base.trace(x, offset, -2, -1, dtype)


@_docstr("A matrix.", x1="a vector.", x2="a vector.",
         raises=("ShapeError: an input is not a vector.",))
def outer(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """Return the outer product of two vectors.

    >>> jnp.linalg.outer(jnp.asarray([1, 2]), jnp.asarray([3, 4]))
    Array([[3, 4],
           [6, 8]], dtype=int32)
    """
    a, b = asarray(x1), asarray(x2)
    if a.ndim != 1 or b.ndim != 1:
        raise ShapeError(f"expected two vectors, got shapes {a.shape} and {b.shape}")
    return a[:, None] * b


_product_docstr = _docstr.replace(
    axes="n, to contract the last n axes of x1 with the first n of x2; or (axes of x1, of x2).")


@_product_docstr("An Array of the common dtype.")
def matmul(x1: ArrayLike, x2: ArrayLike, /, *, precision: PrecisionLike = None,
           preferred_element_type: DTypeLike | None = None) -> Array:
    """Return the matrix product.

    >>> print(jnp.linalg.matmul(jnp.eye(2), jnp.ones(2)))
    [1. 1.]
    """
    return base.matmul(x1, x2, precision=precision,
                       preferred_element_type=preferred_element_type)


@_product_docstr("An Array of the common dtype.")
def tensordot(x1: ArrayLike, x2: ArrayLike, /, *, axes: Any = 2, precision: PrecisionLike = None,
              preferred_element_type: DTypeLike | None = None) -> Array:
    """Contract pairs of axes.

    >>> jnp.linalg.tensordot(jnp.ones((2, 3)), jnp.ones((3, 4)), axes=1).shape
    (2, 4)
    """
    return base.tensordot(x1, x2, axes, precision=precision,
                          preferred_element_type=preferred_element_type)


@_docstr("An Array of a float dtype, without the last two axes.",
         raises=("ShapeError: there are fewer than two axes.",))
def matrix_norm(x: ArrayLike, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """Return the norms of matrices.

    >>> print(jnp.linalg.matrix_norm(jnp.asarray([[3.0, 0.0], [0.0, 4.0]])))
    5.0
    """
    array = _require_matrices(x)
    return norm(array, ord, (array.ndim - 2, array.ndim - 1), keepdims)


@_docstr("An Array of a float dtype, without the reduced axes.",
         x="an Array or array-like of any shape.",
         axis="the axis or axes to reduce; None means all.",
         raises=("AxisError: the axis is out of range.",))
def vector_norm(x: ArrayLike, /, *, axis: AxisLike = None, keepdims: bool = False, ord: Any = 2
                ) -> Array:
    """Return the norms of vectors, which may extend over several axes.

    >>> print(jnp.linalg.vector_norm(jnp.asarray([[3.0], [4.0]])))
    5.0
    """
    array = asarray(x)
    dims = axes.sorted_axes(axis, array.ndim)
    batch = tuple([i for i in range(array.ndim) if i not in dims])
    shape = tuple([array.shape[i] for i in batch])
    vectors = base.transpose(array, (*batch, *dims)).reshape(*shape, _size_along(array, dims))
    out = norm(vectors, ord, -1)
    return out.reshape([1 if i in dims else n for i, n in enumerate(array.shape)]) if keepdims \
        else out


def _size_along(x: Array, dims: Sequence[int]) -> int:
    return base.size(x, tuple(dims))


def _require_matrices(x: ArrayLike) -> Array:
    array = asarray(x)
    if array.ndim < 2:
        raise ShapeError(f"expected matrices in the last two axes, got shape {array.shape}")
    return array


@_docstr("An Array of the shape of a.", n="an int; powers below 0 are those of the inverse.",
         raises=("ShapeError: the matrices are not square.",))
def matrix_power(a: ArrayLike, n: int) -> Array:
    """Raise square matrices to an integer power.

    Source: exponentiation by squaring.

    >>> jnp.linalg.matrix_power(jnp.asarray([[1, 1], [0, 1]]), 5)
    Array([[1, 5],
           [0, 1]], dtype=int32)
    """
    square = _require_matrices(a)
    if square.shape[-1] != square.shape[-2]:
        raise ShapeError(f"expected square matrices, got shape {square.shape}")
    exponent = arguments.check_int("n", n)
    if exponent < 0:
        square, exponent = linear_systems.inv(square), -exponent
    out: Array | None = None
    while exponent:
        if exponent & 1:
            out = square if out is None else base.matmul(out, square)
        exponent >>= 1
        square = base.matmul(square, square) if exponent else square
    return out if out is not None else base.broadcast_to(
        base.eye(square.shape[-1], dtype=square.dtype), square.shape)


@_docstr("The matrix product.", arrays="matrices; the first and the last may be vectors.",
         precision="accepted for JAX compatibility; products have full precision.",
         raises=("ArgumentError: there are no arrays.", "ShapeError: the shapes do not match."))
def multi_dot(arrays: Sequence[ArrayLike], *, precision: PrecisionLike = None) -> Array:
    """Multiply several matrices, in the cheapest order.

    >>> a = jnp.ones((2, 3))
    >>> jnp.linalg.multi_dot([a, a.T, a]).shape
    (2, 3)
    """
    matrices = [asarray(x) for x in arrays]
    if not matrices:
        raise ArgumentError("expected at least one array, got none")
    for i, x in enumerate(matrices):
        if x.ndim != 2 and not (x.ndim == 1 and i in (0, len(matrices) - 1)):
            raise ShapeError("expected matrices, or vectors as first and last operand; got shape "
                             f"{x.shape}")
    if len(matrices) == 1:
        return matrices[0]
    terms: list[Any] = []
    for i, x in enumerate(matrices):
        terms += [x, [i, i + 1] if x.ndim == 2 else [i] if i else [1]]
    out_axes = [0] * (matrices[0].ndim == 2) + [len(matrices)] * (matrices[-1].ndim == 2)
    out: Array = base.einsum(*terms, out_axes, precision=precision)
    return out
