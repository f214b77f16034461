"""Polynomials of ``fnx.numpy``, as coefficients from the highest power down."""

from __future__ import annotations

from typing import Any

import numpy as np

import fnx.numpy.base as base
from fnx.core.array import arguments, axes
from fnx.core.array.api_boundary import asarray, constant_array
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import promote_arrays
from fnx.core.ir import build, dtypes
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.core.support.process import lazy_import
from fnx.numpy.base import (
    broadcast_to,
    concatenate,
    cumprod,
    flip,
    ones_like,
    ravel,
    stack,
    zeros_like,
)
from fnx.numpy.manipulation import atleast_1d, trim_zeros
from fnx.numpy.vector_math import convolve

linalg = lazy_import("fnx.numpy.linalg")

__all__ = [
    "poly", "polyadd", "polyder", "polydiv", "polyfit", "polyint", "polymul", "polysub",
    "polyval", "roots", "vander",
]

_docstr = DocTemplate(
    p="coefficients, from the highest power down.", a1="coefficients, from the highest power down.",
    a2="coefficients, from the highest power down.", u="coefficients, from the highest power down.",
    v="coefficients, from the highest power down.", x="the points to evaluate at.",
    m="the number of times.",
    trim_leading_zeros="whether to trim leading zeros, which requires known values.",
    unroll="accepted for JAX compatibility; the loop is always unrolled.",
    returns="An Array of coefficients.",
    raises=("ShapeError: the coefficients have more than one axis.",
            "ArgumentError: m is negative."))


def _coeffs(a: ArrayLike) -> Array:
    x = asarray(a)
    x = x.reshape(1) if not x.ndim else x
    if x.ndim != 1:
        raise ShapeError(f"expected 1-d coefficients, got shape {x.shape}")
    return x


_MAX_TIMES = 1000


def _check_times(m: int) -> int:
    n = arguments.check_int("m", m)
    if n < 0:
        raise ArgumentError(f"expected m >= 0, got {n}")
    if n > _MAX_TIMES:
        raise ArgumentError(f"expected m <= {_MAX_TIMES}, got {n}")
    return n


def _pad_front(x: Array, n: int) -> Array:
    """Prepend zeros to x, to length n."""
    n_missing = n - x.shape[0]
    pads = [(n_missing, 0)] + [(0, 0)] * (x.ndim - 1)
    return Array(build.pad(x._node, pads)) if n_missing > 0 else x


def _align_powers(name: str, a: ArrayLike, b: ArrayLike) -> tuple[Array, Array]:
    """Promote two polynomials and pad them to equal length along the first axis.

    Further axes are left to broadcast.
    """
    x, y = promote_arrays(name, atleast_1d(a), atleast_1d(b), domain="any")
    n = max(x.shape[0], y.shape[0])
    return _pad_front(x, n), _pad_front(y, n)


@_docstr("An Array of the shape of x.",
         p="coefficients, from the highest power down; further axes broadcast with x.")
def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int = 16) -> Array:
    """Evaluate a polynomial, by Horner's scheme.

    >>> print(jnp.polyval(jnp.asarray([1, 0, 2]), 3))
    11
    """
    arguments.check_int("unroll", unroll)
    coefficients, points = promote_arrays("polyval", atleast_1d(p), asarray(x), domain="any")
    shape = axes.broadcast_shapes(coefficients.shape[1:], points.shape)
    out = Array(build.const(0, points._dtype, shape))
    for i in range(coefficients.shape[0]):
        out = out * points + coefficients[i]
    return out


@_docstr.family()
def _sum_of_polynomials(name: str, a1: ArrayLike, a2: ArrayLike) -> Array:
    x, y = _align_powers(name, a1, a2)
    return x + y if name == "polyadd" else x - y


polyadd = _sum_of_polynomials(
    "polyadd", "polyadd", "Add two polynomials.",
    "jnp.polyadd(jnp.asarray([1, 2]), jnp.asarray([3]))", "Array([1, 5], dtype=int32)")
polysub = _sum_of_polynomials(
    "polysub", "polysub", "Subtract two polynomials.",
    "jnp.polysub(jnp.asarray([1, 2]), jnp.asarray([3]))", "Array([ 1, -1], dtype=int32)")


def _trim_leading(x: Array, trim: bool) -> Array:
    if not trim:
        return x
    cut = trim_zeros(x, "f")
    return cut if cut.size else x[-1:] * 0


def _nonempty_or_zero(x: Array) -> Array:
    """Return the coefficients, or a single 0 if there are none."""
    return x if x.size else zeros_like(x, shape=(1,))


