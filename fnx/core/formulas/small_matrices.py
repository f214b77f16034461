"""Routines of linear algebra on matrices of a few rows, unrolled: every element is an Expr.

A matrix is a list of rows of Exprs; all Exprs have one shape, that of the batch, so one program
computes all matrices of it. ``UNROLLED[routine](options, *matrices)`` returns the results of a
routine of core/ir/linalg.py in the same form, or None for options that it lacks. Rounding aside
they are those of LAPACK, also for singular matrices and such that are not positive definite.

>>> four = Expr(build.const(4.0, dtypes.float32))
>>> (root,), = UNROLLED["cholesky"]((), [[four]])[0]
>>> root.node.op
WHERE
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce

from fnx.core.formulas import complex_functions
from fnx.core.formulas.elementwise_math import scale_to_one
from fnx.core.ir import build, dtypes
from fnx.core.ir.expr import Expr, imag, maximum, real, sqrt, where

Matrix = list[list[Expr]]
Options = tuple[str, ...]


def conj(x: Expr) -> Expr:
    """The conjugate; x itself if it is real."""
    return complex_functions.conjugate(x) if x.dtype.is_complex else x


def real_part(x: Expr) -> Expr:
    """The real part; x itself if it is real."""
    return real(x) if x.dtype.is_complex else x


def size(x: Expr) -> Expr:
    """|x|, for a complex x the sum of both parts, by which LAPACK chooses pivots."""
    return abs(real(x)) + abs(imag(x)) if x.dtype.is_complex else abs(x)


def square(x: Expr) -> Expr:
    """|x|**2."""
    return real(x) * real(x) + imag(x) * imag(x) if x.dtype.is_complex else x * x


def _minus_products(x: Expr, a: Sequence[Expr], b: Sequence[Expr]) -> Expr:
    """x - a0 b0 - a1 b1 - ..."""
    for p, q in zip(a, b):
        x = x - p * q
    return x


def cholesky(options: Options, a: Matrix) -> list[Matrix]:
    """The lower factor; NaN if a leading minor is not positive."""
    n, factor = len(a), list[list[Expr]]()
    valid: Expr | None = None
    for i in range(n):
        row = list[Expr]()
        for j in range(i):
            rest = _minus_products(a[i][j], row, [conj(x) for x in factor[j]])
            row.append(rest / factor[j][j])
        pivot = real_part(a[i][i])
        for x in row:
            pivot = pivot - square(x)
        valid = pivot > 0 if valid is None else valid & (pivot > 0)
        row.append(sqrt(pivot).cast(a[0][0].dtype))
        factor.append(row)
    assert valid is not None
    zero = a[0][0].like(0)
    return [[[where(valid, x, math.nan) for x in row] + [zero] * (n - len(row))
             for row in factor]]


def _swap(rows: Matrix, j: int, pivot: Expr) -> None:
    """Exchange row j with the row below it that ``pivot`` names."""
    for c, top in enumerate(rows[j]):
        for i in range(j + 1, len(rows)):
            chosen = pivot.eq(i)
            rows[j][c], rows[i][c] = where(chosen, rows[i][c], rows[j][c]), \
                where(chosen, top, rows[i][c])


def lu(options: Options, a: Matrix) -> list[Matrix]:
    """Both factors in one matrix, the pivots, and the permutation of the rows."""
    m, n = len(a), len(a[0])
    rows = [list(row) for row in a]
    order = [[Expr(build.const(i, dtypes.int32, a[0][0].shape))] for i in range(m)]
    pivots = list[Expr]()
    for j in range(min(m, n)):
        best, pivot = size(rows[j][j]), order[0][0].like(j)
        for i in range(j + 1, m):
            candidate = size(rows[i][j])
            better = candidate > best
            best, pivot = where(better, candidate, best), where(better, i, pivot)
        pivots.append(pivot)
        _swap(rows, j, pivot)
        _swap(order, j, pivot)
        top = rows[j][j]
        is_zero = top.eq(0)
        divisor = where(is_zero, 1, top)
        for i in range(j + 1, m):
            rows[i][j] = rows[i][j] / divisor
            for c in range(j + 1, n):
                rows[i][c] = rows[i][c] - rows[i][j] * rows[j][c]
    return [rows, [pivots], [[x for x, in order]]]


def _substitute(a: Matrix, b: Matrix, lower: bool, transposed: bool, unit: bool) -> Matrix:
    """Solve a x = b for a triangle a; ``transposed``: for its transpose."""
    n = len(a)
    forward = lower != transposed
    solved: dict[int, list[Expr]] = {}
    for i in range(n) if forward else reversed(range(n)):
        known = list(solved)
        factors = [a[k][i] if transposed else a[i][k] for k in known]
        row = [_minus_products(x, factors, [solved[k][c] for k in known])
               for c, x in enumerate(b[i])]
        solved[i] = row if unit else [x / a[i][i] for x in row]
    return [solved[i] for i in range(n)]


def triangular_solve(options: Options, a: Matrix, b: Matrix) -> list[Matrix]:
    """Solve for right-hand sides; with "right" they are transposed."""
    transposed = ("transpose" in options) != ("right" in options)
    return [_substitute(a, b, "lower" in options, transposed, "unit" in options)]


def lu_solve(options: Options, a: Matrix, factors: Matrix, order: Matrix, b: Matrix
             ) -> list[Matrix]:
    """Solve by both factors and the permutation of the rows."""
    permutation, n = order[0], len(b)
    if "transpose" in options:
        y = _substitute(factors, b, False, True, False)
        y = _substitute(factors, y, True, True, True)
        return [[[reduce(lambda x, i: where(permutation[i].eq(k), y[i][c], x), range(1, n), y[0][c])
                  for c in range(len(b[0]))] for k in range(n)]]
    moved = [[reduce(lambda x, k: where(permutation[i].eq(k), b[k][c], x), range(1, n), b[0][c])
              for c in range(len(b[0]))] for i in range(n)]
    return [_substitute(factors, _substitute(factors, moved, True, False, True),
                        False, False, False)]


def _norm(xs: Sequence[Expr]) -> Expr:
    """The 2-norm, scaled so that no square overflows."""
    scale, back = scale_to_one(reduce(maximum, map(size, xs)))
    parts = [part * scale for x in xs
             for part in ([real(x), imag(x)] if x.dtype.is_complex else [x])]
    return back * sqrt(reduce(lambda p, q: p + q, [x * x for x in parts]))


def qr(options: Options, a: Matrix) -> list[Matrix] | None:
    """An orthogonal and a triangular factor, by Householder reflections with LAPACK's signs."""
    m, n = len(a), len(a[0])
    if options and not (options == ("full",) and m <= n):
        return None
    k = min(m, n)
    rows = [list(row) for row in a]
    reflections = list[tuple[list[Expr], Expr]]()
    zero = a[0][0].like(0)
    for j in range(k):
        column = [rows[i][j] for i in range(j, m)]
        top = column[0]
        is_done = reduce(lambda p, q: p & q, [x.eq(0) for x in column[1:]], _is_real(top))
        length = _norm(column)
        beta = where(real_part(top) >= 0, -length, length)
        beta = where(is_done, real_part(top), beta)
        safe = where(is_done | beta.eq(0), 1, beta)
        tau = where(is_done, 0, (safe.cast(top.dtype) - top) / safe.cast(top.dtype))
        gap = where(is_done, 1, top - beta.cast(top.dtype))
        v = [top.like(1), *[x / gap for x in column[1:]]]
        reflections.append((v, tau))
        for i in range(j, m):
            rows[i][j] = beta.cast(top.dtype) if i == j else zero
        _reflect(rows, j, range(j + 1, n), v, conj(tau))
    q = [[zero.like(int(i == j)) for j in range(k)] for i in range(m)]
    for j in reversed(range(k)):
        v, tau = reflections[j]
        _reflect(q, j, range(j, k), v, tau)
    return [q, rows[:k]]


def _is_real(x: Expr) -> Expr:
    return imag(x).eq(0) if x.dtype.is_complex else x.eq(x) | x.ne(x)


def _reflect(rows: Matrix, start: int, columns: Sequence[int], v: Sequence[Expr], tau: Expr
             ) -> None:
    """Subtract tau v v^H from the rows from ``start`` on, in some columns."""
    for c in columns:
        part = reduce(lambda p, q: p + q, [conj(x) * rows[start + i][c] for i, x in enumerate(v)])
        scaled = tau * part
        for i, x in enumerate(v):
            rows[start + i][c] = rows[start + i][c] - x * scaled


UNROLLED: dict[str, Callable[..., list[Matrix] | None]] = {
    "cholesky": cholesky, "lu": lu, "triangular_solve": triangular_solve, "lu_solve": lu_solve,
    "qr": qr}
