"""Faults of indices: what ``config.check_index`` finds, as one number for each place that reads.

A fault is the largest index outside of its axis, or ``NONE`` where all are inside. Graphs and
hand-written kernels compute them beside their results; whoever has the results looks at them.
"""

from __future__ import annotations

from collections.abc import Iterable

from fnx.core import build, dtypes
from fnx.core.errors import OutOfBoundsError, Site
from fnx.core.record import Record
from fnx.core.row_parts import highest, lowest
from fnx.core.uop import UOp

NONE = lowest(dtypes.int32)
_MARK = "fault of "


class Check(Record):
    """An index into an axis of ``length``: what reads or writes there, and the user's line, or the
    node whose lines are looked at when it is outside.

    ``wraps``: indices from -length on count from the end. ``loops``: the loops around it,
    innermost first, whose iterations follow the fault.
    """

    what: str
    axis: int
    length: int
    site: Site | None = None
    wraps: bool = False
    node: UOp | None = None
    loops: tuple[str, ...] = ()

    def raise_for(self, found: int, *iterations: int) -> None:
        """Raise OutOfBoundsError where a fault is one."""
        if found not in (NONE, 0):  # 0 is inside; a device that computes nothing says 0
            low = -self.length if self.wraps else 0
            where = "".join([f" in iteration {t} of {name or 'a loop'}"
                             for t, name in zip(iterations, self.loops)])
            raise OutOfBoundsError(
                f"{self.what}: expected {low} <= index < {self.length} along axis {self.axis}, "
                f"got {found}{where}", site=self.site,
                sites=self.node.sites if self.node is not None else (),
                hint="mend the index; without config.check_index a read takes the nearest place "
                     "and a write is left out")

    @property
    def name(self) -> str:
        """The check as the name of a buffer, for kernels."""
        return f"{_MARK}{self.what} {self.axis} {self.length}"


def named(name: str, site: Site | None) -> Check | None:
    """The check that a buffer's name tells of."""
    if not name.startswith(_MARK):
        return None
    what, axis, length = name.removeprefix(_MARK).rsplit(" ", 2)
    return Check(what, int(axis), int(length), site)


def count(kernel: UOp) -> int:
    """How many of a hand-written kernel's outputs are faults."""
    refs = {store.src[0].src[0] for store in kernel.src}
    return sum(ref.arg.name.startswith(_MARK) for ref in refs)


def fault(i: UOp, length: int, shown: UOp | None = None) -> UOp:
    """The index (or what is shown for it) where it is outside, else ``NONE``."""
    inside = build.lt(i, build.like(i, length))
    if i.dtype.kind != "uint":
        inside = build.and_(build.le(build.like(i, 0), i), inside)
    value = i if shown is None else shown
    value = build.maximum(value, build.like(value, 0 if value.dtype.kind == "uint" else NONE + 1))
    value = build.minimum(value, build.like(value, highest(dtypes.int32)))
    value = build.cast(value, dtypes.int32)
    return build.where(inside, build.like(value, NONE), value)


def raise_first(checks: Iterable[Check], found: Iterable[Iterable[int]]) -> None:
    """Raise for the first fault; each is followed by the iterations of the loops around it."""
    for check, values in zip(checks, found, strict=True):
        check.raise_for(*map(int, values))
