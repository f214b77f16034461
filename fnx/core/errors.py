"""Errors: a class, what was expected and what came, the user's file:line, how to mend it.

Every error a user can see derives from FnxError and from the Python class one would expect
(ValueError, TypeError, IndexError ...), so ``except ValueError`` keeps working.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import CodeType, FrameType, MappingProxyType
from typing import Any

from fnx.core.process import load

PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_SKIPPED = (PACKAGE, os.path.dirname(os.__file__) + os.sep + "contextlib.py", "<")

Site = tuple[str, int]  # file, line


def user_site(skip: int = 1) -> Site | None:
    """The innermost frame that is not fnx's own code."""
    frame: FrameType | None = sys._getframe(skip)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(_SKIPPED) or name.startswith("<ipython"):
            return name, frame.f_lineno
        frame = frame.f_back
    return None


def nearest(sites: Sequence[Site]) -> Site | None:
    """The one of a node's lines that is meant: equal graphs are the same nodes, wherever they
    stand. One that runs now, else the last in a file that calls; None where it may be any."""
    lines, files = set(), set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        files.add(frame.f_code.co_filename)
        frame = frame.f_back
    for meant in (lines.__contains__, lambda site: site[0] in files):
        found = next(filter(meant, reversed(sites)), None)
        if found is not None:
            return found
    return sites[0] if len(sites) == 1 else None


def show_site(site: Site | None) -> str:
    """``file:line`` relative to the working directory where that is shorter."""
    if site is None:
        return "<unknown line>"
    path = site[0]
    if path.startswith(os.getcwd() + os.sep):
        path = path[len(os.getcwd()) + 1:]
    return f"{path}:{site[1]}"


def labelled(name: str, sites: Sequence[Site]) -> str:
    """What profiles and faults call a kernel or a loop: its name and the user's lines.

    >>> labelled("map_exp", [("/home/me/model.py", 7)])
    'map_exp (model.py:7)'
    """
    lines = [f"{file.rpartition('/')[2]}:{line}" for file, line in sites[:2]]
    return f"{name} ({', '.join(lines)})" if lines else name


MAX_NAMED = 8  # open transforms that an error names
_open_transforms: Callable[[], Sequence[tuple[str, Site | None]]] = tuple


def set_open_transforms(find: Callable[[], Sequence[tuple[str, Site | None]]]) -> None:
    """Register how errors learn which transforms are open, and on which lines."""
    global _open_transforms
    _open_transforms = find


class FnxError(Exception):
    """Base of all errors of fnx.

    Args:
        message: what was expected and what came.
        hint: how to mend it.
        site: the user's (file, line); found from the call stack when not given.
        sites: lines that it may be of: those of a node, which may come from several functions.

    Attributes:
        inside: the transforms that were open, the innermost first, each with the user's line.
    """

    def __init__(self, message: str, *, hint: str = "", site: Site | None = None,
                 sites: Sequence[Site] = ()) -> None:
        self.message = message
        self.hint = hint
        self.sites = tuple(sites)
        self.site = site or nearest(sites) or user_site(2)
        self.inside = tuple(_open_transforms())
        super().__init__(message)

    def within(self, codes: Iterable[CodeType]) -> None:
        """It was raised while a function ran that leads to these codes: of several lines that it
        may be of, the one in them is meant."""
        inside = [site for site in self.sites for code in codes if _has_line(code, site)]
        if inside:
            self.site = self.site if self.site in inside else inside[-1]
            self.sites = ()  # known: what is further out does not know better

    def name_caller(self, name: str) -> None:
        """Begin with the public function that the user called, unless one is named."""
        if self.message.startswith("expected") and not name.startswith("_"):
            self.message = f"{name.rpartition('<locals>.')[2]}: {self.message}"
            self.args = (self.message,)

    def __str__(self) -> str:
        text = f"{show_site(self.site)}: {self.message}"
        if self.inside:
            text += f"\n  Inside {_chain(self.inside)}"
        return f"{text}\n  How to mend it: {self.hint}" if self.hint else text


def _has_line(code: CodeType, site: Site) -> bool:
    """Whether a line is one of a function, or of those defined in it."""
    lines = [line for *_, line in code.co_lines() if line is not None]
    return code.co_filename == site[0] and (
        code.co_firstlineno <= site[1] <= max(lines, default=code.co_firstlineno)
        or any(_has_line(c, site) for c in code.co_consts if isinstance(c, CodeType)))


def _chain(inside: Sequence[tuple[str, Site | None]]) -> str:
    """Transforms in one another: ``scan of cell (m.py:9) in jit of f (m.py:20)``."""
    names = []
    for (name, site), same in itertools.groupby(inside):
        times = len(list(same))
        names.append(f"{name} ({show_site(site)}){f' {times} times' if times > 1 else ''}")
    more = len(names) - MAX_NAMED
    return " in ".join(names[:MAX_NAMED]) + (f" in {more} more" if more > 0 else "")


class ShapeError(FnxError, TypeError, ValueError):
    """Shapes that do not fit together."""


class DTypeError(FnxError, TypeError):
    """A dtype that an operation does not take, or that fnx does not hold."""


class TypePromotionError(DTypeError):
    """Operands of dtypes that do not promote to one: int4 and float8 are converted by name."""


class AxisError(FnxError, ValueError, IndexError):
    """An axis outside the array's dimensions, or named twice."""


class OutOfBoundsError(FnxError, IndexError):
    """A static index outside its axis."""


class OutOfBoundsWarning(UserWarning):
    """A static index outside its axis, which reads the nearest element or writes nothing."""


