"""numpy.fft, lax.fft and scipy.fft against NumPy and SciPy; their derivatives, batches and errors.

scripts/compare_fft.py compares them with JAX.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.fft
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
import fnx.scipy.fft as fft
from fnx import errors, lax
from fnx.core.array.array import Array

COMPLEX, REAL, HALF = ("fft", "ifft"), ("rfft", "ihfft"), ("irfft", "hfft")
SEVERAL = ("fftn", "ifftn", "rfftn", "irfftn")
NORMS = (None, "backward", "ortho", "forward")


def numbers(shape: tuple[int, ...], is_complex: bool, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    return x + 1j * rng.standard_normal(shape) if is_complex else x


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    got, want = np.asarray(found), np.asarray(expected)
    assert got.shape == want.shape
    assert np.linalg.norm((got - want).ravel()) <= tolerance * max(1, np.linalg.norm(want.ravel()))


@settings(max_examples=10, deadline=None)
@given(name=st.sampled_from(COMPLEX + REAL + HALF), shape=st.lists(st.integers(1, 9), min_size=1,
                                                                   max_size=3),
       n=st.none() | st.integers(2, 12), axis=st.integers(-3, 2), norm=st.sampled_from(NORMS))
def test_one_axis(name: str, shape: list[int], n: int | None, axis: int, norm: str | None) -> None:
    axis = axis % len(shape)
    if name in HALF and n is None and shape[axis] == 1:
        n = 2
    x = numbers(tuple(shape), name not in REAL)
    got = getattr(jnp.fft, name)(jnp.asarray(x), n, axis, norm)
    want = getattr(np.fft, name)(x, n, axis, norm)
    assert got.dtype == ("float32" if name in HALF else "complex64")
    close(got, want)


@pytest.mark.parametrize("name", SEVERAL)
@pytest.mark.parametrize("kw", [{}, {"s": (3, 6), "axes": (0, 2)},
                                {"axes": (2, 0), "norm": "ortho"}, {"norm": "forward"}], ids=str)
def test_several_axes(name: str, kw: dict[str, Any]) -> None:
    x = numbers((4, 5, 6), name != "rfftn")
    close(fnx.jit(lambda x: getattr(jnp.fft, name)(x, **kw))(jnp.asarray(x)),
          getattr(np.fft, name)(x, **kw))


@pytest.mark.parametrize("name", ["fft2", "ifft2", "rfft2", "irfft2"])
def test_two_axes(name: str) -> None:
    x = numbers((3, 4, 6), name != "rfft2")
    close(getattr(jnp.fft, name)(jnp.asarray(x)), getattr(np.fft, name)(x))
    close(getattr(jnp.fft, name)(jnp.asarray(x), axes=(0, 1)),
          getattr(np.fft, name)(x, axes=(0, 1)))


def test_dtypes() -> None:
    for dtype in ("int32", "bool", "float16", "bfloat16", "float32"):
        assert jnp.fft.fft(jnp.ones(4, dtype)).dtype == "complex64"
        assert jnp.fft.rfft(jnp.ones(4, dtype)).dtype == "complex64"
        assert fft.dct(jnp.ones(4, dtype)).dtype == "float32"
    with fnx.enable_x64(True):
        assert jnp.fft.fft(jnp.ones(4)).dtype == "complex128"
        assert jnp.fft.irfft(jnp.ones(3, "complex128")).dtype == "float64"
        x = numbers((1000,), True)
        close(jnp.fft.fft(jnp.asarray(x)), np.fft.fft(x), 1e-15)


def test_frequencies_and_shifts() -> None:
    for n in (1, 2, 5, 8):
        close(jnp.fft.fftfreq(n, 0.3), np.fft.fftfreq(n, 0.3))
        close(jnp.fft.rfftfreq(n, 0.3), np.fft.rfftfreq(n, 0.3))
    x = numbers((4, 5), True)
    for axes in (None, 0, (1, 0)):
        close(jnp.fft.fftshift(jnp.asarray(x), axes), np.fft.fftshift(x, axes))
        close(jnp.fft.ifftshift(jnp.asarray(x), axes), np.fft.ifftshift(x, axes))


def test_imaginary_parts_that_a_real_result_cannot_have_are_ignored() -> None:
    z = numbers((5,), True)
    close(jnp.fft.irfft(jnp.asarray(z), 8), np.fft.irfft(z, 8))
    z[0] = complex(z[0].real, np.nan)
    assert np.isfinite(np.asarray(jnp.fft.irfft(jnp.asarray(z), 8))).all()


@pytest.mark.cases(1)
@pytest.mark.parametrize("norm", [None, "ortho"])
def test_cosine_transforms(norm: str | None) -> None:
    for n in (1, 2, 3, 7, 12):
        x = numbers((3, n), False)
        close(fft.dct(jnp.asarray(x), norm=norm), scipy.fft.dct(x, norm=norm))
        close(fft.idct(jnp.asarray(x), norm=norm), scipy.fft.idct(x, norm=norm))
    z = numbers((4, 6), True)
    expected = scipy.fft.dct(z.real, n=8) + 1j * scipy.fft.dct(z.imag, n=8)
    close(fft.dct(jnp.asarray(z), n=8), expected)
    x = numbers((3, 4, 5), False)
    close(fft.dctn(jnp.asarray(x), norm=norm), scipy.fft.dctn(x, norm=norm))
    close(fft.idctn(jnp.asarray(x), s=(2, 6), axes=(0, 2), norm=norm),
          scipy.fft.idctn(x, s=(2, 6), axes=(0, 2), norm=norm))


def test_lax_fft() -> None:
    z, x = numbers((3, 4, 5), True), numbers((3, 4, 5), False)
    close(lax.fft(jnp.asarray(z), "FFT", (4, 5)), np.fft.fftn(z, axes=(1, 2)))
    close(lax.fft(jnp.asarray(z), lax.FftType.IFFT, (5,)), np.fft.ifft(z))
    close(lax.fft(jnp.asarray(x), "RFFT", (5,)), np.fft.rfft(x))
    close(lax.fft(jnp.asarray(z), lax.FftType.IRFFT, (8,)), np.fft.irfft(z, 8))


def test_a_convolution() -> None:
    a, b = numbers((100,), False), numbers((30,), False, 1)

    def convolve(a: Array, b: Array) -> Array:
        n = a.size + b.size - 1
        return jnp.fft.irfft(jnp.fft.rfft(a, n) * jnp.fft.rfft(b, n), n)
    close(fnx.jit(convolve)(jnp.asarray(a), jnp.asarray(b)), np.convolve(a, b))


def test_nothing_is_copied_around_a_transform() -> None:
    z = jnp.asarray(numbers((64, 64), True).astype("complex64"))
    commands = fnx.jit(lambda z: jnp.fft.ifft2(jnp.fft.fft2(z) * 2)).lower(z).text("commands")
    names = [line.partition("(")[0] for line in commands.splitlines()]
    assert [n for n in names if n != "fft"] == ["map_mul"]


@pytest.mark.cases(4)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "hfft", "irfft", "ihfft"])
def test_derivatives(name: str) -> None:
    with fnx.enable_x64(True):
        x = jnp.asarray(numbers((2, 6), name not in REAL))
        t = jnp.asarray(numbers((2, 6), name not in REAL, 1))

        def f(x: Array) -> Array:
            return getattr(jnp.fft, name)(x)
        y, tangent = fnx.jvp(f, (x,), (t,))
        step = 1e-5
        close(tangent, (f(x + step * t) - f(x - step * t)) / (2 * step), 1e-8)
        ct = jnp.asarray(numbers(y.shape, name not in HALF, 2))
        back, = fnx.vjp(f, x)[1](ct)
        close(jnp.sum((back * t).real), jnp.sum((ct * tangent).real), 1e-12)


def test_batches() -> None:
    x = jnp.asarray(numbers((3, 4, 5), True))
    for name in (*COMPLEX, *HALF):
        f = getattr(jnp.fft, name)
        close(fnx.vmap(f, 1, 1)(x), f(x))
        close(fnx.vmap(lambda row, f=f: f(row, axis=0), 2, 2)(x), f(x, axis=0))


def test_errors() -> None:
    x, z = jnp.ones((3, 4)), jnp.ones((3, 4), "complex64")
    for call, error in (
            (lambda: jnp.fft.fft(x, 0), errors.ArgumentError),
            (lambda: jnp.fft.fft(x, n=-1), errors.ArgumentError),
            (lambda: jnp.fft.fft(x, axis=2), errors.AxisError),
            (lambda: jnp.fft.fft(x, norm="none"), errors.ArgumentError),
            (lambda: jnp.fft.fft(jnp.zeros((3, 0))), errors.ArgumentError),
            (lambda: jnp.fft.irfft(jnp.ones(1)), errors.ArgumentError),
            (lambda: jnp.fft.rfft(z), errors.DTypeError),
            (lambda: jnp.fft.fftn(x, (2,), (0, 1)), errors.ShapeError),
            (lambda: jnp.fft.fftn(x, axes=(0, 0)), errors.AxisError),
            (lambda: jnp.fft.fft2(x, axes=(0,)), errors.ArgumentError),
            (lambda: jnp.fft.fftfreq(0), errors.ArgumentError),
            (lambda: lax.fft(x, "DCT", (4,)), errors.ArgumentError),
            (lambda: lax.fft(x, "FFT", (5,)), errors.ShapeError),
            (lambda: fft.dct(x, type=1), errors.NotBuiltError),
            (lambda: fft.dct(x, norm="forward"), errors.ArgumentError)):
        with pytest.raises(error, match="expected|not implemented"):
            call()
    assert jnp.fft.fft(jnp.zeros((0, 4))).shape == (0, 4)
