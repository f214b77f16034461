"""Looking into compiled code while it runs: ``print``, ``callback``, ``breakpoint``."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.core.array import effects
from fnx.core.array.array import Array
from fnx.core.array.public import public
from fnx.core.errors import ArgumentError, module_face
from fnx.core.process import load

__all__ = ["callback", "print"]


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
def print(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Print values when they are there, also from compiled code.

    Args:
        fmt: a format string as ``str.format`` takes it, for ``args`` and ``kwargs``.
        args: pytrees of arrays, printed as NumPy prints them; anything else as it is.
        ordered: accepted as JAX's; the order is that of the program in any case.
        kwargs: as ``args``, by name.

    Raises:
        ArgumentError: the format string names an argument that is not there, or does not name
            one that is.

    >>> import fnx
    >>> @fnx.jit
    ... def f(x):
    ...     fnx.debug.print("x = {}, half of it {half:.2f}", x, half=x.sum() / 2)
    ...     return x + 1
    >>> y = f(fnx.numpy.ones(3))
    >>> fnx.effects_barrier()
    x = [1. 1. 1.], half of it 1.50
    """
    _check(fmt, args, kwargs)
    effects.call(_printed, (fmt, *args), kwargs, None, "debug.print", effect=True, numbers=False)


def _printed(fmt: str, *args: Any, **kwargs: Any) -> None:
    args, kwargs = effects.mapped(_as_numpy, (args, kwargs))
    builtins.print(fmt.format(*args, **kwargs), flush=True)


def _as_numpy(x: Any) -> Any:
    return np.asarray(x) if type(x) is Array else x


def _check(fmt: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise now for what would go wrong later."""
    if not isinstance(fmt, str):
        raise ArgumentError(f"expected a format string, got {type(fmt).__name__}",
                            hint='write print("x = {}", x)')
    used, automatic = set[Any](), 0
    try:
        for _, field, _, _ in load("string").Formatter().parse(fmt):
            if field is None:
                continue
            name = field.partition(".")[0].partition("[")[0]
            if not name:
                name, automatic = str(automatic), automatic + 1
            used.add(int(name) if name.isdecimal() else name)
    except ValueError as e:
        raise ArgumentError(f"expected a format string, got {fmt!r}: {e}",
                            hint="write { and } that are no fields twice: {{ }}") from None
    given = {*range(len(args)), *kwargs}
    if used != given:
        what, names = ("names", used - given) if used - given else ("does not name", given - used)
        raise ArgumentError(f"expected a format string that names all arguments, got {fmt!r}, "
                            f"which {what} {', '.join(map(str, sorted(names, key=str)))}",
                            hint="a field for each argument: {} in order, or {name}")


if not TYPE_CHECKING:  # else every name would be there for type checkers
    __getattr__, __dir__ = module_face(__name__, __all__)
