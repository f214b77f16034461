"""Errors: a class, what was expected and what came, the user's file:line, and a hint for the fix.

Every error that a user can see derives from FnxError and from the Python class that one would
expect (ValueError, TypeError, IndexError ...), so ``except ValueError`` works.
"""

from __future__ import annotations

import itertools
import os
import sys
import warnings
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import CodeType, FrameType, MappingProxyType
from typing import Any

import numpy as np

from fnx.core.support.line_visits import recording
from fnx.core.support.name_hints import CURES_OF_MODULES, cure_in_module
from fnx.core.support.process import load

PACKAGE = os.path.abspath(__file__).rpartition(os.path.join("", "core", "support", ""))[0]
_INTERNAL_PATHS = (PACKAGE, os.path.dirname(os.__file__) + os.sep + "contextlib.py", "<",
                   os.path.join(os.path.dirname(np.__file__), ""))

_INPUT = ("<ipython", "<stdin>", "<python-input")  # what a user types

Location = tuple[str, int]  # file, line


def is_internal(file: str) -> bool:
    """Return whether a file of a frame is no code of the user's."""
    return file.startswith(_INTERNAL_PATHS) and not file.startswith(_INPUT)


def user_location(skip: int = 1) -> Location | None:
    """Return file and line of the innermost frame outside fnx, or None."""
    frame: FrameType | None = sys._getframe(skip)
    if recording.recorder is not None and (visit := recording.recorder.location(frame)):
        return visit
    while frame is not None:
        name = frame.f_code.co_filename
        if not is_internal(name):
            return name, frame.f_lineno
        frame = frame.f_back
    frame = sys._getframe(skip)
    while frame is not None and not is_command(frame):
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def _caller_of_library(loc: Location | None) -> Location | None:
    """Return the line that called into the installed library that a location is in, else None."""
    frame: FrameType | None = sys._getframe(2) if loc and _in_library(loc[0]) else None
    while frame is not None and (is_internal(name := frame.f_code.co_filename)
                                 or _in_library(name)):
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def _in_library(file: str) -> bool:
    return f"{os.sep}site-packages{os.sep}" in file


def is_command(frame: FrameType) -> bool:
    """Return whether a frame runs the text of ``python -c``."""
    return frame.f_code.co_filename == "<string>" and \
        frame.f_globals.get("__name__") == "__main__"  # else libraries made the code


def choose_location(locs: Sequence[Location]) -> Location | None:
    """Choose the line to report among those of a node.

    Equal graphs are the same nodes, so a node may come from several lines. Prefer a line on the
    call stack, else the last line in a file on the call stack; None if the choice is ambiguous.
    """
    lines, files = set(), set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        files.add(frame.f_code.co_filename)
        frame = frame.f_back
    for is_candidate in (lines.__contains__, lambda loc: loc[0] in files):
        chosen = next(filter(is_candidate, reversed(locs)), None)
        if chosen is not None:
            return chosen
    return locs[0] if len(locs) == 1 else None


def own_locations(locs: Sequence[Location], lines: Container[Location]) -> tuple[Location, ...]:
    """Return the locations that are among the ``lines`` of a program; all of them if none is.

    >>> own_locations([("m.py", 4), ("m.py", 8)], {("m.py", 8), ("m.py", 9)})
    (('m.py', 8),)
    """
    return tuple([loc for loc in locs if loc in lines]) or tuple(locs)


def format_location(loc: Location | None) -> str:
    """Format as ``file:line``, relative to the working directory; a cell as ``In [3], line 2``."""
    if loc is None:
        return "<unknown line>"
    path, line = loc
    if cell := _cell_name(path):
        return f"{cell}, line {line}"
    if path.startswith(os.getcwd() + os.sep):
        path = path[len(os.getcwd()) + 1:]
    return f"{path}:{line}"


def short_file_name(file: str) -> str:
    """Return a file's name without its folder; for the code of a notebook's cell, ``In [3]``.

    >>> short_file_name("/home/me/model.py")
    'model.py'
    """
    return _cell_name(file) or file.replace("\\", "/").rpartition("/")[2]


