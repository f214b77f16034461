"""Induction variables: a LOOP that becomes a kernel reads its counter, not an array of 0, 1, 2 ...

    before  iota() -> arena[0:1600];  LOOP 400: f(arena[0 + 4*i:+4])
    after   iota() -> arena[0:1600];  LOOP 400: f(numbers[0 + 4*i:+4])

A SCAN over an iota (fori_loop) loads the number of each step from memory, so a compiler does not
know that it is one of 0 .. 399: indices computed from it are compared with 0, wrapped and clamped.
The SLOT "numbers" stands for memory whose word k is the int32 k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core import build, dtypes, op_args, ops, parts
from fnx.core.build_commands import commands, slot
from fnx.core.record import Record
from fnx.core.rewriting import symbolic
from fnx.core.uop import UOp, toposort
from fnx.lower.loops.loop_memory import span_of, uses

_SIZE = 4  # bytes of an int32


class _Count(Record):
    """A part of the arena that counts up: its first word is the number ``first``."""

    first: int
    low: int
    high: int


Counts = tuple[_Count, ...]


def with_numbers(before: Sequence[UOp], node: UOp, depth: int) -> UOp:
    """Rewrite a LOOP inside ``depth`` others so that its kernels read numbers.

    Args:
        before: the commands before it, in the same sequence.
        node: the LOOP; its carries have one buffer each.
        depth: number of loops around it.
    """
    return _WithNumbers(depth).run([*before, node], (), (1,) * depth)[-1]


class _WithNumbers:
    """Walks commands in order, tracking which arena parts hold counts."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def run(self, given: Sequence[UOp], counts: Counts, trips: tuple[int, ...]) -> list[UOp]:
        """Rewrite commands to read numbers."""
        made: list[UOp] = []
        for command in given:
            after = self.after(command, counts, trips)
            if command.op is ops.EXEC:
                made.append(self.execution(command, counts, trips))
            else:  # at the start of a step, the writes of the previous step are visible
                inner = (*trips, command.arg.trips or 1) if command.op is ops.LOOP else trips
                made.append(command.over(tuple([
                    s.over(tuple(self.run(s.src, after, inner))) if s.op is ops.COMMANDS else s
                    for s in command.src])))
            counts = after
        return made

    def after(self, command: UOp, counts: Counts, trips: tuple[int, ...]) -> Counts:
        """Return the counts that hold after a command."""
        for memory, written, inner in uses(commands([command]), trips):
            for arg in parts.slots(memory) if written else ():
                low, high = span_of(arg, self.depth, inner)
                counts = tuple([c for c in counts if arg.kind != "arena"
                                or not any(arg.strides[:self.depth])
                                and (high <= c.low or c.high <= low)])
        found = _count(command) if command.op is ops.EXEC else None
        return counts if found is None else (*counts, found)

    def execution(self, node: UOp, counts: Counts, trips: tuple[int, ...]) -> UOp:
        kernel, *operands = node.src
        if not counts or kernel.op is not ops.KERNEL:
            return node
        written = parts.written_slots(kernel)
        for i, memory in enumerate(operands):
            if memory.op is not ops.SLOT or memory.arg.kind != "arena" or i in written or \
                    any(memory.arg.strides[:self.depth]):
                continue
            arg = memory.arg
            low, high = span_of(arg, self.depth, trips)
            for c in counts:
                if c.low <= low and high <= c.high and _reads_numbers(kernel, i):
                    offset = arg.offset - c.low + _SIZE * c.first
                    operands[i] = slot("numbers", 0, offset, arg.nbytes, arg.strides)
        return node.over((kernel, *operands))


def _reads_numbers(kernel: UOp, i: int) -> bool:
    """Whether a KERNEL reads an operand as one int32 at a time."""
    refs = [n for n in toposort([kernel]) if n.op is ops.REF and n.arg.slot == i]
    loads = [n for n in toposort([kernel]) if n.op is ops.LOAD and parts.buffer(n) in refs]
    return all(r.dtype is dtypes.int32 for r in refs) and all(
        len(n.src) == 1 and all(r.arg.kind != "VEC" for r in n.ranges) for n in loads)


def _count(node: UOp) -> _Count | None:
    """Return the count that an EXEC writes, if it writes n, n + 1, ... with n >= 0 and nothing
    else."""
    kernel, *operands = node.src
    if kernel.op is not ops.KERNEL or len(kernel.src) != 1:
        return None
    store, = kernel.src
    value, first, slots = parts.value(store), 0, [s for s in operands if s.op is not ops.CONST]
    if value.op is ops.ADD and value.src[1].op is ops.CONST:
        value, first = value.src[0], build.const_of(value.src[1])
    memory = slots[parts.buffer(store).arg.slot]
    if store.arg is not None or value.op is not ops.CAST or value.dtype is not dtypes.int32 or \
            value.src[0].dtype is not dtypes.index or memory.op is not ops.SLOT or \
            memory.arg.kind != "arena" or memory.arg.strides or \
            any(parts.extent(r).op is not ops.CONST for r in store.ranges):
        return None
    n = math.prod([build.const_of(d) for d in parts.dims(parts.buffer(store))])
    element = symbolic.element(store)
    terms, ahead = symbolic.linear(build.sub(value.src[0], element))
    low, high = symbolic.bounds(element)
    every = math.prod([build.const_of(parts.extent(r)) for r in store.ranges])
    if terms or low or high + 1 != every or high + 1 < n or first + ahead < 0 or \
            first + ahead + high > dtypes.int32.limits[1] or \
            not all(_holds_below(c, element, n) for v in store.src[2:] for c in parts.conjuncts(v)):
        return None
    arg: op_args.Slot = memory.arg
    return _Count(first + ahead, arg.offset, arg.offset + _SIZE * n)


def _holds_below(condition: UOp, element: UOp, n: int) -> bool:
    """Whether a condition holds for the first n elements: element = k * a + more, a < b."""
    if condition.op is not ops.CMPLT or condition.src[0].dtype is not dtypes.index:
        return False
    below, ahead = symbolic.linear(build.sub(*condition.src))
    whole, offset = symbolic.linear(element)
    scales = {whole.get(term, 0) / c for term, c in below.items()}
    return not offset and len(scales) == 1 and all(c >= 0 for c in whole.values()) and \
        scales.pop() * -ahead >= n
