"""A kind of target is a row: with one more, nothing else changes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from fnx.core import build, dtypes, ops
from fnx.core.levels import show
from fnx.core.target import Target
from fnx.core.uop import UOp, toposort
from fnx.lower.driver import Pass, Ran
from fnx.lower.machines import HOST, KERNELS, MACHINES, Machine, Work
from fnx.lower.pipeline import lower, passes
from fnx.lower.program.linearize import linearize
from fnx.lower.render import llvm
from fnx.lower.render.host import render as host_text
from fnx.lower.schedule.tile import tile

LISTING = Target("paper", kind="listing")


def unscheduled(work: Work) -> Work:
    return work.replace(schedule=())


def listed(kernel: UOp) -> str:
    return show.pretty(kernel)


@pytest.fixture
def listing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """A machine whose kernels have plain loops and are printed as they are."""
    machine = Machine(
        (Pass("plain", unscheduled, "kernel", "kernel"),
         *[p for p in KERNELS.tiling if p.name != "choose"]),
        (Pass("list", listed, "kernel", "text"),),
        lambda symbol, text: f"{symbol}:\n{text}",
        lambda kernel: {"loops": build.index_const(len(kernel.src[0].ranges))})
    monkeypatch.setitem(MACHINES, "listing", machine)
    yield machine


def graph() -> UOp:
    x = build.param(0, dtypes.float32, (300, 7))
    return build.function([build.exp(build.permute(x, (1, 0)))], 1, "turned")


def test_a_machine_is_a_row(listing: Machine) -> None:
    lowered = lower(graph(), LISTING)
    (kernel, code), = lowered.code.items()
    assert code.text() == f"{code.symbol}:\n{show.pretty(kernel)}"
    assert build.const_of(code.extents["loops"]) == 2
    assert {n.arg.kind for n in toposort([kernel]) if n.op is ops.RANGE} == {"SEQ"}


def test_its_passes_are_seen_and_listed(listing: Machine) -> None:
    ran: list[Ran] = []
    lower(graph(), LISTING, keep=ran.append)
    names = [p.name for p in passes(LISTING)]
    assert [r.name for r in ran] == names
    assert "plain" in names and "choose" not in names and "render" not in names


def test_targets_do_not_share_what_is_tiled(listing: Machine) -> None:
    kinds = [Target("x", kind=kind) for kind in ("host", "kernels", "listing")]
    kernels = [next(iter(lower(graph(), target).code)) for target in kinds]
    assert kernels[2] is not kernels[1] and kernels[0] is kernels[1]


def test_what_is_not_compiled_has_no_text_and_needs_no_digest() -> None:
    lowered = lower(graph(), Target("interp", kind="kernels"))
    (kernel, code), = lowered.code.items()
    assert code.text() == "" and code.program() is kernel and not code.extents
    assert KERNELS.code == () and HOST.tiling[:len(KERNELS.tiling)] == KERNELS.tiling


def test_another_calling_convention_has_the_same_rows() -> None:
    """A thread for each iteration of the PAR range: what PART stands for is all that changes."""
    r = build.range_(100, 0, "PAR")
    o = build.at(build.ref(0, dtypes.float32, (100,)), r)
    kernel = build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones", [0])
    program = linearize(kernel, Target("cpu"))

    def enter(p: llvm.Printer, program: UOp) -> None:
        p.names.update({s: "%out" for n in program.src for s in n.src if s.op is ops.REF})
        p.out += ["  %id = call i64 @thread()", "  %next = add i64 %id, 1"]

    threads = llvm.Convention(
        enter, {ops.PART: lambda p, node: ("%id", "%next")[node.arg]}, {})
    mine, host = llvm.body(program, threads), host_text(program).splitlines()
    assert "  %id = call i64 @thread()" in mine and "icmp slt i64 %id, %next" in "\n".join(mine)
    names = re.compile(r"%[a-z]+\d*")
    same = [names.sub("%", line) for line in mine if "store" in line or "mul" in line]
    assert same == [names.sub("%", line) for line in host if "store" in line or "mul" in line]


def test_the_host_is_told_how_often_and_with_how_much_memory() -> None:
    r = build.range_(100, 0, name="i")
    o = build.at(build.ref(0, dtypes.float32, (100,)), r)
    kernel = tile(build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones"), [])
    extents = HOST.extents(kernel)
    assert {name: build.const_of(n) for name, n in extents.items()} == {
        "parallel": 1, "scratch": 0}
