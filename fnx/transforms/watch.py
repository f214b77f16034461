"""Watch: what a traced function read besides its arguments, compared by identity at each call.

Python has no way to say that a function is pure, so fnx looks: the closure cells and the named
globals of f, and those of the Python functions it reaches through them, are remembered when f
is traced. If one of them is another object at a later call, the trace is stale. What is
reached through attributes, containers or installed packages is not watched: pass it as an argument.

>>> scale = 2
>>> def f(x):
...     return x * scale
>>> seen = Watch(f)
>>> seen.changed() is None
True
>>> seen.entries = [(e[0], e[1], 3) for e in seen.entries]  # as if it had been 3
>>> seen.changed()
('scale', 3, 2)
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType, MethodType
from typing import Any

MAX_FUNCTIONS = 200
_MISSING = object()
_INSTALLED = tuple({os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep,
                    os.path.dirname(os.__file__) + os.sep}) + tuple(
    p + os.sep for p in sys.path if p.endswith(("site-packages", "dist-packages")))


class Watch:
    """The outside values that a function reads.

    ``entries`` are (where, name, value): where is a closure cell or a namespace (a dict).
    """

    __slots__ = ("entries",)

    def __init__(self, f: Callable[..., Any]) -> None:
        self.entries: list[tuple[Any, str, Any]] = []
        queue = list(_functions_of(f))
        seen: set[FunctionType] = set(queue)
        while queue and len(seen) <= MAX_FUNCTIONS:
            for where, name, value in _outside(queue.pop()):
                self.entries.append((where, name, value))
                for g in _functions_of(value):
                    if g not in seen and not g.__code__.co_filename.startswith(_INSTALLED):
                        seen.add(g)
                        queue.append(g)

    def changed(self) -> tuple[str, Any, Any] | None:
        """(name, old, new) of the first value that is another object now."""
        for where, name, value in self.entries:
            now = _now(where, name)
            if now is not value:
                return name, value, now
        return None


def _now(where: Any, name: str) -> Any:
    if type(where) is dict:
        return where.get(name, _MISSING)
    try:
        return where.cell_contents
    except ValueError:
        return _MISSING


def _functions_of(f: Any) -> Iterator[FunctionType]:
    """The Python functions behind a callable: methods, partials, wrappers."""
    while isinstance(f, functools.partial):
        f = f.func
    if isinstance(f, MethodType):
        f = f.__func__
    if isinstance(f, FunctionType):
        yield f
    wrapped = getattr(f, "__wrapped__", None) if callable(f) else None
    if isinstance(wrapped, FunctionType):
        yield wrapped
    elif not isinstance(f, FunctionType | type) and callable(f):
        call = vars(type(f)).get("__call__")
        if isinstance(call, FunctionType):
            yield call


def _outside(f: FunctionType) -> Iterator[tuple[Any, str, Any]]:
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or ()):
        yield _cell(name, cell)
    space = f.__globals__
    for name in _names(f.__code__):
        if name in space:
            yield space, name, space[name]


def _cell(name: str, cell: CellType) -> tuple[Any, str, Any]:
    return cell, name, _now(cell, name)


def _names(code: CodeType) -> list[str]:
    """Global names of a code object and of the functions defined inside it."""
    out = dict.fromkeys(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            out.update(dict.fromkeys(_names(inner)))
    return list(out)