def _cell_name(file: str) -> str:
    """Return ``In [3]`` for the name that IPython gives to the code of a cell, else ""."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    describe = getattr(getattr(shell, "compile", None), "format_code_name", None)
    cell = describe(file) if describe is not None else None  # ("Cell", "In[3]")
    return cell[1].replace("[", " [") if cell else ""


def kernel_label(name: str, locs: Sequence[Location]) -> str:
    """Return the label of a kernel or loop in profiles and errors: its name and the user's lines.

    >>> kernel_label("map_exp", [("/home/me/model.py", 7)])
    'map_exp (model.py:7)'
    """
    lines = [f"{short_file_name(file)}:{line}" for file, line in locs[:2] if line]
    return f"{name} ({', '.join(lines)})" if lines else name


def warn(text: str, category: type[Warning], loc: Location | None = None,
         registry: dict[Any, Any] | None = None) -> None:
    """Warn at a line of the user's, by default the one that called fnx; in a notebook, its cell.

    ``registry``: of warnings that are shown once, as ``warnings.warn_explicit`` takes it.
    """
    file, line = loc or user_location() or ("<unknown>", 0)
    warnings.warn_explicit(text, category, _cell_name(file) or file, line, registry=registry)


MAX_SHOWN_TRANSFORMS = 8  # maximum number of open transforms that an error lists
_open_transforms: Callable[[], Sequence[tuple[str, Location | None]]] = tuple


def set_open_transforms(find: Callable[[], Sequence[tuple[str, Location | None]]]) -> None:
    """Register the function that returns the open transforms, and their lines, for errors."""
    global _open_transforms
    _open_transforms = find


_OtherWords = Callable[[str, Callable[..., Any] | None], str]
_find_other_words: _OtherWords | None = None


def set_other_words(find: _OtherWords) -> None:
    """Register the function that puts a message and its hint in the words of another library; it
    is also given the user's function whose arguments ``args[0]`` and so on are, if it is known."""
    global _find_other_words
    _find_other_words = find


class FnxError(Exception):
    """Base class of all errors of fnx.

    Args:
        message: what was expected and what came.
        hint: how to fix it.
        loc: the user's (file, line); by default found from the call stack.
        locs: candidate lines: those of a node, which may come from several functions.

    Attributes:
        caller: the user's line that called the installed library that ``loc`` is in, if it is.
        open_transforms: the transforms that were open, the innermost first, each with the user's
            line.
        function: the user's function whose arguments the message names by position.
    """

    function: Callable[..., Any] | None = None

    def __init__(self, message: str, *, hint: str = "", loc: Location | None = None,
                 locs: Sequence[Location] = ()) -> None:
        self.message = message
        self.hint = hint
        self.locs = tuple(locs)
        self.loc = loc or choose_location(locs) or user_location(2)
        self.caller = _caller_of_library(self.loc)
        self.open_transforms = tuple(_open_transforms())
        super().__init__(message)

    def narrow_location(self, codes: Iterable[CodeType]) -> None:
        """Narrow the candidate lines to those in the code objects of the function that ran."""
        candidates = [loc for loc in self.locs for code in codes if _has_line(code, loc)]
        if candidates:
            self.loc = self.loc if self.loc in candidates else candidates[-1]
            self.locs = ()  # decided: outer functions have no better information

    def prefix_caller(self, name: str) -> None:
        """Prefix the message with the public function that the user called, unless it has one."""
        if self.message.startswith("expected") and not name.startswith("_"):
            self.message = f"{name.rpartition('<locals>.')[2]}: {self.message}"
            self.args = (self.message,)

    def __str__(self) -> str:
        text = f"{format_location(self.loc)}: {self.message}" if self.loc else self.message
        if self.caller:
            text += f"\n  Called at {format_location(self.caller)}"
        if self.open_transforms:
            text += f"\n  Inside {_format_transforms(self.open_transforms)}"
        text += f"\n  Fix: {self.hint}" if self.hint else ""
        words = "" if _find_other_words is None else _find_other_words(
            f"{self.message}\n{self.hint}", self.function)
        return f"{text}\n  In JAX: {words}" if words else text


def _has_line(code: CodeType, loc: Location) -> bool:
    """Return whether a line belongs to a function, or to one defined in it."""
    lines = [line for *_, line in code.co_lines() if line is not None]
    return code.co_filename == loc[0] and (
        code.co_firstlineno <= loc[1] <= max(lines, default=code.co_firstlineno)
        or any(_has_line(c, loc) for c in code.co_consts if isinstance(c, CodeType)))


