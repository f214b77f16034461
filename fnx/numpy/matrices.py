"""Building matrices: identity, triangles and coordinate grids."""

from __future__ import annotations

from typing import Literal

from fnx.core.array import arguments, axes
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.ir import build
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.numpy.creation import dtype_or_default

__all__ = ["eye", "identity", "meshgrid", "tri", "tril", "triu"]


def _diagonal_mask(n: int, m: int, k: int, below: bool) -> UOp:
    """Return an (n, m) bool mask: column == row + k, or column <= row + k if ``below``."""
    k = arguments.check_int("k", k)
    rows = Expr(build.expand(build.reshape(build.iota(n), (n, 1)), (n, m))) + k
    columns = Expr(build.expand(build.reshape(build.iota(m), (1, m)), (n, m)))
    return (columns <= rows if below else columns.eq(rows)).node


@public_api
def eye(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Create a matrix with ones on the k-th diagonal and zeros elsewhere.

    Args:
        N: the number of rows.
        M: the number of columns; by default N.
        k: the diagonal: 0 is the main one, positive above, negative below.
        dtype: the dtype of the result; by default the default float.

    Returns:
        An Array of shape (N, M).

    Raises:
        ArgumentError: a length is negative or not an int.
        TracedValueError: a length is traced.

    >>> import fnx.numpy as jnp
    >>> jnp.eye(2)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    n, m = axes.normalize_shape((N, N if M is None else M))
    return Array(build.cast(_diagonal_mask(n, m, k, False), dtype_or_default(dtype)))


@public_api
def identity(n: int, dtype: DTypeLike | None = None) -> Array:
    """Create an identity matrix.

    Args:
        n: the number of rows and columns.
        dtype: the dtype of the result; by default the default float.

    Returns:
        An Array of shape (n, n).

    Raises:
        ArgumentError: a length is negative or not an int.
        TracedValueError: a length is traced.

    >>> import fnx.numpy as jnp
    >>> jnp.identity(1)
    Array([[1.]], dtype=float32)
    """
    return eye(n, dtype=dtype)


@public_api
def tri(N: int, M: int | None = None, k: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Create a matrix with ones on and below the k-th diagonal and zeros elsewhere.

    Args:
        N: the number of rows.
        M: the number of columns; by default N.
        k: the diagonal: 0 is the main one, positive above, negative below.
        dtype: the dtype of the result; by default the default float.

    Returns:
        An Array of shape (N, M).

    Raises:
        ArgumentError: a length is negative or not an int.
        TracedValueError: a length is traced.

    >>> import fnx.numpy as jnp
    >>> jnp.tri(2)
    Array([[1., 0.],
           [1., 1.]], dtype=float32)
    """
    n, m = axes.normalize_shape((N, N if M is None else M))
    return Array(build.cast(_diagonal_mask(n, m, k, True), dtype_or_default(dtype)))


def _triangle(name: str, x: Array, k: int, lower: bool) -> Array:
    if x.ndim < 2:
        raise ArgumentError(f"{name}: expected at least 2 axes, got shape {x.shape}")
    node, k = x._node, arguments.check_int("k", k)
    n, m = node.shape[-2:]
    mask = _diagonal_mask(n, m, k if lower else k - 1, True)
    mask = build.expand(mask, node.shape)
    zero = build.const_like(node, 0)
    return Array(build.where(mask, node, zero) if lower else build.where(mask, zero, node),
                 x.weak)


@public_api
def tril(m: ArrayLike, k: int = 0) -> Array:
    """Return the lower triangle of the last two axes; elements above the k-th diagonal are zero.

    Args:
        m: an Array or array-like of shape (..., n, m), of any dtype.
        k: the diagonal: 0 is the main one, positive above, negative below.

    Returns:
        An Array of the shape and dtype of m.

    Raises:
        ArgumentError: m has fewer than 2 axes.

    >>> import fnx.numpy as jnp
    >>> jnp.tril(jnp.ones((2, 2)))
    Array([[1., 0.],
           [1., 1.]], dtype=float32)
    """
    return _triangle("tril", asarray(m), k, True)


@public_api
def triu(m: ArrayLike, k: int = 0) -> Array:
    """Return the upper triangle of the last two axes; elements below the k-th diagonal are zero.

    Args:
        m: an Array or array-like of shape (..., n, m), of any dtype.
        k: the diagonal: 0 is the main one, positive above, negative below.

    Returns:
        An Array of the shape and dtype of m.

    Raises:
        ArgumentError: m has fewer than 2 axes.

    >>> import fnx.numpy as jnp
    >>> jnp.triu(jnp.ones((2, 2)))
    Array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    return _triangle("triu", asarray(m), k, False)


@public_api
def meshgrid(*xi: ArrayLike, copy: bool = True, sparse: bool = False,
             indexing: Literal["xy", "ij"] = "xy") -> list[Array]:
    """Return the coordinate arrays of a grid.

    Args:
        xi: the coordinates along each axis: Arrays of one axis, or numbers.
        copy: must be True; the results never share memory with ``xi``.
        sparse: whether each result keeps length 1 along the other axes, so that they broadcast.
        indexing: "xy" (the first input varies along axis 1) or "ij" (along axis 0).

    Returns:
        A list with one Array for each of xi, of its dtype; all of one shape unless ``sparse``.

    Raises:
        ArgumentError: ``indexing`` is unknown, or ``copy`` is False.
        ShapeError: an input has more than one axis.

    >>> import fnx.numpy as jnp
    >>> [g.shape for g in jnp.meshgrid(jnp.arange(2), jnp.arange(3))]
    [(3, 2), (3, 2)]
    """
    arguments.check_choice("indexing", indexing, ("xy", "ij"))
    arguments.check_choice("copy", copy, (True,))
    arguments.check_bool("sparse", sparse)
    xs = [asarray(x) for x in xi]
    for x in xs:
        if x.ndim > 1:
            raise ShapeError(f"meshgrid: expected coordinates of one axis, got shape {x.shape}")
    order = list(range(len(xs)))
    if indexing == "xy" and len(xs) > 1:
        order[:2] = [1, 0]
    shape = tuple(xs[i].size for i in order)
    out = []
    for i, x in enumerate(xs):
        axis_shape = [1] * len(xs)
        axis_shape[order.index(i)] = x.size
        coordinates = build.reshape(x._node, tuple(axis_shape))
        out.append(Array(coordinates if sparse else build.expand(coordinates, shape), x.weak))
    return out
