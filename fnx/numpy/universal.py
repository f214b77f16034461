"""What NumPy's universal functions have beside the call: ``jnp.add.reduce``, ``jnp.add.nin``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, cast

from fnx.core.array.array import Array
from fnx.core.process import load

P = ParamSpec("P")
_METHODS = ("accumulate", "at", "outer", "reduce", "reduceat")


class UniversalFunction(Protocol[P]):
    """A function of elements with the attributes of ``fnx.numpy.ufunc``."""

    nin: int
    nout: int
    nargs: int
    identity: Any
    accumulate: Callable[..., Array]
    at: Callable[..., Array]
    outer: Callable[..., Array]
    reduce: Callable[..., Array]
    reduceat: Callable[..., Array]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Array: ...


def universal(identity: Any = None, nin: int = 2
              ) -> Callable[[Callable[P, Array]], UniversalFunction[P]]:
    """Decorate a function of ``nin`` operands. Its methods are loaded when they are called."""
    def decorate(f: Callable[P, Array]) -> UniversalFunction[P]:
        made = cast(UniversalFunction[P], f)
        made.nin, made.nout, made.nargs, made.identity = nin, 1, nin, identity
        for name in _METHODS:
            setattr(f, name, _method(f, identity, nin, name))
        return made
    return decorate


def _method(f: Callable[..., Any], identity: Any, nin: int, name: str) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        return load("fnx.numpy.ufuncs").method(f, identity, nin, name)(*args, **options)

    call.__name__ = name
    return call
