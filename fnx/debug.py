"""Debugging of compiled code: ``print``, ``callback``, ``breakpoint``, NaN checks, ``step``,
``visualize``.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, sharding_on
from fnx.core.array.call_validation import validate_call
from fnx.core.ir import low_precision
from fnx.core.scope import scope
from fnx.core.support.config import config, override
from fnx.core.support.errors import ArgumentError, lazy_module
from fnx.core.support.format_strings import check_format
from fnx.core.support.process import lazy_import
from fnx.core.tracing import host_callbacks
from fnx.transforms.kernel_lang import kernel_prints
from fnx.transforms.kernel_lang.trace_state import OPEN
from fnx.transforms.transformed import check_function

if TYPE_CHECKING:
    from fnx.transforms.inspect.array_picture import ArrayPicture
    from fnx.transforms.inspect.step_session import StepSession

array_picture = lazy_import("fnx.transforms.inspect.array_picture")
pdb = lazy_import("pdb")
pictures = lazy_import("fnx.sharding.pictures")
step_prompt = lazy_import("fnx.transforms.inspect.step_prompt")
step_session = lazy_import("fnx.transforms.inspect.step_session")

__all__ = ["breakpoint", "callback", "infs", "inspect_array_sharding", "log", "nans", "print",
           "step", "visualize", "visualize_array_sharding", "visualize_sharding"]
_PACKAGE_DIR = os.path.dirname(os.path.abspath(__file__)) + os.sep


@public_api
def callback(callback: Callable[..., Any], *args: Any, ordered: bool = False,
             partitioned: bool = False, **kwargs: Any) -> None:
    """Call a Python function for its side effects once its arguments are computed.

    This works in compiled code, too. The function is called once per call in the program, in
    program order; under vmap once per element, in order; under grad once, in the forward pass. Its
    result is discarded. It may itself use fnx. Results of the program are bitwise the same with and
    without it.

    Args:
        callback: called with ``args`` and ``kwargs``, whose arrays are concrete.
        args: pytrees of arrays; leaves that are not arrays are passed on unchanged.
        ordered: accepted for compatibility with JAX; calls are always in program order.
        partitioned: accepted for compatibility with JAX: arrays are whole.
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
                               effect=True, ordered=ordered)


@public_api
def print(fmt: str | None = None, *args: Any, ordered: bool = False, partitioned: bool = False,
          **kwargs: Any) -> Any:
    """Print values once they are computed, also from compiled code.

    Args:
        fmt: a format string for ``str.format``, applied to ``args`` and ``kwargs``. If omitted, a
            printing function is returned: ``print(ordered=True)(fmt, ...)``.
        args: pytrees; arrays are printed like NumPy arrays, other objects by ``str.format``.
        ordered: accepted for compatibility with JAX; lines are always in program order.
        partitioned: accepted for compatibility with JAX: arrays are whole.
        kwargs: like ``args``, by name.

    Returns:
        None; without a format string, this function.

    Raises:
        FormatStringError: the format string names a missing argument, or leaves one unused.

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
        return print if not ordered else functools.partial(print, ordered=True)
    if OPEN.tracings:
        kernel_prints.record_print(fmt, args, kwargs)
        return None
    check_format(fmt, args, kwargs)
    host_callbacks.call_python(_print_values, (fmt, *args), kwargs, None, "debug.print",
                               effect=True, numbers=False, ordered=ordered)
    return None


@public_api
def breakpoint() -> None:
    """Stop in Python's debugger once the local variables of the calling function are computed.

    In a traced function only the interpreter (``fnx.config.device = "interp"``) supports it, as
    compiled code does not stop. Elsewhere, and under ``disable_jit``, it stops in the function.
    ``sys.breakpointhook`` is called, as by Python's own ``breakpoint``.

    Raises:
        ArgumentError: a traced function on another device.

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
    frame = sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE_DIR):
        frame = frame.f_back
    where = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, frame.f_globals
    if not scope.is_open():
        if sys.breakpointhook is sys.__breakpointhook__ and "PYTHONBREAKPOINT" not in os.environ:
            pdb.Pdb(skip=["fnx", "fnx.*", "contextlib"]).set_trace(frame)
        else:
            _break_in_frame(*where, **frame.f_locals)
        return
    if config.device not in ("interp", "trace"):
        raise ArgumentError(f'expected device="interp", got {config.device!r}: compiled code does '
                            "not stop", hint='set fnx.config.device = "interp", or run it with '
                                             "fnx.disable_jit()")
    host_callbacks.call_python(_break_in_frame, (), dict(frame.f_locals), None, "debug.breakpoint",
                               effect=True, numbers=False, bound=where)


