"""Special matrices of ``jax.scipy.linalg``."""

from __future__ import annotations

import math

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import promote_arrays
from fnx.core.support.errors import ArgumentError, DTypeError, ShapeError

__all__ = [
    "block_diag", "circulant", "companion", "convolution_matrix", "dft", "fiedler",
    "fiedler_companion", "hadamard", "hankel", "helmert", "hilbert", "invhilbert", "invpascal",
    "leslie", "pascal", "toeplitz",
]

_docstr = DocTemplate(
    n="the number of rows: an int.", c="the first column, in the last axis.",
    r="the first or last row, in the last axis.", a="numbers in the last axis.",
    kind='"symmetric" (the default), "lower" or "upper".',
    returns="An Array: matrices in the last two axes.",
    imports="fnx.numpy as jnp, fnx.scipy as jsp",
    raises=("ShapeError: there are too few elements.",))
_KINDS = (None, "symmetric", "lower", "upper")


def _vector(name: str, x: ArrayLike, least: int = 0) -> Array:
    array = asarray(x)
    array = array if array.ndim else array.reshape(1)
    if array.shape[-1] < least:
        raise ShapeError(f"{name}: expected at least {least} elements in the last axis, got shape "
                         f"{array.shape}")
    return array


@_docstr("A matrix with the others along its diagonal.", arrs="matrices, vectors or numbers.",
         raises=("ShapeError: an operand has more than two axes.",))
def block_diag(*arrs: ArrayLike) -> Array:
    """Return a block diagonal matrix.

    >>> jsp.linalg.block_diag(jnp.ones((1, 2)), 3.0)
    Array([[1., 1., 0.],
           [0., 0., 3.]], dtype=float32)
    """
    if not arrs:
        return jnp.zeros((1, 0))
    parts = promote_arrays("block_diag", *map(asarray, arrs), domain="any")
    if any(x.ndim > 2 for x in parts):
        raise ShapeError("block_diag: expected matrices, got shapes "
                         f"{', '.join(str(x.shape) for x in parts)}")
    parts = [x if x.ndim == 2 else x.reshape(1, x.size) for x in parts]
    columns, left, rows = sum(x.shape[1] for x in parts), 0, []
    for x in parts:
        rows.append(jnp.pad(x, ((0, 0), (left, columns - left - x.shape[1]))))
        left += x.shape[1]
    return jnp.concatenate(rows, 0)


def _take(x: Array, index: Array) -> Array:
    """Return the elements of the last axis at a matrix of indices."""
    return jnp.take(x, index, -1)


def _grid(m: int, n: int) -> tuple[Array, Array]:
    """Return the numbers of rows, as a column, and of columns, as a row."""
    return jnp.arange(m)[:, None], jnp.arange(n)[None, :]


@_docstr()
def circulant(c: ArrayLike) -> Array:
    """Return circulant matrices: each column is the one before it, rotated.

    >>> jsp.linalg.circulant(jnp.asarray([1, 2]))
    Array([[1, 2],
           [2, 1]], dtype=int32)
    """
    x = _vector("circulant", c)
    n = x.shape[-1]
    i, j = _grid(n, n)
    return _take(x, (i - j) % max(1, n))


@_docstr(a="the coefficients of polynomials, from the highest power down, in the last axis.")
def companion(a: ArrayLike) -> Array:
    """Return companion matrices, whose eigenvalues are the roots of polynomials.

    >>> print(jsp.linalg.companion(jnp.asarray([1.0, -3.0, 2.0])))
    [[ 3. -2.]
     [ 1.  0.]]
    """
    x, = promote_arrays("companion", _vector("companion", a, 2))
    row = -x[..., 1:] / x[..., :1]
    n = row.shape[-1]
    i, _ = _grid(n, n)
    below = jnp.eye(n, n, -1, dtype=row.dtype)
    return jnp.where(i == 0, row[..., None, :], below)


