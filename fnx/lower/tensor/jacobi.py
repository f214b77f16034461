"""Eigenvalues and singular values by Jacobi rotations, as loops over whole arrays.

    before  LINALG eigvalsh (p0)                                    p0: (1000, 4, 4)
    after   SCAN of 3 * sweeps steps over (A, V), each of 2 rotations of all matrices at once

A step rotates n / 2 disjoint pairs of columns, column i of the left half with column i of the
right half; then all columns but the first move on by one place, as in a tournament, so n - 1 steps
meet every pair (a sweep) and restore the order. In the loop the batch is the last axis, so that a
vector holds the same element of several matrices, and columns move without shuffles. The number of
sweeps is fixed: convergence is quadratic (scripts/linalg_accuracy.py has the worst spectra), and
nothing waits for a matrix with NaN. Sources: G. H.
Golub and C. F. Van Loan, Matrix Computations, 8.5 (the rotation and the order); M. R. Hestenes,
"Inversion of matrices by biorthogonalization" (1958), for singular values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.formulas import complex_functions
from fnx.core.formulas.elementwise_math import scale_to_one
from fnx.core.formulas.small_matrices import conj, real_part, square
from fnx.core.formulas.small_matrices import size as size_of
from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.expr import Expr, imag, maximum, real, sqrt, where
from fnx.core.ir.uop import UOp

Rotation = tuple[Expr, Expr]  # the sine with its phase, and 1 - cosine, for each pair

# Of the largest element beside the diagonal; smaller ones are not rotated. Where eigenvalues are
# nearly equal any angle makes a small element zero, and it would mix elements that are not small.
_LEAST = 0.01


def sweeps(n: int, bits: int) -> int:
    """Return the number of sweeps for matrices of n columns."""
    return 4 + math.ceil(math.log2(max(n, 2))) * (1 + (bits > 32))


def eigh(a: UOp, lower: bool) -> tuple[UOp, UOp]:
    """Return the eigenvalues of Hermitian matrices (batch, n, n), ascending, and the vectors."""
    size = a.shape[-1]
    if size < 2:
        only = build.reshape(real_part(Expr(a)).node, a.shape[:-1])
        return only, build.const(1, a.dtype, a.shape)
    odd = size % 2
    full, back = _scaled(_hermitian(build.permute(a, (1, 2, 0)), lower))
    padded = build.pad(full, [(0, odd), (0, odd), (0, 0)])
    n = size + odd

    def step(consts: Sequence[UOp], state: Sequence[UOp], xs: Sequence[UOp]
             ) -> tuple[list[UOp], list[UOp]]:
        x, v = map(Expr, state)
        rotation = _two_sided(x)
        rows = _transposed(_move_on(_rotate(x, rotation)))
        x = _transposed(_move_on(_rotate(rows, _conjugate(rotation))))
        return [x.node, _move_on(_rotate(v, rotation)).node], []
    steps = (n - 1) * sweeps(n, a.dtype.real.bits)
    (out, vectors), _ = build_calls.build_scan(step, steps, [], [padded, _identity(padded)], [],
                                               name="rotate")
    values = _diagonal(real_part(Expr(out)))
    values = values * Expr(build.expand(back.node, values.shape))
    ordered, picked = _sorted(values, [Expr(vectors)], size, descending=False)
    return ordered, build.shrink(picked[0], [(0, a.shape[0]), (0, size), (0, size)])


def svd(a: UOp) -> tuple[UOp, UOp, UOp]:
    """Return singular values of matrices (batch, m, n) with m >= n, descending; the left vectors,
    times these values, as columns; and the right vectors as columns."""
    size = a.shape[-1]
    odd = size % 2 if size > 1 else 0
    scaled, back = _scaled(build.permute(a, (1, 2, 0)))
    padded = build.pad(scaled, [(0, 0), (0, odd), (0, 0)])
    n = size + odd
    identity = _identity(build.const(0, a.dtype, (n, n, a.shape[0])))
    x, v = padded, identity
    if n > 1:
        def step(consts: Sequence[UOp], state: Sequence[UOp], xs: Sequence[UOp]
                 ) -> tuple[list[UOp], list[UOp]]:
            x, v = map(Expr, state)
            rotation = _one_sided(x)
            return [_move_on(_rotate(y, rotation)).node for y in (x, v)], []
        steps = (n - 1) * (sweeps(n, a.dtype.real.bits) + 1)
        (x, v), _ = build_calls.build_scan(step, steps, [], [padded, identity], [], name="rotate")
    norms = sqrt(_sum(square(Expr(x)), 0))
    norms = norms * Expr(build.expand(back.node, norms.shape))
    values, (left, right) = _sorted(norms, [Expr(x), Expr(v)], size, descending=True)
    return values, left, build.shrink(right, [(0, a.shape[0]), (0, size), (0, size)])


def adjoint(x: UOp) -> UOp:
    """Return the conjugate transposes of matrices (batch, m, n)."""
    return conj(Expr(build.permute(x, (0, 2, 1)))).node


def scaled_by_phase(q: UOp, r: UOp) -> UOp:
    """Return the columns of q, each times the phase of the diagonal element of r (batch, m, n); q
    may have more columns than r has."""
    batch, rows, n = r.shape
    if rows > n:
        bounds = [(0, batch), (0, q.shape[1])]
        first = scaled_by_phase(build.shrink(q, [*bounds, (0, n)]),
                                build.shrink(r, [(0, batch), (0, n), (0, n)]))
        return build.concat([first, build.shrink(q, [*bounds, (n, rows)])], 2)
    diagonal = _diagonal(Expr(build.permute(r, (1, 2, 0))))
    size = complex_functions.absolute(diagonal) if r.dtype.is_complex else abs(diagonal)
    is_zero = size.eq(0)
    phase = where(is_zero, 1, diagonal / where(is_zero, 1, size).cast(r.dtype))
    across = build.reshape(build.permute(phase.node, (1, 0)), (q.shape[0], 1, q.shape[2]))
    return (Expr(q) * Expr(build.expand(across, q.shape))).node


# ---- rotations ----------------------------------------------------------------------------------


def _rotation(top: Expr, bottom: Expr, cross: Expr) -> Rotation:
    """Return the rotation that makes ``cross`` zero, from both diagonal elements."""
    size = complex_functions.absolute(cross) if cross.dtype.is_complex else abs(cross)
    is_zero = size.eq(0)
    divisor = where(is_zero, 1, size)
    theta = (bottom - top) / (2 * divisor)
    tangent = where(theta < 0, theta.like(-1), 1) / (abs(theta) + _hypotenuse(theta))
    tangent = where(is_zero, 0, tangent)
    cosine = 1 / _hypotenuse(tangent)
    sine = tangent * cosine
    phase = where(is_zero, 1, cross / divisor.cast(cross.dtype))
    return phase * sine.cast(cross.dtype), sine * sine / (1 + cosine)


def _hypotenuse(x: Expr) -> Expr:
    """sqrt(1 + x**2); |x| where the square would overflow."""
    limit = 1e18 if x.dtype.bits == 32 else 1e150
    is_large = abs(x) > limit
    bounded = where(is_large, 0, x)
    return where(is_large, abs(x), sqrt(1 + bounded * bounded))


def _two_sided(x: Expr) -> Rotation:
    """The rotations of A that make A[i, h + i] zero, for all i < h = n / 2."""
    n, _, batch = x.shape
    h = n // 2
    diagonal = real_part(_diagonal(x)).node
    top, bottom = (Expr(build.shrink(diagonal, [(i, i + h), (0, batch)])) for i in (0, h))
    block = Expr(build.shrink(x.node, [(0, h), (h, n), (0, batch)]))
    cross = _diagonal(block)
    sizes = where(_indices(x.shape, 0).eq(_indices(x.shape, 1)), 0, size_of(x))
    least = Expr(build.reduce(sizes.node, ops.MAX, [0, 1])) * _LEAST
    is_small = size_of(cross) < Expr(build.expand(least.node, cross.shape))
    return _rotation(top, bottom, where(is_small, 0, cross))


def _one_sided(x: Expr) -> Rotation:
    """The rotations of pairs of columns that make them orthogonal."""
    left, right = _halves(x)
    return _rotation(_sum(square(left), 0), _sum(square(right), 0), _sum(conj(left) * right, 0))


def _rotate(x: Expr, rotation: Rotation) -> Expr:
    """Rotate pairs of columns of the two halves."""
    left, right = _halves(x)
    sine, lack = (_across(r, left.shape) for r in rotation)
    lack = lack.cast(x.dtype)
    # what is added is small where the angle is, and so is its error (H. Rutishauser)
    return _joined([left - (conj(sine) * right + lack * left),
                    right + (sine * left - lack * right)])


def _conjugate(rotation: Rotation) -> Rotation:
    sine, lack = rotation
    return conj(sine), lack


def _move_on(x: Expr) -> Expr:
    """Move all columns but the first on by one place of the tournament."""
    h = x.shape[1] // 2
    if h == 1:
        return x
    return _joined([_part(x, *bounds) for bounds in (
        (0, 1), (h, h + 1), (1, h - 1), (h + 1, 2 * h), (h - 1, h))])


# ---- arrays -------------------------------------------------------------------------------------


def _scaled(x: UOp) -> tuple[UOp, Expr]:
    """Return matrices times powers of two, so that no square overflows, and what brings them
    back, for each matrix."""
    sizes = abs(real(Expr(x))) if x.dtype.is_complex else abs(Expr(x))
    if x.dtype.is_complex:
        sizes = maximum(sizes, abs(imag(Expr(x))))
    scale, back = scale_to_one(Expr(build.reduce(sizes.node, ops.MAX, [0, 1])))
    factor = build.expand(build.reshape(scale.node, (1, 1, x.shape[2])), x.shape)
    return (Expr(x) * Expr(factor).cast(x.dtype)).node, back


def _sum(x: Expr, axis: int) -> Expr:
    return Expr(build.reduce(x.node, ops.ADD, [axis]))


def _joined(parts: Sequence[Expr]) -> Expr:
    return Expr(build.concat([p.node for p in parts], 1))


def _transposed(x: Expr) -> Expr:
    return Expr(build.permute(x.node, (1, 0, 2)))


def _part(x: Expr, start: int, stop: int) -> Expr:
    """Some of the columns."""
    rows, _, batch = x.shape
    return Expr(build.shrink(x.node, [(0, rows), (start, stop), (0, batch)]))


def _halves(x: Expr) -> tuple[Expr, Expr]:
    h = x.shape[1] // 2
    return _part(x, 0, h), _part(x, h, 2 * h)


def _across(x: Expr, shape: tuple[int, ...]) -> Expr:
    """Expand numbers of columns along the rows."""
    return Expr(build.expand(build.reshape(x.node, (1, *x.shape)), shape))


def _indices(shape: tuple[int, ...], axis: int) -> Expr:
    n = shape[axis]
    core = tuple([n if i == axis else 1 for i in range(len(shape))])
    return Expr(build.expand(build.reshape(build.iota(n), core), shape))


def _identity(like: UOp) -> UOp:
    shape = like.shape
    return build.cast(_indices(shape, 0).eq(_indices(shape, 1)).node, like.dtype)


def _diagonal(x: Expr) -> Expr:
    """The diagonals of square matrices: every (n + 1)-th element."""
    n, _, batch = x.shape
    flat = build.reshape(x.node, (n * n, batch))
    wide = build.reshape(build.pad(flat, [(0, n), (0, 0)]), (n, n + 1, batch))
    return Expr(build.reshape(build.shrink(wide, [(0, n), (0, 1), (0, batch)]), (n, batch)))


def _hermitian(a: UOp, lower: bool) -> UOp:
    """Return matrices of which one triangle is given by the other."""
    rows, columns = _indices(a.shape, 0), _indices(a.shape, 1)
    x = Expr(a)
    other = conj(_transposed(x))
    in_triangle = rows >= columns if lower else rows <= columns
    full = where(in_triangle, x, other)
    if not a.dtype.is_complex:
        return full.node
    return where(rows.eq(columns), real(full).cast(a.dtype), full).node


def _sorted(values: Expr, matrices: Sequence[Expr], size: int, descending: bool
            ) -> tuple[UOp, list[UOp]]:
    """Return the first ``size`` numbers of each matrix in order, and the columns of matrices
    (rows, columns, batch) in the same order, as (batch, rows, columns). A rank is the number of
    values that are before it, so that no sort is needed, which devices do not have."""
    batch = values.shape[-1]
    keys = build.shrink(values.node, [(0, size), (0, batch)])
    square_shape = (size, size, batch)
    first, second = (Expr(build.expand(build.reshape(keys, shape), square_shape)) for shape in (
        (size, 1, batch), (1, size, batch)))
    is_before = second > first if descending else second < first
    rows, columns = _indices(square_shape, 0), _indices(square_shape, 1)
    is_before = is_before | (second.eq(first) & (columns < rows))
    ranks = _sum(is_before.cast(dtypes.int32), 1)
    chosen = Expr(build.expand(build.reshape(ranks.node, (1, size, batch)), square_shape)).eq(rows)
    order = build.permute(_sum(where(chosen, columns, 0), 1).node, (1, 0))

    def pick(x: Expr) -> UOp:
        rows = x.shape[0]
        shape = (batch, rows, size)
        columns = build.permute(_part(x, 0, size).node, (2, 0, 1))
        index = build.expand(build.reshape(order, (batch, 1, size)), shape)
        return build.gather(columns, _indices(shape, 0).node, _indices(shape, 1).node, index)
    ordered = build.gather(build.permute(keys, (1, 0)), _indices((batch, size), 0).node, order)
    return ordered, [pick(x) for x in matrices]
