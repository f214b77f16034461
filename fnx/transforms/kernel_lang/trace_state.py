"""State of the user-written kernel being traced: its stores so far and its open loops.

A ``KernelBody`` is the body of a loop with carried values, or of a conditional, while it is
traced. It holds its stores until its LOOP is known.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from fnx.core.ir import bounds_checks, build, dtypes, ops
from fnx.core.ir.bounds_checks import BoundsCheck
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import KernelError, Location, format_location


class KernelBody:
    """The body of a loop or a conditional while it is traced.

    Attributes:
        stores: the STOREs written in it.
        condition: the condition under which it runs, in terms of outer values; None if there
            is none.
        guard: the condition combined with those of the enclosing bodies; it masks reads by
            inactive lanes.
        forces_guard: whether every read takes the guard, which keeps it inside the body.
    """

    __slots__ = ("stores", "condition", "guard", "forces_guard")

    def __init__(self, condition: UOp | None = None, guard: UOp | None = None,
                 forces_guard: bool = False) -> None:
        self.stores: list[UOp] = []
        self.condition, self.guard, self.forces_guard = condition, guard, forces_guard


class KernelTrace:
    """The stores of a kernel so far, and the counters of its ranges, locals and loops."""

    __slots__ = ("name", "ranges", "range_locs", "stores", "locals", "loops", "scopes", "checks",
                 "slots", "written", "values", "ended", "prints", "hidden")

    def __init__(self, name: str) -> None:
        self.name = name
        self.ranges: list[UOp] = []
        self.range_locs: dict[UOp, Location | None] = {}  # the lines that made them
        self.stores: list[UOp] = []
        self.locals = self.loops = self.slots = self.hidden = 0
        self.prints: list[Any] = []  # kernel_prints.Printed
        self.scopes: list[KernelBody] = []
        self.checks: list[BoundsCheck] = []  # of data-dependent indices
        self.written: dict[UOp, Location | None] = {}  # STOREs yet to be order-checked -> location
        self.ended: set[UOp] = set()  # ranges of loops whose tracing is finished
        self.values: dict[UOp, None] = {}  # all nodes that Values have wrapped

    def put(self, store: UOp) -> None:
        """Append a STORE to the innermost open body."""
        (self.scopes[-1].stores if self.scopes else self.stores).append(store)

    def put_in_loop(self, inner: UOp, store: UOp) -> None:
        """Append ``store``: STORE ``inner`` of a loop body, rewritten for outside of it."""
        if inner in self.written:
            self.written[store] = self.written[inner]
        self.put(store)

    def saved(self) -> tuple[Any, ...]:
        """Return a snapshot for ``restore``."""
        return (list(self.ranges), list(self.stores), self.locals, self.loops, list(self.checks),
                list(self.prints), [list(s.stores) for s in self.scopes])

    def restore(self, saved: tuple[Any, ...]) -> None:
        """Roll back to a snapshot."""
        ranges, stores, self.locals, self.loops, checks, prints, scope_stores = saved
        self.ranges[:], self.stores[:], self.checks[:] = ranges, stores, checks
        self.prints[:] = prints
        for scope, stores_before in zip(self.scopes, scope_stores):
            scope.stores[:] = stores_before

    def report(self, check: BoundsCheck, i: UOp, valid: UOp | None) -> None:
        """Add an output that reports an out-of-bounds index (core/ir/bounds_checks.py)."""
        ref = build.index_into(build.ref(self.slots + len(self.checks), dtypes.int32, (),
                                         check.name))
        self.checks.append(check)
        self.stores.insert(0, build.store(ref, build.const(bounds_checks.NO_FAULT, dtypes.int32)))
        store = build.store(ref, bounds_checks.bounds_fault(i, check.length), valid, ops.MAX)
        store.locs = () if check.loc is None else (check.loc,)
        self.put(store)

    def conditions(self) -> list[UOp]:
        """Return the conditions of the open bodies, without their guards."""
        return [s.condition for s in self.scopes if s.condition is not None]

    def guard(self) -> UOp | None:
        """Return the guard of a read here: the innermost one implies the others."""
        guards = [s.guard for s in self.scopes if s.guard is not None]
        return guards[-1] if guards else None

    def forces_guard(self) -> bool:
        """Whether every read here takes the guard."""
        return any(s.forces_guard for s in self.scopes)


class _OpenTraces(threading.local):
    def __init__(self) -> None:
        self.tracings: list[KernelTrace] = []


OPEN = _OpenTraces()


def current() -> KernelTrace:
    """Return the kernel being traced in this thread."""
    if not OPEN.tracings:
        raise KernelError("expected to be called in a kernel",
                          hint="call it in a function passed to fnx.call(out=...)")
    return OPEN.tracings[-1]


def check_owner(what: str, tracing: KernelTrace) -> None:
    """Reject a value of another kernel, or of a kernel whose tracing has ended."""
    if not OPEN.tracings or OPEN.tracings[-1] is not tracing:
        where = f"in kernel {OPEN.tracings[-1].name!r}" if OPEN.tracings else "after it"
        raise KernelError(f"expected {what} of kernel {tracing.name!r} to be used inside it, "
                          f"got a use {where}", hint="store results to an output: o[i] = value")


def range_names(ranges: Sequence[UOp]) -> str:
    """Return what a message calls ranges: by name, or by the line that made them.

        range 'i' and the range made at user.py:4 (number 2 of 2 there)
    """
    return " and ".join(map(_range_name, ranges))


def _range_name(r: UOp) -> str:
    if r.arg.name:
        return f"range {r.arg.name!r}"
    lines = current().range_locs
    if (loc := lines.get(r)) is None:  # of k.when
        return f"range number {r.arg.id}"
    here = [other for other, line in lines.items() if line == loc]
    which = f" (number {here.index(r) + 1} of {len(here)} there)" if len(here) > 1 else ""
    return f"the range made at {format_location(loc)}{which}"
