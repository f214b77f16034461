"""Products by tile units: the loops around the instructions run here with emulated instructions;
the instructions themselves are only assembled."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.backends.llvm import binding as llvm
from fnx.core.ir import build, dtypes, ops, tiling
from fnx.core.ir.matrix_units import UNITS, contract
from fnx.core.ir.tiling import StageOperand
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp_kernel import run_kernel
from fnx.core.support.errors import KernelError
from fnx.core.support.target import Target
from fnx.lower.code_generation import kernel_code
from fnx.lower.driver import Driver
from fnx.lower.emit.vectorize_stage_fills import vectorize_stage_fills
from fnx.lower.schedule.heuristics import choose_schedule
from fnx.lower.schedule.tile import tile
from tests.lower import machine
from tests.lower.schedule.test_matrix_units import bf16, matmul, stored, units_in

COMPILED = True
CHIP = Target("cpu", triple=llvm.host_target().triple, cpu="sapphirerapids",
              features="+amx-tile,+amx-bf16,+amx-int8,+avx512f,+avx512vl,+avx512bw,+avx512dq",
              unit_names=("tdpbf16ps", "tdpbssd"))
ON_X86 = pytest.mark.skipif(not CHIP.triple.startswith("x86_64"), reason="of another processor")
RANDOM = np.random.default_rng(0)

# Emulates the instructions on 16 rows of 16 registers: sums of the products of their elements.
_LOOPS = """
define <256 x i32> @{name}(i16 %x, i16 %y, i16 %z,
                           <256 x i32> %c, <256 x i32> %a, <256 x i32> %b) {{
start:
  %pa = alloca <256 x i32>
  %pb = alloca <256 x i32>
  %pc = alloca <256 x i32>
  store <256 x i32> %a, ptr %pa
  store <256 x i32> %b, ptr %pb
  store <256 x i32> %c, ptr %pc
  br label %next
next:
  %i = phi i64 [ 0, %start ], [ %i1, %next ]
  %m = lshr i64 %i, 4
  %w = and i64 %i, 15
  %at = getelementptr i32, ptr %pa, i64 %i
  %one = load i32, ptr %at
  %first = insertelement <16 x i32> poison, i32 %one, i64 0
  %left = shufflevector <16 x i32> %first, <16 x i32> poison, <16 x i32> zeroinitializer
  %row = getelementptr <16 x i32>, ptr %pb, i64 %w
  %right = load <16 x i32>, ptr %row
  %out = getelementptr <16 x i32>, ptr %pc, i64 %m
  %s0 = load <16 x {t}>, ptr %out
{terms}
  store <16 x {t}> %s{count}, ptr %out
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, 256
  br i1 %more, label %next, label %end
end:
  %r = load <256 x i32>, ptr %pc
  ret <256 x i32> %r
}}
"""
_REST = """
define <256 x i32> @tile_zero(i16 %x, i16 %y) {
  ret <256 x i32> zeroinitializer
}
define <256 x i32> @tile_load(i16 %x, i16 %y, ptr %p, i64 %stride) {
  %r = load <256 x i32>, ptr %p, align 4
  ret <256 x i32> %r
}
define <256 x i32> @tile_whole(<256 x i32> %x) {
  ret <256 x i32> %x
}
"""


def _term(i: int, count: int, is_float: bool) -> str:
    """s(i + 1) = s(i) + the products of element i of each register."""
    bits, v = 32 // count, "<16 x i32>"
    lines, sides = [], []
    for side in ("left", "right"):
        up = f"  %{side}u{i} = shl {v} %{side}, splat (i32 {32 - bits * (i + 1)})"
        if is_float:
            lines += [up, f"  %{side}m{i} = and {v} %{side}u{i}, splat (i32 -65536)",
                      f"  %{side}{i} = bitcast {v} %{side}m{i} to <16 x float>"]
        else:
            lines += [up, f"  %{side}{i} = ashr {v} %{side}u{i}, splat (i32 {32 - bits})"]
        sides.append(f"%{side}{i}")
    a, b = sides
    if is_float:
        f = "<16 x float>"
        lines.append(f"  %s{i + 1} = call {f} @llvm.fma.v16f32({f} {a}, {f} {b}, {f} %s{i})")
    else:
        lines += [f"  %p{i} = mul {v} {a}, {b}", f"  %s{i + 1} = add {v} %s{i}, %p{i}"]
    return "\n".join(lines)


def emulated(text: str) -> str:
    """Return the module with functions in place of tile instructions."""
    for old, new in ((r"llvm\.x86\.tilezero\.internal", "tile_zero"),
                     (r"llvm\.x86\.tileloadd64\.internal", "tile_load"),
                     (r"llvm\.x86\.cast\.tile\.to\.vector\.v256i32", "tile_whole"),
                     (r"llvm\.x86\.(tdp\w+)\.internal", r"\1"), ("x86_amx", "<256 x i32>")):
        text = re.sub(old, new, text)
    for name, count, t in (("tdpbf16ps", 2, "float"), ("tdpbssd", 4, "i32")):
        if f"@{name}(" in text:
            terms = "\n".join(_term(i, count, t == "float") for i in range(count))
            text += _LOOPS.format(name=name, t=t, terms=terms, count=count)
    return text + _REST


def tiled(untiled: UOp) -> UOp:
    return tile(untiled, [step.replace(space="PRIV") if isinstance(step, StageOperand) else step
                          for step in choose_schedule(untiled, CHIP)])


@ON_X86
@settings(max_examples=6, deadline=None)
@given(st.tuples(st.integers(16, 70), st.integers(33, 100), st.integers(16, 70)),
       st.sampled_from(["", "x", "w", "xw"]))
def test_products_of_bfloat16(shape: tuple[int, int, int], transposed: str) -> None:
    m, k, n = shape
    kernel = tiled(matmul(m, k, n, dtypes.bfloat16, dtypes.float32, transposed))
    assert units_in(kernel) == {"tdpbf16ps"}
    x, w = bf16(RANDOM.standard_normal((m, k))), bf16(RANDOM.standard_normal((k, n)))
    held = [stored(a.T.copy() if name in transposed else a).view(dtypes.bfloat16.np)
            for a, name in ((x, "x"), (w, "w"))]
    theirs = [*held, np.zeros((m, n), np.float32)]
    run_kernel(kernel, theirs, [])
    np.testing.assert_allclose(theirs[2], x.astype(np.float64) @ w, rtol=1e-5, atol=2e-5)
    mine = [machine.aligned(b) for b in (*held, np.zeros((m, n), np.float32))]
    machine.run(kernel, mine, made_for=CHIP, text=emulated)
    np.testing.assert_allclose(mine[2], x.astype(np.float64) @ w, rtol=1e-5, atol=2e-5)


@pytest.mark.cases(1)
@ON_X86
@pytest.mark.parametrize("shape", [(16, 65, 16), (40, 200, 33)])
def test_products_of_bytes(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    kernel = tiled(matmul(m, k, n, dtypes.int8, dtypes.int32))
    assert units_in(kernel) == {"tdpbssd"}
    x, w = (RANDOM.integers(-128, 128, s).astype(np.int8) for s in ((m, k), (k, n)))
    theirs = [x, w, np.zeros((m, n), np.int32)]
    mine = [machine.aligned(b) for b in theirs]
    run_kernel(kernel, theirs, [])
    machine.run(kernel, mine, made_for=CHIP, text=emulated)
    wanted = x.astype(np.int32) @ w.astype(np.int32)
    assert np.array_equal(theirs[2], wanted) and np.array_equal(mine[2], wanted)


@ON_X86
@pytest.mark.parametrize("of,to", [(dtypes.bfloat16, dtypes.float32),
                                   (dtypes.int8, dtypes.int32)])
def test_the_loop_is_four_instructions_on_registers(of: dtypes.DType, to: dtypes.DType) -> None:
    kernel = vectorize_stage_fills(tiled(matmul(64, 256, 64, of, to)), CHIP)
    code = kernel_code(kernel, Driver(CHIP))
    unit, = units_in(kernel)
    assert sum(line.op is ops.MMA for line in code.program().src) == 4
    lines = [line.split()[0] for line in llvm.assembly(code.text(), CHIP).splitlines()
             if line.startswith("\t") and line.split()]
    first, last = lines.index(unit), len(lines) - 1 - lines[::-1].index(unit)
    assert lines.count(unit) == 4 and "tilestored" not in lines[first:last]
    assert lines[first:last].count("tileloadd") <= 2  # two of the four come earlier
    assert lines.count("ldtilecfg") == lines.count("tilerelease") == 1


@ON_X86
def test_words_of_two_operands_are_staged_whole() -> None:
    i, j, c = (build.range_(64, n, name=name) for n, name in enumerate("ijc"))

    def read(slot: int, name: str, *at: UOp) -> UOp:
        return build.load(build.index_into(build.ref(slot, dtypes.bfloat16, (64, 64), name), *at))

    left = build.mul(read(0, "x", i, c), read(1, "y", i, c))
    factors = [build.cast(s, dtypes.float32) for s in (left, read(2, "w", c, j))]
    o = build.index_into(build.ref(3, dtypes.float32, (64, 64), "o"), i, j)
    total = build.reduce_ranges(build.mul(*factors), ops.ADD, [c])
    kernel = tiled(build.kernel([build.store(o, total)], "product", (0, 1, 2)))
    assert units_in(kernel) == {"tdpbf16ps"}
    assert {n.dtype for n in toposort([kernel]) if n.op is ops.STAGE} == {dtypes.uint32}
    kernel_code(kernel, Driver(CHIP)).program()


def test_terms_at_each_position_of_words_are_summed_separately() -> None:
    one, big = 0x3F80, 0x4B80  # 1.0, 2.0**24
    a = np.array([[big | one << 16, one | one << 16]], np.uint32)
    b = np.full((1, 2), one | one << 16, np.uint32)
    total = contract(UNITS["tdpbf16ps"], a, b, [1])
    assert total[0, 0] == np.float32(2.0**24 + 2)  # (2**24 + 1) + (1 + 1), not sequentially
    assert contract(UNITS["dpbf16ps"], a, b, [1])[0, 0] == 2.0**24


def test_short_and_batched_products_take_no_tiles() -> None:
    for m, k, n in [(15, 64, 64), (64, 32, 64)]:
        untiled = matmul(m, k, n, dtypes.bfloat16, dtypes.float32)
        assert units_in(tile(untiled, choose_schedule(untiled, CHIP))) == set()


@ON_X86
def test_tiles_that_do_not_lie_whole_are_refused() -> None:
    untiled = matmul(16, 64, 16, dtypes.bfloat16, dtypes.float32)
    kernel = tile(untiled, [
        tiling.split("c", 32, "co", "cr"), tiling.split("cr", 2, "cw", "ce"),
        tiling.tensorize("ce", "tdpbf16ps", "cw"), tiling.order("co", "i", "cw", "j", "ce"),
        tiling.unroll("i"), tiling.vectorize("j")])
    with pytest.raises(KernelError, match="16 unrolled rows|lie whole"):
        kernel_code(kernel, Driver(CHIP)).program()
