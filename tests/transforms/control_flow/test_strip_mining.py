"""Scans by strips of steps: the same values, and memory for one strip."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.ir import ops
from fnx.core.ir.uop import toposort
from fnx.core.levels import interp
from fnx.core.support.config import override
from fnx.transforms.control_flow.loop_fission import split_scans
from fnx.transforms.control_flow.strip_mining import MIN_STEPS, steps_per_strip
from tests.transforms.control_flow.test_loop_fission import scans

B, H = 8, 32


def inputs(steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(steps)
    w, u = (rng.normal(0, 0.2, (H, H)).astype(np.float32) for _ in range(2))
    return w, u, rng.normal(0, 1, (steps, B, H)).astype(np.float32)


def loss(w: fnx.Array, u: fnx.Array, xs: fnx.Array, reverse: bool) -> fnx.Array:
    def cell(h: fnx.Array, x: fnx.Array) -> tuple[fnx.Array, tuple[fnx.Array, fnx.Array]]:
        h = jnp.tanh(jnp.sin(x @ w) + h @ u)
        return h, (h @ w, jnp.sum(h))
    last, (rows, sums) = lax.scan(cell, jnp.zeros((B, H)), xs, reverse=reverse)
    return jnp.sum(last ** 2) + jnp.sum(rows * xs) + jnp.sum(sums[::2] ** 2)


@settings(max_examples=12)
@given(st.sampled_from([16, 24, 26, 32]), st.booleans(), st.integers(1, 40), st.booleans())
def test_values_and_gradients_are_the_same(steps: int, reverse: bool, n_bytes: int,
                                           differentiated: bool) -> None:
    def f(w: fnx.Array, u: fnx.Array, xs: fnx.Array) -> object:
        return loss(w, u, xs, reverse)
    args = inputs(steps)
    fn = fnx.make_jaxpr(fnx.grad(f, (0, 1, 2)) if differentiated else f)(*args).function
    strips = split_scans(fn, n_bytes << 10)
    for a, b in zip(interp.apply(strips, args), interp.apply(fn, args), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


@pytest.mark.cases(1)
@pytest.mark.parametrize("reverse", [False, True])
def test_jit_computes_what_it_does_without_strips(reverse: bool) -> None:
    args = inputs(48)
    results = []
    for strip_bytes in (1 << 13, 1 << 40):
        with override(strip_bytes=strip_bytes):
            f = fnx.jit(fnx.value_and_grad(lambda w, u, xs: loss(w, u, xs, reverse), (0, 1, 2)))
            results.append(fnx.tree.leaves(f(*args)))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-4)


def test_memory_is_that_of_a_strip_and_invariants_leave_both_loops() -> None:
    def f(w: fnx.Array, key: fnx.Array) -> fnx.Array:
        def step(c: fnx.Array, k: fnx.Array) -> tuple[fnx.Array, None]:
            return jnp.tanh(c @ jnp.exp(w) + fnx.random.normal(k, (512,))), None
        return lax.scan(step, jnp.zeros(512), fnx.random.split(key, 4096))[0]

    w, key = np.zeros((512, 512), np.float32), fnx.random.key(0)
    with override(strip_bytes=1 << 40):
        whole = fnx.jit(f).lower(w, key).arena
    with override(strip_bytes=1 << 18):
        assert fnx.jit(f).lower(w, key).arena < whole / 4
    fn = split_scans(fnx.make_jaxpr(f)(w, key).function, 1 << 18)
    assert len(scans(fn)) == 2
    for scan in scans(fn):
        assert ops.EXP not in {n.op for n in toposort([scan.src[0]]) if n.shape == w.shape}


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 100_000))
def test_strips_divide_the_length(length: int, step_bytes: int, max_bytes: int) -> None:
    steps = steps_per_strip(length, step_bytes, max_bytes)
    if steps is None:
        assert step_bytes * length <= max_bytes or all(
            length % k for k in range(MIN_STEPS, length))
    else:
        assert length % steps == 0 and MIN_STEPS <= steps < length
        assert steps * step_bytes <= max_bytes or all(length % k for k in range(MIN_STEPS, steps))


def test_elementwise_work_that_no_strip_has_room_for_stays_in_its_step() -> None:
    """Ten steps have no strips: what moves is stored for all of them, 160 KB for each value."""
    def f(xs: fnx.Array) -> fnx.Array:
        def step(c: fnx.Array, x: fnx.Array) -> tuple[fnx.Array, None]:
            return jnp.where(c > 0, c * jnp.sin(jnp.exp(x)), c + jnp.cos(jnp.exp(x + 1))), None
        return lax.scan(step, jnp.ones(1 << 12), xs)[0]
    for strip_bytes, moved in ((1 << 19, 2), (1 << 18, 1), (1 << 17, 0)):
        fn = fnx.make_jaxpr(f)(jnp.ones((10, 1 << 12))).function
        scan, = scans(split_scans(fn, strip_bytes))
        inside = [n.op for n in toposort(scan.src[0].src) if n.op in (ops.SIN, ops.COS)]
        assert len(inside) == 2 - moved


@pytest.mark.parametrize(("rows", "most"), [(8, 8 * 256 * 10), (64, 64 * 256)])
def test_products_with_many_rows_stay_in_their_step(rows: int, most: int) -> None:
    """They are as fast there, and their results are in memory for one step."""
    def f(w: fnx.Array, xs: fnx.Array) -> fnx.Array:
        return lax.scan(lambda c, x: (jnp.tanh(c + x @ w), None), jnp.zeros((rows, 256)), xs)[0]
    w, xs = np.ones((32, 256), np.float32), np.ones((20, rows, 32), np.float32)
    fn = split_scans(fnx.make_jaxpr(f)(w, xs).function, 1 << 17)
    sizes = {math.prod(n.shape) for n in toposort([fn], into_functions=True)
             if n.op is ops.REDUCE}
    assert sizes == {most}
