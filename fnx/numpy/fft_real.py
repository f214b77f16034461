"""Fourier transforms of real arrays, from nodes to nodes of pairs (fnx/numpy/fft_core.py).

A real array of even length n is read as n / 2 pairs of neighbors, which is a RESHAPE. Its transform
Z gives that of the array: with E the transform of the even elements and O that of the odd ones

    Z[k] = E[k] + i O[k]     E[k] = (Z[k] + Z*[-k]) / 2     O[k] = (Z[k] - Z*[-k]) / 2i
    X[k] = E[k] + w^k O[k]   w = exp(-2i pi / n)            k <= n / 2

The inverse goes back the same way. A length that is odd or short is transformed with zero imaginary
parts.
"""

from __future__ import annotations

from fnx.core.ir import build
from fnx.core.ir.expr import Expr
from fnx.core.ir.op import inverse_permutation
from fnx.core.ir.uop import UOp
from fnx.numpy.fft_core import constants, pairs, part, root_values, transform

_SHORT = 64  # up to this length a whole transform is as fast, and compiles faster


def real_transform(x: UOp, axis: int, scale: float = 1.0) -> UOp:
    """Return the first n / 2 + 1 elements of the transform of a real array, as pairs."""
    n = x.shape[axis]
    if n % 2 or n <= _SHORT:
        z = transform(pairs(x, build.const_like(x, 0)), axis, scale=scale)
        return _take(z, axis, 0, n // 2 + 1)
    order = _last(axis, len(x.shape))
    rows = build.permute(x, order)
    z = transform(build.reshape(rows, (*rows.shape[:-1], n // 2, 2)), len(x.shape) - 1,
                  scale=scale / 2)
    along = len(order) - 1
    re, im = part(z, 0), part(z, 1)
    out_re, out_im = _combine(re, im, _mirror(re), _mirror(im), n)
    first_re, first_im = _take(re, along, 0, 1), _take(im, along, 0, 1)
    last = build.sub(first_re, first_im)  # the middle frequency is real, as the first one is
    out = pairs(build.concat([out_re, build.add(last, last)], along),
                build.concat([out_im, build.const_like(last, 0)], along))
    return build.permute(out, (*inverse_permutation(order), len(order)))


def _mirror(x: UOp) -> UOp:
    """Return x[..., -k], where -0 is 0."""
    along, m = len(x.shape) - 1, x.shape[-1]
    if m == 1:
        return x
    return build.concat([_take(x, along, 0, 1), build.flip(_take(x, along, 1, m), (along,))], along)


def _combine(re: UOp, im: UOp, mirror_re: UOp, mirror_im: UOp, n: int) -> tuple[UOp, UOp]:
    """Return z[k] + z*[-k] - i w^k (z[k] - z*[-k])."""
    x, y, u, v = Expr(re), Expr(im), Expr(mirror_re), Expr(mirror_im)
    c, s = _roots(n, re)
    p, q = y + v, u - x
    return (x + u + (c * p - s * q)).node, (y - v + (c * q + s * p)).node


def inverse_real_transform(x: UOp, axis: int, n: int, scale: float = 1.0) -> UOp:
    """Return the real array of length n that has this transform, times n: the imaginary parts of
    the first element, and of the last one if n is even, are taken as 0."""
    order = _last(axis, len(x.shape) - 1)
    x = build.permute(x, (*order, len(order)))
    along = len(order) - 1
    re, im = part(x, 0), _inner_imaginary(part(x, 1), n)
    if n % 2:
        mirror_re, mirror_im = [build.flip(_take(p, along, 1, p.shape[along]), (along,))
                                for p in (re, im)]
        whole = pairs(build.concat([re, mirror_re], along),
                      build.concat([im, build.neg(mirror_im)], along))
        out = part(transform(whole, along, True, scale), 0)
    else:
        mirror_re, mirror_im = [build.flip(_take(p, along, 1, n // 2 + 1), (along,))
                                for p in (re, im)]
        re, im = [_take(p, along, 0, n // 2) for p in (re, im)]
        a, b, u, v = Expr(re), Expr(im), Expr(mirror_re), Expr(mirror_im)
        c, s = _roots(n, re)
        p, q = a - u, b + v
        z = pairs((a + u + (s * p - c * q)).node, (b - v + (s * q + c * p)).node)
        z = transform(z, along, True, scale)
        out = build.reshape(z, (*x.shape[:along], n))
    return build.permute(out, inverse_permutation(order))


def _last(axis: int, rank: int) -> tuple[int, ...]:
    """Return the permutation that moves an axis to the end."""
    return (*[a for a in range(rank) if a != axis], axis)


def _take(x: UOp, axis: int, start: int, stop: int) -> UOp:
    return build.shrink(x, [(start, stop) if a == axis else (0, n) for a, n in enumerate(x.shape)])


def _roots(n: int, like: UOp) -> tuple[Expr, Expr]:
    """Return both parts of exp(-2i pi k / n) along the last axis."""
    shape = like.shape
    w = constants(root_values(n, shape[-1]), like.dtype)
    c, s = [Expr(build.expand(build.reshape(p, (*(1,) * (len(shape) - 1), shape[-1])), shape))
            for p in w]
    return c, s


def _inner_imaginary(im: UOp, n: int) -> UOp:
    """Replace the imaginary part of the first element by 0, and if n is even that of the last."""
    along, last = len(im.shape) - 1, im.shape[-1] - (n % 2 == 0)
    if last <= 1:
        return build.const_like(im, 0)
    return build.pad(_take(im, along, 1, last), [
        (1, im.shape[-1] - last) if a == along else (0, 0) for a in range(along + 1)])
