"""Linear systems, inverses and determinants of ``fnx.numpy.linalg``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import fnx.numpy.base as base
from fnx.core.array import arguments
from fnx.core.array import axes as axis_lists
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import promote_arrays
from fnx.core.ir import build
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.numpy.decompositions import (
    adjoint,
    apply_routine,
    as_matrices,
    check_matrices,
    singular_values,
    svd,
    symmetrize,
    transpose,
)
from fnx.numpy.math_functions import real
from fnx.numpy.norms import norm
from fnx.numpy.vector_math import cross
from fnx.transforms.custom.jvp import custom_jvp

__all__ = ["SlogdetResult", "cond", "det", "inv", "lstsq", "matrix_rank", "pinv", "slogdet",
           "solve", "tensorinv", "tensorsolve"]


class SlogdetResult(NamedTuple):
    """The result of ``slogdet``."""

    sign: Array
    logabsdet: Array


_docstr = DocTemplate(
    a="an Array or array-like of matrices in the last two axes; integers become the default float.",
    x="an Array or array-like of matrices in the last two axes; integers become the default float.",
    returns="An Array.",
    raises=("ShapeError: there are fewer than two axes, or the matrices are not square.",))


def broadcast_batches(name: str, *operands: tuple[Array, int]) -> list[Array]:
    """Broadcast the axes before the last ``rank`` ones of each (operand, rank)."""
    try:
        batch = axis_lists.broadcast_shapes(*[x.shape[:x.ndim - rank] for x, rank in operands])
    except ShapeError as e:
        raise ShapeError(f"{name}: {e.message}", hint=e.hint) from None
    return [base.broadcast_to(x, (*batch, *x.shape[x.ndim - rank:])) for x, rank in operands]


def _stop_gradient(x: Array) -> Array:
    return Array(build.stop_gradient(x._node))


def solve_matrices(a: Array, b: Array, transpose: bool = False) -> Array:
    """Solve a x = b for matrices with equal batch axes.

    The factors are constants for the derivative, which is that of the solution.
    """
    lu, _, order = apply_routine("lu", _stop_gradient(a))
    return apply_routine("lu_solve", a, lu, order, b,
                         options=("transpose",) if transpose else ())[0]


def broadcast_system(name: str, a: ArrayLike, b: ArrayLike) -> tuple[Array, Array, bool]:
    """Return square matrices, right-hand sides of equal batch axes, and whether these were vectors.

    A vector is one right-hand side for all matrices.
    """
    x, y = promote_arrays(name, asarray(a), asarray(b))
    check_matrices(name, x, square=True)
    is_vector = y.ndim == 1
    if not y.ndim or y.shape[-1 if is_vector else -2] != x.shape[-1]:
        raise ShapeError(f"{name}: expected right-hand sides of {x.shape[-1]} rows, got shapes "
                         f"{x.shape} and {y.shape}",
                         hint="b is a vector, or has the shape (..., n, columns)")
    matrices, columns = broadcast_batches(name, (x, 2), (y[:, None] if is_vector else y, 2))
    return matrices, columns, is_vector


@_docstr("An Array: x, of the shape of b, with the batch axes of both. Singular matrices give inf "
         "or NaN.", ("ShapeError: the matrices are not square, or the lengths do not match.",),
         b="a vector of length n, or right-hand sides of the shape (..., n, columns).")
def solve(a: ArrayLike, b: ArrayLike) -> Array:
    """Solve the linear systems ``a @ x == b``.

    Source: LAPACK's getrf, LU factorization with partial pivoting.

    >>> print(jnp.linalg.solve(jnp.asarray([[2.0, 0.0], [0.0, 4.0]]), jnp.asarray([2.0, 2.0])))
    [1.  0.5]
    """
    matrices, columns, is_vector = broadcast_system("solve", a, b)
    x = solve_matrices(matrices, columns)
    return x[..., 0] if is_vector else x


@_docstr("An Array of the shape of a. Singular matrices give inf or NaN.")
def inv(a: ArrayLike) -> Array:
    """Return the inverses of matrices.

    >>> print(jnp.linalg.inv(jnp.asarray([[2.0, 0.0], [0.0, 4.0]])))
    [[0.5  0.  ]
     [0.   0.25]]
    """
    x = as_matrices("inv", a, square=True)
    eye = base.broadcast_to(base.eye(x.shape[-1], dtype=x.dtype), x.shape)
    return solve_matrices(x, eye)


# ---- determinants -------------------------------------------------------------------------------


def _small_det(a: Array) -> Array:
    """Return the determinants of matrices of up to 2 rows."""
    n = a.shape[-1]
    e = [[a[..., i, j] for j in range(n)] for i in range(n)]
    if n == 0:
        return base.ones(a.shape[:-2], a.dtype)
    if n == 1:
        return e[0][0]
    return e[0][0] * e[1][1] - e[0][1] * e[1][0]


def _diagonal(x: Array) -> Array:
    return base.diagonal(x, 0, -2, -1)


def _parity(pivots: Array, dtype: Any) -> Array:
    """Return the sign of the permutation that swaps by pivots."""
    moved = (pivots != base.arange(pivots.shape[-1], dtype=pivots.dtype)).sum(-1) % 2
    return (1 - 2 * moved).astype(dtype)


def _det_3(a: Array) -> Array:
    """Return the determinants of matrices of 3 rows: a pivot times what elimination leaves."""
    top, *others = [[a[..., i, j] for j in range(3)] for i in range(3)]
    for i, row in enumerate(others):
        is_larger = abs(row[0]) > abs(top[0])
        pairs = [(base.where(is_larger, y, x), base.where(is_larger, -x, y))
                 for x, y in zip(top, row)]
        top, others[i] = (list(column) for column in zip(*pairs))
    pivot = base.where(top[0] == 0, 1, top[0])
    (p, q), (r, s) = ([x - row[0] / pivot * y for x, y in zip(row[1:], top[1:])] for row in others)
    return top[0] * (p * s - q * r)


@custom_jvp[[Array], Array]
def _lu_det(a: Array) -> Array:
    if a.shape[-1] == 3:
        return _det_3(a)
    lu, pivots, _ = apply_routine("lu", a)
    return _parity(pivots, a.dtype) * _diagonal(lu).prod(-1)


@_lu_det.defjvp
def _lu_det_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    (a,), (t,) = primals, tangents
    cofactors = _cofactors(a) if a.shape[-1] == 3 else base.swapaxes(adjugate(a), -1, -2)
    return _lu_det(a), (cofactors * t).sum((-1, -2))


def _cofactors(a: Array) -> Array:
    """Return the cofactors of matrices of 3 rows, which are products of two of these."""
    rows = [a[..., i, :] for i in range(3)]
    return base.stack([cross(rows[i - 2], rows[i - 1]) for i in range(3)], -2)


@custom_jvp[[Array], Array]
def adjugate(a: Array) -> Array:
    """Return the transposed cofactors, also of singular matrices: those of u s v'."""
    u, s, vh = singular_values(a, False, True)
    ones = base.ones((*s.shape[:-1], 1), s.dtype)
    before = base.cumprod(base.concatenate((ones, s[..., :-1]), -1), -1)
    after = base.flip(base.cumprod(base.flip(base.concatenate((s[..., 1:], ones), -1), -1), -1),
                      -1)
    sign = base.sign(_lu_det(u) * _lu_det(vh))
    scale = before * after * sign[..., None]
    return adjoint(vh) @ (scale[..., None] * adjoint(u))


