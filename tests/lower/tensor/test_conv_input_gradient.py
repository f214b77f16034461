"""Input gradients of convolutions are sums of products, in the order of the operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
from fnx import lax
from fnx.core.ir import ops
from fnx.core.support.config import override


@pytest.mark.parametrize("order", ["NHWC", "NCHW"])
def test_gradients_are_written_in_the_order_of_the_channels(order: str) -> None:
    rng = np.random.default_rng(0)
    shape = {"N": 2, "H": 16, "W": 16, "C": 4}
    x, g = (rng.normal(size=[(shape | {"C": c})[a] for a in order]).astype("float32")
            for c in (4, 3))
    w = rng.normal(size=(3, 3, 4, 3)).astype("float32")

    def gradient(x: Any, w: Any, g: Any) -> Any:
        return fnx.grad(lambda x: (g * lax.conv_general_dilated(
            x, w, (1, 1), "SAME", dimension_numbers=(order, "HWIO", order))).sum())(x)
    f = fnx.jit(gradient)
    out, = f.lower(x, w, g).simplified.src
    part = out.src[0] if out.op is ops.SHRINK else out
    assert part.op is ops.REDUCE and not any(s.op is ops.FOLD for s in part.src[0].src)
    with override(device="interp"):
        wanted = fnx.jit(gradient)(x, w, g)
    np.testing.assert_allclose(f(x, w, g), wanted, rtol=1e-5, atol=1e-5)
