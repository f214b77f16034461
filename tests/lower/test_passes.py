"""Before and expected, pass by pass: nodes are interned, so the expected graph is the same
object."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fnx.core.ir import build as b
from fnx.core.ir import build_calls, dtypes, op_args, ops, tiling
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp import apply, run_kernel
from fnx.core.support.errors import KernelError
from fnx.core.support.target import Target
from fnx.lower import pipeline
from fnx.lower.analysis import memory
from fnx.lower.analysis.split_index_sets import split_index_sets
from fnx.lower.emit.emit import emit_program
from fnx.lower.fusion.kernel_steps import KernelStep
from fnx.lower.fusion.unique_results import results_of, unique_results
from fnx.lower.kernel.canonicalize_operand_order import canonicalize_operand_order
from fnx.lower.kernel.coalesce import coalesce
from fnx.lower.kernel.runtime_extents import generalize
from fnx.lower.pipeline import passes, runtime_extents
from fnx.lower.schedule.tile import tile
from fnx.lower.target_lowerings import ScheduleInput
from fnx.lower.tensor.fold_comparisons import fold_comparisons
from fnx.lower.tensor.inline import inline
from fnx.lower.tensor.simplify import simplify
from fnx.lower.tensor.split_reduction import split_reduction
from tests.graphs import REAL, Graph, graphs
from tests.helpers import assert_same
from tests.lower.steps import run_steps

F = dtypes.float32
GOLDEN = Path(__file__).parents[1] / "golden" / "passes"


def p(slot: int, *shape: int) -> UOp:
    return b.param(slot, F, shape)


def fn(*outs: UOp, n: int = 3) -> UOp:
    return b.function(outs, n)


def zeros(*shape: int) -> UOp:
    return b.const(0, F, shape)


# ---- functions ----------------------------------------------------------------------------------

TWICE = b.function([b.add(p(0, 4), p(0, 4))], 1, "twice")


def twice(x: UOp) -> UOp:
    return build_calls.call(TWICE, [x])[0]


IOTA = b.iota(3, dtypes.int32)

BEFORE_EXPECTED: dict[str, tuple[Callable[[UOp], UOp], UOp, UOp]] = {
    "inline": (inline, fn(twice(twice(b.neg(p(0, 4))))),
               fn(b.add(b.add(b.neg(p(0, 4)), b.neg(p(0, 4))),
                        b.add(b.neg(p(0, 4)), b.neg(p(0, 4)))))),
    "simplify: an empty sum is the identity": (
        simplify, fn(b.exp(b.reduce(p(0, 3, 0), ops.ADD, [1]))),
        fn(b.expand(b.exp(b.const(0.0, F)), (3,)))),
    "simplify: an empty part of a concat": (
        simplify, fn(b.neg(b.concat([p(0, 2), p(1, 0)], 0))), fn(b.neg(p(0, 2)))),
    "simplify: around nothing there is padding only": (
        simplify, fn(b.pad(p(0, 0), [(1, 2)], 5.0)), fn(b.const(5.0, F, (3,)))),
    "simplify: nothing is scattered": (
        simplify, fn(b.scatter(p(0, 2), [b.param(1, dtypes.int32, (0,))], p(2, 0))), fn(p(0, 2))),
    "simplify: an empty result stays": (
        simplify, fn(b.neg(p(0, 0))), fn(zeros(0))),
    "simplify: nothing is empty": (simplify, fn(b.neg(p(0, 2))), fn(b.neg(p(0, 2)))),
    "split_reduce: a long sum is folded in chunks": (
        partial(split_reduction, target=Target("cpu")), fn(b.reduce(p(0, 1 << 20), ops.ADD, [0])),
        fn(b.reduce(b.reduce(b.reshape(p(0, 1 << 20), (64, 1 << 14)), ops.ADD, [1]),
                    ops.ADD, [0]))),
    "split_reduce: a short one stays": (
        partial(split_reduction, target=Target("cpu")), fn(b.reduce(p(0, 1 << 12), ops.ADD, [0])),
        fn(b.reduce(p(0, 1 << 12), ops.ADD, [0]))),
    "decide: a number that is never negative": (
        fold_comparisons, fn(b.gather(p(0, 6, 4), b.where(
            b.lt(IOTA, b.const_like(IOTA, 0)), b.add(IOTA, b.const_like(IOTA, 6)), IOTA))),
        fn(b.shrink(p(0, 6, 4), [(0, 3), (0, 4)]))),
    "decide: neighbours from a number on": (
        fold_comparisons, fn(b.gather(p(0, 6), b.add(IOTA, b.const_like(IOTA, 2)))),
        fn(b.shrink(p(0, 6), [(2, 5)]))),
    "decide: past the end the last is read again": (
        fold_comparisons, fn(b.gather(p(0, 6), b.add(IOTA, b.const_like(IOTA, 4)))),
        fn(b.gather(p(0, 6), b.add(IOTA, b.const_like(IOTA, 4))))),
    "decide: what wraps around is not known": (
        fold_comparisons,
        fn(b.lt(b.add(b.param(0, dtypes.int32, (3,)), b.const_like(IOTA, 1)),
                b.const_like(IOTA, 0))),
        fn(b.lt(b.add(b.param(0, dtypes.int32, (3,)), b.const_like(IOTA, 1)),
                b.const_like(IOTA, 0)))),
    "unique_results": (
        unique_results, fn(b.reshape(b.neg(p(0, 4)), (2, 2)), p(1, 5), b.neg(p(0, 4))),
        fn(b.neg(p(0, 4)))),
}


@pytest.mark.parametrize("name", BEFORE_EXPECTED)
def test_function_before_and_expected(name: str) -> None:
    run, before, expected = BEFORE_EXPECTED[name]
    assert run(before) is expected


@given(graphs(REAL))
def test_what_is_decided_is_so(graph: Graph) -> None:
    folded = fold_comparisons(graph.fn)
    assert_same(apply(folded, graph.args), apply(graph.fn, graph.args))
    assert fold_comparisons(graph.fn) is folded


@given(graphs())
def test_results_are_found_where_it_is_said(graph: Graph) -> None:
    flat = inline(graph.fn)
    buffers, want = apply(unique_results(flat), graph.args), apply(flat, graph.args)
    for (kind, i), value in zip(results_of(flat), want):
        found = graph.args[i] if kind == "in" else buffers[i]
        np.testing.assert_array_equal(np.reshape(found, value.shape), value)


# ---- kernels ------------------------------------------------------------------------------------


def r(extent: int | UOp, id: int) -> UOp:
    return b.range_(extent, id)


def x(*index: UOp, dims: Sequence[int | UOp], slot: int = 0) -> UOp:
    return b.load(b.index_into(b.ref(slot, F, dims), *index))


def copy(*index: UOp, dims: Sequence[int | UOp], of: UOp, order: Sequence[int] = (0,)) -> UOp:
    return b.kernel([b.store(b.index_into(b.ref(1, F, dims), *index), of)], "k", order)


R, C = r(4, 0), r(6, 1)
FLAT = r(24, 0)

COALESCED = {
    "loops side by side": (
        copy(R, C, dims=(4, 6), of=x(R, C, dims=(4, 6)), order=(0, 1)),
        copy(FLAT, dims=(24,), of=x(FLAT, dims=(24,)))),
    "dimensions of length 1": (
        copy(b.index_const(0), C, dims=(1, 6), of=x(C, dims=(6,)), order=(1,)),
        copy(C, dims=(6,), of=x(C, dims=(6,)), order=(1,))),
    "a transpose keeps both": (copy(R, C, dims=(4, 6), of=x(C, R, dims=(6, 4)), order=(0, 1)),) * 2,
    "a row keeps both": (copy(R, C, dims=(4, 6), of=x(C, dims=(6,)), order=(0, 1)),) * 2,
}


@pytest.mark.parametrize("name", COALESCED)
def test_coalesce_before_and_expected(name: str) -> None:
    before, expected = COALESCED[name]
    assert coalesce(before) is expected
    assert coalesce(expected) is expected


def test_index_sets_before_and_expected() -> None:
    """A concat of 20 and 30: one loop that selects, then two that do not."""
    before = concat_kernel(20, 30)
    first, second = r(20, 2), r(30, 3)
    o = b.ref(2, F, (50,))
    expected = b.kernel([
        b.store(b.index_into(o, first), x(first, dims=(20,))),
        b.store(b.index_into(o, b.add(second, b.index_const(20))), x(second, dims=(30,), slot=1)),
    ], "concat", (2, 3))
    assert split_index_sets(before) is expected
    assert split_index_sets(expected) is expected
    assert split_index_sets(concat_kernel(20, 3)) is concat_kernel(20, 3), "a part is too short"
    assert len(split_index_sets(concat_kernel(80, 3)).src) == 2, "each vector would choose"


def test_workers_share_long_parts() -> None:
    """One range around both stores, which cuts each operand into chunks of its own length."""
    n = 1 << 16
    made = split_index_sets(concat_kernel(n, 3 * n))
    outer, = set.intersection(*[set(s.ranges) for s in made.src])
    assert made.arg.order[0] == outer.arg.id and b.const_of(outer.src[0]) == 64
    assert [math.prod(b.const_of(q.src[0]) for q in s.ranges) for s in made.src] == [n, 3 * n]


def stack_kernel(count: int, parts: int, length: int) -> UOp:
    """o[i, p, j] = x_p[i, j]"""
    i, p, j = r(count, 0), r(parts, 1), r(length, 2)
    rows = [b.load(b.index_into(b.ref(n, F, (count, length)), i, j)) for n in range(parts)]
    value = rows[-1]
    for n in reversed(range(parts - 1)):
        value = b.where(b.lt(p, b.index_const(n + 1)), rows[n], value)
    place = b.index_into(b.ref(parts, F, (count, parts, length)), i, p, j)
    return b.kernel([b.store(place, value)], "stack", (0, 1, 2))


@pytest.mark.parametrize("count,parts,length,loops", [
    (8, 6, 64, 6), (8, 3, 64, 1), (2, 6, 64, 1), (8, 6, 20, 1)])
def test_many_rows_of_a_stack_have_loops_of_their_own(
        count: int, parts: int, length: int, loops: int) -> None:
    """If the loops around them are parallel, and a row is long."""
    before = stack_kernel(count, parts, length)
    made = split_index_sets(before)
    around = set.intersection(*[set(s.ranges) for s in made.src])
    assert len(around) == (1 if loops > 1 else 2) and len(made.src) == parts
    assert len({s.ranges - around for s in made.src}) == loops
    xs = [np.full((count, length), n, "f") for n in range(parts)]
    out = np.zeros((count, parts, length), "f")
    run_kernel(made, [*xs, out], [])
    np.testing.assert_array_equal(out, np.stack(xs, 1))


def concat_kernel(first: int, second: int) -> UOp:
    """o[i] = x[i] if i < first else y[i - first]"""
    i, end = r(first + second, 0), b.index_const(first)
    late = b.sub(i, end)
    inside = b.le(b.index_const(0), late)
    value = b.where(b.lt(i, end), b.load(b.index_into(b.ref(0, F, (first,)), i), b.lt(i, end)),
                    b.load(b.index_into(b.ref(1, F, (second,)), late), inside))
    return b.kernel([b.store(b.index_into(b.ref(2, F, (first + second,)), i), value)], "concat",
                    (0,))


@given(st.lists(st.integers(1, 40), min_size=2, max_size=5), st.integers(0, 2),
       st.sampled_from([None, frozenset(), frozenset({3, 5})]))
def test_parts_of_any_length_are_where_they_belong(lengths: list[int], axis: int,
                                                   fixed_lengths: frozenset[int] | None) -> None:
    shapes = [tuple([n if a == axis else 3 for a in range(3)]) for n in lengths]
    parts = [b.neg(p(i, *shape)) for i, shape in enumerate(shapes)]
    function = fn(b.pad(b.concat(parts, axis), [(0, 20), (1, 2), (0, 0)], 5.0), n=len(parts))
    args = [np.random.default_rng(i).standard_normal(s).astype("f4")
            for i, s in enumerate(shapes)]
    np.testing.assert_array_equal(run_steps(function, args, fixed_lengths)[0],
                                  apply(function, args)[0])


def var(slot: int, dtype: dtypes.DType = dtypes.index, low: int = 0) -> UOp:
    return b.var(slot, dtype, low=low)


def test_runtime_extents_before_and_expected() -> None:
    """STORE(out[i], x[i + 3] * 0.1), i < 24, x of 30: four numbers become arguments, and all
    indices are known to fit in 32 bits."""
    i = r(24, 0)
    before = copy(i, dims=(24,), of=b.mul(x(b.add(i, b.index_const(3)), dims=(30,)),
                                         b.const(0.1, F)))
    kernel, scalars = generalize(before)
    assert sorted(map(b.const_of, scalars)) == [np.float32(0.1), 3, 24, 30]
    slot = {b.const_of(s): i for i, s in enumerate(scalars)}
    n = r(var(slot[24], low=1), 0)
    place = b.add(n, var(slot[3]))
    value = b.mul(x(place, dims=(var(slot[30], low=1),)), var(slot[np.float32(0.1)], F))
    expected = copy(n, dims=(n.src[0],), of=value)
    assert kernel is expected.replace(arg=expected.arg.replace(index_fits_int32=True))
    far = copy(r(1 << 31, 0), dims=(1 << 31,), of=b.mul(
        x(b.add(r(1 << 31, 0), b.index_const(3)), dims=(1 << 32,)), b.const(7.0, F)))
    assert not generalize(far)[0].arg.index_fits_int32
    other = copy(r(9, 0), dims=(9,), of=b.mul(
        x(b.add(r(9, 0), b.index_const(1)), dims=(12,)), b.const(7.0, F)))
    assert generalize(other)[0] is kernel


def test_fixed_lengths_remain_constants() -> None:
    """x of (n, 8) + 3 rows: one kernel for all n, with loops of 8."""
    def shifted(n: int) -> UOp:
        i, j = r(n, 0), r(8, 1)
        return copy(i, j, dims=(n, 8), of=x(b.add(i, b.index_const(3)), j, dims=(n + 3, 8)),
                    order=(0, 1))
    kernel, scalars = generalize(shifted(24), frozenset({8}))
    assert sorted(map(b.const_of, scalars)) == [3, 24, 27]
    lengths = [n.src[0] for n in toposort([kernel]) if n.op is ops.RANGE]
    assert sorted(n.op.name for n in lengths) == ["CONST", "VAR"]
    assert generalize(shifted(70), frozenset({8}))[0] is kernel
    assert generalize(shifted(70))[0] is not kernel


@given(st.integers(0, 9), st.lists(st.integers(2, 6), min_size=3, max_size=3))
def test_runtime_extents_keep_the_loop_of_a_place(id: int, lengths: list[int]) -> None:
    """Operands of ADD have a canonical order: a VAR may come before the loop index it is added to,
    for example where two lengths and an offset are one number."""
    rows, columns, start = lengths
    i, j = r(rows, id), r(columns, 10)
    before = copy(b.add(i, b.index_const(start)), j, dims=(rows + start, columns),
                  of=x(i, j, dims=(rows, columns)), order=(id, 10))
    data = np.arange(rows * columns, dtype=np.float32)
    kernel, scalars = generalize(before)
    made = [np.zeros((rows + start, columns), np.float32) for _ in range(2)]
    run_kernel(before, [data, made[0].reshape(-1)], ())
    run_kernel(kernel, [data, made[1].reshape(-1)], [b.const_of(s) for s in scalars])
    np.testing.assert_array_equal(made[0], made[1])


def test_runtime_extents_take_what_is_compared() -> None:
    def masked(n: int, start: int) -> UOp:
        i = r(n, 0)
        inside = b.lt(i, b.index_const(start))
        return copy(i, dims=(n,), of=b.where(inside, x(i, dims=(n,)), b.const(0.0, F)))
    assert generalize(masked(24, 5))[0] is generalize(masked(70, 6))[0]


def test_runtime_extents_leave_what_is_divided() -> None:
    i = r(24, 0)
    before = copy(i, dims=(24,), of=x(b.idiv(i, b.index_const(5)), dims=(24,)))
    kernel, _ = generalize(before)
    assert [n.src[0].op for n in toposort([kernel]) if n.op is ops.RANGE] == [ops.CONST]


@pytest.mark.parametrize("work, lifted", [
    (ScheduleInput(COALESCED["loops side by side"][1], None, fixed_lengths=frozenset()), True),
    (ScheduleInput(COALESCED["loops side by side"][1], None), False),
    (ScheduleInput(COALESCED["loops side by side"][1], (), fixed_lengths=frozenset()), False),
    (ScheduleInput(COALESCED["loops side by side"][1], (), fixed_lengths=frozenset(),
                   is_generated=True), True),
], ids=["eager", "jit", "hand-written", "of a loop"])
def test_who_gets_runtime_extents(work: ScheduleInput, lifted: bool) -> None:
    after = runtime_extents(work, Target("cpu"))
    assert bool(after.scalars) is lifted and (after is work) is not lifted


@pytest.mark.parametrize("first", ["left", "right"])
def test_left_factors_come_first(first: str) -> None:
    """Only the buffers' numbers decide which operand is the left factor."""
    rows, columns, terms = (b.range_(n, i) for i, n in enumerate((20, 30, 40)))
    slots = (0, 1) if first == "left" else (1, 0)
    left = b.load(b.index_into(b.ref(slots[0], F, (20, 40)), rows, terms))
    right = b.load(b.index_into(b.ref(slots[1], F, (40, 30)), terms, columns))
    total = b.reduce_ranges(b.mul(left, right), ops.ADD, [terms])
    out = b.index_into(b.ref(2, F, (20, 30)), rows, columns)
    kernel = b.kernel([b.store(out, total)], "product", (0, 1, 2))
    x, y, z = (b.param(i, F, shape) for i, shape in enumerate(((20, 40), (40, 30), (20, 30))))
    operands = (x, y, z) if first == "left" else (y, x, z)
    step = canonicalize_operand_order(KernelStep(kernel, operands, (z,), None, ()))
    assert step.operands == (x, y, z)
    loads = {n.src[0].src[0].arg.slot: n.src[0].src[0] for n in toposort([step.kernel])
             if n.op is ops.LOAD}
    assert [[b.const_of(d) for d in loads[i].src] for i in (0, 1)] == [[20, 40], [40, 30]]


