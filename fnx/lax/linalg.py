"""``fnx.lax.linalg``: the routines of linear algebra of ``jax.lax``, on batches of matrices."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.ir.uop import set_composite
from fnx.core.support.errors import ArgumentError, NotBuiltError, ShapeError, lazy_module
from fnx.lax.control_flow import while_loop
from fnx.numpy.decompositions import (
    adjoint,
    apply_routine,
    check_matrices,
    eigen_decomposition,
    singular_values,
    symmetrize,
    transpose,
)

__all__ = [
    "EigImplementation", "EighImplementation", "SvdAlgorithm", "cholesky", "cholesky_update",
    "eig", "eigh", "hessenberg", "householder_product", "lu", "lu_pivots_to_permutation", "ormqr",
    "qdwh", "qr", "schur", "svd", "symmetric_product", "triangular_solve", "tridiagonal",
    "tridiagonal_solve",
]


_QdwhState = tuple[Array, Array, Array, Array]


class EigImplementation(enum.Enum):
    """Implementations of ``eig`` in JAX; here all of them mean LAPACK's.

    >>> EigImplementation.LAPACK.value
    'lapack'
    """

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class EighImplementation(enum.Enum):
    """Implementations of ``eigh`` in JAX; here all of them mean LAPACK's.

    >>> EighImplementation.QR.value
    'qr'
    """

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class SvdAlgorithm(enum.Enum):
    """Algorithms of ``svd`` in JAX; here all of them mean LAPACK's gesdd.

    >>> SvdAlgorithm.DEFAULT.value
    'default'
    """

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


_docstr = DocTemplate(
    x="an Array of matrices in the last two axes, of a float dtype.",
    a="an Array of matrices in the last two axes, of a float dtype.",
    b="an Array of the same batch axes and dtype.",
    lower="whether the lower triangle is read.",
    symmetrize_input="whether to use (x + x.T) / 2 instead of x.",
    taus="the factors of the reflectors.",
    use_magma="accepted for JAX compatibility.",
    implementation="accepted for JAX compatibility.", algorithm="accepted for JAX compatibility.",
    subset_by_index="(start, stop) of the values to return; None: all.",
    returns="An Array.", imports="fnx.lax as lax, fnx.numpy as jnp",
    raises=("ShapeError: the shapes do not match.", "DTypeError: the dtype is not a float dtype."))


def _matrices(name: str, x: ArrayLike, square: bool = False) -> Array:
    return check_matrices(name, asarray(x), square)


@_docstr("The lower triangular factors; NaN where a matrix is not positive definite.")
def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    """Return the Cholesky factors of symmetric positive definite matrices.

    >>> print(lax.linalg.cholesky(jnp.asarray([[4.0, 2.0], [2.0, 5.0]])))
    [[2. 0.]
     [1. 2.]]
    """
    matrices = _matrices("cholesky", x, square=True)
    matrices = symmetrize(matrices) if symmetrize_input else matrices
    factors, = apply_routine("cholesky", matrices)
    set_composite(factors._node, "cholesky", cholesky_as_is, [matrices._node])
    return factors


def cholesky_as_is(x: Any) -> Array:
    """Factor matrices that are symmetric: the primitive."""
    return cholesky(x, symmetrize_input=False)


@_docstr("The upper triangular factor of R.T R + w w.T.",
         r_matrix="an upper triangular factor R, n x n.", w_vector="a vector of length n.")
def cholesky_update(r_matrix: ArrayLike, w_vector: ArrayLike) -> Array:
    """Return the Cholesky factor after a change of rank one: that of the rows of R and w.

    >>> print(lax.linalg.cholesky_update(3.0 * jnp.eye(1), jnp.asarray([4.0])))
    [[5.]]
    """
    r, w = _matrices("cholesky_update", r_matrix, square=True), asarray(w_vector)
    if w.shape != r.shape[:-1]:
        raise ShapeError("cholesky_update: expected a vector of as many elements as R has rows, "
                         f"got shapes {r.shape} and {w.shape}")
    rows = jnp.concatenate((r, w[..., None, :].astype(r.dtype)), -2)
    factor = apply_routine("qr", rows)[1]
    negative = jnp.diagonal(factor, 0, -2, -1) < 0
    return jnp.where(negative[..., None], -factor, factor)


@_docstr("[eigenvalues, left eigenvectors, right eigenvectors], without those not asked for.",
         compute_left_eigenvectors="whether to return the left eigenvectors.",
         compute_right_eigenvectors="whether to return the right eigenvectors.",
         enable_eigvec_derivs="accepted for JAX compatibility: vectors always have derivatives.")
def eig(x: ArrayLike, *, compute_left_eigenvectors: bool = True,
        compute_right_eigenvectors: bool = True, enable_eigvec_derivs: bool = False,
        implementation: EigImplementation | None = None, use_magma: bool | None = None
        ) -> list[Array]:
    """Return eigenvalues and eigenvectors of square matrices, complex.

    >>> w, = lax.linalg.eig(jnp.asarray([[0.0, -1.0], [1.0, 0.0]]),
    ...                     compute_left_eigenvectors=False, compute_right_eigenvectors=False)
    >>> print(w)
    [0.+1.j 0.-1.j]
    """
    arguments.check_optional("implementation", implementation, EigImplementation,
                             "an EigImplementation")
    arguments.check_optional_bool("use_magma", use_magma)
    a = _matrices("eig", x, square=True)
    if not compute_left_eigenvectors and not compute_right_eigenvectors:
        return [*apply_routine("eigvals", a)]
    parts = apply_routine("eig", a, options=("left",) * compute_left_eigenvectors)
    return [*(parts if compute_right_eigenvectors else parts[:-1])]


@_docstr("The eigenvectors, in the columns of matrices, and the eigenvalues, ascending.",
         sort_eigenvalues="accepted for JAX compatibility: they are sorted.")
def eigh(x: ArrayLike, *, lower: bool = True, symmetrize_input: bool = True,
         sort_eigenvalues: bool = True, subset_by_index: tuple[int, int] | None = None,
         implementation: EighImplementation | None = None) -> tuple[Array, Array]:
    """Return eigenvectors and eigenvalues of symmetric matrices.

    >>> v, w = lax.linalg.eigh(jnp.asarray([[2.0, 0.0], [0.0, 1.0]]))
    >>> print(w)
    [1. 2.]
    """
    arguments.check_optional("implementation", implementation, EighImplementation,
                             "an EighImplementation")
    matrices = _matrices("eigh", x, square=True)
    w, v = eigen_decomposition(matrices, lower, symmetrize_input, True)
    if subset_by_index is None:
        return v, w
    start, stop = subset_by_index
    if not 0 <= start < stop <= w.shape[-1]:
        raise ArgumentError("expected subset_by_index (start, stop) with 0 <= start < stop <= "
                            f"{w.shape[-1]}, got {subset_by_index}")
    return v[..., start:stop], w[..., start:stop]


@_docstr("A matrix with the Hessenberg form in and above the first subdiagonal and reflectors "
         "below it, and their factors.")
def hessenberg(a: ArrayLike) -> tuple[Array, Array]:
    """Reduce square matrices to Hessenberg form: LAPACK's gehrd.

    >>> h, taus = lax.linalg.hessenberg(jnp.ones((3, 3)))
    >>> h.shape, taus.shape
    ((3, 3), (2,))
    """
    h, taus = apply_routine("hessenberg", _matrices("hessenberg", a, square=True))
    return h, taus


@_docstr("An Array of the shape of a: its first columns.",
         a="reflectors below the diagonals of m x n matrices, m >= n.")
def householder_product(a: ArrayLike, taus: ArrayLike) -> Array:
    """Return products of Householder reflectors: LAPACK's orgqr.

    >>> print(lax.linalg.householder_product(jnp.zeros((2, 1)), jnp.asarray([2.0])) + 0.0)
    [[-1.]
     [ 0.]]
    """
    x, factors = _matrices("householder_product", a), asarray(taus)
    m, n = x.shape[-2:]
    if m < n or factors.ndim != x.ndim - 1 or factors.shape[-1] > n:
        raise ShapeError("householder_product: expected m x n matrices with m >= n and at most n "
                         f"factors, got shapes {x.shape} and {factors.shape}")
    return apply_routine("householder_product", x, factors)[0]


@_docstr("Both factors in one matrix, the pivots, and the permutation of the rows, from 0.")
def lu(x: ArrayLike) -> tuple[Array, Array, Array]:
    """Return the LU factorization with partial pivoting: LAPACK's getrf.

    >>> factors, pivots, order = lax.linalg.lu(jnp.asarray([[0.0, 1.0], [2.0, 3.0]]))
    >>> print(factors, order)
    [[2. 3.]
     [0. 1.]] [1 0]
    """
    factors, pivots, order = apply_routine("lu", _matrices("lu", x))
    return factors, pivots, order


@_docstr("An Array of int32 of the shape (..., permutation_size).",
         pivots="the row that each row was exchanged with, in order.",
         permutation_size="the number of rows.",
         raises=("ShapeError: there are more pivots than rows.",))
def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Array:
    """Return the permutation of rows that pivots stand for.

    >>> print(lax.linalg.lu_pivots_to_permutation(jnp.asarray([2, 2, 2]), 3))
    [2 0 1]
    """
    swaps = asarray(pivots)
    k = swaps.shape[-1]
    if k > permutation_size:
        raise ShapeError(f"expected at most {permutation_size} pivots, got {k}")
    numbers = jnp.arange(permutation_size, dtype=jnp.int32)
    order = jnp.broadcast_to(numbers, (*swaps.shape[:-1], permutation_size))
    for i in range(k if k <= 16 else 0):
        order = _swap(order, numbers, i, swaps[..., i])
    if k <= 16:
        return order

    def step(state: tuple[Array, Array]) -> tuple[Array, Array]:
        i, rows = state
        return i + 1, _swap(rows, numbers, i, jnp.take(swaps, i, -1))
    start = (jnp.zeros((), jnp.int32), order)
    result: tuple[Array, Array] = while_loop(lambda state: state[0] < k, step, start)
    return result[1]


def _swap(order: Array, numbers: Array, i: Any, pivots: Array) -> Array:
    """Exchange element i with the one at the pivot."""
    j = pivots[..., None]
    a, b = jnp.take(order, i, -1)[..., None], jnp.take_along_axis(order, j, -1)
    return jnp.where(numbers == i, b, jnp.where(numbers == j, a, order))


@_docstr("An Array of the shape of c.", a="reflectors below the diagonals of matrices.",
         c="matrices to multiply.", left="whether Q is on the left.",
         transpose="whether to multiply by the transpose of Q.")
def ormqr(a: ArrayLike, taus: ArrayLike, c: ArrayLike, *, left: bool = True,
          transpose: bool = False) -> Array:
    """Multiply matrices by the square orthogonal factor that reflectors stand for.

    >>> q = lax.linalg.ormqr(jnp.zeros((2, 1)), jnp.asarray([2.0]), jnp.eye(2))
    >>> print(q)
    [[-1.  0.]
     [ 0.  1.]]
    """
    x, factors, other = _matrices("ormqr", a), asarray(taus), _matrices("ormqr", c)
    m, n = x.shape[-2:]
    k = factors.shape[-1]
    if other.shape[-2 if left else -1] != m:
        raise ShapeError(f"ormqr: expected matrices with {m} {'rows' if left else 'columns'}, got "
                         f"shape {other.shape}")
    widths = [*[(0, 0)] * (x.ndim - 1), (0, max(0, m - n))]
    square = jnp.pad(x, widths)[..., :m]
    q, = apply_routine("householder_product", square, factors[..., :min(k, m)])
    q = adjoint(q) if transpose else q
    return q @ other if left else other @ q


@_docstr("(unitary factor, symmetric factor, number of iterations, whether it converged).",
         x="an Array of m x n matrices, m >= n.", is_hermitian="accepted for JAX compatibility.",
         max_iterations="the most iterations; by default 10.",
         eps="the change at which it stops; by default that of the dtype.",
         dynamic_shape="must be None.")
def qdwh(x: ArrayLike, *, is_hermitian: bool = False, max_iterations: int | None = None,
         eps: float | None = None, dynamic_shape: tuple[int, int] | None = None
         ) -> tuple[Array, Array, Array, Array]:
    """Return the polar decomposition ``x == u @ h`` by the dynamically weighted Halley iteration.

    Source: Nakatsukasa, Bai, Gygi, Optimizing Halley's iteration for computing the matrix polar
    decomposition (2010).

    >>> u, h, _, _ = lax.linalg.qdwh(jnp.asarray([[0.0, 2.0], [1.0, 0.0]]))
    >>> print(abs(jnp.round(h, 5)))
    [[1. 0.]
     [0. 2.]]
    """
    a = _matrices("qdwh", x)
    (m, n), dtype = a.shape[-2:], a.dtype
    if m < n:
        raise ShapeError(f"qdwh: expected matrices with m >= n, got shape {a.shape}",
                         hint="transpose the matrices")
    if dynamic_shape is not None:
        raise NotBuiltError("qdwh: expected dynamic_shape=None", hint="slice the matrix")
    limit = 10 if max_iterations is None else max_iterations
    tiny = float(jnp.finfo(dtype).eps)
    tolerance = (5.0 * tiny if eps is None else eps)**(1 / 3)
    size = jnp.sqrt(jnp.linalg.norm(a, 1, (-2, -1)) * jnp.linalg.norm(a, jnp.inf, (-2, -1)))
    u = a / jnp.where(size == 0, 1, size)[..., None, None]
    eye = jnp.broadcast_to(jnp.eye(n, dtype=dtype), (*a.shape[:-2], n, n))

    def step(state: _QdwhState) -> _QdwhState:
        i, u, low, _ = state
        d = jnp.cbrt(4.0 * (1.0 - low**2) / low**4)
        root = jnp.sqrt(1.0 + d)
        p = root + 0.5 * jnp.sqrt(8.0 - 4.0 * d + 8.0 * (2.0 - low**2) / (low**2 * root))
        q = (p - 1.0)**2 / 4.0
        c = p + q - 1.0
        stacked = jnp.concatenate((jnp.sqrt(c) * u, eye), -2)
        basis, _ = apply_routine("qr", stacked)
        product = basis[..., :m, :] @ adjoint(basis[..., m:, :])
        new = (q / c) * u + ((p - q / c) / jnp.sqrt(c)) * product
        change = jnp.max(jnp.linalg.norm(new - u, axis=(-2, -1)))
        return i + 1, new, jnp.minimum(low * (p + q * low**2) / (1.0 + c * low**2), 1.0), change

    def goes_on(state: _QdwhState) -> Array:
        i, _, low, change = state
        is_far = (change > tolerance) | (abs(low - 1.0) > 5.0 * tiny)
        more: Array = (i < limit) & (is_far | (i == 0))
        return more
    part = a._dtype.real.np
    start = (jnp.zeros((), jnp.int32), u, jnp.asarray(tiny, part), jnp.asarray(jnp.inf, part))
    steps, u, _, change = while_loop(goes_on, step, start)
    return u, symmetrize(adjoint(u) @ a), steps, change <= tolerance


@_docstr("Q, R, and with pivoting the permutation of the columns.",
         pivoting="whether columns are exchanged, so that the diagonal of R decreases.",
         full_matrices="whether Q is square.")
def qr(x: ArrayLike, *, pivoting: bool = False, full_matrices: bool = True,
       use_magma: bool | None = None) -> tuple[Array, ...]:
    """Return the QR factorization of matrices.

    >>> q, r, order = lax.linalg.qr(jnp.asarray([[1.0, 3.0], [0.0, 4.0]]), pivoting=True)
    >>> print(order)
    [1 0]
    """
    arguments.check_optional_bool("use_magma", use_magma)
    options = ("full",) * full_matrices + ("pivoting",) * pivoting
    return apply_routine("qr", _matrices("qr", x), options=options)


@_docstr("The quasi-triangular forms, and the Schur vectors if asked for.",
         compute_schur_vectors="whether to return the vectors.",
         sort_eig_vals="must be False.", select_callable="must be None.",
         raises=("ShapeError: the matrices are not square.",
                 "NotBuiltError: an order is asked for."))
def schur(x: ArrayLike, *, compute_schur_vectors: bool = True, sort_eig_vals: bool = False,
          select_callable: Callable[..., Any] | None = None) -> Any:
    """Return the real Schur decomposition of square matrices: LAPACK's gees.

    >>> t, z = lax.linalg.schur(jnp.asarray([[1.0, 2.0], [0.0, 3.0]]))
    >>> print(t)
    [[1. 2.]
     [0. 3.]]
    """
    if sort_eig_vals or select_callable is not None:
        raise NotBuiltError("schur: expected no order of eigenvalues",
                            hint="leave out sort_eig_vals and select_callable")
    t, z = apply_routine("schur", _matrices("schur", x, square=True))
    return (t, z) if compute_schur_vectors else t


@_docstr("(u, s, vh), or s alone without ``compute_uv``.",
         full_matrices="whether u and vh are square.", compute_uv="whether to return u and vh.")
def svd(x: ArrayLike, *, full_matrices: bool = True, compute_uv: bool = True,
        subset_by_index: tuple[int, int] | None = None, algorithm: SvdAlgorithm | None = None
        ) -> Any:
    """Return the singular value decomposition of matrices.

    >>> print(lax.linalg.svd(jnp.asarray([[0.0, 2.0], [1.0, 0.0]]), compute_uv=False))
    [2. 1.]
    """
    arguments.check_optional("algorithm", algorithm, SvdAlgorithm, "an SvdAlgorithm")
    return singular_values(_matrices("svd", x), full_matrices, compute_uv, subset_by_index)


@_docstr("An Array of the shape of c.", a_matrix="n x k matrices a.",
         c_matrix="symmetric n x n matrices c.", alpha="a number.", beta="a number.",
         symmetrize_output="whether the upper triangle is copied from the lower one.")
def symmetric_product(a_matrix: ArrayLike, c_matrix: ArrayLike, *, alpha: float = 1.0,
                      beta: float = 0.0, symmetrize_output: bool = False) -> Array:
    """Return ``alpha * a @ a.T + beta * c``.

    >>> print(lax.linalg.symmetric_product(jnp.ones((2, 1)), jnp.eye(2), beta=2.0))
    [[3. 1.]
     [1. 3.]]
    """
    a, c = _matrices("symmetric_product", a_matrix), _matrices("symmetric_product", c_matrix, True)
    if c.shape != (*a.shape[:-1], a.shape[-2]):
        raise ShapeError("symmetric_product: expected matrices n x k and n x n, got shapes "
                         f"{a.shape} and {c.shape}")
    out = alpha * (a @ transpose(a)) + beta * c
    return jnp.tril(out) + transpose(jnp.tril(out, -1)) if symmetrize_output else out


@_docstr("An Array of the shape of b.", a="triangular matrices; the other triangle is not read.",
         b="right-hand sides: matrices, or vectors with the batch axes of a.",
         left_side="whether a is on the left.",
         lower="whether a is lower triangular.", transpose_a="whether a is transposed.",
         conjugate_a="whether a is conjugated.",
         unit_diagonal="whether the diagonal of a is taken as ones.")
def triangular_solve(a: ArrayLike, b: ArrayLike, *, left_side: bool = False, lower: bool = False,
                     transpose_a: bool = False, conjugate_a: bool = False,
                     unit_diagonal: bool = False) -> Array:
    """Solve ``x @ a == b``, or ``a @ x == b`` with ``left_side``, for triangular a.

    >>> a = jnp.asarray([[1.0, 0.0], [2.0, 4.0]])
    >>> print(lax.linalg.triangular_solve(a, jnp.asarray([1.0, 6.0]), left_side=True, lower=True))
    [1. 1.]
    """
    matrices, other = _matrices("triangular_solve", a, square=True), asarray(b)
    is_vector = other.ndim == matrices.ndim - 1
    if is_vector:
        other = other[..., None] if left_side else other[..., None, :]
    matrices = jnp.conj(matrices) if conjugate_a else matrices
    flags = {"lower": lower, "right": not left_side, "transpose": transpose_a,
             "unit": unit_diagonal}
    x, = apply_routine("triangular_solve", matrices, other,
                       options=[name for name, on in flags.items() if on])
    set_composite(x._node, "triangular_solve", triangular_solve, [matrices._node, other._node],
                  left_side=left_side, lower=lower, transpose_a=transpose_a, conjugate_a=False,
                  unit_diagonal=unit_diagonal)
    return x.reshape(asarray(b).shape) if is_vector else x


@_docstr("(the matrix with its reflectors, diagonals, other diagonals, factors of the reflectors).")
def tridiagonal(a: ArrayLike, *, lower: bool = True) -> tuple[Array, Array, Array, Array]:
    """Reduce symmetric matrices to tridiagonal form: LAPACK's sytrd.

    >>> _, d, e, _ = lax.linalg.tridiagonal(jnp.eye(3))
    >>> print(d, e)
    [1. 1. 1.] [0. 0.]
    """
    x = _matrices("tridiagonal", a, square=True)
    reflectors, d, e, taus = apply_routine("tridiagonal", x, options=("lower",) * lower)
    return reflectors, d, e, taus


@_docstr("An Array of the shape of b.",
         dl="the diagonals below the main ones; element 0 is not read.", d="the main diagonals.",
         du="the diagonals above; the last element is not read.",
         b="right-hand sides of the shape (..., n, columns).",
         perturb_singular="whether pivots that are 0, or nearly, become eps times the largest "
                          "element of the factor U, so that solutions are finite.",
         raises=("ShapeError: the shapes do not match.",))
def tridiagonal_solve(dl: ArrayLike, d: ArrayLike, du: ArrayLike, b: ArrayLike, *,
                      perturb_singular: bool = False) -> Array:
    """Solve tridiagonal linear systems: LAPACK's gtsv. Singular ones give NaN, if not perturbed.

    >>> d = jnp.asarray([2.0, 2.0])
    >>> print(lax.linalg.tridiagonal_solve(0 * d, d, 0 * d, jnp.ones((2, 1))))
    [[0.5]
     [0.5]]
    """
    arguments.check_bool("perturb_singular", perturb_singular)
    return apply_routine("tridiagonal_solve", *map(asarray, (dl, d, du, b)),
                         options=("perturb",) * perturb_singular)[0]


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
