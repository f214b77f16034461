"""The open traces: which trace owns a LEAF, and which value the LEAF has.

Each transform traces a function with fresh LEAFs, so that the derivatives of two calls are never
confused. Traces nest; each thread has its own stack. Under ``grad`` outside ``jit`` a leaf has a
known value, so Python's ``if`` works on values that depend on it. Such a value is a node, too,
and may contain leaves of the enclosing traces.

>>> from fnx.core.ir import build, dtypes
>>> with Scope("grad") as scope:
...     x = scope.leaf(dtypes.float32, (), value=build.const(3.0, dtypes.float32))
...     resolve_leaves(build.add(x, x))
<ADD float32[] of 2>
>>> resolve_leaves(x)                                       # doctest: +IGNORE_EXCEPTION_DETAIL
Traceback (most recent call last):
fnx.core.support.errors.LeakedTracerError: ...
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, TypeVar

from fnx.core.ir import build_calls, op_args, ops
from fnx.core.ir.cache import find_memo, memos_of
from fnx.core.ir.dtypes import DType
from fnx.core.ir.op import LEAF_BITS
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp, creation_mark, current_loc, substitute, toposort
from fnx.core.support.errors import (
    AxisNameError,
    LeakedTracerError,
    Location,
    NestingError,
    TracedValueError,
    choose_location,
    format_location,
    set_open_transforms,
    user_location,
)

T = TypeVar("T")

MAX_NESTED = 500  # traces open at once in a thread
# Python frames that a trace may take, those of the user's function included
FRAMES_PER_TRACE = 40
FREE_DEPTH = 25         # nested traces that fit in the default recursion limit

_ids = itertools.count()


class _TraceState(threading.local):
    """The open scopes of this thread, innermost last, with their leaves and known values."""

    def __init__(self) -> None:
        self.scopes: list[Scope] = []
        self.leaf_owner: dict[UOp, Scope] = {}
        self.values: dict[UOp, UOp] = {}
        self.suspended = 0  # open ``suspend_traces``
        self.watchers: list[Any] = []  # that see each trace: core/tracing/state.py
        self.lines: set[Location] | None = None  # the user's lines that called fnx, if collected


thread_state = _state = _TraceState()
# The user's named scopes of this thread or task: (depth among the traces, name, location).
_named_regions: ContextVar[tuple[tuple[int, str, Location | None], ...]] = ContextVar(
    "fnx names", default=())


class Scope:
    """One open trace, as a context manager.

    ``name`` describes it in messages. ``axis`` is the named axis that it maps over; ``axes`` are
    all axes open inside it, this one last. ``loop``: it traces the body of a loop. Nodes with a
    number below ``start_number`` existed before.
    """

    __slots__ = ("name", "axis", "loop", "axes", "leaves", "cached_nodes", "loc", "opened_at",
                 "start_number", "first_token", "token", "log")

    def __init__(self, name: str, axis: op_args.Axis | None = None, loop: bool = False) -> None:
        self.name, self.axis, self.loop, self.start_number = name, axis, loop, creation_mark()
        self.axes: tuple[op_args.Axis, ...] = ()
        self.leaves: list[UOp] = []
        self.cached_nodes: list[UOp] = []
        self.loc: Location | None = None
        self.opened_at: Location | None = None  # the user's line that opened it
        self.first_token: UOp | None = None  # the input token of its first effect
        self.token: UOp | None = None  # the input token of its next effect
        self.log: Any = None  # of accesses of references: core/tracing/reference_log.py

    @property
    def main(self) -> Scope:
        """The trace itself, by which libraries for JAX compare traces."""
        return self

    def leaf(self, dtype: DType, shape: Shape, value: UOp | None = None) -> UOp:
        """Create a LEAF of this trace; ``value`` is its value, if known."""
        id = next(_ids) << LEAF_BITS | len(self.leaves)
        node = UOp(ops.LEAF, dtype, (), op_args.Leaf(id, tuple(shape)))
        self.leaves.append(node)
        _state.leaf_owner[node] = self
        if value is not None:
            _state.values[node] = value
        return node

    def __enter__(self) -> Scope:
        depth = len(_state.scopes)
        if depth > MAX_NESTED:
            raise NestingError(f"expected at most {MAX_NESTED} nested traces, got one more: "
                               f"{self.name}", hint="check whether a traced function calls itself")
        if depth > FREE_DEPTH:  # a call through a transform takes more frames than the call itself
            sys.setrecursionlimit(max(sys.getrecursionlimit(),
                                      FRAMES_PER_TRACE * (depth + FREE_DEPTH)))
        self.axes = open_axes() if self.axis is None else (*open_axes(), self.axis)
        _state.scopes.append(self)
        self.loc, current_loc.loc = current_loc.loc, None  # traced code has its own locations
        self.opened_at = self.loc or user_location(2)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        _state.scopes.remove(self)
        current_loc.loc = self.loc
        for node in self.leaves if self.first_token is None else [*self.leaves, self.first_token]:
            _state.leaf_owner.pop(node, None)
            _state.values.pop(node, None)
            memos_of(node)[Scope] = self.name, self.opened_at  # for error messages
        for node in self.cached_nodes:
            _state.values.pop(node, None)
        if not _state.scopes:  # includes what traces interrupted by Ctrl-C left behind
            _state.leaf_owner.clear()
            _state.values.clear()


def open_scopes() -> list[Scope]:
    """Return the open scopes of this thread, innermost last; the caller may truncate the list."""
    return _state.scopes


def is_within(transform: str) -> bool:
    """Whether a transform of this name is open.

    >>> is_within("make_jaxpr")
    False
    """
    return any(s.name.startswith(f"{transform} of ") for s in _state.scopes)


def _open_transforms() -> list[tuple[str, Location | None]]:
    transforms = [(s.name, s.opened_at) for s in _state.scopes]
    for i, (depth, name, loc) in enumerate(_named_regions.get()):
        transforms.insert(min(depth, len(_state.scopes)) + i, (name, loc))
    return transforms[::-1]


# What a name is within a transform, as JAX writes it.
_WITHIN = {"vmap": "vmap", **dict.fromkeys(
    ("grad", "value_and_grad", "jvp", "vjp", "linearize", "jacfwd", "jacrev"), "jvp")}


def region_names() -> tuple[str, ...]:
    """Return the user's names of the open parts of the innermost function that is traced:
    ``layer``, and ``vmap(layer)`` within a transform of it."""
    regions = _named_regions.get()
    if not regions:
        return ()
    kinds = [_WITHIN.get(s.name.partition(" ")[0]) for s in _state.scopes]
    base = next((i for i in range(len(kinds), 0, -1) if kinds[i - 1] is None), 0)
    names = []
    for depth, name, _ in regions:
        if depth >= base:
            for kind in reversed(kinds[base:depth]):
                name = f"{kind}({name})"
            names.append(name)
    return tuple(names)


@contextlib.contextmanager
def named_region(name: str, loc: Location | None) -> Iterator[None]:
    """Name a part of the user's program; errors list it among the transforms."""
    saved = _named_regions.get()
    _named_regions.set((*saved, (len(_state.scopes), name, loc)))
    try:
        yield
    finally:
        _named_regions.set(saved)


