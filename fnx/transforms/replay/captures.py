"""Captures: what a traced function read besides its arguments, looked at again at each call.

Python has no way to say that a function is pure, so fnx looks: the closure cells and the named
globals of f, and those of the Python functions it reaches through them (also as defaults, as
arguments of a partial, or under a wrapper), are remembered when f is traced. Where one of them
is another object at a later call (numbers and texts: another value), the trace is not for it.
What is reached through attributes, containers or installed packages is not seen, nor is what
changes inside an object: pass it as an argument.

>>> scale = 2
>>> def f(x):
...     return x * scale
>>> seen = Captures(f)
>>> seen.changed() is None
True
>>> seen.entries = [(e[0], e[1], 3) for e in seen.entries]  # as if it had been 3
>>> seen.changed()
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

from fnx.core import ops
from fnx.core.array.array import Array
from fnx.core.array.equality import same
from fnx.core.cache import Cache
from fnx.core.uop import UOp, toposort

MAX_FUNCTIONS = 200
MAX_CODES = 1024  # code objects whose names are remembered
MISSING = object()  # the value of a name that has none
BY_VALUE = frozenset({float, int, bool, complex, str, bytes})
_INSTALLED = tuple({os.path.abspath(__file__).removesuffix(
    os.path.join("transforms", "replay", "captures.py")),
                    os.path.dirname(os.__file__) + os.sep}) + tuple(
    p + os.sep for p in sys.path if p.endswith(("site-packages", "dist-packages")))
_GLOBAL = {dis.opmap["LOAD_GLOBAL"]: 1, dis.opmap["LOAD_NAME"]: 0}  # low bits that are no name


class Watched(ref[Array]):
    """An array that is watched, not kept."""

    __slots__ = ("aval",)

    def __init__(self, x: Array) -> None:
        self.aval = x._aval


class Captures:
    """The outside values that a function reads.

    ``entries`` are (where, name, value): where is a closure cell or a namespace (a dict). Each
    place is there once. An Array is there as Watched.
    """

    __slots__ = ("entries",)

    def __init__(self, f: Callable[..., Any]) -> None:
        self.entries: list[tuple[Any, str, Any]] = []
        queue = list(_functions_of(f))
        functions, places = set(queue), set[tuple[int, str]]()
        while queue and len(functions) <= MAX_FUNCTIONS:
            for where, name in _outside(queue.pop()):
                if (id(where), name) in places:
                    continue
                places.add((id(where), name))
                value = _now(where, name)
                kept = Watched(value) if type(value) is Array else value
                self.entries.append((where, name, kept))
                for g in _functions_of(value):
                    if g not in functions and not g.__code__.co_filename.startswith(_INSTALLED):
                        functions.add(g)
                        queue.append(g)

    def changed(self) -> tuple[str, Any, Any] | None:
        """(name, value then, value now) of the first that is not the same now."""
        for where, name, value in self.entries:
            now = _now(where, name)
            if now is not value and not _is_still(value, now):
                return name, value.aval if type(value) is Watched else value, now
        return None

    def gone(self) -> bool:
        """Whether it can never hold again: an array that was read is there no more."""
        return any(type(value) is Watched and value() is None for _, _, value in self.entries)

    def determine(self, captures: list[UOp]) -> bool:
        """Whether nodes that a trace captured are the same while these values are.

        Memory is; a leaf of a trace around it is where a watched array is made of it.
        """
        leaves = {c for c in captures if c.op is not ops.BUFFER}
        if leaves:
            arrays = [value() for _, _, value in self.entries if type(value) is Watched]
            leaves.difference_update(toposort([x._node for x in arrays
                                               if x is not None and not x.is_deleted()]))
        return not leaves


def codes_of(f: Callable[..., Any]) -> list[CodeType]:
    """The code of the Python functions that a function leads to."""
    values = [f, *[value for *_, value in Captures(f).entries]]
    return [g.__code__ for value in values for g in _functions_of(value)]


def _is_still(value: Any, now: Any) -> bool:
    """Whether a value that is not the object kept is the one that was meant."""
    if type(value) is Watched:
        return type(now) is Array and value() is now
    return type(value) in BY_VALUE and same(value, now)


def _now(where: Any, name: str) -> Any:
    if type(where) is dict:
        return where.get(name, MISSING)
    try:
        return where.cell_contents
    except ValueError:
        return MISSING


def _functions_of(value: Any) -> Iterator[FunctionType]:
    """The Python functions that a callable leads to without reading a variable."""
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


def _outside(f: FunctionType) -> Iterator[tuple[Any, str]]:
    """Where a function looks for what it does not define."""
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
        yield cell, name
    for name in _global_names(f.__code__):
        yield f.__globals__, name


_names: Cache[CodeType, tuple[str, ...]] = Cache("global names of code", MAX_CODES)


def _global_names(code: CodeType) -> tuple[str, ...]:
    """Global names of a code object and of the functions defined inside it."""
    found = _names.get(code)
    return _names.keep(code, _read_names(code)) if found is None else found


def _read_names(code: CodeType) -> tuple[str, ...]:
    out: dict[str, None] = {}
    words, high = code.co_code, 0
    for op, low in zip(words[::2], words[1::2]):  # as dis.get_instructions, 30 times as fast
        number = high | low
        high = number << 8 if op == dis.EXTENDED_ARG else 0
        if op in _GLOBAL:
            out[code.co_names[number >> _GLOBAL[op]]] = None
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            out.update(dict.fromkeys(_global_names(inner)))
    return tuple(out)