def _break_in_frame(file: str, line: int, function: str, names: dict[str, Any], /,
                    **variables: Any) -> None:
    """Call the debugger from a frame with these variables and the user's function and line."""
    code = compile("\n" * (line - 1) + "__import__('builtins').breakpoint()\npass", file, "exec")
    exec(code.replace(co_name=function), names, variables)


@validate_call
def step(fun: Callable[..., Any], *, static_argnums: int | Sequence[int] = (),
         static_argnames: str | Sequence[str] = (), interactive: bool | None = None
         ) -> Callable[..., Any]:
    """Make a function that goes through ``fun`` line by line, with the values of each line.

    The function is traced as ``jit`` traces it, transforms included; then its graph is computed by
    the interpreter, in the order of the lines. So the lines inside of ``vmap`` show values of the
    whole batch, those inside of a loop each iteration, and after the lines of a function under
    ``grad`` come their derivatives, in reverse. A value that the result does not need is not
    computed, and a line without values is passed over. Lines of installed libraries are part of
    the line that calls them.

    Args:
        fun: a function of pytrees of arrays, for example ``fnx.grad(loss)``.
        static_argnums: positional arguments that are passed to ``fun`` unchanged.
        static_argnames: the same, by name.
        interactive: whether to open a prompt; by default if input and output are a terminal.

    Returns:
        A function with the arguments of ``fun``. With a prompt it returns what ``fun`` returns,
        else a StepSession: its ``step``, ``next``, ``out``, ``run`` and ``first_nan`` go on and
        return the Step that they stopped at, which prints, and shows histograms in notebooks.

    Raises:
        ArgumentError: it is called inside of a function that is stepped through.

    >>> import fnx
    >>> import fnx.numpy as jnp
    >>> def f(x):
    ...     y = x - 1
    ...     return jnp.log(y)
    >>> session = fnx.debug.step(f)(jnp.asarray([2.0, 0.0]))
    >>> session.step().values["y"]
    array([ 1., -1.], dtype=float32)
    >>> session.first_nan().values
    {'return': array([ 0., nan], dtype=float32)}
    """
    check_function(fun, "debug.step")
    numbers = (static_argnums,) if isinstance(static_argnums, int) else tuple(static_argnums)
    names = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)

    @functools.wraps(fun)
    def start(*args: Any, **kwargs: Any) -> Any:
        session: StepSession = step_session.start(fun, args, kwargs, numbers, names)
        in_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        if in_terminal if interactive is None else interactive:
            step_prompt.interact(session)
            return session.result
        if interactive is None and "ipykernel" not in sys.modules and _is_piped(sys.stdin):
            builtins.print("debug.step: the input is not a terminal, so there is no prompt; "
                           "interactive=True opens one", file=sys.stderr)
        return session
    return start


