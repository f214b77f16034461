"""A CMD_LOOP of commands -> one PROGRAM, with the kernels that it runs inlined.

    CMD_LOOP 400: EXEC(f, SLOT in 0 + 4*i, SLOT in 1)    FOR i = 0 .. 400
                                                           p = ADDRESS(m0, i)
                                                           lines of f, of p and m1
                                                         ENDFOR

The kernels' lines are in the order of the commands, so each sees the writes of those before it.
Parallel ranges run whole on one worker, scalars are constants, and the kernels share the scratch
memory one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fnx.core.ir import build, dtypes, kernel_args, ops
from fnx.core.ir.accessors import extent
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp
from fnx.core.levels.spec_program import NON_INSTRUCTIONS
from fnx.core.rewriting.algebra import evaluate
from fnx.core.support.range_kinds import WORKER_KIND
from fnx.lower.loops.intervals import Intervals

TRUE = build.const(True, dtypes.bool_)
_NUMBERED = (ops.FOR, ops.IF)


def inline_command_loop(loop: UOp, program_of: Callable[[UOp], UOp]) -> UOp:
    """Return the PROGRAM of a CMD_LOOP.

    Args:
        loop: the CMD_LOOP, over SLOTs "in"; the index of a SLOT is the slot of its REF.
        program_of: returns the PROGRAM of a KERNEL.

    >>> from fnx.core.ir.build_calls import commands, exec_, slot
    >>> from fnx.core.ir.build_calls import cmd_loop as repeat
    >>> from fnx.core.support.target import Target
    >>> from fnx.lower.emit.emit import emit_program
    >>> place = build.index_into(build.ref(0, dtypes.int32, (1,)), build.index_const(0))
    >>> kernel = build.kernel([build.store(place, build.load(place))], "step", ())
    >>> step = exec_(kernel, [slot("in", 0, 0, 4)], (), "step")
    >>> found = inline_command_loop(repeat(commands([step]), 9, "f"),
    ...                             lambda k: emit_program(k, Target("cpu")))
    >>> [line.op for line in found.src]
    [FOR, ADDRESS, ADDRESS, LOAD, STORE, ENDFOR]
    """
    emitter = CommandEmitter(program_of)
    emitter.loop(loop)
    return UOp(ops.PROGRAM, dtypes.void, tuple(emitter.lines))


class CommandEmitter:
    """Emits lines of commands.

    ``counters`` are those of the open loops, outermost first; ``branches`` is the number of open
    branches.
    """

    def __init__(self, program_of: Callable[[UOp], UOp]) -> None:
        self.program_of = program_of
        self.lines: list[UOp] = []
        self.counters: list[UOp] = []
        self.count = self.branches = 0
        self.known = Intervals()

    def line(self, op: Op, dtype: DType, src: Sequence[UOp], arg: object = None) -> UOp:
        folded = self.known.simplify(op, dtype, src, arg)
        if folded is not None:
            return folded
        node = UOp(op, dtype, tuple(src), arg)
        self.known.take(node)
        self.lines.append(node)
        return node

    def number(self) -> int:
        self.count += 1
        return self.count

    # ---- commands

    def commands(self, node: UOp) -> None:
        for command in node.src:
            self.command(command)

    def command(self, node: UOp) -> None:
        _COMMANDS[node.op](self, node)

    def loop(self, node: UOp) -> None:
        bounds = build.index_const(0), build.index_const(node.arg.trips)
        for_line = self.line(ops.FOR, dtypes.index, bounds, self.number())
        self.counters.append(for_line)
        if len(node.src) > 1:
            test, flag, _ = node.src
            self.commands(test)
            is_done = self.line(ops.NOT, dtypes.bool_, [self.load(flag, dtypes.bool_)])
            self.line(ops.BREAK, dtypes.void, [for_line, is_done])
        self.commands(node.src[-1])
        self.counters.pop()
        self.line(ops.ENDFOR, dtypes.void, [for_line])

    def branch(self, node: UOp) -> None:
        index_slot, *branches = node.src
        self.branches += 1
        taken = self.choice(index_slot, len(branches))
        for i, branch in enumerate(branches):
            is_taken = self.line(ops.CMPEQ, dtypes.bool_, [taken, build.const(i, dtypes.int32)])
            if_line = self.line(ops.IF, dtypes.void, [is_taken], self.number())
            self.commands(branch)
            self.line(ops.ENDIF, dtypes.void, [if_line])
        self.branches -= 1

    def choice(self, index_slot: UOp, count: int) -> UOp:
        """Emit the index of the branch taken, clamped to ``count`` branches.

        It is used after the lines of each branch, so it is loaded by a pointer of its own: equal
        lines are one node, and a line inside a branch must not be the same node.
        """
        pointer, last = self.pointer(index_slot, dtypes.int32), build.const(count - 1, dtypes.int32)
        for _ in range(self.branches):
            pointer = self.line(ops.ADDRESS, dtypes.int32, [pointer, build.index_const(0)])
        address = self.line(ops.ADDRESS, dtypes.int32, [pointer, build.index_const(0)], 4)
        index = self.line(ops.LOAD, dtypes.int32, [address])
        nonnegative = self.line(ops.MAX, dtypes.int32, [index, build.const(0, dtypes.int32)])
        return self.line(ops.MIN, dtypes.int32, [nonnegative, last])

    def execution(self, node: UOp) -> None:
        kernel, *operands = node.src
        memory = [s for s in operands if s.op is ops.SLOT]
        scalars = [s for s in operands if s.op is ops.CONST]
        numbers: dict[UOp | int, int] = {i: build.const_of(s) for i, s in enumerate(scalars)
                                         if s.dtype is dtypes.index}
        parallel_ranges = [r for r in kernel.src[0].ranges if r.arg.kind == WORKER_KIND]
        part_bounds = build.index_const(0), build.index_const(
            evaluate(extent(parallel_ranges[0]), numbers) if parallel_ranges else 1)
        program = self.program_of(kernel).src
        lowered: dict[UOp, UOp] = {}
        counter_pointers: set[UOp] = set()  # pointers whose value is the data itself
        for s in [s for line in program for s in line.src]:
            if s.op is ops.REF and s not in lowered:
                slot = memory[s.arg.slot]
                if slot.arg.kind == "numbers":
                    lowered[s] = self.offset(slot, s.dtype)
                    counter_pointers.add(s)
                else:
                    lowered[s] = self.pointer(slot, s.dtype)
            elif s.op in NON_INSTRUCTIONS and s not in lowered:
                lowered[s] = scalars[s.arg.slot] if s.op is ops.VAR else \
                    part_bounds[s.arg] if s.op is ops.PARALLEL_RANGE else s
        for line in program:
            if line.op is ops.ADDRESS and line.src[0] in counter_pointers:
                counter_pointers.add(line)
                lowered[line] = self.line(ops.ADD, dtypes.index, [lowered[s] for s in line.src])
                continue
            if line.op is ops.LOAD and line.src[0] in counter_pointers:
                lowered[line] = self.line(ops.CAST, line.dtype, [lowered[line.src[0]]])
                continue
            if line.op is ops.IF and lowered[line.src[0]] is TRUE:
                lowered[line] = TRUE
                continue
            if line.op is ops.ENDIF and lowered[line.src[0]] is TRUE:
                continue
            arg = self.number() if line.op in _NUMBERED else line.arg
            lowered[line] = self.line(line.op, line.dtype, [lowered[s] for s in line.src], arg)

    # ---- memory

    def offset(self, memory: UOp, dtype: DType) -> UOp:
        """Emit the offset of a SLOT in elements, in this iteration of each loop."""
        arg, size = memory.arg, dtype.itemsize
        offset = build.index_const(arg.offset // size)
        for counter, stride in zip(self.counters, arg.strides):
            if stride:
                step = build.index_const(stride // size)
                moved = self.line(ops.MUL, dtypes.index, [counter, step])
                offset = self.line(ops.ADD, dtypes.index, [offset, moved])
        return offset

    def pointer(self, memory: UOp, dtype: DType) -> UOp:
        """Emit the pointer to a SLOT in this iteration of each loop."""
        ref = UOp(ops.REF, dtype, (), kernel_args.Ref(memory.arg.index, "", dtype.itemsize))
        return self.line(ops.ADDRESS, dtype, [ref, self.offset(memory, dtype)])

    def first(self, memory: UOp, dtype: DType) -> UOp:
        """Emit the address of the first element of a SLOT."""
        pointer = self.pointer(memory, dtype)
        return self.line(ops.ADDRESS, dtype, [pointer, build.index_const(0)], dtype.itemsize)

    def load(self, memory: UOp, dtype: DType) -> UOp:
        return self.line(ops.LOAD, dtype, [self.first(memory, dtype)])


_COMMANDS: dict[Op, Callable[[CommandEmitter, UOp], None]] = {
    ops.EXEC: lambda writer, node: writer.execution(node),
    ops.CMD_LOOP: lambda writer, node: writer.loop(node),
    ops.BRANCH: lambda writer, node: writer.branch(node)}