set_open_transforms(_open_transforms)


def is_open() -> bool:
    """Whether this thread is tracing."""
    return bool(_state.scopes)


def innermost() -> Scope | None:
    """Return the innermost open trace, or None."""
    return _state.scopes[-1] if _state.scopes else None


def record_lines(*lines: Location) -> None:
    """Record lines of the user's that called fnx, if they are being collected."""
    if _state.lines is not None:
        _state.lines.update(lines)


def recorded_location(skip: int) -> Location | None:
    """Return the user's line, as ``user_location`` does, and record it."""
    loc = user_location(skip + 1)
    if loc is not None:
        record_lines(loc)
    return loc


def collect_lines(f: Callable[[], T]) -> tuple[T, frozenset[Location]]:
    """Call f; return its result, and the user's lines that called fnx meanwhile."""
    outer, _state.lines = _state.lines, set()
    try:
        return f(), frozenset(_state.lines)
    finally:
        inner, _state.lines = _state.lines, outer
        record_lines(*inner)


def loop_start() -> int:
    """Return the number below which nodes existed before the innermost open loop trace."""
    return max([s.start_number for s in _state.scopes if s.loop], default=0)


def open_axes() -> tuple[op_args.Axis, ...]:
    """Return the open named axes, innermost last; a trace is valid for these only."""
    return _state.scopes[-1].axes if _state.scopes else ()


