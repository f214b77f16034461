"""Bounds checks for ``config.check_index``: one fault number for each indexed access.

A fault is the largest index out of bounds, or ``NONE`` if all are in bounds. Graphs and
user-written kernels compute faults along with their results; the caller inspects them.
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
    """A checked index into an axis of ``length``.

    ``what`` names the operation that reads or writes; the user's line is ``site``, or one of the
    lines of ``node``. ``wraps``: negative indices from -length on count from the end. ``loops``:
    the enclosing loops, innermost first, whose iteration numbers follow the fault.
    """

    what: str
    axis: int
    length: int
    site: Site | None = None
    wraps: bool = False
    node: UOp | None = None
    loops: tuple[str, ...] = ()

    def raise_for(self, found: int, *iterations: int) -> None:
        """Raise OutOfBoundsError if the fault number is one."""
        if found not in (NONE, 0):  # 0 is in bounds; a device that computes nothing returns 0
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
        """The check encoded as the name of a kernel buffer."""
        return f"{_MARK}{self.what} {self.axis} {self.length}"


def named(name: str, site: Site | None) -> Check | None:
    """Decode the check from the name of a buffer; None if it encodes none."""
    if not name.startswith(_MARK):
        return None
    what, axis, length = name.removeprefix(_MARK).rsplit(" ", 2)
    return Check(what, int(axis), int(length), site)


def count(kernel: UOp) -> int:
    """Return how many outputs of a user-written kernel are faults."""
    refs = {store.src[0].src[0] for store in kernel.src}
    return sum(ref.arg.name.startswith(_MARK) for ref in refs)


def fault(i: UOp, length: int, shown: UOp | None = None) -> UOp:
    """Return the index (or the value ``shown`` for it) where it is out of bounds, else ``NONE``."""
    inside = build.lt(i, build.like(i, length))
    if i.dtype.kind != "uint":
        inside = build.and_(build.le(build.like(i, 0), i), inside)
    value = i if shown is None else shown
    value = build.maximum(value, build.like(value, 0 if value.dtype.kind == "uint" else NONE + 1))
    value = build.minimum(value, build.like(value, highest(dtypes.int32)))
    value = build.cast(value, dtypes.int32)
    return build.where(inside, build.like(value, NONE), value)


def raise_first(checks: Iterable[Check], found: Iterable[Iterable[int]]) -> None:
    """Raise for the first fault.

    Each item of ``found`` is a fault, followed by the iteration numbers of its enclosing loops.
    """
    for check, values in zip(checks, found, strict=True):
        check.raise_for(*map(int, values))
