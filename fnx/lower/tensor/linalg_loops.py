"""Factorizations and solutions as loops over columns, for files, which have no LAPACK.

    before  LINALG cholesky (p0)                                    p0: (4, 100, 100)
    after   SCAN of 100 steps over A: a column of the factor, then what is left of A without it

A step computes whole arrays, of all matrices of the batch at once, so it is a few kernels whatever
the sizes. Formulas and choices are those of core/formulas/small_matrices.py, so of LAPACK. Operands
are arrays (batch, m, n). Eigenvalues and singular values are found by rotations (jacobi.py).
Source: G. H. Golub and C. F. Van Loan, Matrix Computations, 3.2, 4.2 and 5.2.

>>> a = build.param(0, dtypes.float32, (4, 100, 100))
>>> factor, = LOOPS["cholesky"]((), a)
>>> factor.shape
(4, 100, 100)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fnx.core.formulas.elementwise_math import scale_to_one
from fnx.core.formulas.small_matrices import conj, real_part, size, square
from fnx.core.ir import build, build_calls, dtypes, op_args, ops
from fnx.core.ir.expr import Expr, real, sqrt, where
from fnx.core.ir.linalg import matrix_lengths
from fnx.core.ir.uop import UOp
from fnx.core.support.target import Target

Options = tuple[str, ...]
Nodes = Sequence[UOp]
States = tuple[list[UOp], list[UOp]]


def cholesky(options: Options, a: UOp) -> list[UOp]:
    """The lower factor; NaN if a leading minor is not positive."""
    batch, n, _ = a.shape
    rows = _indices((batch, n), 1)

    def step(consts: Nodes, state: Nodes, xs: Nodes) -> States:
        left, valid = map(Expr, state)
        pivot = real_part(_element(left, xs[0]))
        root = sqrt(pivot)
        j = _across(Expr(xs[0]), rows.shape)
        wide = _across(root, rows.shape, 0).cast(a.dtype)
        factor = where(rows > j, _column(left, xs[0]) / wide, where(rows.eq(j), wide, 0))
        left = left - _outer(factor, conj(factor))
        return [left.node, (valid & (pivot > 0)).node], [factor.node]
    valid = build.const(True, dtypes.bool_, (batch,))
    (_, valid), (columns,) = build_calls.build_scan(step, n, [], [a, valid], [build.iota(n)],
                                                    name="cholesky")
    out = Expr(build.permute(columns, (1, 2, 0)))
    lower = _indices(a.shape, 1) >= _indices(a.shape, 2)
    return [where(_across(Expr(valid), a.shape, 0) | ~lower, out, math.nan).node]


def lu(options: Options, a: UOp) -> list[UOp]:
    """Both factors in one matrix, the pivots, and the permutation of the rows."""
    batch, m, n = a.shape
    rows = _indices((batch, m), 1)

    def step(consts: Nodes, state: Nodes, xs: Nodes) -> States:
        x, order = map(Expr, state)
        j = _across(Expr(xs[0]), rows.shape)
        sizes = where(rows < j, -1, size(_column(x, xs[0])))
        pivot = Expr(build.reduce(build.arg_pair(sizes.node, rows.node), ops.MAX, [1]))
        wide = _across(pivot, rows.shape, 0)
        source = where(rows.eq(j), wide, where(rows.eq(wide), j, rows))
        x, order = _permuted(x, source), _permuted(order, source)
        top = _across(_element(x, xs[0]), rows.shape, 0)
        column = _column(x, xs[0])
        factor = where(rows > j, column / where(top.eq(0), 1, top), 0)
        row = _row(x, xs[0])
        across = _indices(row.shape, 1)
        row = where(across > _across(Expr(xs[0]), row.shape), row, 0)
        here = _across(across, x.shape, 0, 2).eq(_across(Expr(xs[0]), x.shape))
        x = where(here, _across(where(rows > j, factor, column), x.shape, 0, 1),
                  x - _outer(factor, row))
        return [x.node, order.node], [pivot.node]
    (out, order), (pivots,) = build_calls.build_scan(
        step, min(m, n), [], [a, rows.node], [build.iota(min(m, n))], name="lu")
    return [out, build.permute(pivots, (1, 0)), order]


def _substitute(a: UOp, b: UOp, lower: bool, transposed: bool, unit: bool) -> UOp:
    """Solve a x = b for a triangle a; ``transposed``: for its transpose."""
    triangle = Expr(build.permute(a, (0, 2, 1)) if transposed else a)
    n = a.shape[-1]

    def step(consts: Nodes, state: Nodes, xs: Nodes) -> States:
        matrix, rest = Expr(consts[0]), Expr(state[0])
        row = _row(rest, xs[0])
        if not unit:
            row = row / _across(_element(matrix, xs[0]), row.shape, 0)
        return [(rest - _outer(_column(matrix, xs[0]), row)).node], [row.node]
    _, (rows,) = build_calls.build_scan(step, n, [triangle.node], [b], [build.iota(n)],
                                        reverse=lower == transposed, name="substitute")
    return build.permute(rows, (1, 0, 2))


def triangular_solve(options: Options, a: UOp, b: UOp) -> list[UOp]:
    """Solve for right-hand sides; with "right" they are rows."""
    right, lower, unit = (x in options for x in ("right", "lower", "unit"))
    transposed = ("transpose" in options) != right
    if not right:
        return [_substitute(a, b, lower, transposed, unit)]
    x = _substitute(a, build.permute(b, (0, 2, 1)), lower, transposed, unit)
    return [build.permute(x, (0, 2, 1))]


def lu_solve(options: Options, a: UOp, factors: UOp, order: UOp, b: UOp) -> list[UOp]:
    """Solve by both factors and the permutation of the rows."""
    if "transpose" in options:
        y = _substitute(factors, b, False, True, False)
        y = _substitute(factors, y, True, True, True)
        return [build.scatter(y, [_indices(order.shape, 0).node, order], y, axes=[0, 1])]
    moved = _permuted(Expr(b), Expr(order)).node
    return [_substitute(factors, _substitute(factors, moved, True, False, True),
                        False, False, False)]


def _reflection(x: Expr, j: UOp) -> tuple[Expr, Expr, Expr]:
    """Return the reflection that makes column j zero below the diagonal: its vector, its factor,
    and the element on the diagonal; with LAPACK's signs."""
    batch, m, _ = x.shape
    rows = _indices((batch, m), 1)
    at = _across(Expr(j), rows.shape)
    column = where(rows >= at, _column(x, j), 0)
    below, top = where(rows > at, column, 0), _element(x, j)
    scale, back = scale_to_one(_largest(column))
    scaled = column * _across(scale, rows.shape, 0).cast(column.dtype)
    length = back * sqrt(_sum(square(scaled), 1))
    is_done = _largest(below).eq(0)
    if x.dtype.is_complex:
        is_done = is_done & (top.eq(real(top).cast(top.dtype)))
    beta = where(is_done, real_part(top), where(real_part(top) >= 0, -length, length))
    safe = where(is_done | beta.eq(0), 1, beta).cast(top.dtype)
    tau = where(is_done, 0, (safe - top) / safe)
    gap = _across(where(is_done, 1, top - beta.cast(top.dtype)), rows.shape, 0)
    vector = where(rows > at, column / gap, where(rows.eq(at), column.like(1), 0))
    return vector, tau, beta


