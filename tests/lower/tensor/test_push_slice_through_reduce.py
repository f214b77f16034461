"""Of sums of products, only the slice that is read is computed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import fnx
from fnx import numpy as jnp
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp
from fnx.lower.tensor.conv_input_gradient_to_contraction import conv_input_gradient_to_contraction
from fnx.lower.tensor.push_slice_through_reduce import push_slice_through_reduce


def product(rows: int, columns: int, terms: int = 3) -> UOp:
    x = build.param(0, dtypes.float32, (rows, terms))
    y = build.param(1, dtypes.float32, (terms, columns))
    both = (build.expand(build.reshape(x, (rows, terms, 1)), (rows, terms, columns)),
            build.expand(build.reshape(y, (1, terms, columns)), (rows, terms, columns)))
    return build.reduce(build.mul(*both), ops.ADD, [1])


def sums(fn: UOp) -> list[tuple[int, ...]]:
    return [n.shape for n in toposort(fn.src) if n.op is ops.REDUCE]


def equal(before: UOp, after: UOp, *shapes: tuple[int, ...]) -> bool:
    rng = np.random.default_rng(0)
    given = {build.param(i, dtypes.float32, shape): rng.integers(-9, 9, shape).astype(np.float32)
             for i, shape in enumerate(shapes)}
    found = [interp.evaluate(fn.src, given) for fn in (before, after)]
    return all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


@given(st.data())
def test_a_part_through_movements(data: st.DataObject) -> None:
    """Before: SHRINK of PERMUTEs and RESHAPEs of a sum. Expected: the same, of a smaller sum."""
    node = product(12, 10)
    moves: list[Callable[[UOp], UOp]] = [
        lambda n: build.permute(n, range(len(n.shape))[::-1]),
        lambda n: build.reshape(n, (4, 3, *n.shape[1:])) if n.shape[0] == 12 else n,
        lambda n: build.reshape(n, (*n.shape[:-1], 5, 2)) if n.shape[-1] == 10 else n]
    for move in data.draw(st.lists(st.sampled_from(moves), max_size=4)):
        node = move(node)
    bounds = [tuple(sorted(data.draw(st.lists(
        st.integers(0, n), min_size=2, max_size=2, unique=True)))) for n in node.shape]
    before = build.function([build.shrink(node, bounds)], 2)
    after = push_slice_through_reduce(before)
    assert equal(before, after, (12, 3), (3, 10))
    assert np.prod(sums(after)[0]) <= np.prod(sums(before)[0])


def test_whole_rows_of_one_long_one_are_left_out() -> None:
    before = build.function([build.shrink(
        build.reshape(product(12, 10), (4, 3, 10)), [(1, 3), (1, 3), (2, 9)])], 2)
    after = push_slice_through_reduce(before)
    assert sums(before) == [(12, 10)] and sums(after) == [(6, 7)]
    assert equal(before, after, (12, 3), (3, 10))


def test_what_others_read_stays_whole() -> None:
    total = product(12, 10)
    both = [build.shrink(total, [(0, 2), (0, 10)]), build.exp(total)]
    before = build.function(both, 2)
    assert push_slice_through_reduce(before) is before


def test_zeros_go_to_the_factor_that_differs() -> None:
    """Before: FOLD(PAD(sum of products)), windows counted in phases. Expected: one sum."""
    g = build.param(0, dtypes.float32, (9, 4))
    w = build.param(1, dtypes.float32, (4, 3))
    seen = build.reduce(build.mul(
        build.expand(build.reshape(g, (9, 4, 1)), (9, 4, 3)), build.expand(w, (9, 4, 3))),
        ops.ADD, [1])
    phases = build.permute(build.reshape(build.pad(seen, [(0, 0), (0, 1)]), (9, 2, 2)), (2, 0, 1))
    total = build.reduce(build.fold(phases, 1, 2, 1, 1, 10), ops.ADD, [2])
    before = build.function([total], 2)
    after = conv_input_gradient_to_contraction(before)
    assert len(sums(before)) == 2 and len(sums(after)) == 1
    assert not any(n.op is ops.FOLD for n in toposort(after.src))
    assert equal(before, after, (9, 4), (4, 3))


def test_products_of_one_feature_are_folded_before_they_are_multiplied() -> None:
    """Before: a sum of FOLDs of products, none of which is summed. Expected: a sum of products of
    FOLDs."""
    g, w = (build.param(i, dtypes.float32, shape) for i, shape in enumerate([(9, 1), (1, 3)]))
    product = build.mul(build.expand(g, (9, 3)), build.expand(w, (9, 3)))
    before = build.function([build.reduce(build.fold(product, 0, 1, 1, 1, 11), ops.ADD, [1])], 2)
    after = conv_input_gradient_to_contraction(before)
    total, = after.src
    assert total.op is ops.REDUCE and total.src[0].op is ops.MUL
    assert not any(n.op is ops.FOLD for n in toposort(after.src))
    assert equal(before, after, (9, 1), (1, 3))


def parts(rows: int, cuts: tuple[int, ...]) -> UOp:
    """Return a FUNCTION whose results are all columns of one product, cut in parts."""
    node = product(rows, cuts[-1])
    return build.function([build.neg(build.shrink(node, [(0, rows), cut]))
                           for cut in itertools.pairwise(cuts)], 2)


def test_long_parts_of_a_large_sum_are_sums_of_their_own() -> None:
    """Parts that are short stay parts of one product, which has full tiles; what is small is in a
    cache."""
    large, short, small = parts(8192, (0, 64, 160)), parts(8192, (0, 16, 160)), \
        parts(512, (0, 64, 160))
    after = push_slice_through_reduce(large)
    assert sorted(sums(after)) == [(8192, 64), (8192, 96)]
    assert equal(large, after, (8192, 3), (3, 160))
    for before in (short, small):
        assert push_slice_through_reduce(before) is before


def test_of_queries_keys_and_values_each_is_freed_after_its_last_use() -> None:
    def attend(w: Any, x: Any) -> Any:
        q, k, v = jnp.split(x @ w, 3, -1)
        return jnp.tanh(jnp.tanh(q) @ jnp.sin(k).T) @ v
    rng = np.random.default_rng(0)
    w, x = ((rng.standard_normal(s) / 9).astype("float32") for s in ((64, 3 * 192), (2048, 64)))
    part = 2048 * 192 * 4
    assert fnx.jit(attend).lower(w, x).arena < 2048 * 2048 * 4 + 1.5 * part
    q, k, v = np.split(x @ w, 3, -1)
    np.testing.assert_allclose(fnx.jit(attend)(w, x), np.tanh(np.tanh(q) @ np.sin(k).T) @ v,
                               rtol=1e-3, atol=1e-3)
