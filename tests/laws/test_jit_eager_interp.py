"""jit = eager = interpreter, on random graphs.

One graph is computed in four ways: fused with static lengths (jit), fused with lengths as arguments
(an eager call), one op at a time (a chain of eager calls), and by the interpreter from the same
command buffer. Elementwise ops, movements and integers are bitwise equal in all of them. Functions
computed by polynomials are bitwise equal in the three that run machine code. Float reductions agree
within a bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.backends.device.base import DeviceBase, get_device
from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.support.config import override
from fnx.lower.tensor.inline import inline
from fnx.transforms.link import link
from tests.graphs import ALL_OPS, Graph, graphs
from tests.helpers import assert_same
from tests.laws.device import MACHINE

NDArray = np.ndarray[Any, Any]
DEVICE, INTERP = get_device(MACHINE), get_device("interp")
INTEGERS = (dtypes.int32, dtypes.uint32, dtypes.bool_)
FOLDS = {ops.REDUCE, ops.SCATTER}  # over floats they round, in an order that the kernel decides
EXACT = frozenset(op for op in ALL_OPS if op.exact) - FOLDS


def run(fn: UOp, args: Sequence[NDArray], device: DeviceBase, lengths_later: bool) -> list[NDArray]:
    """Return results of a FUNCTION, compiled as jit does or as eager calls do."""
    ins = [device.upload(a) for a in args]
    outs = link(fn, device, frozenset() if lengths_later else None).run(ins)
    return [out.view(o.dtype.np, o.shape) for out, o in zip(outs, fn.src)]


def one_by_one(fn: UOp, args: Sequence[NDArray]) -> list[NDArray]:
    """Evaluate each node on its own from its operands' values; loops and branches as a whole."""
    fn = inline(fn)
    values: dict[UOp, NDArray] = {}
    for node in toposort(fn.src):
        if node.op is ops.PARAM:
            values[node] = args[node.arg.slot]
        elif node.op is not ops.FUNCTION and node.op not in ops.MULTI_RESULT:
            reads = [*dict.fromkeys(accessors.operands(
                node.src[0] if node.op is ops.GETTUPLE else node))]
            params = {r: build.param(i, r.dtype, r.shape) for i, r in enumerate(reads)}
            alone = build.function(substitute([node], params), len(reads))
            values[node], = run(alone, [values[r] for r in reads], DEVICE, True)
    return [values[o] for o in fn.src]


def compiled(graph: Graph) -> list[NDArray]:
    """Return results on which jit, one eager call and many eager calls agree bitwise."""
    by_jit = run(graph.fn, graph.args, DEVICE, False)
    assert_same(run(graph.fn, graph.args, DEVICE, True), by_jit)
    assert_same(one_by_one(graph.fn, graph.args), by_jit)
    return by_jit


@settings(max_examples=15)
@given(graphs(types=INTEGERS, steps=14))
def test_integers_have_the_same_bits_everywhere(graph: Graph) -> None:
    assert_same(run(graph.fn, graph.args, INTERP, False), compiled(graph))


@settings(max_examples=15)
@given(graphs(allowed=EXACT, steps=14))
def test_exact_ops_have_the_same_bits_everywhere(graph: Graph) -> None:
    assert_same(run(graph.fn, graph.args, INTERP, False), compiled(graph))


@settings(max_examples=10)
@given(graphs(allowed=ALL_OPS - FOLDS, steps=14))
def test_functions_have_the_same_bits_in_every_kernel(graph: Graph) -> None:
    compiled(graph)


@settings(max_examples=20)
@given(graphs(allowed=ALL_OPS, steps=14))
def test_optimizations_of_llvm_change_no_bit(graph: Graph) -> None:
    with override(disable_most_optimizations=False):
        want = run(graph.fn, graph.args, DEVICE, False)
    with override(disable_most_optimizations=True):
        assert_same(run(graph.fn, graph.args, DEVICE, False), want)


# ---- float reductions ---------------------------------------------------------------------------

C = 2.0  # factor of the bound: C * log2(n) * eps * sum of |x|
C_EQUAL = 8.0  # for equal terms, all steps round in one direction
WIDTHS = (0, 1, 2, 3, 7, 16, 17, 33, 100, 257)


