"""Reductions across threads by warp shuffles have the bits of those through memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.backends.llvm import binding
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.tiling import grid, split, thread
from fnx.core.ir.uop import UOp
from fnx.core.levels.interp_kernel import run_kernel
from fnx.core.support.target import Target
from fnx.lower.emit.emit import emit_program
from fnx.lower.emit.lower_threads import lower_threads
from fnx.lower.emit.shared_memory import group_count
from fnx.lower.pipeline import lower
from fnx.lower.schedule.tile import tile
from tests.lower import emulator

MEMORY = Target("gpu", kind="opencl", threads=256, shared=16 << 10, private=256, vector_bits=8,
                fma=False)
SHUFFLES = MEMORY.replace(subgroup=32)
FOLDS = (ops.ADD, ops.MUL, ops.MAX, ops.MIN)
TYPES = (dtypes.float32, dtypes.float64, dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.uint32)


def numbers(rng: np.random.Generator, shape: tuple[int, ...], t: DType) -> Any:
    x = rng.normal(size=shape) * 10
    return np.asarray(x if t.is_float else abs(x) + 1, t.np)


def folded(t: DType, shape: tuple[int, ...], monoid: Op, axis: int) -> UOp:
    x = build.param(0, t, shape)
    return build.function([build.reduce(x, monoid, (axis,))], 1)


def ran(fn: UOp, target: Target, x: Any) -> tuple[Any, list[Op]]:
    """Return the result of the one kernel of a function, by its lines, and those lines."""
    (kernel, code), = lower(fn, target).code.items()
    program = code.program()
    out, = fn.src
    result = np.zeros(out.shape, out.dtype.np)
    groups = int(build.const_of(group_count(kernel)))
    emulator.run(program, groups, [x, result])
    meant = np.zeros_like(result)
    run_kernel(kernel, [x, meant], ())
    if out.dtype.is_float:
        np.testing.assert_allclose(result, meant, rtol=2e-4, atol=2e-3)
    else:
        np.testing.assert_array_equal(result, meant)
    return result, [line.op for line in program.src]


@settings(max_examples=12, deadline=None)
@given(st.sampled_from(FOLDS), st.sampled_from(TYPES), st.integers(64, 1100), st.integers(1, 3),
       st.integers(0, 99))
def test_subgroups_change_no_bit(monoid: Op, t: DType, columns: int, rows: int, seed: int) -> None:
    x = numbers(np.random.default_rng(seed), (rows, columns), t)
    fn = folded(t, x.shape, monoid, 1)
    memory, of_memory = ran(fn, MEMORY, x)
    shuffled, of_shuffles = ran(fn, SHUFFLES, x)
    np.testing.assert_array_equal(memory.view(np.uint8), shuffled.view(np.uint8))
    assert (ops.SHUFFLE_XOR in of_shuffles) == (t.itemsize >= 4)
    assert ops.SHUFFLE_XOR not in of_memory
    assert of_shuffles.count(ops.SYNC) <= of_memory.count(ops.SYNC)


def test_a_fold_of_a_row_has_one_place_where_threads_wait() -> None:
    x = numbers(np.random.default_rng(1), (2, 1024), dtypes.float32)
    fn = folded(dtypes.float32, x.shape, ops.ADD, 1)
    assert ran(fn, MEMORY, x)[1].count(ops.SYNC) == 3  # 256 threads: 32, 4, 1
    lines = ran(fn, SHUFFLES, x)[1]
    assert lines.count(ops.SYNC) == 1 and lines.count(ops.SHUFFLE_XOR) == 5


@pytest.mark.parametrize("target", [MEMORY, SHUFFLES], ids=["memory", "shuffles"])
@pytest.mark.parametrize("folds,across", [(100, 1), (12, 1), (9, 7), (8, 32), (48, 4), (5, 8)])
def test_threads_fold_next_to_threads_that_do_not(target: Target, folds: int, across: int) -> None:
    """Columns of a block, in any number, whose rows other threads reduce."""
    m, n = 3 * folds, 2 * across
    r, c = build.range_(m, 0, name="r"), build.range_(n, 1, name="c")
    x = build.load(build.index_into(build.ref(0, dtypes.float32, (m, n)), r, c))
    o = build.index_into(build.ref(1, dtypes.float32, (n,)), c)
    kernel = build.kernel([build.store(o, build.reduce_ranges(x, ops.ADD, [r]))], "columns", (1, 0))
    schedule = [split("c", across, "cg", "ct"), split("r", folds, "ro", "rt"), grid("cg"),
                thread("ct"), thread("rt")]
    tiled = lower_threads(tile(kernel, schedule), target)
    x_of = numbers(np.random.default_rng(2), (m, n), dtypes.float32)
    got = np.zeros(n, np.float32)
    emulator.run(emit_program(tiled, target), 2, [x_of, got])
    np.testing.assert_allclose(got, x_of.sum(0), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("t", [dtypes.float32, dtypes.float64, dtypes.int64, dtypes.bool_])
def test_it_is_an_instruction_of_a_warp(t: DType) -> None:
    chip = Target("cuda", triple="nvptx64-nvidia-cuda", cpu="sm_80", features="+ptx80",
                  kind="nvptx", threads=256, shared=48 << 10, private=256, vector_bits=128,
                  subgroup=32)
    monoid = ops.OR if t.is_bool else ops.MAX
    code, = lower(folded(t, (4, 1000), monoid, 1), chip).code.values()
    text = binding.assembly(code.text(), chip)
    assert text.count("shfl.sync.bfly.b32") == 5 * max(1, t.itemsize // 4)
    assert text.count("bar.sync") + text.count("barrier.sync") == 1
