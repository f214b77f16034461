"""Rolled epilogues of accumulator tiles: the same values, and code that does not grow with the
tile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx import kernel as k
from fnx.core.ir import build, dtypes, ops, tiling
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp import run_kernel
from fnx.core.support.errors import KernelError
from fnx.core.support.target import Target
from fnx.lower.analysis.canonicalize import canonicalize
from fnx.lower.code_generation import kernel_code
from fnx.lower.driver import Driver
from fnx.lower.schedule.heuristics import choose_schedule
from fnx.lower.schedule.tile import tile

COMPILED = True


def product(m: int, depth: int, n: int, combine: Any = None, twice: bool = False) -> UOp:
    """o[i, j] = tanh(sum of a[i, k] * b[k, j]) * 3 + c[j], and optionally that sum itself."""
    i, j, r = (build.range_(e, at, name=name) for at, (e, name) in
               enumerate(((m, "i"), (n, "j"), (depth, "k"))))
    dims = (m, depth), (depth, n), (n,), (m, n), (m, n)
    a, b, c, o, p = (build.ref(s, dtypes.float32, d) for s, d in enumerate(dims))
    total = build.reduce_ranges(build.mul(build.load(build.index_into(a, i, r)),
                                          build.load(build.index_into(b, r, j))), ops.ADD, [r])
    value = build.add(build.mul(UOp(ops.TANH, dtypes.float32, (total,)),
                                build.const(3.0, dtypes.float32)),
                      build.load(build.index_into(c, j)))
    stores = [build.store(build.index_into(o, i, j), value, None, combine)]
    stores += [build.store(build.index_into(p, i, j), total)] * twice
    return build.kernel(stores, "product", (0, 1, 2))


def steps(rows: int, columns: int) -> list[tiling.Transform]:
    return [tiling.split("i", rows, "io", "ii"), tiling.split("j", columns, "jo", "ji"),
            tiling.split("ji", 4, "jj", "jl"), tiling.order("io", "jo", "k", "ii", "jj", "jl"),
            tiling.unroll("ii"), tiling.unroll("jj"), tiling.vectorize("jl")]


def results(kernel: UOp, m: int, depth: int, n: int) -> list[Any]:
    draw = np.random.default_rng(m * n + depth)
    made = [draw.normal(size=d).astype(np.float32) for d in ((m, depth), (depth, n), (n,))]
    made += [np.full((m, n), 7.0, np.float32)] * (1 + max(
        x.arg.slot - 3 for x in toposort(kernel.src) if x.op is ops.REF))
    made = [x.copy() for x in made]
    run_kernel(kernel, made, [])
    return made[3:]


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 9), st.integers(1, 5), st.integers(1, 20), st.integers(1, 4),
       st.sampled_from([4, 8]), st.sampled_from([None, ops.ADD, ops.MAX]), st.booleans())
def test_it_means_the_same(m: int, depth: int, n: int, rows: int, columns: int, combine: Any,
                           twice: bool) -> None:
    kernel = product(m, depth, n, combine, twice)
    plain = tile(kernel, steps(rows, columns))
    collected = tile(kernel, [*steps(rows, columns), tiling.collect("ii")])
    for x, y in zip(results(plain, m, depth, n), results(collected, m, depth, n)):
        np.testing.assert_array_equal(x, y)


def test_the_sums_are_a_stage_and_its_rows_a_loop() -> None:
    made = tile(product(8, 5, 16), [*steps(4, 8), tiling.collect("ii")])
    stage, = (n for n in toposort(made.src) if n.op is ops.STAGE)
    assert stage.src[0].op is ops.REDUCE
    assert [(r.arg.name, r.arg.kind) for r in stage.src[1:]] == \
        [("ii", "UNROLL"), ("jj", "UNROLL"), ("jl", "VEC")]
    by_name = {r.arg.name: r.arg.kind for r in made.src[0].ranges}
    assert by_name == {"io": "SEQ", "jo": "SEQ", "ii_": "SEQ", "jj_": "UNROLL", "jl_": "VEC"}


def test_a_range_of_one_iteration_is_gone() -> None:
    kernel, given_steps = product(8, 5, 16), steps(1, 8)
    assert tile(kernel, [*given_steps, tiling.collect("ii")]) is tile(kernel, given_steps)


@pytest.mark.parametrize("name, schedule, says", [
    ("io", steps(4, 8), "expected a range that is unrolled"),
    ("ix", steps(4, 8), "expected one of the ranges"),
    ("kk", [tiling.split("k", 2, "ko", "kk"), tiling.order("i", "j", "ko", "kk"),
            tiling.unroll("kk")], "expected a range of all results"),
])
def test_what_it_refuses(name: str, schedule: list[tiling.Transform], says: str) -> None:
    with pytest.raises(KernelError, match=says):
        tile(product(8, 6, 16), [*schedule, tiling.collect(name)])


def test_what_follows_a_product_is_written_once_a_row_of_a_tile() -> None:
    """A long epilogue has as many lines as a row has vectors, not as the tile has."""
    target = Target("cpu")
    kernel = canonicalize(product(280, 64, 320))
    schedule = choose_schedule(kernel, target)
    assert [s for s in schedule if isinstance(s, tiling.Collect)]
    without = [s for s in schedule if not isinstance(s, tiling.Collect)]
    lines = []
    for each in (schedule, without):
        last = tile(kernel, [s for s in each if not isinstance(s, tiling.StageOperand)])
        program = kernel_code(last, Driver(target)).program()
        lines.append(len(toposort([program])))
    assert 2 * lines[0] < lines[1]


@pytest.mark.parametrize("m, depth, n", [(1, 3, 2), (31, 17, 45), (60, 90, 130)])
def test_products_with_an_epilogue_agree_with_numpy(m: int, depth: int, n: int) -> None:
    draw = np.random.default_rng(3)
    x, w, b = (draw.normal(size=s).astype(np.float32) for s in ((m, depth), (depth, n), (n,)))
    got = fnx.jit(lambda x, w, b: jnp.tanh(x @ w + b) * b)(x, w, b)
    np.testing.assert_allclose(got, np.tanh(x @ w + b) * b, rtol=2e-5, atol=2e-5)


def test_a_kernel_by_hand_collects() -> None:
    @fnx.call(out=lambda x, y: fnx.ShapeDtypeStruct((x.shape[0], y.shape[1]), x.dtype),
              schedule=[k.split("i", 4, "io", "ii"), k.split("j", 16, "jo", "jl"),
                        k.order("io", "jo", "c", "ii", "jl"), k.unroll("ii"),
                        k.vectorize("jl"), k.collect("ii")])
    def product_then_tanh(x: Any, y: Any, o: Any) -> None:
        i, j = k.range(o.shape[0], "i"), k.range(o.shape[1], "j")
        c = k.range(x.shape[1], "c")
        o[i, j] = k.tanh(k.sum(x[i, c] * y[c, j], over=c))

    draw = np.random.default_rng(4)
    x, y = (draw.normal(size=s).astype(np.float32) for s in ((22, 9), (9, 33)))
    made = product_then_tanh(x, y)
    np.testing.assert_allclose(made, np.tanh(x @ y), rtol=2e-5, atol=2e-5)
