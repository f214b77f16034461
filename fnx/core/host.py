"""Callbacks from compiled code to Python: handles, and the meaning of HOST.

A callback is an operand: a handle, memory that holds a number, which names the Python function
for as long as the memory is referenced. So graphs that differ only in their callbacks are the same
FUNCTION, no cache key contains a callback, and it dies with the trace that captured it.

>>> handle = Handle(lambda xs, shapes: [xs[0] + 1], "increment")
>>> number, = handle.view(np.dtype(np.uint32), (1,))
>>> from fnx.core import dtypes
>>> scalar = ((), dtypes.int32)
>>> run(op_args.Host("increment", False, (scalar,), (scalar,)), [number, np.int32(4)])
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

from fnx.core import op_args
from fnx.core.array import scope
from fnx.core.dtypes import NDArray
from fnx.core.errors import CallbackError, DeviceError, Site
from fnx.core.ops import Shape
from fnx.core.weak import Deaths

Callback = Callable[[list[NDArray], list[Shape]], Sequence[NDArray]]

T = TypeVar("T")

_numbers = itertools.count(1)
_living: dict[int, weakref.ref[Handle]] = {}
_deaths: Deaths[int] = Deaths()


class Handle:
    """The memory of a handle, with the interface of a host storage.

    Args:
        call: (copies of the operands of one call, shapes of its results) -> results.
        name: the name in errors.
        site: the user's line.
    """

    __slots__ = ("__weakref__", "call", "lent", "name", "nbytes", "number", "ptr", "site",
                 "timeline")

    def __init__(self, call: Callback, name: str, site: Site | None = None) -> None:
        self.call, self.name, self.site = call, name, site
        for dead in _deaths.take():
            _living.pop(dead, None)
        self.number = ctypes.c_uint32(next(_numbers))
        self.ptr, self.nbytes, self.timeline = ctypes.addressof(self.number), 4, 0
        self.lent = True  # counts as aliased, so that no result reuses its memory
        _living[self.number.value] = weakref.ref(self)
        _deaths.watch(self, self.number.value)

    def wait(self) -> None:
        """Do nothing: the value is always ready."""

    def window(self) -> NDArray:
        """Return the bytes."""
        return np.frombuffer(memoryview(self.number).cast("B"), np.uint8)

    def view(self, dtype: np.dtype[Any], shape: Shape) -> NDArray:
        """Return the number."""
        return self.window().view(dtype).reshape(shape)


def living() -> int:
    """Return the number of live handles (for leak tests)."""
    return sum(ref() is not None for ref in list(_living.values()))


def site_of(number: int) -> Site | None:
    """Return the user's line of a handle, or None."""
    ref = _living.get(number)
    handle = None if ref is None else ref()
    return None if handle is None else handle.site


class _Calls(threading.local):
    depth = 0
    silent = False


_calls = _Calls()


def inside() -> bool:
    """Return whether this thread is in a callback."""
    return _calls.depth > 0


def silent(f: Callable[[], T]) -> T:
    """Call f, which recomputes values on this thread, with effects suppressed."""
    before = _calls.silent
    try:
        _calls.silent = True
        return f()
    finally:
        _calls.silent = before


def run(arg: op_args.Host, src: Sequence[Any]) -> list[NDArray]:
    """Return the results of a HOST for values of its operands.

    Raises:
        CallbackError: the function raised, or returned wrong results.
    """
    ref = _living.get(int(src[0]))
    handle = None if ref is None else ref()
    if handle is None:
        raise DeviceError(f"callback {arg.name}: the function is there no more")
    operands = src[1 + arg.effect:]
    outs = [np.zeros(shape, t.np) for shape, t in arg.outs]
    if arg.effect and _calls.silent:
        return outs
    scope.outside(functools.partial(_fill, arg, handle, operands, outs))
    return outs


def _fill(arg: op_args.Host, handle: Handle, operands: Sequence[Any], outs: list[NDArray]) -> None:
    """Call the function for each batch element, and write the results to outs."""
    shapes = [shape[len(arg.lanes):] for shape, _ in arg.outs[arg.effect:]]
    depth = _calls.depth
    try:
        _calls.depth = depth + 1
        for lane in np.ndindex(*[n for n, _ in arg.lanes]):
            given = [np.array(x[_place(arg, k, lane)]) for k, x in enumerate(operands)]
            if arg.masked and not given.pop(0):
                continue
            for out, value in zip(outs[arg.effect:], _called(handle, given, shapes)):
                out[lane] = value
    finally:
        _calls.depth = depth


def _place(arg: op_args.Host, k: int, lane: tuple[int, ...]) -> tuple[int, ...]:
    """Return the batch index of operand k for a batch element."""
    return tuple([i for i, (_, batched) in zip(lane, arg.lanes) if batched[k]])


def _called(handle: Handle, given: list[NDArray], shapes: list[Shape]) -> Sequence[NDArray]:
    try:
        return handle.call(given, shapes)
    except CallbackError:
        raise
    except Exception as e:
        raise CallbackError(f"{handle.name} raised {type(e).__name__}: {e}", site=handle.site,
                            hint="see the error above, which is that of the callback") from e
