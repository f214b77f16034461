"""What a backward pass reads of an activation: few values, of which it computes the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
from fnx import numpy as jnp
from fnx.core.ir import build, dtypes, ops
from fnx.lower.fusion.index_tokens import identity_index
from fnx.lower.fusion.recompute_from_read import weight_from_read

ROWS, WIDTH = 512, 128


def operands() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    return tuple([(rng.standard_normal(s) / 11).astype(np.float32)
                  for s in ((WIDTH, WIDTH), (WIDTH, WIDTH), (ROWS, WIDTH))])


@pytest.mark.parametrize(("activation", "stored"), [
    (fnx.nn.gelu, 2), (fnx.nn.silu, 3), (fnx.nn.relu, 1)],
    ids=["gelu", "silu", "relu"])
def test_what_a_backward_pass_needs_is_stored(activation: Callable[[Any], Any], stored: int
                                              ) -> None:
    """Besides the activation and the derivative of the loss: z, and what is expensive."""
    def loss(w: Any, v: Any, x: Any) -> Any:
        return jnp.mean((activation(x @ w) @ v) ** 2)
    w, v, x = operands()
    f = fnx.jit(fnx.grad(loss, (0, 1)))
    assert f.lower(w, v, x).arena <= (2 + stored) * x.nbytes
    for got, expected in zip(f(w, v, x), fnx.grad(loss, (0, 1))(w, v, x)):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_what_is_not_read_is_not_read_for_a_cheap_value() -> None:
    z, y = (build.param(i, dtypes.float32, (64, 64)) for i in range(2))
    index = identity_index(z.shape)
    value = build.mul(build.add(z, z), build.const_like(z, 2))
    cost = ops.ADD.cost + ops.MUL.cost
    assert weight_from_read(value, index, lambda n, at: n is z) == cost
    assert weight_from_read(value, index, lambda n, at: n is z and at != index) is None
    assert weight_from_read(build.add(value, y), index, lambda n, at: n is z) is None


def test_a_step_on_an_expensive_value_is_computed_where_it_is_shifted() -> None:
    """Of tanh(z) and 1 + tanh(z), one is in memory: the next convolution reads it with an offset,
    the backward pass at its own index."""
    def loss(k: Any, x: Any) -> Any:
        for _ in range(2):
            z = fnx.lax.conv_general_dilated(x, k, (2,), "SAME")
            x = 0.5 * z * (1 + jnp.tanh(z + z ** 3))
        return jnp.mean(x ** 2)
    rng = np.random.default_rng(0)
    k = (rng.standard_normal((32, 32, 9)) / 10).astype(np.float32)
    x = rng.standard_normal((8, 32, 500)).astype(np.float32)
    step = fnx.jit(fnx.value_and_grad(loss))
    assert step.lower(k, x).arena < 7 * x.nbytes
    (value, slope), eager = step(k, x), fnx.value_and_grad(loss)(k, x)
    np.testing.assert_allclose(value, eager[0], rtol=1e-5)
    np.testing.assert_allclose(slope, eager[1], rtol=1e-3, atol=1e-6)