@adjugate.defjvp
def _adjugate_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """Of invertible matrices; NaN for others."""
    (a,), (t,) = primals, tangents
    value = adjugate(a)
    rate = _diagonal(value @ t).sum(-1)[..., None, None]
    return value, (rate * value - value @ t @ value) / _lu_det(a)[..., None, None]


@_docstr("An Array without the last two axes.")
def det(a: ArrayLike) -> Array:
    """Return the determinants of matrices. Derivatives of singular ones are right, too.

    >>> print(jnp.linalg.det(jnp.asarray([[1.0, 2.0], [3.0, 4.0]])))
    -2.0
    """
    x = as_matrices("det", a, square=True)
    return _small_det(x) if x.shape[-1] <= 2 else _lu_det(x)


@custom_jvp[[Array], tuple[Array, Array]]
def _log_det(a: Array) -> tuple[Array, Array]:
    lu, pivots, _ = apply_routine("lu", a)
    return _sign_and_log(_diagonal(lu), _parity(pivots, a.dtype))


def _sign_and_log(diagonal: Array, sign: Array) -> tuple[Array, Array]:
    """Return the sign and the logarithm of a product."""
    return sign * base.sign(diagonal).prod(-1), base.log(abs(diagonal)).sum(-1)


@custom_jvp[[Array], tuple[Array, Array]]
def _log_det_by_reflections(a: Array) -> tuple[Array, Array]:
    reflectors, taus = apply_routine("geqrf", a)
    reflections = (taus[..., :-1] != 0).sum(-1) % 2
    return _sign_and_log(_diagonal(reflectors), (1 - 2 * reflections).astype(a.dtype))