# ---- illegal schedules --------------------------------------------------------------------------

ROWS, COLUMNS = b.range_(8, 0, name="m"), b.range_(16, 1, name="n")
TOTAL = b.kernel([b.store(b.index_into(b.ref(1, F, (8,)), ROWS), b.reduce_ranges(
    x(ROWS, COLUMNS, dims=(8, 16)), ops.ADD, [COLUMNS]))], "total", (0, 1))

ILLEGAL = {
    "parallel inside": ([tiling.order("n", "m"), tiling.parallel("m")], "the outermost range"),
    "parallel sum": ([tiling.order("n", "m"), tiling.parallel("n")], "a range of the result"),
    "two lanes": ([tiling.vectorize("m"), tiling.vectorize("n")], "one vectorized range"),
    "a loop inside of the sum": ([tiling.order("n", "m")], "the loop 'm' outside of 'n'"),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_illegal_schedules_are_refused(name: str) -> None:
    schedule, message = ILLEGAL[name]
    with pytest.raises(KernelError, match=message):
        tile(TOTAL, schedule)


# ---- peeling ------------------------------------------------------------------------------------

PEELED = {  # extent: loops and masks of a copy in vectors of 16
    64: "()", 70: "()(m)", 15: "m", 16: "",
}


@pytest.mark.parametrize("extent", PEELED)
def test_only_the_rest_is_masked(extent: int) -> None:
    i = b.range_(extent, 0, name="i")
    kernel = tile(copy(i, dims=(extent,), of=x(i, dims=(extent,))),
                  [tiling.split("i", 16), tiling.vectorize("ii")])
    lines = emit_program(kernel, Target("cpu")).src
    marks = {ops.FOR: "(", ops.ENDFOR: ")", ops.STORE: "m"}
    shape = "".join(marks[n.op] for n in lines if n.op in marks
                    and not (n.op is ops.STORE and len(n.src) == 2))
    assert shape == PEELED[extent]


# ---- memory -------------------------------------------------------------------------------------


def buffer(name: str) -> UOp:
    return UOp(ops.BUFFER, F, (), op_args.Buffer(name, (1024,)))


def test_memory_before_and_expected() -> None:
    """a = f(x); v = g(a); w = h(v): the last one reuses the memory of the first."""
    a, v, w = map(buffer, "avw")
    plan = memory.plan_arena([(a,), (a, v), (v, w)], dict.fromkeys((a, v, w), 4096))
    assert plan == ({a: 0, v: 4096, w: 0}, 8192)


def test_the_largest_is_placed_first() -> None:
    a, v, w = map(buffer, "avw")
    plan = memory.plan_arena([(a, v), (v, w)], {a: 64, v: 256, w: 128})
    assert plan == ({v: 0, w: 256, a: 256}, 384)


USES = st.lists(st.lists(st.integers(0, 14), min_size=1, max_size=5), min_size=1, max_size=20)


@given(USES, st.lists(st.integers(1, 40), min_size=15, max_size=15))
def test_what_lives_together_lies_apart(uses: list[list[int]], lengths: list[int]) -> None:
    nodes = [buffer(str(i)) for i in range(15)]
    steps = [[nodes[i] for i in step] for step in uses]
    sizes = {n: 64 * length for n, length in zip(nodes, lengths)}
    offsets, arena = memory.plan_arena(steps, sizes)
    used = {n for step in steps for n in step}
    assert offsets.keys() == used
    assert (offsets, arena) == memory.plan_arena(steps, sizes), "equal steps give equal plans"
    alive = {n: [i for i, step in enumerate(steps) if n in step] for n in used}
    peak = 0
    for i in range(len(steps)):
        live = sorted((offsets[n], sizes[n]) for n in used if alive[n][0] <= i <= alive[n][-1])
        assert all(at + size <= after for (at, size), (after, _) in zip(live, live[1:]))
        peak = max(peak, sum(size for _, size in live))
    assert peak <= arena <= sum(sizes[n] for n in used)
    assert arena == max(offsets[n] + sizes[n] for n in used)


# ---- every pass has an example ------------------------------------------------------------------


@pytest.mark.parametrize("step", passes(Target("cpu")), ids=lambda step: step.name)
def test_every_pass_has_an_example(step: Any) -> None:
    """A doctest in its module, or a golden text in which it changes something."""
    module = import_module(step.run.__module__)
    documented = [step.run.__doc__] if module is pipeline else [step.run.__doc__, module.__doc__]
    texts = [path.read_text() for path in GOLDEN.glob("*.txt")]
    assert len(texts) >= 3 and (any(">>>" in (text or "") for text in documented)
                                or any(f"==== {step.name}\n" in text for text in texts))
