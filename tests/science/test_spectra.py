"""Convolutions by Fourier transforms, short-time transforms and densities beside SciPy."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.signal as reference
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.scipy import signal

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=100), RNG.normal(size=100)
OPTIONS: list[dict[str, Any]] = [
    {"nperseg": 16}, {"nperseg": 16, "noverlap": 4, "fs": 10.0},
    {"nperseg": 15, "nfft": 20, "window": "hamming"},
    {"nperseg": 10, "window": np.ones(10), "return_onesided": False}]


def close(found: Any, want: Any) -> None:
    for a, b in zip(found, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-10)


@settings(max_examples=10)
@given(st.integers(1, 9), st.integers(1, 9), st.booleans())
def test_convolutions(n: int, m: int, is_complex: bool) -> None:
    x, y = RNG.normal(size=(2, n)), RNG.normal(size=(2, m))
    x = x + 1j * x[::-1] if is_complex else x
    with fnx.enable_x64():
        for mode in ("full", "same", "valid"):
            found = signal.fftconvolve(x, y, mode, axes=-1)  # type: ignore[arg-type]
            want = reference.fftconvolve(x, y, mode, axes=-1)
            np.testing.assert_allclose(found, want, atol=1e-12)
        whole = signal.convolve(x[0], y[0], method="fft")
        np.testing.assert_allclose(whole, np.convolve(x[0], y[0]), atol=1e-12)


@pytest.mark.cases(2)
@pytest.mark.parametrize("options", OPTIONS)
def test_short_time_transforms(options: dict[str, Any], float64: None) -> None:
    for boundary in ("zeros", "odd", None):
        close(signal.stft(X, boundary=boundary, **options),
              reference.stft(X, boundary=boundary, **options))
    rows = np.stack([X, Y])
    transforms = signal.stft(rows, **options)[2]
    back = {k: v for k, v in options.items() if k != "return_onesided"}
    back["input_onesided"] = options.get("return_onesided", True)
    for found, want in zip(signal.istft(transforms, **back)[1], rows):
        np.testing.assert_allclose(found[:100], want, atol=1e-10)


@pytest.mark.cases(2)
@pytest.mark.parametrize("options", OPTIONS)
def test_densities(options: dict[str, Any], float64: None) -> None:
    for average in ("mean", "median"):
        close(signal.welch(X, average=average, **options),
              reference.welch(X, average=average, **options))
        close(signal.csd(X, Y, average=average, **options),
              reference.csd(X, Y, average=average, **options))
    for detrend in ("linear", False):
        close(signal.welch(X, detrend=detrend, scaling="spectrum", **options),
              reference.welch(X, detrend=detrend, scaling="spectrum", **options))


def test_other_axes_complex_signals_and_transforms(float64: None) -> None:
    columns = np.stack([X, Y], 1)
    close(signal.stft(columns, nperseg=16, axis=0), reference.stft(columns, nperseg=16, axis=0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        close(signal.welch(X + 1j * Y, nperseg=16), reference.welch(
            X + 1j * Y, nperseg=16, return_onesided=False))

    def energy(x: Any) -> Any:
        return jnp.sum(jnp.abs(signal.stft(x, nperseg=16)[2]) ** 2)
    gradient, direction = np.asarray(fnx.jit(fnx.grad(energy))(X)), RNG.normal(size=100)
    slope = (energy(X + 1e-5 * direction) - energy(X - 1e-5 * direction)) / 2e-5
    np.testing.assert_allclose(gradient @ direction, slope, rtol=1e-6)


def test_bad_input() -> None:
    for act, kind, part in (
            (lambda: signal.fftconvolve(np.ones(3), np.ones((2, 3))), ShapeError, "same rank"),
            (lambda: signal.stft(X, nperseg=8, noverlap=8), ArgumentError, "noverlap"),
            (lambda: signal.stft(X, nperseg=8, nfft=4), ArgumentError, "nfft"),
            (lambda: signal.stft(X, window="nothing", nperseg=8), ArgumentError, "window"),
            (lambda: signal.welch(X, average="mode"), ArgumentError, "'median'"),
            (lambda: signal.istft(np.ones(3)), ShapeError, "two axes"),
            (lambda: signal.stft(X, detrend="quadratic", nperseg=8), ArgumentError, "linear")):
        with pytest.raises(kind, match=part):
            act()