def _reflect(x: Expr, vector: Expr, tau: Expr) -> Expr:
    """Return x - tau v v^H x."""
    products = _sum(_across(conj(vector), x.shape, 0, 1) * x, 1)
    return x - _outer(vector, _across(tau, products.shape, 0) * products)


def _factor(a: UOp) -> tuple[UOp, UOp, UOp]:
    """Return the triangular factor (batch, m, n), and vectors and factors of the reflections."""
    k = min(a.shape[1:])
    rows, columns = _indices(a.shape, 1), _indices(a.shape, 2)

    def step(consts: Nodes, state: Nodes, xs: Nodes) -> States:
        x = Expr(state[0])
        vector, tau, beta = _reflection(x, xs[0])
        at = _across(Expr(xs[0]), x.shape)
        diagonal = where(rows.eq(at), _across(beta, x.shape, 0).cast(x.dtype), 0)
        x = where(columns.eq(at) & (rows >= at), diagonal, _reflect(x, vector, conj(tau)))
        return [x.node], [vector.node, tau.node]
    (out,), (vectors, taus) = build_calls.build_scan(step, k, [], [a], [build.iota(k)], name="qr")
    return out, vectors, taus


def _product(vectors: UOp, taus: UOp, columns: int) -> UOp:
    """Return the first columns of the product of reflections."""
    _, batch, m = vectors.shape
    shape = (batch, m, columns)
    eye = _indices(shape, 1).eq(_indices(shape, 2)).cast(vectors.dtype)

    def step(consts: Nodes, state: Nodes, xs: Nodes) -> States:
        return [_reflect(Expr(state[0]), *map(Expr, xs)).node], []
    (out,), _ = build_calls.build_scan(step, vectors.shape[0], [], [eye.node], [vectors, taus],
                                       reverse=True, name="householder_product")
    return out