@_docstr(a="the filter, in the last axis.", n="the number of columns: an int.",
         mode='"full", "valid" or "same".',
         raises=("ShapeError: there are no elements.",
                 "ArgumentError: n or the mode is not valid."))
def convolution_matrix(a: ArrayLike, n: int, mode: str = "full") -> Array:
    """Return matrices whose product with a vector of length n is its convolution.

    >>> jsp.linalg.convolution_matrix(jnp.asarray([1, 2]), 2)
    Array([[1, 0],
           [2, 1],
           [0, 2]], dtype=int32)
    """
    size = arguments.check_int("n", n)
    if size <= 0 or mode not in ("full", "valid", "same"):
        raise ArgumentError(f'expected n > 0 and mode "full", "valid" or "same", got {n} and '
                            f"{mode!r}")
    x = _vector("convolution_matrix", a, 1)
    m = x.shape[-1]
    trim = 0 if mode == "full" else min(size, m) - 1
    top = trim // 2 if mode == "same" else trim
    bottom = trim - top if mode == "same" else trim
    i, j = _grid(m + size - 1 - bottom, size)
    k = (i - j)[top:]
    return jnp.where((k >= 0) & (k < m), _take(x, jnp.clip(k, 0, m - 1)), 0)


@_docstr("A matrix of complex numbers.", scale='None, "sqrtn" or "n": what it is divided by.',
         dtype="a complex dtype; by default the default one.",
         raises=("ArgumentError: there is no such scale.", "DTypeError: the dtype is not complex."))
def dft(n: int, scale: str | None = None, *, dtype: DTypeLike | None = None) -> Array:
    """Return the matrix of the discrete Fourier transform.

    >>> print(jnp.round(jsp.linalg.dft(2).real))
    [[ 1.  1.]
     [ 1. -1.]]
    """
    if scale not in (None, "sqrtn", "n"):
        raise ArgumentError(f'expected scale None, "sqrtn" or "n", got {scale!r}')
    kind = jnp.dtype(complex if dtype is None else dtype)
    if kind.kind != "c":
        raise DTypeError(f"expected a complex dtype, got {kind}")
    k = np.arange(n)
    factor = {None: 1.0, "sqrtn": math.sqrt(max(n, 1)), "n": float(max(n, 1))}[scale]
    exact = np.exp(-2j * np.pi * (np.outer(k, k) % max(n, 1)) / max(n, 1)) / factor
    return jnp.asarray(exact, complex if dtype is None else dtype)


@_docstr()
def fiedler(a: ArrayLike) -> Array:
    """Return the distances of all pairs of numbers.

    >>> jsp.linalg.fiedler(jnp.asarray([1, 4]))
    Array([[0, 3],
           [3, 0]], dtype=int32)
    """
    x = _vector("fiedler", a)
    return abs(x[..., None] - x[..., None, :])


@_docstr(a="the coefficients of polynomials, from the highest power down, in the last axis.")
def fiedler_companion(a: ArrayLike) -> Array:
    """Return pentadiagonal matrices whose eigenvalues are the roots of polynomials.

    >>> print(jsp.linalg.fiedler_companion(jnp.asarray([1.0, -3.0, 2.0])))
    [[ 3. -2.]
     [ 1.  0.]]
    """
    x, = promote_arrays("fiedler_companion", _vector("fiedler_companion", a, 1))
    n = x.shape[-1] - 1
    if n == 0:
        return jnp.zeros((*x.shape[:-1], 0, 0), x.dtype)
    x = x / x[..., :1]
    if n == 1:
        return -x[..., 1:, None]
    i, j = _grid(n, n)
    above = -_take(x, jnp.broadcast_to(jnp.minimum(i + 2, n), (n, n)))
    here = -_take(x, jnp.broadcast_to(jnp.minimum(i + 1, n), (n, n)))
    even = i % 2 == 0
    ones = (i == 1) & (j == 0) | (j == i + 2) & even | (j == i - 2) & ~even & (i >= 3)
    out = jnp.where(ones, jnp.ones((), x.dtype), jnp.zeros((), x.dtype))
    out = jnp.where((j == i + 1) & even, above, out)
    out = jnp.where((j == i - 1) & even & (i >= 2), here, out)
    return jnp.where((i == 0) & (j == 0), -x[..., 1, None, None], out)


