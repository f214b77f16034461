"""Unroll-and-jam: result rows that read the same input rows are computed together, so that each
input row is loaded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.tiling import Unroll
from fnx.core.ir.uop import UOp
from fnx.core.levels.interp import run_kernel
from fnx.core.support.target import Target
from fnx.lower.emit.emit import emit_program
from fnx.lower.schedule.heuristics import choose_schedule
from fnx.lower.schedule.tile import tile
from tests.lower.machine import aligned, run

AVX512 = Target("cpu")
AVX2 = Target("cpu", vector_bits=256, vector_registers=16)
SSE2 = Target("cpu", vector_bits=128, vector_registers=16)
TARGETS = pytest.mark.parametrize("target", [AVX512, AVX2, SSE2], ids=["512", "256", "128"])
F = dtypes.float32


def windows(planes: int, rows: int, columns: int, taps: tuple[int, int], step: int = 1,
            weighted: bool = True) -> tuple[UOp, list[Any]]:
    """o[p, i, c] = sum over m and k of x[p, i + m, step c + k] * w[p, m, k], and its operands."""
    extents = (planes, rows, columns, *taps)
    p, i, c, m, k = (build.range_(n, j, name=name)
                     for j, (n, name) in enumerate(zip(extents, "picmk")))
    shape = (planes, rows + taps[0] - 1, step * (columns - 1) + taps[1])
    x = build.load(build.index_into(build.ref(0, F, shape), p, build.add(i, m),
                                    build.add(build.mul(c, build.index_const(step)), k)))
    w = build.load(build.index_into(build.ref(1, F, (planes, *taps)), p, m, k))
    total = build.reduce_ranges(build.mul(x, w) if weighted else x, ops.ADD, (m, k))
    out = build.ref(2, F, (planes, rows, columns))
    draw = np.random.default_rng(0)
    operands = [draw.integers(-3, 4, s).astype("f") for s in (shape, (planes, *taps))]
    return build.kernel([build.store(build.index_into(out, p, i, c), total)], "windows",
                        tuple(range(5))), \
        [*operands, np.zeros((planes, rows, columns), "f")]


def slot(line: UOp) -> int:
    """Return the slot of the buffer that a LOAD reads."""
    while line.op is not ops.REF:
        line = line.src[0]
    return int(line.arg.slot)


@TARGETS
@pytest.mark.parametrize("rows", [56, 59])  # 59: the last block shifts back
def test_a_row_is_loaded_once_for_the_results_that_need_it(target: Target, rows: int) -> None:
    kernel, _ = windows(8, rows, 64, (7, 7))
    written = [s.range for s in choose_schedule(kernel, target) if isinstance(s, Unroll)]
    assert "m" in written and "i_u" in written
    lines = emit_program(tile(kernel, choose_schedule(kernel, target)), target).src
    loads = [line for line in lines if line.op is ops.LOAD and slot(line) == 0]
    products = [line for line in lines if line.op is ops.MULACC]
    assert (3 if rows == 56 else 2) * len(loads) < len(products)


@pytest.mark.parametrize("rows,taps", [(1, (3, 3)), (8, (1, 3)), (8, (9, 3))])
def test_rows_that_share_nothing_or_much_code_are_read_one_by_one(
        rows: int, taps: tuple[int, int]) -> None:
    kernel, _ = windows(8, rows, 64, taps)
    assert "i_u" not in [s.range for s in choose_schedule(kernel, AVX512) if isinstance(s, Unroll)]


@TARGETS
@settings(max_examples=20, deadline=None)
@given(planes=st.integers(1, 5), rows=st.integers(1, 19), columns=st.integers(1, 70),
       taps=st.tuples(st.integers(1, 9), st.integers(1, 4)), step=st.integers(1, 2),
       weighted=st.booleans())
def test_values_are_those_of_the_sum(target: Target, planes: int, rows: int, columns: int,
                                     taps: tuple[int, int], step: int, weighted: bool) -> None:
    """The values are integers, so that no summation order rounds. Both the untiled loops and the
    schedule give the sum."""
    kernel, operands = windows(planes, rows, columns, taps, step, weighted)
    want, got = [x.copy() for x in operands], [x.copy() for x in operands]
    run_kernel(kernel, want, [])
    tiled = tile(kernel, choose_schedule(kernel, target))
    run_kernel(tiled, got, [])
    np.testing.assert_array_equal(got[2], want[2])
    if target is AVX512:
        compiled = [aligned(x) for x in operands]
        run(tiled, compiled)
        np.testing.assert_array_equal(compiled[2], want[2])
