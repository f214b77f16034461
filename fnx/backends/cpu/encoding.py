"""Encoding of commands into the words that the native loop interprets (defined in layout.py).

    CMD_LOOP 5: f(x[12*i]) -> y          CMD_LOOP  register, trips 5, moves (x), behind
                                         EXEC  f
                                         NEXT  register, trips 5, moves (x), back to EXEC

Loops and branches become jumps between records. A slot whose address depends on the iteration of a
loop is a *move* of the innermost such loop, which recomputes the pointer at the start of each
iteration.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from fnx.backends.cpu import layout
from fnx.backends.device.hcq import (
    AnyCommand,
    Command,
    Commands,
    QueuedBranch,
    QueuedLoop,
    to_signed,
)
from fnx.core.ir import accessors, kernel_args, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.record import Record

UNBOUNDED = (1 << 63) - 1  # trips of a loop with a condition


class LaunchPlan(Protocol):
    """The launch plan of a kernel."""

    kernel: Any
    iterations: int
    chunk: int
    chunks: int
    short: int


def _wakes_workers(plan: LaunchPlan) -> bool:
    """Whether a kernel is shared among all workers, also if they sleep."""
    return plan.chunks > 1 and not plan.short


class RecordInfo(Record):
    """Description of a record, for faults and profiles: its name, the enclosing loops with their
    registers, and its command.
    """

    name: str
    loops: tuple[tuple[str, int], ...]
    command: Command | None = None


class EncodedProgram(Record):
    """Encoded commands.

    Attributes:
        memory: the words; ``address`` is their address.
        words: size of the block that a call acquires.
        places: descriptions of the records.
    """

    memory: Any
    address: int
    words: int
    places: tuple[RecordInfo, ...]


class _OpenLoop(Record):
    """A loop that is being encoded: its name, its register, and the slots that depend on it, by
    the words that say how their pointer moves."""

    name: str
    register: int
    moves: dict[tuple[int, ...], list[int]]

    def words(self) -> list[int]:
        """Return its moves, as layout.py defines them."""
        return [word for (swaps, *how), slots in self.moves.items()
                for word in (len(slots), swaps, *slots, *how)]


class Encoder:
    """Numbers arguments and slots, and writes records.

    Args:
        plans: launch plans of the EXECs.
        ins, outs: number of arguments of a call.
    """

    def __init__(self, plans: Mapping[Command, LaunchPlan], ins: int, outs: int) -> None:
        self.plans = plans
        self.base = {"arena": layout.ARENA, "in": layout.ARGUMENTS,
                     "out": layout.ARGUMENTS + ins}
        self.registers = layout.ARGUMENTS + ins + outs
        self.depth = 0
        self.table: list[int] = []
        self.records: list[list[int]] = []
        self.scalars: list[int] = []
        self.places: list[RecordInfo] = []
        self.jumps: list[list[int]] = []
        self.open: list[_OpenLoop] = []
        self.closed_loops: dict[int, _OpenLoop] = {}  # the last loop at each depth
        self.record_moves: list[tuple[int, _OpenLoop]] = []  # (record, its loop)
        self.branch_starts: list[tuple[int, list[int]]] = []  # (record, start of each branch)

    def encode(self, commands: Commands) -> EncodedProgram:
        """Encode commands as a program."""
        self.depth = _depth(commands)
        self._commands(commands)
        return self._assemble()

    # ---- records

    def _record(self, name: str, *words: int, command: Command | None = None) -> int:
        self.records.append([*words, *[0] * (layout.RECORD_WORDS - len(words))])
        self.places.append(RecordInfo(name, tuple([(o.name, o.register) for o in self.open]),
                                      command))
        return len(self.records) - 1

    def _commands(self, commands: Sequence[AnyCommand]) -> None:
        for command, following in itertools.zip_longest(commands, commands[1:]):
            if isinstance(command, Command):
                self._execute(command, isinstance(following, Command) and
                              _wakes_workers(self.plans[following]))
            elif isinstance(command, QueuedLoop):
                self._loop(command)
            else:
                self._branch(command)

    def _execute(self, command: Command, workers_wake: bool) -> None:
        """Encode a command. If the next one wakes workers, this one may as well do so."""
        plan = self.plans[command]
        first = len(self.table) // 2
        for slot in command.slots:
            self._slot(slot)
        self._record(f"kernel {command.name}", layout.EXEC, plan.kernel.address, first,
                     8 * len(self.scalars), plan.iterations, plan.chunk, plan.chunks,
                     0 if workers_wake else plan.short, command=command)
        self.scalars += [to_signed(s) for s in command.scalars]

    def _loop(self, loop: QueuedLoop) -> None:
        trips = UNBOUNDED if loop.trips is None else loop.trips
        depth = len(self.open)
        opened = _OpenLoop(loop.name, self.registers + depth, {})
        start = self._record(f"loop {loop.name}", layout.LOOP, opened.register, trips)
        self.open.append(opened)
        test = None
        if loop.flag is not None:
            self._commands(loop.test)
            test = self._record("the condition", layout.TEST, self._slot(loop.flag))
        self._commands(loop.body)
        end = self._record("the end", layout.NEXT, opened.register, trips, 0, 0, start + 1)
        self.open.pop()
        self.closed_loops[depth] = opened
        self.record_moves += [(start, opened), (end, opened)]
        self.records[start][layout.TARGET] = end + 1
        if test is not None:
            self.records[test][layout.TARGET] = end + 1

    def _branch(self, branch: QueuedBranch) -> None:
        choose = self._record(f"branch {branch.name}", layout.SWITCH,
                              self._slot(branch.branch_index), len(branch.branches))
        starts: list[int] = []
        ends: list[int] = []
        for commands in branch.branches:
            starts.append(len(self.records))
            self._commands(commands)
            ends.append(self._record(f"branch {branch.name}", layout.JUMP))
        for end in ends:
            self.records[end][layout.TARGET] = len(self.records)
        self.branch_starts.append((choose, starts))

    # ---- slots

    def _slot(self, memory: UOp) -> int:
        """Assign a number to a pointer, which is resolved at the start or moves with a loop."""
        number = len(self.table) // 2
        swaps = sorted({n.arg for n in toposort([memory]) if n.op is ops.SWAP})
        leaves = [accessors.resolve_slot(memory, dict(zip(swaps, reversed(odd))))
                  for odd in itertools.product((0, 1), repeat=len(swaps))]
        self.table += self._slot_words(leaves[0])
        loop_depths = [*swaps, *[len(leaf.strides) - 1 for leaf in leaves if leaf.strides]]
        if loop_depths:
            depth = max(loop_depths)
            loop = self.open[depth] if depth < len(self.open) else self.closed_loops[depth]
            loop.moves.setdefault(self._move(swaps, leaves), []).append(number)
        return number

    def _slot_words(self, slot: kernel_args.Slot) -> list[int]:
        return [self.base[slot.kind] + (0 if slot.kind == "arena" else slot.index), slot.offset]

    def _move(self, swaps: list[int], leaves: list[kernel_args.Slot]) -> tuple[int, ...]:
        words = [len(swaps), *[self.registers + d for d in swaps]]
        for leaf in leaves:
            terms = [(self.registers + d, s) for d, s in enumerate(leaf.strides) if s]
            words += [*self._slot_words(leaf), len(terms), *itertools.chain(*terms)]
            words += [0] * (2 * (self.depth - len(terms)))
        return tuple(words)

    # ---- words

    def _assemble(self) -> EncodedProgram:
        records = list(itertools.chain(*self.records))
        lists = list(itertools.chain(*[loop.words() for _, loop in self.record_moves]))
        starts = list(itertools.chain(*[starts for _, starts in self.branch_starts]))
        areas = [self.table, records, self.scalars, lists, starts]
        sizes = itertools.accumulate([layout.PROGRAM_WORDS, *map(len, areas)])
        memory = (ctypes.c_int64 * (layout.PROGRAM_WORDS + sum(map(len, areas))))()
        address = ctypes.addressof(memory)
        table, first, scalars, moves, choices, _ = [address + 8 * n for n in sizes]
        for i, record in enumerate(self.records):
            if record[0] == layout.EXEC:
                records[i * layout.RECORD_WORDS + layout.SCALARS] += scalars
        for i, loop in self.record_moves:
            start = i * layout.RECORD_WORDS
            records[start + layout.MOVES:start + layout.MOVES + 2] = [moves, len(loop.moves)]
            moves += 8 * len(loop.words())
        for i, jumps in self.branch_starts:
            records[i * layout.RECORD_WORDS + layout.TARGET] = choices
            choices += 8 * len(jumps)
        resolved = self.registers + self.depth
        memory[:] = [len(self.records), len(self.table) // 2, table, first, resolved, self.depth,
                     *self.table, *records, *self.scalars, *lists, *starts]
        return EncodedProgram(memory, address, resolved + len(self.table) // 2, tuple(self.places))



def _depth(commands: Commands) -> int:
    """Return the number of loops around the innermost command."""
    depths = [0]
    for c in commands:
        if isinstance(c, QueuedLoop):
            depths.append(1 + max(_depth(c.body), _depth(c.test)))
        elif isinstance(c, QueuedBranch):
            depths += map(_depth, c.branches)
    return max(depths)
