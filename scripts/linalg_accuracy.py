"""Compare the backward errors of factorizations and solutions with those of LAPACK.

    python scripts/linalg_accuracy.py [routine...]     200 random and 30 hard matrices in four types
    ... --dtypes float32,complex64                     some of the types
    ... --device opencl                                on another device
    ... --write                                        renews the rows of docs/linalg.md

Each routine gets all matrices of one shape as a batch, which is unrolled or interleaved, and in
batches of four, for which LAPACK is called. The reference is LAPACK by SciPy in the same type
(NumPy would compute a determinant or a solution in float64). An error is a norm over n * eps * |A|,
with the Frobenius norm, in long double arithmetic: of the residual, of Q^H Q - I, and, where there
are no vectors, of the values: their difference from exact ones. A ratio is our error over that of
LAPACK for the same matrix, or over what is larger: its largest error for the random matrices of
the shape, or that of rounding A once. For LAPACK's error for one small matrix may be 0 by chance.
The exit status says whether a ratio is above ``LIMIT``, or a result is not finite where that of
LAPACK is.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg
from linalg_matrices import (
    EACH,
    Group,
    NDArray,
    adjoint,
    determinant,
    draw,
    exact_eigenvalues,
    exact_singular_values,
    exponential,
    groups,
    norm,
    orthogonality,
    quotient,
    reflections,
    residual,
    tridiagonal,
    wide,
)

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import fnx  # noqa: E402
import fnx.numpy as jnp  # noqa: E402
from fnx.core.array.array import Array  # noqa: E402
from fnx.core.ir import linalg_semantics  # noqa: E402
from fnx.core.support.config import override  # noqa: E402
from fnx.numpy.decompositions import apply_routine  # noqa: E402

PAGE = ROOT / "docs" / "linalg.md"
BEGIN, END = "<!-- written by linalg_accuracy.py -->", "<!-- end of linalg_accuracy.py -->"
LIMIT = 2.0
DTYPES = ("float32", "float64", "complex64", "complex128")
FEW = 4    # matrices in a batch that is not unrolled on the host

Errors = dict[str, NDArray]


# ---- routines -----------------------------------------------------------------------------------


class Check(NamedTuple):
    """A routine beside its reference.

    Attributes:
        operands: returns the operands for a group; None if there are none of its shape.
        ours: returns the results for Arrays with a batch axis.
        theirs: returns the results for one matrix of each operand.
        errors: returns the errors by name, for operands and results in long double.
        may_fail: whether results need not be finite for matrices that are singular within rounding.
    """

    operands: Callable[[Group], Sequence[NDArray] | None]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]
    errors: Callable[..., Errors]
    may_fail: bool = False


def any_shape(group: Group) -> list[NDArray]:
    return [group.any]


def square(group: Group) -> list[NDArray] | None:
    return [group.any] if group.any.shape[-1] == group.any.shape[-2] else None


def tall(group: Group) -> list[NDArray] | None:
    return [group.any] if group.any.shape[-2] >= group.any.shape[-1] else None


def hermitian(group: Group) -> list[NDArray] | None:
    return [group.hermitian] if square(group) else None


def positive(group: Group) -> list[NDArray] | None:
    return [group.positive] if square(group) else None


def with_sides(operands: Callable[[Group], Sequence[NDArray] | None]
               ) -> Callable[[Group], Sequence[NDArray] | None]:
    """Add right-hand sides, of which solutions have the size of 1."""
    def both(group: Group) -> Sequence[NDArray] | None:
        found = operands(group)
        if found is None:
            return None
        a = found[-1] if len(found) == 1 else group.any
        x = draw(np.random.default_rng(5), a.dtype, len(a), a.shape[-1], 3).astype(a.dtype)
        return [*found, (a / 8 @ x).astype(a.dtype)]
    return both


def triangle(group: Group) -> list[NDArray] | None:
    return [np.tril(group.any)] if square(group) else None


def factors(group: Group) -> list[NDArray] | None:
    """Matrices and LAPACK's factors of them."""
    if not square(group):
        return None
    lu, _, order = (np.stack(x) for x in zip(*[
        linalg_semantics.MEANINGS["lu"]((), x) for x in group.any]))
    return [group.any, lu, order.astype(np.int32)]


