"""Linear systems of ``jax.scipy.linalg``."""

from __future__ import annotations

from typing import Any

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import promote_arrays
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.lax.linalg import lu_pivots_to_permutation
from fnx.numpy import linear_systems
from fnx.numpy.decompositions import adjoint, apply_routine
from fnx.numpy.linear_systems import broadcast_batches, broadcast_system

__all__ = ["cho_solve", "det", "inv", "lu_solve", "solve", "solve_sylvester", "solve_triangular"]

_docstr = DocTemplate(
    a="an Array or array-like of matrices in the last two axes; integers become the default float.",
    b="a vector of length n, or right-hand sides of the shape (..., n, columns).",
    overwrite_a="accepted for SciPy compatibility.",
    overwrite_b="accepted for SciPy compatibility.",
    check_finite="accepted for SciPy compatibility: nothing is checked.",
    debug="accepted for SciPy compatibility.",
    lower="whether the lower triangle is used; otherwise the upper one.",
    returns="An Array: x, with the batch axes of both.",
    imports="fnx.numpy as jnp, fnx.scipy as jsp",
    raises=("ShapeError: the matrices are not square, or the lengths do not match.",))
_METHODS = "gen", "sym", "her", "pos"


def _triangular(a: Array, b: Array, lower: bool, transpose: bool, unit: bool = False) -> Array:
    flags = {"lower": lower, "transpose": transpose, "unit": unit}
    return apply_routine("triangular_solve", a, b, options=[o for o, on in flags.items() if on])[0]


def _cho_solve(c: Array, b: Array, lower: bool) -> Array:
    """Solve with c and its conjugate transpose; c is on the left of c.conj().T if it is lower."""
    def solve_adjoint(b: Array) -> Array:
        return jnp.conj(_triangular(c, jnp.conj(b), lower, True))
    if lower:
        return solve_adjoint(_triangular(c, b, lower, False))
    return _triangular(c, solve_adjoint(b), lower, False)


@_docstr(c_and_lower="what ``cho_factor`` returns.")
def cho_solve(c_and_lower: tuple[ArrayLike, bool], b: ArrayLike, overwrite_b: bool = False,
              check_finite: bool = True) -> Array:
    """Solve linear systems by Cholesky factors.

    >>> factor = jsp.linalg.cho_factor(4.0 * jnp.eye(2))
    >>> print(jsp.linalg.cho_solve(factor, jnp.ones(2)))
    [0.25 0.25]
    """
    factor, lower = c_and_lower
    c, columns, is_vector = broadcast_system("cho_solve", factor, b)
    x = _cho_solve(c, columns, lower)
    return x[..., 0] if is_vector else x


@_docstr("An Array without the last two axes.")
def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Return the determinants of matrices.

    >>> print(jsp.linalg.det(jnp.asarray([[1.0, 2.0], [3.0, 4.0]])))
    -2.0
    """
    return linear_systems.det(a)


@_docstr("An Array of the shape of a.")
def inv(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Return the inverses of matrices.

    >>> print(jsp.linalg.inv(2.0 * jnp.eye(1)))
    [[0.5]]
    """
    return linear_systems.inv(a)


@_docstr(raises=("ShapeError: the matrices are not square, or the lengths do not match.",
                 "ArgumentError: ``trans`` is not 0, 1 or 2."),
         lu_and_piv="what ``lu_factor`` returns.",
         trans="0: a; 1: its transpose; 2: its conjugate transpose.")
def lu_solve(lu_and_piv: tuple[ArrayLike, ArrayLike], b: ArrayLike, trans: int = 0,
             overwrite_b: bool = False, check_finite: bool = True) -> Array:
    """Solve linear systems by LU factors.

    >>> factors = jsp.linalg.lu_factor(jnp.asarray([[0.0, 1.0], [2.0, 0.0]]))
    >>> print(jsp.linalg.lu_solve(factors, jnp.asarray([1.0, 4.0])))
    [2. 1.]
    """
    if trans not in (0, 1, 2):
        raise ArgumentError(f"expected trans 0, 1 or 2, got {trans!r}")
    factors, pivots = lu_and_piv
    order = lu_pivots_to_permutation(pivots, asarray(factors).shape[-1])
    lu, columns, is_vector = broadcast_system("lu_solve", factors, b)
    order = jnp.broadcast_to(order, lu.shape[:-1])
    if trans:
        lu = jnp.conj(lu) if trans == 2 else lu
        y = _triangular(lu, _triangular(lu, columns, False, True), True, True, True)
        x = jnp.take_along_axis(y, jnp.argsort(order, -1)[..., None], -2)
    else:
        rows = jnp.take_along_axis(columns, order[..., None], -2)
        x = _triangular(lu, _triangular(lu, rows, True, False, True), False, False)
    return x[..., 0] if is_vector else x


