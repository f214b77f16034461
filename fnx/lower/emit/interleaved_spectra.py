"""Eigenvalues and singular values of many small matrices, one in each lane.

Eigenvalues of symmetric matrices: reflections to tridiagonal form, then QL steps with implicit
shifts. A step runs over the rows that some lane needs; the lanes that do not need one keep their
numbers. Singular values: rotations that make pairs of columns orthogonal, until all are. The number
of steps is bounded, and a matrix with NaN or infinities stops at once and gives NaN. Sources: G. H.
Golub and C. F. Van Loan, Matrix Computations, 8.3; W. H. Press et al., Numerical Recipes, tqli; M.
R. Hestenes, "Inversion of matrices by biorthogonalization" (1958).
"""

from __future__ import annotations

import numpy as np

from fnx.core.ir import dtypes, ops
from fnx.lower.emit.interleaved_factors import factor_qr, reflect, reflector
from fnx.lower.emit.interleaved_linalg import InterleavedEmitter, Tile, Value
from fnx.lower.emit.linalg_emitter import Plan

_MOST_STEPS = 30  # of LAPACK's steqr, per eigenvalue


def _epsilon(e: InterleavedEmitter) -> float:
    return float(np.finfo(e.dtype.np).eps)


def _least_square(e: InterleavedEmitter) -> float:
    """The least sum of squares whose rounding is relative to it."""
    return float(np.finfo(e.dtype.np).tiny) / _epsilon(e)


def _scale(e: InterleavedEmitter, a: Tile, rows: Value) -> tuple[Value, Value]:
    """Scale matrices by a power of two, so that no square overflows. Return its inverse, and NaN
    for matrices with NaN or infinities, else 0."""
    def step(i: Value, largest: Value, rest: Value) -> list[Value]:
        return e.fold(0, a.columns, [largest, rest], lambda j, x, y: [
            e.largest(x, abs(a[i, j])), y + a[i, j] * 0.0])
    largest, rest = e.fold(0, rows, [e.const(0)] * 2, step)
    factor, inverse = e.power_of_two(largest)
    with e.loop(0, rows) as i, e.loop(0, a.columns) as j:
        a[i, j] = a[i, j] * factor
    return inverse, rest


class _Order:
    """The order of numbers: ``index[p]`` is where the p-th one is."""

    def __init__(self, e: InterleavedEmitter, length: str) -> None:
        self.e, self.length = e, length
        self.ranks, self.index = (e.tile(length, dtype=dtypes.int32) for _ in range(2))

    def sort(self, numbers: Tile, target: Tile, descending: bool = False) -> None:
        """Store the numbers in order."""
        e = self.e
        with e.loop(0, self.length) as i:
            x = numbers[i, 0]

            def count(j: Value, rank: Value) -> list[Value]:
                y = numbers[j, 0]
                is_before = (y > x if descending else y < x) | (
                    y.eq(x) & (e.splat(j) < e.splat(i)))
                return [rank + e.choose(is_before, e.const(1, dtypes.int32), 0)]
            self.ranks[i, 0], = e.fold(0, self.length, [e.const(0, dtypes.int32)], count)
        with e.loop(0, self.length) as p:
            def find(i: Value, index: Value, value: Value) -> list[Value]:
                is_next = self.ranks[i, 0].eq(p)
                return [e.choose(is_next, e.splat(i), index),
                        e.choose(is_next, numbers[i, 0], value)]
            index, target[p, 0] = e.fold(0, self.length, [
                e.const(0, dtypes.int32), e.const(0)], find)
            self.index[p, 0] = index


# ---- symmetric matrices -------------------------------------------------------------------------


