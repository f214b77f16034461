"""What is read back of a program on disk: data only, and commands that stay in their memory.

    SLOT arena 0..4096 of an arena of 64    ->    as if nothing were there: it is made anew

Entries are read only where nobody else may write (backends/private_files.py), and the code of
kernels is taken as it is; this keeps a file that was damaged, or made by somebody who was careless,
from being more than a miss.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from fnx.core import build, op_args, ops
from fnx.core.record import Record
from fnx.core.uop import UOp

_LINE = 64
_FUNCTIONS = frozenset({("fnx.core.uop", "_restored"), ("fnx.core.op", "named"),
                        ("fnx.core.dtypes", "named"), ("builtins", "tuple")})


class _DataUnpickler(pickle.Unpickler):
    """Makes nodes, and what they carry; calls nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _FUNCTIONS or module == op_args.__name__ and \
                isinstance(getattr(op_args, name, None), type):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"expected data, got {module}.{name}")


def read(data: bytes) -> Any:
    """What was stored.

    Raises:
        Exception: it is no such thing, or more than data.
    """
    return _DataUnpickler(io.BytesIO(data)).load()


LoopsAround = tuple[int | None, ...]  # a command: iterations of each; None: not known


class Uses:
    """All memory of commands: each SLOT with the loops around it.

    Args:
        commands: COMMANDS over LINKED.
        longest: iterations of the longest loop of what they compute.

    Attributes:
        found: the SLOTs and loops, in the order of the commands.

    Raises:
        Exception: no pass writes such commands.
    """

    def __init__(self, commands: UOp, longest: int) -> None:
        self._longest = longest
        self.found: list[tuple[op_args.Slot, LoopsAround]] = []
        self._commands(commands, (), False)

    @property
    def arena(self) -> int:
        """Bytes of the arena that they reach."""
        return max([_span(slot, loops)[1] for slot, loops in self.found if slot.kind == "arena"],
                   default=0)

    def _commands(self, commands: UOp, loops: LoopsAround, behind: bool) -> None:
        """``behind``: a loop at their depth was before them, whose iterations a SWAP may count."""
        _require(commands.op is ops.COMMANDS)
        for node in commands.src:
            if node.op is ops.EXEC:
                self._exec(node, loops, behind)
            elif node.op is ops.LOOP:
                self._loop(node, loops)
                behind = True
            else:
                _require(node.op is ops.BRANCH)
                which, *branches = node.src
                _require(self._memory(which, loops, behind) >= 4)
                for branch in branches:
                    self._commands(branch, loops, behind)

    def _loop(self, node: UOp, loops: LoopsAround) -> None:
        trips, inside = node.arg.trips, (*loops, node.arg.trips)
        if trips is None:
            test, flag, body = node.src
            self._commands(test, inside, False)
            _require(self._memory(flag, inside, False) >= 1)
        else:
            _require(_counts(trips) and trips <= self._longest)
            body, = node.src
        self._commands(body, inside, False)

    def _exec(self, node: UOp, loops: LoopsAround, behind: bool) -> None:
        kernel, *rest = node.src
        sizes = [self._memory(s, loops, behind) for s in rest if s.op is not ops.CONST]
        if kernel.op is ops.LINKED:
            arg: op_args.Linked = kernel.arg
            _require(_counts(arg.parallel, arg.scratch, arg.flops, *arg.writes)
                     and max(arg.writes, default=-1) < len(sizes)
                     and arg.parallel <= max(1, sum(sizes)) and 0 <= arg.nanoseconds < math.inf)
        else:
            _require(kernel.op is ops.HOST)

    def _memory(self, memory: UOp, loops: LoopsAround, behind: bool) -> int:
        """Bytes of a SLOT or SWAP, which is added to what was found."""
        if memory.op is ops.SWAP:
            _require(_counts(memory.arg) and memory.arg < len(loops) + behind)
            return max([self._memory(s, loops, behind) for s in memory.src])
        _require(memory.op is ops.SLOT)
        slot: op_args.Slot = memory.arg
        _require(_counts(slot.index, slot.offset, slot.nbytes) and len(slot.strides) <= len(loops)
                 and all(type(s) is int and (n is not None or not s)
                         for s, n in zip(slot.strides, loops)))
        self.found.append((slot, loops))
        return slot.nbytes


def _require(holds: bool) -> None:
    if not holds:
        raise ValueError("expected commands that a pass has written")


def _counts(*numbers: object) -> bool:
    return all(type(n) is int and n >= 0 for n in numbers)


def _span(slot: op_args.Slot, loops: LoopsAround) -> tuple[int, int]:
    """Where a SLOT begins and ends in all iterations of the loops around it."""
    moves = [s * max(n - 1, 0) for s, n in zip(slot.strides, loops) if n]
    return (slot.offset + sum([min(m, 0) for m in moves]),
            slot.offset + slot.nbytes + sum([max(m, 0) for m in moves]))


def _nbytes(node: UOp) -> int:
    """Of an array."""
    return math.prod(node.shape) * node.dtype.itemsize


def _lines(nbytes: int) -> int:
    """Bytes of the memory of an array: whole cache lines."""
    return max(-(-nbytes // _LINE), 1) * _LINE


def longest(nodes: Iterable[UOp]) -> int:
    """Iterations of the longest loop among nodes: no pass makes a longer one."""
    return max([n.arg.length for n in nodes if n.op is ops.SCAN], default=0)


def is_block(block: Record, fn: UOp, nodes: Sequence[UOp], donated: Collection[int]) -> bool:
    """Whether what was read are the commands of a FUNCTION, and their memory.

    What the FUNCTION says bounds arguments, results and iterations, and what the commands reach is
    the arena. What a kernel does in the memory of its command is taken from its writer, as its
    code is.

    Args:
        block: what was read.
        fn: the FUNCTION.
        nodes: all of its nodes, those of its bodies too.
        donated: parameters that may be written over.

    Raises:
        Exception: it is no such thing.
    """
    commands, arena, outs, results, over = block
    params = build.params(fn)
    uses = Uses(commands, longest(nodes))
    memory = {("in", i): n for i, n in params.items()} | {("out", i): n for i, n in enumerate(outs)}
    sizes = {place: _lines(_nbytes(n)) for place, n in memory.items()} | {("arena", 0): arena}
    spans = [(_span(slot, loops), sizes[slot.kind, slot.index]) for slot, loops in uses.found]
    filled = {*results, *[("out", i) for i, _ in over]}
    return all(n.op is ops.PARAM for n in outs) and arena == uses.arena \
        and _counts(arena, *[i for _, i in results], *[i for pair in over for i in pair]) \
        and all(0 <= first and last <= size for (first, last), size in spans) \
        and len(results) == len(fn.src) \
        and all(_nbytes(memory[place]) == _nbytes(n) for place, n in zip(results, fn.src)) \
        and all(("out", i) in filled for i in range(len(outs))) \
        and all(slot in donated and _nbytes(outs[i]) == _nbytes(params[slot]) for i, slot in over)
