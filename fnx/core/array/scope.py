"""The open traces: which trace owns a LEAF, and which value the LEAF has.

Each transform traces a function with fresh LEAFs, so that the derivatives of two calls are never
confused. Traces nest; each thread has its own stack. Under ``grad`` outside ``jit`` a leaf has a
known value, so Python's ``if`` works on values that depend on it. Such a value is a node, too,
and may contain leaves of the enclosing traces.

>>> from fnx.core import build, dtypes
>>> with Scope("grad") as scope:
...     x = scope.leaf(dtypes.float32, (), value=build.const(3.0, dtypes.float32))
...     known(build.add(x, x))
<ADD float32[] of 2>
>>> known(x)                                                # doctest: +IGNORE_EXCEPTION_DETAIL
Traceback (most recent call last):
fnx.core.errors.LeakedTracerError: ...
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import TypeVar

from fnx.core import build_calls, op_args, ops
from fnx.core.cache import Cache
from fnx.core.dtypes import DType
from fnx.core.errors import (
    AxisNameError,
    LeakedTracerError,
    NestingError,
    Site,
    TracedValueError,
    nearest,
    set_open_transforms,
    show_site,
    user_site,
)
from fnx.core.ops import Shape
from fnx.core.row_parts import LEAF_BITS
from fnx.core.uop import UOp, current_site, now, substitute, toposort

T = TypeVar("T")

MAX_NESTED = 500  # traces open at once in a thread
FRAMES = 40       # Python frames that a trace may take, those of the user's function included
FREE = 25         # nested traces that fit in the default recursion limit
MAX_CLOSED = 4096  # leaves of closed traces whose origin is recorded, for error messages

_ids = itertools.count()
_closed: Cache[int, tuple[str, Site | None]] = Cache("leaves of closed traces",
                                                     MAX_CLOSED)


class _OpenScopes(threading.local):
    """The open scopes of this thread, innermost last, with their leaves and known values."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.owner: dict[UOp, Scope] = {}
        self.values: dict[UOp, UOp] = {}


of_threads = _open = _OpenScopes()
# The user's named scopes of this thread or task: (depth among the traces, name, location).
_names: ContextVar[tuple[tuple[int, str, Site | None], ...]] = ContextVar("fnx names", default=())


class Scope:
    """One open trace, as a context manager.

    ``name`` describes it in messages. ``axis`` is the named axis that it maps over; ``axes`` are
    all axes open inside it, this one last. ``loop``: it traces the body of a loop. Nodes with a
    number below ``since`` existed before.
    """

    __slots__ = ("name", "axis", "loop", "axes", "leaves", "remembered", "site", "opened", "since",
                 "first", "token")

    def __init__(self, name: str, axis: op_args.Axis | None = None, loop: bool = False) -> None:
        self.name, self.axis, self.loop, self.since = name, axis, loop, now()
        self.axes: tuple[op_args.Axis, ...] = ()
        self.leaves: list[UOp] = []
        self.remembered: list[UOp] = []
        self.site: Site | None = None
        self.opened: Site | None = None  # the user's line that opened it
        self.first: UOp | None = None  # the input token of its first effect
        self.token: UOp | None = None  # the input token of its next effect

    def leaf(self, dtype: DType, shape: Shape, value: UOp | None = None) -> UOp:
        """Create a LEAF of this trace; ``value`` is its value, if known."""
        id = next(_ids) << LEAF_BITS | len(self.leaves)
        node = UOp(ops.LEAF, dtype, (), op_args.Leaf(id, tuple(shape)))
        self.leaves.append(node)
        _open.owner[node] = self
        if value is not None:
            _open.values[node] = value
        return node

    def __enter__(self) -> Scope:
        depth = len(_open.scopes)
        if depth > MAX_NESTED:
            raise NestingError(f"expected at most {MAX_NESTED} nested traces, got one more: "
                               f"{self.name}", hint="does a traced function call itself?")
        if depth > FREE:  # a call through a transform takes more frames than the call itself
            sys.setrecursionlimit(max(sys.getrecursionlimit(), FRAMES * (depth + FREE)))
        self.axes = axes() if self.axis is None else (*axes(), self.axis)
        _open.scopes.append(self)
        self.site, current_site.site = current_site.site, None  # traced code has its own locations
        self.opened = self.site or user_site(2)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        _open.scopes.remove(self)
        current_site.site = self.site
        for node in self.leaves if self.first is None else [*self.leaves, self.first]:
            _open.owner.pop(node, None)
            _open.values.pop(node, None)
            _closed.keep(node.arg.id, (self.name, self.opened))
        for node in self.remembered:
            _open.values.pop(node, None)
        if not _open.scopes:  # includes what traces interrupted by Ctrl-C left behind
            _open.owner.clear()
            _open.values.clear()


