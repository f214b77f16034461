"""Blocks are transposed in registers: stores across lanes, and stages filled across rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.backends.llvm import binding as llvm
from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.uop import rebuild, toposort
from fnx.core.levels.interp_kernel import run_kernel
from fnx.core.support.target import Target
from fnx.lower.driver import find_graphs
from fnx.lower.emit.emit import emit_program
from fnx.lower.emit.shuffles import _network
from fnx.lower.emit.vectorize_stage_fills import vectorize_stage_fills
from fnx.lower.kernel.runtime_extents import generalize
from fnx.lower.schedule.heuristics import choose_schedule
from fnx.lower.schedule.staging import _fill_kind
from fnx.lower.schedule.tile import tile
from tests.helpers import same_bits
from tests.lower.machine import both, split
from tests.lower.steps import AVX512, after_pass

F32 = dtypes.float32


@pytest.mark.parametrize("dtype", [dtypes.uint8, dtypes.int16, F32, dtypes.float64], ids=str)
@pytest.mark.parametrize("n", [4, 8, 16, 32])
def test_network_transposes(n, dtype):
    steps, order = _network(dtype, n)
    block = np.arange(n * n).reshape(n, n)
    rows = list(block)
    for bit, (low, high) in enumerate(steps):
        for i in range(n):
            if not i >> bit & 1:
                pair = np.concatenate([rows[i], rows[i | 1 << bit]])
                rows[i], rows[i | 1 << bit] = pair[list(low)], pair[list(high)]
    assert np.array_equal(np.array([rows[i] for i in order]), block.T)
    assert len(steps) == n.bit_length() - 1


@settings(deadline=None, max_examples=12)
@given(m=st.integers(1, 40), n=st.integers(1, 40), lanes=st.sampled_from([4, 8, 16]),
       rows=st.sampled_from([3, 4, 7, 8, 14, 16]),
       dtype=st.sampled_from([dtypes.float32, dtypes.int32, dtypes.float64]))
def test_transposed_copy(m, n, lanes, rows, dtype):
    """o[j, i] = x[i, j] with lanes along j and unrolled instances along i, with tails on both."""
    i, i_ok, _ = split(m, (rows, "UNROLL"), ids=0)
    j, j_ok, _ = split(n, (lanes, "VEC"), ids=10)
    ok = [c for c in (i_ok, j_ok) if c is not None]
    valid = None if not ok else ok[0] if len(ok) == 1 else build.and_(*ok)
    x = build.load(build.index_into(build.ref(0, dtype, (m, n)), i, j), valid)
    store = build.store(build.index_into(build.ref(1, dtype, (n, m)), j, i), build.add(x, x), valid)
    kernel = build.kernel([store], "transpose", (0, 10, 1, 11))
    mine, theirs = both(kernel, [np.arange(m * n).reshape(m, n).astype(dtype.np),
                                 np.zeros((n, m), dtype.np)])
    assert same_bits(mine[1], theirs[1])


@pytest.mark.cases(4)
@pytest.mark.parametrize("shape", [(33, 70), (1, 5), (64, 16), (17, 300)])
def test_transposed_copy_of_any_length(shape):
    """In eager calls strides are known only at run time; blocks are transposed all the same."""
    i, j = build.range_(shape[1], 0), build.range_(shape[0], 1)
    x = build.load(build.index_into(build.ref(0, F32, shape), j, i))
    store = build.store(build.index_into(build.ref(1, F32, shape[::-1]), i, j), x)
    kernel, scalars = generalize(build.kernel([store], "turn", (0, 1)))
    target = Target("cpu")
    tiled = tile(kernel, choose_schedule(kernel, target))
    if min(shape) > 1:
        assert any(n.op is ops.SHUFFLE for n in emit_program(tiled, target).src)
    data = np.arange(math.prod(shape), dtype=np.float32)
    mine, theirs = both(tiled, [data, np.zeros(data.size, np.float32)],
                        [build.const_of(s) for s in scalars])
    assert same_bits(mine[1], theirs[1])
    assert same_bits(mine[1], data.reshape(shape).T.ravel())


def test_transposed_copy_writes_vectors():
    i, _, _ = split(32, (16, "UNROLL"), ids=0)
    j, _, _ = split(32, (16, "VEC"), ids=10)
    x = build.load(build.index_into(build.ref(0, F32, (32, 32)), i, j))
    store = build.store(build.index_into(build.ref(1, F32, (32, 32)), j, i), x)
    program = emit_program(build.kernel([store], "transpose", (0, 10, 1, 11)), Target("cpu"))
    stores = [line for line in program.src if line.op is ops.STORE]
    assert len(stores) == 16
    assert all(s.src[0].src[1].dtype.lanes == 1 and s.src[1].dtype.lanes == 16 for s in stores)


@settings(deadline=None, max_examples=40)
@given(m=st.integers(1, 40), count=st.integers(2, 9), lanes=st.sampled_from([2, 4, 8, 16]),
       unrolled=st.integers(1, 2), shift=st.integers(0, 2), transposed=st.booleans(),
       dtype=st.sampled_from([dtypes.float32, dtypes.int32, dtypes.float64, dtypes.bool_]))
def test_lanes_with_other_instances_between(m, count, lanes, unrolled, shift, transposed, dtype):
    """o[j, i] = x[i, j] and back, with lanes along j and all i unrolled, longer rows of x, and
    tails."""
    i = build.range_(count, 0, "UNROLL")
    j, j_ok, _ = split(m, (unrolled, "UNROLL"), (lanes, "VEC"), ids=10)
    along = (i, j), (count, m + shift)
    contiguous = (j, i), (m, count)
    sides = (contiguous, along) if transposed else (along, contiguous)
    places = [build.index_into(build.ref(s, dtype, shape), *at)
              for s, (at, shape) in enumerate(sides)]
    x = build.load(places[0], j_ok)
    kernel = build.kernel([build.store(places[1], x, j_ok)], "short", (10, 11, 12, 0))
    (_, given_shape), (_, out_shape) = sides
    values = (np.arange(np.prod(given_shape)).reshape(given_shape) % 3).astype(dtype.np)
    mine, theirs = both(kernel, [values, np.zeros(out_shape, dtype.np)])
    assert same_bits(mine[1], theirs[1])


@settings(deadline=None, max_examples=40)
@given(rows=st.integers(1, 40), count=st.integers(1, 8), lanes=st.sampled_from([4, 8, 16]),
       shifts=st.lists(st.integers(0, 6), min_size=1, max_size=4, unique=True),
       masked=st.booleans(), width=st.integers(14, 40))
def test_columns_that_several_loads_read(rows, count, lanes, shifts, masked, width):
    """o[j, i] = sum of x[j, i + s] over some shifts, the last if i < 2 or always, with lanes along
    j and all i unrolled: of two loads of one element, each may be in a block of columns."""
    i = build.range_(count, 0, "UNROLL")
    j, j_ok, _ = split(rows, (lanes, "VEC"), ids=10)
    x = build.ref(0, F32, (rows, width))
    total = build.const(0.0, F32)
    for at, by in enumerate(shifts):
        valid = j_ok
        if masked and at == len(shifts) - 1:
            few = build.lt(i, build.index_const(2))
            valid = few if j_ok is None else build.and_(j_ok, few)
        column = build.add(i, build.index_const(by))
        total = build.add(total, build.load(build.index_into(x, j, column), valid))
    store = build.store(build.index_into(build.ref(1, F32, (rows, count)), j, i), total, j_ok)
    kernel = build.kernel([store], "shifts", (10, 11, 0))
    values = np.arange(rows * width, dtype=np.float32).reshape(rows, width)
    mine, theirs = both(kernel, [values, np.zeros((rows, count), np.float32)])
    assert same_bits(mine[1], theirs[1])


@settings(deadline=None, max_examples=40)
@given(m=st.integers(1, 40), step=st.integers(2, 9), lanes=st.sampled_from([2, 4, 8, 16]),
       first=st.integers(0, 3), behind=st.integers(0, 2), strided=st.booleans(),
       dtype=st.sampled_from([dtypes.float32, dtypes.int32, dtypes.float64, dtypes.bool_]))
def test_strided_lanes(m, step, lanes, first, behind, strided, dtype):
    """o[j] = x[j * step + first], where x ends with its last element, or with every third one
    valid."""
    j, j_ok, _ = split(m, (lanes, "VEC"), ids=10)
    n = (m - 1) * step + first + 1 + behind
    index = build.add(build.mul(j, build.index_const(step)), build.index_const(first))
    valid = j_ok
    if strided:
        third = build.eq(build.rem(j, build.index_const(3)), build.index_const(0))
        valid = third if j_ok is None else build.and_(j_ok, third)
    x = build.load(build.index_into(build.ref(0, dtype, (n,)), index), valid)
    store = build.store(build.index_into(build.ref(1, dtype, (m,)), j), x, j_ok)
    kernel = build.kernel([store], "steps", (10, 11))
    mine, theirs = both(kernel, [(np.arange(n) % 5).astype(dtype.np), np.ones(m, dtype.np)])
    assert same_bits(mine[1], theirs[1])


@pytest.mark.parametrize("count", [2, 3, 8])
def test_lanes_with_other_instances_between_move_as_vectors(count):
    i, j = build.range_(count, 0, "UNROLL"), build.range_(16, 1, "VEC")
    x, o = (build.index_into(build.ref(s, F32, (16, count)), j, i) for s in (0, 1))
    kernel = build.kernel([build.store(o, build.add(build.load(x), build.load(x)))], "k", (1, 0))
    moves = [line for line in emit_program(kernel, Target("cpu")).src
             if line.op in (ops.LOAD, ops.STORE)]
    assert len(moves) == 2 * count
    assert all(line.src[0].src[1].dtype.lanes == 1 for line in moves)


def packed(m, k, rows, kind="UNROLL", space="PRIV"):
    """o[m] = sum over k of x[m, k]^2 through a stage that is filled across its rows, and read by
    unrolled rows or by lanes."""
    row, row_ok, (ir, i) = split(m, (rows, kind), ids=0, outer="PAR")
    kk, q, across = build.range_(k, 10), build.range_(k, 11), build.range_(rows, 12, "UNROLL")
    filled = [build.add(build.mul(ir, build.index_const(rows)), across), kk]
    inside = build.lt(filled[0], build.index_const(m))
    x = build.load(build.index_into(build.ref(0, F32, (m, k)), *filled), inside)
    panel = build.stage(build.mul(x, x), (kk, across), 0, space)
    total = build.reduce_ranges(build.load(build.index_into(panel, q, i)), ops.ADD, (q,))
    store = build.store(build.index_into(build.ref(1, F32, (m,)), row), total, row_ok)
    return build.kernel([store], "packed", (0, 10, 12, 11, 1))


@settings(deadline=None, max_examples=30)
@given(m=st.integers(1, 30), k=st.integers(1, 50) | st.sampled_from([255, 256, 320, 512]),
       rows=st.sampled_from([2, 4, 6, 14, 16]), kind=st.sampled_from(["UNROLL", "VEC"]))
def test_packed_rows(m, k, rows, kind):
    kernel = packed(m, k, rows if kind == "UNROLL" else 16, kind)
    x = np.random.default_rng(k).integers(-3, 4, (m, k)).astype("f")
    mine, theirs = both(kernel, [x, np.zeros(m, "f")])
    assert same_bits(mine[1], theirs[1])


@pytest.mark.parametrize("k", [3 * 16 + 1, 511, 512])
@pytest.mark.parametrize("kind,space,laid_out", [
    ("UNROLL", "PRIV", ["SEQ", "SEQ", "VEC"]), ("UNROLL", "GLOBAL", ["SEQ", "VEC", "UNROLL"]),
    ("VEC", "PRIV", ["SEQ", "VEC", "UNROLL"])])
def test_fills_are_blocked_and_mean_the_same(k, kind, space, laid_out):
    target = llvm.host_target()
    lanes = target.vector_lanes(4)
    kernel = packed(2 * lanes + 3, k, lanes, kind, space)
    blocked = vectorize_stage_fills(kernel, target)
    kinds = [[r.arg.kind for r in n.src[1:]] for n in toposort(blocked.src)
             if n.op is ops.STAGE]
    assert kinds == [laid_out]
    assert vectorize_stage_fills(blocked, target) is blocked
    x = np.random.default_rng(0).normal(size=(2 * lanes + 3, k)).astype("f")
    outs = []
    for k in (kernel, blocked):
        out = np.zeros(len(x), "f")
        run_kernel(k, [x, out], [])
        outs.append(out)
    assert same_bits(*outs)


def packed_rows(m, k, rows):
    """The same for x[k, m], whose rows are rows of the stage; row indices are clamped, as in
    tiles."""
    kernel = packed(m, k, rows)

    def visit(node, src):
        if node.op is not ops.LOAD or node.src[0].src[0].op is not ops.REF:
            return None
        row, kk = node.src[0].src[1:]
        held = build.elementwise(ops.MIN, row, build.index_const(m - 1))
        return build.load(build.index_into(build.ref(0, F32, (k, m)), kk, held))
    return rebuild([kernel], visit)[0]


@settings(deadline=None, max_examples=15)
@given(m=st.integers(1, 40), k=st.integers(1, 20), rows=st.sampled_from([2, 4, 5, 13, 14, 16]))
def test_packed_rows_of_rows(m, k, rows):
    kernel = packed_rows(m, k, rows)
    x = np.random.default_rng(k).integers(-3, 4, (k, m)).astype("f")
    mine, theirs = both(kernel, [x, np.zeros(m, "f")])
    assert same_bits(mine[1], theirs[1])


@pytest.mark.parametrize("rows,lanes", [(4, 4), (13, 16), (16, 16)])
def test_rows_of_the_source_are_vectors(rows, lanes):
    kernel = packed_rows(3 * rows - 1, 20, rows)
    blocked = vectorize_stage_fills(kernel, Target("cpu"))
    stage, = [n for n in toposort(blocked.src) if n.op is ops.STAGE]
    assert [r.arg.kind for r in stage.src[1:]] == ["SEQ", "VEC"]
    assert build.const_of(stage.src[2].src[0]) == lanes
    assert not any(n.op is ops.MIN for n in toposort(stage.src[:1]))
    assert vectorize_stage_fills(blocked, Target("cpu")) is blocked
    x = np.random.default_rng(0).normal(size=(20, 3 * rows - 1)).astype("f")
    outs = []
    for each in (kernel, blocked):
        outs.append(np.zeros(3 * rows - 1, "f"))
        run_kernel(each, [x, outs[-1]], [])
    assert same_bits(*outs)


def test_rows_of_whole_kilobytes_are_padded():
    """The stride is padded, so that rows that are read together map to different cache sets."""
    target = Target("cpu")
    stages = [n for k in (240, 256, 255)
              for n in toposort(vectorize_stage_fills(packed(30, k, 14), target).src)
              if n.op is ops.STAGE]
    lengths = [[build.const_of(d) for d in accessors.dims(n)] for n in stages]
    blocks = 256 // target.vector_lanes(4)
    assert [n[1] for n in lengths] == [240 // target.vector_lanes(4), blocks + 1, blocks + 1]


@pytest.mark.parametrize("m,k", [(1000, 64), (1000, 256), (320, 100)])
@pytest.mark.parametrize("factor", [
    lambda x, row: x + row[:, None], lambda x, row: row[:, None] / 50 + x,
    lambda x, row: (x - row[:, None]) * row[:, None]], ids=["sum", "quotient", "product"])
def test_a_factor_made_of_a_number_for_each_row_is_packed_by_vectors(factor, m, k):
    x, row, w = jnp.ones((m, k)), jnp.ones(m), jnp.ones((k, 8))
    graph = fnx.jit(lambda x, row, w: factor(x, row) @ w).lower(x, row, w).graph
    stages = [n for state in after_pass("vectorize_stage_fills", graph, AVX512)
              for kernel in find_graphs(state) for n in toposort(kernel.src)
              if n.op is ops.STAGE]
    assert stages
    assert all(any(r.arg.kind == "VEC" for r in n.src[1:]) for n in stages)


def test_long_work_on_many_elements_is_staged_by_vectors():
    x, y = jnp.ones((4096, 64)), jnp.ones(4096)

    def hessian(x, y):
        def loss(w):
            z = x @ w
            return jnp.mean(jnp.logaddexp(0.0, z) - y * z)
        return fnx.hessian(loss)(jnp.zeros(64))
    graph = fnx.jit(lambda x, y: hessian(jnp.cumsum(x, 0), y)).lower(x, y).graph
    stages = [n for state in after_pass("vectorize_stage_fills", graph, AVX512)
              for kernel in find_graphs(state) for n in toposort([kernel])
              if n.op is ops.STAGE and any(s.op is ops.WHERE for s in toposort(n.src[:1]))]
    assert stages
    assert any(r.arg.kind == "VEC" for n in stages for r in n.src[1:])


@pytest.mark.parametrize("k", [3 * 16 + 1, 512])
@pytest.mark.parametrize("space", ["PRIV", "GLOBAL"])
@pytest.mark.parametrize("is_long", [False, True])
def test_long_work_fills_a_block_row_by_row(k, space, is_long):
    """A copy of it for each row of a block would be long code."""
    lanes = llvm.host_target().vector_lanes(4)
    kernel = packed(2 * lanes + 3, k, lanes, "UNROLL", space)

    def longer(node, src):
        if node.op is not ops.LOAD or accessors.buffer(node).op is not ops.REF:
            return None
        for _ in range(40 if is_long else 1):
            node = build.add(build.mul(node, node), build.const(0.5, F32))
        return node
    kernel = kernel.with_operands(tuple(rebuild(kernel.src, longer)))
    blocked = vectorize_stage_fills(kernel, llvm.host_target())
    blocks = [n for n in toposort(blocked.src) if n.op is ops.STAGE
              and [r.arg.kind for r in n.src[1:]] == ["SEQ", "VEC"]]
    assert len(blocks) == (is_long and space == "GLOBAL")
    for block in blocks:
        work = [n for n in toposort(block.src[:1]) if n.op is ops.MUL and n.dtype is F32]
        assert work and not any(r.arg.kind == "UNROLL" for n in work for r in n.ranges)
    assert vectorize_stage_fills(blocked, llvm.host_target()) is blocked
    x = np.random.default_rng(0).uniform(0, 0.5, size=(2 * lanes + 3, k)).astype("f")
    outs = []
    for each in (kernel, blocked):
        outs.append(np.zeros(2 * lanes + 3, "f"))
        run_kernel(each, [x, outs[-1]], [])
    assert same_bits(*outs)


@pytest.mark.parametrize("across", [False, True])
def test_long_work_that_vectors_cannot_fill_is_a_loop(across):
    """Scalars far apart, or, across, contiguous along the other loop of the stage."""
    i, k = build.range_(16, 0, "UNROLL", "i"), build.range_(64, 1, "SEQ", "k")
    at = (i, k) if across else (k, i, build.index_const(0))
    value = build.load(build.index_into(build.ref(0, F32, (16, 64) if across else (64, 16, 2)),
                                        *at))
    for _ in range(40):
        value = build.mul(value, value)
    assert _fill_kind(value, i, [k, i]) == ("UNROLL" if across else "SEQ")


@pytest.mark.parametrize("rows,k", [(2, 64), (16, 3)])
def test_small_fills_stay(rows, k):
    kernel = packed(32, k, rows)
    assert vectorize_stage_fills(kernel, Target("cpu")) is kernel
