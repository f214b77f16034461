"""Eigenvalues and singular values by Jacobi rotations, as loops over whole arrays.

    before  LINALG eigvalsh (p0)                                    p0: (1000, 4, 4)
    after   SCAN of 3 * sweeps steps over (A, V), each of 2 rotations of all matrices at once

A step rotates n / 2 disjoint pairs of columns, column i of the left half with column i of the
right half; then all columns but the first move on by one place, as in a tournament, so n - 1 steps
meet every pair (a sweep) and restore the order. In the loop the batch is the last axis, so that a
vector holds the same element of several matrices, and columns move without shuffles. The number of
sweeps is fixed: convergence is quadratic, and nothing waits for a matrix with NaN. Sources: G. H.
Golub and C. F. Van Loan, Matrix Computations, 8.5 (the rotation and the order); M. R. Hestenes,
"Inversion of matrices by biorthogonalization" (1958), for singular values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.formulas import complex_functions
from fnx.core.ir import build, build_calls, ops
from fnx.core.ir.expr import Expr, imag, real, sqrt, where
from fnx.core.ir.uop import UOp

Rotation = tuple[Expr, Expr, Expr]  # cosine, sine, phase of the second column, for each pair


def sweeps(n: int, bits: int) -> int:
    """Return the number of sweeps for matrices of n columns."""
    return 4 + math.ceil(math.log2(max(n, 2))) + (bits > 32)


def eigh(a: UOp, lower: bool) -> tuple[UOp, UOp]:
    """Return the eigenvalues of Hermitian matrices (batch, n, n), ascending, and the vectors."""
    size = a.shape[-1]
    if size < 2:
        return build.reshape(_real(Expr(a)).node, a.shape[:-1]), build.const(1, a.dtype, a.shape)
    odd = size % 2
    full = _hermitian(build.permute(a, (1, 2, 0)), lower)
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
    values = _diagonal(_real(Expr(out)))
    ordered, picked = _sorted(values, [Expr(vectors)], size, descending=False)
    return ordered, build.shrink(picked[0], [(0, a.shape[0]), (0, size), (0, size)])


def svd(a: UOp) -> tuple[UOp, UOp, UOp]:
    """Return singular values of matrices (batch, m, n) with m >= n, descending; the left vectors,
    times these values, as columns; and the right vectors as columns."""
    size = a.shape[-1]
    odd = size % 2 if size > 1 else 0
    padded = build.pad(build.permute(a, (1, 2, 0)), [(0, 0), (0, odd), (0, 0)])
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
    norms = sqrt(_sum(_square(Expr(x)), 0))
    values, (left, right) = _sorted(norms, [Expr(x), Expr(v)], size, descending=True)
    return values, left, build.shrink(right, [(0, a.shape[0]), (0, size), (0, size)])


def adjoint(x: UOp) -> UOp:
    """Return the conjugate transposes of matrices (batch, m, n)."""
    return _conj(Expr(build.permute(x, (0, 2, 1)))).node


def scaled_by_phase(q: UOp, r: UOp) -> UOp:
    """Return the columns of q (batch, m, n), each times the phase of the diagonal element of r."""
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
    phase = where(is_zero, 1, cross / divisor.cast(cross.dtype))
    return cosine.cast(cross.dtype), (tangent * cosine).cast(cross.dtype), phase


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
    diagonal = _real(_diagonal(x)).node
    top, bottom = (Expr(build.shrink(diagonal, [(i, i + h), (0, batch)])) for i in (0, h))
    block = Expr(build.shrink(x.node, [(0, h), (h, n), (0, batch)]))
    return _rotation(top, bottom, _diagonal(block))


def _one_sided(x: Expr) -> Rotation:
    """The rotations of pairs of columns that make them orthogonal."""
    left, right = _halves(x)
    return _rotation(_sum(_square(left), 0), _sum(_square(right), 0), _sum(_conj(left) * right, 0))


def _rotate(x: Expr, rotation: Rotation) -> Expr:
    """Rotate pairs of columns of the two halves."""
    left, right = _halves(x)
    cosine, sine, phase = (_across(r, left.shape) for r in rotation)
    right = _conj(phase) * right if x.dtype.is_complex else phase * right
    return _joined([cosine * left - sine * right, sine * left + cosine * right])


def _conjugate(rotation: Rotation) -> Rotation:
    cosine, sine, phase = rotation
    return cosine, sine, _conj(phase)


def _move_on(x: Expr) -> Expr:
    """Move all columns but the first on by one place of the tournament."""
    h = x.shape[1] // 2
    if h == 1:
        return x
    return _joined([_part(x, *bounds) for bounds in (
        (0, 1), (h, h + 1), (1, h - 1), (h + 1, 2 * h), (h - 1, h))])


# ---- arrays -------------------------------------------------------------------------------------


def _real(x: Expr) -> Expr:
    return real(x) if x.dtype.is_complex else x


def _conj(x: Expr) -> Expr:
    return complex_functions.conjugate(x) if x.dtype.is_complex else x


def _square(x: Expr) -> Expr:
    return real(x) * real(x) + imag(x) * imag(x) if x.dtype.is_complex else x * x


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
    other = _conj(_transposed(x))
    in_triangle = rows >= columns if lower else rows <= columns
    full = where(in_triangle, x, other)
    if not a.dtype.is_complex:
        return full.node
    return where(rows.eq(columns), real(full).cast(a.dtype), full).node


def _sorted(values: Expr, matrices: Sequence[Expr], size: int, descending: bool
            ) -> tuple[UOp, list[UOp]]:
    """Return the first ``size`` numbers of each matrix in order, and the columns of matrices
    (rows, columns, batch) in the same order, as (batch, rows, columns)."""
    batch = values.shape[-1]
    keys = build.permute(build.shrink(values.node, [(0, size), (0, batch)]), (1, 0))
    ordered, order = build_calls.sort([build.neg(keys) if descending else keys], 1, (0, -1))

    def pick(x: Expr) -> UOp:
        rows = x.shape[0]
        shape = (batch, rows, size)
        columns = build.permute(_part(x, 0, size).node, (2, 0, 1))
        index = build.expand(build.reshape(order, (batch, 1, size)), shape)
        return build.gather(columns, _indices(shape, 0).node, _indices(shape, 1).node, index)
    return build.neg(ordered) if descending else ordered, [pick(x) for x in matrices]
