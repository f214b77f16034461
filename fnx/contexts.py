"""Names for parts of a program, and values that are computed while tracing."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from fnx.core.array import scope
from fnx.core.errors import ArgumentError, module_face, user_site

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["ensure_compile_time_eval", "named_call", "named_scope"]


@contextlib.contextmanager
def named_scope(name: str) -> Iterator[None]:
    """A part of the program that errors name: a context manager, and a decorator.

    Args:
        name: how it is called.

    Returns:
        A context manager.

    Raises:
        ArgumentError: no text.

    >>> with named_scope("first layer"):
    ...     pass
    """
    if not isinstance(name, str):
        raise ArgumentError(f"named_scope: expected a text, got {name!r}")
    with scope.named(name, user_site(3)):
        yield


def named_call(fun: Callable[P, R], *, name: str | None = None) -> Callable[P, R]:
    """A function whose name errors show, with the transforms around it.

    Args:
        fun: a function.
        name: how it is called; by default as it is defined.

    Returns:
        The function.

    >>> named_call(lambda x: x + 1, name="next")(1)
    2
    """
    called: str = name if name is not None else getattr(fun, "__name__", "a function")

    @functools.wraps(fun)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with named_scope(called):
            return fun(*args, **kwargs)
    return call


@contextlib.contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """A part of a traced function that is computed at once, of values that are known.

    Returns:
        A context manager.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> @fnx.jit
    ... def f(x):
    ...     with ensure_compile_time_eval():
    ...         n = int(jnp.sum(jnp.arange(4)))
    ...     return x + n
    >>> print(f(1.0))
    7.0
    """
    with scope.outside():
        yield


if not TYPE_CHECKING:  # else every name would be there for type checkers
    __getattr__, __dir__ = module_face(__name__, __all__)