@_docstr(raises=("ShapeError: the matrices are not square, or the lengths do not match.",
                 "ArgumentError: ``assume_a`` is not one of these."),
         lower='the triangle that is read with assume_a="pos".',
         assume_a='"gen", "sym", "her", or "pos": positive definite, by a Cholesky factorization.')
def solve(a: ArrayLike, b: ArrayLike, lower: bool = False, overwrite_a: bool = False,
          overwrite_b: bool = False, debug: bool = False, check_finite: bool = True,
          assume_a: str = "gen") -> Array:
    """Solve the linear systems ``a @ x == b``.

    >>> print(jsp.linalg.solve(4.0 * jnp.eye(2), jnp.ones(2), assume_a="pos"))
    [0.25 0.25]
    """
    if assume_a not in _METHODS:
        raise ArgumentError(f"expected assume_a of {', '.join(_METHODS)}, got {assume_a!r}")
    if assume_a != "pos":
        return linear_systems.solve(a, b)
    matrices, columns, is_vector = broadcast_system("solve", a, b)
    factor, = apply_routine("cholesky", matrices if lower else adjoint(matrices))
    x = _cho_solve(factor, columns, True)
    return x[..., 0] if is_vector else x


@_docstr(raises=("ShapeError: the shapes do not match.",
                 "ArgumentError: there is no such method."),
         A="m x m matrices.", B="n x n matrices.", C="m x n matrices.",
         method='"schur" or "eigen"; both mean Schur forms.',
         tol="accepted for JAX compatibility: no solution has infinities or NaN.")
def solve_sylvester(A: ArrayLike, B: ArrayLike, C: ArrayLike, *, method: str = "schur",
                    tol: float = 1e-8) -> Array:
    """Solve ``A @ x + x @ B == C``.

    Source: LAPACK's gees and trsyl (Bartels and Stewart).

    >>> print(jsp.linalg.solve_sylvester(jnp.eye(1), jnp.eye(1), jnp.ones((1, 1))))
    [[0.5]]
    """
    arguments.check_number("tol", tol)
    if method not in ("schur", "eigen"):
        raise ArgumentError(f'expected method "schur" or "eigen", got {method!r}')
    a, b, c = promote_arrays("solve_sylvester", *map(asarray, (A, B, C)))
    if min(a.ndim, b.ndim, c.ndim) < 2 or a.shape[-2:] != (c.shape[-2],) * 2 or \
            b.shape[-2:] != (c.shape[-1],) * 2:
        raise ShapeError("solve_sylvester: expected matrices m x m, n x n and m x n, got shapes "
                         f"{a.shape}, {b.shape} and {c.shape}")
    operands = broadcast_batches("solve_sylvester", (a, 2), (b, 2), (c, 2))
    return apply_routine("solve_sylvester", *operands)[0]


@_docstr(raises=("ShapeError: the matrices are not square, or the lengths do not match.",
                 "ArgumentError: there is no such ``trans``."),
         a="triangular matrices; the other triangle is not read.",
         trans='0 or "N": a; 1 or "T": its transpose; 2 or "C": its conjugate transpose.',
         unit_diagonal="whether the diagonal of a is taken as ones.")
def solve_triangular(a: ArrayLike, b: ArrayLike, trans: int | str = 0, lower: bool = False,
                     unit_diagonal: bool = False, overwrite_b: bool = False, debug: Any = None,
                     check_finite: bool = True) -> Array:
    """Solve the linear systems ``a @ x == b`` of triangular matrices.

    >>> a = jnp.asarray([[1.0, 0.0], [2.0, 4.0]])
    >>> print(jsp.linalg.solve_triangular(a, jnp.asarray([1.0, 6.0]), lower=True))
    [1. 1.]
    """
    arguments.check_optional_bool("debug", debug)
    if trans not in (0, 1, 2, "N", "T", "C"):
        raise ArgumentError(f'expected trans 0, 1, 2, "N", "T" or "C", got {trans!r}')
    matrices, columns, is_vector = broadcast_system("solve_triangular", a, b)
    if trans in (2, "C"):
        matrices = jnp.conj(matrices)
    x = _triangular(matrices, columns, lower, trans not in (0, "N"), unit_diagonal)
    return x[..., 0] if is_vector else x
