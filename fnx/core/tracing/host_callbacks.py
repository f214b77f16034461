"""Python callbacks from traced code: the common part of debug.print, io_callback and others.

In a trace a call becomes a CALLBACK node; outside all traces the function is called immediately.
Effects are ordered by a token (held in core/scope/scope.py); pure calls are unordered.

    f(x, scale=2.0)   ->   CALLBACK(handle of f, token, x, 2.0);  f gets Arrays, in its own trees

Leaves that are not arrays (text, objects) are stored with the function and are not operands.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from fnx.core.array import convert, tree
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, from_storage
from fnx.core.array.aval import Aval
from fnx.core.ir import build_calls, dtypes, op_args, ops
from fnx.core.ir.dtypes import DType, NDArray, as_dtype
from fnx.core.ir.expr import ValueOperators
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp, current_loc
from fnx.core.scope import callbacks, scope, storage
from fnx.core.support.errors import ArgumentError, CallbackError, FnxError, KernelError
from fnx.core.support.record import Record

T = TypeVar("T")


class CallbackResults(Record):
    """The expected results of a callback."""

    tree: tree.TreeDef
    avals: tuple[Aval, ...]


def expected_results(shapes: Any) -> CallbackResults:
    """Return the expected results for a pytree of objects with ``shape`` and ``dtype``."""
    leaves, structure = tree.flatten(shapes)
    avals = []
    for i, x in enumerate(leaves):
        if not (hasattr(x, "shape") and hasattr(x, "dtype")):
            raise ArgumentError("expected objects with shape and dtype as result_shape_dtypes, got "
                                f"{type(x).__name__}{_path_suffix(structure, i)}",
                                hint="pass fnx.ShapeDtypeStruct(shape, dtype) for each array")
        avals.append(Aval(tuple(x.shape), as_dtype(x.dtype)))
    return CallbackResults(structure, tuple(avals))


NO_RESULTS = expected_results(())


def call_python(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
                results: CallbackResults | None, name: str, *, effect: bool, method: str = "",
                numbers: bool = True, bound: tuple[Any, ...] = (), ordered: bool = False) -> Any:
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
        ordered: whether the user asks for the order that all effects have; jaxprs say so.
    """
    callback = CallbackCall(f, bound, args, kwargs, results, numbers, name)
    callback.ordered = ordered
    handle = _handle(callback)
    avals = callback.results.avals
    if not scope.is_open():
        return callback.call_now(handle)
    token = scope.current_token() if effect else None
    buffer = UOp(ops.BUFFER, dtypes.uint32, (), op_args.Buffer(handle, ()))
    nodes = build_calls.callback(name, buffer, token, [x._node for x in callback.arrays],
                                 [(a.shape, a.dtype) for a in avals], method)
    if effect:
        scope.set_token(nodes[0])
        nodes = nodes[1:]
    return callback.results.tree.unflatten([Array(n) for n in nodes])


def _unwrap_partial(f: Any) -> Any:
    """Return the function of a partial, which is a new object each time that it is traced."""
    return f.func if isinstance(f, functools.partial) else f


class _HandleReuse(threading.local):
    def __init__(self) -> None:
        self.handles: dict[Any, list[callbacks.Handle]] | None = None
        self.used: list[callbacks.Handle] = []
        self.trace_remains = False


_reuse = _HandleReuse()


def with_reused_handles(handles: dict[Any, list[callbacks.Handle]], f: Callable[[], T],
                        trace_remains: bool = False
                        ) -> T:
    """Call f; in it, a repeated callback of the same function reuses its earlier handle.

    Retracing a function until its captures are stable would not terminate with new handles. With
    ``trace_remains`` the earlier trace remains in use: then a callback matches only if its texts
    and numbers are equal, whatever the types of its arrays.
    """
    saved = _reuse.handles, _reuse.used, _reuse.trace_remains
    try:
        _reuse.handles, _reuse.used, _reuse.trace_remains = handles, [], trace_remains
        return f()
    finally:
        _reuse.handles, _reuse.used, _reuse.trace_remains = saved


def _handle(callback: CallbackCall) -> callbacks.Handle:
    handles, used = _reuse.handles, _reuse.used
    if handles is None:
        return callbacks.Handle(callback.call, callback.name, callback.loc)
    if _reuse.trace_remains:
        for handle in [h for key, same in handles.items() if key[:3] == callback.key()[:3]
                       for h in same]:
            previous = getattr(handle.call, "__self__", None)
            if handle not in used and isinstance(previous, CallbackCall) and \
                    previous.literal_values() == callback.literal_values():
                used.append(handle)
                return handle
    candidates = handles.setdefault(callback.key(), [])
    for handle in candidates:
        if handle not in used:
            handle.call = callback.call
            break
    else:
        handle = callbacks.Handle(callback.call, callback.name, callback.loc)
        candidates.append(handle)
    used.append(handle)
    return handle