def new_axis(name: Hashable, size: int, sums_cotangents: bool = False) -> op_args.Axis:
    """Create an axis to open; it shadows an outer one of the same name."""
    return op_args.Axis(name, size, sum([a.name == name for a in open_axes()]), sums_cotangents)


def summing_axes() -> tuple[op_args.Axis, ...]:
    """Return the open axes over which cotangents of values that do not vary are summed."""
    return tuple([axis for axis in open_axes() if axis.sums_cotangents])


def named_axis(name: Hashable) -> op_args.Axis:
    """Return the innermost open axis of a name.

    Raises:
        AxisNameError: no open axis has the name.
    """
    for axis in reversed(open_axes()):
        if axis.name == name:
            return axis
    names = [f"{s.axis.name!r} of {s.name} ({format_location(s.opened_at)})"
             for s in reversed(_state.scopes) if s.axis is not None]
    raise AxisNameError(f"expected the name of an open axis, got {name!r}; open are: "
                        f"{', '.join(names) or 'none'}",
                        hint=f"call it inside vmap(..., axis_name={name!r}), or inside "
                             "shard_map over a mesh with this axis")


# ---- effects: ordered by a token that each takes and returns -------------------------------------

pending_tokens: dict[int, UOp] = {}  # thread id -> the token of pending effects outside all traces


def current_token() -> UOp:
    """Return the token for the next effect: in a trace first a leaf, then its effects' tokens."""
    if not _state.scopes:
        return pending_tokens.get(threading.get_ident()) or build_calls.initial_token()
    scope = _state.scopes[-1]
    if scope.token is None:
        shape, dtype = build_calls.TOKEN
        id = next(_ids) << LEAF_BITS | (1 << LEAF_BITS) - 1
        scope.first_token = scope.token = UOp(ops.LEAF, dtype, (), op_args.Leaf(id, shape))
        _state.leaf_owner[scope.token] = scope
    return scope.token


def set_token(token: UOp) -> None:
    """Record an effect: ``token`` is its output, which the next effect takes."""
    if _state.scopes:
        _state.scopes[-1].token = token
    else:
        pending_tokens[threading.get_ident()] = token


def pop_pending() -> UOp | None:
    """Remove and return the token of effects outside all traces, which must be evaluated now."""
    return pending_tokens.pop(threading.get_ident(), None)


def run_outside(f: Callable[[], T]) -> T:
    """Call f outside all traces: a callback may run in the middle of one, or of a public call.

    A function and not a context manager, as Ctrl-C may arrive before the first line of an
    ``__exit__``. It cannot arrive between the end of f and the end of the ``finally`` block, which
    contains no call.
    """
    scopes, owner, values, loc = _state.scopes, _state.leaf_owner, _state.values, current_loc.loc
    thread = threading.get_ident()
    saved_token = pending_tokens.get(thread)
    try:
        _state.scopes, _state.leaf_owner, _state.values, current_loc.loc = [], {}, {}, None
        if saved_token is not None:
            del pending_tokens[thread]
        return f()
    finally:
        _state.scopes, _state.leaf_owner = scopes, owner
        _state.values, current_loc.loc = values, loc
        if saved_token is not None:
            pending_tokens[thread] = saved_token


@contextlib.contextmanager
def suspend_traces() -> Iterator[None]:
    """``run_outside`` as a ``with`` block in a user's traced function.

    What depends on the arguments of these traces remains part of them.

    A block that Ctrl-C interrupted ends when its exception is garbage collected; traces that are
    open at that time remain open.
    """
    scopes, owner, values = _state.scopes, _state.leaf_owner, _state.values
    fresh: list[Scope] = []
    try:
        _state.scopes, _state.leaf_owner, _state.values = fresh, {**owner}, {**values}
        _state.suspended += 1
        yield
    finally:
        _state.suspended -= 1
        if _state.scopes is fresh and not fresh:
            _state.scopes, _state.leaf_owner, _state.values = scopes, owner, values


def is_traced(nodes: Iterable[UOp]) -> bool:
    """Whether a call with these operands is part of a trace: one is open, or suspended."""
    return bool(_state.scopes) or any(map(is_suspended, nodes))


