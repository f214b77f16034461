"""Fourier transforms of real arrays, from nodes to nodes of pairs (fnx/numpy/fft_core.py).

An array of even length is read as pairs of neighbors, which is a RESHAPE, and transformed at half
the length (core/formulas/half_spectrum.py). A length that is odd, or short in a few rows only, is
transformed with zero imaginary parts.
"""

from __future__ import annotations

import math

from fnx.core.formulas import fft_plan
from fnx.core.formulas.half_spectrum import from_half_spectrum, take, to_half_spectrum
from fnx.core.ir import build, build_calls
from fnx.core.ir.op import inverse_permutation
from fnx.core.ir.uop import UOp
from fnx.numpy.fft_core import (
    constants,
    max_matrix,
    pairs,
    part,
    plan_table,
    root_values,
    transform,
)

_SHORT = 64  # up to this length a whole transform is as fast, and compiles faster


def real_transform(x: UOp, axis: int, scale: float = 1.0) -> UOp:
    """Return the first n / 2 + 1 elements of the transform of a real array, as pairs."""
    n = x.shape[axis]
    rows = math.prod(x.shape) // max(n, 1)
    if n % 2 or n <= _SHORT and rows < fft_plan.MIN_ROWS:
        z = transform(pairs(x, build.const_like(x, 0)), axis, False, scale, max_matrix(n, True))
        return take(z, axis, 0, n // 2 + 1)
    order = _last(axis, len(x.shape))
    along = len(order) - 1
    moved = build.permute(x, order)
    z = build.reshape(moved, (*moved.shape[:-1], n // 2, 2))
    if fft_plan.factors(n // 2) is None:
        z = transform(z, along, False, scale / 2, max_matrix(n, True))
        re, im = part(z, 0), part(z, 1)
        out = pairs(*to_half_spectrum((re, im), _roots(n, re), along))
    else:
        out = build_calls.fft(z, plan_table(n // 2, 1, x.dtype, True), along, False, scale, True)
    return build.permute(out, (*inverse_permutation(order), len(order)))


def inverse_real_transform(x: UOp, axis: int, n: int, scale: float = 1.0) -> UOp:
    """Return the real array of length n that has this transform, times n: the imaginary parts of
    the first element, and of the last one if n is even, are taken as 0."""
    order = _last(axis, len(x.shape) - 1)
    x = build.permute(x, (*order, len(order)))
    along = len(order) - 1
    if n % 2:
        out = _odd_inverse(x, along, scale)
    else:
        if fft_plan.factors(n // 2) is None:
            re, im = from_half_spectrum((part(x, 0), part(x, 1)), _roots(
                n, take(part(x, 0), along, 0, n // 2)), along)
            z = transform(pairs(re, im), along, True, scale, max_matrix(n, True))
        else:
            z = build_calls.fft(x, plan_table(n // 2, 1, x.dtype, True), along, True, scale, True)
        out = build.reshape(z, (*x.shape[:along], n))
    return build.permute(out, inverse_permutation(order))


def _odd_inverse(x: UOp, along: int, scale: float) -> UOp:
    """Transform the whole spectrum."""
    re, im = part(x, 0), part(x, 1)
    half = x.shape[along]
    inner = [take(p, along, 1, half) for p in (re, im)]
    mirror_re, mirror_im = [build.flip(p, (along,)) for p in inner]
    zero = build.const_like(take(im, along, 0, 1), 0)
    whole = pairs(build.concat([re, mirror_re], along),
                  build.concat([zero, inner[1], build.neg(mirror_im)], along))
    n = whole.shape[along]
    return part(transform(whole, along, True, scale, max_matrix(n, True)), 0)


def _last(axis: int, rank: int) -> tuple[int, ...]:
    """Return the permutation that moves an axis to the end."""
    return (*[a for a in range(rank) if a != axis], axis)


def _roots(n: int, like: UOp) -> tuple[UOp, UOp]:
    """Return both parts of exp(-2i pi k / n) along the last axis."""
    shape = like.shape
    c, s = [build.expand(build.reshape(p, (*(1,) * (len(shape) - 1), shape[-1])), shape)
            for p in constants(root_values(n, shape[-1]), like.dtype)]
    return c, s