def reflectors(group: Group) -> list[NDArray] | None:
    if tall(group) is None:
        return None
    return [np.stack(x) for x in zip(*[linalg_semantics.MEANINGS["geqrf"]((), x)
                                       for x in group.any])]


def diagonals(group: Group) -> list[NDArray] | None:
    if square(group) is None:
        return None
    n = group.any.shape[-1]
    below, middle, above = (np.pad(group.any.diagonal(k, 1, 2), ((0, 0), pad)) for k, pad in (
        (-1, (1, 0)), (0, (0, 0)), (1, (0, 1))))
    x = draw(np.random.default_rng(5), group.any.dtype, len(group.any), n, 3)
    sides = tridiagonal(below / 8, middle / 8, above / 8) @ x
    return [below, middle, above, sides.astype(group.any.dtype)]


def sylvester(group: Group) -> list[NDArray] | None:
    return None if square(group) is None else [group.any / 8, group.hermitian / 8, group.any]


def solution(a: NDArray, b: NDArray, x: NDArray) -> Errors:
    return {"residual": quotient(norm(a @ x - b), norm(a) * norm(x) + norm(b))}


def _lu_errors(a: NDArray, lu: NDArray, pivots: NDArray, order: NDArray) -> Errors:
    m, n = a.shape[-2:]
    k = min(m, n)
    lower = np.tril(lu[..., :k], -1) + np.eye(m, k)
    moved = np.take_along_axis(a, order[..., None].astype(np.int64), -2)
    return {"residual": residual(lower @ np.triu(lu[..., :k, :]), moved)}


def _qr_errors(a: NDArray, q: NDArray, r: NDArray, order: NDArray | None = None) -> Errors:
    moved = a if order is None else np.take_along_axis(a, order[..., None, :].astype(np.int64), -1)
    return {"residual": residual(q @ r, moved), "orthogonality": orthogonality(q)}


def _geqrf_errors(a: NDArray, h: NDArray, taus: NDArray) -> Errors:
    return _qr_errors(a, reflections(h, taus), np.triu(h))


def _reflector_errors(h: NDArray, taus: NDArray, q: NDArray) -> Errors:
    exact = reflections(h, taus)[..., :q.shape[-1]]
    return {"difference": residual(q, exact), "orthogonality": orthogonality(q)}


def _values(a: NDArray, w: NDArray, exact: Callable[[NDArray], NDArray]) -> NDArray:
    found = np.stack([exact(x) for x in a])
    return quotient(norm((w - found)[..., None]), norm(a))


def _eigh_errors(a: NDArray, w: NDArray, v: NDArray) -> Errors:
    return {"residual": quotient(norm(a @ v - v * w[..., None, :]), norm(a)),
            "orthogonality": orthogonality(v)}


def _svd_errors(a: NDArray, s: NDArray, u: NDArray, vh: NDArray) -> Errors:
    k = s.shape[-1]
    return {"residual": residual(u[..., :k] * s[..., None, :] @ vh[..., :k, :], a),
            "left vectors": orthogonality(u), "right vectors": orthogonality(vh)}


def _eig_errors(a: NDArray, w: NDArray, v: NDArray) -> Errors:
    return {"residual": quotient(norm(a @ v - v * w[..., None, :]), norm(a) * norm(v))}


def _schur_errors(a: NDArray, t: NDArray, z: NDArray) -> Errors:
    return {"residual": residual(z @ t @ adjoint(z), a), "orthogonality": orthogonality(z)}


def _hessenberg_errors(a: NDArray, h: NDArray, taus: NDArray) -> Errors:
    return _schur_errors(a, np.triu(h, -1), reflections(h, taus, 1))


def _tridiagonal_errors(a: NDArray, h: NDArray, d: NDArray, e: NDArray, taus: NDArray) -> Errors:
    t = tridiagonal(np.pad(e, ((0, 0), (1, 0))), d, np.pad(e, ((0, 0), (0, 1))))
    return _schur_errors(a, t, reflections(h, taus, 1))


