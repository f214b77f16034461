"""Transforms of real arrays, by complex ones of half the length.

A real array of even length n is read as n / 2 pairs of neighbors, z. The transform Z of z gives
that of the array: with E the transform of the even elements and O that of the odd ones

    Z[k] = E[k] + i O[k]     E[k] = (Z[k] + Z*[-k]) / 2     O[k] = (Z[k] - Z*[-k]) / 2i
    X[k] = E[k] + w^k O[k]   w = exp(-2i pi / n)            k <= n / 2

These are formulas over graphs; lower/emit/fft.py has the same as lines of a program.
"""

from __future__ import annotations

from fnx.core.ir import build
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp

Parts = tuple[UOp, UOp]


def to_half_spectrum(z: Parts, w: Parts, axis: int) -> Parts:
    """Return 2 X from both parts of Z; ``w`` holds the roots for k < n / 2, of the same shape."""
    re, im = z
    x, y, u, v = Expr(re), Expr(im), Expr(_mirror(re, axis)), Expr(_mirror(im, axis))
    c, s = Expr(w[0]), Expr(w[1])
    p, q = y + v, u - x
    out_re, out_im = (x + u + (c * p - s * q)).node, (y - v + (c * q + s * p)).node
    first_re, first_im = take(re, axis, 0, 1), take(im, axis, 0, 1)
    last = build.sub(first_re, first_im)  # the middle frequency is real, as the first one is
    return (build.concat([out_re, build.add(last, last)], axis),
            build.concat([out_im, build.const_like(last, 0)], axis))


def from_half_spectrum(x: Parts, w: Parts, axis: int) -> Parts:
    """Return 2 Z from both parts of X. Imaginary parts of the first and of the last element are
    taken as 0."""
    m = x[0].shape[axis] - 1
    parts = x[0], _inner(x[1], axis)
    mirror_re, mirror_im = [build.flip(take(p, axis, 1, m + 1), (axis,)) for p in parts]
    a, b, u, v = [Expr(p) for p in (*[take(p, axis, 0, m) for p in parts], mirror_re, mirror_im)]
    c, s = Expr(w[0]), Expr(w[1])
    p, q = a - u, b + v
    return (a + u + (s * p - c * q)).node, (b - v + (s * q + c * p)).node


def take(x: UOp, axis: int, start: int, stop: int) -> UOp:
    """Return a part of an array along an axis."""
    return build.shrink(x, [(start, stop) if a == axis else (0, n) for a, n in enumerate(x.shape)])


def _mirror(x: UOp, axis: int) -> UOp:
    """Return x[-k], where -0 is 0."""
    m = x.shape[axis]
    if m == 1:
        return x
    return build.concat([take(x, axis, 0, 1), build.flip(take(x, axis, 1, m), (axis,))], axis)


def _inner(im: UOp, axis: int) -> UOp:
    """Replace the first and the last element by 0."""
    n = im.shape[axis]
    if n <= 2:
        return build.const_like(im, 0)
    return build.pad(take(im, axis, 1, n - 1), [
        (1, 1) if a == axis else (0, 0) for a in range(len(im.shape))])
