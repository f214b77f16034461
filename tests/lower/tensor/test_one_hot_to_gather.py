"""Products with one-hot factors become gathers and scatter-adds of rows, with unchanged values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.ir import ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import interp
from fnx.core.support.config import override
from fnx.core.support.target import Target
from fnx.lower.tensor import one_hot_to_gather as module
from fnx.lower.tensor.one_hot_to_gather import one_hot_to_gather

N, K, J = 600, 64, 16


def before_and_after(f: Any, *args: Any) -> tuple[UOp, UOp]:
    """Return the FUNCTION of a signature before and after the pass."""
    with override(device="null"):
        ran = next(r for r in fnx.jit(f).lower(*args).passes if r.name == "one_hot_to_gather")
    return ran.before, one_hot_to_gather(ran.before, Target("cpu"))


def ops_of(fn: UOp) -> set[ops.Op]:
    return {n.op for n in toposort(fn.src)}


def evaluated(fn: UOp, *args: Any) -> list[Any]:
    slots = {n: args[n.arg.slot] for n in toposort(fn.src) if n.op is ops.PARAM}
    with np.errstate(all="ignore"):
        return interp.evaluate(fn.src, slots)


SPELLINGS = {
    "one_hot @ w": lambda i, w: fnx.nn.one_hot(i, K) @ w,
    "comparison": lambda i, w: jnp.where(i[:, None] == jnp.arange(K), 1., 0.) @ w,
    "cast of a bool": lambda i, w: (jnp.arange(K)[:, None] == i).astype(jnp.float32).T @ w,
    "einsum": lambda i, w: jnp.einsum("nk,kj->jn", fnx.nn.one_hot(i, K), w),
    "lanes": lambda i, w: fnx.vmap(lambda n: fnx.nn.one_hot(n, K) @ w)(i),
    "sides changed": lambda i, w: w.T @ fnx.nn.one_hot(i, K).T,
    "narrow": lambda i, w: (fnx.nn.one_hot(i, K, dtype="bfloat16") @ w.astype("bfloat16")).astype(
        "float32"),
    "two axes": lambda i, w: fnx.nn.one_hot(i.reshape(20, 30), K) @ w,
    "columns": lambda i, w: fnx.nn.one_hot(i, K) @ (w.T + 0).T,
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_rows_are_read(name: str) -> None:
    rng = np.random.default_rng(0)
    i = rng.integers(-3, K + 3, N).astype(np.int32)
    w = rng.normal(size=(K, J)).astype(np.float32)
    w[3, 2], w[5, 4], w[6, 4], w[7, 5] = np.inf, -np.inf, 1, np.nan
    w[8] = -0.
    before, after = before_and_after(SPELLINGS[name], i, w)
    assert ops.GATHER in ops_of(after) and ops.GATHER not in ops_of(before)
    for got, want in zip(evaluated(after, i, w), evaluated(before, i, w)):
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(np.signbit(got)[got == 0], np.signbit(want)[want == 0])


@pytest.mark.parametrize("name,product,from_copy", [
    ("rows of the result", lambda i, w: fnx.nn.one_hot(i, K) @ w.T, True),
    ("columns of the result", lambda i, w: w @ fnx.nn.one_hot(i, K).T, False),
    ("rows of the factor", lambda i, w: fnx.nn.one_hot(i, K) @ w.reshape(K, J), False),
])
def test_columns_that_become_rows_are_read_from_a_transposed_copy(
        name: str, product: Any, from_copy: bool) -> None:
    """Then lanes along the row that an index selects are adjacent."""
    i, w = np.zeros(N, np.int32), np.ones((J, K), np.float32)
    _, after = before_and_after(product, i, w)
    gathers = [n for n in toposort(after.src) if n.op is ops.GATHER]
    assert [(n.src[0].op is ops.PERMUTE and n.arg.axes == (0,)) for n in gathers] == [from_copy]


def test_what_is_compared_in_a_narrow_type_may_come_twice() -> None:
    """Indices that wrap are ambiguous: in int8, two indices equal 3."""
    before, after = before_and_after(
        lambda i, w: (i[:, None] == jnp.arange(300).astype("int8")).astype("float32") @ w,
        np.ones(N, np.int8), np.ones((300, J), np.float32))
    assert after is before


def test_few_rows_stay_a_product() -> None:
    before, after = before_and_after(lambda i, w: fnx.nn.one_hot(i, 3) @ w,
                                     np.zeros(N, np.int32), np.ones((3, J), np.float32))
    assert after is before


@settings(deadline=None, max_examples=20)
@given(widths=st.lists(st.sampled_from([3, 17, 40, -2, -9]), min_size=1, max_size=6),
       seed=st.integers(0, 99), bad=st.booleans(), always=st.booleans(),
       kind=st.sampled_from([np.int32, np.uint8, np.int64]))
def test_parts_of_a_concat(
        widths: list[int], seed: int, bad: bool, always: bool, kind: Any) -> None:
    """Negative widths stand for non-one-hot operands; checks the product and the matrix's
    gradient."""
    rng = np.random.default_rng(seed)
    total = sum(map(abs, widths))
    i = rng.integers(0, 42, (200, len(widths))).astype(kind)
    x, g = rng.integers(-3, 4, (200, 9)), rng.integers(-3, 4, (200, J))
    w = rng.integers(-3, 4, (total, J)).astype(np.float32)
    if bad:
        w[rng.integers(0, total, 2), rng.integers(0, J, 2)] = np.inf

    def parts(i: Any, x: Any) -> Any:
        return jnp.concatenate([x[:, :-n] if n < 0 else
                                fnx.nn.one_hot(i[:, k], n, dtype="float32")
                                for k, n in enumerate(widths)], -1)

    def both(i: Any, x: Any, w: Any, g: Any) -> Any:
        y, back = fnx.vjp(lambda w: parts(i, x) @ w, w)
        return y, back(g)[0]

    args = i, x.astype(np.float32), w, g.astype(np.float32)
    with pytest.MonkeyPatch.context() as patch, override(x64=True):
        if always:
            patch.setattr(module, "_is_faster", lambda *_: True)
        before, after = before_and_after(both, *args)
        for got, want in zip(evaluated(after, *args), evaluated(before, *args)):
            np.testing.assert_array_equal(got, want)
        for got, want in zip(fnx.jit(both)(*args), evaluated(before, *args)):
            np.testing.assert_array_equal(got, want)


def test_gradients_add_rows() -> None:
    rng = np.random.default_rng(0)
    i = rng.integers(-2, K + 2, N).astype(np.int32)
    g = rng.integers(-9, 9, (N, J)).astype(np.float32)
    before, after = before_and_after(lambda i, g: fnx.nn.one_hot(i, K).T @ g, i, g)
    assert ops.SCATTER in ops_of(after)
    want, = evaluated(before, i, g)
    np.testing.assert_array_equal(evaluated(after, i, g)[0], want)
    g[4, 2] = np.inf  # its own row is inf, the others are NaN: all are NaN now
    want, = evaluated(before, i, g)
    got, = evaluated(after, i, g)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    np.testing.assert_array_equal(got[np.isfinite(got)], want[np.isfinite(want)])


def test_long_sums_into_one_row_stay_a_product() -> None:
    """As scatter-adds they would be summed sequentially, with more roundings than blocked
    summation."""
    before, after = before_and_after(lambda i, g: fnx.nn.one_hot(i, 20).T @ g,
                                     np.zeros(30_000, np.int32), np.ones((30_000, J), np.float32))
    assert after is before


def test_as_many_kernels_as_products() -> None:
    """The gathered rows are added where the product is written."""
    def f(i: Any, x: Any, w: Any) -> Any:
        hot = [fnx.nn.one_hot(i[:, k], 32) for k in range(3)]
        return jnp.maximum(jnp.concatenate([*hot, x], -1) @ w, 0)
    with override(device="cpu"):
        kernels = fnx.jit(f).lower(np.zeros((N, 3), np.int32), np.ones((N, 8), np.float32),
                                   np.ones((104, J), np.float32)).kernels
    assert len(kernels) <= 1 + 3, "the product, and what is not finite of each part of w"