def _tridiagonal_solve_errors(below: NDArray, middle: NDArray, above: NDArray, b: NDArray,
                              x: NDArray) -> Errors:
    return solution(tridiagonal(below, middle, above), b, x)


def _sylvester_errors(a: NDArray, b: NDArray, c: NDArray, x: NDArray) -> Errors:
    return {"residual": quotient(norm(a @ x + x @ b - c), (norm(a) + norm(b)) * norm(x) + norm(c))}


def _inverse_errors(a: NDArray, x: NDArray) -> Errors:
    return {"residual": quotient(norm(a @ x - np.eye(a.shape[-1])), norm(a) * norm(x))}


def _det_errors(a: NDArray, found: NDArray) -> Errors:
    """Over the change that a change of A by eps causes; none where it leaves the type's range."""
    exact = determinant(a)
    narrow = a.astype(np.complex128 if a.dtype.kind == "c" else float)
    condition = np.maximum(np.linalg.cond(narrow, "fro"), 1)
    in_range = (abs(exact) < np.finfo(np.float32).max) & (abs(exact) > 1e-30)
    return {"difference": np.where(in_range, quotient(abs(found - exact), abs(exact) * condition),
                                   0)}


def _lstsq_errors(a: NDArray, b: NDArray, x: NDArray) -> Errors:
    return {"residual": quotient(norm(adjoint(a) @ (a @ x - b)),
                                 norm(a) * (norm(a) * norm(x) + norm(b)))}


def _pinv_errors(a: NDArray, x: NDArray) -> Errors:
    return {"residual": quotient(norm(a @ x @ a - a), norm(a)**2 * norm(x))}


def bounded(group: Group) -> list[NDArray] | None:
    """Matrices whose exponentials are in range."""
    if square(group) is None:
        return None
    a = group.any.astype(np.complex128 if group.any.dtype.kind == "c" else float)
    return [(a / np.maximum(norm(a)[:, None, None] / 4, 1)).astype(group.any.dtype)]


def _expm_errors(a: NDArray, x: NDArray) -> Errors:
    return {"difference": residual(x, exponential(a))}


def _sqrtm_errors(a: NDArray, x: NDArray) -> Errors:
    return {"residual": quotient(norm(x @ x - a), norm(x)**2)}


def _polar_errors(a: NDArray, u: NDArray, p: NDArray) -> Errors:
    return {"residual": residual(u @ p, a), "orthogonality": orthogonality(u)}


def _linalg(routine: str, operands: Callable[[Group], Sequence[NDArray] | None],
            errors: Callable[..., Errors], *options: str, may_fail: bool = False) -> Check:
    """A routine of core/ir/linalg.py beside its meaning."""
    return Check(operands, lambda *xs: apply_routine(routine, *xs, options=options),
                 lambda *xs: linalg_semantics.MEANINGS[routine](options, *xs), errors, may_fail)


def _reference_solve(a: NDArray, b: NDArray) -> NDArray:
    factors, _, order = linalg_semantics.MEANINGS["lu"]((), a)
    x, = linalg_semantics.MEANINGS["lu_solve"]((), a, factors, order, b)
    return x


def _reference_det(a: NDArray) -> NDArray:
    lu, pivots, _ = linalg_semantics.MEANINGS["lu"]((), a)
    is_odd = np.count_nonzero(pivots != np.arange(len(pivots))) % 2
    return lu.diagonal().prod() * (1 - 2 * is_odd)


def _cutoff(a: NDArray) -> float:
    """Singular values below this fraction of the largest count as zero."""
    return 10 * max(a.shape[-2:]) * float(np.finfo(a.dtype).eps)


