"""Values far larger than their operands are recomputed, including sums of a few terms."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.backends.device.base import get_device
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp
from fnx.core.support.config import override
from fnx.lower.fusion import cost
from fnx.lower.fusion.kernelize import Fusion
from fnx.lower.tensor.inline import inline
from fnx.lower.tensor.simplify import simplify
from fnx.transforms.link import link
from tests.graphs import ALL_OPS, graph_of
from tests.helpers import assert_same
from tests.lower.steps import run_steps

F = dtypes.float32


@pytest.fixture
def small(monkeypatch: Any) -> Iterator[None]:
    """Values of a few elements count as large, and nothing is too expensive."""
    monkeypatch.setattr(cost, "UNCACHED_BYTES", 32)
    monkeypatch.setattr(cost, "MIN_EXPANSION", 1)
    monkeypatch.setattr(cost, "DRAM_BYTES_PER_CYCLE", 1e-3)
    fnx.clear_caches()
    yield
    fnx.clear_caches()


class Pairs:
    """Sums, along either axis, of random formulas of the differences between two lists of
    points."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        n, m, k = (self.rng.choice((1, 2, 3, 5, 17, 40)) for _ in range(3))
        k = min(k, 5)
        self.shape = n, m, k
        self.args = [build.param(0, F, (n, k)), build.param(1, F, (m, k))]
        values = np.random.default_rng(seed)
        self.values = [values.integers(-3, 4, s.shape).astype(np.float32) for s in self.args]

    def spread(self, x: UOp, axis: int) -> UOp:
        """Broadcast x along a new axis."""
        shape = (*x.shape[:axis], 1, *x.shape[axis:])
        return build.expand(build.reshape(x, shape), self.shape)

    def formula(self) -> UOp:
        p, q = self.args
        x = build.sub(self.spread(p, 1), self.spread(q, 0))
        for _ in range(self.rng.randint(1, 3)):
            near = build.reduce(build.mul(x, x), self.rng.choice((ops.ADD, ops.MAX)), [2])
            near = build.sqrt(near) if self.rng.random() < 0.5 else near
            x = self.rng.choice((build.add, build.maximum, build.sub))(x, self.spread(near, 2))
        return x

    def function(self) -> UOp:
        x = self.formula()
        outs = [build.reduce(build.neg(x) if self.rng.random() < 0.3 else x, ops.ADD, axes)
                for axes in self.rng.sample([[0], [1], [2], [0, 1], [1, 2], [0, 2]], 3)]
        if self.rng.random() < 0.5 and outs[0].shape == outs[1].shape:
            outs[0] = build.sub(outs[0], outs[1])
        if self.rng.random() < 0.3:
            outs.append(x)
        return build.function(outs, 2)


@pytest.mark.usefixtures("small")
def test_sums_of_formulas_of_pairs() -> None:
    device = get_device("cpu")
    for seed in range(40):
        pairs = Pairs(seed)
        fn = pairs.function()
        want = interp.apply(fn, pairs.values)
        for got, exact in zip(run_steps(fn, pairs.values), want):
            np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-4, err_msg=str(seed))
        if seed % 4 == 0:
            outs = link(fn, device).run([device.upload(v) for v in pairs.values])
            for out, node, exact in zip(outs, fn.src, want):
                np.testing.assert_allclose(out.view(np.dtype("f4"), node.shape), exact, rtol=1e-5,
                                           atol=1e-4, err_msg=str(seed))


@pytest.mark.usefixtures("small")
def test_any_graph_means_the_same() -> None:
    for seed in range(60):
        graph = graph_of(seed, 24, [dtypes.int32, dtypes.bool_], ALL_OPS - {ops.SORT})
        if all(0 not in out.shape for out in graph.fn.src):
            got = run_steps(simplify(inline(graph.fn)), graph.args)
            assert_same(got, interp.apply(graph.fn, graph.args))


def test_energies_of_pairs_and_their_slopes_are_one_kernel(capsys: Any) -> None:
    def energy(p: Any) -> Any:
        d = p[:, None] - p[None]
        return jnp.sum(1 / jnp.sqrt(jnp.sum(d * d, -1) + 1e-3))
    fnx.jit(fnx.grad(energy)).lower(jnp.zeros((1024, 3))).show("all")
    printed = capsys.readouterr().out
    assert printed.split("==== groups")[1].split("==== kernels")[0].count("\ngroup ") == 1