class ExchangeError(FnxError, BufferError, ValueError):
    """Memory that can't be in common with another library."""


class CheckpointError(FnxError, ValueError):
    """A file that is no whole checkpoint, or not of what is asked for: names file and byte."""


class OverflowedError(FnxError, OverflowError):
    """An integer that does not fit its dtype."""


class TracedValueError(FnxError, TypeError):
    """The value of a traced array was asked for (``if``, ``float()``, ``np.asarray``).

    ``static`` is how the value would be known: by what the transform that traces offers.
    """

    static = ""

    def instead(self, how: str) -> None:
        """Say how to do without the value, and how it would be known."""
        self.hint = f"{how}; or {self.static}" if self.static else how


class LeakedTracerError(FnxError, RuntimeError):
    """A traced array was used after the function that made it had returned."""


class GradError(FnxError, TypeError):
    """grad was asked for something that has no derivative."""


class RuleError(FnxError, TypeError, ValueError, AttributeError):
    """A custom rule that is missing, or that returns what does not fit its function."""


class BatchSizeError(RuleError):
    """A custom rule that closes over other arrays for another number of lanes."""


class NestingError(FnxError, RecursionError):
    """Traces or containers that nest deeper than fnx goes."""


class PytreeError(FnxError, TypeError, ValueError):
    """Trees of arguments or results whose structures do not fit."""


class StaticArgumentError(FnxError, TypeError, ValueError):
    """A static argument that cannot be hashed, or that names no parameter."""


class AxisNameError(FnxError, NameError):
    """A name of an axis that no vmap around the call gives."""


class RetracedError(FnxError, RuntimeError):
    """A jitted function would be traced where that is forbidden."""


class DonatedError(FnxError, RuntimeError):
    """A donated array was used again."""


class ArgumentError(FnxError, TypeError, ValueError):
    """Any other argument that an operation does not take."""


class PlacementError(ArgumentError):
    """Arrays of one call that were placed on several devices: names both, and both lines."""


class MutationError(FnxError, TypeError):
    """An attempt to change an immutable array."""


class KernelError(FnxError, ValueError):
    """A hand-written kernel or its schedule that means nothing."""


class NotBuiltError(FnxError, NotImplementedError, AttributeError):
    """A thing that fnx will have and does not have yet (so ``hasattr`` is false)."""


class DeviceError(FnxError, RuntimeError):
    """A fault on a device: names the kernel and the user's line."""


class NotFiniteError(FnxError, FloatingPointError):
    """A NaN (or an infinity) that ``config.check`` looks for: names the op that made it."""


class NotBatchedError(FnxError, NotImplementedError):
    """vmap of something that does not say what it does for a batch."""


class CallbackError(DeviceError):
    """A callback that raised, or returned other arrays than it said."""


class OutOfMemoryError(DeviceError, MemoryError):
    """A device has no memory left, also after all that nobody uses was released."""


class SpecError(FnxError, ValueError):
    """A graph that is not legal at its level: a bug in a pass of fnx, never the user's."""


class UnknownNameError(FnxError, AttributeError):
    """A name that a module or an array does not have; the message is made when it is shown."""

    def __init__(self, owner: str, name: str, names: Iterable[str], otherwise: str) -> None:
        super().__init__(f"{owner} has no attribute {name!r}")
        self.missing, self.names, self.otherwise = name, names, otherwise

    def __str__(self) -> str:
        known = [name for name in self.names if not name.startswith("_")]
        self.hint = self.hint or suggestion(self.missing, known) or self.otherwise
        return super().__str__()


def suggestion(name: str, names: Iterable[str]) -> str:
    """The most similar name, by the pairs of letters that both have.

    >>> suggestion("axs", ["dtype", "axis"]), suggestion("q", ["axis"])
    ("did you mean 'axis'?", '')
    """
    best = nearest_of(names, name)
    return f"did you mean {best!r}?" if best and likeness(best, name) > 0.5 else ""


def nearest_of(names: Iterable[str], name: str) -> str:
    """The one that is most like a name; of none, nothing."""
    return max(names, key=lambda other: likeness(other, name), default="")


def likeness(a: str, b: str) -> float:
    """Which part of their pairs of letters two words have in common."""
    one, two = ({left + right for left, right in zip(f"<{x}", f"{x}>")} for x in (a, b))
    return 2 * len(one & two) / (len(one) + len(two))


def module_face(module: str, names: Sequence[str], later: Container[str] = (),
                homes: Mapping[str, str] = MappingProxyType({})
                ) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a public module.

    Args:
        names: what is there: its ``__all__``.
        later: names that JAX has and fnx does not have yet.
        homes: the modules of names that are there at their first use, or modules themselves:
            ``import fnx`` is on everybody's clock. "module:name" if it has another name there.
    """
    def missing(name: str) -> Any:
        if name in homes:
            home, _, there = homes[name].partition(":")
            found = load(home)
            if home != f"{module}.{name}":
                found = getattr(found, there or name)
            setattr(sys.modules[module], name, found)
            return found
        path = f"{module}.{name}"
        part = load("fnx.core.later").comes_later(path.partition(".")[2])
        if part is not None:
            raise NotBuiltError(f"{path} is not there yet: {part[0]} come later", hint=part[1])
        if name in later:
            raise NotBuiltError(f"{path} is not there yet", hint="the readme says what is there")
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        raise UnknownNameError(f"module {module!r}", name, names,
                               f"dir({module}) lists what it has")

    return missing, lambda: sorted(names)