def eigh(e: InterleavedEmitter) -> Plan:
    vectors = e.arg.routine == "eigh"
    a, taus, work = e.tile("n", "n"), e.tile("n"), e.tile("n")
    d, off, order = e.tile("n"), e.tile("n"), _Order(e, "n")
    v = e.tile("n", "n") if vectors else None

    def run() -> None:
        n = e.index("n")
        e.read(0, a)
        if "symmetrize" in e.options:
            e.symmetrize(a)
        else:
            with e.loop(0, n) as i, e.loop(0, i) as j:
                if "lower" in e.options:
                    a[j, i] = a[i, j]
                else:
                    a[i, j] = a[j, i]
        inverse, rest = _scale(e, a, n)
        _tridiagonalize(e, a, taus, work, off, n)
        with e.loop(0, n) as i:
            d[i, 0] = a[i, i]
        if v is not None:
            _accumulate(e, a, taus, v, n)
        _diagonalize(e, d, off, v, n)
        order.sort(d, work)
        with e.loop(0, n) as i:
            work[i, 0] = work[i, 0] * inverse + rest
        e.write(0, work)
        if v is not None:
            with e.loop(0, n) as p:
                index = order.index[p, 0]
                with e.loop(0, n) as i:
                    a[i, p] = e.gather(v, i, index) + rest
            e.write(1, a)
    return run


def _tridiagonalize(e: InterleavedEmitter, a: Tile, taus: Tile, work: Tile, off: Tile, n: Value
                    ) -> None:
    """H a H for a reflection of each column below the diagonal: a - v w' - w v'."""
    with e.loop(0, n - 1) as j:
        first = j + 1
        tau = reflector(e, a, first, j, n)
        taus[j, 0] = tau
        off[j, 0] = a[first, j]
        a[first, j] = e.const(1)
        for columns in e.column_blocks(first, n):
            def multiply(k: Value, *sums: Value, j: Value = j, columns: list[Value] = columns
                         ) -> list[Value]:
                return [e.plus_product(x, a[k, j], a[k, c]) for x, c in zip(sums, columns)]
            sums = e.fold(first, n, [e.const(0)] * len(columns), multiply)
            for c, x in zip(columns, sums):
                work[c, 0] = tau * x
        product, = e.fold(first, n, [e.const(0)], lambda k, x: [
            e.plus_product(x, work[k, 0], a[k, j])])
        half = tau * product * 0.5
        with e.loop(first, n) as k:
            work[k, 0] = e.minus_product(work[k, 0], half, a[k, j])
        for columns in e.column_blocks(first, n):
            vs, ws = [a[c, j] for c in columns], [work[c, 0] for c in columns]
            with e.loop(first, n) as i:
                v, w = a[i, j], work[i, 0]
                row = [e.minus_product(e.minus_product(a[i, c], v, wc), w, vc)
                       for c, vc, wc in zip(columns, vs, ws)]
                for c, x in zip(columns, row):
                    a[i, c] = x


def _accumulate(e: InterleavedEmitter, a: Tile, taus: Tile, v: Tile, n: Value) -> None:
    """Multiply the reflections."""
    e.identity(v, 0, n)
    with e.loop(0, n - 1) as reverse:
        j = n - 2 - reverse
        reflect(e, v, a, j + 1, j, taus[j, 0], j + 1, n, n)


def _diagonalize(e: InterleavedEmitter, d: Tile, off: Tile, v: Tile | None, n: Value) -> None:
    """QL steps: off[i] is between d[i] and d[i + 1]; for each i until it vanishes."""
    epsilon = _epsilon(e)
    off[n - 1, 0] = e.const(0)
    with e.loop(0, n - 1) as first, e.repeat(_MOST_STEPS) as leave_if:
        def find(reverse: Value, last: Value) -> list[Value]:
            i = n - 2 - reverse
            limit = (abs(d[i, 0]) + abs(d[i + 1, 0])) * epsilon
            return [e.choose(abs(off[i, 0]) > limit, last, e.splat(i))]
        last, = e.fold(0, n - 1 - first, [e.splat(n - 1)], find)
        is_done = last.eq(first)
        leave_if(is_done)
        _step(e, d, off, v, n, first, last, is_done)


