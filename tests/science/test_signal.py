"""``scipy.signal`` beside SciPy: convolutions of any shapes, and trends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.signal as reference
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, NotBuiltError, ShapeError
from fnx.scipy import signal

MODES: Any = st.sampled_from(["full", "same", "valid"])


def numbers(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@st.composite
def pairs(draw: Any) -> tuple[np.ndarray, np.ndarray]:
    """Draw two arrays of which one fits into the other."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=3)))
    inner = tuple([draw(st.integers(1, n)) for n in shape])
    x, y = numbers(draw(st.integers(0, 99)), shape), numbers(draw(st.integers(0, 99)), inner)
    return (x, y) if draw(st.booleans()) else (y, x)


@settings(max_examples=25)
@given(pairs(), MODES, st.sampled_from(["convolve", "correlate"]))
def test_any_shapes(both: tuple[np.ndarray, np.ndarray], mode: Any, name: str) -> None:
    x, y = both
    found = np.asarray(getattr(signal, name)(x, y, mode))
    np.testing.assert_allclose(found, getattr(reference, name)(x, y, mode), rtol=1e-5, atol=2e-5)


@settings(max_examples=8)
@given(pairs(), MODES, st.sampled_from(["convolve2d", "correlate2d"]))
def test_matrices(both: tuple[np.ndarray, np.ndarray], mode: Any, name: str) -> None:
    x, y = [a.reshape(1, -1) if a.ndim == 1 else a.reshape(a.shape[0], -1) for a in both]
    if not (x.shape <= y.shape and x.shape[1] <= y.shape[1]) and not (
            y.shape[0] <= x.shape[0] and y.shape[1] <= x.shape[1]):
        return
    found = np.asarray(getattr(signal, name)(x, y, mode))
    np.testing.assert_allclose(found, getattr(reference, name)(x, y, mode), rtol=1e-5, atol=2e-5)


def test_jit_and_vmap_agree_with_eager_calls() -> None:
    x, y = numbers(0, (4, 7)), numbers(1, (4, 3))
    rows = fnx.vmap(lambda a, b: signal.correlate(a, b, "same"))(x, y)
    for a, b, row in zip(x, y, rows):
        np.testing.assert_allclose(row, signal.correlate(a, b, "same"), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(fnx.jit(signal.convolve)(a, b), signal.convolve(a, b), rtol=1e-5)


@pytest.mark.parametrize("kind", ["linear", "constant"])
@pytest.mark.parametrize("breaks", [0, [2], [1, 4, 5]])
def test_trends(kind: Any, breaks: Any) -> None:
    x = numbers(0, (3, 9, 2))
    for axis in (0, 1, -1):
        given = breaks if axis == 1 else 0
        np.testing.assert_allclose(signal.detrend(x, axis, kind, given),
                                   reference.detrend(x, axis, kind, given), atol=1e-5)


def test_the_derivative_of_a_trend_is_a_projection(float64: None) -> None:
    projection = np.asarray(fnx.jacobian(signal.detrend)(jnp.zeros(6)))
    np.testing.assert_allclose(projection @ projection, projection, atol=1e-12)
    np.testing.assert_allclose(projection, projection.T, atol=1e-12)
    assert round(projection.trace()) == 4


def test_bad_input() -> None:
    for act, kind, part in (
            (lambda: signal.convolve(np.ones((3, 4)), np.ones((4, 3))), ShapeError, "every axis"),
            (lambda: signal.convolve(np.ones(3), np.ones((4, 3))), ShapeError, "same rank"),
            (lambda: signal.convolve(np.ones(0), np.ones(3)), ShapeError, "elements"),
            (lambda: signal.convolve2d(np.ones(3), np.ones(3)), ShapeError, "matrices"),
            (lambda: signal.convolve2d(np.eye(3), np.eye(2), boundary="wrap"),  # type: ignore
             NotBuiltError, "jnp.pad"),
            (lambda: signal.correlate(np.ones(3), np.ones(3), "ful"),  # type: ignore
             ArgumentError, "'full'"),
            (lambda: signal.detrend(np.ones(4), bp=5), ArgumentError, "from 0 to 4")):
        with pytest.raises(kind, match=part):
            act()