def _log_det_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Any, Any]:
    (a,), (t,) = primals, tangents
    sign, log = _log_det(a)
    rate = _diagonal(solve_matrices(a, t)).sum(-1)
    turn = sign * (rate - real(rate)) if a._dtype.is_complex else base.zeros_like(sign)
    return (sign, log), (turn, real(rate))


_log_det.defjvp(_log_det_jvp)
_log_det_by_reflections.defjvp(_log_det_jvp)


@_docstr("A SlogdetResult of sign and logarithm, without the last two axes; 0 and -inf of singular "
         "matrices.",
         ("ShapeError: there are fewer than two axes, or the matrices are not square.",
          "ArgumentError: there is no such method."),
         method='"lu" (the default) or "qr".')
def slogdet(a: ArrayLike, *, method: str | None = None) -> SlogdetResult:
    """Return the sign and the logarithm of the absolute value of determinants.

    >>> sign, logdet = jnp.linalg.slogdet(jnp.asarray([[0.0, 1.0], [1.0, 0.0]]))
    >>> print(sign, logdet)
    -1.0 0.0
    """
    x = as_matrices("slogdet", a, square=True)
    if method not in (None, "lu", "qr"):
        raise ArgumentError(f'expected method None, "lu" or "qr", got {method!r}')
    return SlogdetResult(*(_log_det_by_reflections(x) if method == "qr" else _log_det(x)))


# ---- pseudo-inverses and least squares ----------------------------------------------------------


def _epsilon(x: Array) -> float:
    return float(base.finfo(x.dtype).eps)


@_docstr("An Array of the shape of a with the last two axes exchanged.",
         ("ShapeError: there are fewer than two axes.",
          "ArgumentError: both of rtol and rcond are given."),
         rtol="singular values up to rtol times the largest count as zero; by default 10 max(m, n) "
              "eps.", hermitian="whether the matrices are symmetric.", rcond="the same as rtol.")
def pinv(a: ArrayLike, rtol: ArrayLike | None = None, hermitian: bool = False, *,
         rcond: ArrayLike | None = None) -> Array:
    """Return the pseudo-inverses of matrices, from singular values.

    Source of the derivative: Golub and Pereyra, The differentiation of pseudo-inverses (1973).

    >>> print(jnp.linalg.pinv(jnp.asarray([[2.0, 0.0], [0.0, 0.0]])))
    [[0.5 0. ]
     [0.  0. ]]
    """
    if rtol is not None and rcond is not None:
        raise ArgumentError("expected one of rtol and rcond, got both")
    x = as_matrices("pinv", a, square=hermitian)
    rtol = rcond if rtol is None else rtol
    if 0 in x.shape[-2:]:
        return transpose(x)
    tolerance = asarray(10.0 * max(x.shape[-2:]) * _epsilon(x) if rtol is None else rtol)
    tolerance = _stop_gradient(tolerance.astype(x._dtype.real.np))
    return pinv_of(symmetrize(x) if hermitian else x, tolerance, hermitian)


def _pinv(x: Array, tolerance: Array, hermitian: bool) -> Array:
    u, s, vh = svd(x, full_matrices=False, hermitian=hermitian)
    divisor = base.where(s > tolerance[..., None] * s[..., :1], s, math.inf)
    return adjoint(vh) @ (adjoint(u) / divisor[..., None])


pinv_of = custom_jvp[[Array, Array, bool], Array](_pinv, nondiff_argnums=(2,))


