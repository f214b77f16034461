"""Static command lists: no callbacks, no work of the host. All launches are known.

    EXEC a; CMD_LOOP 3 times: EXEC b    ->      a, b, b, b at (kind, index, offset)

Of a loop that may overrun (``kernel_args.CmdLoop``) a strip of iterations is such a list, with the
commands before it. Then the host reads the condition once, and queues more strips if it holds.

    EXEC a; CMD_LOOP while f: EXEC b; EXEC c     ->      a, 32 times b; read f;   c

Such commands are queued without interpreting them: they are linked once, on numbered memory, and
launched on that of each call. If a record on fixed memory is faster (``min_recorded``), they are
recorded once arguments come in the same memory again (long lists at once), and replayed from then
on. A bounded number of
records is cached, with least-recently-used eviction, and all records on freed memory are dropped.
Results are steered to the memory of a record if that is free. A small result that the caller
retains from call to call (the loss of each step) is written to a substitute buffer, from which it
is copied after the replay.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from fnx.backends.device.hcq import Command, Commands, QueuedLoop
from fnx.backends.gpu.driver import (
    DeviceMemory,
    HostBytes,
    LinkedLaunches,
    LoadedKernel,
    QueuedLaunch,
    QueueDriver,
    RecordedLaunches,
    bind_launch,
)
from fnx.backends.gpu.memory import SMALL_COPY, ArenaMemory, GpuPool, GpuStorage, PoolMemory
from fnx.core.ir import accessors
from fnx.core.ir.uop import UOp

MAX_RECORDS = 8       # cached per command buffer, and earlier calls whose result memory is tried
MAX_SUBSTITUTES = 4     # substitute buffers of a record
MAX_LAUNCHES = 1 << 14  # longest static launch list
MAX_STRIP_SECONDS = 0.3  # of a strip that may be followed by one of twice its length
LONG_LIST = 256  # launches from which on a list is recorded at once: to queue each takes longer

MemoryKey = tuple[DeviceMemory, ...]
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


class _LaunchRecord:
    """The memory of a call, and the launches recorded on it once it was seen twice.

    Attributes:
        key: memory of each argument.
        fresh: memory of each result, then of the arena.
        substitutes: other memory of results that callers retain, by their numbers.
        launches: the driver's record.
    """

    __slots__ = ("fresh", "key", "launches", "substitutes")

    def __init__(self, key: MemoryKey, fresh: list[DeviceMemory]) -> None:
        self.key, self.fresh = key, fresh
        self.substitutes: dict[int, ArenaMemory] = {}
        self.launches: RecordedLaunches | None = None


class LaunchRecords:
    """The driver's records of a launch list, which may outlive their owner."""

    def __init__(self, driver: QueueDriver) -> None:
        self.driver = driver
        self.lru_records: list[_LaunchRecord] = []  # least recently used first
        self.linked: LinkedLaunches | None = None

    def drop(self, record: _LaunchRecord) -> None:
        """Drop a record."""
        self.lru_records.remove(record)
        if record.launches is not None:
            self.driver.forget(record.launches)

    def end(self) -> None:
        """Drop all records."""
        for record in list(self.lru_records):
            self.drop(record)
        linked, self.linked = self.linked, None
        if linked is not None:
            self.driver.unlink(linked)


