"""batch: a batched FUNCTION equals the stacked loop over its batch elements."""

from __future__ import annotations

import gc
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.uop import UOp, live_nodes, toposort
from fnx.core.levels import interp, spec
from fnx.transforms.batching.batch import batch
from tests.graphs import ALL_OPS, Graph, graphs, values
from tests.helpers import assert_same

INTEGERS = (dtypes.int32, dtypes.uint32, dtypes.bool_)
ROUNDED = {ops.REDUCE}  # over floats: NumPy adds in another order if there are more axes


def lanes_of(graph: Graph, seed: int, size: int) -> tuple[list[np.ndarray], tuple[bool, ...]]:
    """Return arguments with a random choice of them batched, and flags for which."""
    rng, choice = np.random.default_rng(seed), random.Random(seed)
    batched = tuple([choice.random() < 0.6 for _ in graph.args])
    params = build.params(graph.fn)
    args = [a if not b else values(rng, params[i].dtype, (size, *a.shape)) if i in params
            else np.zeros((size, *a.shape)) for i, (a, b) in enumerate(zip(graph.args, batched))]
    return args, batched


def looped(fn: UOp, args: list[np.ndarray], batched: tuple[bool, ...], size: int
           ) -> list[list[np.ndarray]]:
    """Return the stacked results of each batch element on its own."""
    return [interp.apply(fn, [a[lane] if b else a for a, b in zip(args, batched)])
            for lane in range(size)]


def check_law(graph: Graph, seed: int, size: int, exact: bool = True) -> None:
    args, batched = lanes_of(graph, seed, size)
    function, outs = batch(graph.fn, size, batched)
    spec.check([function], "tensor")
    got = interp.apply(function, args)
    for lane, want in enumerate(looped(graph.fn, args, batched, size)):
        mine = [g[lane] if b else g for g, b in zip(got, outs)]
        if exact:
            assert_same(mine, want)
        else:
            for g, w in zip(mine, want):
                np.testing.assert_allclose(g, w, rtol=1e-4, atol=1e-4)


SEEDS, SIZES = st.integers(0, 2**32), st.integers(0, 3)


@settings(max_examples=150)
@given(graphs(allowed=ALL_OPS - ROUNDED, steps=16), SEEDS, SIZES)
def test_lanes_have_the_bits_of_the_loop(graph: Graph, seed: int, size: int) -> None:
    check_law(graph, seed, size)


@settings(max_examples=150)
@given(graphs(types=INTEGERS, steps=16, calls=2), SEEDS, SIZES)
def test_integers_have_the_bits_of_the_loop(graph: Graph, seed: int, size: int) -> None:
    check_law(graph, seed, size)


@settings(max_examples=50)
@given(graphs(types=(dtypes.float64,), allowed={ops.ADD, ops.MUL, ops.SIN, ops.REDUCE, ops.EXPAND,
                                                ops.PERMUTE, ops.RESHAPE, ops.CALL},
              steps=12, smooth=True), SEEDS, SIZES)
def test_sums_agree_within_rounding(graph: Graph, seed: int, size: int) -> None:
    with np.errstate(all="ignore"):
        check_law(graph, seed, size, exact=False)


@pytest.mark.parametrize("op", [ops.GATHER, ops.SCATTER], ids=repr)
@settings(max_examples=60)
@given(seed=SEEDS)
def test_indexed_ops_with_every_combination_of_batched_operands(op: ops.Op, seed: int) -> None:
    choice, rng = random.Random(seed), np.random.default_rng(seed)
    shape, index_shape = (4, 3, 2)[:choice.randint(1, 3)], (5, 2)[:choice.randint(0, 2)]
    k = choice.randint(1, len(shape))
    axes = sorted(choice.sample(range(len(shape)), k))
    types = [(dtypes.float32, shape), *[(dtypes.int32, index_shape)] * k]
    if op is ops.SCATTER:
        rest = tuple([n for a, n in enumerate(shape) if a not in axes])
        types.append((dtypes.float32, index_shape + rest))
    x, *index = (build.param(i, *t) for i, t in enumerate(types))
    node = build.gather(x, *index, axes=axes) if op is ops.GATHER else build.scatter(
        x, index[:-1], index[-1], choice.choice([None, ops.ADD, ops.MAX]), axes)
    fn = build.function([node], len(types))
    for pattern in range(1, 1 << len(types)):
        batched = tuple([bool(pattern >> i & 1) for i in range(len(types))])
        args = [values(rng, dtype, (3,) * b + of, True) - (2 * rng.integers(0, 2)
                if dtype.is_integer else 0) for (dtype, of), b in zip(types, batched)]
        args = [a.astype(t.np) for a, (t, _) in zip(args, types)]
        (got,), outs = interp.apply(batch(fn, 3, batched).function, args), (True,)
        assert batch(fn, 3, batched).outs == outs
        assert_same(got, [want for want, in looped(fn, args, batched, 3)])


def test_what_is_the_same_for_all_lanes_is_computed_once() -> None:
    x, w = (build.param(i, dtypes.float32, (3,)) for i in (0, 1))
    scaled = build.exp(w)
    fn = build.function([build.mul(x, scaled), scaled], 2)
    function, outs = batch(fn, 8, (True, False))
    assert outs == (True, False) and function.src[1] is scaled
    assert [n.shape for n in toposort(function.src) if n.op is ops.EXP] == [(3,)]


def test_a_body_is_batched_once_for_each_pattern() -> None:
    x = build.param(0, dtypes.float32, (3,))
    inner = build.function([build.neg(x)], 1, "inner")
    fn = build.function([build_calls.call(inner, build_calls.call(inner, [x]))[0]], 1, "outer")
    function = batch(fn, 4, (True,)).function
    bodies = {n for n in toposort([function], into_functions=True) if n.op is ops.FUNCTION}
    assert [b.arg.name for b in bodies if b is not function] == ["inner.batched"]
    assert batch(fn, 4, (True,)).function is function


def test_bodies_nest_deeper_than_python() -> None:
    x = build.param(0, dtypes.float32, ())
    fn = build.function([build.neg(x)], 1)
    for _ in range(2000):
        fn = build.function(build_calls.call(fn, [x]), 1)
    assert batch(fn, 4, (True,)).function.src[0].shape == (4,)


def test_batched_bodies_die_with_their_body() -> None:
    def make() -> None:
        x, unread = (build.param(i, dtypes.float32, (7, 11)) for i in (0, 1))
        batch(build.function([build.neg(x)], 2), 5, (True, False))
        batch(build.function([build.exp(x)], 2), 5, (False, True))
    make()
    gc.collect()
    before = live_nodes()
    make()
    gc.collect()
    assert live_nodes() <= before  # objects that other tests left may die meanwhile

