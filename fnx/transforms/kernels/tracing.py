"""The hand-written kernel that is being traced: what it has made so far, and which loops are open.

A ``Scope`` is a loop with carried values, or what a condition skips, while its body is traced.
Its stores wait there until its ITER is known.
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
    """A body that is being traced.

    Attributes:
        stores: the STOREs written in it.
        condition: what holds in it, of the values around; None: nothing does.
        guard: the same with what holds around, for reads of lanes that have ended.
        anchors: whether reads take the guard in any case, so that they are done inside.
    """

    __slots__ = ("stores", "condition", "guard", "anchors")

    def __init__(self, condition: UOp | None = None, guard: UOp | None = None,
                 anchors: bool = False) -> None:
        self.stores: list[UOp] = []
        self.condition, self.guard, self.anchors = condition, guard, anchors


class Tracing:
    """The stores and the numbers of ranges, locals and loops of a kernel so far."""

    __slots__ = ("name", "ranges", "stores", "locals", "loops", "scopes", "checks", "slots",
                 "written", "values", "ended", "prints", "hidden")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ranges: list[UOp] = []
        self.stores: list[UOp] = []
        self.locals = self.loops = self.slots = self.hidden = 0
        self.prints: list[Any] = []  # kernel_prints.Printed
        self.scopes: list[KernelBody] = []
        self.checks: list[Check] = []  # of indices that are data
        self.written: dict[UOp, Site | None] = {}  # STOREs whose order is to be checked: where
        self.ended: set[UOp] = set()  # the ranges of loops whose body is traced
        self.values: dict[UOp, None] = {}  # all that Values have stood for

    def put(self, store: UOp) -> None:
        """A STORE where the kernel stands."""
        (self.scopes[-1].stores if self.scopes else self.stores).append(store)

    def put_inside(self, written: UOp, store: UOp) -> None:
        """A STORE of a body, as it is in its loop, where the loop stands."""
        if written in self.written:
            self.written[store] = self.written[written]
        self.put(store)

    def saved(self) -> tuple[Any, ...]:
        """What ``restore`` brings back."""
        return (list(self.ranges), list(self.stores), self.locals, self.loops, list(self.checks),
                list(self.prints), [list(s.stores) for s in self.scopes])

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Forget what was made since."""
        ranges, stores, self.locals, self.loops, checks, prints, inside = saved
        self.ranges[:], self.stores[:], self.checks[:] = ranges, stores, checks
        self.prints[:] = prints
        for scope, own in zip(self.scopes, inside):
            scope.stores[:] = own

    def report(self, check: Check, i: UOp, valid: UOp | None) -> None:
        """A further output, the fault of an index (core/index_faults.py)."""
        place = build.at(build.ref(self.slots + len(self.checks), dtypes.int32, (), check.name))
        self.checks.append(check)
        self.stores.insert(0, build.store(place, build.const(index_faults.NONE, dtypes.int32)))
        store = build.store(place, index_faults.fault(i, check.length), valid, ops.MAX)
        store.sites = () if check.site is None else (check.site,)
        self.put(store)

    def conditions(self) -> list[UOp]:
        """What holds where the kernel stands, apart from guards."""
        return [s.condition for s in self.scopes if s.condition is not None]

    def guard(self) -> UOp | None:
        """The guard that a read needs where the kernel stands: the innermost holds the others."""
        guards = [s.guard for s in self.scopes if s.guard is not None]
        return guards[-1] if guards else None

    def anchors(self) -> bool:
        """Whether reads are done under the guard in any case."""
        return any(s.anchors for s in self.scopes)


class _OpenTracings(threading.local):
    def __init__(self) -> None:
        self.tracings: list[Tracing] = []


OPEN = _OpenTracings()


def current() -> Tracing:
    """The kernel that is being traced in this thread."""
    if not OPEN.tracings:
        raise KernelError("expected to be called in a kernel",
                          hint="a kernel is a function under fnx.call(out=...)")
    return OPEN.tracings[-1]


def belongs(what: str, tracing: Tracing) -> None:
    """Refuse what another kernel has made, or one that has ended."""
    if not OPEN.tracings or OPEN.tracings[-1] is not tracing:
        where = f"in kernel {OPEN.tracings[-1].name!r}" if OPEN.tracings else "after it"
        raise KernelError(f"expected {what} of kernel {tracing.name!r} to be used inside it, "
                          f"got a use {where}", hint="what a kernel computes leaves it by a store "
                          "to an output: o[i] = value")


def range_names(ranges: Sequence[UOp]) -> str:
    return " and ".join(repr(r.arg.name) if r.arg.name else f"number {r.arg.id}" for r in ranges)
