"""A gather of few elements goes to the operands of what computes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.lax as lax
import fnx.nn as nn
import fnx.numpy as jnp
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import toposort
from fnx.core.levels import interp
from fnx.lower.tensor.push_gather_to_operands import push_gather_to_operands
from tests.graphs import REAL, Graph, graphs
from tests.helpers import assert_same
from tests.lower.tensor.test_push_slice_through_reduce import product, sums

X = jnp.asarray(np.random.default_rng(0).normal(size=(64, 96)).astype(np.float32))
INDEX = jnp.asarray([3, -1, 40, 3], "int32")
V = jnp.arange(96.0)

READS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda i: jnp.tanh(X * 2)[i],
    "sum of a transpose": lambda i: (X[:, :64] + X[:, :64].T)[i],
    "a window": lambda i: lax.dynamic_slice(jnp.exp(X), (i[0], i[1]), (8, 5)),
    "one of each row": lambda i: jnp.take_along_axis(jnp.sin(X[:4]), i[:, None], 1),
    "columns of a transpose": lambda i: jnp.cos(X).T[:, i],
    "heads": lambda i: jnp.cos(X).reshape(64, 8, 12)[i],
    "a scale": lambda i: (X * X.sum(1, keepdims=True))[i],
    "log of a softmax": lambda i: nn.log_softmax(X)[i, i],
    "twice": lambda i: (X[i] * 2)[i[:1]]}


def most_computed(f: Any, *args: Any) -> int:
    """Return the most elements of what the kernels of f compute; views are not computed."""
    nodes = toposort(f.lower(*args).simplified.src)
    return max([int(np.prod(n.shape)) for n in nodes
                if n.op in ops.ELEMENTWISE or n.op in (ops.REDUCE, ops.GATHER, ops.SCATTER)])


@pytest.mark.parametrize("name", READS)
def test_no_array_is_computed_whole(name: str) -> None:
    f = fnx.jit(READS[name])
    with fnx.disable_jit():
        want = READS[name](INDEX)
    np.testing.assert_allclose(f(INDEX), want, rtol=1e-6)
    assert most_computed(f, INDEX) < X.size / 4


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("at", [-2, 5, 63, 200])
def test_the_gradient_by_what_is_written_reads_it_alone(axis: int, at: int) -> None:
    """Outside of the array nothing is written, and the derivative is 0."""
    def loss(v: Any, x: Any, i: Any) -> Any:
        y = x.at[i].set(v) if axis == 0 else x.T.at[:, i].set(v)
        return jnp.sin(y).sum()
    gradient = fnx.jit(fnx.grad(loss))
    want = np.cos(V) if -64 <= at < 64 else np.zeros(96)
    np.testing.assert_allclose(gradient(V, X, jnp.int32(at)), want, rtol=1e-5, atol=1e-6)
    assert most_computed(gradient, V, X, jnp.int32(at)) <= 96


@given(st.data())
def test_what_is_read_at_an_index(data: st.DataObject) -> None:
    """Before: GATHER of movements of a product plus a bias. Expected: a product of few rows."""
    bias = build.expand(build.param(2, dtypes.float32, (10,)), (24, 10))
    node = build.add(product(24, 10), bias)
    if data.draw(st.booleans()):
        node = build.permute(node, (1, 0))
    axis = node.shape.index(24)
    if axis == 0 and data.draw(st.booleans()):
        node = build.reshape(node, (24, 5, 2))
    count = data.draw(st.integers(1, 4))
    index = build.param(3, dtypes.int32, (count,))
    before = build.function([build.gather(node, index, axes=[axis])], 4)
    after = push_gather_to_operands(before)
    assert sums(after) == [(count, 10)]
    rows = np.array(data.draw(st.lists(st.integers(-3, 30), min_size=count, max_size=count)))
    rng = np.random.default_rng(0)
    inputs = {p: rows.astype(np.int32) if p is index else
             rng.integers(-9, 9, p.shape).astype(np.float32) for p in build.params(before).values()}
    want, got = (interp.evaluate(fn.src, inputs)[0] for fn in (before, after))
    np.testing.assert_array_equal(got, want)


def test_what_others_read_or_is_mostly_read_stays_whole() -> None:
    total = product(12, 10)
    few, many = (build.param(2, dtypes.int32, (n,)) for n in (2, 6))
    for outs in ([build.gather(total, few), build.exp(total)], [build.gather(total, many)]):
        before = build.function(outs, 3)
        assert push_gather_to_operands(before) is before


@settings(max_examples=200)
@given(graphs(REAL, calls=0))
def test_every_element_stays(graph: Graph) -> None:
    """Random graphs, read at random places: integers and maxima have the same bits."""
    after = push_gather_to_operands(graph.fn)
    assert_same(interp.apply(after, graph.args), interp.apply(graph.fn, graph.args))


def test_a_chain_of_gathers_of_sums_does_not_double() -> None:
    x, i = build.param(0, dtypes.float32, (64,)), build.param(1, dtypes.int32, (64,))
    for _ in range(30):
        x = build.add(build.gather(x, i), x)
    fn = build.function([build.gather(x, build.const(3, dtypes.int32, (1,)))], 2)
    assert len(toposort(push_gather_to_operands(fn).src)) < 200


def test_chains_are_long() -> None:
    x = build.param(0, dtypes.float32, (640,))
    for _ in range(3000):
        x = build.neg(build.exp(x))
    fn = build.function([build.gather(x, build.param(1, dtypes.int32, (3,)))], 2)
    assert {n.shape for n in toposort(push_gather_to_operands(fn).src)} == {(640,), (3,)}
