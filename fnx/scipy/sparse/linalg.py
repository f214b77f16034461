"""Iterative linear solvers (cg, bicgstab, gmres), which use A only as a function x -> A(x).

>>> import fnx.numpy as jnp
>>> x, _ = cg(lambda x: jnp.asarray([2.0, 4.0]) * x, jnp.ones(2))
>>> print(x)
[0.5  0.25]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import fnx.numpy as jnp
from fnx.core.array import arguments, tree
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.support.errors import ArgumentError, ShapeError, lazy_module
from fnx.flatten_util import ravel_pytree
from fnx.lax.control_flow import fori_loop, scan, while_loop
from fnx.lax.implicit import custom_linear_solve

__all__ = ["bicgstab", "cg", "gmres"]

LinearOperator: TypeAlias = Callable[[Any], Any] | ArrayLike | None  # A, as a function or a matrix


_docstr = DocTemplate(
    A="a linear function of a pytree like b, or a matrix.",
    b="a pytree of arrays.",
    x0="the initial x; by default zeros.",
    tol="tolerance of the residual norm, relative to b.",
    atol="absolute tolerance.",
    maxiter="the step limit; by default 10 times b's size.",
    M="the preconditioner: approximates A's inverse.",
    returns="(x, None), with implicit derivatives.",
    raises=["ArgumentError: A is neither a function nor a matrix.",
            "ShapeError: x0 is not like b."])


@_docstr()
def cg(A: LinearOperator, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0,
       maxiter: int | None = None, M: LinearOperator = None) -> tuple[Any, None]:
    """Solve A(x) = b for a symmetric, positive definite A by conjugate gradients.

    Source: Hestenes and Stiefel, Methods of Conjugate Gradients for Solving Linear Systems, 1952.

    >>> print(cg(jnp.asarray([[2.0, 1.0], [1.0, 3.0]]), jnp.asarray([3.0, 4.0]))[0].round(3))
    [1. 1.]
    """
    return _solve_with(_cg, A, b, x0, tol, atol, maxiter, M, symmetric=True)


@_docstr()
def bicgstab(A: LinearOperator, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0,
             maxiter: int | None = None, M: LinearOperator = None) -> tuple[Any, None]:
    """Solve A(x) = b for any invertible A by stabilized biconjugate gradients.

    Source: van der Vorst, Bi-CGSTAB, SIAM J. Sci. Stat. Comput. 13 (1992).

    >>> print(bicgstab(jnp.asarray([[2.0, 1.0], [0.0, 4.0]]), jnp.asarray([3.0, 4.0]))[0].round(3))
    [1. 1.]
    """
    return _solve_with(_bicgstab, A, b, x0, tol, atol, maxiter, M, symmetric=False)


@_docstr(restart="the size of the Krylov space before a restart.",
         maxiter="the restart limit; by default 10 times b's size.",
         solve_method="ignored: Givens rotations are used.")
def gmres(A: LinearOperator, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0,
          restart: int = 20, maxiter: int | None = None, M: LinearOperator = None,
          solve_method: Literal["batched", "incremental"] = "batched") -> tuple[Any, None]:
    """Solve A(x) = b for any invertible A by generalized minimal residuals.

    Source: Saad and Schultz, GMRES, SIAM J. Sci. Stat. Comput. 7 (1986).

    >>> print(gmres(jnp.asarray([[2.0, 1.0], [0.0, 4.0]]), jnp.asarray([3.0, 4.0]))[0].round(3))
    [1. 1.]
    """
    arguments.check_choice("solve_method", solve_method, ("batched", "incremental"))
    directions = arguments.check_int("restart", restart)
    if directions < 1:
        raise ArgumentError(f"expected restart >= 1, got {restart}")
    iterate = partial(_gmres, restart=directions)
    return _solve_with(iterate, A, b, x0, tol, atol, maxiter, M, symmetric=False)


def _solve_with(iterate: Callable[..., Any], A: LinearOperator, b: Any, x0: Any, tol: float,
                atol: float, maxiter: int | None, M: LinearOperator,
                symmetric: bool) -> tuple[Any, None]:
    matvec = _as_function("A", A)
    b = tree.map(jnp.asarray, b)
    start = tree.map(jnp.zeros_like, b) if x0 is None else tree.map(jnp.asarray, x0)
    if [x.shape for x in tree.leaves(start)] != [x.shape for x in tree.leaves(b)] \
            or tree.structure(start) != tree.structure(b):
        raise ShapeError("expected x0 of the shapes of b, got other shapes",
                         hint="leave it out to start from zeros")
    steps = 10 * sum(x.size for x in tree.leaves(b)) if maxiter is None else maxiter
    inverse = (lambda x: x) if M is None else _as_function("M", M)

    def solve(matvec: Callable[[Any], Any], b: Any, start: Any) -> Any:
        bound = jnp.maximum(tol ** 2 * _square(b), atol ** 2)  # of this b: tangents are small
        return iterate(matvec, b, start, inverse=inverse, bound=bound, steps=steps)

    def forward(matvec: Callable[[Any], Any], b: Any) -> Any:
        return solve(matvec, b, start)

    def backward(matvec: Callable[[Any], Any], b: Any) -> Any:
        return solve(matvec, b, tree.map(jnp.zeros_like, b))

    real = not any(jnp.iscomplexobj(x) for x in tree.leaves(b))  # else A.T is conj(A)
    return custom_linear_solve(matvec, b, forward, backward, symmetric and real), None


def _as_function(name: str, A: LinearOperator) -> Callable[[Any], Any]:
    if callable(A):
        return A
    if A is None or getattr(A, "ndim", 0) != 2:
        raise ArgumentError(f"expected {name} as a function or a matrix, got {type(A).__name__}",
                            hint="a function must map arrays shaped like b to the same shapes")
    matrix = jnp.asarray(A)
    return lambda x: matrix @ x


def _dot(x: Any, y: Any) -> Array:
    pairs = zip(tree.leaves(x), tree.leaves(y))
    return sum((jnp.vdot(a, b) for a, b in pairs), jnp.zeros(()))


def _square(x: Any) -> Array:
    """Return the square of a norm."""
    return _dot(x, x).real


def _axpy(x: Any, scale: Array, y: Any) -> Any:
    """Return x + scale * y for pytrees."""
    return tree.map(lambda a, b: a + scale.astype(b.dtype) * b, x, y)


def _cg(matvec: Callable[[Any], Any], b: Any, x: Any, *,
        inverse: Callable[[Any], Any], bound: Array, steps: int) -> Any:
    def unsolved(state: Any) -> Any:
        _, r, _, _, k = state
        return (_square(r) > bound) & (k < steps)

    def step(state: Any) -> Any:
        x, r, p, gamma, k = state
        q = matvec(p)
        alpha = gamma / _dot(p, q)
        x, r = _axpy(x, alpha, p), _axpy(r, -alpha, q)
        z = inverse(r)
        new_gamma = _dot(r, z)
        return x, r, _axpy(z, new_gamma / gamma, p), new_gamma, k + 1

    r = _axpy(b, jnp.asarray(-1.0), matvec(x))
    z = inverse(r)
    return while_loop(unsolved, step, (x, r, z, _dot(r, z), 0))[0]


def _bicgstab(matvec: Callable[[Any], Any], b: Any, x: Any, *,
              inverse: Callable[[Any], Any], bound: Array, steps: int) -> Any:
    def unsolved(state: Any) -> Any:
        _, r, _, _, rho, k = state
        return (_square(r) > bound) & (rho != 0) & (k < steps)

    def step(state: Any) -> Any:
        x, r, shadow, p, rho, k = state
        p_hat = inverse(p)
        v = matvec(p_hat)
        alpha = rho / _dot(shadow, v)
        s = _axpy(r, -alpha, v)
        s_hat = inverse(s)
        t = matvec(s_hat)
        square = _square(t)
        omega = jnp.where(square > 0, _dot(t, s) / jnp.where(square > 0, square, 1), 0)
        x = _axpy(_axpy(x, alpha, p_hat), omega, s_hat)
        r = _axpy(s, -omega, t)
        new_rho = _dot(shadow, r)
        beta = jnp.where(omega != 0, new_rho / rho * (alpha / jnp.where(omega != 0, omega, 1)), 0)
        return x, r, shadow, _axpy(r, beta, _axpy(p, -omega, v)), new_rho, k + 1

    r = _axpy(b, jnp.asarray(-1.0), matvec(x))
    return while_loop(unsolved, step, (x, r, r, r, _dot(r, r), 0))[0]


def _gmres(matvec: Callable[[Any], Any], b: Any, x: Any, *, restart: int,
           inverse: Callable[[Any], Any], bound: Array, steps: int) -> Any:
    flat, unravel = ravel_pytree(b)
    m = min(restart, flat.size)

    def apply(v: Array) -> Array:
        return ravel_pytree(inverse(matvec(unravel(v))))[0]

    def unsolved(state: Any) -> Any:
        _, r, k = state
        return (_square(r) > bound) & (k < steps)

    def step(state: Any) -> Any:
        x, r, k = state
        x = x + _gmres_cycle(apply, ravel_pytree(inverse(unravel(r)))[0], m)
        return x, flat - ravel_pytree(matvec(unravel(x)))[0], k + 1

    first = ravel_pytree(x)[0]
    residual = flat - ravel_pytree(matvec(x))[0]
    return unravel(while_loop(unsolved, step, (first, residual, 0))[0])


def _gmres_cycle(apply: Callable[[Array], Array], r: Array, m: int) -> Array:
    """Return the d in the span of r, A r, ..., A**(m-1) r that minimizes the norm of r - A d.

    Q is an orthonormal basis of the span (Arnoldi). Givens rotations of adjacent rows make A in
    this basis triangular (R); they also apply to g, which is r in this basis.
    """
    def norm(v: Array) -> Array:
        return jnp.sqrt(jnp.vdot(v, v).real)

    def column(state: Any, k: Any) -> tuple[Any, None]:
        Q, R, rotations, g = state
        q, h = apply(Q[k]), jnp.zeros_like(g)
        old_norm = norm(q)
        for _ in range(2):  # orthogonalize twice against rounding errors
            coeffs = jnp.conj(Q) @ q
            q, h = q - coeffs @ Q, h + coeffs
        size = norm(q)
        is_independent = size > 10 * jnp.finfo(q.dtype).eps * old_norm
        Q = Q.at[k + 1].set(jnp.where(is_independent, q / jnp.where(is_independent, size, 1), 0))
        h = fori_loop(0, m, lambda i, h: _rotate(h, i, rotations[i]),
                      h.at[k + 1].set(jnp.where(is_independent, size, 0)))
        radius = jnp.hypot(jnp.abs(h[k]), jnp.abs(h[k + 1]))
        rotation = jnp.where(radius > 0,
                             jnp.stack([h[k], h[k + 1]]) / jnp.where(radius > 0, radius, 1),
                             jnp.stack([jnp.ones_like(radius), jnp.zeros_like(radius)]))
        return (Q, R.at[:, k].set(_rotate(h, k, rotation)[:m]), rotations.at[k].set(rotation),
                _rotate(g, k, rotation)), None

    def row(y: Array, i: Any) -> tuple[Array, None]:
        is_nonzero = R[i, i] != 0
        return y.at[i].set(jnp.where(
            is_nonzero, (g[i] - R[i] @ y) / jnp.where(is_nonzero, R[i, i], 1), 0)), None

    length = norm(r)
    Q = jnp.zeros((m + 1, r.size), r.dtype).at[0].set(r / jnp.where(length > 0, length, 1))
    g = jnp.zeros(m + 1, r.dtype).at[0].set(length)
    rotations = jnp.zeros((m, 2), r.dtype).at[:, 0].set(1)
    (Q, R, _, g), _ = scan(column, (Q, jnp.zeros((m, m), r.dtype), rotations, g), jnp.arange(m))
    return scan(row, jnp.zeros(m, r.dtype), jnp.arange(m), reverse=True)[0] @ Q[:m]


def _rotate(v: Array, i: Any, rotation: Array) -> Array:
    """Apply a Givens rotation (c, s) to elements i and i + 1; its own makes v[i + 1] zero."""
    a, b, (c, s) = v[i], v[i + 1], rotation
    return v.at[i].set(jnp.conj(c) * a + jnp.conj(s) * b).at[i + 1].set(c * b - s * a)


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