class StaticLaunchPlan:
    """A static launch list and its records."""

    def __init__(self, static_launches: list[_StaticLaunch], pool: GpuPool) -> None:
        self.static_launches, self.pool, self.driver = static_launches, pool, pool.driver
        self.records = LaunchRecords(self.driver)
        written = {(place[0], place[1]) for k in static_launches
                   for i, place in enumerate(k.places) if i in k.plan.written}
        self.written_ins, self.written_outs = [
            sorted(i for of, i in written if of == kind) for kind in ("in", "out")]
        self._last_arena: list[DeviceMemory] = []  # the arena of the previous call
        self._can_record = 0 < self.driver.min_recorded <= len(static_launches)

    def queue(self, ins: Sequence[GpuStorage], outs: Sequence[GpuStorage],
              arena: ArenaMemory | None, is_first: bool = True) -> None:
        """Queue all launches on this memory and start them. Results in donated memory stay there.

        Only the first list of a call may choose other memory for results.
        """
        for i in self.written_ins:
            ins[i].written()
        for i in self.written_outs:
            outs[i].written()
        arg_memory = [s.piece.memory if s.incoming is None else s.memory for s in ins]
        new_memory = [s.piece for s in outs]
        if arena is not None:
            new_memory.append(arena.piece)
        if self._can_record:
            fixed = {s.piece for s in ins}.union(() if is_first else new_memory)
            record = self._find_or_record(arg_memory, new_memory, fixed, [s.nbytes for s in outs],
                                          is_first)
            if record.launches is not None:
                self.driver.replay(record.launches)
                for i, substitute in record.substitutes.items():
                    self.driver.copy(substitute.memory, 0, new_memory[i].memory, 0, outs[i].nbytes)
                self.driver.submit()
                return
        if self.records.linked is None:
            self.records.linked = self.driver.link(self._launches(len(ins), len(outs)),
                                                   len(arg_memory) + len(new_memory))
        arg_memory += [piece.memory for piece in new_memory]
        self.driver.launch(self.records.linked, arg_memory)

    def _find_or_record(self, arg_memory: list[DeviceMemory], new_memory: list[PoolMemory],
            fixed: set[PoolMemory], sizes: list[int], is_first: bool) -> _LaunchRecord:
        """Return the record of this memory, with launches recorded if it was seen before."""
        key, records = tuple(arg_memory), self.records.lru_records
        history = self.pool.result_history(tuple(sizes), MAX_RECORDS)
        record, mismatches = self._find_match(key, new_memory, fixed, sizes,
                                              MAX_SUBSTITUTES if is_first else 0)
        if record is None:
            self._steer_to_earlier_call(new_memory, history, fixed)
            record = _LaunchRecord(key, [piece.memory for piece in new_memory])
            self._last_arena = record.fresh[len(sizes):]
            if len(self.static_launches) >= LONG_LIST:
                self._record(record, [], new_memory, sizes)
            if len(records) == MAX_RECORDS:
                self.records.drop(records[0])
        else:
            records.remove(record)
            retained = [i for i in mismatches if i not in record.substitutes]
            if record.launches is None or retained:
                self._record(record, retained, new_memory, sizes)
            if mismatches:  # lest a part of a state lies elsewhere at each call
                self._steer_results([new_memory[i] for i in mismatches], mismatches, history, fixed)
            for i in record.substitutes:
                record.fresh[i] = new_memory[i].memory
        records.append(record)
        history.append(record.fresh[:len(sizes)])
        return record

    def _find_match(self, key: MemoryKey, new_memory: list[PoolMemory], fixed: set[PoolMemory],
                    sizes: list[int], max_substitutes: int
                    ) -> tuple[_LaunchRecord | None, list[int]]:
        """Find the last memory seen with these arguments whose result memory is free now.

        Also return the results that differ from it, which have or may get substitute buffers.
        """
        for record in reversed(self.records.lru_records):
            if record.key != key:
                continue
            mismatches = self.pool.steer(new_memory, record.fresh, fixed)
            if len({*mismatches, *record.substitutes}) <= max_substitutes and all(
                    i < len(sizes) and sizes[i] <= SMALL_COPY for i in mismatches):
                return record, mismatches
        return None, []

    def _steer_results(self, blocks: list[PoolMemory], numbers: list[int],
                       history: deque[list[DeviceMemory]], fixed: set[PoolMemory]) -> None:
        """Steer these results to memory that they had in an earlier call, as far as that is free.

        Memory of a result that callers retain is not.
        """
        candidates = [[earlier[i] for i in numbers] for earlier in reversed(history)]
        remaining = list(range(len(blocks)))
        for wanted in self.pool.reachable(blocks, candidates):
            unmatched = self.pool.steer([blocks[i] for i in remaining],
                                        [wanted[i] for i in remaining], fixed)
            remaining = [remaining[i] for i in unmatched]
            if not remaining:
                return

    def _steer_to_earlier_call(self, new_memory: list[PoolMemory],
                               history: deque[list[DeviceMemory]], fixed: set[PoolMemory]) -> None:
        """Steer all results to the memory of the earlier call of which most is free.

        A state that is passed from call to call then alternates between few memory sets.
        """
        fewest_mismatches, best_match = len(new_memory) + 1, list[DeviceMemory]()
        for earlier in reversed(history):
            wanted = [*earlier, *self._last_arena]
            mismatches = len(self.pool.steer(new_memory, wanted, fixed))
            if mismatches < fewest_mismatches:
                fewest_mismatches, best_match = mismatches, wanted
            if not mismatches:
                return
        self.pool.steer(new_memory, best_match, fixed)

    def _record(self, record: _LaunchRecord, retained: list[int], new_memory: list[PoolMemory],
                sizes: list[int]
                ) -> None:
        """Record on this memory, with substitute buffers for results that are retained."""
        launches, record.launches = record.launches, None
        if launches is not None:
            self.driver.forget(launches)
        record.substitutes |= {i: ArenaMemory(self.pool, sizes[i]) for i in retained}
        record.fresh = [piece.memory for piece in new_memory]
        memory = [record.substitutes[i].memory if i in record.substitutes else m
                  for i, m in enumerate(record.fresh)]
        memory = [*record.key, *memory]
        record.launches = self.driver.record([
            bind_launch(launch, memory) for launch in self._launches(len(record.key), len(sizes))])

    def _launches(self, ins: int, outs: int) -> list[QueuedLaunch]:
        """Return all launches on numbered memory: arguments, then results, then temporaries."""
        first = {"in": 0, "out": ins, "arena": ins + outs}
        return [QueuedLaunch(k.plan.kernel, k.plan.groups, k.plan.threads, tuple(
            [(first[kind] + index, offset) for kind, index, offset in k.places]), k.plan.scalars,
            k.plan.sizes, k.plan.written, k.plan.command)
            for k in self.static_launches]

    def forget(self, memory: DeviceMemory) -> None:
        """Drop the records on this memory."""
        for record in [r for r in self.records.lru_records
                       if memory in r.key or memory in r.fresh]:
            self.records.drop(record)


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
        is_first = True
        for segment in self.segments:
            has_begun = False
            for strip in segment.strips(read):
                key = not has_begun, strip
                if key not in segment.plans:
                    segment.plans[key] = StaticLaunchPlan(
                        segment.before * key[0] + segment.step * strip, self.pool)
                    register(segment.plans[key])
                segment.plans[key].queue(ins, outs, arena, is_first)
                is_first, has_begun = False, True
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