def ways(make: Any, args: Sequence[NDArray]) -> list[NDArray]:
    """Return a one-node result by jit, by an eager call, and by the interpreter."""
    params = [build.param(i, dtypes.as_dtype(a.dtype), a.shape) for i, a in enumerate(args)]
    fn = build.function([make(*params)], len(params))
    return [run(fn, args, DEVICE, False)[0], run(fn, args, DEVICE, True)[0],
            run(fn, args, INTERP, False)[0]]


def assert_within(got: NDArray, exact: NDArray, size: NDArray, n: int, what: str,
                  c: float = C) -> None:
    """Check |got - exact| against the bound for n terms whose magnitudes sum to ``size``."""
    eps = np.finfo(got.dtype).eps
    error = np.abs(got.astype(np.longdouble) - exact)
    bound = c * max(1.0, math.log2(max(n, 1))) * eps * size
    assert got.shape == exact.shape and np.all(error <= bound), \
        f"{what}: {np.max(error / np.maximum(bound, 1e-300))} times the bound"


@st.composite
def folds(draw: Any) -> tuple[DType, NDArray, tuple[int, ...]]:
    dtype = draw(st.sampled_from([dtypes.float32, dtypes.float64]))
    shape = tuple(draw(st.lists(st.sampled_from(WIDTHS), min_size=1, max_size=3)))
    while math.prod(shape) > 100_000:
        shape = shape[1:]
    axes = tuple(a for a in range(len(shape)) if draw(st.booleans()))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    return dtype, rng.uniform(*draw(st.sampled_from([(-1, 1), (0.1, 1.7)])), shape
                              ).astype(dtype.np), axes


@settings(max_examples=40)
@given(folds())
def test_sums_agree_within_the_bound(case: Any) -> None:
    _, x, axes = case
    wide = x.astype(np.longdouble)
    n = math.prod(x.shape[a] for a in axes)
    for got in ways(lambda p: build.reduce(p, ops.ADD, axes), [x]):
        assert_within(got, wide.sum(axes), np.abs(wide).sum(axes), n, "sum")


@settings(max_examples=15)
@given(folds())
def test_largest_and_smallest_are_exact(case: Any) -> None:
    _, x, axes = case
    x = np.where(x > 0.9, np.nan, np.where(np.abs(x) < 0.2, -0.0 * x, x)).astype(x.dtype)
    for monoid in (ops.MAX, ops.MIN):
        found = ways(lambda p, m=monoid: build.reduce(p, m, axes), [x])
        by_jit, by_eager, meaning = [y + 0.0 for y in found]  # max and min may return either zero
        assert_same([by_jit, by_eager], [meaning, meaning])


@settings(max_examples=15)
@given(st.sampled_from([np.float32, np.float64]), st.integers(0, 40), st.integers(0, 70),
       st.integers(0, 40), st.integers(0, 3), st.integers(0, 1000))
def test_products_of_matrices_agree_within_the_bound(t: Any, m: int, k: int, n: int,
                                                     transposed: int, seed: int) -> None:
    """x @ y with x or y transposed; the tiles are ragged at the end of each dimension."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((m, k)).astype(t), rng.standard_normal((k, n)).astype(t)

    def product(p: UOp, q: UOp) -> UOp:
        p = build.permute(p, (1, 0)) if transposed & 1 else p
        q = build.permute(q, (1, 0)) if transposed & 2 else q
        rows = build.expand(build.reshape(p, (m, k, 1)), (m, k, n))
        columns = build.expand(build.reshape(q, (1, k, n)), (m, k, n))
        return build.reduce(build.mul(rows, columns), ops.ADD, (1,))

    given_x = np.ascontiguousarray(x.T) if transposed & 1 else x
    given_y = np.ascontiguousarray(y.T) if transposed & 2 else y
    wide_x, wide_y = x.astype(np.longdouble), y.astype(np.longdouble)
    for got in ways(product, [given_x, given_y]):
        assert_within(got, wide_x @ wide_y, np.abs(wide_x) @ np.abs(wide_y), k, "x @ y")


@pytest.mark.parametrize("n", [1, 16, 1000, 4099, 50_021, 65_536, 300_007])
@pytest.mark.parametrize("value", [0.1, None])
def test_long_sums_agree_within_the_bound(n: int, value: float | None) -> None:
    x = np.full(n, value, np.float32) if value is not None else \
        np.random.default_rng(n).standard_normal(n).astype(np.float32)
    wide = x.astype(np.longdouble)
    for got in ways(lambda p: build.reduce(p, ops.ADD, (0,)), [x]):
        assert_within(got, wide.sum(), np.abs(wide).sum(), n, "sum", C_EQUAL if value else C)
