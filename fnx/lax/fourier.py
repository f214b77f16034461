"""``lax.fft``: Fourier transforms along the last axes."""

from __future__ import annotations

import enum
from collections.abc import Sequence

from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import normalize_shape
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.numpy import fft as transforms

__all__ = ["FftType", "fft"]


class FftType(enum.IntEnum):
    """The kinds of transforms of ``lax.fft``.

    >>> FftType.RFFT.name
    'RFFT'
    """

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3


@public_api
def fft(x: ArrayLike, fft_type: FftType | str, fft_lengths: Sequence[int]) -> Array:
    """Return the Fourier transform along the last axes.

    Args:
        x: an Array or array-like.
        fft_type: an ``FftType`` or its name: FFT or IFFT of complex numbers, RFFT of real ones,
            IRFFT to real ones.
        fft_lengths: the lengths of the last axes; of IRFFT, those of the result.

    Returns:
        An Array: of IRFFT of float32 or float64, else of complex64 or complex128.

    Raises:
        ArgumentError: the type is unknown, or a length is not positive.
        ShapeError: the lengths are not those of the last axes.
        DTypeError: the numbers are complex for RFFT.

    >>> import fnx.numpy as jnp, fnx.lax as lax
    >>> print(lax.fft(jnp.asarray([1.0, 2.0]), "FFT", (2,)))
    [ 3.+0.j -1.+0.j]
    """
    names = {t.name: t for t in FftType}
    kind = names.get(fft_type.upper()) if isinstance(fft_type, str) else fft_type
    if not isinstance(kind, FftType):
        raise ArgumentError(f"fft: expected one of {', '.join(names)}, got {fft_type!r}",
                            hint="pass a member of lax.FftType")
    array, lengths = asarray(x), normalize_shape(fft_lengths)
    expected = lengths if kind is not FftType.IRFFT or not lengths else \
        (*lengths[:-1], lengths[-1] // 2 + 1)
    if len(lengths) > array.ndim or array.shape[array.ndim - len(lengths):] != expected:
        raise ShapeError(f"fft: expected last axes of the lengths {expected}, got shape "
                         f"{array.shape}", hint="cut or pad x, or use numpy.fft")
    run = {FftType.FFT: transforms.fftn, FftType.IFFT: transforms.ifftn,
           FftType.RFFT: transforms.rfftn, FftType.IRFFT: transforms.irfftn}[kind]
    result: Array = run(array, lengths)
    return result
