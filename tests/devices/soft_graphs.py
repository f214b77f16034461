"""Random commands on the queues of soft devices, compared with NumPy, which runs them in order.

A command mixes what it reads into what it writes, and nothing is overwritten that nobody has read:
so each order that differs from the program's changes a result.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from fnx.backends import soft
from fnx.backends.device.queues import MemoryCommand, QueueGroup, ScheduledCommand
from fnx.backends.gpu.driver import QueuedLaunch
from fnx.core.support.config import override

CELL = 16  # numbers of the smallest range
CELLS = 10  # of a memory
LIMIT = 5.0  # seconds that a graph may take

# o[i] = 3 * x[i] + 5 * o[i] + k
MIX = """define void @mix(ptr %b, ptr %s, i64 %lo, i64 %hi, ptr %scratch) {
entry:
  %x = load ptr, ptr %b
  %q = getelementptr ptr, ptr %b, i64 1
  %o = load ptr, ptr %q
  %k64 = load i64, ptr %s
  %k = trunc i64 %k64 to i32
  br label %loop
loop:
  %i = phi i64 [ %lo, %entry ], [ %i1, %loop ]
  %px = getelementptr i32, ptr %x, i64 %i
  %po = getelementptr i32, ptr %o, i64 %i
  %v = load i32, ptr %px
  %w = load i32, ptr %po
  %v3 = mul i32 %v, 3
  %w5 = mul i32 %w, 5
  %sum = add i32 %v3, %w5
  %r = add i32 %sum, %k
  store i32 %r, ptr %po
  %i1 = add i64 %i, 1
  %c = icmp slt i64 %i1, %hi
  br i1 %c, label %loop, label %exit
exit:
  ret void
}
"""
Change = Callable[[list[ScheduledCommand]], list[ScheduledCommand]]


class PlantedGroup(QueueGroup):
    """Queues whose schedule a test changes."""

    change: Change | None = None
    forget_reads = -1  # the number of a command whose reads the pass does not see

    def __init__(self) -> None:
        super().__init__()
        self.scheduled: list[ScheduledCommand] = []
        self.runs = True  # whether the queues get the commands

    def schedule(self, commands: list[MemoryCommand]) -> list[ScheduledCommand]:
        hidden = [command.replace(reads=()) if i == self.forget_reads else command
                  for i, command in enumerate(commands, len(self.scheduled))]
        scheduled = [step.replace(command=command)
                     for step, command in zip(super().schedule(hidden), commands)]
        if self.change is not None:
            scheduled = self.change(scheduled)
        self.scheduled += scheduled
        return scheduled if self.runs else []


class Graph:
    """The commands of a seed, on some devices that share their signals."""

    def __init__(self, seed: int, devices: int = 1, length: int = 24) -> None:
        self.random, self.length = random.Random(seed), length
        self.group, bell = PlantedGroup(), threading.Condition()
        self.drivers = [soft.SoftDriver(f"{i} " if devices > 1 else "", self.group, bell)
                        for i in range(devices)]
        self.names = [name for driver in self.drivers for name in driver.queues]
        self.kernel = self.drivers[0].load({"mix": MIX})["mix"]
        self.memory = [self.drivers[0].alloc(4 * CELL * CELLS) for _ in range(2)]
        self.model = np.random.default_rng(seed).integers(
            1 << 30, size=(len(self.memory), CELL * CELLS), dtype=np.int32)
        for address, content in zip(self.memory, self.model):
            self._host(address)[:] = content
        self.unread: set[tuple[int, int]] = set()
        self.results: list[tuple[Any, np.ndarray[Any, Any]]] = []

    def _host(self, address: int) -> np.ndarray[Any, Any]:
        return self.drivers[0]._blocks[address].view(np.int32)

    def disturb(self, seed: int, pause: float = 4e-4) -> None:
        """Let one queue be slow, and take packets in an order of the seed."""
        slow = self.names[seed % len(self.names)]
        for driver in self.drivers:
            driver.disturb(soft.Disturbance(seed, {
                name: pause if name == slow else pause / 50 for name in self.names}))

    def run(self) -> bool:
        """Run the commands; return whether memory and all that was fetched are as they must be."""
        try:
            with override(time_limit=LIMIT):
                for _ in range(self.length):
                    self._command()
                for driver in self.drivers:
                    driver.wait(driver.signal())
                equal = [np.array_equal(self._host(a), m) for a, m in zip(self.memory, self.model)]
                for fetched, want in self.results:
                    equal.append(np.array_equal(fetched.content().view(np.int32), want))
                    fetched.release()
            return all(equal)
        finally:
            for driver in self.drivers:
                driver.close()

    def is_unordered(self) -> bool:
        """Whether commands on the same memory are unordered; nothing is run."""
        self.group.runs = False
        for _ in range(self.length):
            self._command()
        self.group.submit()
        for driver in self.drivers:
            driver.close()
        return bool(unordered(self.group.scheduled))

    # ---- commands

    def _part(self, count: int) -> tuple[int, int, slice]:
        """Return a memory, the number of a cell, and a slice of ``count`` cells from there on."""
        cell = self.random.randrange(CELLS - count + 1)
        return (self.random.randrange(len(self.memory)), cell,
                slice(cell * CELL, (cell + count) * CELL))

    def _cells(self, part: tuple[int, int, slice], count: int) -> set[tuple[int, int]]:
        return {(part[0], part[1] + i) for i in range(count)}

    def _command(self) -> None:
        driver = self.random.choice(self.drivers)
        count = self.random.randint(1, 3)
        source, to = self._part(count), self._part(count)
        if self._cells(source, count) & self._cells(to, count):
            return
        kind = self.random.choice(["mix", "mix", "mix", "copy", "write", "fetch"])
        if kind in ("copy", "write") and self._cells(to, count) & self.unread:
            kind = "mix"
        getattr(self, f"_{kind}")(driver, source, to, count)
        if self.random.random() < 0.3:
            driver.submit()

    def _mix(self, driver: Any, source: Any, to: Any, count: int) -> None:
        k = self.random.randrange(1 << 20)
        nbytes = 4 * CELL * count
        driver.exec(QueuedLaunch(
            self.kernel, CELL * count, 0,
            tuple([(self.memory[m], 4 * part.start) for m, _, part in (source, to)]), (k,),
            (nbytes, nbytes), frozenset({1})))
        x, o = self.model[source[0], source[2]], self.model[to[0], to[2]]
        o[:] = 3 * x + 5 * o + np.int32(k)
        self._read(source, count)
        self.unread |= self._cells(to, count)

    def _copy(self, driver: Any, source: Any, to: Any, count: int) -> None:
        driver.copy(self.memory[source[0]], 4 * source[2].start, self.memory[to[0]],
                    4 * to[2].start, 4 * CELL * count)
        self.model[to[0], to[2]] = self.model[source[0], source[2]]
        self._read(source, count)
        self.unread |= self._cells(to, count)

    def _write(self, driver: Any, source: Any, to: Any, count: int) -> None:
        value = np.array([self.random.randrange(1 << 30) for _ in range(CELL * count)], np.int32)
        driver.write(self.memory[to[0]], 4 * to[2].start, value.view(np.uint8))
        self.model[to[0], to[2]] = value
        self.unread |= self._cells(to, count)

    def _fetch(self, driver: Any, source: Any, to: Any, count: int) -> None:
        self.results.append((driver.fetch(self.memory[source[0]], 4 * source[2].start,
                                          4 * CELL * count),
                             self.model[source[0], source[2]].copy()))
        self._read(source, count)

    def _read(self, part: Any, count: int) -> None:
        self.unread -= self._cells(part, count)


def check_graph(seed: int) -> str:
    """Run the graph of a seed; raise if a result is wrong."""
    graph = Graph(seed, devices=1 + seed % 2)
    graph.disturb(seed)
    assert graph.run(), f"seed {seed}: a result differs from that of sequential execution"
    return f"{1 + seed % 2} devices"


# ---- planted faults


def unordered(scheduled: list[ScheduledCommand]) -> list[tuple[int, int]]:
    """Return the pairs of commands that use the same memory, one of them writing, and that their
    waits and signals do not order."""
    before: list[set[int]] = []  # for each command those that are done before it begins
    fences: dict[str, set[int]] = {}  # what is done before the next command of a queue begins
    queued: dict[str, set[int]] = {}  # what is done at the next signal of a queue
    signals: dict[str, list[tuple[int, set[int]]]] = {}
    out = []
    for j, step in enumerate(scheduled):
        queue, command = step.command.queue, step.command
        for other, value in step.waits:
            fences.setdefault(queue, set()).update(next(
                (done for reached, done in signals.get(other, ()) if reached >= value), ()))
        before.append(set(fences.get(queue, ())))
        queued.setdefault(queue, set()).update(before[j] | {j})
        if step.signal:
            signals.setdefault(queue, []).append((step.signal, set(queued[queue])))
        for i in set(range(j)) - before[j]:
            earlier = scheduled[i].command
            if any(a.memory == b.memory and a.start < b.stop and b.start < a.stop
                   for old, new in ((earlier.writes, (*command.reads, *command.writes)),
                                    (earlier.reads, command.writes)) for a in old for b in new):
                out.append((i, j))
    return out


def drop_wait(which: int) -> Change:
    """Drop a wait."""
    return _change_wait(which, lambda wait: ())


def lower_wait(which: int) -> Change:
    """Wait for a signal that is too low by one."""
    return _change_wait(which, lambda wait: ((wait[0], wait[1] - 1),))


def _change_wait(which: int, new: Callable[[tuple[str, int]], tuple[tuple[str, int], ...]]
                 ) -> Change:
    numbers = iter(range(1 << 30))

    def change(scheduled: list[ScheduledCommand]) -> list[ScheduledCommand]:
        return [step.replace(waits=tuple([
            w for wait in step.waits for w in (new(wait) if next(numbers) == which else (wait,))]))
            for step in scheduled]
    return change


def planted_faults(seed: int) -> list[tuple[str, Callable[[Graph], None]]]:
    """Return a fault of each kind that leaves commands of the graph of a seed unordered."""
    order = list(range(200))
    random.Random(seed).shuffle(order)

    def drop(which: int) -> Callable[[Graph], None]:
        return lambda graph: setattr(graph.group, "change", drop_wait(which))

    def lower(which: int) -> Callable[[Graph], None]:
        return lambda graph: setattr(graph.group, "change", lower_wait(which))

    def forget(which: int) -> Callable[[Graph], None]:
        return lambda graph: setattr(graph.group, "forget_reads", which)
    out = []
    for name, plant in (("a wait dropped", drop), ("a signal too low", lower),
                        ("a slot reused early", forget)):
        for which in order:
            graph = Graph(seed)
            plant(which)(graph)
            if graph.is_unordered():
                out.append((name, plant(which)))
                break
    return out


def is_detected(plant: Callable[[Graph], None], seed: int, tries: int = 100) -> bool:
    """Whether a fault that ``plant`` puts into a graph changes a result, in one of some orders."""
    for order in range(tries):
        graph = Graph(seed)
        plant(graph)
        graph.disturb(order, 2e-3)
        if not graph.run():
            return True
    return False
