"""Context managers: named scopes, evaluation during tracing, and JAX's settings."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from fnx.core.scope import scope
from fnx.core.support.config import config, override
from fnx.core.support.errors import ArgumentError, lazy_module, user_location
from fnx.core.support.jax_flags import INERT
from fnx.core.support.process import lazy_import

device_transfer = lazy_import("fnx.device_transfer")

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["check_tracer_leaks", "checking_leaks", "debug_key_reuse", "default_device",
           "default_matmul_precision", "default_prng_impl", "disable_jit", "enable_checks",
           "enable_custom_prng", "ensure_compile_time_eval", "explain_cache_misses",
           "legacy_prng_key", "log_compiles", "named_call", "named_scope", "no_tracing",
           "numpy_dtype_promotion", "numpy_rank_promotion", "softmax_custom_jvp",
           "threefry_partitionable", "transfer_guard", "transfer_guard_device_to_device",
           "transfer_guard_device_to_host", "transfer_guard_host_to_device"]


def named_scope(name: str) -> contextlib._GeneratorContextManager[None]:
    """Name a part of the program for error messages: a context manager and a decorator.

    Args:
        name: its name.

    Returns:
        A context manager.

    Raises:
        ArgumentError: the name is not a str.

    >>> with named_scope("first layer"):
    ...     pass
    """
    if not isinstance(name, str):
        raise ArgumentError(f"named_scope: expected a text, got {name!r}")
    return _named_region(name)


@contextlib.contextmanager
def _named_region(name: str) -> Iterator[None]:
    with scope.named_region(name, user_location(3)):
        yield


def named_call(fun: Callable[P, R], *, name: str | None = None) -> Callable[P, R]:
    """Wrap a function so that errors list its name among the enclosing transforms.

    Args:
        fun: a function.
        name: its name; by default ``fun.__name__``.

    Returns:
        The wrapped function.

    >>> named_call(lambda x: x + 1, name="next")(1)
    2
    """
    label: str = name if name is not None else getattr(fun, "__name__", "a function")

    @functools.wraps(fun)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        with named_scope(label):
            return fun(*args, **kwargs)
    return call


@contextlib.contextmanager
def ensure_compile_time_eval() -> Iterator[None]:
    """Evaluate what has known values in a part of a traced function immediately.

    What depends on the arguments of the function is traced, as outside of the block.

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
    with scope.suspend_traces():
        yield


@contextlib.contextmanager
def numpy_dtype_promotion(new_val: str = "standard") -> Iterator[None]:
    """Set dtype promotion in a ``with`` block: by the lattice, or an error where dtypes differ.

    Args:
        new_val: "standard" or "strict".

    Returns:
        A context manager.

    Raises:
        ArgumentError: another value.

    >>> import fnx.numpy as jnp
    >>> with numpy_dtype_promotion("strict"):
    ...     jnp.ones(2) + jnp.ones(2, int)                  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fnx.core.support.errors.TypePromotionError: add: expected operands of one dtype
    """
    with override(dtype_promotion=new_val):
        yield


@contextlib.contextmanager
def numpy_rank_promotion(new_val: str = "allow") -> Iterator[None]:
    """Set in a ``with`` block whether arrays of fewer axes broadcast, with a warning, or raise.

    Args:
        new_val: "allow", "warn" or "raise"; arrays without axes always broadcast.

    Returns:
        A context manager.

    Raises:
        ArgumentError: another value.

    >>> import fnx.numpy as jnp
    >>> with numpy_rank_promotion("raise"):
    ...     jnp.ones((2, 3)) + jnp.ones(3)                  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fnx.core.support.errors.ShapeError: add: expected operands of one rank
    """
    with override(rank_promotion=new_val):
        yield


@contextlib.contextmanager
def default_matmul_precision(new_val: Any = None) -> Iterator[None]:
    """Set the matmul precision in a ``with`` block; products of float32 are always float32.

    Args:
        new_val: one of JAX's names, or None.

    Returns:
        A context manager.

    Raises:
        ArgumentError: another name.

    >>> with default_matmul_precision("highest"):
    ...     pass
    """
    with override(jax_default_matmul_precision=new_val):
        yield


@contextlib.contextmanager
def checking_leaks(new_val: bool = True) -> Iterator[None]:
    """Check in a ``with`` block that no traced array outlives its trace; slow.

    Outside of such a block, one that does raises when it is used.

    Args:
        new_val: whether to check.

    Returns:
        A context manager.

    Raises:
        LeakedTracerError: when a traced function has returned, but one of its arrays is held.

    >>> with checking_leaks():
    ...     pass
    """
    with override(jax_check_tracer_leaks=new_val):
        yield


check_tracer_leaks = checking_leaks


