"""State of the user-written kernel being traced: its stores so far and its open loops.

A ``KernelBody`` is the body of a loop with carried values, or of a conditional, while it is
traced. It holds its stores until its ITER is known.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from fnx.core import build, dtypes, index_faults, ops
from fnx.core.errors import KernelError, Site
from fnx.core.index_faults import Check
from fnx.core.uop import UOp


class KernelBody:
    """The body of a loop or a conditional while it is traced.

    Attributes:
        stores: the STOREs written in it.
        condition: the condition under which it runs, in terms of outer values; None if there
            is none.
        guard: the condition combined with those of the enclosing bodies; it masks reads by
            inactive lanes.
        anchors: whether every read takes the guard, which keeps it inside the body.
    """

    __slots__ = ("stores", "condition", "guard", "anchors")

    def __init__(self, condition: UOp | None = None, guard: UOp | None = None,
                 anchors: bool = False) -> None:
        self.stores: list[UOp] = []
        self.condition, self.guard, self.anchors = condition, guard, anchors


class Tracing:
    """The stores of a kernel so far, and the counters of its ranges, locals and loops."""

    __slots__ = ("name", "ranges", "stores", "locals", "loops", "scopes", "checks", "slots",
                 "written", "values", "ended", "prints", "hidden")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ranges: list[UOp] = []
        self.stores: list[UOp] = []
        self.locals = self.loops = self.slots = self.hidden = 0
        self.prints: list[Any] = []  # kernel_prints.Printed
        self.scopes: list[KernelBody] = []
        self.checks: list[Check] = []  # of data-dependent indices
        self.written: dict[UOp, Site | None] = {}  # STOREs yet to be order-checked -> location
        self.ended: set[UOp] = set()  # ranges of loops whose tracing is finished
        self.values: dict[UOp, None] = {}  # all nodes that Values have wrapped

    def put(self, store: UOp) -> None:
        """Append a STORE to the innermost open body."""
        (self.scopes[-1].stores if self.scopes else self.stores).append(store)

    def put_inside(self, written: UOp, store: UOp) -> None:
        """Append ``store``: STORE ``written`` of a loop body, rewritten for outside of it."""
        if written in self.written:
            self.written[store] = self.written[written]
        self.put(store)

    def saved(self) -> tuple[Any, ...]:
        """Return a snapshot for ``restore``."""
        return (list(self.ranges), list(self.stores), self.locals, self.loops, list(self.checks),
                list(self.prints), [list(s.stores) for s in self.scopes])

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Roll back to a snapshot."""
        ranges, stores, self.locals, self.loops, checks, prints, inside = saved
        self.ranges[:], self.stores[:], self.checks[:] = ranges, stores, checks
        self.prints[:] = prints
        for scope, own in zip(self.scopes, inside):
            scope.stores[:] = own

    def report(self, check: Check, i: UOp, valid: UOp | None) -> None:
        """Add an output that reports an out-of-bounds index (core/index_faults.py)."""
        place = build.at(build.ref(self.slots + len(self.checks), dtypes.int32, (), check.name))
        self.checks.append(check)
        self.stores.insert(0, build.store(place, build.const(index_faults.NONE, dtypes.int32)))
        store = build.store(place, index_faults.fault(i, check.length), valid, ops.MAX)
        store.sites = () if check.site is None else (check.site,)
        self.put(store)

    def conditions(self) -> list[UOp]:
        """Return the conditions of the open bodies, without their guards."""
        return [s.condition for s in self.scopes if s.condition is not None]

    def guard(self) -> UOp | None:
        """Return the guard of a read here: the innermost one implies the others."""
        guards = [s.guard for s in self.scopes if s.guard is not None]
        return guards[-1] if guards else None

    def anchors(self) -> bool:
        """Whether every read here takes the guard."""
        return any(s.anchors for s in self.scopes)


class _OpenTracings(threading.local):
    def __init__(self) -> None:
        self.tracings: list[Tracing] = []


OPEN = _OpenTracings()


def current() -> Tracing:
    """Return the kernel being traced in this thread."""
    if not OPEN.tracings:
        raise KernelError("expected to be called in a kernel",
                          hint="a kernel is a function under fnx.call(out=...)")
    return OPEN.tracings[-1]


def belongs(what: str, tracing: Tracing) -> None:
    """Reject a value of another kernel, or of a kernel whose tracing has ended."""
    if not OPEN.tracings or OPEN.tracings[-1] is not tracing:
        where = f"in kernel {OPEN.tracings[-1].name!r}" if OPEN.tracings else "after it"
        raise KernelError(f"expected {what} of kernel {tracing.name!r} to be used inside it, "
                          f"got a use {where}", hint="what a kernel computes leaves it by a store "
                          "to an output: o[i] = value")


def range_names(ranges: Sequence[UOp]) -> str:
    return " and ".join(repr(r.arg.name) if r.arg.name else f"number {r.arg.id}" for r in ranges)
