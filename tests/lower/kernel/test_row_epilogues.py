"""The epilogue of row reductions is vectorized, with unchanged values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.ir import ops
from fnx.core.ir.uop import toposort
from fnx.core.support.config import override
from tests.lower.steps import AVX512, tiled_kernels

RNG = np.random.default_rng(0)


def expensive(w: Any, x: Any) -> Any:
    return jnp.tanh(w @ x + w[:, 0])


def two(w: Any, x: Any) -> Any:
    """Two reductions of a row, and two results."""
    total = (w * x).sum(1)
    return jnp.exp(-jnp.abs(total)) + w.max(1), total


def cheap(w: Any, x: Any) -> Any:
    return w @ x + 1


def few_columns(w: Any, x: Any) -> Any:
    """A row of which two elements are written, and a sum that no row depends on."""
    y = w + w.max(1, keepdims=True) - x.sum()
    return jnp.stack([jnp.sin(y[:, 0]), jnp.sin(2 * y[:, 1])], 1), x.sum()


def many_columns(w: Any, x: Any) -> Any:
    """Lanes go along the elements of a row that are written."""
    return jnp.sin(w + w.max(1, keepdims=True)) + x


@pytest.mark.parametrize(("f", "rows", "staged"), [
    (expensive, 64, True), (expensive, 100, True), (expensive, 512, True),
    (expensive, 509, False), (expensive, 7, False),
    (few_columns, 512, True), (many_columns, 64, False),
    (two, 40, True), (cheap, 64, False), (lambda w, x: expensive(w.T, x), 48, False)])
def test_epilogues(f: Any, rows: int, staged: bool) -> None:
    w, x = (RNG.normal(size=s).astype(np.float32) for s in ((rows, 48), (48,)))
    jitted = fnx.jit(f)
    with override(device="interp"):
        want = fnx.jit(f)(w, x)
    for a, b in zip(fnx.tree.leaves(jitted(w, x)), fnx.tree.leaves(want)):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
    assert ("local0" in jitted.lower(w, x).text("kernels")) == staged


def test_short_rows_have_no_stage() -> None:
    """They are unrolled, with lanes along the results."""
    def f(x: Any) -> Any:
        return jnp.exp(-((x[:, None] - x[None]) ** 2).sum(-1))
    assert "local0" not in fnx.jit(f).lower(RNG.normal(size=(100, 4))).text("kernels")


def test_rows_of_distances_are_not_staged() -> None:
    """Each row is read for many results: lanes go along these, and several rows share reads."""
    def f(a: jnp.ndarray, b: jnp.ndarray) -> jnp.ndarray:
        return jnp.exp(-((a[:, None] - b[None]) ** 2).sum(-1))
    graph = fnx.jit(f).lower(jnp.ones((512, 16)), jnp.ones((512, 16))).graph
    kernel, = [k for k in tiled_kernels(graph, AVX512)
               if any(n.op is ops.REDUCE for n in toposort([k]))]
    assert not any(n.op is ops.STAGE and n.src[0].op is ops.REDUCE for n in toposort([kernel]))
    assert any(r.arg.kind == "UNROLL" for r in kernel.src[0].ranges)
