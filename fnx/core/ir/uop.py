"""The immutable, interned (hash-consed) graph node; iterative traversal and substitution.

Equal content means the same object, so nodes are compared and hashed by identity. The intern
table holds them weakly and is thread-safe: ``setdefault`` decides which thread was first, and a
lock is taken only to replace a dead entry.
"""

from __future__ import annotations

import itertools
import re
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fnx.core.ir.dtypes import DType
from fnx.core.ir.op import Op, itself, scalar
from fnx.core.support.config import config
from fnx.core.support.errors import Location
from fnx.core.support.line_visits import LineVisit, recording
from fnx.core.support.process import fork_safe_lock, lazy_import
from fnx.core.support.record import Record

hashlib = lazy_import("hashlib")  # it loads OpenSSL

_NO_RANGES: frozenset[UOp] = frozenset()
_MAX_LOCS = 8
_MAX_LOCS_CHECKED = 64  # with config.check, which names lines
_numbers = itertools.count()


def creation_mark() -> int:
    """Return a number greater than that of every node made so far."""
    return next(_numbers)


class _Interned(weakref.ref["UOp"]):
    """A weak reference that remembers its key, so that a dead entry can be dropped."""

    __slots__ = ("key",)
    key: tuple[Any, ...]


_table: dict[tuple[Any, ...], _Interned] = {}
_dead: deque[_Interned] = deque()
_lock = fork_safe_lock()


def drop_dead_entries() -> None:
    """Drop the table entries of dead nodes.

    The death of a node runs no bytecode (core/ir/cache.py). An entry leaves the deque
    last, so that a Ctrl-C in this function loses none.
    """
    with _lock:
        while _dead:
            ref = _dead[0]
            if _table.get(ref.key) is ref:
                del _table[ref.key]
            if _dead and _dead[0] is ref:  # else a finalizer ran this function meanwhile
                del _dead[0]
            del ref  # this frees the operands of that node: the next iteration finds them


class _CurrentLocation(threading.local):
    loc: Location | None = None

    def set_from(self, node: UOp, derivative: Any = None) -> None:
        """Give the nodes made next the lines of this node, or of its derivative by a walk."""
        if node.locs:
            locs = node.locs if derivative is None else tuple(
                [DerivativeLocation(loc, derivative.kind) for loc in node.locs])
            self.loc = locs[0] if len(locs) == 1 else _AmbiguousLocation(locs)
            if recording.recorder is not None:
                self.loc = recording.recorder.derived_location(node.locs, derivative) or self.loc


class CallLocation(tuple[str, int]):
    """The user's line of a call of a public function; equal to the line.

    Attributes:
        function: the name of the function.
        names: the user's names of the parts of the program that it is in, innermost last.
    """

    function = ""
    names: tuple[str, ...] = ()

    def __reduce__(self) -> Any:
        """Pickle as a plain line."""
        return tuple, (tuple(self),)

    def __eq__(self, other: object) -> bool:
        return type(other) is not LineVisit and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__


class DerivativeLocation(CallLocation):
    """The line of a node, as location of what its derivative consists of; equal to the line."""

    _forward = re.compile(r"(?<!transpose\()jvp\((.*?)\)(?=\)*$)")

    def __new__(cls, loc: Location, walk: str = "") -> DerivativeLocation:
        line = super().__new__(cls, loc)
        line.function, line.names = getattr(loc, "function", ""), getattr(loc, "names", ())
        if line.names and walk == "derivative":
            line.names = tuple([cls._forward.sub(r"transpose(jvp(\1))", n) for n in line.names])
        return line


class _AmbiguousLocation(CallLocation):
    """The first of several source lines, with all of them in ``all``."""

    all: tuple[Location, ...]

    def __new__(cls, locs: tuple[Location, ...]) -> _AmbiguousLocation:
        first = super().__new__(cls, locs[0])
        first.all = locs
        return first


def joint_location(node: UOp) -> Location | None:
    """Return a location that stands for all those of a node."""
    return node.loc if len(node.locs) < 2 or recording.recorder is not None \
        else _AmbiguousLocation(node.locs)


current_loc = _CurrentLocation()


class Composite(Record):
    """What the value of a node is in terms of earlier nodes: an operation that is several ops here.

    Jaxprs show it as one equation. Names and params are JAX's; ``build(*operands, **params)`` is
    the function, of Arrays. ``index``: which of its results the node is, if it has several.
    """

    name: str
    build: Callable[..., Any]
    operands: tuple[UOp, ...]
    params: dict[str, Any]
    index: int | None = None


