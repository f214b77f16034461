"""Factorizations and solutions of many small matrices, one in each lane.

Each function allocates its memory and returns what computes a group of matrices. Rounding aside the
results are those of LAPACK, also for singular matrices and such that are not positive definite.
Sources: G. H. Golub and C. F. Van Loan, Matrix Computations: 4.2 (Cholesky), 3.4 (LU), 5.2 (QR).
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import build, dtypes
from fnx.lower.emit.interleaved_linalg import InterleavedEmitter, Tile, Value
from fnx.lower.emit.linalg_emitter import Length, Plan

Sums = dict[tuple[int, int], Value]  # of the elements of a block


# ---- Cholesky -----------------------------------------------------------------------------------


def cholesky(e: InterleavedEmitter) -> Plan:
    """Blocks of rows and columns, of which the lower triangle is computed; matrices are padded by
    the identity. The block at J: sums over the columns before it, factor, then the blocks below."""
    blocks = e.blocks("n")
    padded = build.mul(blocks, build.index_const(e.block))
    tile = e.tile(padded, padded)

    def run() -> None:
        n, size = e.index("n"), tile.columns
        packed = tile.with_columns(n)
        e.read(0, packed)
        e.symmetrize(packed)
        e.widen(packed, n, n, size)
        e.identity(tile, n, size)
        failed, = e.fold(0, e.index(blocks), [e.const(0)],
                         lambda at, failed: [_cholesky_column(e, tile, at, failed)])
        is_failed = failed > 0
        with e.loop(0, n) as i:
            with e.loop(0, i + 1) as j:
                packed[i, j] = e.nan_if(is_failed, tile[i, j])
            with e.loop(i + 1, n) as j:
                packed[i, j] = e.const(0)
        e.write(0, packed)
    return run


def _cholesky_column(e: InterleavedEmitter, tile: Tile, at: Value, failed: Value) -> Value:
    """Compute a column of blocks; return 1 where a pivot was not positive."""
    first = at * e.block
    rest = _block_sums(e, tile, first, first)
    factor: Sums = {}
    inverses: list[Value] = []
    for c in range(e.block):
        pivot = _less_products(e, rest[c, c], [factor[c, k] for k in range(c)],
                               [factor[c, k] for k in range(c)])
        failed = e.choose(pivot > 0, failed, 1.0)
        factor[c, c] = e.sqrt(pivot)
        inverses.append(1 / factor[c, c])
        for r in range(c + 1, e.block):
            factor[r, c] = inverses[c] * _less_products(
                e, rest[r, c], [factor[r, k] for k in range(c)], [factor[c, k] for k in range(c)])
    for (r, c), x in factor.items():
        tile[first + r, first + c] = x
    with e.loop(at + 1, e.index(e.blocks("n"))) as below:
        row = below * e.block
        rest = _block_sums(e, tile, row, first)
        for r in range(e.block):
            solved: list[Value] = []
            for c in range(e.block):
                solved.append(inverses[c] * _less_products(
                    e, rest[r, c], solved, [factor[c, k] for k in range(c)]))
                tile[row + r, first + c] = solved[c]
    return failed


def _block_sums(e: InterleavedEmitter, tile: Tile, row: Value, column: Value) -> Sums:
    """Return a block of A less the products of both rows of blocks before ``column``. The sum of
    products is subtracted as a whole, as LAPACK does: partial sums are smaller than A."""
    is_diagonal = row is column
    positions = [(r, c) for r in range(e.block) for c in range(r + 1 if is_diagonal else e.block)]

    def step(k: Value, *sums: Value) -> list[Value]:
        left = [tile[row + r, k] for r in range(e.block)]
        right = left if is_diagonal else [tile[column + c, k] for c in range(e.block)]
        return [e.plus_product(x, left[r], right[c]) for x, (r, c) in zip(sums, positions)]
    sums = e.fold(0, column, [e.const(0)] * len(positions), step)
    return {(r, c): tile[row + r, column + c] - x for (r, c), x in zip(positions, sums)}


def _less_products(e: InterleavedEmitter, x: Value, a: Sequence[Value], b: Sequence[Value]
                   ) -> Value:
    """x - a0 b0 - a1 b1 - ..."""
    for p, q in zip(a, b):
        x = e.minus_product(x, p, q)
    return x


# ---- LU -----------------------------------------------------------------------------------------


def _choose_pivot(e: InterleavedEmitter, a: Tile, j: Value, rows: Value) -> Value:
    """Exchange elements of column j, and divide those below the pivot by it; return its row."""
    def better(i: Value, best: Value, pivot: Value, value: Value) -> list[Value]:
        x = a[i, j]
        is_better = abs(x) > best
        return [e.choose(is_better, abs(x), best), e.choose(is_better, e.splat(i), pivot),
                e.choose(is_better, x, value)]
    top = a[j, j]
    _, pivot, value = e.fold(j + 1, rows, [abs(top), e.splat(j), top], better)
    divisor = e.choose(value.eq(0), 1.0, value)
    with e.loop(j + 1, rows) as i:
        a[i, j] = e.choose(pivot.eq(i), top, a[i, j]) / divisor
    a[j, j] = value
    return pivot


def _exchange(e: InterleavedEmitter, x: Tile, j: Value, pivot: Value, rows: Value,
              columns: Sequence[Value], factors: Tile | None = None) -> None:
    """Exchange row j with the row of the pivot, in some columns; with the factors of column j,
    subtract so many times row j from the rows below."""
    tops = [x[j, c] for c in columns]

    def find(i: Value, *row: Value) -> list[Value]:
        is_pivot = pivot.eq(i)
        return [e.choose(is_pivot, x[i, c], y) for c, y in zip(columns, row)]
    chosen = e.fold(j + 1, rows, tops, find)
    for c, y in zip(columns, chosen):
        x[j, c] = y
    with e.loop(j + 1, rows) as i:
        is_pivot = pivot.eq(i)
        moved = [e.choose(is_pivot, top, x[i, c]) for c, top in zip(columns, tops)]
        if factors is not None:
            factor = factors[i, j]
            moved = [e.minus_product(y, factor, z) for y, z in zip(moved, chosen)]
        for c, y in zip(columns, moved):
            x[i, c] = y


def lu(e: InterleavedEmitter) -> Plan:
    """Also lu_diagonal: then factors left of the pivot stay in the rows where they are."""
    is_whole = e.arg.routine == "lu"
    rows = "m" if is_whole else "n"
    a, pivots, order = e.tile(rows, "n"), e.tile("k", dtype=dtypes.int32), \
        e.tile(rows, dtype=dtypes.int32)
    diagonal = a if is_whole else e.tile("n")

    def run() -> None:
        m, n = e.index(rows), e.index("n")
        e.read(0, a)
        with e.loop(0, m) as i:
            order[i, 0] = e.splat(i)
        with e.loop(0, "k") as j:
            pivot = _choose_pivot(e, a, j, m)
            pivots[j, 0] = pivot
            _exchange(e, order, j, pivot, m, [e.index(0)])
            for columns in e.column_blocks(j + 1, n):
                _exchange(e, a, j, pivot, m, columns, a)
            if is_whole:
                for columns in e.column_blocks(0, j, e.n_columns // 2):  # half as many, on average
                    _exchange(e, a, j, pivot, m, columns)
            else:
                diagonal[j, 0] = a[j, j]
        for index, tile in enumerate((diagonal, pivots, order)):
            e.write(index, tile)
    return run


def solve(e: InterleavedEmitter) -> Plan:
    """Eliminate the rows of a and b together, then substitute backward."""
    a, b = e.tile("n", "n"), e.tile("n", "r")

    def run() -> None:
        n, r = e.index("n"), e.index("r")
        e.read(0, a)
        e.read(1, b)
        with e.loop(0, n) as j:
            pivot = _choose_pivot(e, a, j, n)
            for x, first in ((a, j + 1), (b, e.index(0))):
                for columns in e.column_blocks(first, x.columns):
                    _exchange(e, x, j, pivot, n, columns, a)
        _substitute(e, a, b, n, r, lower=False)
        e.write(0, b)
    return run


def _substitute(e: InterleavedEmitter, a: Tile, b: Tile, n: Value, sides: Value, lower: bool,
                transposed: bool = False, unit: bool = False, right: bool = False) -> None:
    """Solve a x = b for a triangle a; ``transposed``: for its transpose; ``right``: the right-hand
    sides are rows of b."""
    forward = lower != transposed

    def at(i: Value, c: Value) -> tuple[Value, Value]:
        return (c, i) if right else (i, c)
    for columns in e.column_blocks(0, sides):
        with e.loop(0, n) as k:
            i = k if forward else n - 1 - k
            start, stop = (e.index(0), i) if forward else (i + 1, n)

            def step(known: Value, *sums: Value, i: Value = i, columns: list[Value] = columns
                     ) -> list[Value]:
                factor = a[known, i] if transposed else a[i, known]
                return [e.minus_product(x, factor, b[at(known, c)])
                        for x, c in zip(sums, columns)]
            rest = e.fold(start, stop, [b[at(i, c)] for c in columns], step)
            if not unit:
                diagonal = a[i, i]
                rest = [x / diagonal for x in rest]
            for x, c in zip(rest, columns):
                b[at(i, c)] = x


def triangular_solve(e: InterleavedEmitter) -> Plan:
    right = "right" in e.options
    a, b = e.tile("n", "n"), e.tile(*("rn" if right else "nr"))

    def run() -> None:
        e.read(0, a)
        e.read(1, b)
        _substitute(e, a, b, e.index("n"), e.index("r"), "lower" in e.options,
                    ("transpose" in e.options) != right, "unit" in e.options, right)
        e.write(0, b)
    return run


def lu_solve(e: InterleavedEmitter) -> Plan:
    a, order = e.tile("n", "n"), e.tile("n", dtype=dtypes.int32)
    b, x = e.tile("n", "r"), e.tile("n", "r")

    def run() -> None:
        n, r = e.index("n"), e.index("r")
        e.read(1, a)
        e.read(2, order)
        if "transpose" in e.options:
            e.read(3, b)
            _substitute(e, a, b, n, r, lower=False, transposed=True)
            _substitute(e, a, b, n, r, lower=True, transposed=True, unit=True)
            _scatter_rows(e, x, b, order)
        else:
            e.read(3, b)
            with e.loop(0, n) as i:
                row = order[i, 0]
                with e.loop(0, r) as c:
                    x[i, c] = e.gather(b, row, c)
            _substitute(e, a, x, n, r, lower=True, unit=True)
            _substitute(e, a, x, n, r, lower=False)
        e.write(0, x)
    return run


def _scatter_rows(e: InterleavedEmitter, target: Tile, source: Tile, order: Tile) -> None:
    """Row i of the source becomes row order[i] of the target."""
    n = e.index("n")
    for columns in e.column_blocks(0, source.columns):
        with e.loop(0, n) as k:
            def find(i: Value, *row: Value, k: Value = k, columns: list[Value] = columns
                     ) -> list[Value]:
                is_row = order[i, 0].eq(k)
                return [e.choose(is_row, source[i, c], y) for c, y in zip(columns, row)]
            rows = e.fold(0, n, [e.const(0)] * len(columns), find)
            for c, y in zip(columns, rows):
                target[k, c] = y


# ---- QR -----------------------------------------------------------------------------------------


def qr(e: InterleavedEmitter) -> Plan:
    a, taus = e.tile("m", "n"), e.tile("k")
    columns: Length = "m" if "full" in e.options else "k"
    q = e.tile("m", columns)

    def run() -> None:
        e.read(0, a)
        factor_qr(e, a, taus, q, e.index("m"), e.index("n"))
        e.write(0, q)
        e.write(1, a)
    return run


def factor_qr(e: InterleavedEmitter, a: Tile, taus: Tile, q: Tile, m: Value, n: Value) -> None:
    """Overwrite a by the triangular factor, and write the orthogonal one, by Householder
    reflections with LAPACK's signs."""
    k = e.index("k")
    with e.loop(0, k) as j:
        taus[j, 0] = reflector(e, a, j, j, m)
        reflect(e, a, a, j, j, taus[j, 0], j + 1, m, n)
    with e.loop(0, m) as i, e.loop(0, q.columns) as j:
        q[i, j] = e.const(0)
    with e.loop(0, q.columns) as j:
        q[j, j] = e.const(1)
    with e.loop(0, k) as reverse:
        j = k - 1 - reverse
        reflect(e, q, a, j, j, taus[j, 0], j, m, q.columns)
    with e.loop(0, k) as j, e.loop(j + 1, m) as i:
        a[i, j] = e.const(0)


