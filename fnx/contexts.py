"""``with`` blocks: names for parts of a program, values while tracing, settings of JAX."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fnx.core.array import scope
from fnx.core.config import check_fixed
from fnx.core.errors import ArgumentError, module_face, user_site

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["check_tracer_leaks", "checking_leaks", "default_device", "default_matmul_precision",
           "ensure_compile_time_eval", "named_call", "named_scope", "numpy_dtype_promotion",
           "numpy_rank_promotion"]


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


@contextlib.contextmanager
def numpy_dtype_promotion(new_val: str = "standard") -> Iterator[None]:
    """How dtypes promote in a ``with`` block: always by the standard lattice.

    Args:
        new_val: "standard".

    Returns:
        A context manager.

    Raises:
        ArgumentError: "strict" or something else.

    >>> with numpy_dtype_promotion("standard"):
    ...     pass
    """
    check_fixed("jax_numpy_dtype_promotion", new_val)
    yield


@contextlib.contextmanager
def numpy_rank_promotion(new_val: str = "allow") -> Iterator[None]:
    """Whether arrays of fewer axes broadcast in a ``with`` block: always.

    Args:
        new_val: "allow" or "warn".

    Returns:
        A context manager.

    Raises:
        ArgumentError: "raise" or something else.

    >>> with numpy_rank_promotion("allow"):
    ...     pass
    """
    check_fixed("jax_numpy_rank_promotion", new_val)
    yield


@contextlib.contextmanager
def default_matmul_precision(new_val: Any = None) -> Iterator[None]:
    """The precision of products in a ``with`` block: float32 is float32, whatever is asked.

    Args:
        new_val: one of JAX's names, or None.

    Returns:
        A context manager.

    >>> with default_matmul_precision("highest"):
    ...     pass
    """
    yield


@contextlib.contextmanager
def checking_leaks(new_val: bool = True) -> Iterator[None]:
    """Whether arrays that outlive their trace raise in a ``with`` block: always.

    Args:
        new_val: accepted as JAX's.

    Returns:
        A context manager.

    >>> with checking_leaks():
    ...     pass
    """
    yield


check_tracer_leaks = checking_leaks


@contextlib.contextmanager
def default_device(new_val: Any = None) -> Iterator[None]:
    """Where arrays are made in a ``with`` block: on the one device there is.

    Args:
        new_val: a Device, or None.

    Returns:
        A context manager.

    >>> import fnx
    >>> with default_device(fnx.devices()[0]):
    ...     pass
    """
    yield


if not TYPE_CHECKING:  # else every name would be there for type checkers
    __getattr__, __dir__ = module_face(__name__, __all__)