class CallbackCall:
    """A callback with its non-array arguments and its expected results."""

    def __init__(self, f: Callable[..., Any], bound: tuple[Any, ...], args: tuple[Any, ...],
                 kwargs: dict[str, Any], results: CallbackResults | None, numbers: bool,
                 name: str) -> None:
        if not callable(f):
            raise ArgumentError(f"expected a function to call, got {type(f).__name__}",
                                hint="pass the function itself, then its arguments")
        self.f, self.bound, self.name, self.loc = f, bound, name, current_loc.loc
        self.discards_results, self.results = results is None, results or NO_RESULTS
        self.leaves, self.tree = tree.flatten((args, kwargs))
        self.arrays: list[Array] = []
        self.leaf_positions: list[int] = []
        for i, x in enumerate(self.leaves):
            if isinstance(x, Array | np.ndarray | np.generic) or \
                    numbers and type(x) in convert.SCALAR_DTYPES:
                self.leaves[i] = None
                self.arrays.append(asarray(x))
                self.leaf_positions.append(i)
            elif isinstance(x, ValueOperators):
                raise KernelError(f"{name}: expected arrays, got {x!r}",
                                  hint="a running kernel cannot call Python; print values with "
                                       "k.print")
        self.types = [(x._shape, x._dtype) for x in self.arrays]
        self.ordered = False

    def key(self) -> Any:
        """Return what distinguishes two calls in a program."""
        f = _unwrap_partial(self.f)
        return self.name, self.loc, getattr(f, "__code__", id(f)), tuple(self.types)

    def literal_values(self) -> Any:
        """Return the texts and numbers among its arguments and in its closure."""
        f = _unwrap_partial(self.f)
        cells = [c.cell_contents for c in getattr(f, "__closure__", None) or ()]
        if isinstance(self.f, functools.partial):
            cells += [*self.f.args, *self.f.keywords.values()]
        types = [dtype for _, dtype in self.types], [a.dtype for a in self.results.avals]
        return types, self.tree, self.leaf_positions, [
            x if isinstance(x, str | bytes | bool | int | float | None) else type(x)
            for x in (*self.bound, *self.leaves, *cells)]

    def call_now(self, handle: callbacks.Handle) -> Any:
        """Call it immediately, with its concrete arrays."""
        outs = tuple([(a.shape, a.dtype) for a in self.results.avals])
        arg = op_args.Callback(self.name, False, tuple(self.types), outs)
        values = callbacks.run_callback(arg,
                                        [handle.number.value, *[x._numpy() for x in self.arrays]])
        return self.results.tree.unflatten(
            [_array(x, a.dtype) for x, a in zip(values, self.results.avals)])

    def call(self, values: list[NDArray], shapes: list[Shape]) -> Sequence[NDArray]:
        """Call it with the array values of one call."""
        leaves = list(self.leaves)
        for i, x, (_, dtype) in zip(self.leaf_positions, values, self.types):
            leaves[i] = _array(x, dtype)
        args, kwargs = self.tree.unflatten(leaves)
        out = self.f(*self.bound, *args, **kwargs)
        return [] if self.discards_results else self._checked(out, shapes)

    def _checked(self, out: Any, shapes: list[Shape]) -> list[NDArray]:
        leaves, structure = tree.flatten(out)
        expected = self.results
        if structure != expected.tree:
            raise self._wrong(f"expected a result of the structure {expected.tree}, got "
                              f"{structure}")
        return [self._leaf(x, Aval(shape, a.dtype), _path_suffix(expected.tree, i))
                for i, (x, a, shape) in enumerate(zip(leaves, expected.avals, shapes))]

    def _leaf(self, x: Any, expected: Aval, path: str) -> NDArray:
        try:
            known = expected.dtype if getattr(x, "dtype", None) == expected.dtype.np else None
            data = x._numpy() if type(x) is Array else convert.to_numpy(x, known)
        except FnxError as e:
            raise self._wrong(f"expected {expected}{path} as result, got {type(x).__name__}: "
                              f"{e.message}") from None
        if data.shape != expected.shape or \
                data.dtype != expected.dtype.np and type(x) not in convert.SCALAR_DTYPES:
            raise self._wrong(f"expected {expected}{path} as result, got "
                              f"{data.dtype}{list(data.shape)}")
        return data.astype(expected.dtype.np)

    def _wrong(self, message: str) -> CallbackError:
        return CallbackError(f"{self.name}: {message}", loc=self.loc,
                             hint="return arrays with the structure, shapes and dtypes of "
                                  "result_shape_dtypes")


def callback_name(what: str, f: Any) -> str:
    """Return the name, in error messages, of a function that ``what`` calls."""
    name = getattr(f, "__name__", "")
    return f"{what} of {name}" if name.isidentifier() else what


def map_leaves(f: Callable[[Any], Any], values: Any) -> Any:
    """Apply ``f`` to each leaf of a pytree."""
    leaves, structure = tree.flatten(values)
    return structure.unflatten([f(x) for x in leaves])


def _path_suffix(structure: tree.TreeDef, i: int) -> str:
    path = tree.keystr(tree.paths(structure)[i])
    return f" at {path}" if path else ""


def _array(value: NDArray, dtype: DType) -> Array:
    return from_storage(storage.put(value), value.shape, dtype)
