"""What memory a jitted call takes: ``f.memory(*args)``.

    print(f.memory(x))

    12.9 MB: 4.2 arguments, 4.2 results, 4.2 temporaries, 0.0 scratch, 0.3 rounding
             MB  commands  made by
           4.19    0 to 2  contract_tanh (model.py:12)

What is listed are the buffers between the kernels, in the memory of one call: those whose lives do
not overlap share their place, so together they may be more than the temporaries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from fnx.core import ops, parts
from fnx.core.array.aval import Aval
from fnx.core.errors import Site, labelled
from fnx.core.record import Record
from fnx.core.uop import UOp
from fnx.transforms.replay.executable import Executable


class LivingBuffer(Record):
    """A buffer between kernels.

    Attributes:
        nbytes: its size.
        offset: its place in the memory of the call.
        first, last: numbers of the commands that use it first and last.
        name: of the kernel that makes it.
        sites: the user's lines that it is of.
    """

    nbytes: int
    offset: int
    first: int
    last: int
    name: str
    sites: tuple[Site, ...]


class MemoryUse(Record):
    """Bytes of one call.

    Attributes:
        arguments: arrays that are given, or captured.
        results: arrays that are made; one that is written over a donated argument is none.
        temporaries: what is there while the call runs, and free afterwards.
        scratch: what workers keep for themselves, of all calls together.
        rounding: what blocks of memory are larger than what is asked for; small ones share slabs,
            which other calls use, too.
        aliased: results that are written over donated arguments.
        buffers: what the temporaries are, in the order they are made.
    """

    arguments: int
    results: int
    temporaries: int
    scratch: int
    buffers: tuple[LivingBuffer, ...]
    rounding: int = 0
    aliased: int = 0

    @property
    def argument_size_in_bytes(self) -> int:
        """The arguments, under the name that JAX has for it; so are the next four."""
        return self.arguments

    @property
    def output_size_in_bytes(self) -> int:
        """All results."""
        return self.results + self.aliased

    @property
    def alias_size_in_bytes(self) -> int:
        """Results that are written over donated arguments."""
        return self.aliased

    @property
    def temp_size_in_bytes(self) -> int:
        """What is there while the call runs."""
        return self.temporaries + self.scratch

    @property
    def generated_code_size_in_bytes(self) -> int:
        """Machine code is not counted: 0, as JAX has it on the CPU."""
        return 0

    @property
    def total(self) -> int:
        """Bytes that are held of the system at once, at most, if nothing else is."""
        return self.arguments + self.results + self.temporaries + self.scratch + self.rounding

    @property
    def lines(self) -> dict[str, int]:
        """Bytes of the buffers that each of the user's lines makes, the largest first."""
        sums: dict[str, int] = {}
        for buffer in self.buffers:
            line = labelled("", buffer.sites[:1]).strip(" ()") or "?"
            sums[line] = sums.get(line, 0) + buffer.nbytes
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def __repr__(self) -> str:
        def mb(nbytes: int) -> str:
            return f"{nbytes / 1e6:,.2f}"

        head = f"{mb(self.total)} MB: {mb(self.arguments)} arguments, {mb(self.results)} " \
               f"results, {mb(self.temporaries)} temporaries, {mb(self.scratch)} scratch, " \
               f"{mb(self.rounding)} rounding"
        if not self.buffers:
            return head
        rows = [f"{mb(b.nbytes):>10}  {b.first:>4} to {b.last:<4} {labelled(b.name, b.sites)}"
                for b in sorted(self.buffers, key=lambda b: -b.nbytes)]
        return "\n".join([head, f"{'MB':>10}  {'commands':>12} made by", *rows])


class Measured(Protocol):
    """What a command buffer says of its memory."""

    @property
    def temporary(self) -> int: ...
    @property
    def scratch(self) -> int: ...


def of_call(executable: Executable, arguments: Sequence[Aval], captured: Sequence[Any]
            ) -> MemoryUse:
    """Bytes of a call of a program on arguments, and on memory that its function closes over."""
    given = [dtype.itemsize * math.prod(shape) for shape, dtype, _ in arguments]
    given += [memory.nbytes for memory in captured if memory is not None]
    made = [nbytes for i, nbytes in enumerate(executable.sizes) if i not in dict(executable.over)]
    over = sum([given[slot] for _, slot in executable.over])
    return memory_use(executable.block.commands, executable.buffer, given, made, over,
                      executable.device.held)


def memory_use(commands: UOp, buffer: Measured, arguments: Sequence[int], results: Sequence[int],
               aliased: int, held: Callable[[Iterable[int]], int]) -> MemoryUse:
    """The memory of COMMANDS with arguments and results of so many bytes, and ``aliased`` ones
    over arguments; ``held`` says what is held of the system for memory of some sizes."""
    sizes = [*arguments, *results, buffer.temporary, buffer.scratch]
    return MemoryUse(sum(arguments), sum(results), buffer.temporary, buffer.scratch,
                     tuple(_buffers(commands)), held(sizes) - sum(sizes), aliased)


def _buffers(commands: UOp) -> list[LivingBuffer]:
    """What lives in the arena; what a LOOP uses lives for as long as it runs."""
    found: dict[tuple[int, int], LivingBuffer] = {}
    open_at: dict[tuple[int, int], int] = {}
    out: list[LivingBuffer] = []
    for number, top in enumerate(commands.src):
        for run in parts.executions(top):
            memory = [s for s in run.src[1:] if s.op is not ops.CONST]
            written = parts.written_slots(run.src[0])
            for i, place in enumerate(memory):
                for slot in parts.slots(place):
                    if slot.kind != "arena":
                        continue
                    key = slot.offset, slot.nbytes
                    before = found.get(key)
                    if before is None or i in written and open_at[key] < number and \
                            not _reads(memory, written, slot):
                        if before is not None:
                            out.append(before)
                        found[key] = LivingBuffer(slot.nbytes, slot.offset, number, number,
                                                  run.arg.name, run.arg.sites)
                    else:
                        found[key] = before.replace(last=number)
                    open_at[key] = number
    return sorted([*out, *found.values()], key=lambda b: (b.first, b.offset))


def _reads(memory: Sequence[UOp], written: set[int], slot: Any) -> bool:
    """Whether a command also reads a place that it writes."""
    return any((s.offset, s.nbytes) == (slot.offset, slot.nbytes)
               for i, place in enumerate(memory) if i not in written for s in parts.slots(place))
