"""Commands in which the host has no say: all launches are known before the first is queued.

    EXEC a; LOOP 3 times: EXEC b        ->      a, b, b, b on places (kind, index, offset)

Such commands are queued without a walk. A driver whose records take memory at each call
(``links``) has one of them. Else they are recorded on the same memory once more, where the driver
can, and queued at once from then on: so many records are kept, the least recently used goes, and
all of those on memory that is given back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fnx.backends.gpu.driver import (
    DeviceMemory,
    LinkedLaunches,
    LoadedKernel,
    PlacedLaunch,
    QueuedLaunch,
    QueueDriver,
    RecordedLaunches,
)
from fnx.backends.gpu.memory import ArenaMemory, GpuStorage
from fnx.backends.hcq import Command, Commands, QueuedLoop
from fnx.core import parts
from fnx.core.uop import UOp

RECORDS = 8       # of a command buffer
LAUNCHES = 2048   # that are known before, at most

Tuples = tuple[DeviceMemory, ...]


class LaunchFace(Protocol):
    """What is known of an EXEC when it is encoded."""

    groups: int
    threads: int
    kernel: LoadedKernel
    scalars: tuple[int, ...]
    slots: tuple[UOp, ...]
    written: set[int]


class _KnownLaunch:
    """A launch on places that are numbers: which memory, and how far into it."""

    __slots__ = ("places", "plan")

    def __init__(self, plan: LaunchFace, places: list[tuple[str, int, int]]) -> None:
        self.plan, self.places = plan, places


class Records:
    """What a driver recorded of some launches: who had them in mind may be gone."""

    def __init__(self, driver: QueueDriver) -> None:
        self.driver = driver
        self.seen: OrderedDict[Tuples, RecordedLaunches | None] = OrderedDict()
        self.linked: LinkedLaunches | None = None

    def drop(self, key: Tuples) -> None:
        """Forget the record on this memory."""
        recorded = self.seen.pop(key)
        if recorded is not None:
            self.driver.forget(recorded)

    def end(self) -> None:
        """Forget all."""
        for key in list(self.seen):
            self.drop(key)
        linked, self.linked = self.linked, None
        if linked is not None:
            self.driver.unlink(linked)


class Straight:
    """Launches in order, and the records of them."""

    def __init__(self, known: list[_KnownLaunch], driver: QueueDriver) -> None:
        self.known, self.driver, self.records = known, driver, Records(driver)
        self.written = {(place[0], place[1]) for k in known
                        for i, place in enumerate(k.places) if i in k.plan.written}

    def queue(self, ins: Sequence[GpuStorage], outs: Sequence[Any], arena: ArenaMemory | None
              ) -> None:
        """Queue all on this memory."""
        for kind, index in self.written:
            if kind != "arena":
                (outs if kind == "out" else ins)[index].written()
        memory = {"in": [s.memory for s in ins], "out": [s.memory for s in outs],
                  "arena": [] if arena is None else [arena.memory]}
        key = (*memory["in"], *memory["out"], *memory["arena"])
        if self.driver.links:
            if self.records.linked is None:
                self.records.linked = self._link(len(ins), len(outs))
            self.driver.launch(self.records.linked, key)
            return
        seen = self.records.seen
        recorded = seen.get(key)
        if recorded is not None:
            seen.move_to_end(key)
            self.driver.replay(recorded)
            return
        launches = [QueuedLaunch(k.plan.kernel, k.plan.groups, k.plan.threads, tuple(
            [(memory[kind][index], offset) for kind, index, offset in k.places]), k.plan.scalars)
            for k in self.known]
        if key in seen:
            recorded = seen[key] = self.driver.record(launches)
            if recorded is not None:
                self.driver.replay(recorded)
                return
        else:
            seen[key] = None
            if len(seen) > RECORDS:
                self.records.drop(next(iter(seen)))
        for launch in launches:
            self.driver.exec(launch)

    def _link(self, ins: int, outs: int) -> LinkedLaunches:
        """All launches on memory by its number: of arguments, then results, then temporaries."""
        first = {"in": 0, "out": ins, "arena": ins + outs}
        return self.driver.link([PlacedLaunch(
            k.plan.kernel, k.plan.groups, k.plan.threads,
            tuple([(first[kind] + index, offset) for kind, index, offset in k.places]),
            k.plan.scalars) for k in self.known])

    def forget(self, memory: DeviceMemory) -> None:
        """Drop the records on it."""
        for key in [key for key in self.records.seen if memory in key]:
            self.records.drop(key)


def straight(commands: Commands, plans: Mapping[Command, LaunchFace], driver: QueueDriver
             ) -> Straight | None:
    """Commands without callbacks, conditions and loops of unknown length; None for others, and
    for loops that are too long to be written out."""
    found: list[_KnownLaunch] = []
    return Straight(found, driver) if _written_out(commands, plans, {}, 0, found) else None


def _written_out(commands: Commands, plans: Mapping[Command, LaunchFace],
                 iteration: dict[int, int], depth: int, found: list[_KnownLaunch]) -> bool:
    for command in commands:
        if isinstance(command, Command):
            plan = plans.get(command)
            if plan is None or len(found) == LAUNCHES:
                return False
            if plan.groups:
                found.append(_KnownLaunch(plan, [_place(slot, iteration) for slot in plan.slots]))
        elif isinstance(command, QueuedLoop) and command.flag is None:
            for i in range(command.trips or 0):
                inner = {**iteration, depth: i}
                if not _written_out(command.body, plans, inner, depth + 1, found):
                    return False
        else:
            return False
    return True


def _place(memory: UOp, iteration: dict[int, int]) -> tuple[str, int, int]:
    slot = parts.slot_in(memory, iteration)
    at = slot.offset + sum([s * iteration[i] for i, s in enumerate(slot.strides) if s])
    return slot.kind, slot.index, at
