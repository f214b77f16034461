"""Induction variables: a CMD_LOOP that becomes a kernel reads its counter, not an array of 0, 1, 2
...

    before  iota() -> arena[0:1600];  CMD_LOOP 400: f(arena[0 + 4*i:+4])
    after   iota() -> arena[0:1600];  CMD_LOOP 400: f(numbers[0 + 4*i:+4])

A SCAN over an iota (fori_loop) loads the number of each step from memory, so a compiler does not
know that it is one of 0 .. 399: indices computed from it are compared with 0, wrapped and clamped.
The SLOT "numbers" stands for memory whose word k is the int32 k.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.ir import accessors, build, dtypes, kernel_args, ops
from fnx.core.ir.build_calls import commands, slot
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.record import Record
from fnx.lower.loops.loop_memory import memory_uses, span_of

_INT32_BYTES = 4  # bytes of an int32


class _CountedMemory(Record):
    """A part of the arena that counts up: its first word is the number ``first``."""

    first: int
    low: int
    high: int


CountedMemories = tuple[_CountedMemory, ...]


def use_loop_counters(before: Sequence[UOp], node: UOp, depth: int) -> UOp:
    """Rewrite a CMD_LOOP inside ``depth`` others so that its kernels read numbers.

    Args:
        before: the commands before it, in the same sequence.
        node: the CMD_LOOP; its carries have one buffer each.
        depth: number of loops around it.
    """
    return _CounterRewriter(depth).run([*before, node], (), (1,) * depth)[-1]


class _CounterRewriter:
    """Walks commands in order, tracking which arena parts hold counts."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def run(self, command_list: Sequence[UOp], counts: CountedMemories,
            trips: tuple[int, ...]) -> list[UOp]:
        """Rewrite commands to read numbers."""
        rewritten: list[UOp] = []
        for command in command_list:
            after = self.after(command, counts, trips)
            if command.op is ops.EXEC:
                rewritten.append(self.execution(command, counts, trips))
            else:  # at the start of a step, the writes of the previous step are visible
                inner = (*trips, command.arg.trips or 1) if command.op is ops.CMD_LOOP else trips
                rewritten.append(command.with_operands(tuple([
                    s.with_operands(tuple(self.run(s.src, after, inner))) if s.op is ops.COMMANDS
                    else s
                    for s in command.src])))
            counts = after
        return rewritten

    def after(self, command: UOp, counts: CountedMemories,
              trips: tuple[int, ...]) -> CountedMemories:
        """Return the counts that hold after a command."""
        for memory, written, inner in memory_uses(commands([command]), trips) if counts else ():
            for arg in accessors.possible_slots(memory) if written else ():
                low, high = span_of(arg, self.depth, inner)
                counts = tuple([c for c in counts if arg.kind != "arena"
                                or not any(arg.strides[:self.depth])
                                and (high <= c.low or c.high <= low)])
        new_count = _match_count(command) if command.op is ops.EXEC else None
        return counts if new_count is None else (*counts, new_count)

    def execution(self, node: UOp, counts: CountedMemories, trips: tuple[int, ...]) -> UOp:
        kernel, *operands = node.src
        if not counts or kernel.op is not ops.KERNEL:
            return node
        written = accessors.written_slots(kernel)
        for i, memory in enumerate(operands):
            if memory.op is not ops.SLOT or memory.arg.kind != "arena" or i in written or \
                    any(memory.arg.strides[:self.depth]):
                continue
            arg = memory.arg
            low, high = span_of(arg, self.depth, trips)
            for c in counts:
                if c.low <= low and high <= c.high and _reads_numbers(kernel, i):
                    offset = arg.offset - c.low + _INT32_BYTES * c.first
                    operands[i] = slot("numbers", 0, offset, arg.nbytes, arg.strides)
        return node.with_operands((kernel, *operands))


def _reads_numbers(kernel: UOp, i: int) -> bool:
    """Whether a KERNEL reads an operand as one int32 at a time."""
    refs = [n for n in toposort([kernel]) if n.op is ops.REF and n.arg.slot == i]
    loads = [n for n in toposort([kernel]) if n.op is ops.LOAD and accessors.buffer(n) in refs]
    return all(r.dtype is dtypes.int32 for r in refs) and all(
        len(n.src) == 1 and all(r.arg.kind != "VEC" for r in n.ranges) for n in loads)


def _match_count(node: UOp) -> _CountedMemory | None:
    """Return the count that an EXEC writes, if it writes n, n + 1, ... with n >= 0 and nothing
    else."""
    kernel, *operands = node.src
    if kernel.op is not ops.KERNEL or len(kernel.src) != 1:
        return None
    store, = kernel.src
    value, first, slots = accessors.value(store), 0, [s for s in operands if s.op is not ops.CONST]
    if value.op is ops.ADD and value.src[1].op is ops.CONST:
        value, first = value.src[0], build.const_of(value.src[1])
    memory = slots[accessors.buffer(store).arg.slot]
    if store.arg is not None or value.op is not ops.CAST or value.dtype is not dtypes.int32 or \
            value.src[0].dtype is not dtypes.index or memory.op is not ops.SLOT or \
            memory.arg.kind != "arena" or memory.arg.strides or \
            any(accessors.extent(r).op is not ops.CONST for r in store.ranges):
        return None
    n = math.prod([build.const_of(d) for d in accessors.dims(accessors.buffer(store))])
    element = symbolic.element_offset(store)
    terms, constant = symbolic.linear_terms(build.sub(value.src[0], element))
    low, high = symbolic.bounds(element)
    iterations = math.prod([build.const_of(accessors.extent(r)) for r in store.ranges])
    if terms or low or high + 1 != iterations or high + 1 < n or first + constant < 0 or \
            first + constant + high > dtypes.int32.limits[1] or \
            not all(_holds_for_first(c, element, n) for v in store.src[2:]
                    for c in accessors.conjuncts(v)):
        return None
    arg: kernel_args.Slot = memory.arg
    return _CountedMemory(first + constant, arg.offset, arg.offset + _INT32_BYTES * n)


def _holds_for_first(condition: UOp, element: UOp, n: int) -> bool:
    """Whether a condition holds for the first n elements: element = k * a + more, a < b."""
    if condition.op is not ops.CMPLT or condition.src[0].dtype is not dtypes.index:
        return False
    difference, constant = symbolic.linear_terms(build.sub(*condition.src))
    element_terms, offset = symbolic.linear_terms(element)
    scales = {element_terms.get(term, 0) / c for term, c in difference.items()}
    return not offset and len(scales) == 1 and all(c >= 0 for c in element_terms.values()) and \
        scales.pop() * -constant >= n
