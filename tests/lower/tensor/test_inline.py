"""Calls that are not inlined: a function that is called often is lowered once, by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.config import override
from fnx.lower.tensor import inline as file
from fnx.lower.tensor.inline import inline

F = dtypes.float32


def product() -> UOp:
    """x @ w, closed."""
    x, w = build.param(0, F, (4, 4)), build.param(1, F, (4, 4))
    both = [build.expand(build.reshape(p, s), (4, 4, 4)) for p, s in (
        (x, (4, 1, 4)), (build.permute(w, (1, 0)), (1, 4, 4)))]
    return build.function([build.reduce(build.mul(*both), ops.ADD, (2,))], 2, "product")


def repeated(body: UOp, count: int) -> UOp:
    x, w = build.param(0, F, (4, 4)), build.param(1, F, (4, 4))
    for _ in range(count):
        x, = build_calls.call(body, [x, w])
    return build.function([x], 2)


def calls(fn: UOp) -> int:
    return sum(n.op is ops.CALL for n in toposort(fn.src))


def test_few_calls_are_inlined_and_many_stay() -> None:
    assert [calls(inline(repeated(product(), n))) for n in (1, 7, 8, 20)] == [0, 0, 8, 20]


def test_light_bodies_are_inlined_however_often() -> None:
    x = build.param(0, F, (4, 4))
    light = build.function([build.exp(build.add(x, build.param(1, F, (4, 4))))], 2)
    assert calls(inline(repeated(light, 50))) == 0


def test_calls_are_counted_through_calls() -> None:
    """Three calls of a function that makes three calls."""
    three = repeated(product(), 3)
    assert calls(inline(repeated(three, 3))) == 9
    assert calls(inline(repeated(three, 2))) == 0


def layers(x: Any, ws: Any) -> Any:
    layer = fnx.jit(lambda x, w: jnp.tanh(x @ w))
    for w in ws:
        x = layer(x, w)
    return x


@pytest.mark.parametrize("f", [
    lambda x, ws: layers(x, ws).sum(),
    lambda x, ws: fnx.grad(lambda ws: (layers(x, ws) ** 2).sum())(ws)])
def test_what_a_boundary_costs(f: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Function boundaries keep the values and add at most two thirds more kernels."""
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(4, 8)).astype(np.float32))
    ws = [jnp.asarray(rng.normal(size=(8, 8)).astype(np.float32) / 3) for _ in range(12)]
    with override(device="interp"):
        blocks = fnx.jit(f)
        separate = blocks.lower(x, ws).kernels
        monkeypatch.setattr(file, "MIN_CALLS", 1 << 30)
        flat = fnx.jit(lambda x, ws: f(x, ws))
        together = flat.lower(x, ws).kernels
        want = flat(x, ws)
    assert len({k.node for k in separate}) <= 12
    assert len(separate) <= len(together) * 5 / 3
    for a, b in zip(fnx.tree_util.tree_leaves(blocks(x, ws)), fnx.tree_util.tree_leaves(want)):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6)
