"""Convolutions and cross-correlations of arrays of any rank, by ``lax.conv_general_dilated``."""

from __future__ import annotations

from typing import Literal

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray
from fnx.core.array.arguments import PrecisionLike
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import promote_arrays
from fnx.core.support.errors import NotBuiltError, ShapeError
from fnx.lax.convolution import conv_general_dilated
from fnx.scipy.signal.spectra import fftconvolve

__all__ = ["convolve", "convolve2d", "correlate", "correlate2d"]

Mode = Literal["full", "same", "valid"]
Method = Literal["auto", "direct", "fft"]
_MODES = ("full", "same", "valid")

_docstr = DocTemplate(
    in1="an Array or array-like.",
    in2="an Array or array-like with as many axes; one of the two fits into the other.",
    mode='"full" (every overlap), "same" (the shape of in1, the center of "full") or "valid" '
         "(complete overlap).",
    method='"direct", "fft", or "auto", which means "direct".',
    boundary='"fill": outside are zeros.', fillvalue="0.",
    returns="An Array of a float dtype.", imports="fnx.scipy.signal as signal",
    raises=("ShapeError: the ranks differ, an input is empty, or neither fits into the other.",
            "ArgumentError: unknown mode or method."))


def _convolve(x: Array, kernel: Array, mode: Mode, precision: PrecisionLike) -> Array:
    arguments.check_choice("mode", mode, _MODES)
    if x.ndim != kernel.ndim:
        raise ShapeError(f"expected inputs of the same rank, got shapes {x.shape} and "
                         f"{kernel.shape}", hint="add axes of length 1 with reshape")
    if not x.size or not kernel.size:
        raise ShapeError(f"expected inputs with elements, got shapes {x.shape} and {kernel.shape}")
    pairs = list(zip(x.shape, kernel.shape))
    swap = all(m >= n for n, m in pairs)
    if not swap and any(m > n for n, m in pairs):
        raise ShapeError("expected one input at most as large as the other along every axis, got "
                         f"shapes {x.shape} and {kernel.shape}", hint='use method="fft"')
    if not x.ndim:
        return x * kernel
    same = [(m - 1) // 2 for m in kernel.shape]
    if swap:
        x, kernel = kernel, x
    sizes = kernel.shape
    padding = {"valid": [(0, 0) for _ in sizes],
               "full": [(n - 1, n - 1) for n in sizes],
               "same": [(n - 1 - at, n - m + at) for n, m, at in zip(
                   sizes, (x if swap else kernel).shape, same)]}[mode]
    out: Array = conv_general_dilated(x[None, None], jnp.flip(kernel)[None, None],
                                      (1,) * x.ndim, padding, precision=precision)[0, 0]
    return out


@_docstr(precision="as for ``matmul``; all names mean full precision.")
def convolve(in1: ArrayLike, in2: ArrayLike, mode: Mode = "full", method: Method = "auto",
             precision: PrecisionLike = None) -> Array:
    """Return the convolution of two arrays.

    >>> import fnx.numpy as jnp
    >>> print(signal.convolve(jnp.asarray([1, 2, 3, 2, 1]), jnp.asarray([1, 1, 1]), mode="same"))
    [3. 6. 7. 6. 3.]
    """
    arguments.check_choice("method", method, ("auto", "direct", "fft"))
    if method == "fft":
        return fftconvolve(in1, in2, mode)
    x, y = promote_arrays("convolve", asarray(in1), asarray(in2))
    return _convolve(x, y, mode, precision)


@_docstr("An Array of a float dtype: out[k] is the sum of in1[i] in2[i - k] over i.")
def correlate(in1: ArrayLike, in2: ArrayLike, mode: Mode = "full", method: Method = "auto",
              precision: PrecisionLike = None) -> Array:
    """Return the cross-correlation of two arrays.

    >>> import fnx.numpy as jnp
    >>> print(signal.correlate(jnp.asarray([1, 2, 3, 2, 1]), jnp.asarray([1, 3, 2]), mode="valid"))
    [13. 15. 11.]
    """
    return convolve(in1, jnp.flip(jnp.conj(asarray(in2))), mode, method, precision)


def _matrices(name: str, in1: ArrayLike, in2: ArrayLike, boundary: str, fillvalue: float
              ) -> list[Array]:
    if boundary != "fill" or fillvalue != 0:
        raise NotBuiltError(f"boundary={boundary!r} with fillvalue={fillvalue!r} is not "
                            "implemented", hint="extend in1 by jnp.pad first")
    x, y = promote_arrays(name, asarray(in1), asarray(in2))
    if x.ndim != 2 or y.ndim != 2:
        raise ShapeError(f"expected two matrices, got shapes {x.shape} and {y.shape}",
                         hint=f"use {name.removesuffix('2d')} for other ranks")
    return [x, y]


@_docstr(raises=("ShapeError: an input is not a matrix or is empty, or neither fits into the "
                 "other.", "NotBuiltError: another boundary.", "ArgumentError: unknown mode."))
def convolve2d(in1: ArrayLike, in2: ArrayLike, mode: Mode = "full",
               boundary: Literal["fill"] = "fill", fillvalue: float = 0,
               precision: PrecisionLike = None) -> Array:
    """Return the convolution of two matrices.

    >>> import fnx.numpy as jnp
    >>> print(signal.convolve2d(jnp.eye(2), jnp.asarray([[1.0, 2.0]])))
    [[1. 2. 0.]
     [0. 1. 2.]]
    """
    x, y = _matrices("convolve2d", in1, in2, boundary, fillvalue)
    return _convolve(x, y, mode, precision)


@_docstr(raises=("ShapeError: an input is not a matrix or is empty, or neither fits into the "
                 "other.", "NotBuiltError: another boundary.", "ArgumentError: unknown mode."))
def correlate2d(in1: ArrayLike, in2: ArrayLike, mode: Mode = "full",
                boundary: Literal["fill"] = "fill", fillvalue: float = 0,
                precision: PrecisionLike = None) -> Array:
    """Return the cross-correlation of two matrices.

    >>> import fnx.numpy as jnp
    >>> print(signal.correlate2d(jnp.eye(2), jnp.asarray([[1.0, 2.0]])))
    [[2. 1. 0.]
     [0. 2. 1.]]
    """
    x, y = _matrices("correlate2d", in1, in2, boundary, fillvalue)
    if mode != "same":
        return _convolve(x, jnp.flip(jnp.conj(y)), mode, precision)
    # the center of "full" is taken before the result is reversed, as SciPy does
    return jnp.flip(_convolve(jnp.flip(x), jnp.conj(y), mode, precision))
