"""Validation of programs read from disk: data only, and commands within their memory.

    SLOT arena 0..4096 of an arena of 64    ->    a cache miss: it is compiled anew

Entries are read only from files that others cannot write (backends/disk/private_files.py), and the
code of kernels is trusted. These checks ensure that a damaged or badly written file causes no more
than a cache miss.
"""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from fnx.core.ir import build, kernel_args, op_args, ops
from fnx.core.ir.uop import UOp
from fnx.core.support.record import Record

_LINE = 64
_ALLOWED_FUNCTIONS = frozenset({("fnx.core.ir.uop", "_unpickle"), ("fnx.core.ir.op", "op_by_name"),
                                ("fnx.core.ir.dtypes", "dtype_by_name"), ("builtins", "tuple")})
_ARG_MODULES = {module.__name__: module for module in (kernel_args, op_args)}


class _DataUnpickler(pickle.Unpickler):
    """Unpickler that only constructs nodes and their arguments."""

    def find_class(self, module: str, name: str) -> Any:
        args = _ARG_MODULES.get(module)
        if (module, name) in _ALLOWED_FUNCTIONS or isinstance(getattr(args, name, None), type):
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"expected data, got {module}.{name}")


def load_entry(data: bytes) -> Any:
    """Unpickle an entry.

    Raises:
        Exception: it is not a valid entry, or contains more than data.
    """
    return _DataUnpickler(io.BytesIO(data)).load()


LoopTrips = tuple[int | None, ...]  # trip count of each loop around a command; None if unknown


class Accesses:
    """All memory accessed by commands: each SLOT with the loops around it.

    Args:
        commands: COMMANDS over LINKED.
        longest: the trip count of the longest loop of the FUNCTION.

    Attributes:
        slots_in_loops: the SLOTs and loops, in the order of the commands.

    Raises:
        Exception: the commands are malformed.
    """

    def __init__(self, commands: UOp, longest: int) -> None:
        self._longest = longest
        self.slots_in_loops: list[tuple[kernel_args.Slot, LoopTrips]] = []
        self._visit_commands(commands, (), False)

    @property
    def arena(self) -> int:
        """The bytes of the arena that the commands access."""
        return max([_span(slot, loops)[1]
                    for slot, loops in self.slots_in_loops if slot.kind == "arena"],
                   default=0)

    def _visit_commands(self, commands: UOp, loops: LoopTrips, after_loop: bool) -> None:
        """``after_loop``: a loop at this depth came before, whose iterations a SWAP may count."""
        _require(commands.op is ops.COMMANDS)
        for node in commands.src:
            if node.op is ops.EXEC:
                self._visit_exec(node, loops, after_loop)
            elif node.op is ops.CMD_LOOP:
                self._visit_loop(node, loops)
                after_loop = True
            else:
                _require(node.op is ops.BRANCH)
                which, *branches = node.src
                _require(self._visit_memory(which, loops, after_loop) >= 4)
                for branch in branches:
                    self._visit_commands(branch, loops, after_loop)

    def _visit_loop(self, node: UOp, loops: LoopTrips) -> None:
        trips, inner_loops = node.arg.trips, (*loops, node.arg.trips)
        if trips is None:
            test, flag, body = node.src
            self._visit_commands(test, inner_loops, False)
            _require(self._visit_memory(flag, inner_loops, False) >= 1)
        else:
            _require(_counts(trips) and trips <= self._longest)
            body, = node.src
        self._visit_commands(body, inner_loops, False)

    def _visit_exec(self, node: UOp, loops: LoopTrips, after_loop: bool) -> None:
        kernel, *operands = node.src
        sizes = [self._visit_memory(s, loops, after_loop)
                 for s in operands if s.op is not ops.CONST]
        if kernel.op is ops.LINKED:
            arg: kernel_args.Linked = kernel.arg
            _require(_counts(arg.parallel, arg.scratch, arg.flops, *arg.writes)
                     and max(arg.writes, default=-1) < len(sizes)
                     and arg.parallel <= max(1, sum(sizes)) and 0 <= arg.nanoseconds < math.inf)
        else:
            _require(kernel.op is ops.CALLBACK)

    def _visit_memory(self, memory: UOp, loops: LoopTrips, after_loop: bool) -> int:
        """Record a SLOT or SWAP, and return its bytes."""
        if memory.op is ops.SWAP:
            _require(_counts(memory.arg) and memory.arg < len(loops) + after_loop)
            return max([self._visit_memory(s, loops, after_loop) for s in memory.src])
        _require(memory.op is ops.SLOT)
        slot: kernel_args.Slot = memory.arg
        _require(_counts(slot.index, slot.offset, slot.nbytes) and len(slot.strides) <= len(loops)
                 and all(type(s) is int and (n is not None or not s)
                         for s, n in zip(slot.strides, loops)))
        self.slots_in_loops.append((slot, loops))
        return slot.nbytes


