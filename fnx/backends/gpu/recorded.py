"""Static command lists: no callbacks, no data-dependent control flow. All launches are known.

    EXEC a; LOOP 3 times: EXEC b        ->      a, b, b, b at (kind, index, offset)

Such commands are queued without interpreting them. A driver that binds memory at each call
(``links``) records them once. Otherwise, if the driver can, they are recorded once arguments come
in the same memory again, and replayed from then on. A bounded number of records is cached, with
least-recently-used eviction, and all records on freed memory are dropped. Results are steered to
the memory of a record if that is free. A small result that the caller retains from call to call
(the loss of each step) is written to a substitute buffer, from which it is copied after the replay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from fnx.backends.gpu.driver import (
    DeviceMemory,
    LinkedLaunches,
    LoadedKernel,
    PlacedLaunch,
    QueuedLaunch,
    QueueDriver,
    RecordedLaunches,
)
from fnx.backends.gpu.memory import SMALL, ArenaMemory, GpuPool, GpuStorage, PoolMemory
from fnx.backends.hcq import Command, Commands, QueuedLoop
from fnx.core import parts
from fnx.core.uop import UOp

RECORDS = 8       # cached per command buffer, and earlier calls whose result memory is tried
STAND_INS = 4     # substitute buffers of a record
LAUNCHES = 2048   # longest static launch list

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
    """A launch with static locations: which memory (kind, index), and the byte offset in it."""

    __slots__ = ("places", "plan")

    def __init__(self, plan: LaunchFace, places: list[tuple[str, int, int]]) -> None:
        self.plan, self.places = plan, places


class _Record:
    """The memory of a call, and the launches recorded on it once it was seen twice.

    Attributes:
        key: memory of each argument.
        fresh: memory of each result, then of the arena.
        stand_ins: substitute memory of results that callers retain, by their numbers.
        launches: the driver's record.
    """

    __slots__ = ("fresh", "key", "launches", "stand_ins")

    def __init__(self, key: Tuples, fresh: list[DeviceMemory]) -> None:
        self.key, self.fresh = key, fresh
        self.stand_ins: dict[int, ArenaMemory] = {}
        self.launches: RecordedLaunches | None = None


class Records:
    """The driver's records of a launch list, which may outlive their owner."""

    def __init__(self, driver: QueueDriver) -> None:
        self.driver = driver
        self.seen: list[_Record] = []  # least recently used first
        self.linked: LinkedLaunches | None = None

    def drop(self, found: _Record) -> None:
        """Drop a record."""
        self.seen.remove(found)
        if found.launches is not None:
            self.driver.forget(found.launches)

    def end(self) -> None:
        """Drop all records."""
        for found in list(self.seen):
            self.drop(found)
        linked, self.linked = self.linked, None
        if linked is not None:
            self.driver.unlink(linked)


