"""Placeholders of JAX names that fnx lacks: they can be imported, and raise when used.

>>> serve = make_placeholder("jax.profiler.start_server", "functions", ())
>>> try:
...     serve(9999)
... except NotImplementedError as error:
...     print(error.message.split(", and")[0])
jax.profiler.start_server is a name of JAX that fnx does not have

A placeholder type can be a base class and be used in ``isinstance``, as libraries do on import:

>>> Jaxpr = make_placeholder("jax.extend.core.Jaxpr", "types", ())
>>> class Mine(Jaxpr):
...     pass
>>> isinstance(1.0, Jaxpr)
False
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any, NoReturn

from fnx.core.support.errors import NotBuiltError
from fnx.core.support.name_hints import suggestion


def raise_unsupported(name: str, near: Iterable[str]) -> NoReturn:
    """Raise that a name is not supported, with a similar one that is."""
    module, _, short_name = name.rpartition(".")
    short_names = [other.rpartition(".")[2] for other in near]
    raise NotBuiltError(f"{name} is a name of JAX that fnx does not have, and "
                        f"{_caller()} uses it",
                        hint=suggestion(short_name, short_names)
                        or "docs/differences.md lists what is not supported")


def _caller() -> str:
    """Return the name of the innermost module on the stack that is not of fnx."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = str(frame.f_globals.get("__name__"))
        if name.partition(".")[0] != "fnx":
            return name
        frame = frame.f_back
    return "Python"


class _PlaceholderType(type):
    """Metaclass of placeholder types: calling one raises, and so does reading its attributes.

    Classes derived from one can be instantiated as usual, which libraries do on import.
    """

    _stands_for: str
    _near: Iterable[str]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if "_stands_for" in cls.__dict__:
            raise_unsupported(cls._stands_for, cls._near)
        return super().__call__(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):  # dunder lookups by Python itself
            raise AttributeError(name)
        raise_unsupported(f"{cls._stands_for}.{name}", cls._near)


class Placeholder:
    """A placeholder of a function or a value of JAX."""

    def __init__(self, name: str, near: Iterable[str]) -> None:
        self._stands_for, self._near = name, near
        self.__name__ = self.__qualname__ = name.rpartition(".")[2]
        self.__module__ = name.rpartition(".")[0]
        if name.endswith("_p"):  # a primitive: programs compare names
            self.name = self.__name__.removesuffix("_p")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise_unsupported(self._stands_for, self._near)

    def bind(self, *args: Any, **params: Any) -> NoReturn:
        """Raise: libraries read ``bind`` of primitives when they are imported."""
        raise_unsupported(f"{self._stands_for}.bind", self._near)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise_unsupported(f"{self._stands_for}.{name}", self._near)

    def __repr__(self) -> str:
        return f"<{self._stands_for}: not there in fnx>"


def make_placeholder(name: str, kind: str, near: Iterable[str]) -> Any:
    """Return the placeholder of a dotted name of JAX; ``near`` are supported names to suggest."""
    module, _, short_name = name.rpartition(".")
    namespace = {"__module__": module, "_stands_for": name, "_near": near}
    if kind == "errors":  # can be caught, but nothing raises it
        return type(short_name, (Exception,), namespace)
    if kind == "types":
        return _PlaceholderType(short_name, (), namespace)
    return Placeholder(name, near)
