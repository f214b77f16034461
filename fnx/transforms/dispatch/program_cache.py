"""Disk cache of compiled programs, so that the next process runs no pass.

    key    the FUNCTION's content, the target, fnx's sources, the configuration, donated parameters
    value  COMMANDS over LINKED (kernels by the key of their objects, slots), results, lines

A program is independent of source files: an equal FUNCTION may come from another file, or from the
same one after an edit. So a line of the user's is stored as the numbers of some nodes of the
FUNCTION that come from it. Restoring a program uses the line that these nodes have now.

An entry that cannot be read (another version of a class, a missing object) is a cache miss.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.kernel_code import MissingObjectError
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.config import config
from fnx.core.support.errors import Location
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record
from fnx.core.support.source_digests import PACKAGES, source_digest
from fnx.transforms.dispatch import cache_checks
from fnx.transforms.dispatch.executable import BlockLike, DeviceLike, Lines

hashlib = lazy_import("hashlib")

_NODES_PER_LINE = 4


class ByteCache(Protocol):
    """A cache of bytes."""

    def get(self, key: bytes) -> bytes | None: ...
    def put(self, key: bytes, value: bytes, about: str = ...) -> None: ...


class CachedBlock(Record):
    """A Block of commands over LINKED.

    ``outs`` are PARAMs with the types of the allocated results; ``arena`` is the number of bytes of
    the arena that the commands access.
    """

    commands: UOp
    arena: int
    outs: tuple[UOp, ...]
    results: tuple[tuple[str, int], ...]
    over: tuple[tuple[int, int], ...]


class ProgramEntry:
    """The disk cache entry of a FUNCTION's program.

    Args:
        fn: the FUNCTION.
        device: the device that runs it.
        disk: the disk cache.
        donated: the parameters that it may overwrite.
        lines: the user's lines of its trace, if they are known.
    """

    def __init__(self, fn: UOp, device: DeviceLike, disk: ByteCache, donated: Sequence[int] = (),
                 lines: Lines = frozenset()) -> None:
        self._fn, self._disk, self._donated, self._lines = fn, disk, donated, lines
        content = hashlib.sha256(fn.digest())
        content.update(source_digest(PACKAGES))
        content.update(repr((device.target, config.key(), donated)).encode())
        self._key: bytes = b"program" + content.digest()

    def restore_program(self, encode: Callable[[CachedBlock], Any]) -> Any:
        """Read the program and return ``encode`` of it; None if it is not cached."""
        data = self._disk.get(self._key)
        if data is None:
            return None
        try:
            *fields, lines = cache_checks.load_entry(data)
            block, nodes = CachedBlock(*fields), self._nodes()
            if not cache_checks.is_valid_block(block, self._fn, nodes, self._donated):
                return None
            block = block.replace(commands=self._relocate(block.commands, lines, nodes))
        except Exception:  # of another version, or damaged
            return None
        try:
            return encode(block)
        except MissingObjectError:
            return None

    def store(self, block: BlockLike, commands: UOp) -> None:
        """Store the program, whose commands are over LINKED."""
        outs = [build.param(i, n.dtype, n.shape) for i, n in enumerate(block.outs)]
        nodes = self._nodes()
        arena = cache_checks.Accesses(commands, cache_checks.longest_loop(nodes)).arena
        data = pickle.dumps((commands, arena, tuple(outs), tuple(block.results),
                             tuple(block.over), _nodes_of_lines(commands, nodes)))
        count = len([n for n in toposort([commands]) if n.op is ops.LINKED])
        self._disk.put(self._key, data, f"program {self._fn.arg.name}: {count} kernels")

    def _nodes(self) -> Sequence[UOp]:
        return toposort([self._fn], into_functions=True)

    def _relocate(self, commands: UOp, nodes_of_lines: dict[Location, list[int]],
                  nodes: Sequence[UOp]) -> UOp:
        """Replace each line of the commands by the one that the same ``nodes`` have now."""
        lines_of = accessors.lines_of_nodes(nodes, self._lines) if self._lines else {}
        current: dict[Location, Location | None] = {}
        for loc, numbers in nodes_of_lines.items():
            counts = Counter([line for i in numbers
                              for line in lines_of.get(nodes[i]) or nodes[i].locs])
            current[loc] = max(counts, key=lambda line: counts[line], default=None)
        return accessors.map_locations(
            commands, lambda locs: [line for loc in locs if (line := current.get(loc)) is not None])


def _nodes_of_lines(commands: UOp, nodes: Sequence[UOp]) -> dict[Location, list[int]]:
    """Return, for each of the user's lines in commands, the numbers of the nodes that tell it best:
    those with the fewest other lines."""
    numbers_of: dict[Location, list[int]] = {
        loc: [] for n in toposort([commands]) if n.op in accessors.OPS_WITH_LOCATIONS
        for loc in n.arg.locs}
    for i, node in enumerate(nodes):
        for loc in node.locs:
            if loc in numbers_of:
                numbers_of[loc].append(i)
    return {loc: sorted(numbers, key=lambda i: len(nodes[i].locs))[:_NODES_PER_LINE]
            for loc, numbers in numbers_of.items()}
