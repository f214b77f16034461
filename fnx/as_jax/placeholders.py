"""Placeholders of JAX names that fnx lacks: they can be imported, and raise when used.

>>> solve = make_placeholder("jax.experimental.sparse.linalg.spsolve", "functions", ())
>>> try:
...     solve(1.0)
... except NotImplementedError as error:
...     print(error.message[:61])
jax.experimental.sparse.linalg.spsolve is not implemented yet

A placeholder type can be a base class and be used in ``isinstance``, as libraries do on import:

>>> Jaxpr = make_placeholder("jax.extend.core.Jaxpr", "types", ())
>>> class Mine(Jaxpr):
...     pass
>>> isinstance(1.0, Jaxpr)
False
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from fnx.core.support.errors import NotBuiltError, suggestion
from fnx.core.support.unimplemented import find_unimplemented


def raise_unsupported(name: str, near: Iterable[str]) -> NoReturn:
    """Raise that a name is not supported, with a similar one that is."""
    planned = find_unimplemented(name.removeprefix("jax."))
    if planned is not None:
        raise NotBuiltError(f"{name} is not implemented yet: {planned[0]} are planned",
                            hint=planned[1])
    raise NotBuiltError(f"{name} is a name of JAX that fnx does not have",
                        hint=suggestion(name, near) or "docs/differences.md lists what is not "
                                                       "supported")


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

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise_unsupported(self._stands_for, self._near)

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
