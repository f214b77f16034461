"""The traces that are open: who owns a LEAF, and which value it has.

Each transform traces a function with fresh LEAFs, so that a derivative of one call is never
taken for that of another. Traces nest; each thread has its own stack of them. Under ``grad``
outside ``jit`` a leaf knows its value, and Python's ``if`` works on what depends on it. Such a
value is a node too, and may hold leaves of the traces around it.

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

MAX_NESTED = 500  # traces that are open at once in a thread
FRAMES = 40       # of Python that one of them may take, with the user's own
FREE = 25         # of them that Python has room for anyhow
MAX_CLOSED = 4096  # leaves of closed traces whose origin is remembered, for messages

_ids = itertools.count()
_closed: Cache[int, tuple[str, Site | None]] = Cache("leaves of closed traces",
                                                     MAX_CLOSED)


class _OpenScopes(threading.local):
    """The open scopes of this thread, innermost last; all leaves and known values of them."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.owner: dict[UOp, Scope] = {}
        self.values: dict[UOp, UOp] = {}


of_threads = _open = _OpenScopes()
# The user's own names of parts, of this thread or task: (depth among the scopes, name, line).
_names: ContextVar[tuple[tuple[int, str, Site | None], ...]] = ContextVar("fnx names", default=())


class Scope:
    """One trace while it is open, as a context manager.

    ``name`` says whose, for messages. ``axis`` is the named axis that it maps over; ``axes`` are
    all that are open inside it, this one last. ``loop``: what it traces is run many times.
    Nodes below the number ``since`` were there before.
    """

    __slots__ = ("name", "axis", "loop", "axes", "leaves", "remembered", "site", "opened", "since",
                 "first", "token")

    def __init__(self, name: str, axis: op_args.Axis | None = None, loop: bool = False) -> None:
        self.name, self.axis, self.loop, self.since = name, axis, loop, now()
        self.axes: tuple[op_args.Axis, ...] = ()
        self.leaves: list[UOp] = []
        self.remembered: list[UOp] = []
        self.site: Site | None = None
        self.opened: Site | None = None  # the user's line that it runs for
        self.first: UOp | None = None  # the token that the first effect in it follows
        self.token: UOp | None = None  # and that which the next one will

    def leaf(self, dtype: DType, shape: Shape, value: UOp | None = None) -> UOp:
        """A fresh LEAF of this trace; ``value`` where one is known."""
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
        self.site, current_site.site = current_site.site, None  # the traced code has its own lines
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
        if not _open.scopes:  # also what Ctrl-C has kept others from taking away
            _open.owner.clear()
            _open.values.clear()


def stack() -> list[Scope]:
    """The open scopes of this thread, innermost last: for who restores it."""
    return _open.scopes


def _open_transforms() -> list[tuple[str, Site | None]]:
    found = [(s.name, s.opened) for s in _open.scopes]
    for i, (depth, name, site) in enumerate(_names.get()):
        found.insert(min(depth, len(_open.scopes)) + i, (name, site))
    return found[::-1]


@contextlib.contextmanager
def named(name: str, site: Site | None) -> Iterator[None]:
    """A part of the user's program that errors name beside the transforms."""
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
    """The number below which nodes were there before the innermost loop that is traced."""
    return max([s.since for s in _open.scopes if s.loop], default=0)


def axes() -> tuple[op_args.Axis, ...]:
    """The named axes that are open, innermost last: a trace is for these only."""
    return _open.scopes[-1].axes if _open.scopes else ()


def new_axis(name: Hashable, size: int) -> op_args.Axis:
    """An axis to be opened; one of the same name around it is hidden."""
    return op_args.Axis(name, size, sum([a.name == name for a in axes()]))


def named_axis(name: Hashable) -> op_args.Axis:
    """The innermost open axis of a name.

    Raises:
        AxisNameError: there is none.
    """
    for axis in reversed(axes()):
        if axis.name == name:
            return axis
    found = [f"{s.axis.name!r} of {s.name} ({show_site(s.opened)})"
             for s in reversed(_open.scopes) if s.axis is not None]
    raise AxisNameError(f"expected the name of an open axis, got {name!r}; open are: "
                        f"{', '.join(found) or 'none'}",
                        hint=f"call it inside vmap(..., axis_name={name!r})")


# ---- effects: each follows the one before it by a token ------------------------------------------

pending: dict[int, UOp] = {}  # by thread: the token of effects outside of all traces


def token() -> UOp:
    """What the next effect follows: in a trace a leaf, then the tokens of its effects."""
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
    """An effect has taken place; ``token`` is what the next one follows."""
    if _open.scopes:
        _open.scopes[-1].token = token
    else:
        pending[threading.get_ident()] = token


def take_pending() -> UOp | None:
    """The token of what has been done outside of all traces; it is to be computed now."""
    return pending.pop(threading.get_ident(), None)


def outside(f: Callable[[], T]) -> T:
    """What f returns, called outside of all traces: a callback runs in the middle of one, or of a
    public call.

    A function, as Ctrl-C may come before the first line of an ``__exit__``: here it can't come
    between the end of f and the end of ``finally``, which holds no call.
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
    """``outside`` as a block of the user's program, in a traced function.

    One that Ctrl-C has left ends when its error is forgotten: whatever is open then stays.
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
    """Keep the value of an intermediate (a node without leaves) while its trace is open.

    So a loop that asks for a value at each step does not compute all steps before again. A buffer
    that is its own value needs no entry; with one, ``known`` would go round.
    """
    if _open.scopes and node is not value and node not in _open.values:
        _open.values[node] = value
        _open.scopes[-1].remembered.append(node)


def known(node: UOp) -> UOp:
    """The same graph with leaves replaced by their values.

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
    """Whether a node depends on a leaf: on what a trace runs on."""
    return any(n.op is ops.LEAF for n in toposort([node]))


def check_open(leaf: UOp) -> None:
    """Raise LeakedTracerError unless the trace that owns ``leaf`` is open in this thread."""
    if _open.owner.get(leaf) not in _open.scopes:
        raise _no_value(leaf, leaf)


def _of_lanes(node: UOp, asked: UOp) -> TracedValueError:
    """The error for a value that each lane of a named axis has its own of."""
    return TracedValueError(
        f"expected a value, got {_what(asked)}: it depends on the lanes of axis "
        f"{node.arg.name!r}", hint="choose with fnx.numpy.where or fnx.lax.cond")


def _what(asked: UOp) -> str:
    what = f"a traced {asked.dtype}{list(asked.shape)}"
    site = nearest(asked.sites)
    return f"{what} computed at {show_site(site)}" if site else what


def _no_value(leaf: UOp, asked: UOp) -> LeakedTracerError | TracedValueError:
    """The error for a value that depends on a leaf without one."""
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
    """Which open traces a node depends on, as ``(jit)``; ``(closed)`` for leaves of none.

    >>> from fnx.core import dtypes
    >>> with Scope("jit") as scope:
    ...     print(describe(scope.leaf(dtypes.float32, ())))
    (jit)
    """
    owners = {_open.owner.get(n) for n in toposort([node]) if n.op is ops.LEAF}
    names = [s.name for s in _open.scopes if s in owners]
    return f"({', '.join(names + ['closed'] * (None in owners))})"
