"""The meanings of linear algebra routines: LAPACK by SciPy, matrix by matrix."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.linalg import signature
from fnx.core.support.process import lazy_import

blas = lazy_import("scipy.linalg.blas")
lapack = lazy_import("scipy.linalg.lapack")
Options = tuple[str, ...]
Meaning = Callable[..., Sequence[NDArray]]


def apply_routine(arg: Any, xs: Sequence[NDArray]) -> list[NDArray]:
    """Return the results of a LINALG."""
    if arg.of_complex is not None:
        operands = [np.ascontiguousarray(x).view(t.np)[..., 0] if t.is_complex else x
                    for x, (_, t) in zip(xs, arg.of_complex.ins)]
        return [np.ascontiguousarray(x)[..., None].view(t.real.np) if t.is_complex else x
                for x, (_, t) in zip(apply_routine(arg.of_complex, operands),
                                     arg.of_complex.outs)]
    outs = [np.empty(shape, t.np) for shape, t in arg.outs]
    meaning = MEANINGS[arg.routine]
    axes = signature(arg.routine, arg.options).ins[0][1]
    batch = arg.ins[0][0][:len(arg.ins[0][0]) - len(axes)]
    with np.errstate(all="ignore"):
        for i in np.ndindex(*batch):
            matrices = [x[i] for x in xs]
            if "symmetrize" in arg.options:
                matrices = [(a + a.T.conj()) / 2 for a in matrices]
            results = meaning(arg.options, *matrices)
            for out, result in zip(outs, results):
                out[i] = result
    return outs


def _routine(name: str, x: NDArray) -> Any:
    """Return a routine of LAPACK for the dtype of x."""
    return getattr(lapack, "sdcz"["fdFD".index(x.dtype.char)] + name)


def _nan_if(info: int, *results: NDArray) -> Sequence[NDArray]:
    """Return the results, or NaNs if a routine failed."""
    return results if info == 0 else [np.full_like(x, np.nan) for x in results]


def _of_finite(meaning: Meaning) -> Meaning:
    """NaN for matrices with a number that is not finite."""
    def of_finite(options: Options, a: NDArray) -> Sequence[NDArray]:
        is_finite = bool(np.isfinite(a).all())
        results = meaning(options, a if is_finite else np.zeros_like(a))
        return _nan_if(int(not is_finite), *results)
    return of_finite


def _cholesky(options: Options, a: NDArray) -> Sequence[NDArray]:
    a = a.T if "transpose" in options else a
    is_upper = "upper" in options
    factor, info = _routine("potrf", a)(a, lower=not is_upper, clean=1)
    return [(np.triu if is_upper else np.tril)(x) for x in _nan_if(info, factor)]


def permutation_of(pivots: NDArray, m: int) -> NDArray:
    """Return the permutation of m rows that the pivots swap."""
    order = np.arange(m, dtype=np.int32)
    for i, j in enumerate(pivots):
        order[[i, j]] = order[[j, i]]
    return order


def _lu(options: Options, a: NDArray) -> Sequence[NDArray]:
    factors, pivots, _ = _routine("getrf", a)(a)
    return factors, pivots, permutation_of(pivots, len(a))


def _lu_diagonal(options: Options, a: NDArray) -> Sequence[NDArray]:
    factors, pivots, order = _lu((), a)
    return factors.diagonal(), pivots, order


def _solve_triangular(a: NDArray, b: NDArray, lower: bool, transpose: bool, unit: bool) -> NDArray:
    trsm = _blas("trsm", a)
    x: NDArray = trsm(1.0, a, b, lower=lower, trans_a=int(transpose), diag=int(unit))
    return x


def _blas(name: str, x: NDArray) -> Any:
    return getattr(blas, "sdcz"["fdFD".index(x.dtype.char)] + name)


def _triangular_solve(options: Options, a: NDArray, b: NDArray) -> Sequence[NDArray]:
    lower, transpose = "lower" in options, "transpose" in options
    if "right" in options:
        return [_solve_triangular(a, b.T, lower, not transpose, "unit" in options).T]
    return [_solve_triangular(a, b, lower, transpose, "unit" in options)]


def _lu_solve(options: Options, a: NDArray, lu: NDArray, order: NDArray, b: NDArray
              ) -> Sequence[NDArray]:
    if "transpose" in options:
        y = _solve_triangular(lu, b, False, True, False)
        y = _solve_triangular(lu, y, True, True, True)
        x = np.empty_like(y)
        x[order] = y
        return [x]
    y = _solve_triangular(lu, b[order], True, False, True)
    return [_solve_triangular(lu, y, False, False, False)]


def _solve(options: Options, a: NDArray, b: NDArray) -> Sequence[NDArray]:
    lu, _, order = _lu((), a)
    return _lu_solve((), a, lu, order, b)


def _qr(options: Options, a: NDArray) -> Sequence[NDArray]:
    m, n = a.shape
    if "pivoting" in options:
        h, order, taus, _, _ = _routine("geqp3", a)(a)
        order = order - 1
    else:
        h, taus, _, _ = _routine("geqrf", a)(a)
    columns = m if "full" in options else min(m, n)
    padded = np.zeros((m, columns), a.dtype)
    padded[:, :min(columns, n)] = h[:, :columns]
    q, = _householder_product(options, padded, taus)
    r = np.triu(h[:columns])
    return (q, r, order) if "pivoting" in options else (q, r)


def _geqrf(options: Options, a: NDArray) -> Sequence[NDArray]:
    h, taus, _, _ = _routine("geqrf", a)(a)
    return h, taus


def _householder_product(options: Options, a: NDArray, taus: NDArray) -> Sequence[NDArray]:
    name = "orgqr" if a.dtype.kind == "f" else "ungqr"
    return [_routine(name, a)(a, taus)[0]]


def _eigh(options: Options, a: NDArray) -> Sequence[NDArray]:
    name = "syevd" if a.dtype.kind == "f" else "heevd"
    w, v, info = _routine(name, a)(a, lower=int("lower" in options))
    return _nan_if(info, w, v)


def _eigvalsh(options: Options, a: NDArray) -> Sequence[NDArray]:
    name = "syevd" if a.dtype.kind == "f" else "heevd"
    w, _, info = _routine(name, a)(a, compute_v=0, lower=int("lower" in options))
    return _nan_if(info, w)


def _svd(options: Options, a: NDArray) -> Sequence[NDArray]:
    u, s, vt, info = _routine("gesdd", a)(a, full_matrices=int("full" in options))
    return _nan_if(info, s, u, vt)


def _svdvals(options: Options, a: NDArray) -> Sequence[NDArray]:
    _, s, _, info = _routine("gesdd", a)(a, compute_uv=0)
    return _nan_if(info, s)


def _schur(options: Options, a: NDArray) -> Sequence[NDArray]:
    results = _routine("gees", a)(lambda *x: None, a)
    return _nan_if(results[-1], results[0], results[-3])


def _eig(options: Options, a: NDArray) -> Sequence[NDArray]:
    *parts, left, right, info = _routine("geev", a)(a, compute_vl=int("left" in options))
    w = parts[0] + 1j * parts[1] if len(parts) == 2 else parts[0]
    pairs = [right] if "left" not in options else [left, right]
    vectors = [_unpack_vectors(w, x) if a.dtype.kind == "f" else x for x in pairs]
    return _nan_if(info, w, *vectors)


def _unpack_vectors(w: NDArray, packed: NDArray) -> NDArray:
    """Return eigenvectors of a real matrix: two columns are the parts of a conjugate pair."""
    out = packed.astype(np.result_type(packed.dtype, np.complex64))
    for j in np.flatnonzero(w.imag > 0):
        out[:, j] = packed[:, j] + 1j * packed[:, j + 1]
        out[:, j + 1] = out[:, j].conj()
    return out


def _eigvals(options: Options, a: NDArray) -> Sequence[NDArray]:
    *parts, _, _, info = _routine("geev", a)(a, compute_vl=0, compute_vr=0)
    w = parts[0] + 1j * parts[1] if len(parts) == 2 else parts[0]
    return _nan_if(info, w)


def _hessenberg(options: Options, a: NDArray) -> Sequence[NDArray]:
    h, taus, info = _routine("gehrd", a)(a)
    return _nan_if(info, h, taus)


def _tridiagonal(options: Options, a: NDArray) -> Sequence[NDArray]:
    name = "sytrd" if a.dtype.kind == "f" else "hetrd"
    h, d, e, taus, info = _routine(name, a)(a, lower=int("lower" in options))
    return _nan_if(info, h, d, e, taus)


def _tridiagonal_solve(options: Options, dl: NDArray, d: NDArray, du: NDArray, b: NDArray
                       ) -> Sequence[NDArray]:
    if "perturb" in options:
        return [_solve_perturbed(dl, d, du, b)]
    if len(d) == 1:
        return [b / d]
    *_, x, info = _routine("gtsv", d)(dl[1:], d, du[:-1], b)
    return _nan_if(info, x)


def _solve_perturbed(dl: NDArray, d: NDArray, du: NDArray, b: NDArray) -> NDArray:
    """Pivots below the least normal number grow by eps times the largest element of U, as far as
    LAPACK's lagts would."""
    def padded(x: NDArray, n: int) -> NDArray:
        return np.concatenate([x, np.zeros(max(n - len(x), 0), x.dtype)])
    n, size = len(d), max(len(d), 3)  # SciPy expects three rows; those added are of the identity
    info = np.finfo(d.dtype)
    ones = np.ones(size - n, d.dtype)
    lower, pivots, upper, second, order, _ = _routine("gttrf", d)(
        padded(dl[1:], size - 1), np.concatenate([d, ones]), padded(du[:-1], size - 1))
    upper[n - 1:], second[max(n - 2, 0):] = 0, 0
    largest = max(abs(x[:n]).max() for x in (pivots, upper, second))
    change = max(largest * info.eps, info.tiny)
    is_tiny = abs(pivots) < info.tiny
    pivots = np.where(is_tiny, pivots + np.copysign(change, pivots.real), pivots)
    rows = np.concatenate([b, np.zeros((size - n, b.shape[1]), b.dtype)])
    x, _ = _routine("gttrs", d)(lower, pivots.astype(d.dtype), upper, second, order, rows)
    solution: NDArray = x[:n]
    return solution


def _solve_sylvester(options: Options, a: NDArray, b: NDArray, c: NDArray) -> Sequence[NDArray]:
    (r, u), (s, v) = (_of_finite(_schur)((), x) for x in (a, b))
    f = u.conj().T @ c @ v
    y, scale, info = _routine("trsyl", a)(r, s, f)
    return [u @ (y * (1 / scale)) @ v.conj().T if info >= 0 and math.isfinite(scale) else
            np.full_like(c, np.nan)]


MEANINGS: dict[str, Meaning] = {
    "cholesky": _cholesky, "lu": _lu, "lu_diagonal": _lu_diagonal, "lu_solve": _lu_solve,
    "triangular_solve": _triangular_solve, "solve": _solve, "qr": _qr, "geqrf": _geqrf,
    "householder_product": _householder_product, "eigh": _eigh, "eigvalsh": _eigvalsh,
    "svd": _of_finite(_svd), "svdvals": _of_finite(_svdvals), "eig": _of_finite(_eig),
    "eigvals": _of_finite(_eigvals), "schur": _of_finite(_schur),
    "hessenberg": _hessenberg,
    "tridiagonal": _tridiagonal, "tridiagonal_solve": _tridiagonal_solve,
    "solve_sylvester": _solve_sylvester,
}
