"""Python callbacks from traced code: the common part of debug.print, io_callback and others.

In a trace a call becomes a HOST node; outside all traces the function is called immediately.
Effects are ordered by a token (held in core/array/scope.py); pure calls are unordered.

    f(x, scale=2.0)   ->   HOST(handle of f, token, x, 2.0);  f gets Arrays, in its own trees

Leaves that are not arrays (text, objects) are stored with the function and are not operands.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from fnx.core import build_calls, dtypes, host, op_args, ops
from fnx.core.array import convert, scope, storage, tree
from fnx.core.array.array import Array, from_storage
from fnx.core.array.aval import Aval
from fnx.core.array.public import asarray
from fnx.core.dtypes import DType, NDArray, as_dtype
from fnx.core.errors import ArgumentError, CallbackError, FnxError, KernelError
from fnx.core.operators import ValueOperators
from fnx.core.ops import Shape
from fnx.core.record import Record
from fnx.core.uop import UOp, current_site

T = TypeVar("T")


class Results(Record):
    """The expected results of a callback."""

    tree: tree.TreeDef
    avals: tuple[Aval, ...]


def results_like(shapes: Any) -> Results:
    """Return the expected results for a pytree of objects with ``shape`` and ``dtype``."""
    leaves, structure = tree.flatten(shapes)
    avals = []
    for i, x in enumerate(leaves):
        if not (hasattr(x, "shape") and hasattr(x, "dtype")):
            raise ArgumentError("expected things with shape and dtype as result_shape_dtypes, got "
                                f"{type(x).__name__}{_path(structure, i)}",
                                hint="give fnx.ShapeDtypeStruct(shape, dtype) for each array")
        avals.append(Aval(tuple(x.shape), as_dtype(x.dtype)))
    return Results(structure, tuple(avals))


NOTHING = results_like(())


def call(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
         results: Results | None, name: str, *, effect: bool, method: str = "",
         numbers: bool = True, bound: tuple[Any, ...] = ()) -> Any:
    """Call a Python function once its argument values are computed; return its results.

    Args:
        f: called with the arguments, whose arrays are concrete Arrays.
        args: its positional arguments.
        kwargs: its keyword arguments.
        results: its expected results; None: the results are discarded.
        name: its name in error messages.
        effect: it is called exactly once per call, in program order. Otherwise it is pure, and is
            called as often as its value is needed.
        method: how a pure function is called for a batch.
        numbers: whether Python numbers become arrays, too.
        bound: leading arguments that are passed on unchanged.
    """
    given = _Given(f, bound, args, kwargs, results, numbers, name)
    handle = _handle(given)
    outs = given.results.avals
    if not scope.is_open():
        return given.now(handle)
    token = scope.token() if effect else None
    buffer = UOp(ops.BUFFER, dtypes.uint32, (), op_args.Buffer(handle, ()))
    nodes = build_calls.host(name, buffer, token, [x._node for x in given.arrays],
                             [(a.shape, a.dtype) for a in outs], method)
    if effect:
        scope.follow(nodes[0])
        nodes = nodes[1:]
    return given.results.tree.unflatten([Array(n) for n in nodes])


class _Again(threading.local):
    def __init__(self) -> None:
        self.handles: dict[Any, list[host.Handle]] | None = None
        self.used: list[host.Handle] = []
        self.kept = False


_again = _Again()


def traced_again(handles: dict[Any, list[host.Handle]], f: Callable[[], T], kept: bool = False
                 ) -> T:
    """Call f; in it, a repeated callback of the same function reuses its earlier handle.

    Retracing a function until its captures are stable would not terminate with new handles. With
    ``kept`` the earlier trace remains in use: then a callback matches only if its texts and
    numbers are equal, whatever the types of its arrays.
    """
    before = _again.handles, _again.used, _again.kept
    try:
        _again.handles, _again.used, _again.kept = handles, [], kept
        return f()
    finally:
        _again.handles, _again.used, _again.kept = before


def _handle(given: _Given) -> host.Handle:
    known, used = _again.handles, _again.used
    if known is None:
        return host.Handle(given.call, given.name, given.site)
    if _again.kept:
        for handle in [h for key, same in known.items() if key[:3] == given.key()[:3]
                       for h in same]:
            before = getattr(handle.call, "__self__", None)
            if handle not in used and isinstance(before, _Given) and \
                    before.content() == given.content():
                used.append(handle)
                return handle
    same = known.setdefault(given.key(), [])
    for handle in same:
        if handle not in used:
            handle.call = given.call
            break
    else:
        handle = host.Handle(given.call, given.name, given.site)
        same.append(handle)
    used.append(handle)
    return handle


class _Given:
    """A callback with its non-array arguments and its expected results."""

    def __init__(self, f: Callable[..., Any], bound: tuple[Any, ...], args: tuple[Any, ...],
                 kwargs: dict[str, Any], results: Results | None, numbers: bool, name: str) -> None:
        if not callable(f):
            raise ArgumentError(f"expected a function to call, got {type(f).__name__}",
                                hint="pass the function itself, and its arguments behind it")
        self.f, self.bound, self.name, self.site = f, bound, name, current_site.site
        self.drops, self.results = results is None, results or NOTHING
        self.leaves, self.tree = tree.flatten((args, kwargs))
        self.arrays: list[Array] = []
        self.places: list[int] = []
        for i, x in enumerate(self.leaves):
            if isinstance(x, Array | np.ndarray | np.generic) or \
                    numbers and type(x) in convert.SCALARS:
                self.leaves[i] = None
                self.arrays.append(asarray(x))
                self.places.append(i)
            elif isinstance(x, ValueOperators):
                raise KernelError(f"{name}: expected arrays, got {x!r}", hint="a kernel calls no "
                                  "Python when it runs; k.print shows its values")
        self.types = [(x._shape, x._dtype) for x in self.arrays]

    def key(self) -> Any:
        """Return what distinguishes two calls in a program."""
        return self.name, self.site, getattr(self.f, "__code__", id(self.f)), tuple(self.types)

    def content(self) -> Any:
        """Return the texts and numbers among its arguments and in its closure."""
        cells = [c.cell_contents for c in getattr(self.f, "__closure__", None) or ()]
        types = [dtype for _, dtype in self.types], [a.dtype for a in self.results.avals]
        return types, self.tree, self.places, [
            x if isinstance(x, str | bytes | bool | int | float | None) else type(x)
            for x in (*self.bound, *self.leaves, *cells)]

    def now(self, handle: host.Handle) -> Any:
        """Call it immediately, with its concrete arrays."""
        outs = tuple([(a.shape, a.dtype) for a in self.results.avals])
        arg = op_args.Host(self.name, False, tuple(self.types), outs)
        found = host.run(arg, [handle.number.value, *[x._numpy() for x in self.arrays]])
        return self.results.tree.unflatten(
            [_array(x, a.dtype) for x, a in zip(found, self.results.avals)])

    def call(self, values: list[NDArray], shapes: list[Shape]) -> Sequence[NDArray]:
        """Call it with the array values of one call."""
        leaves = list(self.leaves)
        for i, x, (_, dtype) in zip(self.places, values, self.types):
            leaves[i] = _array(x, dtype)
        args, kwargs = self.tree.unflatten(leaves)
        out = self.f(*self.bound, *args, **kwargs)
        return [] if self.drops else self._checked(out, shapes)

    def _checked(self, out: Any, shapes: list[Shape]) -> list[NDArray]:
        leaves, structure = tree.flatten(out)
        want = self.results
        if structure != want.tree:
            raise self._wrong(f"expected a result of the structure {want.tree}, got {structure}")
        return [self._leaf(x, Aval(shape, a.dtype), _path(want.tree, i))
                for i, (x, a, shape) in enumerate(zip(leaves, want.avals, shapes))]

    def _leaf(self, x: Any, want: Aval, where: str) -> NDArray:
        try:
            data = x._numpy() if type(x) is Array else convert.numpy_data(x, None)
        except FnxError as e:
            raise self._wrong(f"expected {want}{where} as result, got {type(x).__name__}: "
                              f"{e.message}") from None
        if data.shape != want.shape or \
                data.dtype != want.dtype.np and type(x) not in convert.SCALARS:
            raise self._wrong(f"expected {want}{where} as result, got "
                              f"{data.dtype}{list(data.shape)}")
        return data.astype(want.dtype.np)

    def _wrong(self, what: str) -> CallbackError:
        return CallbackError(f"{self.name}: {what}", site=self.site,
                             hint="return what result_shape_dtypes says")


def name_of(what: str, f: Any) -> str:
    """Return the name, in error messages, of a function that ``what`` calls."""
    name = getattr(f, "__name__", "")
    return f"{what} of {name}" if name.isidentifier() else what


def mapped(f: Callable[[Any], Any], given: Any) -> Any:
    """Apply ``f`` to each leaf of a pytree."""
    leaves, structure = tree.flatten(given)
    return structure.unflatten([f(x) for x in leaves])


def _path(structure: tree.TreeDef, i: int) -> str:
    path = tree.keystr(tree.paths(structure)[i])
    return f" at {path}" if path else ""


def _array(value: NDArray, dtype: DType) -> Array:
    return from_storage(storage.put(value), value.shape, dtype)
