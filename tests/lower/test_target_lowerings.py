"""A kind of target is an entry of a table: adding one changes nothing else.

The kind built here resembles a GPU: ranges and memory spaces of its own, a prologue, a calling
convention.
"""

from __future__ import annotations

import ast
import ctypes
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fnx
from fnx.backends.llvm import binding
from fnx.core.ir import build, dtypes, ops, tiling
from fnx.core.ir.kernel_code import KernelCode
from fnx.core.ir.tiling import Bind
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels import show
from fnx.core.rewriting.algebra import evaluate
from fnx.core.support.errors import KernelError
from fnx.core.support.target import Target
from fnx.lower.analysis.loops import name_of, ranges_of
from fnx.lower.driver import Driver, Pass, PassTrace
from fnx.lower.emit.addresses import scratch_layout
from fnx.lower.emit.emit import emit_program
from fnx.lower.pipeline import lower, passes
from fnx.lower.render import host, llvm
from fnx.lower.render.host import MEMORY
from fnx.lower.render.host import render as host_text
from fnx.lower.schedule.tile import tile
from fnx.lower.target_lowerings import (
    HOST,
    KERNELS,
    TARGET_LOWERINGS,
    ScheduleInput,
    TargetLowering,
)
from tests.lower.machine import aligned

LISTING = Target("paper", kind="listing")


def unscheduled(work: ScheduleInput) -> ScheduleInput:
    return work.replace(schedule=())


def listed(kernel: UOp) -> str:
    return show.pretty(kernel)


# ---- an example of a GPU: blocks and threads, their memory, a prologue of its own ----------------


BLOCK = 4
GPU = Target("gpu", cpu="host", kind="blocks")


def in_blocks(work: ScheduleInput) -> ScheduleInput:
    """The first range is mapped to blocks, and to the threads of each."""
    first = name_of(ranges_of(work.kernel)[0])
    return work.replace(schedule=(
        tiling.split(first, BLOCK, "block", "thread"), Bind("block", "GRID"),
        Bind("thread", "THREAD")))


def _ids(p: llvm.Printer, program: UOp) -> None:
    """The prologue: pointers one by one, no scalars, ids of the block and of the thread."""
    refs = {s for n in program.src for s in n.src if s.op is ops.REF}
    for ref in sorted(refs, key=lambda n: n.arg.slot):
        at = p.line(f"getelementptr ptr, ptr %buffers, i64 {ref.arg.slot}")
        p.define(ref, f"load ptr, ptr {at}, align 8")


BLOCKS = llvm.Convention(
    _ids, {ops.ID: lambda p, n: {"GRID": "%block", "THREAD": "%thread"}[n.arg]},
    {**MEMORY, ops.SYNC: lambda p, n: p.out.append("  call void @sync()"),
     ops.SCRATCH: lambda p, n: p.define(
         n, f"getelementptr i8, ptr %shared, i64 {p.operand(n.src[0])}")})


def in_threads(program: UOp) -> str:
    return "\n".join(["(ptr %buffers, i64 %block, i64 %thread, ptr align 64 %shared) {",
                      *llvm.body(program, BLOCKS), "}"])


def blocks_and_threads(kernel: UOp) -> dict[str, UOp]:
    """The launch dimensions, and how many bytes the threads of a block share."""
    of = {n.arg.kind: n.src[0] for n in toposort(kernel.src) if n.op is ops.RANGE}
    return {"blocks": of["GRID"], "threads": of["THREAD"],
            "shared": scratch_layout(kernel, "SHARED")[1]}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[TargetLowering]:
    choose, *rest = KERNELS.tiling
    machine = TargetLowering(
        kinds=("GRID", "THREAD", "SEQ", "UNROLL", "VEC"), spaces=("SHARED", "GLOBAL"),
        tiling=(choose.replace(name="blocks", run=in_blocks, takes_target=False), *rest),
        code=(*HOST.code[:-1], Pass("threads", in_threads, "program", "text")),
        module=host.module, extents=blocks_and_threads)
    monkeypatch.setitem(TARGET_LOWERINGS, "blocks", machine)
    yield machine