@_docstr("A matrix.", n="a power of two.", dtype="the dtype of the result.",
         raises=("ArgumentError: n is not a power of two.",))
def hadamard(n: int, dtype: DTypeLike = int) -> Array:
    """Return the Hadamard matrix: entries 1 and -1, orthogonal rows.

    >>> jsp.linalg.hadamard(2)
    Array([[ 1,  1],
           [ 1, -1]], dtype=int32)
    """
    size = arguments.check_int("n", n)
    if size < 1 or size & (size - 1):
        raise ArgumentError(f"expected a power of two, got {n}")
    out = jnp.ones((1, 1), dtype)
    while out.shape[0] < size:
        out = jnp.concatenate((jnp.concatenate((out, out), 1), jnp.concatenate((out, -out), 1)), 0)
    return out


@_docstr(r="the last row, in the last axis; its first element is not used. None: zeros.")
def hankel(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Return Hankel matrices, constant along antidiagonals.

    >>> jsp.linalg.hankel(jnp.asarray([1, 2]), jnp.asarray([2, 3]))
    Array([[1, 2],
           [2, 3]], dtype=int32)
    """
    x, y = _column_and_row("hankel", c, jnp.zeros_like(asarray(c)) if r is None else r)
    m, n = x.shape[-1], y.shape[-1]
    i, j = _grid(m, n)
    return _take(jnp.concatenate((x, y[..., 1:]), -1), i + j) if m and n else \
        jnp.zeros((*x.shape[:-1], m, n), x.dtype)


def _column_and_row(name: str, c: ArrayLike, r: ArrayLike) -> tuple[Array, Array]:
    """Return vectors of one dtype and equal batch axes."""
    x, y = promote_arrays(name, _vector(name, c), _vector(name, r), domain="any")
    batch = jnp.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    return (jnp.broadcast_to(x, (*batch, x.shape[-1])),
            jnp.broadcast_to(y, (*batch, y.shape[-1])))


@_docstr("A matrix of n - 1 rows, or of n rows if ``full``.",
         full="whether to add the row of constants.",
         raises=("ArgumentError: n is not positive.",))
def helmert(n: int, full: bool = False) -> Array:
    """Return the Helmert matrix, with orthonormal rows.

    >>> print(jnp.round(jsp.linalg.helmert(2), 4))
    [[ 0.7071 -0.7071]]
    """
    size = arguments.check_int("n", n)
    if size < 1:
        raise ArgumentError(f"expected n > 0, got {n}")
    i, j = _grid(size - 1, size)
    k = (i + 1).astype(float)
    scale = jnp.sqrt(k * (k + 1))
    rows = jnp.where(j <= i, 1 / scale, jnp.where(j == i + 1, -k / scale, 0))
    if not full:
        return rows
    first = jnp.full((1, size), 1 / math.sqrt(size), rows.dtype)
    return jnp.concatenate((first, rows), 0)


@_docstr("A matrix.", raises=())
def hilbert(n: int) -> Array:
    """Return the Hilbert matrix, 1 / (i + j + 1).

    >>> print(jsp.linalg.hilbert(2)[0])
    [1.  0.5]
    """
    i, j = _grid(n, n)
    return 1 / (i + j + 1).astype(float)


def _binomials(n: int, k: int) -> int:
    return math.comb(n, k) if 0 <= k <= n else 0


def _constant(rows: list[list[int]], dtype: DTypeLike = float) -> Array:
    """Return a matrix of integers, computed exactly, as floats."""
    return jnp.asarray(np.array(rows, np.float64).reshape(len(rows), len(rows)), dtype)


@_docstr("A matrix.", raises=())
def invhilbert(n: int) -> Array:
    """Return the inverse of the Hilbert matrix, whose entries are integers.

    >>> print(jsp.linalg.invhilbert(2))
    [[ 4. -6.]
     [-6. 12.]]
    """
    return _constant([[(-1)**(i + j) * (i + j + 1) * _binomials(n + i, n - j - 1)
                       * _binomials(n + j, n - i - 1) * _binomials(i + j, i)**2
                       for j in range(n)] for i in range(n)])


def _pascal(name: str, n: int, kind: str | None, inverse: bool) -> Array:
    if kind not in _KINDS:
        raise ArgumentError(f"{name}: expected kind symmetric, lower or upper, got {kind!r}")
    low = [[_binomials(i, j) * ((-1)**(i - j) if inverse else 1) for j in range(n)]
           for i in range(n)]
    up = [list(row) for row in zip(*low)]
    dtype: DTypeLike = float if inverse else "float32"  # as JAX
    if kind in ("lower", "upper"):
        return _constant(low if kind == "lower" else up, dtype)
    left, right = (up, low) if inverse else (low, up)
    return _constant([[sum(left[i][k] * right[k][j] for k in range(n)) for j in range(n)]
                      for i in range(n)], dtype)


@_docstr("A matrix.", raises=("ArgumentError: there is no such kind.",))
def pascal(n: int, kind: str | None = None) -> Array:
    """Return the Pascal matrix of binomial coefficients.

    >>> print(jsp.linalg.pascal(3))
    [[1. 1. 1.]
     [1. 2. 3.]
     [1. 3. 6.]]
    """
    return _pascal("pascal", n, kind, False)


@_docstr("A matrix.", raises=("ArgumentError: there is no such kind.",))
def invpascal(n: int, kind: str | None = None) -> Array:
    """Return the inverse of the Pascal matrix.

    >>> print(jsp.linalg.invpascal(2))
    [[ 2. -1.]
     [-1.  1.]]
    """
    return _pascal("invpascal", n, kind, True)


@_docstr(f="fecundities, n in the last axis.", s="survival rates, n - 1 in the last axis.")
def leslie(f: ArrayLike, s: ArrayLike) -> Array:
    """Return Leslie matrices: f is the first row, s the diagonal below the main one.

    >>> jsp.linalg.leslie(jnp.asarray([1, 2]), jnp.asarray([3]))
    Array([[1, 2],
           [3, 0]], dtype=int32)
    """
    x, y = _column_and_row("leslie", _vector("leslie", f, 2), s)
    n = x.shape[-1]
    if y.shape[-1] != n - 1:
        raise ShapeError(f"leslie: expected n and n - 1 elements, got shapes {x.shape} and "
                         f"{y.shape}")
    i, j = _grid(n, n)
    padded = jnp.concatenate((y, y[..., :1]), -1)
    below = jnp.where(i == j + 1, padded[..., None, :], jnp.zeros((), x.dtype))
    return jnp.where(i == 0, x[..., None, :], below)


@_docstr(r="the first row, in the last axis; its first element is not used. None: conj(c).")
def toeplitz(c: ArrayLike, r: ArrayLike | None = None) -> Array:
    """Return Toeplitz matrices, constant along diagonals.

    >>> jsp.linalg.toeplitz(jnp.asarray([1, 2]), jnp.asarray([1, 3]))
    Array([[1, 3],
           [2, 1]], dtype=int32)
    """
    x, y = _column_and_row("toeplitz", c, jnp.conj(asarray(c)) if r is None else r)
    m, n = x.shape[-1], y.shape[-1]
    if not m or not n:
        return jnp.zeros((*x.shape[:-1], m, n), x.dtype)
    i, j = _grid(m, n)
    elements = jnp.concatenate((jnp.flip(x, -1), y[..., 1:]), -1)
    return _take(elements, m - 1 - i + j)
