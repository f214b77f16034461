"""Discrete Fourier transforms of nodes of pairs: the last axis holds real and imaginary part.

A length whose prime factors are small has a plan. Any other one is a convolution with a chirp
(Bluestein): with k * j = (k^2 + j^2 - (k - j)^2) / 2 the transform is a product before, a
circular convolution of a length that has a plan, and a product after it.
"""

from __future__ import annotations

import numpy as np

from fnx.core.array.array import from_numpy
from fnx.core.formulas import fft_plan
from fnx.core.ir import build, build_calls
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.ir.uop import UOp


def transform(x: UOp, axis: int, inverse: bool = False, scale: float = 1.0) -> UOp:
    """Return ``scale`` times the transform of pairs along an axis; the inverse is not divided by
    the length."""
    n = x.shape[axis]
    if n <= 1:
        return x if scale == 1.0 else build.mul(x, build.const_like(x, scale))
    inner = int(np.prod(x.shape[axis + 1:-1]))
    if fft_plan.factors(n) is None:
        return _bluestein(x, axis, inverse, scale)
    return build_calls.fft(x, _table(n, inner, x.dtype), axis, inverse, scale)


def _constant(value: NDArray, dtype: DType) -> UOp:
    return from_numpy(np.ascontiguousarray(value, dtype.np))._node


def root_values(n: int, count: int) -> NDArray:
    """Return exp(-2i pi k / n) for k < count."""
    return fft_plan.roots(np.arange(count), n)


def constants(z: NDArray, dtype: DType) -> tuple[UOp, UOp]:
    """Return the real and the imaginary parts of complex constants."""
    return _constant(z.real, dtype), _constant(z.imag, dtype)


def _table(n: int, inner: int, dtype: DType) -> UOp:
    return _constant(fft_plan.table(n, inner), dtype)


# ---- Bluestein ----------------------------------------------------------------------------------


def padded_length(n: int) -> int:
    """Return the length of the convolution: the least that has a plan of small radices."""
    best = 1 << (2 * n - 2).bit_length()
    for factor in (9, 5, 3, 15, 45):
        m = factor
        while m < 2 * n - 1:
            m *= 2
        best = min(best, m)
    return best


def _chirp(n: int) -> tuple[NDArray, NDArray]:
    """Return exp(-i pi j^2 / n), and the transform of its conjugate, circular."""
    j = np.arange(n)
    chirp = fft_plan.roots(j * j % (2 * n), 2 * n)
    m = padded_length(n)
    kernel = np.zeros(m, np.complex128)
    kernel[:n] = chirp.conj()
    kernel[m - n + 1:] = chirp[:0:-1].conj()
    return chirp, np.fft.fft(kernel) / m


def _bluestein(x: UOp, axis: int, inverse: bool, scale: float) -> UOp:
    n = x.shape[axis]
    chirp, kernel = _chirp(n)
    m = padded_length(n)
    if inverse:
        x = conjugate(x)
    y = times(x, chirp, axis)
    widths = [(0, m - n) if a == axis else (0, 0) for a in range(len(x.shape))]
    y = transform(build.pad(y, widths), axis)
    y = transform(times(y, kernel, axis), axis, inverse=True)
    y = build.shrink(y, [(0, n) if a == axis else (0, k) for a, k in enumerate(y.shape)])
    out = times(y, chirp * scale, axis)
    return conjugate(out) if inverse else out


# ---- pairs --------------------------------------------------------------------------------------


def part(x: UOp, i: int) -> UOp:
    """Return the real (0) or the imaginary part (1) of pairs."""
    bounds = [*[(0, n) for n in x.shape[:-1]], (i, i + 1)]
    return build.reshape(build.shrink(x, bounds), x.shape[:-1])


def pairs(re: UOp, im: UOp) -> UOp:
    """Return pairs of two arrays."""
    parts = [build.reshape(x, (*x.shape, 1)) for x in (re, im)]
    return build.concat(parts, len(re.shape))


def conjugate(x: UOp) -> UOp:
    return pairs(part(x, 0), build.neg(part(x, 1)))


def times(x: UOp, factor: NDArray, axis: int) -> UOp:
    """Multiply pairs by complex constants along an axis."""
    shape = x.shape[:-1]
    like = tuple([n if a == axis else 1 for a, n in enumerate(shape)])
    c, s = [build.expand(build.reshape(w, like), shape) for w in constants(factor, x.dtype)]
    re, im = part(x, 0), part(x, 1)
    return pairs(build.sub(build.mul(re, c), build.mul(im, s)),
                 build.add(build.mul(re, s), build.mul(im, c)))
