"""Static command lists: no callbacks, no work of the host. All launches are known.

    EXEC a; CMD_LOOP 3 times: EXEC b    ->      a, b, b, b at (kind, index, offset)

Of a loop that may overrun (``kernel_args.CmdLoop``) a strip of iterations is such a list, with the
commands before it. Then the host reads the condition once, and queues more strips if it holds.

    EXEC a; CMD_LOOP while f: EXEC b; EXEC c     ->      a, 32 times b; read f;   c

Such commands are queued without interpreting them: they are linked once, on numbered memory, and
launched on that of each call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from fnx.backends.device.hcq import Command, Commands, QueuedLoop
from fnx.backends.gpu.driver import (
    HostBytes,
    LinkedLaunches,
    LoadedKernel,
    QueuedLaunch,
    QueueDriver,
)
from fnx.backends.gpu.memory import ArenaMemory, GpuPool, GpuStorage
from fnx.core.ir import accessors
from fnx.core.ir.uop import UOp

MAX_LAUNCHES = 1 << 14  # longest static launch list
MAX_STRIP_SECONDS = 0.3  # of a strip that may be followed by one of twice its length

ReadSlot = Callable[[UOp], HostBytes]


class LaunchInfo(Protocol):
    """What is known of an EXEC when it is encoded."""

    groups: int
    threads: int
    kernel: LoadedKernel
    scalars: tuple[int, ...]
    slots: tuple[UOp, ...]
    sizes: tuple[int, ...]
    written: frozenset[int]
    command: Command


class _StaticLaunch:
    """A launch with static locations: which memory (kind, index), and the byte offset in it."""

    __slots__ = ("places", "plan")

    def __init__(self, plan: LaunchInfo, locations: list[tuple[str, int, int]]) -> None:
        self.plan, self.places = plan, locations


class LinkHolder:
    """What the driver has linked for a launch list; it may outlive its owner."""

    def __init__(self, driver: QueueDriver) -> None:
        self.driver = driver
        self.linked: LinkedLaunches | None = None

    def end(self) -> None:
        """Release it."""
        linked, self.linked = self.linked, None
        if linked is not None:
            self.driver.unlink(linked)


class StaticLaunchPlan:
    """A static launch list."""

    def __init__(self, static_launches: list[_StaticLaunch], pool: GpuPool) -> None:
        self.static_launches, self.driver = static_launches, pool.driver
        self.holder = LinkHolder(self.driver)
        written = {(place[0], place[1]) for k in static_launches
                   for i, place in enumerate(k.places) if i in k.plan.written}
        self.written_ins, self.written_outs = [
            sorted(i for of, i in written if of == kind) for kind in ("in", "out")]

    def queue(self, ins: Sequence[GpuStorage], outs: Sequence[GpuStorage],
              arena: ArenaMemory | None) -> None:
        """Queue all launches on this memory and start them."""
        for i in self.written_ins:
            ins[i].written()
        for i in self.written_outs:
            outs[i].written()
        memory = [s.piece.memory if s.incoming is None else s.memory for s in ins]
        memory += [s.piece.memory for s in outs]
        if arena is not None:
            memory.append(arena.piece.memory)
        if self.holder.linked is None:
            self.holder.linked = self.driver.link(self._launches(len(ins), len(outs)), len(memory))
        self.driver.launch(self.holder.linked, memory)

    def _launches(self, ins: int, outs: int) -> list[QueuedLaunch]:
        """Return all launches on numbered memory: arguments, then results, then temporaries."""
        first = {"in": 0, "out": ins, "arena": ins + outs}
        return [QueuedLaunch(k.plan.kernel, k.plan.groups, k.plan.threads, tuple(
            [(first[kind] + index, offset) for kind, index, offset in k.places]), k.plan.scalars,
            k.plan.sizes, k.plan.written, k.plan.command)
            for k in self.static_launches]


class _Segment:
    """Launches that are queued without a read, then those of a step of ``loop``, if there is one.

    Attributes:
        plans: launch lists, by whether the launches before the loop are included, and strip.
    """

    def __init__(self) -> None:
        self.before: list[_StaticLaunch] = []
        self.loop: QueuedLoop | None = None
        self.step: list[_StaticLaunch] = []
        self.plans: dict[tuple[bool, int], StaticLaunchPlan] = {}

    def strips(self, read: ReadSlot) -> Iterable[int]:
        """Yield how many steps of the loop to queue, until it has ended."""
        return (0,) if self.loop is None else \
            loop_strips(self.loop, read, MAX_LAUNCHES // max(1, len(self.step)))


class StaticProgram:
    """A command list whose launches are static, but for how often loops at its top level run.

    Args:
        segments: its launches in order.
        pool: the memory.
    """

    def __init__(self, segments: list[_Segment], pool: GpuPool) -> None:
        self.segments, self.pool = segments, pool
        self._only: StaticLaunchPlan | None = None  # the launch list, if no loop is in the program

    def queue(self, ins: Sequence[GpuStorage], outs: Sequence[GpuStorage],
              arena: ArenaMemory | None, read: ReadSlot,
              register: Callable[[StaticLaunchPlan], None]) -> None:
        """Queue all launches on this memory and start them.

        Args:
            ins, outs, arena: the memory.
            read: returns the bytes of a slot.
            register: called with each new launch list.
        """
        if self._only is not None:
            self._only.queue(ins, outs, arena)
            return
        for segment in self.segments:
            has_begun = False
            for strip in segment.strips(read):
                key = not has_begun, strip
                if key not in segment.plans:
                    segment.plans[key] = StaticLaunchPlan(
                        segment.before * key[0] + segment.step * strip, self.pool)
                    register(segment.plans[key])
                segment.plans[key].queue(ins, outs, arena)
                has_begun = True
        if len(self.segments) == 1 and self.segments[0].loop is None:
            self._only = self.segments[0].plans[True, 0]


def loop_strips(loop: QueuedLoop, read: ReadSlot, largest: int) -> Iterator[int]:
    """Yield how many steps of a loop that may overrun to queue, until it has ended.

    Each strip after the first has as many steps as all before it. The first one of the next loop
    is as long as this loop was. As nothing interrupts a strip, it grows only while that takes
    little time.
    """
    assert loop.flag is not None
    strip, steps, word, is_short = min(loop.strip, largest), 0, 1, True
    while word & 1:
        start = time.monotonic()
        yield strip
        word = int(read(loop.flag)[:4].view(np.int32)[0])
        is_short = time.monotonic() - start < MAX_STRIP_SECONDS
        steps += strip
        loop.strip = strip = min(steps, largest) if is_short else strip
    if is_short:
        loop.strip = 1 << (word >> 8).bit_length()


def static_program(commands: Commands, plans: Mapping[Command, LaunchInfo], pool: GpuPool
                   ) -> StaticProgram | None:
    """Return the launches of commands.

    None for callbacks, conditions that the host reads each time, and loops that are too long.
    """
    segments = [_Segment()]
    for command in commands:
        segment = segments[-1]
        if isinstance(command, QueuedLoop) and command.may_overrun:
            segment.loop = command
            if not _unroll(command.body, plans, {0: 0}, 1, segment.step):
                return None
            segments.append(_Segment())
        elif not _unroll((command,), plans, {}, 0, segment.before):
            return None
    return StaticProgram(segments, pool)


def _unroll(commands: Commands, plans: Mapping[Command, LaunchInfo],
            iteration: dict[int, int], depth: int, launches: list[_StaticLaunch]) -> bool:
    for command in commands:
        if isinstance(command, Command):
            plan = plans.get(command)
            if plan is None or len(launches) == MAX_LAUNCHES:
                return False
            if plan.groups:
                launches.append(_StaticLaunch(plan,
                                              [_location(slot, iteration) for slot in plan.slots]))
        elif isinstance(command, QueuedLoop) and command.flag is None:
            for i in range(command.trips or 0):
                inner = {**iteration, depth: i}
                if not _unroll(command.body, plans, inner, depth + 1, launches):
                    return False
        else:
            return False
    return True


def _location(memory: UOp, iteration: dict[int, int]) -> tuple[str, int, int]:
    slot = accessors.resolve_slot(memory, iteration)
    offset = slot.offset + sum([s * iteration[i] for i, s in enumerate(slot.strides) if s])
    return slot.kind, slot.index, offset
