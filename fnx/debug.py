"""Looking into compiled code while it runs: ``print``, ``callback``, ``breakpoint``."""

from __future__ import annotations

import builtins
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.core.array import effects
from fnx.core.array.array import Array
from fnx.core.array.public import public
from fnx.core.config import config, override
from fnx.core.errors import ArgumentError, module_face
from fnx.core.formats import check_format
from fnx.transforms.kernels import kernel_prints
from fnx.transforms.kernels.tracing import OPEN

__all__ = ["breakpoint", "callback", "infs", "nans", "print"]
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep


@public
def callback(callback: Callable[..., Any], *args: Any, ordered: bool = False,
             **kwargs: Any) -> None:
    """Call a Python function when the values are there, for what it does; also in compiled code.

    It is called once where the program calls it, in the order of the program; under vmap once
    for each element, in order; under grad once, with the forward pass. What it returns is
    dropped. It may itself use fnx. Results are the same bits with and without it.

    Args:
        callback: gets ``args`` and ``kwargs`` with concrete arrays.
        args: pytrees of arrays; leaves that are no arrays are passed on as they are.
        ordered: accepted as JAX's; the order is that of the program in any case.
        kwargs: as ``args``, by name.

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
    effects.call(callback, args, kwargs, None, effects.name_of("debug.callback", callback),
                 effect=True)


@public
def print(fmt: str | None = None, *args: Any, ordered: bool = False, **kwargs: Any) -> Any:
    """Print values when they are there, also from compiled code.

    Args:
        fmt: a format string as ``str.format`` takes it, for ``args`` and ``kwargs``. Left out:
            ``print(ordered=True)(fmt, ...)`` prints.
        args: pytrees of arrays, printed as NumPy prints them; anything else as it is.
        ordered: accepted as JAX's; the order is that of the program in any case.
        kwargs: as ``args``, by name.

    Returns:
        None; without a format string, this function.

    Raises:
        ArgumentError: the format string names an argument that is not there, or does not name
            one that is.

    In a hand-written kernel it is ``fnx.kernel.print``.

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
        kernel_prints.record(fmt, args, kwargs)
        return None
    check_format(fmt, args, kwargs)
    effects.call(_printed, (fmt, *args), kwargs, None, "debug.print", effect=True, numbers=False)
    return None


@public
def breakpoint() -> None:
    """Stop in Python's debugger when the values are there, with the variables of this function.

    Only on the interpreter (``fnx.config.device = "interp"``), where compiled code runs step by
    step. ``sys.breakpointhook`` is called, as by Python's own ``breakpoint``.

    Raises:
        ArgumentError: another device.

    >>> import sys
    >>> import fnx
    >>> from fnx.core.config import override
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
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    effects.call(_stopped, (), dict(frame.f_locals), None, "debug.breakpoint", effect=True,
                 numbers=False, bound=(frame.f_code.co_filename, frame.f_lineno, frame.f_globals))


def _stopped(file: str, line: int, names: dict[str, Any], /, **variables: Any) -> None:
    """Call the debugger from a frame with these variables, which seems to be the user's."""
    code = compile("\n" * (line - 1) + "__import__('builtins').breakpoint(); pass", file, "exec")
    exec(code, names, variables)


@contextlib.contextmanager
def nans(enable: bool = True) -> Iterator[None]:
    """A time in which a NaN in a result raises, and names the op that made it.

    The same as ``fnx.config.check = "nan"``: each result is looked at; where one has a NaN, what
    it was computed from is computed again, node by node. It works on what compiled code, ``grad``,
    ``vmap`` and loops compute.

    Args:
        enable: whether to look.

    Returns:
        A context manager.

    Raises:
        NotFiniteError: op, line, iteration and index of the first.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> with fnx.debug_nans():
    ...     fnx.jit(lambda x: jnp.log(x) * 2)(jnp.asarray([1.0, -1.0]))
    Traceback (most recent call last):
        ...
    fnx.core.errors.NotFiniteError: ...: <lambda>: expected no NaN, got nan out of log at [1]
      ...
    """
    with override(check="nan" if enable else ""):
        yield


@contextlib.contextmanager
def infs(enable: bool = True) -> Iterator[None]:
    """A time in which a NaN or an infinity in a result raises, and names the op that made it.

    Args:
        enable: whether to look.

    Returns:
        A context manager.

    Raises:
        NotFiniteError: op, line, iteration and index of the first.

    >>> import fnx
    >>> with fnx.debug_infs():
    ...     fnx.jit(lambda x: 1 / x)(0.0)
    Traceback (most recent call last):
        ...
    fnx.core.errors.NotFiniteError: ...: <lambda>: expected no NaN or infinity, got inf out of div
      ...
    """
    with override(check="inf" if enable else ""):
        yield


def _printed(fmt: str, *args: Any, **kwargs: Any) -> None:
    args, kwargs = effects.mapped(_as_numpy, (args, kwargs))
    builtins.print(fmt.format(*args, **kwargs), flush=True)


def _as_numpy(x: Any) -> Any:
    return np.asarray(x) if type(x) is Array else x


if not TYPE_CHECKING:  # else every name would be there for type checkers
    __getattr__, __dir__ = module_face(__name__, __all__)
