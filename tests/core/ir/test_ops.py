"""The op table: required fields of every entry."""

from __future__ import annotations

import pytest

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp

ROWS = list(ops.OPS.values())


def test_codes_tell_rows_apart_and_follow_from_names() -> None:
    assert len({op.code for op in ROWS}) == len(ROWS)
    assert ops.ADD.code == 0x6BBD316D  # crc32, equal in every process


@pytest.mark.parametrize("op", [op for op in ROWS if "t" in op.levels], ids=str)
def test_a_tensor_op_says_how_it_is_batched(op: Op) -> None:
    assert op.batching in ("none", "elementwise", "first", "movement", "reduce", "gather",
                           "scatter", "collective", "body", "fft")
    assert (op.batching == "none") == (op.arity == 0 and op.kind != "collective")
    assert op.kind != "elementwise" or op.batching == "elementwise"


def test_costs_are_of_computing() -> None:
    for op in ROWS:
        assert op.cost > 0 if op.kind in ("elementwise", "sort", "fft") else op.cost in (0, 1)
    assert ops.ADD.cost == 1 < ops.EXP.cost < ops.SIN.cost


def test_a_reduction_and_a_stage_bind_their_ranges_and_a_kernel_all() -> None:
    i, j = build.range_(4, 0), build.range_(8, 1)
    place = build.index_into(build.ref(0, dtypes.float32, (4, 8)), i, j)
    load = build.load(place)
    assert i.ranges == {i} and load.ranges == {i, j}
    assert build.reduce_ranges(load, ops.ADD, [j]).ranges == {i}
    assert build.stage(load, [i], id=0).ranges == {j}
    assert build.kernel([build.store(place, load)], "copy").ranges == frozenset()


def test_a_range_whose_extent_runs_has_both() -> None:
    i = build.range_(4, 0)
    j: UOp = build.range_(build.add(i, build.index_const(1)), 1)
    assert j.ranges == {i, j}
