"""Functions of matrices of ``jax.scipy.linalg``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import promote_arrays
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.lax.control_flow import cond, scan
from fnx.numpy.decompositions import apply_routine, as_matrices
from fnx.numpy.linear_systems import solve_matrices
from fnx.scipy.linalg.decompositions import to_complex
from fnx.transforms.custom.jvp import custom_jvp
from fnx.transforms.jvp import jvp

__all__ = ["expm", "expm_frechet", "funm", "sqrtm"]

_docstr = DocTemplate(
    A="an Array or array-like of square matrices in the last two axes.",
    E="an Array of the shape of A: the direction.", method="accepted for JAX compatibility.",
    upper_triangular="whether the matrices are upper triangular.",
    max_squarings="the most squarings; NaN of matrices that need more.",
    compute_expm="whether to return the exponential, too.",
    returns="An Array of the shape of A.", imports="fnx.numpy as jnp, fnx.scipy as jsp",
    raises=("ShapeError: the matrices are not square.",))

# the degree of the approximant, and the 1-norm up to which it is exact to rounding
_DEGREES = {4: (7, 3.925724783138660), 8: (13, 5.371920351148152)}


@_docstr()
def expm(A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """Return the exponentials of matrices.

    Source: Higham, The scaling and squaring method for the matrix exponential revisited (2005).

    >>> print(jsp.linalg.expm(jnp.zeros((2, 2))))
    [[1. 0.]
     [0. 1.]]
    """
    a = as_matrices("expm", A, square=True)
    if 0 in a.shape:
        return a
    degree, limit = _DEGREES[jnp.finfo(a.dtype).bits // 8]
    size = abs(a).sum(-2).max(-1)
    count = jnp.maximum(0, jnp.ceil(jnp.log2(jnp.where(size > 0, size, 1) / limit)))
    scaled = a * jnp.exp2(-count).astype(a.dtype)[..., None, None]
    odd, even = _pade_parts(scaled, degree)
    if upper_triangular:
        root, = apply_routine("triangular_solve", even - odd, even + odd)
    else:
        root = solve_matrices(even - odd, even + odd)
    most = count.max()

    def square(x: Array, i: Array) -> tuple[Array, None]:
        more = (i < count)[..., None, None]
        return cond(i < most, lambda y: jnp.where(more, y @ y, y), lambda y: y, x), None
    out, _ = scan(square, root, jnp.arange(max_squarings, dtype=count.dtype))
    return jnp.where((count > max_squarings)[..., None, None], math.nan, out)


def _pade_parts(a: Array, degree: int) -> tuple[Array, Array]:
    """Return the odd and the even part of the numerator of the diagonal Pade approximant."""
    c = [math.factorial(2 * degree - k) / (math.factorial(k) * math.factorial(degree - k))
         for k in range(degree + 1)]
    c = [x / c[degree] for x in c]
    eye = jnp.eye(a.shape[-1], dtype=a.dtype)
    a2 = a @ a
    a4 = a2 @ a2
    a6 = a4 @ a2
    if degree == 7:
        odd = a @ (c[7] * a6 + c[5] * a4 + c[3] * a2 + c[1] * eye)
        return odd, c[6] * a6 + c[4] * a4 + c[2] * a2 + c[0] * eye
    high = a6 @ (c[13] * a6 + c[11] * a4 + c[9] * a2)
    odd = a @ (high + c[7] * a6 + c[5] * a4 + c[3] * a2 + c[1] * eye)
    even = a6 @ (c[12] * a6 + c[10] * a4 + c[8] * a2) \
        + c[6] * a6 + c[4] * a4 + c[2] * a2 + c[0] * eye
    return odd, even


@_docstr("The exponential and its derivative in the direction E, or only the derivative.",
         ("ShapeError: the matrices are not square, or their shapes differ.",))
def expm_frechet(A: ArrayLike, E: ArrayLike, *, method: str | None = None,
                 compute_expm: bool = True) -> Any:
    """Return the exponential of matrices and its derivative along others.

    >>> _, rate = jsp.linalg.expm_frechet(jnp.zeros((1, 1)), jnp.ones((1, 1)))
    >>> print(rate)
    [[1.]]
    """
    arguments.check_choice("method", method, ("SPS", "blockEnlarge", None))
    a, e = promote_arrays("expm_frechet", asarray(A), asarray(E))
    as_matrices("expm_frechet", a, square=True)
    if a.shape != e.shape:
        raise ShapeError(f"expm_frechet: expected equal shapes, got {a.shape} and {e.shape}")
    value, rate = jvp(expm, (a,), (e,))
    return (value, rate) if compute_expm else rate


def _triangular_function(t: Array, diagonal: Array, denominator: Callable[[int], Array],
                         known: Callable[[Array, int], Array]) -> Array:
    """Fill the upper triangle of f(t) diagonal by diagonal.

    Args:
        t: upper triangular matrices.
        diagonal: the diagonals of the result.
        denominator: what to divide by, for each distance from the main diagonal.
        known: the numerators at a distance, given the result so far.
    """
    n = t.shape[-1]
    out = diagonal[..., None] * jnp.eye(n, dtype=t.dtype)
    for k in range(1, n):
        part = known(out, k) / denominator(k)
        widths = [*[(0, 0)] * (t.ndim - 2), (0, k), (k, 0)]
        out = out + jnp.pad(part[..., None] * jnp.eye(n - k, dtype=t.dtype), widths)
    return out


def _diagonal(x: Array, k: int = 0) -> Array:
    return jnp.diagonal(x, k, -2, -1)


@custom_jvp[[Array], Array]
def _square_root(a: Array) -> Array:
    t, z = apply_routine("schur", a)
    values = jnp.sqrt(_diagonal(t))

    def denominator(k: int) -> Array:
        total = values[..., :-k] + values[..., k:]
        return jnp.where(total == 0, 1, total)
    root = _triangular_function(t, values, denominator,
                                lambda out, k: _diagonal(t, k) - _diagonal(out @ out, k))
    return z @ root @ jnp.conj(z.mT)


@_square_root.defjvp
def _square_root_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """With r r = a: r r' + r' r = a'."""
    root = _square_root(primals[0])
    return root, apply_routine("solve_sylvester", root, root, tangents[0])[0]