def stack() -> list[Scope]:
    """Return the open scopes of this thread, innermost last; the caller may truncate the list."""
    return _open.scopes


def _open_transforms() -> list[tuple[str, Site | None]]:
    found = [(s.name, s.opened) for s in _open.scopes]
    for i, (depth, name, site) in enumerate(_names.get()):
        found.insert(min(depth, len(_open.scopes)) + i, (name, site))
    return found[::-1]


@contextlib.contextmanager
def named(name: str, site: Site | None) -> Iterator[None]:
    """Name a part of the user's program; errors list it among the transforms."""
    before = _names.get()
    _names.set((*before, (len(_open.scopes), name, site)))
    try:
        yield
    finally:
        _names.set(before)


set_open_transforms(_open_transforms)


def is_open() -> bool:
    """Whether this thread is tracing."""
    return bool(_open.scopes)


def loop_since() -> int:
    """Return the number below which nodes existed before the innermost open loop trace."""
    return max([s.since for s in _open.scopes if s.loop], default=0)


def axes() -> tuple[op_args.Axis, ...]:
    """Return the open named axes, innermost last; a trace is valid for these only."""
    return _open.scopes[-1].axes if _open.scopes else ()


def new_axis(name: Hashable, size: int) -> op_args.Axis:
    """Create an axis to open; it shadows an outer one of the same name."""
    return op_args.Axis(name, size, sum([a.name == name for a in axes()]))


def named_axis(name: Hashable) -> op_args.Axis:
    """Return the innermost open axis of a name.

    Raises:
        AxisNameError: no open axis has the name.
    """
    for axis in reversed(axes()):
        if axis.name == name:
            return axis
    found = [f"{s.axis.name!r} of {s.name} ({show_site(s.opened)})"
             for s in reversed(_open.scopes) if s.axis is not None]
    raise AxisNameError(f"expected the name of an open axis, got {name!r}; open are: "
                        f"{', '.join(found) or 'none'}",
                        hint=f"call it inside vmap(..., axis_name={name!r})")


# ---- effects: ordered by a token that each takes and returns -------------------------------------

pending: dict[int, UOp] = {}  # thread id -> the token of pending effects outside all traces


def token() -> UOp:
    """Return the token for the next effect: in a trace first a leaf, then its effects' tokens."""
    if not _open.scopes:
        return pending.get(threading.get_ident()) or build_calls.first_token()
    scope = _open.scopes[-1]
    if scope.token is None:
        shape, dtype = build_calls.TOKEN
        id = next(_ids) << LEAF_BITS | (1 << LEAF_BITS) - 1
        scope.first = scope.token = UOp(ops.LEAF, dtype, (), op_args.Leaf(id, shape))
        _open.owner[scope.token] = scope
    return scope.token


def follow(token: UOp) -> None:
    """Record an effect: ``token`` is its output, which the next effect takes."""
    if _open.scopes:
        _open.scopes[-1].token = token
    else:
        pending[threading.get_ident()] = token


def take_pending() -> UOp | None:
    """Remove and return the token of effects outside all traces, which must be evaluated now."""
    return pending.pop(threading.get_ident(), None)


def outside(f: Callable[[], T]) -> T:
    """Call f outside all traces: a callback may run in the middle of one, or of a public call.

    A function and not a context manager, as Ctrl-C may arrive before the first line of an
    ``__exit__``. It cannot arrive between the end of f and the end of the ``finally`` block, which
    contains no call.
    """
    scopes, owner, values, site = _open.scopes, _open.owner, _open.values, current_site.site
    me = threading.get_ident()
    before = pending.get(me)
    try:
        _open.scopes, _open.owner, _open.values, current_site.site = [], {}, {}, None
        if before is not None:
            del pending[me]
        return f()
    finally:
        _open.scopes, _open.owner, _open.values, current_site.site = scopes, owner, values, site
        if before is not None:
            pending[me] = before