def test_indices_of_windows_at_data_are_no_arrays(capsys: Any) -> None:
    """Images cropped at data-dependent offsets, half of them flipped, each with its mean
    subtracted."""
    def crop(x: Any, at: Any, flip: Any) -> Any:
        x = fnx.vmap(lambda x, at: lax.dynamic_slice(x, (at[0], at[1] % 5, 0), (8, 8, 16)))(
            x, at)
        x = jnp.where(flip[:, None, None, None], x[:, :, ::-1], x)
        return x - x.mean((1, 2), keepdims=True)
    args = (jnp.arange(16.0 * 12 * 12 * 16).reshape(16, 12, 12, 16) % 7,
            jnp.arange(32).reshape(16, 2) * 5 % 6, jnp.arange(16) % 3 == 0)
    fnx.jit(crop).lower(*args).show("groups")
    assert capsys.readouterr().out.count("\ngroup ") == 1
    want = []
    for x, (i, j), flipped in zip(*map(np.asarray, args)):
        i, j = min(i, 4), min(j % 5, 4)
        part = x[i:i + 8, j:j + 8]
        part = part[:, ::-1] if flipped else part
        want.append(part - part.mean((0, 1)))
    np.testing.assert_allclose(np.asarray(fnx.jit(crop)(*args)), want, atol=1e-5)


def kernels_of(f: Any, *args: Any) -> int:
    return fnx.jit(f).lower(*args).text("groups").count("group ")


@pytest.mark.parametrize("width, kernels", [(4, 1), (16, 2), (64, 1)])
def test_expensive_values_of_rows_are_computed_in_all_lanes(width: int, kernels: int) -> None:
    """A kernel along the rows computes them in one lane. Rows of four elements have lanes across
    them; the scalars of long ones are hidden by their other work."""
    def f(np: Any, x: Any) -> Any:
        return x * np.tanh(x.sum(-1, keepdims=True) if width == 64 else x[:, :1] * 2)
    rows = 100 if width == 64 else 2000
    x = np.random.default_rng(0).standard_normal((rows, width)).astype(np.float32)
    assert kernels_of(partial(f, jnp), x) == kernels
    np.testing.assert_allclose(fnx.jit(partial(f, jnp))(x), f(np, x), rtol=1e-4, atol=1e-5)


def test_work_shared_by_values_of_rows_counts_once() -> None:
    """The arithmetic of a row is a graph: in a chain of squares the sum over paths doubles at each
    step."""
    def f(x: Any) -> Any:
        y = x[:, :1]
        for _ in range(12):
            y = y * y * 0.5
        return x + y
    assert kernels_of(f, jnp.ones((20, 16))) == 1


def test_rows_that_are_not_outermost_do_not_cut_results_to_short_runs() -> None:
    """Written in runs of four elements, results would be read from memory by all lines."""
    def f(axis: int, x: Any, y: Any) -> Any:
        return (x - x.mean(axis, keepdims=True))[:, :, None] * y
    args = jnp.ones((50, 40)), jnp.ones((50, 40, 4))
    assert kernels_of(partial(f, 0), *args) == 2
    assert kernels_of(partial(f, 1), *args) == 1


def test_what_is_small_or_as_large_as_its_operands_is_written_once() -> None:
    p, x = build.param(0, F, (64, 3)), build.param(1, F, (2048, 2048))

    def made(x: UOp) -> Any:
        return cost.find_recompute_set(build.exp(x))
    assert made(p) is None and made(x) is None
    row = build.param(0, F, (2048, 1))
    wide = build.expand(row, (2048, 2048))
    found = made(build.exp(wide))
    assert found is not None and cost.is_profitable(wide, found.weight, 2, 2)
    assert not cost.is_profitable(wide, 1000, 2, 2)


def test_a_sum_of_negated_terms_keeps_the_sign_of_zero() -> None:
    x = build.param(0, F, (3,))
    fn = build.function([build.reduce(build.neg(x), ops.ADD, [0])], 1)
    for values in ([0.0, 0, 0], [-0.0, -0.0, -0.0], [1.0, -1, 0], [1.0, 2, 4]):
        args = [np.asarray(values, np.float32)]
        device = get_device("cpu")
        out, = link(fn, device).run([device.upload(args[0])])
        assert_same([out.view(np.dtype("f4"), ())], interp.apply(fn, args))
    assert len(Fusion(fn).run().groups) == 1


def test_contractions_of_few_terms_have_kernels_of_their_own() -> None:
    """Neither their products nor their sums are computed again, or stored term by term."""
    def f(x: Any) -> Any:
        gram = x @ x.T / 4
        return gram / jnp.sqrt((gram * gram).mean(-1, keepdims=True) + 1)

    x = np.ones((300, 4), np.float32)
    lowered = fnx.jit(f).lower(x)
    assert lowered.arena < 1.1 * 4 * 300 * 300
    assert any(k.name.startswith("contract") and k.flops > 2 * 4 * 300 * 300
               for k in lowered.kernels)


def test_equal_sums_are_computed_once() -> None:
    """Rows of a sum that do not differ, and the terms of a sum that each of many rows reads."""
    t, g = np.ones((300, 300), np.float32), np.ones((300, 1), np.float32)

    def equal_rows(t: Any, g: Any) -> Any:
        return jnp.broadcast_to(g, (300, 300)).T @ t

    def both(t: Any, g: Any) -> Any:
        same = jnp.broadcast_to(g, (300, 300))
        t = t * 0.25 - jnp.eye(300)
        return same @ t + same.T @ t

    rows = fnx.jit(equal_rows).lower(t, g).text("kernels")
    assert re.search(r"for i in seq\(300\):\n +t0 = sum\(k < 300: .*\n +for j in", rows)
    terms = fnx.jit(both).lower(t, g).text("kernels")
    assert terms.count("* 0.25") == 1 and "local0[k] = " in terms
    np.testing.assert_allclose(fnx.jit(both)(t, g), np.full((300, 300), 2 * (75 - 1.0)), rtol=1e-5)