CHECKS = {
    "cholesky": _linalg("cholesky", positive, lambda a, factor: {"residual": residual(
        factor @ adjoint(factor), a)}, may_fail=True),
    "lu": _linalg("lu", any_shape, _lu_errors),
    "lu_solve": _linalg("lu_solve", with_sides(factors), lambda a, lu, order, b, x: solution(
        a, b, x), may_fail=True),
    "triangular_solve": _linalg("triangular_solve", with_sides(triangle), solution, "lower",
                                may_fail=True),
    "solve": Check(with_sides(square), jnp.linalg.solve, _reference_solve, solution, True),
    "solve, positive": Check(
        with_sides(positive), lambda a, b: fnx.scipy.linalg.solve(a, b, assume_a="pos"),
        lambda a, b: scipy.linalg.cho_solve(scipy.linalg.cho_factor(a), b), solution, True),
    "inv": Check(square, jnp.linalg.inv, lambda a: _reference_solve(
        a, np.eye(len(a), dtype=a.dtype)), _inverse_errors, True),
    "det": Check(square, jnp.linalg.det, _reference_det, _det_errors),
    "qr": _linalg("qr", any_shape, _qr_errors),
    "qr, complete": _linalg("qr", any_shape, _qr_errors, "full"),
    "qr, pivoting": _linalg("qr", any_shape, _qr_errors, "pivoting"),
    "geqrf": _linalg("geqrf", any_shape, _geqrf_errors),
    "householder_product": _linalg("householder_product", reflectors, _reflector_errors),
    "lstsq": Check(with_sides(tall), lambda a, b: fnx.vmap(
        lambda x, y: jnp.linalg.lstsq(x, y, rcond=_cutoff(a))[0])(a, b),
        lambda a, b: scipy.linalg.lstsq(a, b, cond=_cutoff(a))[0], _lstsq_errors),
    "pinv": Check(any_shape, jnp.linalg.pinv, lambda a: scipy.linalg.pinv(
        a, atol=0, rtol=_cutoff(a)), _pinv_errors),
    "eigh": _linalg("eigh", hermitian, _eigh_errors, "lower"),
    "eigvalsh": _linalg("eigvalsh", hermitian, lambda a, w: {
        "values": _values(a, w, exact_eigenvalues)}, "lower"),
    "svd": _linalg("svd", any_shape, _svd_errors),
    "svd, full": _linalg("svd", any_shape, _svd_errors, "full"),
    "svdvals": _linalg("svdvals", any_shape, lambda a, s: {
        "values": _values(a, s, exact_singular_values)}),
    "polar": Check(tall, fnx.vmap(fnx.scipy.linalg.polar), scipy.linalg.polar, _polar_errors),
    "expm": Check(bounded, fnx.vmap(fnx.scipy.linalg.expm), scipy.linalg.expm, _expm_errors),
    "sqrtm": Check(positive, fnx.vmap(fnx.scipy.linalg.sqrtm), scipy.linalg.sqrtm, _sqrtm_errors,
                   True),
    "eig": _linalg("eig", square, _eig_errors),
    "schur": _linalg("schur", square, _schur_errors),
    "hessenberg": _linalg("hessenberg", square, _hessenberg_errors),
    "tridiagonal": _linalg("tridiagonal", hermitian, _tridiagonal_errors, "lower"),
    "tridiagonal_solve": _linalg("tridiagonal_solve", diagonals, _tridiagonal_solve_errors),
    "solve_sylvester": _linalg("solve_sylvester", sylvester, _sylvester_errors),
}


# ---- comparison ---------------------------------------------------------------------------------


class Worst(NamedTuple):
    """The worst ratio of a routine and a type: our error, LAPACK's and the matrix."""

    ratio: float
    ours: float
    theirs: float
    matrix: str


def references(check: Check, xs: Sequence[NDArray]) -> list[NDArray]:
    """Return the results of the reference; NaN where it raises an error."""
    rows = []
    for row in zip(*xs):
        try:
            found = check.theirs(*row)
            rows.append(tuple(found) if isinstance(found, tuple | list) else (found,))
        except np.linalg.LinAlgError:
            rows.append(None)
    template = next(row for row in rows if row is not None)
    return [np.stack([np.full_like(x, np.nan) if row is None else np.asarray(row[i])
                      for row in rows]) for i, x in enumerate(template)]


def ours(check: Check, xs: Sequence[NDArray], few: bool) -> list[NDArray]:
    """Return our results, of a batch or of batches of a few."""
    size = FEW if few else len(xs[0])
    compute = fnx.jit(check.ours)  # factors that are computed apart do not belong together
    parts = []
    for i in range(0, len(xs[0]), size):
        found = compute(*[jnp.asarray(x[i:i + size]) for x in xs])
        parts.append([found] if isinstance(found, Array) else list(found))
    return [np.concatenate([np.asarray(x) for x in column]) for column in zip(*parts)]


