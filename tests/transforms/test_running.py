"""Running folds: along any axis, both ways, of all dtypes, with derivatives of both modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core import ops
from fnx.core.uop import toposort
from fnx.test_util import check_grads

FOLDS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "cumsum": (lax.cumsum, np.cumsum), "cumprod": (lax.cumprod, np.cumprod),
    "cummax": (lax.cummax, np.maximum.accumulate), "cummin": (lax.cummin, np.minimum.accumulate)}
SHAPES = [((1,), 0), ((16,), 0), ((17,), 0), ((300,), 0), ((3, 40), 1), ((40, 3), 0),
          ((33, 20), 0), ((33, 20), 1), ((2, 21, 5), 1), ((0,), 0), ((0, 30), 1), ((30, 0), 0)]


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_they_are_numpys(name: str, shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    ours, numpys = FOLDS[name]
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(np.int32)
    want = np.flip(numpys(np.flip(x, axis), axis), axis) if reverse else numpys(x, axis)
    np.testing.assert_array_equal(ours(jnp.asarray(x), axis, reverse), want)


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize(("shape", "axis"), [((20,), 0), ((3, 18), 1), ((18, 2), 0), ((9,), 0)])
def test_derivatives_of_both_modes(name: str, shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(1).uniform(0.5, 1.5, shape)
    check_grads(lambda x: FOLDS[name][0](x, axis), (x,), order=2)


def test_each_is_one_kernel() -> None:
    for name, (f, _) in FOLDS.items():
        lowered = fnx.jit(f).lower(jnp.ones((5000, 4)))
        loops = [n for n in toposort(lowered.simplified.src) if n.op is ops.SCAN]
        assert not loops and len(lowered.kernels) == 1, name


def test_lanes_of_vmap_and_scan() -> None:
    x = np.random.default_rng(2).standard_normal((4, 30)).astype(np.float32)
    np.testing.assert_allclose(fnx.vmap(jnp.cumsum)(x), np.cumsum(x, 1), rtol=1e-5, atol=1e-5)
    _, ys = lax.scan(lambda c, v: (c + 1, jnp.cumsum(v) + c), 0.0, x)
    np.testing.assert_allclose(ys, np.cumsum(x, 1) + np.arange(4)[:, None], rtol=1e-5, atol=1e-5)


def test_what_is_no_number_stays() -> None:
    x = np.ones(40, np.float32)
    x[20] = np.nan
    for name, (f, numpys) in FOLDS.items():
        np.testing.assert_array_equal(f(jnp.asarray(x)), numpys(x), err_msg=name)
