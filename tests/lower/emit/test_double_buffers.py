"""Double buffering: prefetching a stage gives the same bits as filling it where it is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import fnx.kernel as k
from fnx.backends.llvm import binding
from fnx.core.ir import build, dtypes, low_precision, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.tiling import StageOperand
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import KernelError
from fnx.core.support.target import Target
from fnx.lower.code_generation import kernel_code
from fnx.lower.driver import Driver
from fnx.lower.emit.emit import emit_program
from fnx.lower.emit.form_async_copies import form_async_copies
from fnx.lower.emit.lower_threads import lower_threads
from fnx.lower.emit.shared_memory import group_count, thread_group
from fnx.lower.legalize.emulate_unsupported_dtypes import emulate_unsupported_dtypes
from fnx.lower.schedule.tile import tile
from fnx.lower.schedule.workgroup_heuristics import choose_workgroups
from tests.lower import emulator

CHIP = Target("cuda", triple="nvptx64-nvidia-cuda", cpu="sm_80", features="+ptx80", kind="nvptx",
              threads=256, shared=48 << 10, private=1 << 10, vector_bits=128, vector_registers=128,
              unit_names=("mma_bf16",), subgroup=32, async_copies=True)
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # a run is slow: no shrinking
OLDER = CHIP.replace(async_copies=False)


def product(shape: tuple[int, int, int], relu: bool = False, t: DType = dtypes.float32,
            transposed: bool = False) -> UOp:
    rows, terms, columns = shape
    m, c, n = (build.range_(x, i, name="mcn"[i]) for i, x in enumerate(shape))
    a = build.load(build.index_into(build.ref(0, t, (rows, terms)), m, c))
    a = build.maximum(a, build.const(0, t)) if relu else a
    w, at = ((columns, terms), (n, c)) if transposed else ((terms, columns), (c, n))
    b = build.load(build.index_into(build.ref(1, t, w), *at))
    o = build.index_into(build.ref(2, dtypes.float32, (rows, columns)), m, n)
    factors = [build.cast(x, dtypes.float32) for x in (a, b)]
    total = build.reduce_ranges(build.mul(*factors), ops.ADD, [c])
    return build.kernel([build.store(o, total)], "product", (0, 2, 1))


def tiled(kernel: UOp, target: Target, double: bool, room: int = 48 << 10) -> UOp:
    steps = [s.replace(double=s.double and double) if isinstance(s, StageOperand) else s
             for s in choose_workgroups(kernel, target)]
    return lower_threads(tile(kernel, steps), target.replace(shared=room))


def ran(kernel: UOp, target: Target, buffers: list[Any]) -> tuple[Any, list[ops.Op]]:
    program = form_async_copies(emit_program(emulate_unsupported_dtypes(kernel, target), target))
    out = buffers[-1].copy()
    groups = int(build.const_of(group_count(kernel)))
    emulator.run(program, groups, [*buffers[:-1], out])
    return out, [line.op for line in program.src]


@settings(max_examples=10, deadline=None, phases=PHASES)
@given(st.integers(8, 40), st.integers(17, 70), st.integers(8, 40), st.booleans())
def test_they_change_no_bit(m: int, kk: int, n: int, relu: bool) -> None:
    rng = np.random.default_rng(m * kk * n)
    x, w = (rng.normal(size=s).astype(np.float32) for s in ((m, kk), (kk, n)))
    kernel, buffers = product((m, kk, n), relu), [x, w, np.zeros((m, n), np.float32)]
    plain, lines = ran(tiled(kernel, CHIP, False), CHIP, buffers)
    assert ops.ASYNC_COPY not in lines
    np.testing.assert_allclose(plain, (np.maximum(x, 0) if relu else x) @ w, rtol=1e-4, atol=1e-4)
    for target in (CHIP, OLDER):
        made = tiled(kernel, target, True)
        double = are_double(made) == {True}
        ahead, of_ahead = ran(made, target, buffers)
        np.testing.assert_array_equal(ahead.view(np.uint32), plain.view(np.uint32))
        assert (ops.ASYNC_COPY in of_ahead) == (target.async_copies and double)
        assert of_ahead.count(ops.SYNC) == lines.count(ops.SYNC) - double


@pytest.mark.cases(1)
@pytest.mark.parametrize("transposed", [False, True])
def test_fragments_of_matrix_units_too(transposed: bool) -> None:
    m, kk, n = 64, 96, 64
    rng = np.random.default_rng(0)
    x, w = (low_precision.encode(rng.normal(size=s).astype(np.float32), dtypes.bfloat16)
            for s in ((m, kk), (n, kk) if transposed else (kk, n)))
    kernel = product((m, kk, n), False, dtypes.bfloat16, transposed)
    buffers = [x, w, np.zeros((m, n), np.float32)]
    plain, _ = ran(tiled(kernel, CHIP, False), CHIP, buffers)
    ahead, lines = ran(tiled(kernel, CHIP, True), CHIP, buffers)
    np.testing.assert_array_equal(ahead, plain)
    assert lines.count(ops.MMA) and lines.count(ops.ASYNC_COPY) and lines.count(ops.ASYNC_WAIT) == 1


def are_double(kernel: UOp) -> set[bool]:
    return {n.arg.double for n in toposort([kernel]) if n.op is ops.STAGE}


def test_what_has_no_room_is_filled_where_it_is_read() -> None:
    kernel = product((64, 64, 64))
    group = thread_group(tiled(kernel, CHIP, False))
    assert group is not None
    assert are_double(tiled(kernel, CHIP, True, group.shared * 3 // 2)) == {False}
    assert are_double(tiled(kernel, CHIP, True, group.shared * 2)) == {True}


@pytest.mark.parametrize("t", [dtypes.float32, dtypes.bfloat16])
def test_it_is_an_instruction_of_the_chip(t: DType) -> None:
    kernel = tiled(product((256, 256, 256), False, t), CHIP, True)
    text = binding.assembly(kernel_code(kernel, Driver(CHIP)).text(), CHIP)
    assert "cp.async.cg.shared.global" in text and ", 16" in text
    assert "cp.async.commit_group" in text and "cp.async.wait_group" in text
    assert text.count("nounroll") == 1  # of the loop in which threads wait


def test_two_buffers_are_of_a_loop_and_shared() -> None:
    assert repr(k.stage("x", at="ko", space="SHARED", double=True)) == \
        "stage('x', at='ko', space='SHARED', double=True)"
    for wrong in (lambda: k.stage("x", at="ko", double=True),
                  lambda: k.stage("x", space="SHARED", double=True)):
        with pytest.raises(KernelError, match="double=True"):
            wrong()