def _format_transforms(inside: Sequence[tuple[str, Location | None]]) -> str:
    """Format nested transforms: ``scan of cell (m.py:9) in jit of f (m.py:20)``."""
    names = []
    for (name, loc), run in itertools.groupby(inside):
        times = len(list(run))
        names.append(f"{name} ({format_location(loc)}){f' {times} times' if times > 1 else ''}")
    more = len(names) - MAX_SHOWN_TRANSFORMS
    return " in ".join(names[:MAX_SHOWN_TRANSFORMS]) + (f" in {more} more" if more > 0 else "")


class ShapeError(FnxError, TypeError, ValueError):
    """Shapes that do not fit together."""


class DTypeError(FnxError, TypeError, ValueError):
    """A dtype that an operation does not accept, or that fnx does not support."""


class TypePromotionError(DTypeError):
    """Operands whose dtypes have no common type: int4 and float8 need explicit conversion."""


class AxisError(FnxError, ValueError, IndexError):
    """An axis outside the array's dimensions, or named twice."""


class OutOfBoundsError(FnxError, IndexError):
    """A static index outside its axis."""


class OutOfBoundsWarning(UserWarning):
    """A static index outside its axis, which reads the nearest element or writes nothing."""


class ExchangeError(FnxError, BufferError, ValueError):
    """Memory that cannot be shared with another library."""


class CheckpointError(FnxError, ValueError):
    """A file that is no complete checkpoint, or not the expected one: names file and byte."""


class MissingPathError(FnxError, FileNotFoundError):
    """A file that is to be read, or the folder of one that is to be written, does not exist."""


def check_folder(path: Any) -> None:
    """Raise if the folder of a file that is to be written does not exist."""
    folder, name = os.path.split(os.fspath(path))
    if folder and not os.path.exists(folder):
        raise MissingPathError(f"expected a folder {folder} to write {name} into, got none",
                               hint=f"make it first: os.makedirs({folder!r}, exist_ok=True)")


class ModelError(FnxError, ValueError):
    """A model file that is damaged, unsafe, or asks for what fnx cannot compute."""


class OverflowedError(FnxError, OverflowError):
    """An integer that does not fit its dtype."""


class TracedValueError(FnxError, TypeError):
    """The value of a traced array was requested (``if``, ``float()``, ``np.asarray``).

    ``static`` says how to make the value known, by means of the transform that traces,
    ``requested`` is the node, and ``is_derived`` whether it only was computed from an argument.
    """

    static = ""
    requested: Any = None
    is_derived = False

    def set_hint(self, how: str) -> None:
        """Set the hint: how to do without the value, or how to make it known."""
        self.hint = f"{how}; or {self.static}" if self.static else how


class TracedMaskError(TracedValueError, IndexError):
    """A traced bool mask was an index: the shape of the result depends on its values."""


class InconclusiveDimensionError(FnxError, TypeError):
    """A number was requested of a dimension that only a call knows, or an undecided comparison."""


class LeakedTracerError(FnxError, RuntimeError):
    """A traced array was used after the function that made it had returned."""


class GradError(FnxError, TypeError, ValueError, NotImplementedError):
    """A derivative was requested of something that has none."""


class RuleError(FnxError, TypeError, ValueError, AttributeError):
    """A custom rule that is missing, or whose results do not fit its function."""


class BatchSizeError(RuleError):
    """A custom rule that closes over other arrays for another batch size."""


class NestingError(FnxError, RecursionError):
    """Traces or containers that nest deeper than fnx supports."""


class PytreeError(FnxError, TypeError, ValueError):
    """Pytrees of arguments or results whose structures do not match."""


class StaticArgumentError(FnxError, TypeError, ValueError):
    """A static argument that cannot be hashed, or that names no parameter."""


class AxisNameError(FnxError, NameError):
    """An axis name that no enclosing vmap defines."""


class RetracedError(FnxError, RuntimeError):
    """A jitted function would be traced while tracing is forbidden."""


class DonatedError(FnxError, RuntimeError):
    """A donated array was used again."""


class ArgumentError(FnxError, TypeError, ValueError):
    """Any other argument that an operation does not accept."""


class FormatStringError(ArgumentError, KeyError, IndexError):
    """A format string that names an argument that is missing, or leaves one unused."""

    __str__ = FnxError.__str__  # that of KeyError quotes the message


