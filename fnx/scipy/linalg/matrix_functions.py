"""Functions of matrices of ``jax.scipy.linalg``."""

from __future__ import annotations

import math
from typing import Any

import fnx.numpy as jnp
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import promote_arrays
from fnx.core.support.errors import ShapeError
from fnx.lax.control_flow import cond, scan
from fnx.numpy.decompositions import apply_routine, as_matrices
from fnx.numpy.linear_systems import solve_matrices
from fnx.transforms.jvp import jvp

__all__ = ["expm", "expm_frechet"]

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
    a, e = promote_arrays("expm_frechet", asarray(A), asarray(E))
    as_matrices("expm_frechet", a, square=True)
    if a.shape != e.shape:
        raise ShapeError(f"expm_frechet: expected equal shapes, got {a.shape} and {e.shape}")
    value, rate = jvp(expm, (a,), (e,))
    return (value, rate) if compute_expm else rate