@contextlib.contextmanager
def time_outside() -> Iterator[None]:
    """``outside`` as a ``with`` block in a user's traced function.

    A block that Ctrl-C interrupted ends when its exception is garbage collected; traces that are
    open at that time remain open.
    """
    scopes, owner, values = _open.scopes, _open.owner, _open.values
    mine: list[Scope] = []
    try:
        _open.scopes, _open.owner, _open.values = mine, {}, {}
        yield
    finally:
        if _open.scopes is mine and not mine:
            _open.scopes, _open.owner, _open.values = scopes, owner, values


# ---- values --------------------------------------------------------------------------------------


def remember(node: UOp, value: UOp) -> None:
    """Cache the value of an intermediate (a node without leaves) while its trace is open.

    So a loop that reads a value in each step does not recompute all earlier steps. A buffer that is
    its own value needs no entry; with one, ``known`` would not terminate.
    """
    if _open.scopes and node is not value and node not in _open.values:
        _open.values[node] = value
        _open.scopes[-1].remembered.append(node)


def known(node: UOp) -> UOp:
    """Return the graph with leaves replaced by their values.

    Raises:
        TracedValueError: a leaf has no value (``jit``, ``vmap``).
        LeakedTracerError: the trace of a leaf is closed.
    """
    values, asked = _open.values, node
    while True:
        order = toposort([node], stop=values.__contains__)
        found = False
        for n in order:
            if n in values:
                found = True
            elif n.op is ops.LEAF:
                raise _no_value(n, asked)
            elif n.op.kind == "collective":
                raise _of_lanes(n, asked)
        if not found:
            return node
        node = substitute([node], values)[0]


def reads_leaf(node: UOp) -> bool:
    """Whether a node depends on a leaf, the input of a trace."""
    return any(n.op is ops.LEAF for n in toposort([node]))


def check_open(leaf: UOp) -> None:
    """Raise LeakedTracerError unless the trace that owns ``leaf`` is open in this thread."""
    if _open.owner.get(leaf) not in _open.scopes:
        raise _no_value(leaf, leaf)


def _of_lanes(node: UOp, asked: UOp) -> TracedValueError:
    """Return the error for a value that differs between the elements of a named axis."""
    return TracedValueError(
        f"expected a value, got {_what(asked)}: it depends on the lanes of axis "
        f"{node.arg.name!r}", hint="choose with fnx.numpy.where or fnx.lax.cond")


def _what(asked: UOp) -> str:
    what = f"a traced {asked.dtype}{list(asked.shape)}"
    site = nearest(asked.sites)
    return f"{what} computed at {show_site(site)}" if site else what


def _no_value(leaf: UOp, asked: UOp) -> LeakedTracerError | TracedValueError:
    """Return the error for a value that depends on a leaf without a value."""
    what = _what(asked)
    scope = _open.owner.get(leaf)
    if scope is not None and build_calls.is_token(leaf):
        return TracedValueError(
            f"expected a value, got {what}, which depends on an effect: {scope.name} runs it when "
            "the whole is computed", hint="choose with fnx.numpy.where instead of Python's `if`")
    if scope is None:
        name, opened = _closed.get(leaf.arg.id) or ("a function", None)
        called = f" called at {show_site(opened)}" if opened else ""
        return LeakedTracerError(
            f"expected an array, got {what} that outlived its trace: {name}{called}",
            hint="return it from the traced function instead of storing it outside, "
                 "and do not hand it to another thread")
    error = TracedValueError(f"expected a value, got {what}: {scope.name} traces without values")
    if scope.name.startswith("jit"):
        error.static = "name the argument that it comes from in static_argnums"
    error.instead("compute with fnx.numpy, or hand values to others with fnx.pure_callback")
    return error


def describe(node: UOp) -> str:
    """Return the open traces that a node depends on, as ``(jit)``; ``(closed)`` for other leaves.

    >>> from fnx.core import dtypes
    >>> with Scope("jit") as scope:
    ...     print(describe(scope.leaf(dtypes.float32, ())))
    (jit)
    """
    owners = {_open.owner.get(n) for n in toposort([node]) if n.op is ops.LEAF}
    names = [s.name for s in _open.scopes if s in owners]
    return f"({', '.join(names + ['closed'] * (None in owners))})"