def finite(results: Sequence[NDArray]) -> NDArray:
    return np.all([np.isfinite(x).reshape(len(x), -1).all(1) for x in results], 0)


def compare(check: Check, group: Group) -> Iterable[tuple[str, str, float, float, float]]:
    """Yield the kind of the error, the matrix, the ratio, our error and LAPACK's."""
    xs = check.operands(group)
    if xs is None:
        return
    theirs = references(check, xs)
    n, eps = max(xs[0].shape[1:]), np.finfo(xs[0].dtype).eps
    needed = finite(theirs)
    if check.may_fail:
        regular = np.linalg.cond(xs[0] / abs(xs[0]).max((1, 2), keepdims=True)) < 1 / (n * eps)
    exact = [wide(x) for x in xs]
    reference = check.errors(*exact, *map(wide, theirs))
    for few in (False, True):
        found = ours(check, xs, few)
        errors = check.errors(*exact, *map(wide, found))
        for kind, error in errors.items():
            error = np.where(finite(found), error, np.inf)
            usable = needed & (finite(found) | regular) if check.may_fail else needed
            typical = reference[kind][:EACH][needed[:EACH]].max(initial=0)
            ratios = quotient(error, np.maximum(reference[kind], max(typical, eps / 2)))
            for i in np.flatnonzero(usable):
                yield (kind, group.names[i] + ", LAPACK" * few, float(ratios[i]),
                       float(error[i] / (n * eps)), float(reference[kind][i] / (n * eps)))


def measure(name: str, dtype: str, device: str | None) -> dict[str, Worst]:
    """Return the worst of each kind of error of a routine in a type."""
    worst: dict[str, Worst] = {}
    with override(x64=True), fnx.default_device(device or "cpu"), np.errstate(all="ignore"):
        for group in groups(np.dtype(dtype)):
            for kind, matrix, ratio, error, reference in compare(CHECKS[name], group):
                if kind not in worst or not ratio <= worst[kind].ratio:
                    worst[kind] = Worst(ratio, error, reference, matrix)
    return worst


def written() -> dict[tuple[str, str], dict[str, str]]:
    """Return the cells of the table of docs/linalg.md by routine, kind of error and type."""
    text = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines()
            if line.startswith("| ")]
    return {(name, kind): dict(zip(DTYPES, cells)) for name, kind, *cells in rows[1:]}


def write(rows: dict[tuple[str, str], dict[str, Worst]]) -> None:
    """Renew the cells that were measured."""
    cells = written()
    for key, found in rows.items():
        cells.setdefault(key, {}).update({
            t: f"{worst.ratio:.2f} ({worst.ours:.2g})" for t, worst in found.items()})
    order = list(CHECKS)
    lines = ["| routine | error | " + " | ".join(DTYPES) + " |", "|---" * (2 + len(DTYPES)) + "|"]
    for name, kind in sorted(cells, key=lambda key: order.index(key[0])):
        found = cells[name, kind]
        lines.append(f"| {name} | {kind} | " + " | ".join(found.get(t, "") for t in DTYPES) + " |")
    table = "\n".join(lines)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("routines", nargs="*")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--device")
    parser.add_argument("--write", action="store_true", help="renew docs/linalg.md")
    given = parser.parse_args()
    rows: dict[tuple[str, str], dict[str, Worst]] = {}
    bad = 0
    for name in given.routines or CHECKS:
        for dtype in given.dtypes.split(","):
            for kind, worst in measure(name, dtype, given.device).items():
                rows.setdefault((name, kind), {})[dtype] = worst
                bad += not worst.ratio <= LIMIT
                print(f"{name:20} {dtype:10} {kind:14} {worst.ratio:8.2f}  ours {worst.ours:.2e} "
                      f"LAPACK {worst.theirs:.2e}  {worst.matrix}", flush=True)
    if given.write:
        write(rows)
    print(f"{bad} of {sum(map(len, rows.values()))} are above {LIMIT}")
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
