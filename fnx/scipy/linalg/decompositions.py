"""Factorizations of ``jax.scipy.linalg``."""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import promote_arrays
from fnx.core.ir import dtypes
from fnx.core.support.errors import ArgumentError, NotBuiltError, ShapeError
from fnx.lax import linalg as lax_linalg
from fnx.lax.control_flow import fori_loop
from fnx.numpy.decompositions import (
    adjoint,
    apply_routine,
    as_matrices,
    eigen_decomposition,
    singular_values,
    symmetrize,
    transpose,
)
from fnx.numpy.linear_systems import solve_matrices
from fnx.transforms.custom.jvp import custom_jvp

__all__ = ["cho_factor", "cholesky", "eigh", "eigh_tridiagonal", "hessenberg", "lu", "lu_factor",
           "polar", "qr", "qr_multiply", "rsf2csf", "schur", "svd"]

_docstr = DocTemplate(
    a="an Array or array-like of matrices in the last two axes; integers become the default float.",
    lower="whether the lower triangle is read and returned; otherwise the upper one.",
    overwrite_a="accepted for SciPy compatibility.",
    overwrite_b="accepted for SciPy compatibility.",
    overwrite_c="accepted for SciPy compatibility.",
    check_finite="accepted for SciPy compatibility: nothing is checked.",
    lwork="accepted for SciPy compatibility.",
    lapack_driver="accepted for SciPy compatibility.",
    pivoting="whether columns are exchanged; then their order is returned, too.",
    returns="An Array.", imports="fnx.numpy as jnp, fnx.scipy as jsp",
    raises=("ShapeError: there are fewer than two axes, or the matrices are not square.",))


@_docstr("The triangular factors; NaN where a matrix is not positive definite.")
def cholesky(a: ArrayLike, lower: bool = False, overwrite_a: bool = False,
             check_finite: bool = True) -> Array:
    """Return the Cholesky factors of symmetric positive definite matrices.

    >>> print(jsp.linalg.cholesky(jnp.asarray([[4.0, 2.0], [2.0, 5.0]])))
    [[2. 1.]
     [0. 2.]]
    """
    x = as_matrices("cholesky", a, square=True)
    factor, = apply_routine("cholesky", x if lower else transpose(x))
    return factor if lower else transpose(factor)


@_docstr("The triangular factors and ``lower``, for ``cho_solve``.")
def cho_factor(a: ArrayLike, lower: bool = False, overwrite_a: bool = False,
               check_finite: bool = True) -> tuple[Array, bool]:
    """Return Cholesky factors for ``cho_solve``.

    >>> c, lower = jsp.linalg.cho_factor(4.0 * jnp.eye(1))
    >>> print(c, lower)
    [[2.]] False
    """
    return cholesky(a, lower), lower


@_docstr("The eigenvalues, ascending, and the vectors unless ``eigvals_only``.",
         ("ShapeError: the matrices are not square.",
          "NotBuiltError: b, eigvals or a type other than 1 is given."),
         b="must be None.", eigvals_only="whether to return no vectors.",
         turbo="accepted for SciPy compatibility.", eigvals="must be None.", type="must be 1.")
def eigh(a: ArrayLike, b: ArrayLike | None = None, lower: bool = True, eigvals_only: bool = False,
         overwrite_a: bool = False, overwrite_b: bool = False, turbo: bool = True,
         eigvals: None = None, type: int = 1, check_finite: bool = True) -> Any:
    """Return eigenvalues and eigenvectors of symmetric matrices.

    >>> print(jsp.linalg.eigh(jnp.asarray([[0.0, 1.0], [1.0, 0.0]]), eigvals_only=True))
    [-1.  1.]
    """
    if b is not None or eigvals is not None or type != 1:
        raise NotBuiltError("eigh: expected b=None, eigvals=None and type=1",
                            hint="with l = cholesky(b), solve for inv(l) @ a @ inv(l).T")
    x = as_matrices("eigh", a, square=True)
    parts = eigen_decomposition(x, lower, True, not eigvals_only)
    return parts[0] if eigvals_only else parts


def _check_range(select_range: Any) -> None:
    if select_range is not None and not (
            isinstance(select_range, Sequence) and len(select_range) == 2
            and all(isinstance(x, numbers.Real) for x in select_range)):
        raise ArgumentError("expected select_range as a pair of numbers or None, got "
                            f"{select_range!r}")


@_docstr("The eigenvalues, ascending, and the vectors unless ``eigvals_only``.",
         ("ShapeError: the lengths do not match.", "ArgumentError: the selection is not valid.",
          'NotBuiltError: ``select`` is "v".'),
         d="the main diagonal, of length n.", e="the diagonal above it, of length n - 1.",
         eigvals_only="whether to return no vectors.",
         select='"a": all; "i": those with the indices in ``select_range``, both included.',
         select_range="the first and the last index.",
         tol="accepted for JAX compatibility.", key="accepted for JAX compatibility.")