class Straight:
    """A static launch list and its records."""

    def __init__(self, known: list[_KnownLaunch], pool: GpuPool) -> None:
        self.known, self.pool, self.driver = known, pool, pool.driver
        self.records = Records(self.driver)
        self.written = {(place[0], place[1]) for k in known
                        for i, place in enumerate(k.places) if i in k.plan.written}
        self._work: list[DeviceMemory] = []  # the arena of the previous call
        self._recordable = True

    def queue(self, ins: Sequence[GpuStorage], outs: Sequence[GpuStorage],
              arena: ArenaMemory | None) -> None:
        """Queue all launches on this memory. Results in donated memory stay there."""
        for kind, index in self.written:
            if kind != "arena":
                (outs if kind == "out" else ins)[index].written()
        given = [s.memory for s in ins]
        fresh = [s.piece for s in outs]
        if arena is not None:
            fresh.append(arena.piece)
        if self.driver.links:
            if self.records.linked is None:
                self.records.linked = self._link(len(ins), len(outs))
            self.driver.launch(self.records.linked,
                               (*given, *[piece.memory for piece in fresh]))
            return
        found = self._of(given, fresh, {s.piece for s in ins}, [s.nbytes for s in outs]) \
            if self._recordable else None
        if found is not None and found.launches is not None:
            self.driver.replay(found.launches)
            for i, stand_in in found.stand_ins.items():
                self.driver.copy(stand_in.memory, 0, fresh[i].memory, 0, outs[i].nbytes)
            return
        for launch in self._launches(given, [piece.memory for piece in fresh], len(outs)):
            self.driver.exec(launch)

    def _of(self, given: list[DeviceMemory], fresh: list[PoolMemory], fixed: set[PoolMemory],
            sizes: list[int]) -> _Record | None:
        """Return the record of this memory, with launches recorded if it was seen before."""
        key, seen = tuple(given), self.records.seen
        turns = self.pool.turns_of(tuple(sizes), RECORDS)
        found, missed = self._fitting(key, fresh, fixed, sizes)
        if found is None:
            self._steer_to_a_turn(fresh, turns, fixed)
            found = _Record(key, [piece.memory for piece in fresh])
            self._work = found.fresh[len(sizes):]
            if len(seen) == RECORDS:
                self.records.drop(seen[0])
        else:
            seen.remove(found)
            kept = [i for i in missed if i not in found.stand_ins]
            if found.launches is None or kept:
                self._record(found, kept, fresh, sizes)
            if missed:  # lest a part of a state lies elsewhere at each call
                self._steer_to_turns([fresh[i] for i in missed], missed, turns, fixed)
            for i in found.stand_ins:
                found.fresh[i] = fresh[i].memory
        seen.append(found)
        turns.append(found.fresh[:len(sizes)])
        return found

    def _fitting(self, key: Tuples, fresh: list[PoolMemory], fixed: set[PoolMemory],
                 sizes: list[int]) -> tuple[_Record | None, list[int]]:
        """Find the last memory seen with these arguments whose result memory is free now.

        Also return the results that differ from it, which have or may get substitute buffers.
        """
        for found in reversed(self.records.seen):
            if found.key != key:
                continue
            missed = self.pool.steer(fresh, found.fresh, fixed)
            if len({*missed, *found.stand_ins}) <= STAND_INS and all(
                    i < len(sizes) and sizes[i] <= SMALL for i in missed):
                return found, missed
        return None, []

    def _steer_to_turns(self, pieces: list[PoolMemory], numbers: list[int],
                        turns: deque[list[DeviceMemory]], fixed: set[PoolMemory]) -> None:
        """Steer these results to memory that they had in an earlier call, as far as that is free.

        Memory of a result that callers retain is not.
        """
        places = [[turn[i] for i in numbers] for turn in reversed(turns)]
        left = list(range(len(pieces)))
        for wanted in self.pool.within_reach(pieces, places):
            still = self.pool.steer([pieces[i] for i in left], [wanted[i] for i in left], fixed)
            left = [left[i] for i in still]
            if not left:
                return

    def _steer_to_a_turn(self, fresh: list[PoolMemory], turns: deque[list[DeviceMemory]],
                         fixed: set[PoolMemory]) -> None:
        """Steer all results to the memory of the earlier call of which most is free.

        A state that is passed from call to call then alternates between few memory sets.
        """
        fewest, nearest = len(fresh) + 1, list[DeviceMemory]()
        for turn in reversed(turns):
            wanted = [*turn, *self._work]
            missed = len(self.pool.steer(fresh, wanted, fixed))
            if missed < fewest:
                fewest, nearest = missed, wanted
            if not missed:
                return
        self.pool.steer(fresh, nearest, fixed)

    def _record(self, found: _Record, kept: list[int], fresh: list[PoolMemory], sizes: list[int]
                ) -> None:
        """Record on this memory, with substitute buffers for results that are retained."""
        launches, found.launches = found.launches, None
        if launches is not None:
            self.driver.forget(launches)
        found.stand_ins |= {i: ArenaMemory(self.pool, sizes[i]) for i in kept}
        found.fresh = [piece.memory for piece in fresh]
        memory = [found.stand_ins[i].memory if i in found.stand_ins else m
                  for i, m in enumerate(found.fresh)]
        found.launches = self.driver.record(self._launches(found.key, memory, len(sizes)))
        self._recordable = found.launches is not None

    def _launches(self, given: Sequence[DeviceMemory], fresh: Sequence[DeviceMemory], outs: int
                  ) -> list[QueuedLaunch]:
        memory = {"in": given, "out": fresh[:outs], "arena": fresh[outs:]}
        return [QueuedLaunch(k.plan.kernel, k.plan.groups, k.plan.threads, tuple(
            [(memory[kind][index], offset) for kind, index, offset in k.places]), k.plan.scalars)
            for k in self.known]

    def _link(self, ins: int, outs: int) -> LinkedLaunches:
        """Link all launches with memory numbered: arguments, then results, then temporaries."""
        first = {"in": 0, "out": ins, "arena": ins + outs}
        return self.driver.link([PlacedLaunch(
            k.plan.kernel, k.plan.groups, k.plan.threads,
            tuple([(first[kind] + index, offset) for kind, index, offset in k.places]),
            k.plan.scalars) for k in self.known])

    def forget(self, memory: DeviceMemory) -> None:
        """Drop the records on this memory."""
        for found in [found for found in self.records.seen
                      if memory in found.key or memory in found.fresh]:
            self.records.drop(found)


def straight(commands: Commands, plans: Mapping[Command, LaunchFace], pool: GpuPool
             ) -> Straight | None:
    """Return the static launch list of commands.

    None for callbacks, conditions, loops of unknown length, and loops that are too long to unroll.
    """
    found: list[_KnownLaunch] = []
    return Straight(found, pool) if _written_out(commands, plans, {}, 0, found) else None


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