@pytest.mark.parametrize("f", [
    lambda x, w: jnp.cos((jnp.tanh(x) * w).sum(0) - (jnp.tanh(x) * w).sum(1)),
    lambda x, w: x.sum(0) + w.sum(1), lambda x, w: x.max(0) * jnp.exp(w.sum(1)),
    lambda x, w: x @ w[0] + w[0] @ x], ids=["terms", "sums", "max", "vectors"])
def test_sums_along_rows_and_columns_have_a_kernel_each(f: Any) -> None:
    """In one kernel one of both would be read across its rows; tiny ones are faster together."""
    for n, together in ((1200, False), (100, False), (16, True)):
        x = np.random.default_rng(n).standard_normal((n, n)).astype("float32")
        kernels = fnx.jit(f).lower(x, x).kernels
        assert (sum("map" not in k.name for k in kernels) == 1) == together
        with override(device="interp"):
            wanted = fnx.jit(f)(x, x)
        np.testing.assert_allclose(fnx.jit(f)(x, x), wanted, rtol=1e-4, atol=1e-3)


def test_weights_of_recomputed_terms_are_written_once() -> None:
    """cos(d[i, j]) is far cheaper to store than the terms that it weighs, and to compute again
    costs more than to read."""
    def loss(x: Any) -> Any:
        x = x - x.mean(1, keepdims=True)
        near = jnp.exp(-((x[:, None] - x[None]) ** 2).sum(-1))
        return jnp.sin(near + x.mean(1, keepdims=True)).mean()
    groups = fnx.jit(fnx.grad(loss)).lower(jnp.ones((512, 4))).text("groups")
    assert groups.count("cos(") == 1


@pytest.mark.parametrize(("width", "kernels"), [(64, 1), (50, 2)])
def test_rows_that_end_in_the_middle_of_a_vector_read_expensive_values(width: int, kernels: int
                                                                       ) -> None:
    """softplus of rows of 50 costs 4 vectors a row and 3.1 in a kernel of its own; of 64, 4."""
    def f(x: Any) -> Any:
        y = fnx.nn.softplus(x)
        return y - y.max(1, keepdims=True)

    x = jnp.asarray(np.random.default_rng(0).standard_normal((2000, width)), jnp.float32)
    assert len(fnx.jit(f).lower(x).kernels) == kernels
    np.testing.assert_array_equal(fnx.jit(f)(x), f(x))


def test_a_slice_of_columns_at_a_computed_start_is_one_kernel_of_contiguous_reads() -> None:
    """Its index, start + j, costs nothing: a buffer of indices would make each read a gather."""
    f = fnx.jit(lambda x, i: lax.dynamic_slice(x, (0, i), (400, 64)))
    x, i = jnp.asarray(np.arange(400 * 500, dtype=np.float32).reshape(400, 500)), jnp.asarray(5)
    assert len(f.lower(x, i).kernels) == 1
    np.testing.assert_array_equal(f(x, i), x[:, 5:69])


def test_a_mean_of_neighbors_is_written_for_several_readers() -> None:
    """Of wavelets: the next level reads the small image of means, not the large one four times."""
    @fnx.jit
    def run(x: Any) -> list[Any]:
        details = []
        for _ in range(3):
            low, high = (x[0::2] + x[1::2]) / 2, (x[0::2] - x[1::2]) / 2
            details += [high[:, 0::2] + high[:, 1::2], low[:, 0::2] - low[:, 1::2]]
            x = (low[:, 0::2] + low[:, 1::2]) / 2
        return [x, *map(jnp.abs, details)]
    x = np.random.default_rng(0).standard_normal((512, 512)).astype("float32")
    assert run.lower(x).arena < 0.4 * x.nbytes
    for got, expected in zip(run(x), run.__wrapped__(jnp.asarray(x))):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_a_sum_of_all_is_not_beside_reductions_of_each_result() -> None:
    """Lanes could not go along the results, which are not in the loops of that sum."""
    def f(x: Any) -> Any:
        return abs(x - x.mean()).max(0)

    x = np.random.default_rng(0).standard_normal((2000, 50)).astype(np.float32)
    jitted = fnx.jit(f)
    np.testing.assert_allclose(np.asarray(jitted(x)), f(x), rtol=1e-4)
    for kernel in jitted.lower(x).kernels:
        folds = [n for n in toposort(kernel.node.src) if n.op is ops.REDUCE]
        assert len({bool(n.ranges) for n in folds}) == 1
