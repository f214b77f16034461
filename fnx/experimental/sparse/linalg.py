"""Sparse linear algebra, as in ``jax.experimental.sparse.linalg``: a direct solver, and the largest
eigenvalues of a Hermitian matrix.

``spsolve`` factorizes on the host, by SciPy's SuperLU, which a callback calls; derivatives follow
from the equation that is solved (``lax.custom_linear_solve``). ``lobpcg_standard`` is a loop of
products and of ``eigh`` of small matrices, so it runs wherever these do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.support.errors import ArgumentError, DTypeError, ShapeError, lazy_module
from fnx.core.support.process import lazy_import
from fnx.experimental.sparse.bcsr import rows_of
from fnx.transforms.host_callbacks import pure_callback

scipy_sparse = lazy_import("scipy.sparse")
superlu = lazy_import("scipy.sparse.linalg")

__all__ = ["lobpcg_standard", "spsolve"]

Operator: TypeAlias = Callable[[Array], Array]  # a block of columns -> A times it


# ---- a direct solver ---------------------------------------------------------------------------


@public_api
def spsolve(data: ArrayLike, indices: ArrayLike, indptr: ArrayLike, b: ArrayLike,
            tol: float = 1e-6, reorder: int = 1) -> Array:
    """Solve a sparse linear system A x = b, by SciPy's sparse LU factorization on the host.

    Args:
        data: the elements of A in CSR format.
        indices: their columns.
        indptr: where each row begins.
        b: the right-hand side, a vector.
        tol: unused; JAX's solver on GPUs takes it.
        reorder: unused, from 0 to 3; JAX's solver on GPUs takes it.

    Returns:
        x, like b; NaN if A is singular.

    Raises:
        ShapeError: the buffers are not those of a square matrix as long as b.
        DTypeError: ``data`` and b have different dtypes, or indices are not integers.
        ArgumentError: ``reorder`` is none of these.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental.sparse import linalg
    >>> data, indices, indptr = jnp.asarray([2.0, 4.0]), jnp.asarray([1, 0]), jnp.asarray([0, 1, 2])
    >>> print(linalg.spsolve(data, indices, indptr, jnp.asarray([2.0, 8.0])))
    [2. 1.]
    """
    if arguments.check_int("reorder", reorder) not in range(4):
        raise ArgumentError(f"expected reorder from 0 to 3, got {reorder}")
    arguments.check_number("tol", tol)
    values, columns, starts, right = (asarray(x) for x in (data, indices, indptr, b))
    _check_system(values, columns, starts, right)
    rows, constants = rows_of(starts, values.size), lax.stop_gradient(values)

    def product(x: Array, transpose: bool = False) -> Array:
        into, of = (columns, rows) if transpose else (rows, columns)
        return jnp.zeros_like(x).at[into].add(values * x[of])

    def solve(_: Any, y: Array, transpose: bool = False) -> Array:
        solution: Array = pure_callback(
            partial(_factorize_and_solve, transpose), ShapeDtypeStruct(right.shape, right.dtype),
            constants, columns, starts, y, vmap_method="sequential")
        return solution

    x: Array = lax.custom_linear_solve(product, right, solve, partial(solve, transpose=True))
    return x


def _factorize_and_solve(transpose: bool, data: Any, indices: Any, indptr: Any, b: Any) -> Any:
    data, indices, indptr, b = (np.asarray(x) for x in (data, indices, indptr, b))
    mat = scipy_sparse.csr_array((data, indices, indptr), shape=(b.size, b.size))
    try:
        factors = superlu.splu((mat.T if transpose else mat).tocsc())
    except RuntimeError:  # it is exactly singular
        return np.full_like(b, np.nan)
    return factors.solve(b).astype(b.dtype)


def _check_system(data: Array, indices: Array, indptr: Array, b: Array) -> None:
    if data.dtype != b.dtype or not jnp.issubdtype(b.dtype, jnp.inexact):
        raise DTypeError(f"expected data and b of one dtype, of floats or complex numbers, got "
                         f"{data.dtype} and {b.dtype}")
    for name, x in (("indices", indices), ("indptr", indptr)):
        if not jnp.issubdtype(x.dtype, jnp.integer):
            raise DTypeError(f"expected integers as {name}, got {x.dtype}")
    if not data.ndim == indices.ndim == indptr.ndim == b.ndim == 1 or \
            data.shape != indices.shape or indptr.size != b.size + 1:
        raise ShapeError(f"expected vectors data and indices of one length and indptr one longer "
                         f"than b, got the shapes {data.shape}, {indices.shape}, {indptr.shape} "
                         f"and {b.shape}")


# ---- eigenvalues -------------------------------------------------------------------------------


@public_api
def lobpcg_standard(A: ArrayLike | Operator, X: ArrayLike, m: int = 100,
                    tol: ArrayLike | None = None) -> tuple[Array, Array, Array]:
    """Find the largest eigenvalues of a Hermitian matrix, with their eigenvectors.

    The locally optimal block preconditioned conjugate gradient method, without a preconditioner:
    Knyazev, SIAM J. Sci. Comput. 23 (2001); Duersch, Shao, Yang and Gu, arXiv:1704.07458.

    Args:
        A: a matrix, or a function of a block of columns.
        X: (n, k) start vectors, linearly independent, with 0 < 5 k < n.
        m: the step limit.
        tol: eigenvalues w with ``norm(A v - w v) < 10 n tol (norm(A v) + w)`` have converged; by
            default the eps of the dtype.

    Returns:
        (eigenvalues, eigenvectors, number of steps).

    Raises:
        ShapeError: k does not fit n, or A is not n x n.
        DTypeError: A and X have different dtypes.

    >>> import fnx.numpy as jnp
    >>> from fnx.experimental.sparse import linalg
    >>> A = jnp.diag(jnp.arange(1.0, 11.0))
    >>> w, v, steps = linalg.lobpcg_standard(A, jnp.ones((10, 1)))
    >>> print(w.round(3))
    [10.]
    """
    arguments.check_int("m", m)
    start = asarray(X)
    if start.ndim != 2 or not 0 < 5 * start.shape[1] < start.shape[0]:
        raise ShapeError(f"expected X of shape (n, k) with 0 < 5 k < n, got {start.shape}")
    operator = A if callable(A) else partial(jnp.matmul, asarray(A))
    n = start.shape[0]
    product = operator(jnp.zeros((n, 1), start.dtype))
    if product.shape != (n, 1):
        raise ShapeError(f"expected A of shape ({n}, {n}), got products of shape {product.shape}")
    if product.dtype != start.dtype:
        raise DTypeError(f"expected A and X of one dtype, got {product.dtype} and {start.dtype}")
    return _iterate(operator, start, m, jnp.finfo(start.dtype).eps if tol is None else tol)


def _iterate(A: Operator, X: Array, m: int, tol: ArrayLike) -> tuple[Array, Array, Array]:
    n, k = X.shape
    X = _orthonormalize(X)
    AX = A(X)
    values = jnp.sum(jnp.conj(X) * AX, axis=0).real

    def go_on(state: Any) -> Any:
        steps, _, _, _, _, converged = state
        return (steps < m) & (converged < k)

    def step(state: Any) -> Any:
        steps, X, P, R, _, _ = state
        basis = jnp.concatenate([X, P], axis=1)
        X, P, values = _rayleigh_ritz(A, jnp.concatenate([basis, _project_out(basis, R)], axis=1),
                                      k)
        AX = A(X)
        R = AX - values.astype(X.dtype) * X
        allowed = jnp.asarray(tol) * 10 * n * (_norms(AX)[0] + values)
        return steps + 1, X, P, R, values, jnp.sum(_norms(R)[0] < allowed)

    start = (jnp.asarray(0), X, _complement(X), AX - values.astype(X.dtype) * X, values,
             jnp.asarray(0))
    steps, X, _, _, values, _ = lax.while_loop(go_on, step, start)
    return values, X, steps


def _rayleigh_ritz(A: Operator, basis: Array, k: int) -> tuple[Array, Array, Array]:
    """Return the best k vectors of a basis, k directions of search, and the eigenvalues."""
    values, Q = _eigh_descending(_adjoint(basis) @ A(basis))
    best = Q[:, :k] / _norms(Q[:, :k])
    X = basis @ best
    rest, _ = jnp.linalg.qr(_adjoint(Q[:k, k:]))
    P = basis @ (Q[:, k:] @ rest)
    size = _norms(P)
    return X / _norms(X), P / jnp.where(size == 0, 1, size), values[:k]


def _adjoint(x: Array) -> Array:
    return jnp.conj(x.mT)


def _norms(x: Array) -> Array:
    return jnp.linalg.norm(x, axis=0, keepdims=True)


def _eigh_descending(a: Array) -> tuple[Array, Array]:
    w, v = jnp.linalg.eigh(a)
    return w[::-1], v[:, ::-1]


def _orthonormalize(X: Array) -> Array:
    """Return an orthonormal basis; columns that depend on others are 0."""
    return _orthonormalize_once(_orthonormalize_once(X))


def _orthonormalize_once(X: Array) -> Array:
    """Divide by the square root of the Gram matrix (SVQB: Stathopoulos and Wu, SIAM J. Sci. Comput.
    23 (2002))."""
    norms = _norms(X)
    X = X / jnp.where(norms == 0, 1, norms)
    gram = _adjoint(X) @ X
    w, v = _eigh_descending(gram)
    least = jnp.finfo(X.dtype).eps * w[0]
    scale = jnp.where(least > 0, jnp.maximum(w, least), 1) ** -0.5
    X = X @ (v * scale.astype(X.dtype))
    keep = (w > least) & (jnp.diag(gram).real > 0)
    norms = _norms(X)
    keep = keep & (norms > 0)
    return jnp.where(keep, X / jnp.where(keep, norms, 1), 0)


def _project_out(basis: Array, X: Array) -> Array:
    """Return an orthonormal basis of what a basis leaves of X; its columns may be 0."""
    for _ in range(2):
        X = _orthonormalize(X - basis @ (_adjoint(basis) @ X))
    for _ in range(2):  # what is nearly 0 has components in the basis again
        X = X - basis @ (_adjoint(basis) @ X)
    return jnp.where(_norms(X) >= 0.99, X, 0)


def _complement(X: Array) -> Array:
    """Return as many vectors that are orthonormal to those of an orthonormal basis, by a block
    Householder reflection (Schreiber and Parlett, SIAM J. Numer. Anal. 25 (1988))."""
    n, k = X.shape
    u, s, vh = jnp.linalg.svd(X[:k])
    w = X.at[:k].add(u @ vh) @ (_adjoint(vh) * ((2 * (1 + s)) ** -0.5).astype(X.dtype))
    one = jnp.eye(n - k, k, dtype=X.dtype)
    out: Array = (-2 * w @ (_adjoint(w[k:]) @ one)).at[k:].add(one)
    return out


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_module(__name__, __all__)
