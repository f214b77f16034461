"""Work moved out of scans: the same values, and only what pays off and fits."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp, spec
from fnx.core.support.config import override
from fnx.transforms.control_flow import fission_analysis, transpose_invariants
from fnx.transforms.control_flow.loop_fission import split_scans
from tests.laws.test_loops import Program, derived, scanned

T, B, H = 8, 16, 64


def scans(fn: UOp) -> list[UOp]:
    return [n for n in toposort([fn], into_functions=True) if n.op is ops.SCAN]


def in_steps(fn: UOp, op: ops.Op) -> int:
    """Return how many nodes of an op are in loop bodies."""
    return sum(n.op is op for s in scans(fn) for n in toposort(s.src[0].src))


def rnn() -> UOp:
    """Return the gradient of an RNN in its weights."""
    def loss(w: fnx.Array, u: fnx.Array, b: fnx.Array, xs: fnx.Array) -> fnx.Array:
        def cell(h: fnx.Array, x: fnx.Array) -> tuple[fnx.Array, fnx.Array]:
            h = jnp.tanh(x @ w + h @ u + b)
            return h, h
        return jnp.sum(lax.scan(cell, jnp.zeros((B, H)), xs)[1] ** 2)

    like = [fnx.ShapeDtypeStruct(s, jnp.float32) for s in ((H, H), (H, H), (H,), (T, B, H))]
    fn: UOp = fnx.make_jaxpr(fnx.grad(loss, (0, 1, 2)))(*like).function
    return fn


def test_products_with_rows_and_sums_of_products_leave_the_loops_of_an_rnn() -> None:
    before, after = rnn(), split_scans(rnn())
    assert in_steps(before, ops.REDUCE) == 6    # x w, h u;  g u^T, x^T g, h^T g, sums of g
    assert in_steps(after, ops.REDUCE) == 2     # h u;  g u^T
    forward, backward = scans(after)
    assert len(forward.arg.outs) == 2 and len(backward.arg.outs) == 2
    rng = np.random.default_rng(0)
    args = [rng.normal(0, 0.1, p.shape).astype(np.float32)
            for _, p in sorted(build.params(before).items())]
    for a, b in zip(interp.apply(before, args), interp.apply(after, args)):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)


def test_what_does_not_fit_stays() -> None:
    with override(hoist_bytes=T * B * H * 4 - 1):
        assert in_steps(split_scans(rnn()), ops.REDUCE) == 6
    with override(hoist_bytes=T * B * H * 4):
        assert in_steps(split_scans(rnn()), ops.REDUCE) == 2


def test_nothing_leaves_while_cond_or_a_loop_with_checkpoints() -> None:
    def products(f: object) -> int:
        x, w = np.ones((T, B, H), np.float32), np.ones((H, H), np.float32)
        fn = fnx.make_jaxpr(f)(x, w).function
        return in_steps(split_scans(fn), ops.REDUCE)

    def plain(xs: fnx.Array, w: fnx.Array) -> fnx.Array:
        return lax.scan(lambda c, x: (c + jnp.sin(x @ w), None), jnp.zeros((B, H)), xs)[0]

    def saved(xs: fnx.Array, w: fnx.Array) -> fnx.Array:
        return lax.scan(lambda c, x: (c + jnp.sin(x @ w), None), jnp.zeros((B, H)), xs,
                        checkpoint=2)[0]

    assert products(plain) == 0 and products(saved) == 1
    fn = fnx.make_jaxpr(lambda x, w: lax.while_loop(lambda s: s[0, 0] < 9, lambda s: s + x @ w,
                                                    jnp.zeros((B, H))))(
        np.ones((B, H), np.float32), np.ones((H, H), np.float32)).function
    assert split_scans(fn) is fn


@pytest.mark.parametrize("rows", [1, 2, 15])
def test_weights_of_a_few_rows_stay(rows: int) -> None:
    """Their products are dots along contiguous terms, which no step packs."""
    def f(x: fnx.Array, w: fnx.Array) -> fnx.Array:
        return lax.scan(lambda c, _: (jnp.tanh(c @ w.T), None), x, None, length=T)[0]
    x, w = np.ones((rows, 96), np.float32), np.ones((96, 96), np.float32)
    fn = fnx.make_jaxpr(f)(x, w).function
    assert split_scans(fn) is fn
    assert not fnx.jit(f).lower(np.ones((rows, 96), np.float32), w).arena >= w.nbytes


def test_a_product_that_no_carry_reads_is_made_behind_the_loop() -> None:
    def f(xs: fnx.Array, w: fnx.Array) -> fnx.Array:
        return lax.scan(lambda h, x: ((c := jnp.tanh(h + x)), c @ w), jnp.zeros((B, H)), xs)[1]
    x, w = (np.random.default_rng(0).normal(size=s).astype(np.float32)
            for s in ((T, B, H), (H, H)))
    fn = fnx.make_jaxpr(f)(x, w).function
    after = split_scans(fn)
    assert in_steps(fn, ops.REDUCE) == 1 and in_steps(after, ops.REDUCE) == 0
    np.testing.assert_allclose(interp.apply(after, [x, w])[0], interp.apply(fn, [x, w])[0],
                               rtol=1e-4, atol=1e-4)


def test_a_fold_that_reads_each_kept_number_once_stays() -> None:
    """Linear attention: saving the state of each step costs more than moving one product gains."""
    def f(q: fnx.Array, k: fnx.Array) -> fnx.Array:
        def step(s: fnx.Array, x: tuple[fnx.Array, fnx.Array]) -> tuple[fnx.Array, fnx.Array]:
            s = s + x[1][:, None] * x[1]
            return s, x[0] @ s
        return lax.scan(step, jnp.zeros((2 * H, 2 * H)), (q, k))[1]
    like = np.ones((T, 2 * H), np.float32)
    fn = fnx.make_jaxpr(f)(like, like).function
    assert in_steps(fn, ops.REDUCE) == in_steps(split_scans(fn), ops.REDUCE) == 1
    both = fnx.make_jaxpr(lambda q, k: lax.scan(
        lambda s, x: ((s := s + x[1][:, None] * x[1]), (s, x[0] @ s)),
        jnp.zeros((2 * H, 2 * H)), (q, k))[1])(like, like).function
    assert in_steps(split_scans(both), ops.REDUCE) == 0  # the states are results anyway


def test_a_sum_of_products_of_rows_is_one_product() -> None:
    """It depends on no carry, and is summed after the loop rather than stacked before it."""
    def f(xs: fnx.Array, ys: fnx.Array) -> fnx.Array:
        return lax.scan(lambda w, x: (w + x[0].T @ x[1], None), jnp.zeros((H, H)), (xs, ys))[0]
    x, y = np.random.default_rng(0).normal(size=(2, T, B, H)).astype(np.float32)
    fn = fnx.make_jaxpr(f)(x, y).function
    after = split_scans(fn)
    assert max(n.shape[0] * len(n.shape) for n in toposort(after.src)
               if n.op is ops.REDUCE) == 2 * H  # no product per step
    np.testing.assert_allclose(interp.apply(after, [x, y])[0], interp.apply(fn, [x, y])[0],
                               rtol=1e-4, atol=1e-4)


def test_weights_that_are_read_across_are_transposed_once() -> None:
    def f(x: fnx.Array, w: fnx.Array) -> fnx.Array:
        return lax.scan(lambda c, _: (jnp.tanh(c @ w.T), None), x, None, length=T)[0]
    x, w = np.ones((B, H), np.float32), np.random.default_rng(0).normal(size=(H, H))
    w = w.astype(np.float32)
    fn = fnx.make_jaxpr(f)(x, w).function
    after = split_scans(fn)
    loop, = scans(after)
    assert any(n.op is ops.PERMUTE for n in loop.src[1:1 + loop.arg.n_consts])
    np.testing.assert_allclose(interp.apply(after, [x, w])[0], interp.apply(fn, [x, w])[0],
                               rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("vectors", [(), (3,), (40,)])
def test_weights_that_are_read_along_rows_stay(vectors: tuple[int, ...]) -> None:
    """A copy of the matrix would take its memory again, and no step would be faster."""
    def f(w: fnx.Array, x: fnx.Array) -> fnx.Array:
        return lax.scan(lambda c, _: (jnp.tanh(w @ c), None), x, None, length=T)[0]
    w = np.random.default_rng(0).normal(size=(80, 80)).astype(np.float32)
    fn = fnx.make_jaxpr(f)(w, np.ones((80, *vectors), np.float32)).function
    assert split_scans(fn) is fn


def test_small_work_stays_where_it_is() -> None:
    fn = fnx.make_jaxpr(lambda xs: lax.scan(lambda c, x: (c + jnp.sin(x), None), 0.0, xs)[0])(
        np.ones(9, np.float32)).function
    assert split_scans(fn) is fn


def test_what_is_the_same_in_all_steps_is_computed_once() -> None:
    def f(w: fnx.Array, xs: fnx.Array) -> fnx.Array:
        return lax.scan(lambda c, x: (c + x * jnp.sum(w @ w, 0), None), jnp.zeros(H), xs)[0]
    fn = fnx.make_jaxpr(f)(np.ones((H, H), np.float32), np.ones(T, np.float32)).function
    after = split_scans(fn)
    assert in_steps(after, ops.REDUCE) == 0
    assert all(0 not in n.shape and n.shape[:1] != (T,) for n in toposort(after.src)
               if n.op is ops.REDUCE)


def test_effects_stay_in_their_steps() -> None:
    """The values they show are loop-invariant and hoisted; the effects stay in each step."""
    seen: list[float] = []

    def f(w: fnx.Array, xs: fnx.Array) -> fnx.Array:
        def step(c: fnx.Array, x: fnx.Array) -> tuple[fnx.Array, None]:
            total = jnp.sum(jnp.tanh(w @ w))
            fnx.debug.callback(lambda v: seen.append(float(v)), total)
            return c + x * total, None
        return lax.scan(step, 0.0, xs)[0]

    w, xs = np.eye(H, dtype=np.float32), np.ones(3, np.float32)
    fn = split_scans(fnx.make_jaxpr(f)(w, xs).function)
    assert in_steps(fn, ops.REDUCE) == 0 and in_steps(fn, ops.CALLBACK) == 1
    fnx.jit(f)(w, xs).block_until_ready()
    fnx.effects_barrier()
    assert seen == [seen[0]] * 3


def test_results_that_nobody_reads_are_not_made() -> None:
    def f(x: fnx.Array) -> fnx.Array:
        (a, _), _ = lax.scan(lambda c, _: ((c[0] * 2, c[1] + c[0]), jnp.sin(c[1])), (x, x),
                             None, length=5)
        return a
    after = split_scans(fnx.make_jaxpr(f)(np.float32(1)).function)
    assert len(scans(after)[0].arg.outs) == 1


@pytest.mark.cases(7)
@pytest.mark.parametrize("seed", range(30))
def test_values_stay(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In random loops and their derivatives, with thresholds that move everything movable."""
    monkeypatch.setattr(fission_analysis, "MIN_WORK", 1)
    monkeypatch.setattr(fission_analysis, "EXPENSIVE_COST", 0)
    monkeypatch.setattr(fission_analysis, "MIN_REUSE", 0)
    monkeypatch.setattr(transpose_invariants, "MIN_SIZE", 1)
    rng = random.Random(seed)
    program: Program = scanned(rng, seed % 2)
    params = [build.param(i, dtypes.as_dtype(v.dtype), v.shape)
              for i, v in enumerate(program.values)]
    floats = [i for i, v in enumerate(program.values) if v.dtype == np.float64]
    outs = derived(program.looped, program.values, floats, seed)
    fn = build.function(outs, len(params))
    after = split_scans(fn)
    spec.check([after], "tensor")
    for a, b in zip(interp.apply(fn, program.values), interp.apply(after, program.values)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_functions_of_invariants_are_computed_once() -> None:
    def f(v: fnx.Array, z: fnx.Array) -> fnx.Array:
        def step(z: fnx.Array, _: None) -> tuple[fnx.Array, None]:
            return z * jnp.exp(-0.5j * v) + jnp.exp(v)[::-1], None
        return lax.scan(step, z, None, length=5)[0]

    v, z = np.linspace(0, 1, 2000, dtype=np.float32), np.ones(2000, np.complex64)
    fn = fnx.make_jaxpr(f)(v, z).function
    assert in_steps(fn, ops.EXP) == 2
    assert in_steps(split_scans(fn), ops.EXP) == 0
    expected = z.astype(np.complex128)
    for _ in range(5):
        expected = expected * np.exp(-0.5j * v) + np.exp(v)[::-1]
    np.testing.assert_allclose(fnx.jit(f)(v, z), expected, rtol=1e-5)


@pytest.mark.parametrize("length", [0, 1, 7])
def test_carries_that_no_step_changes_are_constants(length: int) -> None:
    """A choice between values with one tangent leaves the tangent alone: no loop computes it."""
    def run(x: Any, y: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            x, y = c
            return (jnp.where(x.sum() > 1, jnp.sin(x) * y, x), y), (y * 2, x.sum())
        return lax.scan(step, (x, y), None, length=length)
    x, y = jnp.arange(4.0), jnp.ones(4) * 3
    (a, b), (twice, sums) = fnx.jit(run)(x, y)
    with override(device="interp"):
        (c, d), (want_twice, want_sums) = run(x, y)
    for got, want in ((a, c), (b, d), (twice, want_twice), (sums, want_sums)):
        np.testing.assert_allclose(got, want, rtol=1e-6)

    def tangent(x: Any, t: Any) -> Any:
        return fnx.jvp(lambda x: lax.scan(lambda c, _: (jnp.where(c.sum() > 1, c, c + 1), None), x,
                                          None, length=length)[0], (x,), (t,))[1]
    np.testing.assert_array_equal(fnx.jit(tangent)(x, y), y)
    assert "scan" not in fnx.jit(tangent).lower(x, y).text("graph")
