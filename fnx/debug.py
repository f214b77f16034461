"""Debugging of compiled code at run time: ``print``, ``callback``, ``breakpoint``, NaN checks."""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.core.array.api_boundary import public_api
from fnx.core.array.array import Array
from fnx.core.support.config import config, override
from fnx.core.support.errors import ArgumentError, lazy_module
from fnx.core.support.format_strings import check_format
from fnx.core.tracing import host_callbacks
from fnx.transforms.kernel_lang import kernel_prints
from fnx.transforms.kernel_lang.trace_state import OPEN

__all__ = ["breakpoint", "callback", "infs", "nans", "print"]
_PACKAGE_DIR = os.path.dirname(os.path.abspath(__file__)) + os.sep


@public_api
def callback(callback: Callable[..., Any], *args: Any, ordered: bool = False,
             **kwargs: Any) -> None:
    """Call a Python function for its side effects once its arguments are computed.

    This works in compiled code, too. The function is called once per call in the program, in
    program order; under vmap once per element, in order; under grad once, in the forward pass. Its
    result is discarded. It may itself use fnx. Results of the program are bitwise the same with and
    without it.

    Args:
        callback: called with ``args`` and ``kwargs``, whose arrays are concrete.
        args: pytrees of arrays; leaves that are not arrays are passed on unchanged.
        ordered: accepted for compatibility with JAX; calls are always in program order.
        kwargs: like ``args``, by name.

    Raises:
        CallbackError: the function raised.

    >>> import fnx
    >>> seen = []
    >>> @fnx.jit
    ... def f(x):
    ...     fnx.debug.callback(lambda v: seen.append(v.tolist()), x * 2)
    ...     return x.sum()
    >>> f(fnx.numpy.ones(2))
    Array(2., dtype=float32)
    >>> fnx.effects_barrier()
    >>> seen
    [[2.0, 2.0]]
    """
    host_callbacks.call_python(callback, args, kwargs, None,
                               host_callbacks.callback_name("debug.callback", callback),
                               effect=True)


@public_api
def print(fmt: str | None = None, *args: Any, ordered: bool = False, **kwargs: Any) -> Any:
    """Print values once they are computed, also from compiled code.

    Args:
        fmt: a format string for ``str.format``, applied to ``args`` and ``kwargs``. If omitted, a
            printing function is returned: ``print(ordered=True)(fmt, ...)``.
        args: pytrees; arrays are printed like NumPy arrays, other objects by ``str.format``.
        ordered: accepted for compatibility with JAX; lines are always in program order.
        kwargs: like ``args``, by name.

    Returns:
        None; without a format string, this function.

    Raises:
        ArgumentError: the format string names a missing argument, or leaves one unused.

    In a user-written kernel it is ``fnx.kernel.print``.

    >>> import fnx
    >>> @fnx.jit
    ... def f(x):
    ...     fnx.debug.print("x = {}, half of it {half:.2f}", x, half=x.sum() / 2)
    ...     return x + 1
    >>> y = f(fnx.numpy.ones(3)); fnx.effects_barrier()
    x = [1. 1. 1.], half of it 1.50
    """
    if fmt is None:
        return print
    if OPEN.tracings:
        kernel_prints.record_print(fmt, args, kwargs)
        return None
    check_format(fmt, args, kwargs)
    host_callbacks.call_python(_print_values, (fmt, *args), kwargs, None, "debug.print",
                               effect=True, numbers=False)
    return None


@public_api
def breakpoint() -> None:
    """Stop in Python's debugger once the local variables of the calling function are computed.

    Only the interpreter (``fnx.config.device = "interp"``) supports it, as it runs compiled code
    step by step. ``sys.breakpointhook`` is called, as by Python's own ``breakpoint``.

    Raises:
        ArgumentError: another device.

    >>> import sys
    >>> import fnx
    >>> from fnx.core.support.config import override
    >>> @fnx.jit
    ... def f(x):
    ...     y = x * 2
    ...     fnx.debug.breakpoint()
    ...     return y
    >>> hook, sys.breakpointhook = sys.breakpointhook, lambda: builtins.print(
    ...     sys._getframe(1).f_locals["y"])
    >>> with override(device="interp"):
    ...     y = f(3.0)
    6.0
    >>> sys.breakpointhook = hook
    """
    if config.device not in ("interp", "trace"):
        raise ArgumentError(f'expected device="interp", got {config.device!r}: compiled code does '
                            "not stop", hint='set fnx.config.device = "interp"')
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE_DIR):
        frame = frame.f_back
    host_callbacks.call_python(_break_in_frame, (), dict(frame.f_locals), None, "debug.breakpoint",
                               effect=True, numbers=False,
                               bound=(frame.f_code.co_filename, frame.f_lineno, frame.f_globals))


def _break_in_frame(file: str, line: int, names: dict[str, Any], /, **variables: Any) -> None:
    """Call the debugger from a frame with these variables and the user's file and line."""
    code = compile("\n" * (line - 1) + "__import__('builtins').breakpoint(); pass", file, "exec")
    exec(code, names, variables)


@contextlib.contextmanager
def nans(enable: bool = True) -> Iterator[None]:
    """Raise for a NaN in a result in a ``with`` block, and name the op that produced it.

    The same as ``fnx.config.check = "nan"``: each result is checked; if it has a NaN, it is
    computed again from its inputs, node by node. This covers compiled code, ``grad``, ``vmap`` and
    loops.

    Args:
        enable: whether to check.

    Returns:
        A context manager.

    Raises:
        NotFiniteError: has the op, line, iteration and index of the first one.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> with fnx.debug_nans():
    ...     fnx.jit(lambda x: jnp.log(x) * 2)(jnp.asarray([1.0, -1.0]))
    Traceback (most recent call last):
        ...
    fnx.core.support.errors.NotFiniteError: ...: <lambda>: expected no NaN, got nan from log at
    [1]
      ...
    """
    with override(check="nan" if enable else ""):
        yield


@contextlib.contextmanager
def infs(enable: bool = True) -> Iterator[None]:
    """Raise for a NaN or infinity in a result in a ``with`` block, and name the op that made it.

    Args:
        enable: whether to check.

    Returns:
        A context manager.

    Raises:
        NotFiniteError: has the op, line, iteration and index of the first one.

    >>> import fnx
    >>> with fnx.debug_infs():
    ...     fnx.jit(lambda x: 1 / x)(0.0)
    Traceback (most recent call last):
        ...
    fnx.core.support.errors.NotFiniteError: ...: <lambda>: expected no NaN or infinity, got inf from
    div
      ...
    """
    with override(check="inf" if enable else ""):
        yield


def _print_values(fmt: str, *args: Any, **kwargs: Any) -> None:
    args, kwargs = host_callbacks.map_leaves(_as_numpy, (args, kwargs))
    builtins.print(fmt.format(*args, **kwargs), flush=True)


def _as_numpy(x: Any) -> Any:
    return np.asarray(x) if type(x) is Array else x


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