def eigh_tridiagonal(d: ArrayLike, e: ArrayLike, *, eigvals_only: bool = False, select: str = "a",
                     select_range: tuple[float, float] | None = None, tol: float | None = None,
                     key: ArrayLike | None = None) -> Any:
    """Return eigenvalues and eigenvectors of a symmetric tridiagonal matrix.

    >>> print(jsp.linalg.eigh_tridiagonal(jnp.zeros(2), jnp.ones(1), eigvals_only=True))
    [-1.  1.]
    """
    arguments.check_optional("tol", tol, numbers.Real, "a number")
    _check_range(select_range)
    if key is not None:
        asarray(key)
    x, y = promote_arrays("eigh_tridiagonal", asarray(d), asarray(e))
    if x.ndim != 1 or y.shape != (max(0, x.shape[0] - 1),):
        raise ShapeError("eigh_tridiagonal: expected vectors of n and n - 1 elements, got shapes "
                         f"{x.shape} and {y.shape}")
    if select == "v":
        raise NotBuiltError("eigh_tridiagonal: select='v' is not implemented",
                            hint="compute all and select by their values")
    if select not in ("a", "i") or select == "i" and select_range is None:
        raise ArgumentError("expected select='a', or select='i' with a select_range, got "
                            f"{select!r} and {select_range}")
    matrix = jnp.diag(x) + jnp.diag(y, 1) + jnp.diag(jnp.conj(y), -1) if y.size else jnp.diag(x)
    parts = eigen_decomposition(matrix, True, False, not eigvals_only)
    if select == "i" and select_range is not None:
        first, last = int(select_range[0]), int(select_range[1])
        if not 0 <= first <= last < x.shape[0]:
            raise ArgumentError(f"expected a select_range within 0 .. {x.shape[0] - 1}, got "
                                f"{select_range}")
        parts = tuple([part[..., first:last + 1] for part in parts])
    return parts[0] if eigvals_only else parts


@_docstr("The Hessenberg form, and with ``calc_q`` the orthogonal factor q: a == q @ h @ q.T.",
         calc_q="whether to return q.")
def hessenberg(a: ArrayLike, *, calc_q: bool = False, overwrite_a: bool = False,
               check_finite: bool = True) -> Any:
    """Return the Hessenberg form of square matrices: zero below the first subdiagonal.

    >>> h, q = jsp.linalg.hessenberg(jnp.asarray([[1.0, 2.0], [3.0, 4.0]]), calc_q=True)
    >>> print(h)
    [[1. 2.]
     [3. 4.]]
    """
    x = as_matrices("hessenberg", a, square=True)
    reflectors, taus = apply_routine("hessenberg", x)
    h = jnp.triu(reflectors, -1)
    if not calc_q:
        return h
    n = x.shape[-1]
    if n < 2:
        return h, jnp.broadcast_to(jnp.eye(n, dtype=x.dtype), x.shape)
    inner, = apply_routine("householder_product", reflectors[..., 1:, :-1], taus)
    widths = [*[(0, 0)] * (x.ndim - 2), (1, 0), (1, 0)]
    corner = jnp.zeros((n, n), x.dtype).at[0, 0].set(1)
    return h, jnp.pad(inner, widths) + corner


@_docstr("(p, l, u) with a == p @ l @ u, or (p @ l, u) with ``permute_l``.",
         ("ShapeError: there are fewer than two axes.",),
         permute_l="whether to multiply the permutation and l.")
def lu(a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True
       ) -> tuple[Array, ...]:
    """Return the LU factorization of matrices with partial pivoting.

    >>> p, l, u = jsp.linalg.lu(jnp.asarray([[0.0, 1.0], [2.0, 3.0]]))
    >>> print(u)
    [[2. 3.]
     [0. 1.]]
    """
    x = as_matrices("lu", a)
    factors, _, order = apply_routine("lu", x)
    m, n = x.shape[-2:]
    k = min(m, n)
    p = (order[..., None, :] == jnp.arange(m)[:, None]).astype(x._dtype.real.np)
    low = jnp.tril(factors[..., :k], -1) + jnp.eye(m, k, dtype=x.dtype)
    up = jnp.triu(factors[..., :k, :])
    return (p @ low, up) if permute_l else (p, low, up)


@_docstr("Both factors in one matrix, and the pivots, for ``lu_solve``.",
         ("ShapeError: there are fewer than two axes.",))
