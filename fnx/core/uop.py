"""The interned immutable node, iterative traversal and substitution. No sugar.

Same content, same object: nodes are compared and hashed by identity. The intern table holds
them weakly and is right under threads: ``setdefault`` decides who was first, and a lock is
taken only to replace a dead entry.
"""

from __future__ import annotations

import hashlib
import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fnx.core.dtypes import DType
from fnx.core.errors import Site
from fnx.core.ops import FUNCTION, KERNEL, RANGE, REDUCE, STAGE, Op

_NO_RANGES: frozenset[UOp] = frozenset()
_MAX_SITES = 8
_numbers = itertools.count()


class _Interned(weakref.ref["UOp"]):
    """A weak reference that remembers its key, so that a dead entry can be dropped."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


_table: dict[tuple[Any, ...], _Interned] = {}
_lock = threading.RLock()


def _drop(ref: weakref.ref[UOp]) -> None:
    assert isinstance(ref, _Interned)
    with _lock:
        if _table.get(ref.key) is ref:
            del _table[ref.key]


class _CurrentSite(threading.local):
    site: Site | None = None


current_site = _CurrentSite()


class UOp:
    """A node: ``op``, ``dtype``, ``src`` (nodes), ``arg`` (never a node).

    ``shape`` and ``ranges`` (free ranges, kernel level) are filled once. ``number`` grows with
    creation and orders commutative operands. ``sites`` are the user's lines it came from.
    """

    __slots__ = ("op", "dtype", "src", "arg", "shape", "ranges", "number", "sites", "_digest",
                 "__weakref__")
    op: Op
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    shape: tuple[int, ...]
    ranges: frozenset[UOp]
    number: int
    sites: tuple[Site, ...]
    _digest: bytes | None

    def __new__(cls, op: Op, dtype: DType, src: tuple[UOp, ...] = (), arg: Any = None) -> UOp:
        key = (op, dtype, src, arg)
        ref = _table.get(key)
        if ref is not None:
            node = ref()
            if node is not None:
                site = current_site.site
                if site is not None and site not in node.sites and len(node.sites) < _MAX_SITES:
                    node.sites += (site,)
                return node
        return _make(key)

    def __reduce__(self) -> Any:
        return UOp, (self.op, self.dtype, self.src, self.arg)

    def __repr__(self) -> str:
        arg = "" if self.arg is None else f", {self.arg!r}"
        return f"<{self.op.name} {self.dtype}{list(self.shape)} of {len(self.src)}{arg}>"

    def __bool__(self) -> bool:
        raise TypeError("a UOp has no truth value; compare nodes with `is`")

    def replace(self, *, op: Op | None = None, dtype: DType | None = None,
                src: tuple[UOp, ...] | None = None, arg: Any = None) -> UOp:
        """This node with some fields changed; the sites of this one are kept."""
        new = UOp(op or self.op, dtype or self.dtype, self.src if src is None else src,
                  self.arg if arg is None else arg)
        return inherit(new, self)

    def digest(self) -> bytes:
        """Merkle digest of the content: equal in every process. Not for nodes with handles."""
        if self._digest is None:
            for node in toposort([self], into_functions=True):
                if node._digest is None:
                    h = hashlib.blake2b(digest_size=16)
                    h.update(f"{node.op.name}|{node.dtype.name}|{node.arg!r}|".encode())
                    for s in node.src:
                        assert s._digest is not None
                        h.update(s._digest)
                    node._digest = h.digest()
        assert self._digest is not None
        return self._digest


def _make(key: tuple[Any, ...]) -> UOp:
    op, dtype, src, arg = key
    node = object.__new__(UOp)
    node.op, node.dtype, node.src, node.arg = op, dtype, src, arg
    node.shape = op.shape(src, arg)
    node.ranges = _free_ranges(node)
    node.number = next(_numbers)
    site = current_site.site
    node.sites = () if site is None else (site,)
    node._digest = None
    ref = _Interned(node, _drop)
    ref.key = key
    while True:
        found = _table.setdefault(key, ref)
        if found is ref:
            return node
        other = found()
        if other is not None:
            return other
        with _lock:
            if _table.get(key) is found:
                _table[key] = ref
                return node


def _free_ranges(node: UOp) -> frozenset[UOp]:
    """Union over the operands, less the ranges that REDUCE, STAGE and KERNEL close."""
    op = node.op
    if op is RANGE:
        return frozenset((node,)) | node.src[0].ranges if node.src[0].ranges else \
            frozenset((node,))
    if op is KERNEL:
        return _NO_RANGES
    free = _NO_RANGES
    for s in node.src:
        if s.ranges and s.ranges is not free:
            free = free | s.ranges if free else s.ranges
    if free and (op is REDUCE or op is STAGE):
        return free.difference(node.src[1:])
    return free


def inherit(new: UOp, *old: UOp) -> UOp:
    """Give a rewritten node the sites of the nodes it stands for, if it has none."""
    if not new.sites:
        for node in old:
            if node.sites:
                new.sites = node.sites
                break
    return new


def toposort(roots: Iterable[UOp], *, into_functions: bool = False,
             stop: Callable[[UOp], bool] | None = None) -> list[UOp]:
    """All nodes below ``roots``, operands first; does not enter a FUNCTION unless told.

    ``stop(node)`` true: the node is listed, its operands are not visited. Iterative.
    """
    out: list[UOp] = []
    seen: set[UOp] = set()
    stack: list[tuple[UOp, bool]] = [(r, False) for r in reversed(list(roots))]
    while stack:
        node, done = stack.pop()
        if done:
            out.append(node)
            continue
        if node in seen:
            continue
        seen.add(node)
        if (node.op is FUNCTION and not into_functions) or (stop is not None and stop(node)) \
                or not node.src:
            out.append(node)
            continue
        stack.append((node, True))
        for s in reversed(node.src):
            if s not in seen:
                stack.append((s, False))
    return out


def substitute(roots: Iterable[UOp], to: Mapping[UOp, UOp]) -> list[UOp]:
    """The roots with nodes replaced; unchanged parts come back as the same objects.

    Does not enter a FUNCTION. Replacements are not searched again.
    """
    roots = list(roots)
    new: dict[UOp, UOp] = dict(to)
    for node in toposort(roots, stop=to.__contains__):
        if node in new:
            continue
        if node.op is FUNCTION:
            new[node] = node
            continue
        src = tuple([new[s] for s in node.src])
        new[node] = node if src == node.src else node.replace(src=src)
    return [new[r] for r in roots]


def consumers(nodes: Iterable[UOp]) -> dict[UOp, list[UOp]]:
    """For each node in a toposorted list, the nodes that read it (once per operand)."""
    out: dict[UOp, list[UOp]] = {n: [] for n in nodes}
    for node in out:
        if node.op is not FUNCTION:
            for s in node.src:
                out[s].append(node)
    return out


def live_nodes() -> int:
    """How many nodes are interned now (for tests of leaks)."""
    return len(_table)