def _require(condition: bool) -> None:
    if not condition:
        raise ValueError("expected commands that a pass has written")


def _counts(*numbers: object) -> bool:
    return all(type(n) is int and n >= 0 for n in numbers)


def _span(slot: kernel_args.Slot, loops: LoopTrips) -> tuple[int, int]:
    """Return the start and end of a SLOT over all iterations of the loops around it."""
    extents = [s * max(n - 1, 0) for s, n in zip(slot.strides, loops) if n]
    return (slot.offset + sum([min(m, 0) for m in extents]),
            slot.offset + slot.nbytes + sum([max(m, 0) for m in extents]))


def _nbytes(node: UOp) -> int:
    """Return the bytes of an array."""
    return math.prod(node.shape) * node.dtype.itemsize


def _align(nbytes: int) -> int:
    """Round the bytes of an array up to whole cache lines."""
    return max(-(-nbytes // _LINE), 1) * _LINE


def longest_loop(nodes: Iterable[UOp]) -> int:
    """Return the trip count of the longest SCAN; no pass makes a longer loop."""
    return max([n.arg.length for n in nodes if n.op is ops.SCAN], default=0)


def is_valid_block(block: Record, fn: UOp, nodes: Sequence[UOp], donated: Collection[int]) -> bool:
    """Whether a block read from disk fits a FUNCTION and stays within its memory.

    The FUNCTION bounds arguments, results and trip counts, and the arena must be exactly what the
    commands access. The accesses of a kernel within its slots are trusted, like its code.

    Args:
        block: the block.
        fn: the FUNCTION.
        nodes: all of its nodes, bodies included.
        donated: the parameters that may be overwritten.

    Raises:
        Exception: the block is malformed.
    """
    commands, arena, outs, results, over = block
    params = build.params(fn)
    uses = Accesses(commands, longest_loop(nodes))
    memory = {("in", i): n for i, n in params.items()} | {("out", i): n for i, n in enumerate(outs)}
    sizes = {buffer: _align(_nbytes(n)) for buffer, n in memory.items()} | {("arena", 0): arena}
    spans = [(_span(slot, loops), sizes[slot.kind, slot.index])
             for slot, loops in uses.slots_in_loops]
    written = {*results, *[("out", i) for i, _ in over]}
    return all(n.op is ops.PARAM for n in outs) and arena == uses.arena \
        and _counts(arena, *[i for _, i in results], *[i for pair in over for i in pair]) \
        and all(0 <= first and last <= size for (first, last), size in spans) \
        and len(results) == len(fn.src) \
        and all(_nbytes(memory[buffer]) == _nbytes(n) for buffer, n in zip(results, fn.src)) \
        and all(("out", i) in written for i in range(len(outs))) \
        and all(slot in donated and _nbytes(outs[i]) == _nbytes(params[slot]) for i, slot in over)
