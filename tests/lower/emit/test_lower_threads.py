"""Kernels for thread groups: the interpreter runs them, so no device is needed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.backends.device.base import get_device
from fnx.backends.llvm import binding
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import validity
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.errors import KernelError
from fnx.core.support.target import Target
from fnx.lower.emit.emit import emit_program
from fnx.lower.emit.shared_memory import group_count, thread_group
from fnx.lower.pipeline import Lowered, lower
from tests.graphs import Graph, graphs
from tests.helpers import assert_same
from tests.laws.test_jit_eager_interp import INTEGERS, run

GROUPS = Target("opencl", kind="opencl", threads=64, shared=16 << 10, private=256,
                vector_bits=128)
SHAPE = 9, 300


def interpreted(fn: UOp, args: list[np.ndarray[Any, Any]]) -> list[np.ndarray[Any, Any]]:
    """Run the kernels for a device on the interpreter."""
    device = get_device("interp")
    lowered = lower(fn, GROUPS)
    buffer = device.encode(lowered.block.commands, lowered.code, lowered.block.arena)
    ins = [device.upload(a) for a in args]
    outs = [device.alloc(max(1, math.prod(o.shape) * o.dtype.itemsize)) for o in lowered.block.outs]
    buffer.submit(ins, outs)
    given = [(ins if kind == "in" else outs)[i] for kind, i in lowered.block.results]
    return [s.view(o.dtype.np, o.shape) for s, o in zip(given, fn.src, strict=True)]


@settings(max_examples=15)
@given(graphs(types=INTEGERS, steps=10))
def test_integers_are_the_interpreters(graph: Graph) -> None:
    assert_same(interpreted(graph.fn, graph.args),
                run(graph.fn, graph.args, get_device("interp"), False))


def spread(x: UOp, like: UOp, axis: int) -> UOp:
    """Broadcast a reduced array along the axis that it lost."""
    kept = tuple(1 if i == axis else n for i, n in enumerate(like.shape))
    return build.expand(build.reshape(x, kept), like.shape)


def softmax(x: UOp, axis: int) -> UOp:
    e = build.exp(build.sub(x, spread(build.reduce(x, ops.MAX, (axis,)), x, axis)))
    return build.div(e, spread(build.reduce(e, ops.ADD, (axis,)), x, axis))


def matmul(x: UOp, w: UOp) -> UOp:
    (m, k), n = x.shape, w.shape[1]
    return build.reduce(build.mul(
        build.expand(build.reshape(x, (m, 1, k)), (m, n, k)),
        build.expand(build.reshape(build.permute(w, (1, 0)), (1, n, k)), (m, n, k))), ops.ADD, (2,))


CASES: dict[str, tuple[Callable[[UOp], UOp], Callable[[Any], Any]]] = {
    "softmax along rows": (lambda x: softmax(x, 1), lambda x: np.exp(x) / np.exp(x).sum(
        1, keepdims=True)),
    "softmax along columns": (lambda x: softmax(x, 0), lambda x: np.exp(x) / np.exp(x).sum(
        0, keepdims=True)),
    "sum of all": (lambda x: build.reduce(x, ops.ADD, (0, 1)), lambda x: x.sum()),
    "maximum of rows": (lambda x: build.reduce(x, ops.MAX, (1,)), lambda x: x.max(1)),
    "product": (lambda x: matmul(build.permute(x, (1, 0)), x), lambda x: x.T @ x),
    "product of a flip": (lambda x: matmul(build.flip(x, (0,)), build.permute(x, (1, 0))),
                          lambda x: x[::-1] @ x.T),
    "turned": (lambda x: build.exp(build.permute(x, (1, 0))), lambda x: np.exp(x.T)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_kind_of_kernel(name: str) -> None:
    f, exact = CASES[name]
    x = np.random.default_rng(3).normal(size=SHAPE).astype(np.float32)
    got, = interpreted(build.function([f(build.param(0, dtypes.float32, SHAPE))], 1), [x])
    np.testing.assert_allclose(got, exact(x.astype(np.float64)), rtol=2e-5, atol=2e-5)


def lowered(f: Callable[[UOp], UOp], shape: tuple[int, ...]) -> Lowered:
    return lower(build.function([f(build.param(0, dtypes.float32, shape))], 1), GROUPS)


def lines(f: Callable[[UOp], UOp], shape: tuple[int, ...] = SHAPE) -> list[ops.Op]:
    kernel = next(reversed(lowered(f, shape).code.values()))
    return [line.op for line in kernel.program().src]


def test_threads_wait_between_filling_and_reading_and_nowhere_else() -> None:
    assert lines(lambda x: build.reduce(x, ops.MAX, (1,))).count(ops.SYNC) == 2  # 64, 8 -> 1
    product = lines(lambda x: matmul(build.permute(x, (1, 0)), x), (40, 40))
    assert product.count(ops.SYNC) == 1  # a block is filled while the previous one is used
    first = product.index(ops.SYNC)
    assert product.index(ops.STORE) < product.index(ops.FOR) < first
    assert ops.STORE in product[first:product.index(ops.ENDFOR, product.index(ops.ENDFOR) + 1)]
    assert ops.SYNC not in lines(build.exp)


@settings(max_examples=12, deadline=None)
@given(st.integers(64, 700), st.integers(2, 130), st.sampled_from((1, 3)), st.booleans())
def test_columns_are_folded_by_neighbours_and_by_other_threads(
        rows: int, columns: int, batch: int, twice: bool) -> None:
    """Adjacent threads read adjacent elements; other threads of the group reduce other rows."""
    shape = (batch, rows, columns)

    def f(x: UOp) -> UOp:
        total = build.reduce(x, ops.ADD, (1,))
        if not twice:
            return total
        mean = build.mul(total, build.const(1 / rows, x.dtype, total.shape))
        off = build.sub(x, spread(mean, x, 1))
        return build.reduce(build.mul(off, off), ops.ADD, (1,))

    fn = build.function([f(build.param(0, dtypes.float32, shape))], 1)
    x = np.random.default_rng(rows).normal(size=shape).astype(np.float32)
    got, = interpreted(fn, [x])
    wide = x.astype(np.float64)
    want = ((wide - wide.mean(1, keepdims=True)) ** 2).sum(1) if twice else wide.sum(1)
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-3)
    kernel = next(iter(lower(fn, GROUPS).code))
    across = [r for r in kernel.src[0].ranges if r.arg.kind == "THREAD"]
    assert [build.const_of(r.src[0]) for r in across] == [32]
    group = thread_group(kernel)
    assert group is not None and group.threads == 64


@settings(max_examples=12, deadline=None)
@given(st.integers(2, 200), st.sampled_from((2, 33, 130)), st.sampled_from((1, 3, 70)))
def test_columns_that_are_read_again_are_one_kernel(rows: int, columns: int, batch: int) -> None:
    """Few columns are reduced and stored by several threads each; many, by one thread each."""
    shape = (batch, rows, columns)
    fn = build.function([softmax(build.param(0, dtypes.float32, shape), 1)], 1)
    x = np.random.default_rng(rows).normal(size=shape).astype(np.float32)
    got, = interpreted(fn, [x])
    e = np.exp(x.astype(np.float64))
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=2e-5)
    kernel, = lower(fn, GROUPS).code
    group = thread_group(kernel)
    assert group is not None and group.threads <= GROUPS.threads


@pytest.mark.cases(1)
@pytest.mark.parametrize("shape", [(40, 8192, 24), (64, 5000, 64)])
def test_long_sums_with_few_results_are_of_many_groups(shape: tuple[int, int, int]) -> None:
    """A two-step product, if the target asks for it; the host leaves it as it is."""
    m, c, n = shape
    x, w = build.param(0, dtypes.float32, (m, c)), build.param(1, dtypes.float32, (c, n))
    fn = build.function([matmul(x, w)], 2)
    first, *rest = lower(fn, GROUPS.replace(max_chunks=64)).code
    assert len(rest) == 1 and symbolic.bounds(group_count(first))[0] >= 16
    assert len(lower(fn, GROUPS.replace(max_chunks=1)).code) == 1
    rng = np.random.default_rng(0)
    values = [rng.normal(size=p.shape).astype(np.float32) for p in (x, w)]
    got, = interpreted(fn, values)
    np.testing.assert_allclose(got, values[0].astype(np.float64) @ values[1], rtol=1e-3, atol=2e-3)


@settings(max_examples=5, deadline=None)
@given(st.lists(st.integers(8, 24), min_size=2, max_size=3), st.integers(16, 48),
       st.integers(16, 48))
def test_products_over_several_axes_are_never_written(
        over: list[int], m: int, n: int) -> None:
    """For example the gradient of a layer's weights, over the steps of a loop and the rows of a
    batch."""
    x = build.param(0, dtypes.float32, (*over, m))
    y = build.param(1, dtypes.float32, (*over, n))
    shape = (*over, m, n)
    terms = build.mul(build.expand(build.reshape(x, (*over, m, 1)), shape),
                      build.expand(build.reshape(y, (*over, 1, n)), shape))
    fn = build.function([build.reduce(terms, ops.ADD, range(len(over)))], 2)
    parts = 64
    arena = lower(fn, GROUPS.replace(max_chunks=parts)).block.arena
    assert arena <= 4 * m * n * parts  # a sum for each part
    rng = np.random.default_rng(0)
    values = [rng.normal(size=p.shape).astype(np.float32) for p in (x, y)]
    got, = interpreted(fn, values)
    want = np.tensordot(*[v.astype(np.float64) for v in values], 2 * (range(len(over)),))
    np.testing.assert_allclose(got, want, rtol=1e-3, atol=2e-3)


def test_what_has_no_room_is_computed_where_it_is_read() -> None:
    def stages(columns: int) -> int:
        kernels = list(lowered(lambda x: softmax(x, 1), (4, columns)).code)
        return sum(n.op is ops.STAGE and build.const_of(n.src[1].src[0]) > 64 or
                   n.op is ops.STAGE and len(n.src) > 2 for n in toposort(kernels))
    assert stages(1000) == 1 and stages(10_000) == 0


def test_a_program_says_what_its_threads_are_given() -> None:
    for kernel in lowered(lambda x: softmax(x, 1), SHAPE).code:
        group = thread_group(kernel)
        assert group is not None and emit_program(kernel, GROUPS).arg == group
        assert group.threads == 64 and group.private == 0
        assert 1200 <= group.shared <= GROUPS.shared


@pytest.mark.parametrize("name", CASES)
def test_it_becomes_code_of_a_gpu(name: str) -> None:
    """LLVM emits assembly; ``make gpu-check`` takes it further."""
    chip = Target("gpu", triple="nvptx64-nvidia-cuda", cpu="sm_80", features="+ptx80",
                  kind="nvptx", threads=64, shared=16 << 10, private=256, vector_bits=128)
    fn = build.function([CASES[name][0](build.param(0, dtypes.float32, SHAPE))], 1)
    for kernel, code in lower(fn, chip).code.items():
        text = binding.assembly(code.text(), chip)
        assert f".visible .entry {code.symbol}(" in text and ".reqntid" in text
        syncs = sum(line.op is ops.SYNC for line in emit_program(kernel, chip).src)
        assert text.count("bar.sync") + text.count("barrier.sync") == syncs
        assert "div.full" not in text and ".approx" not in text and ".ftz" not in text


def test_threads_do_not_wait_where_some_of_them_are_not() -> None:
    t, u = build.range_(8, 0, "THREAD", "t"), build.range_(16, 1, "THREAD", "u")
    x = build.load(build.index_into(build.ref(0, dtypes.float32, (8, 16)), t, u))
    staged = build.load(build.index_into(build.stage(x, [u], 0, "SHARED"), t))
    o = build.index_into(build.ref(1, dtypes.float32, (8,)), t)
    kernel = build.kernel([build.store(o, staged)], "odd", (0, 1))
    with pytest.raises(KernelError, match="filled where all threads arrive"):
        emit_program(kernel, GROUPS)


@pytest.mark.parametrize("shape", [(33,), (7, 130)])
def test_threads_beyond_the_end_read_nothing(shape: tuple[int, ...]) -> None:
    """If a result aliases its operand, another thread writes what would be read there."""
    kernel, = lowered(build.exp, shape).code
    reads = [n for n in toposort([kernel]) if n.op is ops.LOAD]
    store, = [n for n in toposort([kernel]) if n.op is ops.STORE]
    assert reads and validity(store) is not None
    assert all(validity(n) is validity(store) for n in reads)
