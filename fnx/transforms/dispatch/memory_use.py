"""The memory that a jitted call takes: ``f.memory(*args)``.

    print(f.memory(x))

    12.9 MB: 4.2 arguments, 4.2 results, 4.2 temporaries, 0.0 scratch, 0.3 rounding
             MB  commands  made by
           4.19    0 to 2  contract_tanh (model.py:12)

The table lists the buffers between kernels, in the memory of one call. Buffers whose lifetimes do
not overlap share memory, so they may sum to more than the temporaries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from fnx.core.array.aval import Aval
from fnx.core.ir import accessors, ops
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import Location, kernel_label
from fnx.core.support.record import Record
from fnx.transforms.dispatch.executable import Executable


class LivingBuffer(Record):
    """A buffer between kernels, with its live range.

    Attributes:
        nbytes: its size.
        offset: its offset in the arena of the call.
        first, last: the numbers of the first and the last command that use it.
        name: the name of the kernel that writes it.
        locs: the user's lines that it belongs to.
    """

    nbytes: int
    offset: int
    first: int
    last: int
    name: str
    locs: tuple[Location, ...]


class MemoryUse(Record):
    """The bytes that one call uses.

    Attributes:
        arguments: arrays passed or captured.
        results: newly allocated results, without those in the memory of a donated argument.
        temporaries: memory used while the call runs, and free afterwards.
        scratch: memory of the workers, shared by all calls.
        rounding: the excess of allocated blocks over the requested sizes; small blocks share
            slabs, which other calls use, too.
        aliased: results in the memory of donated arguments.
        buffers: the buffers that make up the temporaries, in the order they are written.
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
        """The arguments. This and the next four properties have the names of JAX."""
        return self.arguments

    @property
    def output_size_in_bytes(self) -> int:
        """All results, aliased ones included."""
        return self.results + self.aliased

    @property
    def alias_size_in_bytes(self) -> int:
        """Results in the memory of donated arguments."""
        return self.aliased

    @property
    def temp_size_in_bytes(self) -> int:
        """Temporaries and scratch."""
        return self.temporaries + self.scratch

    @property
    def generated_code_size_in_bytes(self) -> int:
        """Machine code is not counted: 0, as JAX has it on the CPU."""
        return 0

    @property
    def total(self) -> int:
        """The peak bytes allocated from the system by this call alone."""
        return self.arguments + self.results + self.temporaries + self.scratch + self.rounding

    @property
    def lines(self) -> dict[str, int]:
        """The bytes of the buffers that the kernels of each of the user's lines write, largest
        first."""
        sums: dict[str, int] = {}
        for buffer in self.buffers:
            line = kernel_label("", buffer.locs[:1]).strip(" ()") or "?"
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
        rows = [f"{mb(b.nbytes):>10}  {b.first:>4} to {b.last:<4} {kernel_label(b.name, b.locs)}"
                for b in sorted(self.buffers, key=lambda b: -b.nbytes)]
        return "\n".join([head, f"{'MB':>10}  {'commands':>12} made by", *rows])


class MemorySizes(Protocol):
    """The memory sizes of a command buffer."""

    @property
    def temporary_bytes(self) -> int: ...
    @property
    def scratch(self) -> int: ...


def memory_use_of_call(executable: Executable, arguments: Sequence[Aval], captured: Sequence[Any]
                       ) -> MemoryUse:
    """Return the memory use of a call of a program, given its arguments and captured memory."""
    arg_sizes = [dtype.itemsize * math.prod(shape) for shape, dtype, _ in arguments]
    arg_sizes += [memory.nbytes for memory in captured if memory is not None]
    result_sizes = [nbytes for i, nbytes in enumerate(executable.sizes)
                    if i not in dict(executable.over)]
    aliased = sum([arg_sizes[slot] for _, slot in executable.over])
    return memory_use(executable.block.commands, executable.buffer, arg_sizes, result_sizes,
                      aliased, executable.device.held)


def memory_use(commands: UOp, buffer: MemorySizes, arguments: Sequence[int], results: Sequence[int],
               aliased: int, held: Callable[[Iterable[int]], int]) -> MemoryUse:
    """Return the memory use of COMMANDS, given the bytes of arguments and results.

    ``aliased`` are the bytes of results in the memory of arguments. ``held`` returns the bytes
    that the allocator takes from the system for blocks of some sizes.
    """
    sizes = [*arguments, *results, buffer.temporary_bytes, buffer.scratch]
    return MemoryUse(sum(arguments), sum(results), buffer.temporary_bytes, buffer.scratch,
                     tuple(arena_buffers(commands)), held(sizes) - sum(sizes), aliased)


def arena_buffers(commands: UOp) -> list[LivingBuffer]:
    """Return the buffers in the arena; one used in a CMD_LOOP is live for the whole loop."""
    live: dict[tuple[int, int], LivingBuffer] = {}
    last_command: dict[tuple[int, int], int] = {}
    out: list[LivingBuffer] = []
    for number, top in enumerate(commands.src):
        for run in accessors.all_execs(top):
            memory = [s for s in run.src[1:] if s.op is not ops.CONST]
            written = accessors.written_slots(run.src[0])
            for i, operand in enumerate(memory):
                for slot in accessors.possible_slots(operand):
                    if slot.kind != "arena":
                        continue
                    key = slot.offset, slot.nbytes
                    buffer = live.get(key)
                    if buffer is None or i in written and last_command[key] < number and \
                            not _also_reads(memory, written, slot):
                        if buffer is not None:
                            out.append(buffer)
                        live[key] = LivingBuffer(slot.nbytes, slot.offset, number, number,
                                                 run.arg.name, run.arg.locs)
                    else:
                        live[key] = buffer.replace(last=number)
                    last_command[key] = number
    return sorted([*out, *live.values()], key=lambda b: (b.first, b.offset))


def _also_reads(memory: Sequence[UOp], written: set[int], slot: Any) -> bool:
    """Whether a command also reads the slot that it writes."""
    return any((s.offset, s.nbytes) == (slot.offset, slot.nbytes)
               for i, x in enumerate(memory) if i not in written
               for s in accessors.possible_slots(x))
