"""A LOOP of commands -> one PROGRAM, with the kernels that it runs inlined.

    LOOP 400: EXEC(f, SLOT in 0 + 4*i, SLOT in 1)        FOR i = 0 .. 400
                                                           p = ADDRESS(m0, i)
                                                           lines of f, of p and m1
                                                         ENDFOR

The kernels' lines are in the order of the commands, so each sees the writes of those before it.
Parallel ranges run whole on one worker, scalars are constants, and the kernels share the scratch
memory one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fnx.core import build, dtypes, op_args, ops
from fnx.core.dtypes import DType
from fnx.core.levels.spec_program import UNLINED
from fnx.core.ops import Op
from fnx.core.parts import extent
from fnx.core.range_kinds import OF_WORKERS
from fnx.core.rewriting.evaluate import evaluate
from fnx.core.uop import UOp
from fnx.lower.program.intervals import Intervals

TRUE = build.const(True, dtypes.bool_)
_NUMBERED = (ops.FOR, ops.IF)


def inlined(loop: UOp, program_of: Callable[[UOp], UOp]) -> UOp:
    """Return the PROGRAM of a LOOP.

    Args:
        loop: the LOOP, over SLOTs "in"; the index of a SLOT is the slot of its REF.
        program_of: returns the PROGRAM of a KERNEL.

    >>> from fnx.core.build_commands import commands, exec_, slot
    >>> from fnx.core.build_commands import loop as repeat
    >>> from fnx.core.target import Target
    >>> from fnx.lower.program.linearize import linearize
    >>> place = build.at(build.ref(0, dtypes.int32, (1,)), build.index_const(0))
    >>> kernel = build.kernel([build.store(place, build.load(place))], "step", ())
    >>> step = exec_(kernel, [slot("in", 0, 0, 4)], (), "step")
    >>> found = inlined(repeat(commands([step]), 9, "f"), lambda k: linearize(k, Target("cpu")))
    >>> [line.op for line in found.src]
    [FOR, ADDRESS, ADDRESS, LOAD, STORE, ENDFOR]
    """
    writer = Writer(program_of)
    writer.loop(loop)
    return UOp(ops.PROGRAM, dtypes.void, tuple(writer.lines))


class Writer:
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
        found = self.known.simpler(op, dtype, src, arg)
        if found is not None:
            return found
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
        opened = self.line(ops.FOR, dtypes.index, bounds, self.number())
        self.counters.append(opened)
        if len(node.src) > 1:
            test, flag, _ = node.src
            self.commands(test)
            ended = self.line(ops.NOT, dtypes.bool_, [self.load(flag, dtypes.bool_)])
            self.line(ops.BREAK, dtypes.void, [opened, ended])
        self.commands(node.src[-1])
        self.counters.pop()
        self.line(ops.ENDFOR, dtypes.void, [opened])

    def branch(self, node: UOp) -> None:
        which, *branches = node.src
        self.branches += 1
        chosen = self.choice(which, len(branches))
        for i, branch in enumerate(branches):
            hit = self.line(ops.CMPEQ, dtypes.bool_, [chosen, build.const(i, dtypes.int32)])
            opened = self.line(ops.IF, dtypes.void, [hit], self.number())
            self.commands(branch)
            self.line(ops.ENDIF, dtypes.void, [opened])
        self.branches -= 1

    def choice(self, which: UOp, count: int) -> UOp:
        """Emit the index of the branch taken, clamped to ``count`` branches.

        It is used after the lines of each branch, so it is loaded by a pointer of its own: equal
        lines are one node, and a line inside a branch must not be the same node.
        """
        pointer, last = self.pointer(which, dtypes.int32), build.const(count - 1, dtypes.int32)
        for _ in range(self.branches):
            pointer = self.line(ops.ADDRESS, dtypes.int32, [pointer, build.index_const(0)])
        place = self.line(ops.ADDRESS, dtypes.int32, [pointer, build.index_const(0)], 4)
        given = self.line(ops.LOAD, dtypes.int32, [place])
        above = self.line(ops.MAX, dtypes.int32, [given, build.const(0, dtypes.int32)])
        return self.line(ops.MIN, dtypes.int32, [above, last])

    def execution(self, node: UOp) -> None:
        kernel, *operands = node.src
        memory = [s for s in operands if s.op is ops.SLOT]
        scalars = [s for s in operands if s.op is ops.CONST]
        numbers: dict[UOp | int, int] = {i: build.const_of(s) for i, s in enumerate(scalars)
                                         if s.dtype is dtypes.index}
        shared = [r for r in kernel.src[0].ranges if r.arg.kind == OF_WORKERS]
        ends = build.index_const(0), build.index_const(
            evaluate(extent(shared[0]), numbers) if shared else 1)
        program = self.program_of(kernel).src
        made: dict[UOp, UOp] = {}
        counted: set[UOp] = set()  # pointers whose value is the data itself
        for s in [s for line in program for s in line.src]:
            if s.op is ops.REF and s not in made:
                slot = memory[s.arg.slot]
                if slot.arg.kind == "numbers":
                    made[s] = self.place(slot, s.dtype)
                    counted.add(s)
                else:
                    made[s] = self.pointer(slot, s.dtype)
            elif s.op in UNLINED and s not in made:
                made[s] = scalars[s.arg.slot] if s.op is ops.VAR else \
                    ends[s.arg] if s.op is ops.PART else s
        for line in program:
            if line.op is ops.ADDRESS and line.src[0] in counted:
                counted.add(line)
                made[line] = self.line(ops.ADD, dtypes.index, [made[s] for s in line.src])
                continue
            if line.op is ops.LOAD and line.src[0] in counted:
                made[line] = self.line(ops.CAST, line.dtype, [made[line.src[0]]])
                continue
            if line.op is ops.IF and made[line.src[0]] is TRUE:
                made[line] = TRUE
                continue
            if line.op is ops.ENDIF and made[line.src[0]] is TRUE:
                continue
            arg = self.number() if line.op in _NUMBERED else line.arg
            made[line] = self.line(line.op, line.dtype, [made[s] for s in line.src], arg)

    # ---- memory

    def place(self, memory: UOp, dtype: DType) -> UOp:
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
        ref = UOp(ops.REF, dtype, (), op_args.Ref(memory.arg.index, "", dtype.itemsize))
        return self.line(ops.ADDRESS, dtype, [ref, self.place(memory, dtype)])

    def first(self, memory: UOp, dtype: DType) -> UOp:
        """Emit the address of the first element of a SLOT."""
        pointer = self.pointer(memory, dtype)
        return self.line(ops.ADDRESS, dtype, [pointer, build.index_const(0)], dtype.itemsize)

    def load(self, memory: UOp, dtype: DType) -> UOp:
        return self.line(ops.LOAD, dtype, [self.first(memory, dtype)])


_COMMANDS: dict[Op, Callable[[Writer, UOp], None]] = {
    ops.EXEC: lambda writer, node: writer.execution(node),
    ops.LOOP: lambda writer, node: writer.loop(node),
    ops.BRANCH: lambda writer, node: writer.branch(node)}
