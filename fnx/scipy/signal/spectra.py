"""Convolutions by Fourier transforms, short-time transforms and spectral densities."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array import axes as axis_numbers
from fnx.core.array.api_boundary import asarray, constant_array
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import promote_arrays
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.core.support.process import lazy_import
from fnx.scipy.signal.trends import detrend as remove_trend

scipy_windows = lazy_import("scipy.signal.windows")

__all__ = ["csd", "fftconvolve", "istft", "stft", "welch"]

Mode = Literal["full", "same", "valid"]
Trend = str | bool | Callable[[Array], Array]

_docstr = DocTemplate(
    in1="an Array or array-like.", in2="an Array or array-like with as many axes.",
    mode='"full" (every overlap), "same" (the shape of in1, the center of "full") or "valid" '
         "(complete overlap).",
    axes="the axes to convolve along; None means all. The others have equal lengths.",
    x="the signal.", y="the other signal; None means x.", fs="the number of samples per time unit.",
    window='"hann", another name or (name, parameter) of SciPy, or the values.',
    nperseg="the length of a segment.",
    noverlap="by how much segments overlap; by default half of their length.",
    nfft="the length of a transform, with zeros appended; by default that of a segment.",
    detrend='what is subtracted from each segment: "constant" (the mean), "linear", False '
            "(nothing), or a function.",
    return_onesided="whether frequencies of real signals are those from 0 up.",
    scaling='"density" (per frequency) or "spectrum".', axis="the axis of time.",
    average='of segments: "mean" or "median".',
    boundary='how the signal is continued at both ends by half a segment: "zeros", "even", "odd", '
             '"constant" or None.',
    padded="whether zeros are appended so that all samples are in segments.",
    Zxx="the result of ``stft``.", input_onesided="whether frequencies are those from 0 up.",
    time_axis="the axis of segments.", freq_axis="the axis of frequencies.",
    returns="(frequencies, densities).", imports="fnx.scipy.signal as signal",
    raises=("ArgumentError: lengths do not fit, or an unknown name.",
            "ShapeError: the shapes do not fit.", "AxisError: the axis is out of range."))


def _fast_length(n: int) -> int:
    """Return the next number without prime factors above 7."""
    while True:
        rest = n
        for p in (2, 3, 5, 7):
            while rest % p == 0 and rest:
                rest //= p
        if rest <= 1:
            return n
        n += 1


@_docstr("An Array of a float or complex dtype.")
def fftconvolve(in1: ArrayLike, in2: ArrayLike, mode: Mode = "full",
                axes: Sequence[int] | int | None = None) -> Array:
    """Return the convolution of two arrays, by Fourier transforms.

    >>> import fnx.numpy as jnp
    >>> out = signal.fftconvolve(jnp.asarray([1, 2, 3, 2, 1]), jnp.asarray([1, 1, 1]))
    >>> print(jnp.round(out, 3))
    [1. 3. 6. 7. 6. 3. 1.]
    """
    arguments.check_choice("mode", mode, ("full", "same", "valid"))
    x, y = promote_arrays("fftconvolve", asarray(in1), asarray(in2))
    if x.ndim != y.ndim:
        raise ShapeError(f"expected inputs of the same rank, got shapes {x.shape} and {y.shape}")
    which = tuple(range(x.ndim)) if axes is None else axis_numbers.normalize_axis_tuple(
        axes if isinstance(axes, Sequence) else [axes], x.ndim)
    if any(x.shape[i] != y.shape[i] for i in range(x.ndim) if i not in which):
        raise ShapeError(f"expected equal lengths but for axes {which}, got shapes {x.shape} and "
                         f"{y.shape}")
    if not x.size or not y.size:
        raise ShapeError(f"expected inputs with elements, got shapes {x.shape} and {y.shape}")
    if mode == "valid":
        if all(x.shape[i] <= y.shape[i] for i in which):
            x, y = y, x
        elif any(x.shape[i] < y.shape[i] for i in which):
            raise ShapeError("expected one input at least as large as the other along every axis, "
                             f"got shapes {x.shape} and {y.shape}")
    full = [x.shape[i] + y.shape[i] - 1 for i in which]
    if all(x.shape[i] == 1 or y.shape[i] == 1 for i in which):
        out = x * y
    else:
        sizes = [_fast_length(n) for n in full]
        forward, back = (jnp.fft.fftn, jnp.fft.ifftn) if x._dtype.is_complex else (
            jnp.fft.rfftn, jnp.fft.irfftn)
        out = back(forward(x, sizes, which) * forward(y, sizes, which), sizes, which)
    item = [slice(None)] * x.ndim
    for i, n in zip(which, full):
        size = {"full": n, "same": x.shape[i], "valid": x.shape[i] - y.shape[i] + 1}[mode]
        first = (n - size) // 2
        item[i] = slice(first, first + size)
    return out[tuple(item)]


# ---- segments ----------------------------------------------------------------------------------


def _window(window: Any, nperseg: int | None, length: int, dtype: Any) -> tuple[Array, int]:
    """Return the values of a window and the length of segments."""
    if isinstance(window, str | tuple):
        n = length if nperseg is None else nperseg
        if n > length:
            warnings.warn(f"nperseg={n} is greater than the signal: {length} is used",
                          stacklevel=4)
            n = length
        return _named_window(window, n).astype(dtype), n
    values = asarray(window).astype(dtype)
    if values.ndim != 1 or values.size > length or nperseg not in (None, values.size):
        raise ArgumentError(f"expected a window of one axis, of nperseg and at most {length} "
                            f"elements, got shape {values.shape} and nperseg={nperseg}")
    return values, values.size


def _window_array(values: np.ndarray) -> Array:
    return constant_array(values, float)


def _named_window(window: Any, n: int) -> Array:
    if window == "hann":
        return _window_array(np.sin(np.pi * np.arange(n) / n) ** 2 if n > 1 else np.ones(1))
    try:
        return _window_array(scipy_windows.get_window(window, n))
    except ValueError as error:
        raise ArgumentError(f"expected the name of a window, got {window!r}: {error}") from None


def _places(length: int, nperseg: int, step: int) -> np.ndarray:
    """Return the indices of the samples of each segment."""
    starts = np.arange(0, length - nperseg + 1, step)
    return starts[:, None] + np.arange(nperseg)


def _continue(x: Array, n: int, boundary: str | None) -> Array:
    """Continue signals along the last axis at both ends."""
    if boundary is None or not n:
        return x
    if boundary in ("even", "odd") and n > x.shape[-1] - 1:
        raise ArgumentError(f"expected a signal of more than {n} samples, got {x.shape[-1]}",
                            hint='use boundary="zeros"')
    widths = [(0, 0)] * (x.ndim - 1) + [(n, n)]
    if boundary == "odd":
        inner = jnp.pad(x, widths, "reflect")
        at = np.arange(inner.shape[-1])
        ends = jnp.where(at < n, x[..., :1], x[..., -1:])
        outside = (at < n) | (at >= n + x.shape[-1])
        return jnp.where(outside, 2 * ends - inner, inner)
    modes: Any = {"even": "reflect", "constant": "edge", "zeros": "constant"}
    return jnp.pad(x, widths, modes[boundary])


def _subtract_trend(rows: Array, trend: Trend, axis: int) -> Array:
    if callable(trend):
        return jnp.moveaxis(trend(jnp.moveaxis(rows, -1, axis)), axis, -1)
    if trend is False:
        return rows
    if isinstance(trend, str):
        return remove_trend(rows, type=trend)  # type: ignore[arg-type]  # checked there
    raise ArgumentError('expected detrend "constant", "linear", False or a function, got '
                        f"{trend!r}")


def _spectra(x: Array, y: Array | None, fs: ArrayLike, window: Any, nperseg: int | None,
             noverlap: int | None, nfft: int | None, trend: Trend, onesided: bool, scaling: str,
             axis: int, is_stft: bool, boundary: str | None, padded: bool
             ) -> tuple[Array, Array, Array]:
    """Return frequencies, times, and the transforms of segments or their products."""
    arguments.check_choice("scaling", scaling, ("density", "spectrum"))
    arguments.check_choice("boundary", boundary, ("even", "odd", "constant", "zeros", None))
    at = axis_numbers.normalize_axis(axis, x.ndim)
    signals = [jnp.moveaxis(s, at, -1) for s in ([x] if y is None else [x, y])]
    length = max(s.shape[-1] for s in signals)
    signals = [jnp.pad(s, [(0, 0)] * (s.ndim - 1) + [(0, length - s.shape[-1])]) for s in signals]
    real = x.real.dtype
    size = None if nperseg is None else arguments.check_int("nperseg", nperseg)
    if size is not None and size < 1:
        raise ArgumentError(f"expected nperseg >= 1, got {size}")
    win, n = _window(window, size, x.shape[at], x.dtype)
    overlap = n // 2 if noverlap is None else arguments.check_int("noverlap", noverlap)
    count = n if nfft is None else arguments.check_int("nfft", nfft)
    if count < n or overlap >= n:
        raise ArgumentError(f"expected nfft >= nperseg > noverlap, got {count}, {n} and {overlap}")
    step = n - overlap
    signals = [_continue(s, n // 2, boundary) for s in signals]
    if padded:
        extra = -(signals[0].shape[-1] - n) % step % n
        signals = [jnp.pad(s, [(0, 0)] * (s.ndim - 1) + [(0, extra)]) for s in signals]
    length = signals[0].shape[-1]
    places = _places(length, n, step)
    half = onesided and not any(s._dtype.is_complex for s in signals)
    if onesided and not half:
        warnings.warn("frequencies of complex signals are those of both signs", stacklevel=4)
    rows = [_subtract_trend(s.at[..., places].get(mode="clip"), trend, at) * win for s in signals]
    transforms = [(jnp.fft.rfft if half else jnp.fft.fft)(r, n=count) for r in rows]
    scale = 1 / (fs * (win * win).sum()) if scaling == "density" else 1 / win.sum() ** 2
    if is_stft:
        result = transforms[0] * jnp.sqrt(scale)
    else:
        product = jnp.conj(transforms[0]) * transforms[-1] if y is not None else \
            (jnp.abs(transforms[0]) ** 2)
        result = product * scale
        if half:  # the other half has the same energy; but 0 and the last even one have none
            double = np.ones(result.shape[-1])
            double[1:None if count % 2 else -1] = 2
            result = result * constant_array(double, real)
    spacing: Any = 1 / asarray(fs)
    frequencies = (jnp.fft.rfftfreq if half else jnp.fft.fftfreq)(count, spacing, dtype=real)
    times = (np.arange(len(places)) * step + n / 2 - (n / 2 if boundary is not None else 0))
    return frequencies, constant_array(times, real) / fs, jnp.moveaxis(result, -1, at)


@_docstr("(frequencies, times, transforms of the segments, with the axis of segments last).")
def stft(x: ArrayLike, fs: ArrayLike = 1.0, window: Any = "hann", nperseg: int = 256,
         noverlap: int | None = None, nfft: int | None = None, detrend: Trend = False,
         return_onesided: bool = True, boundary: str | None = "zeros", padded: bool = True,
         axis: int = -1) -> tuple[Array, Array, Array]:
    """Return the short-time Fourier transform: those of windows along a signal.

    >>> import fnx.numpy as jnp
    >>> f, t, Z = signal.stft(jnp.arange(8.0), nperseg=4)
    >>> print(f, t, Z.shape)
    [0.   0.25 0.5 ] [0. 2. 4. 6. 8.] (3, 5)
    """
    signal, = promote_arrays("stft", asarray(x))
    if not signal.size:
        return _nothing(signal)
    return _spectra(signal, None, fs, window, nperseg, noverlap, nfft, detrend, return_onesided,
                    "spectrum", axis, True, boundary, padded)


def _nothing(x: Array) -> tuple[Array, Array, Array]:
    real = jnp.zeros(x.shape, x.real.dtype)
    return real, real, real.astype(np.result_type(real.dtype, np.complex64))


@_docstr()
def csd(x: ArrayLike, y: ArrayLike | None, fs: ArrayLike = 1.0, window: Any = "hann",
        nperseg: int | None = None, noverlap: int | None = None, nfft: int | None = None,
        detrend: Trend = "constant", return_onesided: bool = True, scaling: str = "density",
        axis: int = -1, average: str = "mean") -> tuple[Array, Array]:
    """Estimate the cross spectral density of two signals by Welch's method.

    Source: Welch, The use of the fast Fourier transform for the estimation of power spectra, IEEE
    Trans. Audio Electroacoust. 15 (1967).

    >>> import fnx.numpy as jnp
    >>> f, P = signal.csd(jnp.arange(8.0), jnp.ones(8), nperseg=4)
    >>> print(f, P.shape)
    [0.   0.25 0.5 ] (3,)
    """
    arguments.check_choice("average", average, ("mean", "median"))
    signals = promote_arrays("csd", *[asarray(s) for s in ((x,) if y is None else (x, y))])
    if len({s.ndim for s in signals}) > 1:
        raise ShapeError("expected signals of the same rank, got shapes "
                         f"{signals[0].shape} and {signals[1].shape}")
    other = signals[1] if len(signals) > 1 else None
    if not all(s.size for s in signals):
        frequencies, _, densities = _nothing(signals[0])
        return frequencies, densities if other is not None else densities.real
    frequencies, _, products = _spectra(
        signals[0], other, fs, window, nperseg, noverlap, nfft, detrend, return_onesided, scaling,
        axis, False, None, False)
    if average == "mean":
        return frequencies, products.mean(-1)
    odd = 2.0 * np.arange(1, (products.shape[-1] - 1) // 2 + 1)
    bias = 1 + (1 / (odd + 1) - 1 / odd).sum()  # of the median of exponential variables
    if not products._dtype.is_complex:
        return frequencies, jnp.median(products, -1) / bias
    parts = [jnp.median(part, -1) for part in (products.real, products.imag)]
    return frequencies, (parts[0] + 1j * parts[1]) / bias


@_docstr()
def welch(x: ArrayLike, fs: ArrayLike = 1.0, window: Any = "hann", nperseg: int | None = None,
          noverlap: int | None = None, nfft: int | None = None, detrend: Trend = "constant",
          return_onesided: bool = True, scaling: str = "density", axis: int = -1,
          average: str = "mean") -> tuple[Array, Array]:
    """Estimate the power spectral density of a signal by Welch's method.

    >>> import fnx.numpy as jnp
    >>> f, P = signal.welch(jnp.sin(jnp.pi / 4 * jnp.arange(64)), nperseg=16)
    >>> print(f[jnp.argmax(P)])
    0.125
    """
    frequencies, densities = csd(x, None, fs, window, nperseg, noverlap, nfft, detrend,
                                 return_onesided, scaling, axis, average)
    return frequencies, densities.real


def _overlap_and_add(rows: Array, step: int) -> Array:
    """Add segments (..., segments, samples) at multiples of a step."""
    segments, n = rows.shape[-2:]
    length = step * (segments - 1) + n
    places = _places(length, n, step)
    return jnp.zeros((*rows.shape[:-2], length), rows.dtype).at[..., places].add(rows)


@_docstr("(times, signal).")
def istft(Zxx: ArrayLike, fs: ArrayLike = 1.0, window: Any = "hann", nperseg: int | None = None,
          noverlap: int | None = None, nfft: int | None = None, input_onesided: bool = True,
          boundary: bool = True, time_axis: int = -1, freq_axis: int = -2) -> tuple[Array, Array]:
    """Return the signal of a short-time Fourier transform.

    >>> import fnx.numpy as jnp
    >>> _, _, Z = signal.stft(jnp.arange(8.0), nperseg=4)
    >>> print(signal.istft(Z)[1].round(3))
    [0. 1. 2. 3. 4. 5. 6. 7.]
    """
    z = asarray(Zxx)
    if z.ndim < 2:
        raise ShapeError(f"expected transforms of at least two axes, got shape {z.shape}")
    times, frequencies = [axis_numbers.normalize_axis(i, z.ndim) for i in (time_axis, freq_axis)]
    if times == frequencies:
        raise ArgumentError(f"expected two axes, got {times} twice")
    z = jnp.moveaxis(z, (times, frequencies), (-2, -1))
    bins = z.shape[-1]
    default = 2 * (bins - 1) if input_onesided else bins
    n = arguments.check_int("nperseg", nperseg) if nperseg else default
    count = arguments.check_int("nfft", nfft) if nfft is not None else \
        default + (input_onesided and n == default + 1)
    overlap = arguments.check_int("noverlap", noverlap) if noverlap else n // 2
    if not count >= n > overlap >= 0:
        raise ArgumentError(f"expected nfft >= nperseg > noverlap >= 0, got {count}, {n} and "
                            f"{overlap}")
    rows = (jnp.fft.irfft(z, n=count) if input_onesided else jnp.fft.ifft(z, n=count))[..., :n]
    if isinstance(window, str | tuple):
        win = _named_window(window, n).astype(rows.dtype)
    else:
        win = asarray(window)
        if win.shape != (n,):
            raise ArgumentError(f"expected a window of {n} elements, got shape {win.shape}")
    step = n - overlap
    x = _overlap_and_add(rows * (win.sum() * win), step)
    weights = _overlap_and_add(jnp.broadcast_to(win * win, (rows.shape[-2], n)), step)
    if boundary and n > 1:
        x, weights = x[..., n // 2:-(n // 2)], weights[..., n // 2:-(n // 2)]
    x = x / jnp.where(weights > 1e-10, weights, 1)
    length = x.shape[-1]
    if x.ndim > 1:
        x = jnp.moveaxis(x, -1, times - (frequencies < times))
    return jnp.arange(length, dtype=x.real.dtype) / fs, x