@pinv_of.defjvp
def _pinv_jvp(hermitian: bool, primals: tuple[Array, Array], tangents: tuple[Array, Array]
              ) -> tuple[Array, Array]:
    (a, tolerance), (t, _) = primals, tangents
    p = pinv_of(a, tolerance, hermitian)
    th, ph, m, n = adjoint(t), adjoint(p), *a.shape[-2:]
    if m >= n:
        left, right = (p @ ph) @ th, (th @ ph) @ p
        return p, -(p @ t) @ p + left - (left @ a) @ p + right - (p @ a) @ right
    left, right = p @ (ph @ th), th @ (ph @ p)
    return p, -p @ (t @ p) + left - left @ (a @ p) + right - p @ (a @ right)


@_docstr("An Array of integers without the last two axes.",
         ("ShapeError: hermitian matrices are not square.",
          "ArgumentError: both of rtol and tol are given."),
         M="an Array or array-like of matrices; of a vector the rank is 1 unless it is zero.",
         rtol="singular values up to this number count as zero; by default max(m, n) eps times the "
              "largest.",
         hermitian="whether the matrices are symmetric.", tol="the same as rtol.")
def matrix_rank(M: ArrayLike, rtol: ArrayLike | None = None, *, hermitian: bool = False,
                tol: ArrayLike | None = None) -> Array:
    """Return the numbers of singular values that are not zero.

    >>> print(jnp.linalg.matrix_rank(jnp.ones((3, 3))))
    1
    """
    if rtol is not None and tol is not None:
        raise ArgumentError("expected one of rtol and tol, got both")
    limit = tol if rtol is None else rtol
    if limit is not None:
        limit = asarray(limit)
    arguments.check_bool("hermitian", hermitian)
    x = asarray(M)
    if x.ndim < 2:
        return (x != 0).any().astype(int)
    x = as_matrices("matrix_rank", x, square=hermitian)
    s = svd(x, full_matrices=False, compute_uv=False, hermitian=hermitian)
    if limit is None:
        limit = s.max(-1) * max(x.shape[-2:]) * _epsilon(x) if s.shape[-1] else 0.0
    rank: Array = (s > asarray(limit)[..., None]).sum(-1)
    return rank


def _is_used(s: Array, cutoff: float) -> Array:
    """Return which singular values do not count as zero."""
    return (s > 0) & (s >= cutoff * s[0])


def _solve_least_squares(a: Array, b: Array, cutoff: float) -> Array:
    u, s, vh = singular_values(a, False, True)
    used = _is_used(s, cutoff)
    inverse = base.where(used, 1 / base.where(used, s, 1), 0)
    return adjoint(vh) @ (inverse[:, None] * (adjoint(u) @ b))


_least_squares = custom_jvp[[Array, Array, float], Array](_solve_least_squares,
                                                          nondiff_argnums=(2,))


@_least_squares.defjvp
def _least_squares_jvp(cutoff: float, primals: tuple[Array, Array], tangents: tuple[Array, Array]
                       ) -> tuple[Array, Array]:
    """As that of the pseudo-inverse, without gaps between singular values."""
    (a, b), (t, t_b) = primals, tangents
    x, p = _least_squares(a, b, cutoff), pinv_of(a, asarray(cutoff, a._dtype.real.np), False)
    rest, th = b - a @ x, adjoint(t)
    rate = p @ (t_b - t @ x) + p @ (adjoint(p) @ (th @ rest))
    adjoint_part = th @ (adjoint(p) @ x)
    return x, rate + adjoint_part - p @ (a @ adjoint_part)


@_docstr("(x, residuals, rank, singular values): x minimizes the 2-norm of b - a x.",
         ("ShapeError: a is not a matrix, or the rows do not match.",),
         b="a vector of length m, or a matrix of m rows.",
         rcond="singular values below rcond times the largest count as zero; by default eps max(m, "
               "n).",
         numpy_resid="whether the residuals are empty where NumPy's are, which depends on values.")