def qr(options: Options, a: UOp) -> list[UOp] | None:
    """An orthogonal and a triangular factor, by Householder reflections."""
    if "pivoting" in options:
        return None
    batch, m, n = a.shape
    rows = m if "full" in options else min(m, n)
    out, vectors, taus = _factor(a)
    return [_product(vectors, taus, rows), build.shrink(out, [(0, batch), (0, rows), (0, n)])]


def geqrf(options: Options, a: UOp) -> list[UOp]:
    """The triangular factor, the vectors of the reflections below it, and their factors."""
    batch, m, n = a.shape
    out, vectors, taus = _factor(a)
    below = Expr(build.pad(build.permute(vectors, (1, 2, 0)),
                           [(0, 0), (0, 0), (0, n - taus.shape[0])]))
    packed = where(_indices(a.shape, 1) > _indices(a.shape, 2), below, Expr(out))
    return [packed.node, build.permute(taus, (1, 0))]


def householder_product(options: Options, a: UOp, taus: UOp) -> list[UOp]:
    """The product of reflections whose vectors are below the diagonal."""
    batch, m, n = a.shape
    rows, columns = _indices(a.shape, 1), _indices(a.shape, 2)
    vectors = where(rows > columns, Expr(a), where(rows.eq(columns), Expr(a).like(1), 0)).node
    used = build.shrink(vectors, [(0, batch), (0, m), (0, taus.shape[1])])
    return [_product(build.permute(used, (2, 0, 1)), build.permute(taus, (1, 0)), n)]


LOOPS: dict[str, Callable[..., list[UOp] | None]] = {
    "cholesky": cholesky, "lu": lu, "triangular_solve": triangular_solve, "lu_solve": lu_solve,
    "qr": qr, "geqrf": geqrf, "householder_product": householder_product}
ROUTINES = frozenset({*LOOPS, "eigh", "eigvalsh", "svd", "svdvals"})


def is_loop(arg: op_args.Linalg, target: Target) -> bool:
    """Whether a LINALG is computed by loops: there is no host with LAPACK, which takes less time
    (docs/linalg.md)."""
    if target.has_host or arg.routine not in ROUTINES or "pivoting" in arg.options:
        return False
    batch, lengths = matrix_lengths(arg.routine, arg.options, arg.ins)
    return math.prod(batch) > 0 and 0 not in [lengths[a] for a in lengths if a in "mnr"]


# ---- arrays -------------------------------------------------------------------------------------


def _indices(shape: tuple[int, ...], axis: int) -> Expr:
    return _across(Expr(build.iota(shape[axis])), shape, axis)


def _across(x: Expr, shape: tuple[int, ...], *axes: int) -> Expr:
    """Expand x to a shape of which its axes are these."""
    core = tuple([n if i in axes else 1 for i, n in enumerate(shape)])
    return Expr(build.expand(build.reshape(x.node, core), shape))


def _sum(x: Expr, axis: int) -> Expr:
    return Expr(build.reduce(x.node, ops.ADD, [axis]))


def _largest(x: Expr) -> Expr:
    """The size of the largest element of each row."""
    return Expr(build.reduce(size(x).node, ops.MAX, [1]))


def _outer(left: Expr, right: Expr) -> Expr:
    shape = (*left.shape, right.shape[1])
    return _across(left, shape, 0, 1) * _across(right, shape, 0, 2)


def _row(x: Expr, i: UOp) -> Expr:
    return Expr(build.gather(x.node, i, axes=[1]))


def _column(x: Expr, j: UOp) -> Expr:
    return Expr(build.gather(x.node, j, axes=[2]))


def _element(x: Expr, j: UOp) -> Expr:
    """The element j of the diagonals."""
    return Expr(build.gather(x.node, j, j, axes=[1, 2]))


def _permuted(x: Expr, order: Expr) -> Expr:
    """Row order[i] of each matrix becomes row i."""
    return Expr(build.gather(x.node, _indices(order.shape, 0).node, order.node, axes=[0, 1]))