@_docstr()
def polymul(a1: ArrayLike, a2: ArrayLike, *, trim_leading_zeros: bool = False) -> Array:
    """Multiply two polynomials.

    >>> jnp.polymul(jnp.asarray([1, 1]), jnp.asarray([1, -1]))
    Array([ 1.,  0., -1.], dtype=float32)
    """
    x, y = (_trim_leading(p, trim_leading_zeros)
            for p in promote_arrays("polymul", _coeffs(a1), _coeffs(a2)))
    return convolve(_nonempty_or_zero(x), _nonempty_or_zero(y))


@_docstr("(quotient, remainder), Arrays of coefficients.")
def polydiv(u: ArrayLike, v: ArrayLike, *, trim_leading_zeros: bool = False
            ) -> tuple[Array, Array]:
    """Divide two polynomials; return the quotient and the remainder.

    >>> jnp.polydiv(jnp.asarray([1.0, 0.0, -1.0]), jnp.asarray([1.0, 1.0]))
    (Array([ 1., -1.], dtype=float32), Array([0., 0., 0.], dtype=float32))
    """
    remainder, divisor = promote_arrays("polydiv", _coeffs(u), _coeffs(v))
    steps = max(remainder.size - divisor.size + 1, 1)
    if remainder.size < divisor.size:
        return _nonempty_or_zero(remainder)[:1] * 0, _trim_leading(remainder, trim_leading_zeros)
    out = []
    for i in range(steps):
        factor = remainder[i] / divisor[0]
        out.append(factor)
        remainder = remainder.at[i:i + divisor.size].add(-factor * divisor).at[i].set(0)
    return stack(out), _trim_leading(remainder, trim_leading_zeros)


@_docstr()
def polyder(p: ArrayLike, m: int = 1) -> Array:
    """Differentiate a polynomial m times.

    >>> print(jnp.polyder(jnp.asarray([1.0, 2.0, 3.0])))
    [2. 2.]
    """
    x, = promote_arrays("polyder", _coeffs(p))
    for _ in range(_check_times(m)):
        x = x[:-1] * constant_array(np.arange(x.size - 1, 0, -1), x.dtype)
    return x


@_docstr(k="the integration constants, in order of integration; by default 0.")
def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | None = None) -> Array:
    """Integrate a polynomial m times.

    >>> print(jnp.polyint(jnp.asarray([2.0, 2.0]), k=5))
    [1. 2. 5.]
    """
    times = _check_times(m)
    x, constants = promote_arrays("polyint", _coeffs(p), 0 if k is None else k)
    constants = ravel(constants)
    if constants.size not in (1, times):
        raise ShapeError(f"expected 1 or {times} constants, got {constants.size}")
    for i in range(times):
        constant = constants[i if constants.size > 1 else 0].reshape(1)
        x = concatenate([x / constant_array(np.arange(x.size, 0, -1), x.dtype), constant])
    return x


@_docstr(seq_of_zeros="the roots: a vector; or a square matrix.",
         raises=("ShapeError: the input is a matrix; eigenvalues are not implemented.",))
def poly(seq_of_zeros: ArrayLike) -> Array:
    """Return the monic polynomial with the given roots, or the eigenvalues of a matrix as roots.

    >>> jnp.poly(jnp.asarray([1.0, -1.0]))
    Array([ 1.,  0., -1.], dtype=float32)
    """
    x, = promote_arrays("poly", asarray(seq_of_zeros))
    is_matrix = x.ndim == 2 and x.size and x.shape[0] == x.shape[1]
    zeros: Array = linalg.eigvals(x) if is_matrix else _coeffs(x)
    if not zeros.size:
        return ones_like(zeros, shape=())
    out = ones_like(zeros, shape=(1,))
    for i in range(zeros.size):
        out = convolve(out, stack([ones_like(zeros[i]), -zeros[i]]))
    return out


@_docstr("A matrix with one row for each element of x.", x="a vector.",
         N="the number of columns; by default n.",
         increasing="whether the powers increase from left to right.",
         raises=("ShapeError: x is not a vector.",))
