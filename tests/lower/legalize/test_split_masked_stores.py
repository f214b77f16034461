"""``split_masked_stores``: only the last vectors of lengths known at run time are masked."""

from __future__ import annotations

import numpy as np
import pytest

from fnx.backends.llvm.binding import compile_ir, host_target
from fnx.core.ir import build, dtypes, kernel_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp
from fnx.core.levels import spec
from fnx.lower.code_generation import kernel_code
from fnx.lower.driver import Driver
from fnx.lower.legalize.split_masked_stores import split_masked_stores
from fnx.lower.render import host
from tests.lower.machine import aligned, run, split

AVX2 = host_target().replace(vector_bits=256)


def rows(length: int | None, dtype: DType = dtypes.float32, first: int = 0) -> UOp:
    """Two results of 2 x 8 lanes: o0[i] = x[i] + x[i] and o1[i] = x[i] for i from ``first`` up to a
    length, or a scalar."""
    n = build.var(0, dtypes.index, 0, 1000) if length is None else build.index_const(length)
    i, below, _ = split(n, (2, "UNROLL"), (8, "VEC"))
    after = build.le(build.index_const(first), i) if first else None
    inside = below if after is None else after if below is None else build.and_(after, below)
    masks = () if inside is None else (inside,)
    x, double, same = (build.index_into(build.ref(s, dtype, (n,)), i) for s in range(3))
    value = build.load(x, *masks)
    return build.kernel([build.store(double, build.add(value, value), *masks),
                         build.store(same, value, *masks)], "rows", (0, 1, 2))


def test_the_first_lanes_are_stored_for_each_length() -> None:
    kernel = rows(None)
    for n in range(36):
        x = np.arange(1, n + 1, dtype=np.float32)
        buffers = [aligned(x), aligned(np.zeros(n), np.float32), aligned(np.zeros(n), np.float32)]
        run(kernel, buffers, [n], made_for=AVX2)  # checks what lies behind the buffers, too
        np.testing.assert_array_equal(buffers[1:], [2 * x, x])


def test_a_masked_store_is_in_a_branch_of_its_own() -> None:
    program = kernel_code(rows(None), Driver(AVX2)).program()
    lines = program.src
    masked = [at for at, line in enumerate(lines) if line.op is ops.STORE and len(line.src) == 3]
    whole = [line for line in lines if line.op is ops.STORE and len(line.src) == 2]
    assert masked and len(whole) >= len(masked)
    assert all(lines[at - 1].op in (ops.IF, ops.STORE) for at in masked)
    wide = kernel_code(rows(None), Driver(AVX2.replace(vector_bits=512))).program()
    assert not any(line.op is ops.IF for line in wide.src)


@pytest.mark.parametrize("dtype", [dtypes.float32, dtypes.float64, dtypes.int8, dtypes.uint16])
def test_tails_that_are_known_need_no_masks(dtype: DType) -> None:
    for n in range(1, 20):
        for first in (0, 3) if n > 3 else (0,):
            kernel = rows(n, dtype, first)
            x = np.arange(1, n + 1).astype(dtype.np)
            buffers = [aligned(x), aligned(np.zeros(n), dtype.np), aligned(np.zeros(n), dtype.np)]
            run(kernel, buffers, made_for=AVX2)
            want = np.where(np.arange(n) >= first, x, 0)
            np.testing.assert_array_equal(buffers[1:], [want + want, want])
            lines = kernel_code(kernel, Driver(AVX2)).program().src
            assert all(len(line.src) == 2 for line in lines if line.op is ops.STORE)


@pytest.mark.parametrize("lanes", range(1, 16))
def test_mask_registers_are_for_many_parts(lanes: int) -> None:
    """A load after a masked store waits for the bytes that it spans: rows updated in place."""
    n = build.index_const(16 + lanes)
    i, below, _ = split(n, (2, "UNROLL"), (16, "VEC"))
    masks = () if below is None else (below,)
    x, o = (build.index_into(build.ref(s, dtypes.float32, (n,)), i) for s in range(2))
    kernel = build.kernel([build.store(o, build.load(x, *masks), *masks)], "rows", (0, 1, 2))
    lines = kernel_code(kernel, Driver(AVX2.replace(vector_bits=512))).program().src
    masked = [line for line in lines if line.op is ops.STORE and len(line.src) == 3]
    assert len(masked) == (lanes.bit_count() > 2)


@pytest.mark.parametrize("count", [None, 5])
def test_lines_of_an_outer_scope_are_not_made_again(count: int | None) -> None:
    """What follows a loop reads the line before it, which lies in none."""
    n, t = build.var(0, dtypes.index), dtypes.float32
    ref = UOp(ops.REF, t, (), kernel_args.Ref(0))
    start = UOp(ops.ADDRESS, t, (ref, build.index_const(0)), 4)
    x = UOp(ops.LOAD, t, (start,))
    is_whole = UOp(ops.CMPLE, dtypes.bool_, (build.index_const(8), n))
    loop = UOp(ops.FOR, dtypes.index, (build.index_const(0), n), 1)
    ones = UOp(ops.SPLAT, t.vec(8), (x,))
    address = UOp(ops.ADDRESS, t.vec(8), start.src, 4)
    mask = UOp(ops.LANE_MASK, dtypes.bool_.vec(8), (n if count is None else
                                                    build.index_const(count),))
    branch = UOp(ops.IF, dtypes.void, (is_whole,), 2)
    program = split_masked_stores(UOp(ops.PROGRAM, dtypes.void, (
        start, x, is_whole, loop, ones, address, mask,
        UOp(ops.STORE, dtypes.void, (address, ones, mask)),
        UOp(ops.ENDFOR, dtypes.void, (loop,)), branch, UOp(ops.STORE, dtypes.void, (start, x)),
        UOp(ops.ENDIF, dtypes.void, (branch,)))), AVX2)
    spec.check([program], "program")
    assert program.src.count(start) == program.src.count(is_whole) == 1
    assert compile_ir(host.module("f", host.render(program)), host_target())
