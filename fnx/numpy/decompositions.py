"""Factorizations of ``fnx.numpy.linalg``, and the functions that all of linalg is made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import fnx.numpy.base as base
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import promote_arrays
from fnx.core.ir import build_calls
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.numpy.math_functions import conj
from fnx.numpy.rearrange import flip, take_along_axis
from fnx.numpy.sorting import argsort, sort

__all__ = ["EigResult", "EighResult", "QRResult", "SVDResult", "cholesky", "eig", "eigh", "eigvals",
           "eigvalsh", "qr", "svd", "svdvals"]


class EigResult(NamedTuple):
    """The result of ``eig``."""

    eigenvalues: Array
    eigenvectors: Array


class EighResult(NamedTuple):
    """The result of ``eigh``."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """The result of ``qr``."""

    Q: Array
    R: Array


class SVDResult(NamedTuple):
    """The result of ``svd``."""

    U: Array
    S: Array
    Vh: Array


def apply_routine(routine: str, *operands: Array, options: Iterable[str] = ()
                  ) -> tuple[Array, ...]:
    """Return the results of a LINALG for operands whose batch axes are equal."""
    nodes = build_calls.linalg(routine, [x._node for x in operands], tuple(options))
    return tuple(map(Array, nodes))


def as_matrices(name: str, a: ArrayLike, square: bool = False) -> Array:
    """Convert an operand to matrices of a float dtype.

    Raises:
        ShapeError: it has fewer than two axes, or its matrices are not square.
    """
    x, = promote_arrays(name, asarray(a))
    return check_matrices(name, x, square)


def check_matrices(name: str, x: Array, square: bool = False) -> Array:
    """Return x if it holds matrices in its last two axes.

    Raises:
        ShapeError: it has fewer than two axes, or its matrices are not square.
    """
    if x.ndim < 2:
        raise ShapeError(f"{name}: expected matrices in the last two axes, got shape {x.shape}",
                         hint="reshape it to (1, n) or (n, 1)")
    if square and x.shape[-1] != x.shape[-2]:
        raise ShapeError(f"{name}: expected square matrices, got shape {x.shape}",
                         hint="svd, qr and lstsq take matrices of any shape")
    return x


def transpose(x: Array) -> Array:
    """Return the transposes of matrices."""
    return base.swapaxes(x, -1, -2)


def adjoint(x: Array) -> Array:
    """Return the conjugate transposes."""
    return transpose(conj(x))


def symmetrize(x: Array) -> Array:
    """Return (x + x') / 2."""
    return (x + adjoint(x)) / 2


def eigen_decomposition(x: Array, lower: bool, symmetrize_input: bool, vectors: bool
                        ) -> tuple[Array, ...]:
    """Return the eigenvalues of symmetric matrices, and their vectors if asked for."""
    operand = symmetrize(x) if symmetrize_input else x
    return apply_routine("eigh" if vectors else "eigvalsh", operand,
                         options=("lower",) if lower else ())


_docstr = DocTemplate(
    a="an Array or array-like of matrices in the last two axes; integers become the default float.",
    x="an Array or array-like of matrices in the last two axes; integers become the default float.",
    symmetrize_input="whether to use (a + a.T) / 2 instead of a, for symmetric derivatives; "
                     "otherwise one triangle is read.",
    UPLO='"L" or "U": the triangle that is read if the input is not symmetrized.',
    returns="An Array.",
    raises=("ShapeError: there are fewer than two axes, or the matrices are not square.",))
_ANY_SHAPE = ("ShapeError: there are fewer than two axes.",)


@_docstr("An Array of the shape of a: lower triangular matrices; NaN where a matrix is not "
         "positive definite.", upper="whether to return the upper triangular transposes.")
def cholesky(a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """Return the Cholesky factors of symmetric positive definite matrices: ``L @ L.T == a``.

    Source: LAPACK's potrf.

    >>> print(jnp.linalg.cholesky(jnp.asarray([[4.0, 2.0], [2.0, 5.0]])))
    [[2. 0.]
     [1. 2.]]
    """
    x = as_matrices("cholesky", a, square=True)
    factor, = apply_routine("cholesky", symmetrize(x) if symmetrize_input else x)
    return adjoint(factor) if upper else factor


@_docstr("An EigResult of eigenvalues and eigenvectors, in the columns of a matrix; complex.")
def eig(a: ArrayLike) -> EigResult:
    """Return eigenvalues and eigenvectors of square matrices: ``a @ v == v * w``.

    The derivative of the vectors divides by the gaps between eigenvalues. Source: LAPACK's geev.

    >>> w, v = jnp.linalg.eig(jnp.asarray([[0.0, -1.0], [1.0, 0.0]]))
    >>> print(w)
    [0.+1.j 0.-1.j]
    """
    return EigResult(*apply_routine("eig", as_matrices("eig", a, square=True)))


@_docstr("An Array of complex numbers without the last axis.")
def eigvals(a: ArrayLike) -> Array:
    """Return the eigenvalues of square matrices.

    >>> print(jnp.linalg.eigvals(jnp.asarray([[0.0, -1.0], [1.0, 0.0]])))
    [0.+1.j 0.-1.j]
    """
    return apply_routine("eigvals", as_matrices("eigvals", a, square=True))[0]


def _check_uplo(uplo: str | None) -> bool:
    """Return whether the lower triangle is meant."""
    if uplo not in (None, "L", "U"):
        raise ArgumentError(f'expected UPLO "L", "U" or None, got {uplo!r}')
    return uplo != "U"


@_docstr("An EighResult of eigenvalues, ascending, and eigenvectors in the columns of a matrix.",
         ("ShapeError: there are fewer than two axes, or the matrices are not square.",
          "ArgumentError: UPLO is neither of the two."))
def eigh(a: ArrayLike, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Return eigenvalues and eigenvectors of symmetric matrices: ``a @ v == v * w``.

    The derivative of the vectors divides by the gaps between eigenvalues; for equal ones the
    quotient counts as 0. Source: LAPACK's syevd.

    >>> w, v = jnp.linalg.eigh(jnp.asarray([[2.0, 0.0], [0.0, 1.0]]))
    >>> print(w)
    [1. 2.]
    """
    x = as_matrices("eigh", a, square=True)
    return EighResult(*eigen_decomposition(x, _check_uplo(UPLO), symmetrize_input, True))


@_docstr("An Array without the last axis: the eigenvalues, ascending.",
         ("ShapeError: there are fewer than two axes, or the matrices are not square.",
          "ArgumentError: UPLO is neither of the two."))
def eigvalsh(a: ArrayLike, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Array:
    """Return the eigenvalues of symmetric matrices.

    >>> print(jnp.linalg.eigvalsh(jnp.asarray([[0.0, 1.0], [1.0, 0.0]])))
    [-1.  1.]
    """
    x = as_matrices("eigvalsh", a, square=True)
    return eigen_decomposition(x, _check_uplo(UPLO), symmetrize_input, False)[0]


@_docstr('A QRResult of Q and R; an Array R for "r"; the pair of LAPACK\'s results for "raw".',
         (*_ANY_SHAPE, "ArgumentError: there is no such mode."),
         mode='"reduced": k = min(m, n) columns in Q; "complete": m columns; "r": only R; "raw": '
              'the reflectors, transposed, and their factors; "full": the same as "reduced".')
def qr(a: ArrayLike, mode: str = "reduced") -> Any:
    """Return the QR factorization of matrices: Q has orthonormal columns, R is upper triangular.

    Source: LAPACK's geqrf and orgqr.

    >>> q, r = jnp.linalg.qr(jnp.asarray([[0.0, 1.0], [2.0, 3.0]]))
    >>> print(abs(r))
    [[2. 3.]
     [0. 1.]]
    """
    x = as_matrices("qr", a)
    if mode not in ("reduced", "complete", "r", "raw", "full"):
        raise ArgumentError('expected mode "reduced", "complete", "r" or "raw", got '
                            f"{mode!r}")
    if mode == "raw":
        reflectors, factors = apply_routine("geqrf", x)
        return transpose(reflectors), factors
    q, r = apply_routine("qr", x, options=("full",) if mode == "complete" else ())
    return r if mode == "r" else QRResult(q, r)


def _take_part(parts: Iterable[Array], subset: tuple[int, int] | None, size: int
               ) -> list[Array]:
    """Return the columns [start, stop) along the last axis."""
    if subset is None:
        return list(parts)
    start, stop = subset
    if not 0 <= start < stop <= size:
        raise ArgumentError(f"expected subset_by_index (start, stop) with 0 <= start < stop <= "
                            f"{size}, got {subset}")
    return [x[..., start:stop] for x in parts]


def singular_values(x: Array, full: bool, compute_uv: bool,
                    subset: tuple[int, int] | None = None) -> Any:
    """Return u, s and vh, or only s."""
    k = min(x.shape[-2:])
    if subset is not None and full and tuple(subset) != (0, k):
        raise ArgumentError("expected full_matrices=False with subset_by_index, got True")
    if not compute_uv:
        return _take_part(apply_routine("svdvals", x), subset, k)[0]
    s, u, vh = apply_routine("svd", x, options=("full",) if full else ())
    if subset is None:
        return u, s, vh
    s, u, v = _take_part([s, u, transpose(vh)], subset, k)
    return u, s, transpose(v)


@_docstr("An SVDResult of U, S, descending, and Vh; without ``compute_uv`` an Array S.",
         (*_ANY_SHAPE, "ArgumentError: the subset is not a part of all values."),
         full_matrices="whether U and Vh are square.",
         compute_uv="whether to return U and Vh.",
         hermitian="whether the matrices are symmetric, which is faster.",
         subset_by_index="(start, stop) of the singular values to return; None: all.")
def svd(a: ArrayLike, full_matrices: bool = True, compute_uv: bool = True,
        hermitian: bool = False, subset_by_index: tuple[int, int] | None = None) -> Any:
    """Return the singular value decomposition of matrices: ``a == U * S @ Vh``.

    The derivative of the vectors divides by the gaps between singular values; for equal ones the
    quotient counts as 0. Source: LAPACK's gesdd.

    >>> u, s, vh = jnp.linalg.svd(jnp.asarray([[0.0, 2.0], [1.0, 0.0]]))
    >>> print(s)
    [2. 1.]
    """
    x = as_matrices("svd", a, square=hermitian)
    if hermitian:
        return _symmetric_svd(x, compute_uv, subset_by_index)
    parts = singular_values(x, full_matrices, compute_uv, subset_by_index)
    return SVDResult(*parts) if compute_uv else parts


def _symmetric_svd(x: Array, compute_uv: bool, subset: tuple[int, int] | None) -> Any:
    """Return the singular values of symmetric matrices: those of the eigenvalues."""
    n = x.shape[-1]
    if not compute_uv:
        w, = eigen_decomposition(x, True, True, False)
        return _take_part([flip(sort(abs(w)), -1)], subset, n)[0]
    w, v = eigen_decomposition(x, True, True, True)
    order = flip(argsort(abs(w), -1), -1)
    values = take_along_axis(w, order, -1)
    u = take_along_axis(v, order[..., None, :], -1)
    values, u = _take_part([values, u], subset, n)
    return SVDResult(u, abs(values), adjoint(u * base.sign(values)[..., None, :]))


@_docstr("An Array: the singular values, descending.", _ANY_SHAPE)
def svdvals(x: ArrayLike, /) -> Array:
    """Return the singular values of matrices.

    >>> print(jnp.linalg.svdvals(jnp.asarray([[0.0, 2.0], [1.0, 0.0]])))
    [2. 1.]
    """
    values: Array = singular_values(as_matrices("svdvals", x), False, False)
    return values