def lstsq(a: ArrayLike, b: ArrayLike, rcond: float | None = None, *, numpy_resid: bool = False
          ) -> tuple[Array, Array, Array, Array]:
    """Return the least-squares solutions of ``a @ x == b``, from singular values.

    >>> x, _, rank, _ = jnp.linalg.lstsq(jnp.asarray([[2.0], [0.0]]), jnp.asarray([1.0, 3.0]))
    >>> print(x, rank)
    [0.5] 1
    """
    x, y = promote_arrays("lstsq", asarray(a), asarray(b))
    if x.ndim != 2 or y.ndim not in (1, 2) or y.shape[0] != x.shape[0]:
        raise ShapeError("lstsq: expected a matrix and right-hand sides with as many rows, got "
                         f"shapes {x.shape} and {y.shape}")
    (m, n), columns = x.shape, y[:, None] if y.ndim == 1 else y
    if 0 in x.shape:
        s, rank = base.zeros((0,), x.dtype), base.zeros((), "int32")
        out = base.zeros((n, columns.shape[1]), x.dtype)
    else:
        cutoff = _epsilon(x) * max(m, n) if rcond is None else rcond if rcond >= 0 else _epsilon(x)
        _, s, _ = singular_values(x, False, True)
        rank = _is_used(s, cutoff).sum()
        out = _least_squares(x, columns, cutoff)
    if numpy_resid and (m <= n or bool(rank < n)):
        residuals = base.zeros((0,), x.dtype)
    else:
        residuals = (abs(columns - x @ out)**2).sum(0)
    return out[:, 0] if y.ndim == 1 else out, residuals, rank, s


@_docstr("An Array without the last two axes; inf of singular matrices.",
         ("ShapeError: there are fewer than two axes, no elements, or the matrices are not square "
          "for this norm.",),
         p="the norm, as for ``norm``; None: the 2-norm.")
def cond(x: ArrayLike, p: Any = None) -> Array:
    """Return the condition numbers of matrices.

    >>> print(jnp.linalg.cond(jnp.asarray([[4.0, 0.0], [0.0, 2.0]])))
    2.0
    """
    matrices = as_matrices("cond", x)
    if 0 in matrices.shape[-2:]:
        raise ShapeError(f"cond: expected matrices with elements, got shape {matrices.shape}")
    if p in (None, 2, -2):
        s = singular_values(matrices, False, False)
        largest, smallest = s[..., 0], s[..., -1]
        ratio = smallest / largest if p == -2 else largest / smallest
    else:
        check_matrices("cond", matrices, square=True)
        ratio = norm(matrices, p, (-2, -1)) * norm(inv(matrices), p, (-2, -1))
    is_number = ~base.isnan(matrices).any((-2, -1))
    return base.where(base.isnan(ratio) & is_number, math.inf, ratio)


@_docstr("An Array of the shape a.shape[ind:] + a.shape[:ind].",
         ("ArgumentError: ``ind`` is not positive.", "ShapeError: the sizes do not match."),
         a="an Array whose first ``ind`` axes have as many elements as the others.",
         ind="the number of first axes.")
def tensorinv(a: ArrayLike, ind: int = 2) -> Array:
    """Return the inverse for ``tensordot(ainv, a, ind)``.

    >>> jnp.linalg.tensorinv(jnp.eye(6).reshape(2, 3, 6), ind=2).shape
    (6, 2, 3)
    """
    x, = promote_arrays("tensorinv", asarray(a))
    if ind <= 0:
        raise ArgumentError(f"expected ind > 0, got {ind}")
    first, rest = x.shape[:ind], x.shape[ind:]
    if math.prod(first) != math.prod(rest):
        raise ShapeError(f"tensorinv: expected as many elements in the first {ind} axes as in the "
                         f"others, got shape {x.shape}")
    return inv(x.reshape(math.prod(first), math.prod(rest))).reshape(*rest, *first)


@_docstr("An Array x with ``tensordot(a, x, x.ndim) == b``.",
         ("ShapeError: the sizes do not match.",),
         a="an Array of the shape b.shape + x.shape.", b="an Array.",
         axes="axes of a to move to the end first; None: none.")
def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """Solve a linear system of tensors.

    >>> a = jnp.eye(6).reshape(2, 3, 6)
    >>> jnp.linalg.tensorsolve(a, jnp.ones((2, 3))).shape
    (6,)
    """
    x, y = promote_arrays("tensorsolve", asarray(a), asarray(b))
    if axes is not None:
        moved = [axis_lists.normalize_axis(i, x.ndim) for i in axes]
        x = base.transpose(x, [*[i for i in range(x.ndim) if i not in moved], *moved])
    shape = x.shape[y.ndim:]
    if x.shape[:y.ndim] != y.shape or math.prod(shape) != y.size:
        raise ShapeError("tensorsolve: expected the first axes of a to be those of b, and as many "
                         f"elements in the others, got shapes {x.shape} and {y.shape}")
    return solve(x.reshape(y.size, y.size), y.reshape(y.size)).reshape(shape)