def vander(x: ArrayLike, N: int | None = None, increasing: bool = False) -> Array:
    """Return a Vandermonde matrix: the powers of a vector, as columns.

    >>> jnp.vander(jnp.asarray([1, 2, 3]), 2)
    Array([[1, 1],
           [2, 1],
           [3, 1]], dtype=int32)
    """
    base = asarray(x)
    if base.ndim != 1:
        raise ShapeError(f"expected a vector, got shape {base.shape}")
    n = base.size if N is None else axes.normalize_shape(N)[0]
    if not n:
        return Array(build.const(0, base._dtype, (base.size, 0)))
    column = base[:, None]
    factors = broadcast_to(column, (base.size, n - 1))
    powers = cumprod(concatenate([ones_like(column), factors], 1), 1).astype(base.dtype)
    return powers if increasing else flip(powers, 1)


@_docstr("An Array of complex numbers: one fewer than coefficients that remain.",
         strip_zeros="whether leading zeros are stripped, which requires known values; "
                     "otherwise roots at infinity are NaN.")
def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Array:
    """Return the roots of a polynomial: the eigenvalues of its companion matrix.

    >>> print(jnp.roots(jnp.asarray([1.0, -3.0, 2.0])).real)
    [2. 1.]
    """
    c, = promote_arrays("roots", atleast_1d(asarray(p)))
    if c.ndim != 1:
        raise ShapeError(f"roots: expected a vector of coefficients, got shape {c.shape}")
    if strip_zeros:
        known = np.flatnonzero(np.asarray(c))
        c = c[int(known[0]):] if known.size else c[:0]
    n = c.size - 1
    if n < 1:
        return base.zeros((0,), dtypes.complex_of(c._dtype).np)
    row = -c[1:] / c[0]
    below = base.eye(n, n, -1, dtype=c.dtype)
    values: Array = linalg.eigvals(base.where(base.arange(n)[:, None] == 0, row, below))
    return values


@_docstr("The coefficients, from the highest power down; with ``full`` also residuals, rank, "
         "singular values and rcond; with ``cov`` also the covariance of the coefficients.",
         x="the points: a vector.", y="the values: a vector, or a matrix with a column per fit.",
         deg="the degree: an int.",
         rcond="singular values below rcond times the largest count as zero; by default eps times "
               "the number of points.",
         full="whether to return what is known of the fit.",
         w="weights of the residuals: a vector.",
         cov='whether to return the covariance; "unscaled": without the factor of the residuals.',
         raises=("ArgumentError: the degree is negative, or there are too few points to scale the "
                 "covariance.", "ShapeError: the shapes do not match."))
def polyfit(x: ArrayLike, y: ArrayLike, deg: int, rcond: float | None = None, full: bool = False,
            w: ArrayLike | None = None, cov: Any = False) -> Any:
    """Fit polynomials to points by least squares.

    >>> print(jnp.round(jnp.polyfit(jnp.asarray([0.0, 1.0, 2.0]), jnp.asarray([1.0, 3.0, 5.0]), 1)))
    [2. 1.]
    """
    order = arguments.check_int("deg", deg) + 1
    if rcond is not None:
        arguments.check_number("rcond", rcond)
    arguments.check_bool("full", full)
    arguments.check_choice("cov", cov, (True, False, "unscaled"))
    points, values = promote_arrays("polyfit", asarray(x), asarray(y))
    if order < 1:
        raise ArgumentError(f"expected deg >= 0, got {deg}")
    if points.ndim != 1 or not points.size or values.ndim not in (1, 2) or \
            len(values) != points.size:
        raise ShapeError("polyfit: expected a vector of points and as many rows of values, got "
                         f"shapes {points.shape} and {values.shape}")
    cutoff = len(points) * float(base.finfo(points.dtype).eps) if rcond is None else rcond
    left, right = vander(points, order), values
    if w is not None:
        weights = asarray(w).astype(points.dtype)
        if weights.shape != points.shape:
            raise ShapeError(f"polyfit: expected weights of shape {points.shape}, got "
                             f"{weights.shape}")
        left = left * weights[:, None]
        right = right * (weights if right.ndim == 1 else weights[:, None])
    scale = base.sqrt((left * left).sum(0))
    left = left / scale
    c, residuals, rank, s = linalg.lstsq(left, right, cutoff)
    c = c / (scale if c.ndim == 1 else scale[:, None])
    if full:
        return c, residuals, rank, s, asarray(cutoff)
    if not cov:
        return c
    covariance = linalg.inv(left.T @ left) / (scale[:, None] * scale)
    if cov == "unscaled":
        factor = base.ones((1,), points.dtype)
    elif len(points) <= order:
        raise ArgumentError(f"expected more than {order} points to scale the covariance, got "
                            f"{len(points)}", hint='use cov="unscaled"')
    else:
        factor = residuals / (len(points) - order)
    return c, covariance * factor if values.ndim == 1 else covariance[:, :, None] * factor