def reflector(e: InterleavedEmitter, a: Tile, top_row: Value, j: Value, m: Value) -> Value:
    """Replace column j from a row on by its length and the reflection that makes it so, which is
    found at the scale of the largest element. Return the factor of the reflection."""
    below, = e.fold(top_row + 1, m, [e.const(0)], lambda i, x: [e.largest(x, abs(a[i, j]))])
    top = a[top_row, j]
    is_done = below.eq(0)
    largest = e.largest(below, abs(top))
    scale = e.choose(largest.eq(0), 1.0, largest)

    def add_square(i: Value, total: Value) -> list[Value]:
        x = a[i, j] / scale
        a[i, j] = x
        return [e.plus_product(total, x, x)]
    scaled_top = top / scale
    total, = e.fold(top_row + 1, m, [scaled_top * scaled_top], add_square)
    length = e.sqrt(total)
    beta = e.choose(is_done, 1.0, e.choose(top >= 0, -length, length))
    gap = e.choose(is_done, 1.0, scaled_top - beta)
    with e.loop(top_row + 1, m) as i:
        a[i, j] = a[i, j] / gap
    a[top_row, j] = e.choose(is_done, top, beta * scale)
    return e.choose(is_done, 0.0, (beta - scaled_top) / beta)


def reflect(e: InterleavedEmitter, x: Tile, a: Tile, top_row: Value, j: Value, tau: Value,
            first: Value, m: Value, n: Value) -> None:
    """Reflect the columns of x from ``first`` on by the vector in column j below a row."""
    for columns in e.column_blocks(first, n):
        tops = [x[top_row, c] for c in columns]

        def step(i: Value, *sums: Value, columns: list[Value] = columns) -> list[Value]:
            v = a[i, j]
            return [e.plus_product(y, v, x[i, c]) for y, c in zip(sums, columns)]
        weights = [tau * y for y in e.fold(top_row + 1, m, tops, step)]
        for c, top, w in zip(columns, tops, weights):
            x[top_row, c] = top - w
        with e.loop(top_row + 1, m) as i:
            v = a[i, j]
            rows = [e.minus_product(x[i, c], v, w) for c, w in zip(columns, weights)]
            for c, y in zip(columns, rows):
                x[i, c] = y
