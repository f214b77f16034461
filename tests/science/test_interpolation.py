"""Interpolation (ndimage, interpolate) and vector quantization beside SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.interpolate
import scipy.ndimage
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, NotBuiltError, ShapeError
from fnx.scipy.cluster.vq import vq
from fnx.scipy.interpolate import RegularGridInterpolator
from fnx.scipy.ndimage import map_coordinates

RNG = np.random.default_rng(0)
IMAGE = RNG.normal(size=(5, 6)).astype(np.float32)
POINTS = RNG.uniform(-9, 14, (2, 60)).astype(np.float32)
OF_SCIPY = {"constant": "grid-constant", "wrap": "grid-wrap"}


@pytest.mark.cases(4)
@pytest.mark.parametrize("mode", ["constant", "nearest", "wrap", "mirror", "reflect"])
@pytest.mark.parametrize("order", [0, 1])
def test_images(mode: Any, order: int) -> None:
    want = scipy.ndimage.map_coordinates(IMAGE, POINTS, order=order,
                                         mode=OF_SCIPY.get(mode, mode), cval=2.5)
    found = map_coordinates(IMAGE, list(POINTS), order, mode, cval=2.5)
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
    jitted = fnx.jit(lambda a, p: map_coordinates(a, [p[0], p[1]], order, mode, cval=2.5))
    np.testing.assert_array_equal(jitted(IMAGE, POINTS), found)


@pytest.mark.cases(1)
@pytest.mark.parametrize("mode", ["constant", "mirror"])
def test_derivatives_of_images(mode: Any, float64: None) -> None:
    points = RNG.uniform(-2, 7, (2, 7))

    def f(image: Any, points: Any) -> Any:
        return jnp.sum(jnp.sin(map_coordinates(image, [points[0], points[1]], 1, mode)))
    image = IMAGE.astype(np.float64)
    for argument, (x, step) in enumerate(((image, 1e-6), (points, 1e-6))):
        gradient = np.asarray(fnx.grad(f, argument)(image, points))
        direction = RNG.normal(size=x.shape)
        ends = [[image, points], [image, points]]
        ends[0][argument], ends[1][argument] = x + step * direction, x - step * direction
        slope = (f(*ends[0]) - f(*ends[1])) / (2 * step)
        assert abs(float(slope) - (gradient * direction).sum()) < 1e-6


def test_integers_are_rounded_and_kept() -> None:
    found = map_coordinates(np.asarray([0, 1, 5], np.int32), [np.asarray([0.5, 1.6])], 1)
    assert found.dtype == np.int32 and found.tolist() == [1, 3]


@settings(max_examples=20)
@given(st.integers(0, 99), st.integers(1, 3), st.booleans())
def test_multilinear_functions_are_reproduced(seed: int, rank: int, components: bool) -> None:
    rng = np.random.default_rng(seed)
    axes = [np.sort(rng.choice(20, n, replace=False)).astype(np.float32) for n in (3, 4, 2)[:rank]]
    slopes = rng.normal(size=rank).astype(np.float32)
    values: Any = sum(s * a for s, a in zip(slopes, np.meshgrid(*axes, indexing="ij")))
    values = np.stack([values, -values], -1) if components else values
    points = np.stack([rng.uniform(a[0] - 1, a[-1] + 1, (2, 5)) for a in axes], -1)
    found = RegularGridInterpolator(axes, values, fill_value=None)(points)
    want = (points * slopes).sum(-1)
    want = np.stack([want, -want], -1) if components else want
    np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
    inside = RegularGridInterpolator(axes, values)(points)
    outside = np.asarray([((p < a[0]) | (p > a[-1])) for p, a in zip(points.reshape(-1, rank).T,
                                                                     axes)]).any(0)
    assert np.isnan(np.asarray(inside).reshape(10, -1)).all(1).tolist() == outside.tolist()


@pytest.mark.cases(1)
@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_grids(method: Any) -> None:
    axes = [np.asarray([0.0, 1.0, 4.0]), np.asarray([-1.0, 0.5, 2.0, 3.0])]
    values, points = RNG.normal(size=(3, 4)), RNG.uniform([0, -1], [4, 3], (30, 2))
    want = scipy.interpolate.RegularGridInterpolator(axes, values, method)(points)
    f = RegularGridInterpolator(axes, values, method)
    np.testing.assert_allclose(f(points), want, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(fnx.jit(lambda f, x: f(x))(f, points), f(points), rtol=1e-6)
    np.testing.assert_allclose(f((points[:, 0], points[:, 1])), f(points), rtol=1e-6)
    doubled = fnx.tree.map(lambda x: 2 * x, f)
    np.testing.assert_allclose(doubled(2 * points), 2 * f(points), rtol=1e-5)


def test_the_nearest_code() -> None:
    observations, codes = RNG.normal(size=(20, 3)), RNG.normal(size=(5, 3))
    index, distance = vq(observations, codes)
    every = np.linalg.norm(observations[:, None] - codes, axis=-1)
    assert index.tolist() == every.argmin(1).tolist()
    np.testing.assert_allclose(distance, every.min(1), rtol=1e-5)


def test_bad_input() -> None:
    x = np.arange(3.0)
    for act, kind, part in (
            (lambda: map_coordinates(IMAGE, [x], 1), ShapeError, "2 axes"),
            (lambda: map_coordinates(IMAGE, [x, x], 2), NotBuiltError, "order=1"),
            (lambda: map_coordinates(IMAGE, [x, x], -1), ArgumentError, "order 0 or 1"),
            (lambda: map_coordinates(np.ones((0, 2)), [x, x], 1), ShapeError, "elements"),
            (lambda: RegularGridInterpolator([x[::-1]], x), ArgumentError, "increasing"),
            (lambda: RegularGridInterpolator([x[:2]], x), ShapeError, r"shape \(3,\)"),
            (lambda: RegularGridInterpolator([x], x, bounds_error=True), NotBuiltError, "nan"),
            (lambda: RegularGridInterpolator([x], x)(np.ones((2, 2))), ShapeError, "1 coordinates"),
            (lambda: vq(np.ones((2, 2)), np.ones((3, 3))), ShapeError, "length"),
            (lambda: vq(np.ones(2), np.ones((3, 1))), ShapeError, "vectors")):
        with pytest.raises(kind, match=part):
            act()
