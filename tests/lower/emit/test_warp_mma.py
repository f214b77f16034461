"""Products by warp-level matrix units: fragments have the layout of the manual, so sums are
right."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.backends.llvm import binding
from fnx.core.ir import build, dtypes, low_precision, ops, tiling
from fnx.core.ir.matrix_units import UNITS
from fnx.core.ir.tiling import Bind
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import spec
from fnx.core.levels.interp_kernel import run_kernel
from fnx.core.rewriting import symbolic
from fnx.core.support.errors import KernelError
from fnx.core.support.target import Target
from fnx.lower.code_generation import kernel_code
from fnx.lower.driver import Driver
from fnx.lower.emit.emit import emit_program
from fnx.lower.emit.lower_threads import lower_threads
from fnx.lower.emit.shared_memory import group_count
from fnx.lower.legalize.emulate_unsupported_dtypes import emulate_unsupported_dtypes
from fnx.lower.pipeline import lower
from fnx.lower.schedule import contraction
from fnx.lower.schedule.knobs import HEURISTIC, TuningKnobs
from fnx.lower.schedule.tile import tile
from fnx.lower.schedule.warp_units import schedule_warp_unit
from fnx.lower.schedule.workgroup_heuristics import choose_workgroups
from tests.lower import emulator
from tests.lower.schedule.test_matrix_units import matmul, units_in

CHIP = Target("gpu", triple="nvptx64-nvidia-cuda", cpu="sm_80", features="+ptx80", kind="nvptx",
              threads=256, shared=48 << 10, private=1 << 10,
              unit_names=("mma_bf16", "mma_f16", "mma_tf32"))
UNIT = {dtypes.bfloat16: "mma_bf16", dtypes.float16: "mma_f16"}
RANDOM = np.random.default_rng(0)
Array = np.ndarray[Any, Any]


def factors(m: int, k: int, n: int, t: dtypes.DType, transposed: str) -> list[tuple[Array, Array]]:
    """Return the factors as stored, and as numbers."""
    out = []
    for name, shape in (("x", (m, k)), ("w", (k, n))):
        held = low_precision.encode(RANDOM.standard_normal(shape).astype(np.float32), t)
        numbers = low_precision.decode(held, t)
        out.append((held.T.copy() if name in transposed else held, np.asarray(numbers, np.float64)))
    return out


def tiled(untiled: UOp) -> UOp:
    return lower_threads(tile(untiled, choose_workgroups(untiled, CHIP)), CHIP)


def emulated(kernel: UOp, buffers: list[Array]) -> None:
    program = emit_program(emulate_unsupported_dtypes(kernel, CHIP), CHIP)
    spec.check([program], "program")
    groups = symbolic.bounds(group_count(kernel))[1]
    emulator.run(program, groups, buffers)


@settings(max_examples=8, deadline=None)
@given(st.tuples(st.integers(8, 70), st.integers(8, 40), st.integers(8, 70)),
       st.sampled_from(["", "x", "w", "xw"]), st.sampled_from(list(UNIT)))
def test_the_threads_of_warps_compute_products(shape: tuple[int, int, int], transposed: str,
                                               t: dtypes.DType) -> None:
    m, k, n = shape
    kernel = tiled(matmul(m, k, n, t, dtypes.float32, transposed))
    spec.check([kernel], "kernel")
    assert units_in(kernel) == {UNIT[t]}
    (x, a), (w, b) = factors(m, k, n, t, transposed)
    buffers = [x, w, np.zeros((m, n), np.float32)]
    run_kernel(kernel, buffers, [])
    np.testing.assert_allclose(buffers[2], a @ b, rtol=1e-5, atol=1e-5)
    buffers[2][...] = np.nan
    emulated(kernel, buffers)
    np.testing.assert_allclose(buffers[2], a @ b, rtol=1e-5, atol=1e-5)


def test_several_tiles_of_a_warp() -> None:
    kernel = tiled(matmul(130, 34, 70, dtypes.bfloat16, dtypes.float32))
    (x, a), (w, b) = factors(130, 34, 70, dtypes.bfloat16, "")
    buffers = [x, w, np.zeros((130, 70), np.float32)]
    emulated(kernel, buffers)
    np.testing.assert_allclose(buffers[2], a @ b, rtol=1e-5, atol=1e-5)
    lines = emit_program(emulate_unsupported_dtypes(kernel, CHIP), CHIP).src
    assert sum(line.op is ops.MMA for line in lines) == 16  # 4 rows of 4


def test_float32_with_fewer_bits_by_a_schedule_that_says_so() -> None:
    m, k, n = 40, 27, 50
    untiled = matmul(m, k, n, dtypes.float32, dtypes.float32)
    found = contraction.match_contraction(untiled)
    assert found is not None
    steps = schedule_warp_unit(found, UNITS["mma_tf32"], found.rows[-1], found.columns[-1],
                               found.summed[0], TuningKnobs(HEURISTIC))
    kernel = lower_threads(tile(untiled, steps), CHIP)
    assert units_in(kernel) == {"mma_tf32"}
    x, w = (RANDOM.standard_normal(s).astype(np.float32) for s in ((m, k), (k, n)))
    wanted = np.matmul(*[(a.view(np.uint32) & 0xFFFFE000).view(np.float32) for a in (x, w)])
    for run in (lambda buffers: run_kernel(kernel, buffers, []),
                lambda buffers: emulated(kernel, buffers)):
        buffers = [x, w, np.zeros((m, n), np.float32)]
        run(buffers)
        np.testing.assert_allclose(buffers[2], wanted, rtol=1e-5, atol=1e-5)
    code = kernel_code(kernel, Driver(CHIP))
    assert "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" in binding.assembly(
        code.text(), CHIP)


def test_float32_is_no_units() -> None:
    assert units_in(tiled(matmul(64, 64, 64, dtypes.float32, dtypes.float32))) == set()


def test_a_warp_that_is_not_laid_out_is_refused() -> None:
    untiled = matmul(16, 16, 16, dtypes.bfloat16, dtypes.float32)
    words = [tiling.split("c", 16, "co", "cr"), tiling.split("cr", 2, "cw", "ce"),
             tiling.tensorize("ce", "mma_bf16", "cw")]
    kernel = tile(untiled, [*words, Bind("i", "THREAD")])
    with pytest.raises(KernelError, match="8 rows and 4 columns"):
        lower_threads(kernel, CHIP)
    kernel = tile(untiled, [
        *words, tiling.split("i", 8, "io", "iq"), tiling.split("j", 4, "jo", "jq"),
        tiling.order("iq", "jq", "io", "jo", "co", "cw", "ce"), Bind("iq", "THREAD"),
        Bind("jq", "THREAD")])
    with pytest.raises(KernelError, match="2 unrolled rows"):
        lower_threads(kernel, CHIP)
    with pytest.raises(KernelError, match="expected a loop over 8 words, got 1"):
        tile(untiled, [tiling.split("c", 2, "cw", "ce"), tiling.tensorize("ce", "mma_bf16")])


@pytest.mark.cases(1)
@pytest.mark.parametrize("t", UNIT)
def test_it_becomes_the_instruction(t: dtypes.DType) -> None:
    x, w = build.param(0, t, (256, 96)), build.param(1, t, (96, 128))

    def spread(v: UOp, shape: tuple[int, ...]) -> UOp:
        return build.expand(build.reshape(build.cast(v, dtypes.float32), shape), (256, 128, 96))

    terms = build.mul(spread(x, (256, 1, 96)), spread(build.permute(w, (1, 0)), (1, 128, 96)))
    fn = build.function([build.cast(build.reduce(terms, ops.ADD, (2,)), t)], 2)
    (kernel, code), = lower(fn, CHIP).code.items()
    assert units_in(kernel) == {UNIT[t]}
    text = binding.assembly(code.text(), CHIP)
    kind = {"mma_bf16": "bf16.bf16", "mma_f16": "f16.f16"}[UNIT[t]]
    assert text.count(f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.f32") == 16
    assert len([n for n in toposort([kernel]) if n.op is ops.STAGE]) == 2
    assert math.prod([8, 4, 2, 2]) == code.program().arg.threads