def lu_factor(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True
              ) -> tuple[Array, Array]:
    """Return LU factors for ``lu_solve``.

    >>> factors, pivots = jsp.linalg.lu_factor(jnp.asarray([[0.0, 1.0], [2.0, 3.0]]))
    >>> print(pivots)
    [1 1]
    """
    factors, pivots, _ = apply_routine("lu", as_matrices("lu_factor", a))
    return factors, pivots


@_docstr("(q, r), with pivoting (q, r, order); without q for mode \"r\".",
         ("ShapeError: there are fewer than two axes.", "ArgumentError: there is no such mode."),
         mode='"full": q is square; "economic": k = min(m, n) columns; "r": no q.')
def qr(a: ArrayLike, overwrite_a: bool = False, lwork: Any = None, mode: str = "full",
       pivoting: bool = False, check_finite: bool = True) -> tuple[Array, ...]:
    """Return the QR factorization of matrices.

    >>> q, r = jsp.linalg.qr(jnp.asarray([[0.0, 1.0], [2.0, 3.0]]))
    >>> print(abs(r))
    [[2. 3.]
     [0. 1.]]
    """
    if mode not in ("full", "economic", "r"):
        raise ArgumentError(f'expected mode "full", "economic" or "r", got {mode!r}')
    arguments.check_optional("lwork", lwork, int, "an int")
    x = as_matrices("qr", a)
    parts = lax_linalg.qr(x, pivoting=pivoting, full_matrices=mode != "economic")
    return parts[1:] if mode == "r" else parts


@_docstr("(c @ q or q @ c, r), with pivoting also the order of the columns.",
         ("ShapeError: the shapes do not match.", "ArgumentError: there is no such mode."),
         c="a matrix or a vector.", mode='"right": c @ q; "left": q @ c.',
         conjugate="whether q is conjugated.")
def qr_multiply(a: ArrayLike, c: ArrayLike, mode: str = "right", pivoting: bool = False,
                conjugate: bool = False, overwrite_a: bool = False, overwrite_c: bool = False
                ) -> tuple[Array, ...]:
    """Factorize a matrix as q @ r, and multiply another one by q.

    >>> out, r = jsp.linalg.qr_multiply(jnp.asarray([[2.0], [0.0]]), jnp.asarray([1.0, 5.0]))
    >>> print(abs(out), abs(r))
    [1.] [[2.]]
    """
    if mode not in ("right", "left"):
        raise ArgumentError(f'expected mode "right" or "left", got {mode!r}')
    x, y = promote_arrays("qr_multiply", asarray(a), asarray(c))
    parts = lax_linalg.qr(x, pivoting=pivoting, full_matrices=False)
    q = jnp.conj(parts[0]) if conjugate else parts[0]
    length = q.shape[-1 if mode == "left" else -2]
    if not y.ndim or y.shape[0 if y.ndim == 1 else -2 if mode == "left" else -1] != length:
        raise ShapeError(f"qr_multiply: expected a product with {length} terms, got shapes "
                         f"{x.shape} and {y.shape}")
    return (q @ y if mode == "left" else y @ q, *parts[1:])


@_docstr("The quasi-triangular form t and the vectors z: a == z @ t @ z.conj().T.",
         ("ShapeError: the matrices are not square.", "ArgumentError: there is no such output."),
         output='"real": t has blocks of two rows for pairs of eigenvalues; "complex": none.')
def schur(a: ArrayLike, output: str = "real") -> tuple[Array, Array]:
    """Return the Schur decomposition of square matrices.

    >>> t, z = jsp.linalg.schur(jnp.asarray([[1.0, 2.0], [0.0, 3.0]]))
    >>> print(t)
    [[1. 2.]
     [0. 3.]]
    """
    if output not in ("real", "complex"):
        raise ArgumentError(f'expected output "real" or "complex", got {output!r}')
    x = as_matrices("schur", a, square=True)
    t, z = apply_routine("schur", to_complex(x) if output == "complex" else x)
    return t, z


@_docstr("(u, s, vh), or s alone.", ("ShapeError: there are fewer than two axes.",),
         full_matrices="whether u and vh are square.", compute_uv="whether to return u and vh.")
def svd(a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True,
        overwrite_a: bool = False, check_finite: bool = True, lapack_driver: str = "gesdd") -> Any:
    """Return the singular value decomposition of matrices.

    >>> print(jsp.linalg.svd(jnp.asarray([[0.0, 2.0], [1.0, 0.0]]), compute_uv=False))
    [2. 1.]
    """
    arguments.check_choice("lapack_driver", lapack_driver, ("gesdd", "gesvd"))
    return singular_values(as_matrices("svd", a), full_matrices, compute_uv)