class PlacementError(ArgumentError):
    """Arrays of one call that are on different devices: names both, and both lines."""


class MeshError(ArgumentError, RuntimeError):
    """A PartitionSpec where no mesh is set."""


class NotRegisteredError(ArgumentError, AssertionError):
    """A listener that is not registered."""


class JaxprTypeError(FnxError, TypeError):
    """A jaxpr that is built wrongly: names the equation."""


class MutationError(FnxError, TypeError):
    """An attempt to change an immutable array."""


class KernelError(FnxError, ValueError):
    """An invalid user-written kernel, or an invalid schedule for one."""


class NotBuiltError(FnxError, NotImplementedError, AttributeError):
    """A name that is not implemented yet (so ``hasattr`` is false)."""


class DeviceError(FnxError, RuntimeError):
    """A fault on a device: names the kernel and the user's line."""


class UnknownDeviceError(DeviceError):
    """A name that no device has."""


class RequirementError(FnxError, ImportError):
    """A package that fnx needs is missing, or has a version that fnx can't use."""


class NotFiniteError(FnxError, FloatingPointError):
    """A NaN (or an infinity) that ``config.check`` found: names the op that produced it."""


class NotBatchedError(FnxError, NotImplementedError):
    """vmap of a function without a batching rule."""


class CallbackError(DeviceError):
    """A callback that raised, or returned other arrays than declared."""


class DistributedError(DeviceError):
    """Processes that compute together: one is missing or has ended, or they run other programs."""


class OutOfMemoryError(DeviceError, MemoryError):
    """A device is out of memory, even after all unused memory was released."""


class SpecError(FnxError, ValueError):
    """A graph that is not legal at its level: a bug in a pass of fnx, never in user code."""


class UnknownNameError(FnxError, AttributeError):
    """A name that a module or an array does not have; the hint is computed when it is shown."""

    def __init__(self, owner: str, name: str, names: Iterable[str], otherwise: str,
                 message: str = "") -> None:
        super().__init__(message or f"{owner} has no attribute {name!r}")
        self.names, self.otherwise = names, otherwise
        self._in_module = f"{owner.rpartition('.')[2].strip(chr(39))}.{name}"  # as kernel.mean

    def __str__(self) -> str:
        known = [name for name in self.names if not name.startswith("_")]
        root = "jax." if self.message.startswith("module 'jax") else "fnx."
        self.hint = self.hint or cure_in_module(self._in_module, known, root) or self.otherwise
        return super().__str__()


class MissingName:
    """An attribute that a class does not have: reading it raises, and says what to write instead.

    A ``__getattr__`` would do so for every name, but slows down those that the class has.
    """

    def __init__(self, owner: str, name: str, cure: str) -> None:
        self._owner, self._name, self.cure = owner, name, cure

    def __get__(self, instance: Any, owner: type | None = None) -> MissingName:
        if instance is None:
            return self
        error = UnknownNameError(self._owner, self._name, (), "")
        error.hint = self.cure
        raise error

    def __repr__(self) -> str:
        return f"<not there: {self.cure}>"


def set_missing_names(cls: type, owner: str, cures: Mapping[str, str]) -> None:
    """Let a class say what to write in place of names that it does not have."""
    for name, cure in cures.items():
        setattr(cls, name, MissingName(owner, name, cure))


def lazy_module(module: str, names: Sequence[str], unimplemented: Container[str] = (),
                modules: Mapping[str, str] = MappingProxyType({})
                ) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a public module that imports names lazily.

    Args:
        names: the public names: its ``__all__``.
        unimplemented: names of JAX that are not implemented yet.
        modules: name -> the module that defines it (or the module itself), imported on first use to
            keep ``import fnx`` fast. "module:name" if the name differs there.
    """
    def missing(name: str) -> Any:
        if name in modules:
            source, _, attribute = modules[name].partition(":")
            value = load(source)
            if source != f"{module}.{name}":
                value = getattr(value, attribute or name)
            setattr(sys.modules[module], name, value)
            return value
        if name in unimplemented:
            hint = CURES_OF_MODULES.get(name, "the README lists what is implemented")
            raise NotBuiltError(f"{module}.{name} is not implemented yet", hint=hint)
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise UnknownNameError(f"module {module!r}", name, names,
                               f"dir({module}) lists its names")

    return missing, lambda: sorted(names)
