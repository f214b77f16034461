"""CONCAT of narrow operands becomes a STORE for each column, written as vectors; operands of
products are materialized."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp_kernel import run_kernel
from fnx.core.support.config import override
from fnx.core.support.target import Target
from fnx.lower.emit.emit import emit_program
from fnx.lower.emit.interleave_groups import column_blocks
from fnx.lower.kernel.unroll_columns import unroll_columns
from tests.helpers import same_bits, small_integers
from tests.lower.machine import both, split


def lowered(f: Any, *args: Any) -> Any:
    with override(device="null"):
        return fnx.jit(f).lower(*args)


def choices(kernel: UOp) -> int:
    return sum(n.op is ops.WHERE for n in toposort([kernel]))


# ---- the pass -----------------------------------------------------------------------------------


def narrow(n: int, widths: list[int], work: int = 0) -> UOp:
    """o[i, j]: a concat of operands of the given widths, after the given number of sines."""
    i, j = build.range_(n, 0), build.range_(sum(widths), 1)
    value: UOp | None = None
    end = sum(widths)
    for slot, width in reversed([*enumerate(widths)]):
        end -= width
        late = build.sub(j, build.index_const(end))
        x = build.load(build.index_into(build.ref(slot, dtypes.float32, (n, width)), i, late),
                       build.and_(
            build.le(build.index_const(0), late), build.lt(late, build.index_const(width))))
        for _ in range(work):
            x = build.elementwise(ops.SIN, x)
        value = x if value is None else \
            build.where(build.lt(j, build.index_const(end + width)), x, value)
    assert value is not None
    place = build.index_into(build.ref(len(widths), dtypes.float32, (n, sum(widths))), i, j)
    return build.kernel([build.store(place, value)], "concat", (0, 1))


@pytest.mark.parametrize("widths,work,stores,loops", [
    ([1] * 20, 0, 20, 1), ([3, 1, 5, 2], 0, 11, 1), ([3] * 21, 2, 21, 22),  # expensive: loops of 3
    ([2, 3], 0, 1, 2), ([40, 50], 0, 1, 2), ([1, 60], 0, 1, 2)])
def test_each_column_is_stored_by_itself(
        widths: list[int], work: int, stores: int, loops: int) -> None:
    before = narrow(100, widths, work)
    made = unroll_columns(before)
    assert (len(made.src), len(made.arg.order)) == (stores, loops)
    assert unroll_columns(made) is made and (stores == 1 or choices(made) == 0)
    xs = [small_integers(100, w, seed=i) for i, w in enumerate(widths)]
    outs = np.zeros((2, 100, sum(widths)), np.float32)
    for kernel, out in zip((before, made), outs):
        run_kernel(kernel, [*xs, out], [])
    np.testing.assert_array_equal(outs[0], outs[1])


def test_several_stores_over_the_same_columns() -> None:
    first = narrow(100, [1] * 12).src[0]
    o, *at = first.src[0].src
    again = build.ref(13, dtypes.float32, (100, 12))
    second = build.store(build.index_into(again, *at), build.elementwise(ops.NEG, first.src[1]))
    third = build.store(build.index_into(build.ref(14, dtypes.float32, (100,)), at[0]),
                        build.const(1, dtypes.float32))
    made = unroll_columns(build.kernel([first, second, third], "both", (0, 1)))
    assert len(made.src) == 25 and choices(made) == 0
    xs = [small_integers(100, 1, seed=i) for i in range(12)]
    outs = [np.zeros((100, 12), np.float32), np.zeros((100, 12), np.float32),
            np.zeros(100, np.float32)]
    run_kernel(made, [*xs, *outs], [])
    for out, want in zip(outs, (np.hstack(xs), -np.hstack(xs), np.ones(100))):
        np.testing.assert_array_equal(out, want)


def test_short_loops_inside_of_one_another() -> None:
    """A stack of stacks: [[c, -s, 0], [s, c, 0], [0, 0, 1]] for each angle."""
    def rotations(x: Any) -> Any:
        c, s, o, z = jnp.cos(x), jnp.sin(x), jnp.ones_like(x), jnp.zeros_like(x)
        return jnp.array([[c, -s, z], [s, c, z], [z, z, o]])
    lowering = lowered(fnx.vmap(rotations), small_integers(200))
    kernel, = lowering.kernels
    assert choices(kernel.node) == 0 and lowering.text("programs").count("where") == 0


# ---- stores -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(2, 70))
@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_blocks_cover_all_columns(count: int, lanes: int) -> None:
    made = column_blocks(count, lanes)
    assert {i for start, n in made for i in range(start, start + n)} == {*range(count)}
    assert all(n in (2, 4, 8, 16) and n <= lanes for _, n in made)
    assert sum(n for _, n in made) < count + lanes


@settings(deadline=None, max_examples=40)
@given(rows=st.integers(1, 70), width=st.integers(2, 24), lanes=st.sampled_from([4, 8, 16]),
       dtype=st.sampled_from([dtypes.float32, dtypes.float64, dtypes.int16, dtypes.uint8]),
       data=st.data())
def test_stores_of_columns(rows: int, width: int, lanes: int, dtype: Any, data: Any) -> None:
    """o[i, j] = x_j[i] * 2 for some j, with lanes along i, in any order, with tails."""
    written = data.draw(st.permutations(range(width)))[:data.draw(st.integers(1, width))]
    times = data.draw(st.sampled_from([1, 2]))
    kinds = data.draw(st.permutations([(times, "UNROLL"), (lanes, "VEC")]))
    i, i_ok, _ = split(rows, *kinds, ids=0)
    o = build.ref(len(written), dtype, (rows, width))
    stores, buffers = [], []
    for slot, j in enumerate(written):
        x = build.load(build.index_into(build.ref(slot, dtype, (rows,)), i), i_ok)
        stores.append(build.store(build.index_into(o, i, build.index_const(j)), build.add(x, x),
                                  i_ok))
        buffers.append(np.arange(rows).astype(dtype.np) + 7 * slot)
    kernel = build.kernel(stores, "columns", (0, 1, 2))
    mine, theirs = both(kernel, [*buffers, np.full((rows, width), 99, dtype.np)])
    assert same_bits(mine[-1], theirs[-1])


def test_a_stack_of_twenty_is_vectors_without_conditions() -> None:
    kernel, = lowered(lambda *xs: jnp.stack(xs, -1), *[small_integers(4096)] * 20).kernels
    lines = emit_program(kernel.node, Target("cpu")).src
    assert choices(kernel.node) == 0 and not any(n.op is ops.WHERE for n in lines)
    stores = [n for n in lines if n.op is ops.STORE]
    assert all(len(n.src) == 2 for n in stores), "no masks"
    assert [n.src[1].dtype.lanes for n in stores] == [16, 4] * 16, "20 = 16 + 4 columns"
    assert sum(n.op is ops.LOAD for n in lines) == 20


# ---- products -----------------------------------------------------------------------------------


def test_a_product_reads_what_is_concatenated_from_memory() -> None:
    """Each operand of the concat is computed once, for its own elements."""
    def encoded(x: Any, w: Any) -> Any:
        waves = [g(x * 2.**k) for k in range(4) for g in (jnp.sin, jnp.cos)]
        return jnp.concatenate([x, *waves], -1) @ w
    parts, product = lowered(encoded, small_integers(512, 3), small_integers(27, 32)).kernels
    assert choices(parts.node) == choices(product.node) == 0
    sines = [n for n in toposort([parts.node]) if n.op in (ops.SIN, ops.COS)]
    assert len(sines) in (8, 24), "one for each column at most"


def test_a_fold_along_many_parts_reads_them_from_memory() -> None:
    def fitted(x: Any, w: Any) -> Any:
        return jnp.stack([x, x * x, *[jnp.sin(x * i) for i in range(8)]], -1) @ w
    parts, fold = lowered(fitted, small_integers(4096), small_integers(10)).kernels
    assert choices(parts.node) == choices(fold.node) == 0
    one, = lowered(lambda x, y: jnp.concatenate([x, y], 1).sum(1),
                   *[small_integers(500, 9)] * 2).kernels
    assert choices(one.node) > 0, "between two it chooses"


# ---- programs -----------------------------------------------------------------------------------


def program(m: Any, draw: Any, x: Any, w: Any) -> list[Any]:
    """A random program of nested concats along any axis, in sums and products."""
    found = [x, x[:, :1], x[:, 1:4] * 2, -x[:, 2:3]]
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(st.integers(0, 6))
        few = draw(st.lists(st.sampled_from(range(len(found))), min_size=2, max_size=12))
        if kind < 3:
            found.append(m.concatenate([found[i] for i in few], 1)[:, :70])
        elif kind == 3:
            found.append(m.stack([found[i][:, 0] for i in few], 1) + 1)
        elif kind == 4:
            found.append(m.stack([found[i][:, :1] for i in few], -1).reshape(x.shape[0], -1))
        elif kind == 5:
            found.append(m.maximum(found[-1], 0)[::-1])
        else:
            found.append(m.concatenate([found[-1], m.zeros((x.shape[0], 3), np.float32)], 1))
    last = found[-1]
    return [*found[4:], last @ w[:last.shape[1]], last.sum(1), last.T]


@settings(deadline=None, max_examples=15)
@given(st.data())
def test_programs(data: Any) -> None:
    rows = data.draw(st.sampled_from([1, 5, 64, 131]))
    dtype = data.draw(st.sampled_from([np.float32, np.int32, np.float64]))
    device = data.draw(st.sampled_from(["cpu", "cpu", "interp"]))
    x, w = small_integers(rows, 5).astype(dtype), small_integers(80, 6, seed=1).astype(dtype)
    drawn: list[Any] = []

    def draw(strategy: Any) -> Any:
        drawn.append(data.draw(strategy))
        return drawn[-1]

    want = program(np, draw, x, w)
    with override(device=device, x64=True):
        for run in (fnx.jit, lambda f: f):
            again = iter(drawn)
            got = run(lambda x, w, again=again: program(jnp, lambda _: next(again), x, w))(
                jnp.asarray(x), jnp.asarray(w))
            for g, h in zip(got, want):
                np.testing.assert_array_equal(g, h)


def test_gradients_of_parts_in_a_loop() -> None:
    """A stack in a loop carry, its gradient, and the gradient of a product with a CONCAT."""
    def loss(m: Any, y: Any, w: Any) -> Any:
        def step(y: Any) -> Any:
            a, b = y[:, 0], y[:, 1]
            wide = m.concatenate([y, m.stack([a * b, a - b, *[a + i for i in range(9)]], -1)], 1)
            return m.stack([a, b, a * b], -1)[:, :2] * .5 + wide @ w
        if m is np:
            for _ in range(3):
                y = step(y)
        else:
            y = lax.fori_loop(0, 3, lambda _, y: step(y), y)
        return (y * y).sum()

    y, w = small_integers(70, 2) / 4, small_integers(13, 2, seed=1) / 64
    value, (dy, dw) = fnx.jit(fnx.value_and_grad(lambda y, w: loss(jnp, y, w), (0, 1)))(y, w)
    y64, w64 = y.astype(float), w.astype(float)
    assert math.isclose(value, loss(np, y64, w64), rel_tol=1e-4)
    for found, at in ((dy, 0), (dw, 1)):
        where = (5, 1)
        ends = []
        for sign in (1, -1):
            moved = [y64.copy(), w64.copy()]
            moved[at][where] += sign * 1e-5
            ends.append(loss(np, *moved))
        assert math.isclose(found[where], (ends[0] - ends[1]) / 2e-5, rel_tol=2e-3, abs_tol=1e-3)


def test_conditions_on_rows_leave_the_columns_short() -> None:
    """Rows that are masked are conditions on one range, too, and far more than columns."""
    def f(x: Any) -> Any:
        edges = x.at[1:-1].multiply(0.5)
        return jnp.stack([jnp.sin(edges[:, k % 4] * (k + 1)) for k in range(12)], -1)
    text = fnx.jit(f).lower(jnp.ones((1000, 4))).text("kernels")
    assert text.count("sin(") == 12 and "< 11" not in text


def test_wide_parts_of_many_neighbors_are_left_to_loops() -> None:
    """A stencil on a torus selects at its first and last column only, however many neighbors it
    reads."""
    def f(x: Any) -> Any:
        return sum(jnp.roll(x, (i, j), (0, 1)) for i in (-1, 0, 1) for j in (-1, 0, 1))
    kernel, = fnx.jit(f).lower(jnp.ones((64, 64))).kernels
    assert len(kernel.node.src) == 1


@pytest.mark.cases(2)
@pytest.mark.parametrize("rows,width", [(64, 50), (300, 50), (2000, 50), (512, 700)])
def test_loops_of_wide_parts_and_columns_share_blocks_of_rows(rows: int, width: int) -> None:
    """[x, sin of 12 columns]: a loop copies the rows of x, however wide; each sine is a vector of
    16 rows."""
    def f(x: Any) -> Any:
        return jnp.concatenate([x, *[jnp.sin(x[:, k:k + 1]) for k in range(12)]], 1)
    x = np.sin(np.arange(rows * width, dtype="float32")).reshape(rows, width)
    lowering = lowered(f, x)
    kernel, = lowering.kernels
    lines = emit_program(kernel.node, Target("cpu")).src
    assert choices(kernel.node) == 0 and len(kernel.node.src) == 13
    assert {n.dtype.lanes for n in lines if n.op is ops.SIN} <= {16}
    np.testing.assert_allclose(fnx.jit(f)(x), np.hstack([x, np.sin(x[:, :12])]), atol=1e-6)