class UOp:
    """A node: ``op``, ``dtype``, ``src`` (nodes), ``arg`` (never a node).

    ``shape`` and ``ranges`` (free ranges, kernel level) are computed once. ``number`` grows with
    creation. Operands of a commutative op are sorted by ``sort_key``, which depends only on
    content, so the order is the same in every process. ``locs`` are the user's source lines of the
    node. ``polynomial`` and ``bounds`` of an index expression are set by rewriting/symbolic.py,
    ``composite`` by ``set_composite``.
    """

    __slots__ = ("op", "dtype", "src", "arg", "shape", "ranges", "sort_key", "content_hashes",
                 "number", "locs", "polynomial", "bounds", "composite", "_digest", "__weakref__")
    op: Op
    dtype: DType
    src: tuple[UOp, ...]
    arg: Any
    shape: tuple[int, ...]
    ranges: frozenset[UOp]
    sort_key: int
    content_hashes: tuple[int, int]
    number: int
    locs: tuple[Location, ...]
    polynomial: dict[tuple[UOp, ...], int] | None
    bounds: tuple[int, int] | None
    composite: Composite | None
    _digest: bytes | None

    def __new__(cls, op: Op, dtype: DType, src: tuple[UOp, ...] = (), arg: Any = None) -> UOp:
        if op.commutative:
            a, b = src
            if (a.sort_key, a.number) > (b.sort_key, b.number):
                src = (b, a)
        key = (op, dtype, src, arg)
        ref = _table.get(key)
        if ref is not None:
            node = ref()
            if node is not None:
                loc = current_loc.loc
                if loc is not None:
                    if type(loc) is _AmbiguousLocation:
                        _add_locs(node, loc.all)
                    elif loc not in node.locs:
                        _add_locs(node, (loc,))
                return node
        return _intern(key)

    def __reduce__(self) -> Any:
        """Pickle as a list, operands first: graphs are deeper than pickle can recurse."""
        nodes = toposort([self], into_functions=True)
        number = {node: i for i, node in enumerate(nodes)}
        return _unpickle, ([(n.op, n.dtype, [number[s] for s in n.src], n.arg) for n in nodes],)

    def __deepcopy__(self, memo: Any) -> UOp:
        return self

    def __repr__(self) -> str:
        arg = "" if self.arg is None else f", {self.arg!r}"
        return f"<{self.op.name} {self.dtype}{list(self.shape)} of {len(self.src)}{arg}>"

    def __bool__(self) -> bool:
        raise TypeError("a UOp has no truth value; compare nodes with `is`")

    def replace(self, *, op: Op | None = None, dtype: DType | None = None,
                src: tuple[UOp, ...] | None = None, arg: Any = None) -> UOp:
        """Return this node with some fields changed, and with its locations."""
        new = UOp(op or self.op, dtype or self.dtype, self.src if src is None else src,
                  self.arg if arg is None else arg)
        return copy_locs(new, self)

    def with_operands(self, src: tuple[UOp, ...]) -> UOp:
        """Return this node with other operands, or itself if they are the same."""
        if src == self.src:
            return self
        return copy_locs(UOp(self.op, self.dtype, src, self.arg), self)

    @property
    def loc(self) -> Location | None:
        """The first of the user's source lines of the node."""
        return self.locs[0] if self.locs else None

    def digest(self) -> bytes:
        """Return the Merkle digest of the content, equal in every process.

        Nodes that hold handles have none.
        """
        if self._digest is None:
            for node in toposort([self], into_functions=True,
                                 stop=lambda n: n._digest is not None):
                if node._digest is None:
                    h = hashlib.blake2b(digest_size=16)
                    h.update(f"{node.op.name}|{node.dtype.name}|{node.arg!r}|".encode())
                    for s in node.src:
                        assert s._digest is not None
                        h.update(s._digest)
                    node._digest = h.digest()
        assert self._digest is not None
        return self._digest


def _unpickle(rows: list[tuple[Op, DType, list[int], Any]]) -> UOp:
    nodes: list[UOp] = []
    for op, dtype, src, arg in rows:
        nodes.append(UOp(op, dtype, tuple([nodes[i] for i in src]), arg))
    return nodes[-1]


