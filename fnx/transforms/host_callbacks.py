"""Python callbacks: ``pure_callback``, and ``experimental.io_callback``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fnx.core.array.api_boundary import public_api
from fnx.core.scope import storage
from fnx.core.support.errors import ArgumentError
from fnx.core.tracing import host_callbacks

_VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all",
                 "legacy_vectorized")


@public_api
def pure_callback(callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any,
                  vmap_method: str | None = None, **kwargs: Any) -> Any:
    """Call a Python function without side effects, also from compiled code.

    It is called when its results are needed: not at all if they are unused, and perhaps more than
    once. It may itself use fnx.

    Args:
        callback: called with ``args`` and ``kwargs``, whose arrays are concrete; returns arrays.
        result_shape_dtypes: a pytree like the result, of objects with ``shape`` and ``dtype``.
        args: pytrees of arrays; leaves that are not arrays are passed on unchanged.
        vmap_method: how it is called for a batch: "sequential" (once per element), "expand_dims"
            (once, with a leading batch axis; of length 1 for unbatched arguments),
            "broadcast_all" (once, with the batch axis on all arguments), "legacy_vectorized" (once,
            with a batch axis only on batched arguments). By default vmap raises.
        kwargs: like ``args``, by name.

    Returns:
        A pytree of Arrays like ``result_shape_dtypes``.

    Raises:
        CallbackError: the function raised, or returned other arrays.
        GradError: its derivative is needed: define one with custom_jvp or custom_vjp.

    >>> import fnx
    >>> import numpy as np
    >>> @fnx.jit
    ... def f(x):
    ...     return fnx.pure_callback(np.cumsum, x, x) + 1
    >>> f(fnx.numpy.ones(3))
    Array([2., 3., 4.], dtype=float32)
    """
    if vmap_method is not None and vmap_method not in _VMAP_METHODS:
        raise ArgumentError(f"expected vmap_method among {', '.join(_VMAP_METHODS)}, got "
                            f"{vmap_method!r}")
    return host_callbacks.call_python(callback, args, kwargs,
                                      host_callbacks.expected_results(result_shape_dtypes),
                                      host_callbacks.callback_name("pure_callback", callback),
                                      effect=False, method=vmap_method or "")


@public_api
def io_callback(callback: Callable[..., Any], result_shape_dtypes: Any, *args: Any,
                ordered: bool = False, **kwargs: Any) -> Any:
    """Call a Python function with side effects, also from compiled code.

    It is called once per call in the program, in program order; under vmap once per element, in
    order. It may itself use fnx.

    Args:
        callback: called with ``args`` and ``kwargs``, whose arrays are concrete; returns arrays.
        result_shape_dtypes: a pytree like the result, of objects with ``shape`` and ``dtype``.
        args: pytrees of arrays; leaves that are not arrays are passed on unchanged.
        ordered: accepted for compatibility with JAX; calls are always in program order.
        kwargs: like ``args``, by name.

    Returns:
        A pytree of Arrays like ``result_shape_dtypes``.

    Raises:
        CallbackError: the function raised, or returned other arrays.
        GradError: its derivative is needed: define one with custom_jvp or custom_vjp.

    >>> import fnx
    >>> from fnx.experimental import io_callback
    >>> log = []
    >>> @fnx.jit
    ... def f(x):
    ...     io_callback(lambda v: log.append(float(v)), None, x.sum())
    ...     return x * 2
    >>> f(fnx.numpy.ones(3))
    Array([2., 2., 2.], dtype=float32)
    >>> fnx.effects_barrier()
    >>> log
    [3.0]
    """
    return host_callbacks.call_python(callback, args, kwargs,
                                      host_callbacks.expected_results(result_shape_dtypes),
                                      host_callbacks.callback_name("io_callback", callback),
                                      effect=True, ordered=ordered)


@public_api
def effects_barrier() -> None:
    """Wait until all pending callbacks have run.

    Raises:
        CallbackError: one of them raised, and the error was not reported yet.

    >>> import fnx
    >>> fnx.jit(lambda x: fnx.debug.print("x is {}", x))(2.5); fnx.effects_barrier()
    x is 2.5
    """
    storage.finish()
