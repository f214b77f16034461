"""Discrete Fourier transforms of nodes of pairs: the last axis holds real and imaginary part.

A length whose prime factors are small has a plan. If the largest one is some hundred, the transform
is split: a * p elements are a matrix, of which columns, then rows are transformed, with a product
in between; of p elements it is a product with a matrix. Any other one is a convolution with a chirp
(Bluestein): with k * j = (k^2 + j^2 - (k - j)^2) / 2 the transform is a product before, a
circular convolution of a length that has a plan, and a product after it. If p - 1 of a prime length
p has a plan, many rows are a convolution of that length, less than half of a chirp's (Rader): the
powers of a primitive root g are all of 1 .. p - 1, and for j = g^r and k = g^-q, k * j = g^(r - q).
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from fnx.core.array.api_boundary import constant_array
from fnx.core.formulas import fft_plan
from fnx.core.ir import build, build_calls, ops
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.ir.uop import UOp


def transform(x: UOp, axis: int, inverse: bool = False, scale: float = 1.0,
              max_prime: int | None = None) -> UOp:
    """Return ``scale`` times the transform of pairs along an axis; the inverse is not divided by
    the length. ``max_prime``: the largest factor that is transformed by a matrix."""
    n = x.shape[axis]
    if n <= 1:
        return x if scale == 1.0 else build.mul(x, build.const_like(x, scale))
    inner = int(np.prod(x.shape[axis + 1:-1]))
    if fft_plan.factors(n) is None:
        p = _largest_prime(n)
        most = max_matrix(n) if max_prime is None else max_prime
        if p > most:
            rows = math.prod(x.shape[:-1]) // n
            if p == n and rows >= fft_plan.MIN_ROWS and \
                    max(fft_plan.factors(n - 1) or [n]) <= _MAX_RADIX:
                return _rader(x, axis, inverse, scale)
            return _bluestein(x, axis, inverse, scale)
        if p == n:
            return _by_matrix(x, axis, inverse, scale)
        return _split(x, axis, p, inverse, scale, most)
    return build_calls.fft(x, plan_table(n, inner, x.dtype), axis, inverse, scale)


def _constant(value: NDArray, dtype: DType) -> UOp:
    return constant_array(value, dtype)._node


def root_values(n: int, count: int) -> NDArray:
    """Return exp(-2i pi k / n) for k < count."""
    return fft_plan.roots(np.arange(count), n)


def constants(z: NDArray, dtype: DType) -> tuple[UOp, UOp]:
    """Return the real and the imaginary parts of complex constants."""
    return _constant(z.real, dtype), _constant(z.imag, dtype)


def plan_table(n: int, inner: int, dtype: DType, real: bool = False) -> UOp:
    """Return the table of a plan."""
    return _constant(fft_plan.table(n, inner, real), dtype)


# ---- lengths with prime factors of medium size ---------------------------------------------------

_MAX_TERMS = 32  # that are added one by one; longer sums are added block by block


def max_matrix(n: int, real: bool = False) -> int:
    """Return the largest prime factor of a length that is transformed by a matrix: this takes time
    in proportion to it, while a chirp's transforms take log(n). A chirp of real numbers does twice
    the work, as for pocketfft, whose matrices are more accurate than a chirp, too.

    >>> max_matrix(97), max_matrix(101), max_matrix(211, True)
    (98, 99, 230)
    """
    return int(15 * math.log2(n)) * (1 + real)


def _largest_prime(n: int) -> int:
    """Return the largest prime factor."""
    p = 2
    while p * p <= n:
        if n % p:
            p += 1
        else:
            n //= p
    return n


def _split(x: UOp, axis: int, p: int, inverse: bool, scale: float, max_prime: int
           ) -> UOp:
    n = x.shape[axis]
    a = n // p
    matrix = build.reshape(x, (*x.shape[:axis], a, p, *x.shape[axis + 1:]))
    w = fft_plan.roots(np.arange(a)[:, None] * np.arange(p), n)
    y = transform(matrix, axis, inverse, 1.0, max_prime)
    y = times(y, w.conj() if inverse else w, axis)
    z = _by_matrix(y, axis + 1, inverse, scale)
    order = [*range(axis), axis + 1, axis, *range(axis + 2, len(z.shape))]
    return build.reshape(build.permute(z, tuple(order)), x.shape)


def _by_matrix(x: UOp, axis: int, inverse: bool, scale: float) -> UOp:
    """Multiply sums and differences of elements j and n - j by cosines and sines."""
    n = x.shape[axis]
    half = (n + 1) // 2
    j = np.arange(1, half)
    w = fft_plan.roots(j[:, None] * j, n)

    def take(part: UOp, start: int, stop: int) -> UOp:
        return build.shrink(part, [(start, stop) if a == axis else (0, m)
                                   for a, m in enumerate(part.shape)])

    def product(factor: NDArray, y: UOp) -> UOp:
        blocks = -(-(half - 1) // _MAX_TERMS)
        size = -(-(half - 1) // blocks)
        pad = blocks * size - (half - 1)
        before, after = y.shape[:axis], y.shape[axis + 1:]
        shape = (*before, blocks, half - 1, size, *after)
        columns = np.pad(factor, ((0, 0), (0, pad))).reshape(half - 1, blocks, size)
        m = build.reshape(_constant(columns.swapaxes(0, 1), x.dtype), (
            *[1] * axis, *shape[axis:axis + 3], *[1] * len(after)))
        padded = build.pad(y, [(0, pad * (a == axis)) for a in range(len(y.shape))])
        terms = build.mul(build.expand(m, shape), build.expand(
            build.reshape(padded, (*before, blocks, 1, size, *after)), shape))
        sums = build.reshape(build.reduce(terms, ops.ADD, (axis + 2,)), (
            *before, blocks, half - 1, *after))
        return build.reshape(build.reduce(sums, ops.ADD, (axis,)), y.shape)
    first, even, odd = [], [], []
    for part_ in (part(x, 0), part(x, 1)):
        x0, low = take(part_, 0, 1), take(part_, 1, half)
        high = build.flip(take(part_, half, n), (axis,))
        sums = build.add(low, high)
        total = build.reshape(build.reduce(sums, ops.ADD, (axis,)), x0.shape)
        first.append(build.add(x0, total))
        even.append(build.add(build.expand(x0, low.shape), product(w.real, sums)))
        odd.append(product(w.imag if not inverse else -w.imag, build.sub(low, high)))
    low_re, low_im = build.sub(even[0], odd[1]), build.add(even[1], odd[0])
    high_re, high_im = build.add(even[0], odd[1]), build.sub(even[1], odd[0])
    out = pairs(*[build.concat([f, low, build.flip(high, (axis,))], axis) for f, low, high in (
        (first[0], low_re, high_re), (first[1], low_im, high_im))])
    return out if scale == 1.0 else build.mul(out, build.const_like(out, scale))


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
    kernel = np.zeros(m, np.clongdouble)
    kernel[:n] = chirp.conj()
    kernel[m - n + 1:] = chirp[:0:-1].conj()
    return chirp, (np.fft.fft(kernel) / m).astype(np.complex128)


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


# ---- Rader --------------------------------------------------------------------------------------


_MAX_RADIX = 8  # larger ones take longer to compile


def _primitive_root(p: int) -> int:
    """Return the least number whose powers are all numbers from 1 to p - 1, modulo a prime.

    >>> _primitive_root(7), _primitive_root(1009)
    (3, 11)
    """
    primes, rest = list[int](), p - 1
    while rest > 1:
        primes.append(_largest_prime(rest))
        while rest % primes[-1] == 0:
            rest //= primes[-1]
    return next(g for g in range(2, p) if all(pow(g, (p - 1) // q, p) != 1 for q in primes))


def _rader(x: UOp, axis: int, inverse: bool, scale: float) -> UOp:
    n = x.shape[axis]
    root = _primitive_root(n)
    powers = np.array([*itertools.accumulate(range(n - 2), lambda x, _: x * root % n, initial=1)])
    outputs = np.roll(powers[::-1], 1)  # the powers of 1 / root
    w = fft_plan.roots(outputs, n)
    kernel = np.fft.fft((w.conj() if inverse else w).astype(np.clongdouble)) * scale / (n - 1)
    y = transform(_take(x, powers, axis), axis)
    z = transform(times(y, kernel.astype(np.complex128), axis), axis, inverse=True)
    indices = np.zeros(n, np.int64)
    indices[outputs] = np.arange(n - 1)
    shape = tuple([n if a == axis else 1 for a in range(len(x.shape))])
    is_first = build.expand(build.reshape(constant_array(np.arange(n) == 0)._node, shape), x.shape)
    first, total = [build.expand(build.shrink(v, [
        (0, 1 if a == axis else m) for a, m in enumerate(v.shape)]), x.shape) for v in (x, y)]
    out = build.add(first, total)
    if scale != 1.0:
        first, out = (build.mul(v, build.const_like(v, scale)) for v in (first, out))
    return build.where(is_first, out, build.add(first, _take(z, indices, axis)))


def _take(x: UOp, at: NDArray, axis: int) -> UOp:
    """Return the elements at constant indices along an axis."""
    taken = build.gather(x, constant_array(at.astype(np.int32))._node, axes=[axis])
    order = [*range(1, axis + 1), 0, *range(axis + 1, len(x.shape))]
    return build.permute(taken, tuple(order))


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
    """Multiply pairs by complex constants along an axis, and the next ones."""
    shape, stop = x.shape[:-1], axis + factor.ndim
    like = tuple([n if axis <= a < stop else 1 for a, n in enumerate(shape)])
    c, s = [build.expand(build.reshape(w, like), shape) for w in constants(factor, x.dtype)]
    re, im = part(x, 0), part(x, 1)
    return pairs(build.sub(build.mul(re, c), build.mul(im, s)),
                 build.add(build.mul(re, s), build.mul(im, c)))
