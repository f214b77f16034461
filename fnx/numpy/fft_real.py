"""Fourier transforms of real arrays, from nodes to nodes of pairs (fnx/numpy/fft_core.py).

A real array of even length n is read as n / 2 pairs of neighbors, which is a RESHAPE. Its transform
Z gives that of the array: with E the transform of the even elements and O that of the odd ones

    Z[k] = E[k] + i O[k]     E[k] = (Z[k] + Z*[-k]) / 2     O[k] = (Z[k] - Z*[-k]) / 2i
    X[k] = E[k] + w^k O[k]   w = exp(-2i pi / n)            k <= n / 2

The inverse goes back the same way. A length that is odd is transformed with zero imaginary parts.
"""

from __future__ import annotations

import numpy as np

from fnx.core.formulas import fft_plan
from fnx.core.ir import build
from fnx.core.ir.expr import Expr
from fnx.core.ir.op import inverse_permutation
from fnx.core.ir.uop import UOp
from fnx.numpy.fft_core import constants, pairs, part, transform


def real_transform(x: UOp, axis: int, scale: float = 1.0) -> UOp:
    """Return the first n / 2 + 1 elements of the transform of a real array, as pairs."""
    n = x.shape[axis]
    if n % 2:
        z = transform(pairs(x, build.const_like(x, 0)), axis, scale=scale)
        return _take(z, axis, 0, n // 2 + 1)
    order = _last(axis, len(x.shape))
    rows = build.permute(x, order)
    z = transform(build.reshape(rows, (*rows.shape[:-1], n // 2, 2)), len(x.shape) - 1,
                  scale=scale / 2)
    z = build.concat([z, _take(z, len(x.shape) - 1, 0, 1)], len(x.shape) - 1)
    re, im, conj_re, conj_im = _with_mirror(z)
    c, s = _roots(n, z)
    odd_re, odd_im = im - conj_im, conj_re - re
    out = pairs((re + conj_re + (c * odd_re - s * odd_im)).node,
                (im + conj_im + (c * odd_im + s * odd_re)).node)
    return build.permute(out, (*inverse_permutation(order), len(order)))


def inverse_real_transform(x: UOp, axis: int, n: int, scale: float = 1.0) -> UOp:
    """Return the real array of length n that has this transform, times n: the imaginary parts of
    the first element, and of the last one if n is even, are taken as 0."""
    order = _last(axis, len(x.shape) - 1)
    x = build.permute(x, (*order, len(order)))
    x = _drop_imaginary(x, [0] if n % 2 else [0, n // 2])
    along = len(order) - 1
    if n % 2:
        mirror = build.flip(_take(x, along, 1, x.shape[along]), (along,))
        whole = build.concat([x, pairs(part(mirror, 0), build.neg(part(mirror, 1)))], along)
        out = part(transform(whole, along, True, scale), 0)
    else:
        re, im, conj_re, conj_im = _with_mirror(x)
        c, s = _roots(n, x)
        d_re, d_im = re - conj_re, im - conj_im
        z = pairs((re + conj_re + (s * d_re - c * d_im)).node,
                  (im + conj_im + (s * d_im + c * d_re)).node)
        z = transform(_take(z, along, 0, n // 2), along, True, scale)
        out = build.reshape(z, (*x.shape[:along], n))
    return build.permute(out, inverse_permutation(order))


def _last(axis: int, rank: int) -> tuple[int, ...]:
    """Return the permutation that moves an axis to the end."""
    return (*[a for a in range(rank) if a != axis], axis)


def _take(x: UOp, axis: int, start: int, stop: int) -> UOp:
    return build.shrink(x, [(start, stop) if a == axis else (0, n) for a, n in enumerate(x.shape)])


def _with_mirror(z: UOp) -> tuple[Expr, Expr, Expr, Expr]:
    """Return both parts of z[..., k, :], and both of the conjugate of its mirror image in k."""
    mirror = build.flip(z, (len(z.shape) - 2,))
    return (Expr(part(z, 0)), Expr(part(z, 1)), Expr(part(mirror, 0)), -Expr(part(mirror, 1)))


def _roots(n: int, z: UOp) -> tuple[Expr, Expr]:
    """Return both parts of exp(-2i pi k / n) for the elements of z[..., k, :]."""
    shape = z.shape[:-1]
    w = constants(fft_plan.roots(np.arange(shape[-1]), n), z.dtype)
    c, s = [Expr(build.expand(build.reshape(p, (*(1,) * (len(shape) - 1), shape[-1])), shape))
            for p in w]
    return c, s


def _drop_imaginary(x: UOp, at: list[int]) -> UOp:
    """Replace the imaginary parts of some elements along the last axis but one by 0."""
    re, im = part(x, 0), part(x, 1)
    n = im.shape[-1]
    index = build.iota(n)
    mask = build.eq(index, build.const_like(index, at[0]))
    for i in at[1:]:
        mask = build.or_(mask, build.eq(index, build.const_like(index, i)))
    mask = build.expand(build.reshape(mask, (*(1,) * (len(im.shape) - 1), n)), im.shape)
    return pairs(re, build.where(mask, build.const_like(im, 0), im))