def is_suspended(node: UOp) -> bool:
    """Whether a node depends on a trace around an open ``suspend_traces``."""
    return _state.suspended > 0 and depends_on_leaf(node)


# ---- values --------------------------------------------------------------------------------------


def cache_value(node: UOp, value: UOp) -> None:
    """Cache the value of an intermediate (a node without leaves) while its trace is open.

    So a loop that reads a value in each step does not recompute all earlier steps. A buffer that is
    its own value needs no entry; with one, ``resolve_leaves`` would not terminate.
    """
    if _state.scopes and node is not value and node not in _state.values:
        _state.values[node] = value
        _state.scopes[-1].cached_nodes.append(node)


def resolve_leaves(node: UOp) -> UOp:
    """Return the graph with leaves replaced by their values.

    Raises:
        TracedValueError: a leaf has no value (``jit``, ``vmap``).
        LeakedTracerError: the trace of a leaf is closed.
    """
    values, requested = _state.values, node
    while True:
        order = toposort([node], stop=values.__contains__)
        has_values = False
        for n in order:
            if n in values:
                has_values = True
            elif n.op is ops.LEAF:
                raise _no_value_error(n, requested)
            elif n.op.kind == "collective":
                raise _batched_value_error(n, requested)
        if not has_values:
            return node
        node = substitute([node], values)[0]


def depends_on_leaf(node: UOp) -> bool:
    """Whether a node depends on a leaf, the input of a trace."""
    return any(n.op is ops.LEAF for n in toposort([node]))


def check_leaf_open(leaf: UOp) -> None:
    """Raise LeakedTracerError unless the trace that owns ``leaf`` is open in this thread."""
    if _state.leaf_owner.get(leaf) not in _state.scopes:
        raise _no_value_error(leaf, leaf)


def _batched_value_error(node: UOp, requested: UOp) -> TracedValueError:
    """Return the error for a value that differs between the elements of a named axis."""
    return TracedValueError(
        f"expected a concrete value, got {describe_value(requested)}: it differs along axis "
        f"{node.arg.name!r}", hint="use fnx.numpy.where or fnx.lax.cond")


def describe_value(requested: UOp, role: str = "") -> str:
    """Return how a message calls a value that is not known: its dtype, shape, role and line."""
    text = f"a traced {requested.dtype}{list(requested.shape)}{role}"
    loc = choose_location(requested.locs)
    return f"{text} computed at {format_location(loc)}" if loc else text


def _no_value_error(leaf: UOp, requested: UOp) -> LeakedTracerError | TracedValueError:
    """Return the error for a value that depends on a leaf without a value."""
    text = describe_value(requested)
    scope = _state.leaf_owner.get(leaf)
    if scope is not None and build_calls.is_token(leaf):
        return TracedValueError(
            f"expected a concrete value, got {text}, which depends on an effect: {scope.name} "
            "runs it "
            "only when its result is computed", hint="use fnx.numpy.where instead of Python's `if`")
    if scope is None:
        name, opened = find_memo(leaf, Scope) or ("a function", None)
        call_text = f" called at {format_location(opened)}" if opened else ""
        return LeakedTracerError(
            f"expected an array, got {text} that outlived its trace: {name}{call_text}",
            hint="return it from the traced function; do not store it outside or pass it to "
                 "another thread")
    error = TracedValueError(f"expected a concrete value, got {text}: {scope.name} traces with "
                             "abstract "
                             "values")
    error.requested = requested
    if scope.name.startswith("jit"):
        error.static = "list the argument it comes from in static_argnums"
    error.set_hint("compute with fnx.numpy, or pass values to other libraries with "
                   "fnx.pure_callback")
    return error


def describe_traces(node: UOp) -> str:
    """Return the open traces that a node depends on, as ``(jit)``; ``(closed)`` for other leaves.

    >>> from fnx.core.ir import dtypes
    >>> with Scope("jit") as scope:
    ...     print(describe_traces(scope.leaf(dtypes.float32, ())))
    (jit)
    """
    owners = {_state.leaf_owner.get(n) for n in toposort([node]) if n.op is ops.LEAF}
    names = [s.name for s in _state.scopes if s in owners]
    return f"({', '.join(names + ['closed'] * (None in owners))})"