def launched(code: KernelCode, buffers: list[np.ndarray[Any, Any]]) -> None:
    """Run each thread of each block, one after the other."""
    target = binding.host_target()
    library = binding.link([(binding.compile_ir(code.text(), target), [code.symbol])])
    f = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(
        library.addresses[code.symbol])
    pointers = (ctypes.c_void_p * len(buffers))(*[b.ctypes.data for b in buffers])
    blocks, threads, shared = (evaluate(code.extents[name], {})
                               for name in ("blocks", "threads", "shared"))
    memory = aligned(np.zeros(max(1, shared), np.uint8))
    for block in range(blocks):
        for thread in range(threads):
            f(ctypes.addressof(pointers), block, thread, memory.ctypes.data)


def test_a_gpu_adds_its_ranges_its_memory_and_a_prologue(gpu: TargetLowering) -> None:
    x = build.param(0, dtypes.float32, (18, 5))
    total = build.reduce(build.exp(x), ops.ADD, (1,))
    lowered = lower(build.function([total], 1, "rows"), GPU)
    (kernel, code), = lowered.code.items()
    assert {n.arg.kind for n in toposort([kernel]) if n.op is ops.RANGE} == {
        "GRID", "THREAD", "SEQ"}
    assert "@" + code.symbol in code.text() and "%thread" in code.text()
    given, out = np.arange(90, dtype=np.float32) / 50, np.zeros(18, np.float32)
    launched(code, [aligned(given), out := aligned(out)])
    np.testing.assert_allclose(out, np.exp(given.reshape(18, 5)).sum(1), rtol=1e-6)


def test_what_its_threads_share_is_laid_out_and_given(gpu: TargetLowering) -> None:
    i, k, j = build.range_(6, 0, "GRID", "i"), build.range_(5, 1, name="k"), \
        build.range_(5, 2, name="j")
    x = build.load(build.index_into(build.ref(0, dtypes.float32, (6, 5)), i, k))
    staged = build.load(build.index_into(build.stage(build.mul(x, x), [k], 0, "SHARED"), j))
    o = build.index_into(build.ref(1, dtypes.float32, (6, 5)), i, j)
    kernel = build.kernel([build.store(o, staged)], "squares", (0, 1, 2))
    assert build.const_of(scratch_layout(kernel, "SHARED")[1]) == 64
    text = in_threads(emit_program(kernel, GPU))
    assert "%shared" in text and "%thread" not in text.split("{", 1)[1]
    assert text.index("store") < text.index("@sync") < text.rindex("load float")


def test_ranges_and_memory_of_another_target_are_refused(gpu: TargetLowering) -> None:
    i = build.range_(8, 0, name="i")
    o = build.index_into(build.ref(0, dtypes.float32, (8,)), i)
    kernel = build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones", (0,))
    tile_pass = next(p for p in HOST.tiling if p.name == "tile")
    host = Driver(Target("cpu")).run([tile_pass], ScheduleInput(kernel, (Bind("i", "GRID"),)))
    assert {r.arg.kind for r in host.src[0].ranges} == {"SEQ"}  # groups are loops there
    with pytest.raises(KernelError, match="gpu: expected ranges of the kinds GRID.*got PAR"):
        Driver(GPU).run([tile_pass], ScheduleInput(kernel, (tiling.parallel("i"),)))


