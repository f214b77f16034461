"""Roofline: measured, predicted and least possible time of each kernel on this machine.

    least = max(flops / peak arithmetic, bytes / bandwidth of the level that holds them)
    limit = least / measured                  the fraction of the machine's limit that it reaches

The limits of the machine are measured (dispatch/machine_limits.py). The predicted time is the
estimate by which the queue splits work among workers; it is accurate to a small factor.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.rewriting.peak_rates import PeakRates
from fnx.core.support.quantities import microseconds
from fnx.core.support.record import Record

_HEADS = ("runs", "FLOP", "bytes", "predicted", "measured", "least", "limit")


class KernelCost(Record):
    """The cost of one kernel of a program.

    Attributes:
        name: the name of the kernel.
        line: the user's line, such as ``model.py:12``.
        loops: outermost first, ``par(7) seq(300) unroll(14) vec(16)``; the last ones are the tile.
        chosen: who chose them: "model", "search" or "user".
        flops: floating-point operations.
        nbytes: bytes of its buffers, read and written.
        predicted: estimated nanoseconds.
        measured: nanoseconds of a run; None if it did not run.
        least: nanoseconds by the limits of the machine; None if they are not known.
        bound: what bounds it: a type of arithmetic, or a level of memory.
        runs: the number of runs in a call; the other numbers are of one run.
        loop: the loop that repeats these runs until a condition ends it, or empty.
        is_counted: whether the operations are counted: not those of library routines.
        is_callback: whether it calls a Python function.
    """

    name: str
    line: str
    loops: str
    chosen: str
    flops: int
    nbytes: int
    predicted: float
    measured: float | None = None
    least: float | None = None
    bound: str = ""
    runs: int = 1
    loop: str = ""
    is_counted: bool = True
    is_callback: bool = False

    @property
    def limit(self) -> float | None:
        """The fraction of the machine's limit that it reaches."""
        return None if not self.measured or self.least is None else self.least / self.measured

    @property
    def total(self) -> float:
        """The nanoseconds of all runs in a call: measured, else predicted."""
        return self.runs * (self.predicted if self.measured is None else self.measured)


class Roofline:
    """The costs of the kernels of a program, in execution order; prints as a table.

    Attributes:
        rows: a KernelCost for each command.
        limits: the limits of the machine; None if they are not known.
        why: the reason why nothing was measured, or empty.
        slowdown: how many times as long a typical call took as the measured times, which are the
            shortest of several calls: more than 2 on a machine with other work.

    >>> row = KernelCost("add", "m.py:3", "vec(16)", "model", 16, 64, 5.0, 8.0, 4.0, "L1")
    >>> print(Roofline([row], None))  # doctest: +ELLIPSIS
          runs       FLOP      bytes  predicted   measured      least      limit  kernel
             1         16         64     0.0 us     0.0 us     0.0 us     50% L1  add (m.py:3): ...
    """

    def __init__(self, rows: Sequence[KernelCost], limits: PeakRates | None, why: str = "") -> None:
        self.rows, self.limits, self.why = list(rows), limits, why
        self.slowdown = 1.0

    @property
    def total(self) -> float:
        """The nanoseconds of all kernels in a call."""
        return sum([row.total for row in self.rows])

    @property
    def open_loops(self) -> list[str]:
        """The loops that data ends, of whose kernels the runs of one iteration are counted."""
        return list(dict.fromkeys([row.loop for row in self.rows if row.loop]))

    def __repr__(self) -> str:
        lines = [" ".join(f"{head:>10}" for head in _HEADS) + "  kernel"]
        for row in self.rows:
            share = "" if row.limit is None else f"{100 * row.limit:.0f}% "
            where = f" ({row.line})" if row.line else ""
            cells = (f"{row.runs:,}", f"{row.flops:,}", f"{row.nbytes:,}",
                     *map(microseconds, (row.predicted, row.measured, row.least)),
                     share + row.bound)
            lines.append(" ".join(f"{cell:>10}" for cell in cells) +
                         f"  {row.name}{where}: {row.loops}, {row.chosen}")
        if self.limits is not None:
            lines.append("limits of this machine: " + ", ".join(
                [f"{name} {rate:.0f} GFLOP/s" for name, rate in self.limits.flops] +
                [f"{name} {rate:.0f} GB/s" for name, _, rate in self.limits.memory_levels]))
        lines += [f"counted for one iteration, as data ends this loop: {loop}"
                  for loop in self.open_loops]
        return "\n".join([*lines, *[f"not measured: {self.why}"] * bool(self.why)])