def _intern(key: tuple[Any, ...]) -> UOp:
    if _dead:
        drop_dead_entries()
    op, dtype, src, arg = key
    node = object.__new__(UOp)
    node.op, node.dtype, node.src, node.arg = op, dtype, src, arg
    if op.shape is None:
        node.shape = src[0].shape if src else ()
    else:
        node.shape = () if op.shape is scalar else op.shape(src, arg)
    node.ranges = _free_ranges(node)
    node.sort_key, node.content_hashes = _sort_key(op, dtype, src, arg)
    node.number = next(_numbers)
    loc = current_loc.loc
    node.locs = () if loc is None else loc.all if type(loc) is _AmbiguousLocation else (loc,)
    node.polynomial = node.bounds = node.composite = node._digest = None
    ref = _Interned(node, _dead.append)
    ref.key = key
    while True:
        winner = _table.setdefault(key, ref)
        if winner is ref:
            return node
        existing = winner()
        if existing is not None:
            return existing
        with _lock:
            if _table.get(key) is winner:
                _table[key] = ref
                return node


def _sort_key(op: Op, dtype: DType, src: tuple[UOp, ...], arg: Any) -> tuple[int, tuple[int, int]]:
    """Return the sort key of a node among operands, and its ``form``.

    Sources with a ``source_key`` come first, constants last; the others are ordered by content.

    The ops of a node and of two levels of operands decide before the inputs below them, so equal
    layers on different inputs order their operands alike and become the same kernels. ``form``
    holds two such hashes: of the node alone, and of the node with its operands. Two nodes may
    have the same rank; ``number`` then decides. (Python does not randomize the hashes of integers
    and of tuples of them.)
    """
    content, source_key, arg_hash = op.content_key, op.source_key, 0
    if content is not None:
        arg_hash = arg if content is itself else content(arg)
    own_hash = hash((op.code, dtype.code, arg_hash))
    if source_key is not None:
        kind = op.code if content is None else own_hash
        return source_key(arg), (kind, kind)
    if len(src) == 2:  # fast path for most nodes: the same as below, without loops
        x, y = src
        form = own_hash, hash((own_hash, x.content_hashes[0], y.content_hashes[0]))
        near_hash = hash((own_hash, x.content_hashes[1], y.content_hashes[1]))
        far_hash = hash((own_hash, x.sort_key, y.sort_key))
    else:
        own_hashes, form_hashes = zip(*[s.content_hashes for s in src]) if src else ((), ())
        form = own_hash, hash((own_hash, *own_hashes))
        near_hash = hash((own_hash, *form_hashes))
        far_hash = hash((own_hash, *[s.sort_key for s in src]))
    return ((near_hash & 0x3FFFFFFF) + 1 << 32) + (far_hash & 0xFFFFFFFF), form


def _free_ranges(node: UOp) -> frozenset[UOp]:
    """Return the union of the operands' free ranges, without those that the node binds."""
    free = _NO_RANGES
    for s in node.src:
        if s.ranges and s.ranges is not free:
            free = free | s.ranges if free else s.ranges
    binds = node.op.binds
    if binds == "nothing":
        return free
    if binds == "itself":
        return free | {node}
    if binds == "head":
        return free.difference(node.src[:1])
    return free.difference(node.src[1:]) if binds == "tail" else _NO_RANGES


def set_composite(node: UOp, name: str, build: Callable[..., Any], operands: Sequence[UOp],
                  index: int | None = None, /, **params: Any) -> UOp:
    """Record that a node is an operation on others, unless it is one of them or has no operands."""
    if node.src and node not in operands:
        node.composite = Composite(name, build, tuple(operands), params, index)
    return node


def _copy_composite(composite: Composite, node: UOp, replacements: dict[UOp, UOp]) -> None:
    """Record of the replacement of a node what is recorded of the node, unless an operand is made
    from a source that has no replacement. An equal node of another graph may be named otherwise."""
    new = replacements[node]
    if new is node or new.composite is not None and new.composite.name == composite.name:
        return
    unread = [n for n in toposort(composite.operands, stop=replacements.__contains__)
              if n not in replacements]  # by the node
    if all(n.src or n.op.name in _CONSTANTS for n in unread):
        operands = rebuild(composite.operands, known=replacements)
        set_composite(new, composite.name, composite.build, operands, composite.index,
                      **composite.params)


_CONSTANTS = frozenset({"CONST", "IOTA"})


def copy_locs(new: UOp, *old: UOp) -> UOp:
    """Copy the locations of the first of the nodes that a rewritten node replaces that has some.

    The rewritten node may exist already, made from other lines of the user's code: it has both.
    """
    for node in old:
        if node.locs:
            if not new.locs:
                new.locs = node.locs
            elif new.locs is not node.locs and recording.recorder is None:
                _add_locs(new, node.locs)
            break
    return new


def add_location(node: UOp, loc: Location | None) -> None:
    """Add a location to those of a node."""
    if loc is not None and loc not in node.locs:
        _add_locs(node, (loc,))


