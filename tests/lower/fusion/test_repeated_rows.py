"""Values of rows that a map would compute again for each element between the rows."""

from __future__ import annotations

from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx.core.support.config import override


def gated(x: Any, w: Any) -> Any:
    """Squeeze and excite: the channels of an image times gates of these."""
    return x * (1 / (1 + jnp.exp(-(x.mean((1, 2)) @ w))))[:, None, None]


def test_gates_of_channels_are_computed_once() -> None:
    """Not for each pixel, although the products that they are made of have other kernels."""
    draw = np.random.default_rng(0)
    x = draw.standard_normal((4, 16, 16, 32)).astype(np.float32)
    w = draw.standard_normal((32, 32)).astype(np.float32)

    def f(x: Any, w: Any) -> Any:
        return fnx.jvp(gated, (x, w), (x * 0.5, w * 2))
    text = fnx.jit(f).lower(x, w).text("groups")
    maps = [group for group in text.split("group ") if "over (4, 16, 16, 32)" in group]
    assert maps and not any("exp(" in group for group in maps), text
    with override(device="interp"):
        want = f(x, w)
    for a, b in zip(fnx.jit(f)(x, w), want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