def _is_piped(stream: TextIO) -> bool:
    """Return whether a stream reads a pipe or a file."""
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError, AttributeError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


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
    [1] of -1
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
    div of 1 and 0
      ...
    """
    with override(check="inf" if enable else ""):
        yield


@public_api
def inspect_array_sharding(value: Any, *, callback: Callable[[Any], None]) -> None:
    """Call a function with the sharding of an array, which is known at once here.

    Args:
        value: an array, also a traced one.
        callback: called with the sharding.

    >>> import fnx
    >>> inspect_array_sharding(fnx.numpy.ones(2), callback=builtins.print)
    SingleDeviceSharding(device=CpuDevice(id=0))
    """
    x = asarray(value)
    callback(x.sharding if not scope.is_open() else sharding_on(config.device))


def log(fmt: str, *args: Any, ordered: bool = False, **kwargs: Any) -> None:
    """Log values once they are computed, with level INFO of the logger "jax".

    Args:
        fmt: a format string in the syntax of ``str.format``.
        args: pytrees of arrays.
        ordered: accepted for compatibility with JAX; lines are always in program order.
        kwargs: like ``args``, by name.

    Raises:
        FormatStringError: the format string names a missing argument, or leaves one unused.

    >>> log("x is {}", 2)
    """
    check_format(fmt, args, kwargs)
    callback(_log_values, fmt, *args, **kwargs)


def _log_values(fmt: str, *args: Any, **kwargs: Any) -> None:
    args, kwargs = host_callbacks.map_leaves(_as_numpy, (args, kwargs))
    logging.getLogger("jax").info(fmt.format(*args, **kwargs))


@public_api
def visualize(x: Any) -> ArrayPicture:
    """Show an array as a picture: type, range and share of NaN, and a line or colored cells.

    Args:
        x: an array. Of more than two axes, the last two are shown, at the first index of the
            others.

    Returns:
        An ArrayPicture: SVG in a notebook, characters in a terminal; ``save(path)`` writes the SVG.

    Raises:
        TracedValueError: in a traced function; there, pass it to ``fnx.debug.callback``.

    >>> import fnx, fnx.numpy as jnp
    >>> fnx.debug.visualize(jnp.arange(6.0).reshape(2, 3))
    float32[2, 3]  [[0. 1. 2.] [3. 4. 5.]]
    .-=
    *#@
    """
    picture: ArrayPicture = array_picture.ArrayPicture(np.asarray(x))
    return picture


@public_api
def visualize_array_sharding(arr: Any, **kwargs: Any) -> None:
    """Print which devices hold which part of an array of one or two axes.

    Args:
        arr: an array.
        kwargs: as for ``visualize_sharding``.

    Raises:
        ShapeError: an array of another number of axes.

    >>> import fnx
    >>> visualize_array_sharding(fnx.numpy.ones(4))
    +-----+
    |CPU 0|
    +-----+
    """
    x = asarray(arr)
    visualize_sharding(x.shape, x.sharding, **kwargs)


@public_api
def visualize_sharding(shape: Sequence[int], sharding: Any, *, use_color: bool = True,
                       scale: float = 1.0, min_width: int = 0, max_width: int = 80,
                       color_map: Any = None) -> None:
    """Print which devices hold which part of an array of a shape.

    Args:
        shape: one or two lengths.
        sharding: a sharding over devices.
        use_color: accepted for compatibility with JAX, as are ``scale``, ``max_width`` and
            ``color_map``.
        scale: see ``use_color``.
        min_width: the least number of characters in a cell.
        max_width: see ``use_color``.
        color_map: see ``use_color``.

    Raises:
        ShapeError: another number of lengths.

    >>> import fnx
    >>> visualize_sharding((2, 2), fnx.NamedSharding(fnx.make_mesh((1,), "x"), fnx.P("x")))
    +-----+
    |CPU 0|
    +-----+
    """
    builtins.print(pictures.sharding_picture(shape, sharding, min_width))


def _print_values(fmt: str, *args: Any, **kwargs: Any) -> None:
    named = {name: _as_numpy(x) for name, x in kwargs.items()}
    builtins.print(fmt.format(*map(_as_numpy, args), **named), flush=True)


def _as_numpy(x: Any) -> Any:
    if type(x) is not Array:
        return x
    return low_precision.key_words(x._numpy()) if x._dtype.kind == "key" else np.asarray(x)


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
