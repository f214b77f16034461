"""Cumulative sums and products of any length have few rounding errors."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp

COMPILED = True


@pytest.mark.parametrize("shape, axis", [((20_000,), 0), ((3_000, 7), 0), ((5, 4_001), 1)])
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_long_running_folds_keep_their_bits(name: str, shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(4).random(shape, np.float32) + np.float32(1.0)
    x = x if name == "cumsum" else np.exp2((x - 1.5) / 8).astype(np.float32)
    exact = getattr(np, name)(x.astype(np.float64), axis)
    got = np.asarray(fnx.jit(lambda x: getattr(jnp, name)(x, axis))(x), np.float64)
    assert np.max(np.abs(got / exact - 1)) < 2 * 2.0 ** -24


def test_their_gradients_are_those_of_sums() -> None:
    x = np.random.default_rng(5).standard_normal(500).astype(np.float32)
    weight = np.linspace(0, 1, 500, dtype=np.float32)
    got = fnx.grad(lambda x: jnp.sum(jnp.cumsum(x) * weight))(x)
    assert got.dtype == np.float32
    exact = np.cumsum(weight.astype(np.float64)[::-1])[::-1]
    np.testing.assert_allclose(np.asarray(got), exact, rtol=1e-6)