def to_complex(x: Array) -> Array:
    """Convert floats to complex numbers of that precision."""
    return x.astype(dtypes.complex_of(x._dtype).np)


@_docstr("The triangular form and the vectors, complex.",
         ("ShapeError: the matrices are not square, or of different sizes.",),
         T="quasi-triangular matrices.", Z="their Schur vectors.")
def rsf2csf(T: ArrayLike, Z: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """Convert a real Schur form to a complex one, which is triangular.

    >>> t, z = jsp.linalg.rsf2csf(jnp.asarray([[0.0, -1.0], [1.0, 0.0]]), jnp.eye(2))
    >>> print(abs(jnp.diagonal(t)).round(3))
    [1. 1.]
    """
    t, z = as_matrices("rsf2csf", T, square=True), as_matrices("rsf2csf", Z, square=True)
    if t.shape != z.shape:
        raise ShapeError(f"rsf2csf: expected equal shapes, got {t.shape} and {z.shape}")
    t, z = to_complex(t), to_complex(z)
    n = t.shape[-1]
    if n < 2:
        return t, z
    form, vectors = fori_loop(0, n - 1, lambda i, both: _rotate(n - 1 - i, *both), (t, z))
    return jnp.triu(form), vectors


def _rotate(m: Any, t: Array, z: Array) -> tuple[Array, Array]:
    """Make the element t[m, m - 1] zero by a rotation of two columns and two rows, as SciPy."""
    at = m - 1 + jnp.arange(2)
    block = jnp.take(jnp.take(t, at, -1), at, -2)
    below, last = block[..., 1, 0], block[..., 1, 1]
    first = apply_routine("eigvals", block)[0][..., 0] - last
    radius = jnp.sqrt(abs(first) ** 2 + abs(below) ** 2)
    small = abs(below) <= jnp.finfo(t.dtype).eps * (abs(block[..., 0, 0]) + abs(last))
    safe = jnp.where(small, 1, radius)
    c, s = jnp.where(small, 1, first / safe), jnp.where(small, 0, below / safe)
    turn = jnp.stack([jnp.stack([jnp.conj(c), s], -1), jnp.stack([-s, c], -1)], -2)
    t = t.at[..., at, :].set(turn @ t[..., at, :])
    t = t.at[..., at].set(t[..., at] @ adjoint(turn)).at[..., m, m - 1].set(0)
    return t, z.at[..., at].set(z[..., at] @ adjoint(turn))


@custom_jvp[[Array], Array]
def _unitary_factor(a: Array) -> Array:
    u, _, vh = singular_values(a, False, True)
    product: Array = u @ vh
    return product


@_unitary_factor.defjvp
def _unitary_factor_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """With a = u h: u' = u x + (a' - u u' a') h^-1, where h x + x h = u' a' - a'' u is skew."""
    (a,), (t,) = primals, tangents
    u = _unitary_factor(a)
    h = symmetrize(adjoint(u) @ a)
    inner = adjoint(u) @ t
    x, = apply_routine("solve_sylvester", h, h, inner - adjoint(inner))
    rate = u @ x
    if a.shape[-2] > a.shape[-1]:
        rate = rate + adjoint(solve_matrices(h, adjoint(t - u @ inner)))
    return u, rate


@_docstr("The unitary factor, and the symmetric positive semidefinite one.",
         ("ShapeError: there are fewer than two axes.",
          "ArgumentError: there is no such side or method."),
         side='"right": a == u @ p; "left": a == p @ u.',
         method='"qdwh" or "svd"; both mean singular values.',
         eps="accepted for JAX compatibility.",
         max_iterations="accepted for JAX compatibility.")
def polar(a: ArrayLike, side: str = "right", *, method: str = "qdwh", eps: float | None = None,
          max_iterations: int | None = None) -> tuple[Array, Array]:
    """Return the polar decomposition of matrices.

    >>> u, p = jsp.linalg.polar(jnp.asarray([[0.0, 2.0], [1.0, 0.0]]))
    >>> print(jnp.round(abs(p), 5))
    [[1. 0.]
     [0. 2.]]
    """
    if side not in ("right", "left") or method not in ("qdwh", "svd"):
        raise ArgumentError('expected side "right" or "left" and method "qdwh" or "svd", got '
                            f"{side!r} and {method!r}")
    arguments.check_optional("eps", eps, numbers.Real, "a number")
    arguments.check_optional("max_iterations", max_iterations, int, "an int")
    x = as_matrices("polar", a)
    wide = x.shape[-2] < x.shape[-1]
    u = adjoint(_unitary_factor(adjoint(x))) if wide else _unitary_factor(x)
    return u, symmetrize(adjoint(u) @ x if side == "right" else x @ adjoint(u))


