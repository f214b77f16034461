"""Captures: values that a traced function read besides its arguments, checked at each call.

Python cannot declare a function pure, so fnx records at tracing the closure cells and the named
globals of f, and those of the Python functions that f reaches through them (also as defaults, as
arguments of a partial, or under a wrapper). If one of them is another object at a later call (for
numbers and strings: another value), the trace does not apply. Values reached through attributes,
containers or installed packages are not checked, nor are changes inside an object: pass those as
arguments.

>>> scale = 2
>>> def f(x):
...     return x * scale
>>> seen = Captures(f)
>>> seen.find_change() is None
True
>>> seen.entries = [(e[0], e[1], 3) for e in seen.entries]  # as if it had been 3
>>> seen.find_change()
('scale', 3, 2)
"""

from __future__ import annotations

import dis
import functools
import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any
from weakref import ref

from fnx.core.array.array import Array
from fnx.core.array.equality import exactly_equal
from fnx.core.ir import ops
from fnx.core.ir.cache import memoized
from fnx.core.ir.uop import UOp, toposort

MAX_FUNCTIONS = 200
MISSING = object()  # the value of an unbound name
VALUE_TYPES = frozenset({float, int, bool, complex, str, bytes})
_LIBRARY_PATHS = tuple({os.path.abspath(__file__).removesuffix(
    os.path.join("transforms", "dispatch", "captures.py")),
                        os.path.dirname(os.__file__) + os.sep}) + tuple(
    p + os.sep for p in sys.path if p.endswith(("site-packages", "dist-packages")))
_GLOBAL_LOADS = {dis.opmap["LOAD_GLOBAL"]: 1, dis.opmap["LOAD_NAME"]: 0}  # low flag bits


class WeakArrayRef(ref[Array]):
    """A weak reference to a captured array."""

    __slots__ = ("aval",)

    def __init__(self, x: Array) -> None:
        self.aval = x._aval


class Captures:
    """The values that a function reads from outside.

    ``entries`` are (where, name, value), each variable once: where is a closure cell or a namespace
    (a dict). An Array is stored as Watched.
    """

    __slots__ = ("entries",)

    def __init__(self, f: Callable[..., Any]) -> None:
        self.entries: list[tuple[Any, str, Any]] = []
        queue = list(_reached_functions(f))
        functions, seen = set(queue), set[tuple[int, str]]()
        while queue and len(functions) <= MAX_FUNCTIONS:
            for where, name in _free_variables(queue.pop()):
                if (id(where), name) in seen:
                    continue
                seen.add((id(where), name))
                value = _current_value(where, name)
                entry = WeakArrayRef(value) if type(value) is Array else value
                self.entries.append((where, name, entry))
                for g in _reached_functions(value):
                    if g not in functions and not g.__code__.co_filename.startswith(_LIBRARY_PATHS):
                        functions.add(g)
                        queue.append(g)

    def find_change(self) -> tuple[str, Any, Any] | None:
        """Return (name, old value, new value) of the first that changed, else None."""
        for where, name, value in self.entries:
            now = _current_value(where, name)
            if now is not value and not _is_unchanged(value, now):
                return name, value.aval if type(value) is WeakArrayRef else value, now
        return None

    def is_dead(self) -> bool:
        """Whether these captures can never match again: a captured array was freed."""
        return any(type(value) is WeakArrayRef and value() is None for _, _, value in self.entries)

    def determines_nodes(self, captures: list[UOp]) -> bool:
        """Whether equal values of these captures imply equal captured nodes of a trace.

        This is so for memory, and for a leaf of an enclosing trace that a watched array depends on.
        """
        leaves = {c for c in captures if c.op is not ops.BUFFER}
        if leaves:
            arrays = [value() for _, _, value in self.entries if type(value) is WeakArrayRef]
            leaves.difference_update(toposort([x._node for x in arrays
                                               if x is not None and not x.is_deleted()]))
        return not leaves


def reached_codes(f: Callable[..., Any]) -> list[CodeType]:
    """Return the code objects of the Python functions that a function reaches."""
    values = [f, *[value for *_, value in Captures(f).entries]]
    return [g.__code__ for value in values for g in _reached_functions(value)]


def _is_unchanged(value: Any, now: Any) -> bool:
    """Whether ``now`` equals the recorded value, though it is not the same object."""
    if type(value) is WeakArrayRef:
        return type(now) is Array and value() is now
    return type(value) in VALUE_TYPES and exactly_equal(value, now)


def _current_value(where: Any, name: str) -> Any:
    if type(where) is dict:
        return where.get(name, MISSING)
    try:
        return where.cell_contents
    except ValueError:
        return MISSING


def _reached_functions(value: Any) -> Iterator[FunctionType]:
    """Yield the Python functions that a callable reaches without reading a variable."""
    queue, seen = [value], set[int]()
    while queue:
        f = queue.pop()
        if id(f) in seen or not callable(f) or isinstance(f, type):
            continue
        seen.add(id(f))
        wrapped = getattr(f, "__wrapped__", None)
        queue.append(wrapped)
        queue += getattr(f, "__also__", ())
        if isinstance(f, functools.partial):
            queue += [f.func, *f.args, *f.keywords.values()]
        elif isinstance(f, MethodType):
            queue.append(f.__func__)
        elif isinstance(f, FunctionType):
            yield f
            queue += [*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()]
        elif wrapped is None:
            queue.append(vars(type(f)).get("__call__"))


def _free_variables(f: FunctionType) -> Iterator[tuple[Any, str]]:
    """Yield (where, name) of the free variables and globals of a function."""
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
        yield cell, name
    for name in _global_names(f.__code__):
        yield f.__globals__, name


@memoized
def _global_names(code: CodeType) -> tuple[str, ...]:
    """Return the global names of a code object and of the functions nested in it."""
    out: dict[str, None] = {}
    raw, high = code.co_code, 0
    for op, low in zip(raw[::2], raw[1::2]):  # as dis.get_instructions, 30 times as fast
        number = high | low
        high = number << 8 if op == dis.EXTENDED_ARG else 0
        if op in _GLOBAL_LOADS:
            out[code.co_names[number >> _GLOBAL_LOADS[op]]] = None
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            out.update(dict.fromkeys(_global_names(inner)))
    return tuple(out)
