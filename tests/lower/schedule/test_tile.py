"""tile: every legal schedule keeps the values; every illegal one raises an error that names it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.ops import Op
from fnx.core.ir.tiling import order, parallel, split, stage, unroll, vectorize
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import spec
from fnx.core.levels.interp import run_kernel
from fnx.core.support.errors import KernelError
from fnx.core.support.target import Target
from fnx.lower.analysis.canonicalize import canonicalize
from fnx.lower.code_generation import kernel_code
from fnx.lower.driver import Driver
from fnx.lower.schedule.staging import split_global
from fnx.lower.schedule.tile import tile

F = dtypes.float32


def matmul(m: int, n: int, k: int, ta: bool = False, tb: bool = False) -> UOp:
    r, c, i = build.range_(m, 0, name="m"), build.range_(n, 1, name="n"), build.range_(
        k, 2, name="k")
    x = build.ref(0, F, (k, m) if ta else (m, k), "x")
    w = build.ref(1, F, (n, k) if tb else (k, n), "w")
    bias, o = build.ref(2, F, (n,), "b"), build.ref(3, F, (m, n), "o")
    product = build.mul(build.load(build.index_into(x, *((i, r) if ta else (r, i)))),
                        build.load(build.index_into(w, *((c, i) if tb else (i, c)))))
    total = build.add(build.reduce_ranges(product, ops.ADD, [i]),
                      build.load(build.index_into(bias, c)))
    value = build.maximum(total, build.const(0, F))
    return canonicalize(build.kernel([build.store(build.index_into(o, r, c), value)], "matmul"))


def softmax(rows: int, columns: int) -> UOp:
    row = build.range_(rows, 0, name="row")
    c = [build.range_(columns, 1 + i, name=f"c{i}") for i in range(3)]
    x, o = build.ref(0, F, (rows, columns), "x"), build.ref(1, F, (rows, columns), "o")
    largest = build.reduce_ranges(build.load(build.index_into(x, row, c[0])), ops.MAX, [c[0]])
    e = build.exp(build.sub(build.load(build.index_into(x, row, c[1])), largest))
    kept = build.stage(e, [c[1]], 0)
    value = build.div(build.load(build.index_into(kept, c[2])),
                      build.reduce_ranges(e, ops.ADD, [c[1]]))
    return canonicalize(build.kernel([build.store(build.index_into(o, row, c[2]), value)],
                                     "softmax"))


def scatter_add(n: int, columns: int) -> UOp:
    i, c = build.range_(n, 0, name="i"), build.range_(columns, 1, name="c")
    index, u = build.ref(0, dtypes.int32, (n,), "index"), build.ref(1, F, (n, columns), "u")
    o = build.ref(2, F, (5, columns), "o")
    place = build.index_into(o, build.cast(build.load(build.index_into(index, i)), dtypes.index), c)
    return canonicalize(build.kernel([build.store(place, build.load(build.index_into(u, i, c)),
                                                  None, ops.ADD)], "scatter"))


def run(kernel: UOp, *inputs: np.ndarray, out: tuple[int, ...]) -> np.ndarray:
    """Run under the interpreter, after the kernels that fill GLOBAL stages."""
    packs, main, temporaries = split_global(kernel, "PAR")
    buffers: list[Any] = [*inputs, np.zeros(out, np.float32)]
    for t in temporaries:
        assert t.arg.slot == len(buffers)
        buffers.append(np.full([build.const_of(d) for d in t.src], np.nan, np.float32))
    for part in (*packs, main):
        spec.check([part.kernel], "kernel")
        run_kernel(part.kernel, [buffers[s] for s in part.refs], [])
    return buffers[len(inputs)]


def data(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


SIZES = st.integers(1, 13)
FACTORS = st.integers(1, 6)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_tiled_matmul_is_matmul(draw: st.DataObject) -> None:
    m, n, k = (draw.draw(SIZES, label=x) for x in "mnk")
    ta, tb = draw.draw(st.booleans()), draw.draw(st.booleans())
    kernel = matmul(m, n, k, ta, tb)
    inner = draw.draw(st.permutations(["i", "l"]))
    steps: list[Any] = [
        split("m", draw.draw(FACTORS), "io", "i"), split("n", draw.draw(FACTORS), "jr", "l"),
        split("k", draw.draw(FACTORS), "ko", "ki"),
        order(*draw.draw(st.permutations(["io", "jr"])), "ko", "ki", *inner),
        unroll("i"), vectorize("l")]
    at = [None, "io", "jr", "ko"]
    for operand in draw.draw(st.sets(st.sampled_from(("x", "w")))):
        where = draw.draw(st.sampled_from(at))
        steps.append(stage(operand, where, "GLOBAL" if where is None and draw.draw(st.booleans())
                           else "PRIV"))
    x, w, b = data(1, *((k, m) if ta else (m, k))), data(2, *((n, k) if tb else (k, n))), data(3, n)
    try:
        tiled = tile(kernel, steps)
    except KernelError as e:
        assert "expected a loop of" in str(e) or "ranges inside of" in str(e)
        return
    want = np.maximum((x.T if ta else x).astype(np.float64) @ (w.T if tb else w) + b, 0)
    np.testing.assert_allclose(run(tiled, x, w, b, out=(m, n)), want, rtol=1e-4, atol=1e-5)
    assert canonicalize(tiled) is tiled


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 5), st.integers(1, 40), st.sampled_from((2, 4, 8, 16)), st.integers(1, 4))
def test_tiled_softmax_is_softmax(rows: int, columns: int, lanes: int, times: int) -> None:
    steps: list[Any] = [parallel("row")]
    for i in range(3):
        steps += [split(f"c{i}", lanes * times, f"o{i}", f"i{i}"), split(f"i{i}", lanes, f"u{i}",
                  f"l{i}"), unroll(f"u{i}"), vectorize(f"l{i}")]
    x = data(4, rows, columns)
    got = run(tile(softmax(rows, columns), steps), x, out=(rows, columns))
    e = np.exp(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(1, keepdims=True), rtol=1e-5)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 9), st.integers(1, 20), st.integers(1, 8))
def test_scatter_keeps_its_order(n: int, columns: int, lanes: int) -> None:
    index = np.random.default_rng(n).integers(0, 5, n).astype(np.int32)
    u = data(5, n, columns)
    want = np.zeros((5, columns), np.float32)
    np.add.at(want, index, u)
    tiled = tile(scatter_add(n, columns), [split("c", lanes), split("i", 3), vectorize("ci")])
    np.testing.assert_array_equal(run(tiled, index, u, out=(5, columns)), want)


@pytest.mark.parametrize("scales,staged", [((6,), ops.EXP), ((6, 8), ops.LOAD)])
def test_what_is_computed_from_an_operand_alone_is_staged_with_it(scales: tuple[int, ...],
                                                                  staged: Op) -> None:
    r, i = build.range_(6, 0, name="m"), build.range_(8, 1, name="k")
    c = build.range_(5, 2, name="n")
    x, s = build.ref(0, F, (6, 8), "x"), build.ref(1, F, scales, "s")
    w, o = build.ref(2, F, (8, 5), "w"), build.ref(3, F, (6, 5), "o")
    scale = build.load(build.index_into(s, *(r, i)[:len(scales)]))
    scaled = build.mul(build.load(build.index_into(x, r, i)), scale)
    product = build.mul(build.exp(scaled), build.load(build.index_into(w, i, c)))
    kernel = canonicalize(build.kernel(
        [build.store(build.index_into(o, r, c), build.reduce_ranges(product, ops.ADD, [i]))],
        "scaled"))
    tiled = tile(kernel, [split("m", 4), split("k", 3), order("mo", "n", "ko", "ki", "mi"),
                          unroll("mi"), stage("x", "mo")])
    filled, = (n for n in toposort(tiled.src) if n.op is ops.STAGE)
    assert filled.src[0].op is staged
    a, b, d = data(1, 6, 8), data(2, *scales), data(3, 8, 5)
    np.testing.assert_allclose(run(tiled, a, b, d, out=(6, 5)),
                               np.exp((a.T * b.T).T) @ d, rtol=1e-5)


def test_run_time_extents() -> None:
    n = build.var(0, dtypes.index, name="n")
    i = build.range_(n, 0, name="i")
    x, o = build.ref(0, F, (n,), "x"), build.ref(1, F, (n,), "o")
    value = build.add(build.load(build.index_into(x, i)), build.const(1, F))
    tiled = tile(build.kernel([build.store(build.index_into(o, i), value)], "inc"),
                 [split("i", 8), vectorize("ii"), parallel("io")])
    for size in (0, 1, 7, 8, 9, 33):
        a, b = data(0, size), np.zeros(size, np.float32)
        run_kernel(tiled, [a, b], [size])
        np.testing.assert_array_equal(b, a + np.float32(1))


def test_no_condition_where_the_split_is_exact() -> None:
    tiled = tile(matmul(12, 32, 8), [split("m", 6), split("n", 16), vectorize("ni"),
                                     order("mo", "no", "k", "mi", "ni"), unroll("mi")])
    assert not any(n.dtype is dtypes.bool_ for n in toposort(tiled.src))


def test_zero_filled_products_need_no_selection() -> None:
    kernel = matmul(4, 4, 10)
    tiled = tile(kernel, [split("k", 4)])
    assert not any(n.op is ops.WHERE for n in toposort(tiled.src))
    masked = tile(softmax(2, 10), [split("c0", 4)])
    assert any(n.op is ops.WHERE for n in toposort(masked.src))


def test_a_product_whose_factor_is_packed_ends_where_the_sum_does() -> None:
    """No load is tested, though a buffer does not say that it is 0 behind the end."""
    tiled = tile(matmul(12, 32, 10), [split("n", 16), vectorize("ni"), split("k", 4), order(
        "no", "m", "ko", "ki", "ni"), stage("w", space="GLOBAL")])
    _, main, _ = split_global(tiled, "PAR")
    program = kernel_code(main.kernel, Driver(Target("cpu", vector_bits=512))).program()
    assert {len(n.src) for n in program.src if n.op is ops.LOAD} == {1}


ILLEGAL = [
    ("unknown range", [split("q", 4)], "'m', 'n', 'k'; got 'q'"),
    ("factor", [lambda: split("m", 0)], "expected a factor >= 1, got 0"),
    ("taken name", [split("m", 4, "n", "i")], "'n', which is there already"),
    ("incomplete order", [order("m", "n")], "each of 'm', 'n', 'k' once"),
    ("parallel inside", [parallel("n")], "expected the outermost range 'm', got 'n'"),
    ("parallel fold", [order("k", "m", "n"), unroll("m"), unroll("n"), parallel("k")],
     "a range of the result"),
    ("two kinds", [unroll("m"), vectorize("m")], "got one that is UNROLL"),
    ("split a vector", [vectorize("m"), split("m", 2)], "got one that is VEC"),
    ("two vectors", [vectorize("m"), vectorize("n")], "one vectorized range in a value, got "
     "'m', 'n'"),
    ("fold outside", [order("m", "k", "n")], "the loop 'n' outside of 'k'"),
    ("stage of an output", [stage("o")], "'o' is written"),
    ("stage of nothing", [stage("y")], "one of the operands 'x', 'w', 'b'"),
    ("stage at no loop", [stage("x", at="q")], "expected a loop of"),
    ("stage inside everything", [stage("x", at="k")], "got none"),
    ("space", [lambda: stage("x", space="HERE")], "a space of PRIV, SHARED, GLOBAL"),
]


@pytest.mark.parametrize("steps,message", [c[1:] for c in ILLEGAL], ids=[c[0] for c in ILLEGAL])
def test_illegal_schedules_are_refused(steps: list[Any], message: str) -> None:
    with pytest.raises(KernelError) as e:
        tile(matmul(7, 9, 8), [s() if callable(s) else s for s in steps])
    assert message in e.value.message


@pytest.mark.parametrize("steps", [
    [parallel("i")], [vectorize("i")], [split("i", 2), unroll("io")],
    [split("i", 2), order("ii", "io", "c")]], ids=["parallel", "vectorize", "unroll", "order"])
def test_the_order_of_a_scatter_is_kept(steps: list[Any]) -> None:
    with pytest.raises(KernelError, match="order counts"):
        tile(scatter_add(4, 3), steps)


def test_run_time_extents_are_not_unrolled() -> None:
    i = build.range_(build.var(0, dtypes.index), 0, name="i")
    o = build.ref(0, F, (i.src[0],))
    kernel = build.kernel([build.store(build.index_into(o, i), build.const(0, F))], "zero")
    for step in (unroll("i"), vectorize("i")):
        with pytest.raises(KernelError, match="whose extent is a number"):
            tile(kernel, [step])


def test_equal_kernels_are_the_identical_node() -> None:
    def copy(id: int) -> UOp:
        r, c = build.range_(8, id), build.range_(5, id + 2)
        place = build.index_into(build.ref(1, F, (8, 5)), r, c)
        return build.kernel([build.store(place, build.load(
            build.index_into(build.ref(0, F, (8, 5)), r, c)))], "copy", (id, id + 2))
    assert canonicalize(copy(3)) is canonicalize(copy(9))
    assert tile(canonicalize(copy(3)), [split("r0", 3)]) is \
        tile(canonicalize(copy(1)), [split("r0", 3)])
