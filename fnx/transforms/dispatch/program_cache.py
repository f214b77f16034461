"""Disk cache of compiled programs, so that the next process runs no pass.

    key    the FUNCTION's content, the target, fnx's sources, the configuration, donated parameters
    value  COMMANDS over LINKED (kernels by the key of their objects, slots), results, lines

A program is independent of source files: an equal FUNCTION may come from another file, or from the
same one after an edit. So the user's lines are stored as positions in the FUNCTION: the number of a
node, and which of its lines it was. Restoring a program uses the lines of the current FUNCTION.

An entry that cannot be read (another version of a class, a missing object) is a cache miss.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from fnx.core.ir import build, ops
from fnx.core.ir.kernel_code import MissingObjectError
from fnx.core.ir.uop import UOp, rebuild, toposort
from fnx.core.support.config import config
from fnx.core.support.errors import Location
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record
from fnx.core.support.source_digests import PACKAGES, source_digest
from fnx.transforms.dispatch import cache_checks
from fnx.transforms.dispatch.executable import BlockLike, DeviceLike

hashlib = lazy_import("hashlib")

_OPS_WITH_LOCS = (ops.EXEC, ops.CMD_LOOP, ops.BRANCH)


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
    """

    def __init__(self, fn: UOp, device: DeviceLike, disk: ByteCache, donated: Sequence[int] = ()
                 ) -> None:
        self._fn, self._disk, self._donated = fn, disk, donated
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
            block = block.replace(commands=_relocate(block.commands, lines, nodes))
        except Exception:  # of another version, or damaged
            return None
        try:
            return encode(block)
        except MissingObjectError:
            return None

    def store(self, block: BlockLike, commands: UOp) -> None:
        """Store the program, whose commands are over LINKED."""
        outs = [build.param(i, n.dtype, n.shape) for i, n in enumerate(block.outs)]
        lines, nodes = self._lines(commands), self._nodes()
        arena = cache_checks.Accesses(commands, cache_checks.longest_loop(nodes)).arena
        data = pickle.dumps((commands, arena, tuple(outs), tuple(block.results),
                             tuple(block.over), lines))
        count = len([n for n in toposort([commands]) if n.op is ops.LINKED])
        self._disk.put(self._key, data, f"program {self._fn.arg.name}: {count} kernels")

    def _lines(self, commands: UOp) -> dict[Location, tuple[int, int]]:
        """Return the position in the FUNCTION of each of the user's lines in commands."""
        command_locs = {loc for n in toposort([commands]) if n.op in _OPS_WITH_LOCS
                        for loc in n.arg.locs}
        positions: dict[Location, tuple[int, int]] = {}
        for i, node in enumerate(self._nodes()):
            for k, loc in enumerate(node.locs):
                if loc in command_locs:
                    positions.setdefault(loc, (i, k))
        return positions

    def _nodes(self) -> Sequence[UOp]:
        return toposort([self._fn], into_functions=True)


def _relocate(commands: UOp, lines: dict[Location, tuple[int, int]], nodes: Sequence[UOp]) -> UOp:
    """Replace the lines of commands by those at the same positions in ``nodes``."""
    current_locs = {loc: nodes[i].locs[k] if k < len(nodes[i].locs) else None
                    for loc, (i, k) in lines.items()}
    if all(loc == other for loc, other in current_locs.items()):
        return commands

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op not in _OPS_WITH_LOCS or not node.arg.locs:
            return None
        locs = [current_locs.get(loc) for loc in node.arg.locs]
        return node.replace(src=src, arg=node.arg.replace(
            locs=tuple(dict.fromkeys(loc for loc in locs if loc is not None))))
    return rebuild([commands], visit)[0]
