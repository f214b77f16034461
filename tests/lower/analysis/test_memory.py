"""Slices become offsets, so unrolled loops give few kernels, in linear time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.ir import build, dtypes, op_args, ops
from fnx.core.ir.uop import UOp
from fnx.core.support.config import override
from fnx.lower.analysis.memory import (
    ALIGNMENT,
    View,
    nbytes_of,
    place_in_results,
    plan_arena,
    size_of,
)
from fnx.lower.driver import Driver
from fnx.lower.fusion.kernel_steps import KernelStep
from fnx.lower.pipeline import FUSION_PASSES
from tests.lower.steps import TARGET

F = dtypes.float32


def step_of(*outs: UOp) -> KernelStep:
    step, = Driver(TARGET).run(FUSION_PASSES, build.function(outs, 2))
    assert isinstance(step, KernelStep)
    return step


def x() -> UOp:
    return build.param(0, F, (10, 4, 3))


def rows(low: int, high: int) -> UOp:
    return build.shrink(x(), [(low, high), (0, 4), (0, 3)])


def test_a_row_is_an_offset() -> None:
    view, _ = step_of(build.neg(build.reshape(rows(7, 8), (4, 3)))).operands
    assert isinstance(view, View) and (view.start, view.nbytes) == (7 * 48, 48)


def test_equal_rows_are_one_kernel_whatever_their_number() -> None:
    kernels = {step_of(build.neg(build.reshape(rows(i, i + 1), (4, 3)))).kernel for i in range(10)}
    assert len(kernels) == 1


def test_some_rows() -> None:
    view, _ = step_of(build.neg(rows(2, 5))).operands
    assert isinstance(view, View) and (view.start, view.nbytes) == (2 * 48, 3 * 48)
    assert step_of(build.neg(rows(2, 5))).kernel is step_of(build.neg(rows(6, 9))).kernel


def test_two_rows_of_one_array_are_two_operands() -> None:
    step = step_of(build.sub(rows(1, 2), rows(4, 5)))
    assert [o.start for o in step.operands if isinstance(o, View)] in ([48, 192], [192, 48])


def test_other_parts_stay_in_the_kernel() -> None:
    columns = build.shrink(x(), [(0, 10), (1, 2), (0, 3)])
    assert not any(isinstance(o, View) for o in step_of(build.neg(columns)).operands)
    assert not any(isinstance(o, View) for o in step_of(build.neg(build.flip(
        rows(2, 5), (0,)))).operands)


@pytest.mark.parametrize("width", [1, 3, 16])
@pytest.mark.parametrize("device", ["cpu", "interp"])
def test_rows_that_begin_anywhere(width: int, device: str) -> None:
    """With 12 bytes a row, vectors must not be assumed to be aligned."""
    value = np.arange(20 * width, dtype=np.float32).reshape(20, width)
    with override(device=device):
        f = fnx.jit(lambda x: [x[i] * 2 + x[i + 1:i + 6].sum() for i in range(5)])
        for i, got in enumerate(f(jnp.asarray(value))):
            np.testing.assert_array_equal(got, value[i] * 2 + value[i + 1:i + 6].sum())


# ---- unrolled loops -----------------------------------------------------------------------------


def gradient(steps: int) -> Any:
    """Return the gradient of an unrolled RNN."""
    def loss(p: Any, xs: Any) -> Any:
        h = jnp.zeros((4, 8))
        for t in range(steps):
            h = jnp.tanh(xs[t] @ p[0] + h @ p[1] + p[2])
        return (h * h).sum()
    rng = np.random.default_rng(0)
    p = [jnp.asarray(rng.normal(size=s).astype(np.float32)) for s in ((5, 8), (8, 8), (8,))]
    xs = jnp.asarray(rng.normal(size=(steps, 4, 5)).astype(np.float32))
    return fnx.jit(fnx.grad(loss)), (p, xs)


def test_an_unrolled_rnn_is_few_kernels() -> None:
    f, args = gradient(20)
    with override(device="null"):
        twenty = f.lower(*args)
        f, args = gradient(50)
        fifty = f.lower(*args)
    distinct = [len({k.node for k in stages.kernels}) for stages in (twenty, fifty)]
    assert distinct[0] <= 24 and distinct[1] <= 24
    assert len(fifty.kernels) <= 5 * 50 + 15


def test_its_gradient_is_that_of_the_interpreter() -> None:
    f, args = gradient(6)
    got = f(*args)
    with override(device="interp"):
        f, args = gradient(6)
        for a, b in zip(got, f(*args)):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_sums_of_many_products_are_a_chain() -> None:
    """A few products at a time are added to the running sum."""
    def f(a: Any, b: Any) -> Any:
        return sum(a[i] @ b for i in range(12))

    with override(device="null"):
        kernels = fnx.jit(f).lower(jnp.ones((12, 8, 8)), jnp.ones((8, 8))).kernels
    assert len(kernels) == 12 and len({k.node for k in kernels}) <= 5


# ---- memory of many buffers ---------------------------------------------------------------------


def test_many_buffers_are_planned_near_their_peak() -> None:
    rng = np.random.default_rng(0)
    count = 3000
    nodes = [UOp(ops.BUFFER, F, (), op_args.Buffer(object(), (i,))) for i in range(count)]
    sizes = {n: 64 * int(rng.integers(1, 40)) for n in nodes}
    uses = [[nodes[i], nodes[max(0, i - int(rng.integers(1, 30)))]] for i in range(count)]
    offsets, arena = plan_arena(uses, sizes)
    first: dict[UOp, int] = {}
    last: dict[UOp, int] = {}
    for at, used in enumerate(uses):
        for n in used:
            first.setdefault(n, at)
            last[n] = at
    live = np.zeros(count + 1)
    for n in nodes:
        live[first[n]] += sizes[n]
        live[last[n] + 1] -= sizes[n]
    assert arena <= 1.5 * np.cumsum(live).max()
    for i, a in enumerate(nodes):
        for b in nodes[i + 1:i + 40]:
            if first[a] <= last[b] and first[b] <= last[a]:
                assert offsets[a] + sizes[a] <= offsets[b] or offsets[b] + sizes[b] <= offsets[a]


DTYPES = st.sampled_from([dtypes.uint8, F, dtypes.float64])


@given(st.lists(st.tuples(st.integers(1, 90), st.integers(0, 9), st.integers(0, 5), DTYPES),
                min_size=2, max_size=12), st.sets(st.integers(0, 11), max_size=4))
def test_a_result_holds_others_until_it_is_written(
        buffers: list[tuple[int, int, int, dtypes.DType]], results: set[int]) -> None:
    nodes = [UOp(ops.BUFFER, dtype, (), op_args.Buffer(object(), (n,)))
             for n, _, _, dtype in buffers]
    first = {n: at for n, (_, at, _, _) in zip(nodes, buffers)}
    last = {n: at + more for n, (_, at, more, _) in zip(nodes, buffers)}
    uses = [[n for n in nodes if first[n] <= step <= last[n]] for step in range(15)]
    outs = [n for i, n in enumerate(nodes) if i in results]
    sizes = {n: size_of(n) for n in nodes if n not in outs}
    placed = place_in_results(uses, sizes, outs)
    assert placed.keys() <= sizes.keys()
    for a, (result, start) in placed.items():
        assert start % ALIGNMENT == 0 and start + nbytes_of(a) <= nbytes_of(result)
        # a slot of rounded length that ends with the result has no part of an element
        assert min(size_of(a), nbytes_of(result) - start) % a.dtype.itemsize == 0
        assert last[a] < first[result]
        for b, (other, offset) in placed.items():
            if a is not b and other is result and first[a] <= last[b] and first[b] <= last[a]:
                assert start + sizes[a] <= offset or offset + sizes[b] <= start


def test_a_chain_of_layers_keeps_one_intermediate_beside_its_result() -> None:
    """Every other layer is in the memory of the result; each, if a tile has whole rows."""
    def f(x: Any, w: Any) -> Any:
        for _ in range(7):
            x = jnp.tanh(x @ w)
        return x

    for n in (64, 128):
        draw = np.random.default_rng(n)
        x, w = draw.standard_normal((n, n)), draw.standard_normal((n, n)) / n ** 0.5
        assert fnx.jit(f).lower(*map(jnp.asarray, (x, w))).arena <= 4 * n * n
        want = x
        for _ in range(7):
            want = np.tanh(want @ w)
        np.testing.assert_allclose(np.asarray(fnx.jit(f)(x, w)), want, atol=1e-4)


def test_parts_of_a_concatenation_that_are_one_value_around_another() -> None:
    x = np.arange(34, dtype=np.uint32).reshape(2, 17)

    def f(m: Any, x: Any) -> Any:
        part = m.transpose(x)[::-1][None]
        return m.concatenate([part, m.full((2, 17, 2), 100, np.uint32), part])
    np.testing.assert_array_equal(fnx.jit(lambda x: f(jnp, x))(x), f(np, x))