def _add_locs(node: UOp, locs: tuple[Location, ...]) -> None:
    """Add locations to those of a node. Of too many, the first and the latest are kept."""
    new = tuple([loc for loc in locs if loc not in node.locs])
    if not new:
        return
    if recording.recorder is not None and not config.check:
        node.locs += new
    else:
        most = _MAX_LOCS_CHECKED if config.check else _MAX_LOCS
        node.locs = (*node.locs[:1], *(*node.locs[1:], *new)[1 - most:])


class _Orders(threading.local):
    known: dict[tuple[UOp, ...], list[UOp]] | None = None  # within lower/driver.py's reuse_orders


orders = _Orders()


def toposort(roots: Iterable[UOp], *, into_functions: bool = False,
             stop: Callable[[UOp], bool] | None = None) -> list[UOp]:
    """Return all nodes reachable from ``roots``, operands first; iterative.

    Does not enter a FUNCTION unless ``into_functions``. A node for which ``stop`` is true is
    listed, but its operands are not visited.
    """
    known = orders.known if stop is None and not into_functions else None
    if known is not None and (order := known.get(roots := tuple(roots))) is not None:
        return [*order]
    out, seen = list[UOp](), set[UOp]()
    above: list[tuple[UOp | None, Iterator[UOp]]] = []
    parent: UOp | None = None  # whose operands are being visited; None: the roots are
    rest = iter([*roots])
    while True:
        for node in rest:
            if node in seen:
                continue
            seen.add(node)
            if not node.src or (node.op.is_isolated and not into_functions) or \
                    (stop is not None and stop(node)):
                out.append(node)
                continue
            above.append((parent, rest))
            parent, rest = node, iter(node.src)
            break
        else:
            if parent is None:
                if known is not None:
                    known[tuple(roots)] = [*out]
                return out
            out.append(parent)
            parent, rest = above.pop()


def reachable(roots: Iterable[UOp]) -> set[UOp]:
    """Return the same nodes in no order, also inside FUNCTIONs, in two thirds of the time."""
    seen = {*(stack := [*roots])}
    while stack:
        for node in stack.pop().src:
            if node not in seen:
                seen.add(node)
                stack.append(node)
    return seen


Visit = Callable[[UOp, tuple[UOp, ...]], UOp | None]


def rebuild(roots: Iterable[UOp], visit: Visit | None = None,
            known: Mapping[UOp, UOp] | None = None, composites: bool = False) -> list[UOp]:
    """Rebuild graphs bottom up; unchanged parts come back as the same objects.

    ``visit(node, src)`` returns the replacement of a node, given its rebuilt operands, or None
    for the same node over them. Replacements are not visited. New nodes have the locations of those
    that they replace, whatever line is current. ``known`` holds replacements that are known
    beforehand. Does not enter a FUNCTION. ``composites``: whether each node is replaced by the same
    function of other operands, so that what is recorded of it holds.
    """
    roots = list(roots)
    done: dict[UOp, UOp] = dict(known or {})
    loc, current_loc.loc = current_loc.loc, None
    try:
        for node in toposort(roots, stop=done.__contains__ if done else None):
            if node in done:
                continue
            src = node.src if node.op.is_isolated else tuple([done[s] for s in node.src])
            replacement = None if visit is None else visit(node, src)
            if replacement is None:
                replacement = node if src == node.src else node.with_operands(src)
            elif replacement is not node:
                copy_locs(replacement, node)
            done[node] = replacement
            if composites and node.composite is not None:
                _copy_composite(node.composite, node, done)
    finally:
        current_loc.loc = loc
    return [done[r] for r in roots]


def substitute(roots: Iterable[UOp], replacements: Mapping[UOp, UOp]) -> list[UOp]:
    """Replace nodes in graphs; replacements are not searched again."""
    recorder = recording.recorder
    visit = None if recorder is None else recorder.with_operands
    return rebuild(roots, visit, replacements, composites=True)


def rebuild_results(fn: UOp, visit: Visit, known: Mapping[UOp, UOp] | None = None) -> UOp:
    """Return a FUNCTION with its results rebuilt, or itself if nothing changes."""
    return fn.with_operands(tuple(rebuild(fn.src, visit, known)))


def interned_nodes() -> list[UOp]:
    """Return all nodes that are alive."""
    return [node for ref in list(_table.values()) if (node := ref()) is not None]


def live_nodes() -> int:
    """Return how many nodes are interned now (for leak tests)."""
    drop_dead_entries()
    return len(_table)