@_docstr("An Array of complex numbers, of the shape of A.",
         ("ShapeError: the matrices are not square.", "ArgumentError: ``blocksize`` is not 1."),
         blocksize="must be 1.")
def sqrtm(A: ArrayLike, blocksize: int = 1) -> Array:
    """Return the principal square roots of matrices, from their Schur forms.

    >>> print(jsp.linalg.sqrtm(jnp.asarray([[4.0, 0.0], [0.0, 9.0]])).real)
    [[2. 0.]
     [0. 3.]]
    """
    if blocksize != 1:
        raise ArgumentError(f"expected blocksize 1, got {blocksize}")
    return _square_root(to_complex(as_matrices("sqrtm", A, square=True)))


@_docstr("An Array of the shape of A; with ``disp=False`` also an estimate of the relative error.",
         ("ShapeError: the matrix is not square.",), A="a square matrix.",
         func="a function of arrays, applied to the eigenvalues.",
         disp="whether to leave out the estimate of the error.")
def funm(A: ArrayLike, func: Callable[[Array], Array], disp: bool = True) -> Any:
    """Return a function of a matrix, from its Schur form.

    Source: Parlett's recurrence (Golub and Van Loan, algorithm 11.1.1).

    >>> print(jsp.linalg.funm(jnp.asarray([[4.0, 0.0], [0.0, 9.0]]), jnp.sqrt).real)
    [[2. 0.]
     [0. 3.]]
    """
    a = as_matrices("funm", A, square=True)
    if a.ndim != 2:
        raise ShapeError(f"funm: expected one matrix, got shape {a.shape}")
    t, z = apply_routine("schur", to_complex(a))
    values, w = func(_diagonal(t)), _diagonal(t)
    gaps = [jnp.asarray(jnp.inf, abs(w).dtype)]

    def denominator(k: int) -> Array:
        gap = w[k:] - w[:-k]
        gaps.append(abs(gap).min())
        return jnp.where(gap == 0, float(jnp.finfo(a.dtype).eps), gap)

    def known(out: Array, k: int) -> Array:
        return _diagonal(t @ out - out @ t, k)
    form = _triangular_function(t, values.astype(t.dtype), denominator, known)
    out = z @ form @ jnp.conj(z.mT)
    smallest = jnp.stack(gaps).min()
    smallest = jnp.where(smallest == 0, float(jnp.finfo(a.dtype).eps), smallest)
    error = jnp.minimum(1, jnp.maximum(
        float(jnp.finfo(a.dtype).eps),
        float(jnp.finfo(a.dtype).eps) / smallest * jnp.linalg.norm(jnp.triu(form, 1), 1)))
    return out if disp else (out, error)