def test_only_the_table_and_the_cpus_row_name_the_cpus_range() -> None:
    """Except for the user's schedule primitive, and the module that prints and documents it."""
    package = Path(fnx.__file__).parent
    texts = {path: path.read_text() for path in package.rglob("*.py")}
    named = {path.relative_to(package).as_posix() for path, text in texts.items() if "PAR" in text
             for node in ast.walk(ast.parse(text))
             if isinstance(node, ast.Constant) and node.value == "PAR"}
    assert named == {"core/support/range_kinds.py", "core/ir/tiling.py",
                     "lower/target_lowerings.py"}


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> Iterator[TargetLowering]:
    """A machine whose kernels have plain loops and are printed as they are."""
    machine = TargetLowering(
        KERNELS.kinds, KERNELS.spaces, (Pass("plain", unscheduled, "kernel", "kernel"),
         *[p for p in KERNELS.tiling if p.name != "choose"]),
        (Pass("list", listed, "kernel", "text"),),
        lambda symbol, text: f"{symbol}:\n{text}",
        lambda kernel: {"loops": build.index_const(len(kernel.src[0].ranges))})
    monkeypatch.setitem(TARGET_LOWERINGS, "listing", machine)
    yield machine


def graph() -> UOp:
    x = build.param(0, dtypes.float32, (300, 7))
    return build.function([build.exp(build.permute(x, (1, 0)))], 1, "turned")


def test_a_machine_is_a_row(listing: TargetLowering) -> None:
    lowered = lower(graph(), LISTING)
    (kernel, code), = lowered.code.items()
    assert code.text() == f"{code.symbol}:\n{show.pretty(kernel)}"
    assert build.const_of(code.extents["loops"]) == 2
    assert {n.arg.kind for n in toposort([kernel]) if n.op is ops.RANGE} == {"SEQ"}


def test_its_passes_are_seen_and_listed(listing: TargetLowering) -> None:
    ran: list[PassTrace] = []
    lower(graph(), LISTING, on_pass=ran.append)
    names = [p.name for p in passes(LISTING)]
    assert [r.name for r in ran] == names
    assert "plain" in names and "choose" not in names and "render" not in names


def test_targets_do_not_share_what_is_tiled(listing: TargetLowering) -> None:
    kinds = [Target("x", kind=kind) for kind in ("host", "kernels", "listing")]
    kernels = [next(iter(lower(graph(), target).code)) for target in kinds]
    assert kernels[2] is not kernels[1] and kernels[0] is kernels[1]


def test_what_is_not_compiled_has_no_text_and_needs_no_digest() -> None:
    lowered = lower(graph(), Target("interp", kind="kernels"))
    (kernel, code), = lowered.code.items()
    assert code.text() == "" and code.program() is kernel and not code.extents
    shared = [step for step in HOST.tiling if step in KERNELS.tiling]
    assert KERNELS.code == () and shared == [*KERNELS.tiling]


def test_another_calling_convention_has_the_same_rows() -> None:
    """One thread per iteration of the PAR range: only the lowering of PARALLEL_RANGE differs."""
    r = build.range_(100, 0, "PAR")
    o = build.index_into(build.ref(0, dtypes.float32, (100,)), r)
    kernel = build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones", [0])
    program = emit_program(kernel, Target("cpu"))

    def enter(p: llvm.Printer, program: UOp) -> None:
        p.names.update({s: "%out" for n in program.src for s in n.src if s.op is ops.REF})
        p.out += ["  %id = call i64 @thread()", "  %next = add i64 %id, 1"]

    threads = llvm.Convention(
        enter, {ops.PARALLEL_RANGE: lambda p, node: ("%id", "%next")[node.arg]}, MEMORY)
    mine, host = llvm.body(program, threads), host_text(program).splitlines()
    assert "  %id = call i64 @thread()" in mine and "icmp slt i64 %id, %next" in "\n".join(mine)
    names = re.compile(r"%[a-z]+\d*")
    same = [names.sub("%", line) for line in mine if "store" in line or "mul" in line]
    assert same == [names.sub("%", line) for line in host if "store" in line or "mul" in line]


def test_the_host_is_told_how_often_and_with_how_much_memory() -> None:
    r = build.range_(100, 0, name="i")
    o = build.index_into(build.ref(0, dtypes.float32, (100,)), r)
    kernel = tile(build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones"), [])
    extents = HOST.extents(kernel)
    assert {name: build.const_of(n) for name, n in extents.items()} == {
        "parallel": 1, "scratch": 0}
