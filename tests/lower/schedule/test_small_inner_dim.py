"""Short rows that are staged are unrolled: gathered once, and written as whole vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.levels import show
from fnx.core.support.config import override
from tests.lower.steps import AVX512, tiled_kernels

RNG = np.random.default_rng(0)


def away(x: Any, i: Any, j: Any) -> Any:
    d = x[i] - x[j]
    return d / (1 + jnp.sum(d * d, -1, keepdims=True))


@pytest.mark.parametrize("width", [2, 3, 4])
@pytest.mark.parametrize("rows", [4000, 3989])
def test_gathered_rows(width: int, rows: int) -> None:
    x = RNG.normal(size=(50, width)).astype("float32")
    i, j = (RNG.integers(-60, 60, rows).astype("int32") for _ in range(2))
    with override(device="interp"):
        wanted = fnx.jit(away)(x, i, j)
    np.testing.assert_allclose(fnx.jit(away)(x, i, j), wanted, rtol=1e-5, atol=1e-6)
    if rows == 4000:  # no loop has a tail
        lines = fnx.jit(away).lower(x, i, j).text("programs").splitlines()
        assert sum("store(&x3" in line for line in lines) == width
        assert sum("load(&x1" in line for line in lines) == 2 * width


@pytest.mark.parametrize("width", [16, 18, 40])
def test_rows_of_sums_in_parts_are_transposed_as_vectors(width: int) -> None:
    """Blocked summation splits the sum's range; the stage for it is filled along all of it."""
    def distances(x: Any) -> Any:
        return ((x[:, None] - x[None]) ** 2).sum(-1)
    x = RNG.normal(size=(70, width)).astype("float32")
    given = x.astype("float64")
    np.testing.assert_allclose(fnx.jit(distances)(x), distances(given), rtol=1e-5, atol=1e-5)
    kernel, = tiled_kernels(fnx.jit(distances).lower(x).simplified, AVX512)
    assert "_v in vec(" in show.pretty(kernel)
