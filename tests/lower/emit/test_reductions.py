"""REDUCE, STAGE and loops on the machine agree with the interpreter."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.support.target import Target
from fnx.lower.emit.emit import emit_program
from fnx.lower.legalize.decompose import decompose
from fnx.lower.render.host import render
from tests.helpers import same_bits
from tests.lower.machine import aligned, both, kernel_over, run, split

F32 = dtypes.float32
EXACT = {"float32": [ops.MAX, ops.MIN], "int32": [ops.ADD, ops.MUL, ops.MAX, ops.MIN, ops.AND,
         ops.OR, ops.XOR], "bool": [ops.AND, ops.OR], "uint32": [ops.ADD, ops.MAX, ops.MIN]}


def masked(value, inside, monoid):
    if inside is None:
        return value
    return build.where(inside, value, build.const(monoid.identity(value.dtype), value.dtype))


def factors(draw, vec=True):
    out = [(draw(st.sampled_from([1, 2, 3])), "UNROLL")]
    if vec:
        out.append((draw(st.sampled_from([1, 4, 6, 16])), "VEC"))
    return out


def values(rng, shape, dtype):
    if dtype.is_bool:
        return rng.random(shape) < 0.5
    if dtype.is_integer:
        return rng.integers(-1000 if dtype.kind == "int" else 0, 1000, shape).astype(dtype.np)
    return rng.normal(size=shape).astype(dtype.np)


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_reduce_any_axis_any_tile(data):
    """o[m] = reduction of x[m, k] over k, with lanes and unrolled instances on either axis."""
    draw = data.draw
    m, k = draw(st.integers(0, 9)), draw(st.integers(0, 40))
    dtype = draw(st.sampled_from([F32, dtypes.int32, dtypes.bool_, dtypes.uint32]))
    monoid = draw(st.sampled_from(EXACT[dtype.name]))
    lanes_on_k = draw(st.booleans())
    M: UOp | int = m
    K: UOp | int = k
    scalars = []
    if draw(st.booleans()):
        M, K = (build.var(s, dtypes.index, 0, 1000) for s in (0, 1))
        scalars = [m, k]
    row, row_ok, _ = split(M, *factors(draw, not lanes_on_k), ids=0,
                           outer=draw(st.sampled_from(["SEQ", "PAR"])))
    col, col_ok, closed = split(K, *factors(draw, lanes_on_k), ids=10)
    both_ok = [c for c in (row_ok, col_ok) if c is not None]
    valid = None if not both_ok else both_ok[0] if len(both_ok) == 1 else build.and_(*both_ok)
    x = build.load(build.index_into(build.ref(0, dtype, (M, K)), row, col), valid)
    total = build.reduce_ranges(masked(x, col_ok, monoid), monoid, closed)
    out = build.index_into(build.ref(1, dtype, (M,)), row)
    kernel = kernel_over([build.store(out, total, row_ok)], "reduce", (0, 10, 11, 12, 1, 2))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    mine, theirs = both(kernel, [values(rng, (m, k), dtype), np.zeros(m, dtype.np)], scalars,
                        draw(st.sampled_from([[], [0.4, 0.7]])))
    assert same_bits(mine[1], theirs[1])


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_float_sums_are_near_and_do_not_depend_on_parts(data):
    draw = data.draw
    m, k = draw(st.integers(1, 9)), draw(st.integers(0, 300))
    row, _, _ = split(m, ids=0, outer="PAR")
    col, ok, closed = split(k, *factors(draw), ids=10)
    x = build.load(build.index_into(build.ref(0, F32, (m, k)), row, col), ok)
    total = build.reduce_ranges(masked(build.mul(x, x), ok, ops.ADD), ops.ADD, closed)
    kernel = kernel_over([build.store(build.index_into(build.ref(1, F32, (m,)), row), total)],
                         "norm", (0, 10, 11, 12))
    a = np.random.default_rng(k).normal(size=(m, k)).astype("f")
    whole, _ = both(kernel, [a, np.zeros(m, "f")])
    parts, _ = both(kernel, [a, np.zeros(m, "f")], [], [0.3, 0.6])
    assert same_bits(whole[1], parts[1])
    np.testing.assert_allclose(whole[1], (a.astype("d") ** 2).sum(1), rtol=1e-5)


def softmax(rows, columns, draw):
    x, o = build.ref(0, F32, (rows, columns)), build.ref(1, F32, (rows, columns))
    row = build.range_(rows, 0, "PAR")
    axes = [split(columns, *factors(draw), ids=10 * (i + 1)) for i in range(3)]

    def read(i):
        return build.load(build.index_into(x, row, axes[i][0]), axes[i][1])

    largest = build.reduce_ranges(masked(read(0), axes[0][1], ops.MAX), ops.MAX, axes[0][2])
    e = build.exp(build.sub(read(1), largest))
    total = build.reduce_ranges(masked(e, axes[1][1], ops.ADD), ops.ADD, axes[1][2])
    kept = build.stage(e, axes[1][2], id=0)
    steps = [build.index_const(n) for n in (
        int(np.prod([r.src[0].arg for r in axes[1][2][1:]])), axes[1][2][2].src[0].arg)]
    column = axes[2][0]
    digits = [build.idiv(column, steps[0]), build.idiv(build.rem(column, steps[0]), steps[1]),
              build.rem(column, steps[1])]
    value = build.div(build.load(build.index_into(kept, *digits), axes[2][1]), total)
    store = build.store(build.index_into(o, row, column), value, axes[2][1])
    return kernel_over([store], "softmax", [0, *range(10, 13), *range(20, 23), *range(30, 33)])


@settings(deadline=None, max_examples=10)
@given(rows=st.integers(0, 4), columns=st.integers(1, 70), data=st.data())
def test_softmax_with_a_stage(rows, columns, data):
    kernel = softmax(rows, columns, data.draw)
    x = np.random.default_rng(columns).normal(size=(rows, columns)).astype("f") * 5
    mine, theirs = both(kernel, [x, np.zeros_like(x)])
    np.testing.assert_allclose(mine[1], theirs[1], rtol=2e-6, atol=1e-30)


@settings(deadline=None, max_examples=10)
@given(data=st.data(), m=st.integers(1, 20), n=st.integers(1, 40), k=st.integers(0, 12))
def test_gemm_with_packed_panels(data, m, n, k):
    draw = data.draw
    rows, vectors, lanes = (draw(st.sampled_from(c)) for c in ([1, 3, 4], [1, 2], [1, 4, 16]))
    block = draw(st.sampled_from([1, 2]))
    row, row_ok, (io, ir, i) = split(m, (block, "SEQ"), (rows, "UNROLL"), ids=0, outer="PAR")
    column, column_ok, (jr, j, lane) = split(n, (vectors, "UNROLL"), (lanes, "VEC"), ids=10)
    kk = build.range_(k, 20)
    a, b, o = build.ref(0, F32, (m, k)), build.ref(1, F32, (k, n)), build.ref(2, F32, (m, n))
    packed_a = build.stage(build.load(build.index_into(a, row, kk), row_ok), (ir, kk, i), id=0)
    packed_b = build.stage(build.load(build.index_into(b, kk, column), column_ok),
                           (jr, kk, j, lane), id=1)
    product = build.mul(build.load(build.index_into(packed_a, ir, kk, i)),
                        build.load(build.index_into(packed_b, jr, kk, j, lane)))
    total = build.maximum(build.reduce_ranges(product, ops.ADD, (kk,)), build.const(0, F32))
    ok = [c for c in (row_ok, column_ok) if c is not None]
    valid = None if not ok else ok[0] if len(ok) == 1 else build.and_(*ok)
    order = draw(st.sampled_from([(0, 10, 1, 20, 2, 11, 12), (0, 1, 10, 20, 2, 11, 12)]))
    kernel = kernel_over([build.store(build.index_into(o, row, column), total, valid)], "gemm",
                         order)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(m, k)).astype("f"), rng.normal(size=(k, n)).astype("f")
    mine, theirs = both(kernel, [x, y, np.zeros((m, n), "f")], [], [0.5])
    np.testing.assert_allclose(mine[2], theirs[2], rtol=1e-5, atol=1e-5)


def test_two_readers_in_different_loops():
    """A reduction that is read inside another loop order is computed again there."""
    m, n = 3, 5
    i, j, k = build.range_(m, 0), build.range_(n, 1), build.range_(4, 2)
    x = build.ref(0, F32, (n, 4))
    s = build.reduce_ranges(build.load(build.index_into(x, j, k)), ops.ADD, (k,))
    outer = build.store(build.index_into(build.ref(1, F32, (m, n)), i, j), s)
    alone = build.store(build.index_into(build.ref(2, F32, (n,)), j), s)
    kernel = build.kernel([outer, alone], "twice", (0, 1, 2))
    mine, theirs = both(kernel, [np.arange(20, dtype="f").reshape(n, 4), np.zeros((m, n), "f"),
                                 np.zeros(n, "f")])
    assert same_bits(mine[1], theirs[1]) and same_bits(mine[2], theirs[2])


SCRIPT = """
import sys
from hypothesis import strategies
from tests.lower.emit.test_reductions import fixed_text
sys.stdout.write(fixed_text())
"""


def fixed_text():
    """The text of a softmax kernel with masks, a stage and two reductions."""
    choices = iter([2, 16, 1, 4, 3, 16])
    kernel = softmax(3, 50, lambda strategy: next(choices))
    target = Target("cpu", triple="x86_64")
    return render(emit_program(decompose(kernel, target), target))


def test_text_is_the_same_in_every_process():
    texts = {subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True,
                            check=True, env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."}).stdout
             for seed in ("1", "2")}
    assert texts == {fixed_text()}


def test_key_ignores_names_and_sees_content():
    from fnx.lower.code_generation import kernel_code
    from fnx.lower.driver import Driver

    def copy(n, name, kind="PAR"):
        r = build.range_(n, 0, kind, name)
        x, o = (build.index_into(build.ref(s, F32, (n,), name), r) for s in (0, 1))
        return build.kernel([build.store(o, build.load(x))], name, (0,))

    def key(kernel, target=Target("cpu")):
        return kernel_code(kernel, Driver(target)).key

    assert key(copy(8, "a")) == key(copy(8, "b"))
    others = [key(copy(9, "a")), key(copy(8, "a", "SEQ")),
              key(copy(8, "a"), Target("cpu", vector_bits=256))]
    assert len({key(copy(8, "a")), *others}) == 4


def test_reductions_that_share_a_range_share_the_loop():
    n = 10
    r, q = build.range_(n, 0), build.range_(n, 1)
    x = build.load(build.index_into(build.ref(0, F32, (n,)), r))
    mean = build.reduce_ranges(x, ops.ADD, (r,))
    square = build.reduce_ranges(build.mul(x, x), ops.ADD, (r,))
    y = build.load(build.index_into(build.ref(0, F32, (n,)), q))
    value = build.sub(build.mul(y, mean), square)
    kernel = build.kernel([build.store(build.index_into(build.ref(1, F32, (n,)), q), value)], "k",
                          (0, 1))
    program = emit_program(kernel, Target("cpu"))
    assert [line.op for line in program.src if line.op in (ops.FOR, ops.PHI)] == \
        [ops.FOR, ops.PHI, ops.PHI, ops.FOR]
    loads = [line for line in program.src if line.op is ops.LOAD]
    assert len(loads) == 2, "one load in each loop"


def test_full_iterations_have_no_masks():
    n = build.var(0, dtypes.index)
    i, inside, _ = split(n, (16, "VEC"))
    x = build.load(build.index_into(build.ref(0, F32, (n,)), i), inside)
    kernel = build.kernel([build.store(build.index_into(build.ref(1, F32, (n,)), i), x, inside)],
                          "k", (0, 1))
    program = emit_program(kernel, Target("cpu"))
    loops = "".join({ops.FOR: "(", ops.ENDFOR: ")", ops.LANE_MASK: "m"}.get(line.op, "")
                    for line in program.src)
    assert loops == "()(m)"
    assert "masked" in render(program)


@pytest.mark.parametrize("case", ["two_vec", "par_closed", "two_par", "store_outside",
                                  "symbolic_unroll", "lanes_to_one_place"])
def test_impossible_schedules(case):
    from fnx.core.support.errors import KernelError
    V = build.var(0, dtypes.index)
    ref = build.ref(0, F32, (8, 8))
    kinds = {"two_vec": ("VEC", "VEC"), "par_closed": ("PAR", "SEQ"),
             "two_par": ("PAR", "PAR")}.get(case, ("SEQ", "SEQ"))
    r, q = build.range_(8, 0, kinds[0]), build.range_(8, 1, kinds[1])
    if case == "symbolic_unroll":
        q = build.range_(V, 1, "UNROLL")
    stores = [build.store(build.index_into(ref, r, q), build.const(1, F32))]
    if case == "par_closed":
        total = build.reduce_ranges(build.load(build.index_into(ref, r, q)), ops.ADD, (r,))
        stores = [build.store(build.index_into(build.ref(1, F32, (8,)), q), total)]
    if case == "store_outside":
        p = build.range_(8, 2, "PAR")
        stores.append(build.store(build.index_into(build.ref(1, F32, (8,)), p),
                                  build.const(1, F32)))
    if case == "lanes_to_one_place":
        lane = build.range_(8, 3, "VEC")
        x = build.load(build.index_into(build.ref(1, F32, (8,)), lane))
        stores = [build.store(build.index_into(ref, r, q), x)]
    with pytest.raises(KernelError):
        emit_program(build.kernel(stores, "bad", (0, 1, 2, 3)), Target("cpu"))


def test_zero_iterations_give_the_identity():
    k = build.range_(build.var(0, dtypes.index), 0)
    total = build.reduce_ranges(build.load(build.index_into(build.ref(0, F32, (1,)), k)), ops.ADD,
                                (k,))
    kernel = build.kernel([build.store(build.index_into(build.ref(1, F32, ())), total)], "empty",
                          (0,))
    out = aligned(np.float32(5))
    run(kernel, [aligned(np.zeros(1, "f")), out], [0])
    assert out == 0
