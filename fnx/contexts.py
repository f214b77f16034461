"""``with`` blocks: names for parts of a program, values while tracing, settings of JAX."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fnx.core.array import scope
from fnx.core.config import check_fixed, config, override
from fnx.core.errors import ArgumentError, module_face, user_site
from fnx.core.process import load

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["check_tracer_leaks", "checking_leaks", "debug_key_reuse", "default_device",
           "default_matmul_precision", "default_prng_impl", "disable_jit", "enable_checks",
           "enable_custom_prng", "ensure_compile_time_eval", "explain_cache_misses",
           "legacy_prng_key", "log_compiles", "named_call", "named_scope", "no_tracing",
           "numpy_dtype_promotion", "numpy_rank_promotion", "softmax_custom_jvp",
           "threefry_partitionable", "transfer_guard", "transfer_guard_device_to_device",
           "transfer_guard_device_to_host", "transfer_guard_host_to_device"]


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
    with scope.time_outside():
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
def disable_jit(disable: bool = True) -> Iterator[None]:
    """In a ``with`` block jitted functions and loops run in Python: values can be printed.

    ``grad``, ``vmap`` and their like trace as ever, and loops in them. It sets
    ``fnx.config.disable_jit`` for the thread or task that enters it.

    Args:
        disable: whether.

    Returns:
        A context manager.

    Raises:
        ArgumentError: no bool.

    >>> import fnx
    >>> @fnx.jit
    ... def f(x):
    ...     print("the value of x:", x)
    ...     return x * 2
    >>> with disable_jit():
    ...     print(f(fnx.numpy.ones(2)))
    the value of x: [1. 1.]
    [2. 2.]
    """
    with override(disable_jit=disable):
        yield


def _check(name: str, what: str, values: tuple[Any, ...], given: Any) -> None:
    if values and given not in values:
        raise ArgumentError(f"{name}: expected {' or '.join(map(repr, values))}, got {given!r}",
                            hint=what)


@contextlib.contextmanager
def no_tracing(new_val: bool = True) -> Iterator[None]:
    """A block in which no jitted function may be traced.

    It is for the part of a program that is meant to be fast. What jit has seen before runs; a
    call with other shapes, types or static values raises, and says what differs.

    Args:
        new_val: False: tracing is allowed, inside of such a block.

    Returns:
        A context manager.

    >>> import fnx, fnx.numpy as jnp
    >>> f = fnx.jit(lambda x: x * 2)
    >>> y = f(jnp.ones(3))
    >>> with fnx.no_tracing():
    ...     f(jnp.zeros(3))
    ...     f(jnp.zeros(4))                         # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fnx.core.errors.RetracedError: <lambda> would be traced within no_tracing
    """
    with override(no_tracing=bool(new_val)):
        yield


def _inert(name: str, what: str, *values: Any) -> Callable[..., Any]:
    """A block that takes a setting of JAX which is as it is here: these values, or any."""
    @contextlib.contextmanager
    def block(new_val: Any = values[0] if values else True) -> Iterator[None]:
        _check(name, what, values, new_val)
        yield
    takes = f"{' or '.join(map(repr, values))}." if values else "accepted as JAX's."
    raises = "\n\n    Raises:\n        ArgumentError: another value." if values else ""
    block.__name__ = block.__qualname__ = name
    block.__doc__ = f"""{what}

    Args:
        new_val: {takes}

    Returns:
        A context manager.{raises}

    >>> import fnx
    >>> with fnx.{name}({repr(values[0]) if values else ""}):
    ...     pass
    """
    return block


debug_key_reuse = _inert("debug_key_reuse", "Whether keys that are used twice raise: never.",
                         False)
default_prng_impl = _inert("default_prng_impl", "How random numbers are made: by Threefry.",
                           "threefry2x32")
enable_checks = _inert("enable_checks", "Checks of JAX itself; here: ``config.check_spec``.")
enable_custom_prng = _inert("enable_custom_prng", "Whether ``PRNGKey`` gives typed keys: never.",
                            False)
explain_cache_misses = _inert("explain_cache_misses", "Why functions are traced again is logged: "
                              "here ``f.cache_info().misses`` says it.")
legacy_prng_key = _inert("legacy_prng_key", "What uint32 keys do: they are taken.", "allow")
log_compiles = _inert("log_compiles", "Whether compilations are logged: never.")
softmax_custom_jvp = _inert("softmax_custom_jvp", "The derivative of softmax is one of its own.")
threefry_partitionable = _inert("threefry_partitionable", "How random bits are counted: one by "
                                "one.", True)
transfer_guard = _inert("transfer_guard", "Copies between devices: there is one.")
transfer_guard_device_to_device = _inert("transfer_guard_device_to_device",
                                         "Copies between devices: there is one.")
transfer_guard_device_to_host = _inert("transfer_guard_device_to_host",
                                       "Copies to the host: the device is the host.")
transfer_guard_host_to_device = _inert("transfer_guard_host_to_device",
                                       "Copies from the host: the device is the host.")


@contextlib.contextmanager
def default_device(new_val: Any = None) -> Iterator[None]:
    """Where arrays are made, and computed if none is committed, in a ``with`` block.

    Args:
        new_val: a Device or its name, or None: as before.

    Returns:
        A context manager.

    >>> import fnx
    >>> with default_device(fnx.devices()[0]):
    ...     pass
    """
    name = None if new_val is None else load("fnx.placing").platform_of(new_val)
    if name is None or name == config.device:
        yield
        return
    with override(device=name):
        yield


if not TYPE_CHECKING:  # else every name would be there for type checkers
    __getattr__, __dir__ = module_face(__name__, __all__)