def _step(e: InterleavedEmitter, d: Tile, off: Tile, v: Tile | None, n: Value, first: Value,
          last: Value, is_done: Value) -> None:
    """A QL step of rows ``first`` to ``last``, another one in each lane."""
    ratio = (d[first + 1, 0] - d[first, 0]) / (off[first, 0] * 2.0)
    length = e.hypotenuse(ratio)
    least_square = _least_square(e)
    shift = off[first, 0] / (ratio + e.choose(ratio < 0, -length, length)) - d[first, 0]

    def rotate(reverse: Value, g: Value, s: Value, c: Value, p: Value) -> list[Value]:
        i = n - 2 - reverse
        diagonal, between, below = d[i, 0], off[i, 0], d[i + 1, 0]
        starts = last.eq(i + 1)
        is_on = (last > e.splat(i)) & ~is_done
        g, s = e.choose(starts, below + shift, g), e.choose(starts, 1.0, s)
        c, p = e.choose(starts, 1.0, c), e.choose(starts, 0.0, p)
        f, b = s * between, c * between
        square = e.plus_product(f * f, g, g)
        is_zero = square < least_square
        r = e.choose(is_zero, 0.0, e.sqrt(square))
        inverse = 1.0 / e.choose(is_zero, 1.0, r)
        s = e.choose(is_on, f * inverse, 0.0)
        c = e.choose(is_on & ~is_zero, g * inverse, 1.0)
        moved = below - p
        t = e.plus_product((diagonal - moved) * s, c * 2.0, b)
        p = s * t
        off[i + 1, 0] = e.choose(is_on, e.choose(starts, 0.0, r), off[i + 1, 0])
        d[i + 1, 0] = e.choose(is_on, moved + p, below)
        if v is not None:
            _rotate_columns(e, v, i, s, c, n)
        return [c * t - b, s, c, p]
    init = [e.const(0), e.const(1), e.const(1), e.const(0)]
    g, _, _, p = e.fold(0, n - 1 - first, init, rotate)
    d[first, 0] = e.choose(is_done, d[first, 0], d[first, 0] - p)
    off[first, 0] = e.choose(is_done, off[first, 0], g)


def _rotate_columns(e: InterleavedEmitter, v: Tile, i: Value, s: Value, c: Value, n: Value
                    ) -> None:
    with e.loop(0, n) as k:
        x, y = v[k, i], v[k, i + 1]
        v[k, i + 1] = e.plus_product(s * x, c, y)
        v[k, i] = e.minus_product(c * x, s, y)


# ---- singular values ----------------------------------------------------------------------------


