"""Callbacks from compiled code to Python: handles, and the meaning of CALLBACK.

A callback is an operand: a handle, memory that holds a number, which names the Python function
for as long as the memory is referenced. So graphs that differ only in their callbacks are the same
FUNCTION, no cache key contains a callback, and it dies with the trace that captured it.

>>> handle = Handle(lambda xs, shapes: [xs[0] + 1], "increment")
>>> number, = handle.view(np.dtype(np.uint32), (1,))
>>> from fnx.core.ir import dtypes
>>> scalar = ((), dtypes.int32)
>>> run_callback(op_args.Callback("increment", False, (scalar,), (scalar,)), [number, np.int32(4)])
[array(5, dtype=int32)]

A callback runs outside of all traces that are open around the call, so it may use fnx itself.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from fnx.core.ir import op_args
from fnx.core.ir.cache import DeathQueue
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.ir.ops import Shape
from fnx.core.scope import scope
from fnx.core.support.errors import CallbackError, DeviceError, Location
from fnx.core.support.process import lazy_import

communicator = lazy_import("fnx.core.scope.communicator")

CallbackFn = Callable[[list[NDArray], list[Shape]], Sequence[NDArray]]

T = TypeVar("T")

_numbers = itertools.count(1)
_live_handles: dict[int, weakref.ref[Handle]] = {}
_dead_handles: DeathQueue[int] = DeathQueue()


class Handle:
    """The memory of a handle, with the interface of a host storage.

    Args:
        call: (copies of the operands of one call, shapes of its results) -> results.
        name: the name in errors.
        loc: the user's line.
    """

    __slots__ = ("__weakref__", "call", "is_aliased", "name", "nbytes", "number", "ptr", "loc",
                 "timeline")

    def __init__(self, call: CallbackFn, name: str, loc: Location | None = None) -> None:
        self.call, self.name, self.loc = call, name, loc
        for dead in _dead_handles.released():
            _live_handles.pop(dead, None)
        self.number = ctypes.c_uint32(next(_numbers))
        self.ptr, self.nbytes, self.timeline = ctypes.addressof(self.number), 4, 0
        self.is_aliased = True  # counts as aliased, so that no result reuses its memory
        _live_handles[self.number.value] = weakref.ref(self)
        _dead_handles.watch(self, self.number.value)

    def wait(self) -> None:
        """Do nothing: the value is always ready."""

    def window(self) -> NDArray:
        """Return the bytes."""
        return np.frombuffer(memoryview(self.number).cast("B"), np.uint8)

    def view(self, dtype: np.dtype[Any], shape: Shape) -> NDArray:
        """Return the number."""
        return self.window().view(dtype).reshape(shape)


def live_handle_count() -> int:
    """Return the number of live handles (for leak tests)."""
    return sum(ref() is not None for ref in list(_live_handles.values()))


def handle_location(number: int) -> Location | None:
    """Return the user's line of a handle, or None."""
    ref = _live_handles.get(number)
    handle = None if ref is None else ref()
    return None if handle is None else handle.loc


class _CallState(threading.local):
    depth = 0
    silent = False


_calls = _CallState()


def in_callback() -> bool:
    """Return whether this thread is in a callback."""
    return _calls.depth > 0


def suppress_effects(f: Callable[[], T]) -> T:
    """Call f, which recomputes values on this thread, with effects suppressed."""
    previous = _calls.silent
    try:
        _calls.silent = True
        return f()
    finally:
        _calls.silent = previous


def run_callback(arg: op_args.Callback, src: Sequence[Any], targets: Sequence[NDArray] = ()
                 ) -> list[NDArray]:
    """Return the results of a CALLBACK for values of its operands. A collective may write them to
    the ``targets``, and return these.

    Raises:
        CallbackError: the function raised, or returned wrong results.
        DistributedError: a collective with processes that are missing, or run something else.
    """
    if arg.collective is not None:
        if arg.phase == "start":
            return [np.array(communicator.start(arg.collective, src[1:]), np.int32)]
        outs: list[NDArray] = communicator.wait(int(src[1]), targets) if arg.phase == "wait" else \
            communicator.run(arg.collective, src[1:], targets)
        return outs
    ref = _live_handles.get(int(src[0]))
    handle = None if ref is None else ref()
    if handle is None:
        raise DeviceError(f"callback {arg.name}: the function no longer exists")
    operands = src[1 + arg.effect:]
    if arg.of_parts is not None:
        return _separate(run_callback(arg.of_parts, [
            *src[:1 + arg.effect], *_join(operands, arg.of_parts.ins)]))
    outs = [np.zeros(shape, t.np) for shape, t in arg.outs]
    if arg.effect and _calls.silent:
        return outs
    scope.run_outside(functools.partial(_call_batch, arg, handle, operands, outs))
    return outs


def _join(parts: Sequence[Any], types: Sequence[tuple[Shape, DType]]) -> list[Any]:
    """Return arrays of these types, of which the complex ones are given as two parts."""
    remaining, joined = iter(parts), list[Any]()
    for shape, t in types:
        if t.is_complex:
            z = np.empty(shape, t.np)
            z.real, z.imag = next(remaining), next(remaining)
            joined.append(z)
        else:
            joined.append(next(remaining))
    return joined


def _separate(values: Sequence[NDArray]) -> list[NDArray]:
    """Return the two parts of each complex array, and the others as they are."""
    return [np.array(part) for x in values
            for part in ((x.real, x.imag) if x.dtype.kind == "c" else (x,))]


def _call_batch(arg: op_args.Callback, handle: Handle, operands: Sequence[Any],
                outs: list[NDArray]) -> None:
    """Call the function for each batch element, and write the results to outs."""
    shapes = [shape[len(arg.batch_levels):] for shape, _ in arg.outs[arg.effect:]]
    depth = _calls.depth
    try:
        _calls.depth = depth + 1
        for lane in np.ndindex(*[n for n, _ in arg.batch_levels]):
            operands_here = [np.array(x[_batch_index(arg, k, lane)])
                             for k, x in enumerate(operands)]
            if arg.masked and not operands_here.pop(0):
                continue
            for out, value in zip(outs[arg.effect:], _call(handle, operands_here, shapes)):
                out[lane] = value
    finally:
        _calls.depth = depth


def _batch_index(arg: op_args.Callback, k: int, lane: tuple[int, ...]) -> tuple[int, ...]:
    """Return the batch index of operand k for a batch element."""
    return tuple([i for i, (_, batched) in zip(lane, arg.batch_levels) if batched[k]])


def _call(handle: Handle, args: list[NDArray], shapes: list[Shape]) -> Sequence[NDArray]:
    try:
        return handle.call(args, shapes)
    except CallbackError:
        raise
    except Exception as e:
        raise CallbackError(f"{handle.name} raised {type(e).__name__}: {e}", loc=handle.loc,
                            hint="see the error above, raised in the callback") from e