@contextlib.contextmanager
def disable_jit(disable: bool = True) -> Iterator[None]:
    """Run jitted functions and loops in Python in a ``with`` block, so that values can be printed.

    ``grad``, ``vmap`` and other transforms still trace, including loops in them. It sets
    ``fnx.config.disable_jit`` for the thread or task that enters it.

    Args:
        disable: whether to disable jit.

    Returns:
        A context manager.

    Raises:
        ArgumentError: ``disable`` is not a bool.

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


def _check_choice(name: str, hint: str, values: tuple[Any, ...], value: Any) -> None:
    if values and value not in values:
        raise ArgumentError(f"{name}: expected {' or '.join(map(repr, values))}, got {value!r}",
                            hint=hint)


@contextlib.contextmanager
def no_tracing(new_val: bool = True) -> Iterator[None]:
    """Forbid the tracing of jitted functions in a ``with`` block.

    It is meant for the performance-critical part of a program. Calls with known signatures run; a
    call with other shapes, dtypes or static values raises an error that says what differs.

    Args:
        new_val: whether to forbid it; False allows tracing again inside such a block.

    Returns:
        A context manager.

    >>> import fnx, fnx.numpy as jnp
    >>> f = fnx.jit(lambda x: x * 2)
    >>> y = f(jnp.ones(3))
    >>> with fnx.no_tracing():
    ...     f(jnp.zeros(3))
    ...     f(jnp.zeros(4))                         # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    fnx.core.support.errors.RetracedError: <lambda> would be traced within no_tracing
    """
    with override(no_tracing=bool(new_val)):
        yield


@contextlib.contextmanager
def threefry_partitionable(new_val: bool = True) -> Iterator[None]:
    """Set in a ``with`` block how random bits are counted: one by one, or in two halves.

    Args:
        new_val: False gives the bits of JAX before 0.5, where this was the default.

    Returns:
        A context manager.

    >>> import fnx
    >>> with threefry_partitionable(False):
    ...     print(fnx.random.bits(fnx.random.key(0), (2,)))
    [ 928981903 3453687069]
    """
    with override(threefry_partitionable=new_val):
        yield


def _inert_setting(name: str, summary: str, *values: Any) -> Callable[..., Any]:
    """Create a context manager for a JAX setting without effect; accepts only ``values`` if given.
    """
    flag = f"jax_{name}"

    @contextlib.contextmanager
    def block(new_val: Any = values[0] if values else True) -> Iterator[None]:
        _check_choice(name, summary, values, new_val)
        with override(**({flag: new_val} if flag in INERT else {})):
            yield
    takes = f"{' or '.join(map(repr, values))}." if values else "accepted as JAX's."
    raises = "\n\n    Raises:\n        ArgumentError: another value." if values else ""
    block.__name__ = block.__qualname__ = name
    block.__doc__ = f"""{summary}

    Args:
        new_val: {takes}

    Returns:
        A context manager.{raises}

    >>> import fnx
    >>> with fnx.{name}({repr(values[0]) if values else ""}):
    ...     pass
    """
    return block


debug_key_reuse = _inert_setting("debug_key_reuse",
                                 "Whether keys that are used twice raise: never.",
                                 False)
default_prng_impl = _inert_setting("default_prng_impl", "How random numbers are made: by Threefry.",
                                   "threefry2x32")
enable_checks = _inert_setting("enable_checks",
                               "Checks of JAX itself; here: ``config.check_spec``.")
enable_custom_prng = _inert_setting("enable_custom_prng",
                                    "Whether ``PRNGKey`` gives typed keys: never.",
                                    False)
explain_cache_misses = _inert_setting("explain_cache_misses",
                                      "Why functions are traced is logged, as warnings; "
                                      "``f.cache_info().misses`` says it, too.")
legacy_prng_key = _inert_setting("legacy_prng_key", "What uint32 keys do: they are taken.", "allow")
log_compiles = _inert_setting("log_compiles", "Whether compilations are logged: never.")
softmax_custom_jvp = _inert_setting("softmax_custom_jvp",
                                    "The derivative of softmax is one of its own.")
transfer_guard = _inert_setting("transfer_guard", "Copies between devices: there is one.")
transfer_guard_device_to_device = _inert_setting("transfer_guard_device_to_device",
                                                 "Copies between devices: there is one.")
transfer_guard_device_to_host = _inert_setting("transfer_guard_device_to_host",
                                               "Copies to the host: the device is the host.")
transfer_guard_host_to_device = _inert_setting("transfer_guard_host_to_device",
                                               "Copies from the host: the device is the host.")


@contextlib.contextmanager
def default_device(new_val: Any = None) -> Iterator[None]:
    """Set the device of new and uncommitted arrays in a ``with`` block.

    Args:
        new_val: a Device or its name, or None for no change.

    Returns:
        A context manager.

    >>> import fnx
    >>> with default_device(fnx.devices()[0]):
    ...     pass
    """
    name = None if new_val is None else device_transfer.platform_of(new_val)
    if name is None or name == config.device:
        yield
        return
    with override(device=name):
        yield


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