def svd(e: InterleavedEmitter) -> Plan:
    """Rows of x are the columns of a matrix with as many rows or more: a, or else its transpose.
    ``first`` has the singular vectors that belong to its rows, ``second`` the other ones."""
    shorter, longer, vectors = "k", e.most("m", "n"), e.arg.routine == "svd"
    a, x = e.tile("m", "n"), e.tile(shorter, longer)
    norms, s, taus, order = e.tile("k"), e.tile("k"), e.tile("k"), _Order(e, "k")
    first = e.tile(longer, shorter) if vectors else None
    second = e.tile(shorter, shorter) if vectors else None
    columns = e.tile(longer, shorter) if vectors else None
    left, right = (e.tile("m", "k"), e.tile("k", "n")) if vectors else (None, None)

    def run() -> None:
        m, n, k, length = e.index("m"), e.index("n"), e.index("k"), x.columns
        is_tall = Value(e, e.lines.add(ops.CMPLE, dtypes.bool_, (n.node, m.node)))
        e.read(0, a)
        inverse, rest = _scale(e, a, m)
        with e.loop(0, k) as i, e.loop(0, length) as j:
            with e.when(is_tall):
                x[i, j] = a[j, i]
            with e.when(~is_tall):
                x[i, j] = a[i, j]
        if second is not None:
            e.identity(second, 0, k)
        with e.repeat(_MOST_STEPS) as leave_if:
            leave_if(_sweep(e, x, second, k, length).eq(0))
        with e.loop(0, k) as i:
            square, = e.fold(0, length, [e.const(0)], lambda j, y: [
                e.plus_product(y, x[i, j], x[i, j])])
            norms[i, 0] = e.sqrt(square)
        order.sort(norms, s, descending=True)
        with e.loop(0, k) as i:
            s[i, 0] = s[i, 0] * inverse + rest
        e.write(0, s)
        if first is None or second is None or columns is None or left is None or right is None:
            return
        with e.loop(0, k) as i:
            index = order.index[i, 0]
            with e.loop(0, length) as j:
                columns[j, i] = e.gather(x, index, j)
        _orthonormalize(e, columns, taus, first, length, k, rest)
        with e.loop(0, k) as i:
            index = order.index[i, 0]
            with e.loop(0, length) as j:
                with e.when(is_tall):
                    left[j, i] = first[j, i]
                with e.when(~is_tall):
                    right[i, j] = first[j, i]
            with e.loop(0, k) as j:
                other = e.gather(second, index, j) + rest
                with e.when(is_tall):
                    right[i, j] = other
                with e.when(~is_tall):
                    left[j, i] = other
        e.write(1, left)
        e.write(2, right)
    return run


def _sweep(e: InterleavedEmitter, x: Tile, v: Tile | None, k: Value, length: Value) -> Value:
    """Make all pairs of rows orthogonal, one after the other; return 1 where one was not."""
    epsilon, least = _epsilon(e), _least_square(e)

    def rotate(p: Value, q: Value, changed: Value) -> list[Value]:
        def step(j: Value, *sums: Value) -> list[Value]:
            a, b = x[p, j], x[q, j]
            return [e.plus_product(y, *pair) for y, pair in zip(sums, ((a, a), (b, b), (a, b)))]
        alpha, beta, gamma = e.fold(0, length, [e.const(0)] * 3, step)
        bound = e.sqrt(alpha) * e.sqrt(beta) * epsilon
        is_on = (abs(gamma) > bound) & (abs(gamma) > least)
        zeta = (beta - alpha) / (e.choose(is_on, gamma, 1.0) * 2.0)
        size = 1.0 / (abs(zeta) + e.hypotenuse(zeta))
        tangent = e.choose(is_on, e.choose(zeta < 0, -size, size), 0.0)
        cosine = 1.0 / e.hypotenuse(tangent)
        sine = tangent * cosine
        half = sine / (1.0 + cosine)  # of the angle, its tangent: small angles round little
        for tile, stop in ((x, length), (v, k)):
            if tile is not None:
                with e.loop(0, stop) as j:
                    a, b = tile[p, j], tile[q, j]
                    tile[p, j] = e.minus_product(a, sine, e.plus_product(b, half, a))
                    tile[q, j] = e.plus_product(b, sine, e.minus_product(a, half, b))
        return [e.choose(is_on, 1.0, changed)]

    def row(p: Value, changed: Value) -> list[Value]:
        return e.fold(p + 1, k, [changed], lambda q, c: rotate(p, q, c))
    changed, = e.fold(0, k, [e.const(0)], row)
    return changed


def _orthonormalize(e: InterleavedEmitter, x: Tile, taus: Tile, q: Tile, m: Value, k: Value,
                    rest: Value) -> None:
    """Divide orthogonal columns by their lengths, by a QR factorization: its triangular factor is
    diagonal up to rounding, and columns of zeros get a direction."""
    factor_qr(e, x, taus, q, m, k)
    with e.loop(0, k) as j:
        sign = e.choose(x[j, j] < 0, e.const(-1), 1.0)
        with e.loop(0, m) as i:
            q[i, j] = q[i, j] * sign + rest
