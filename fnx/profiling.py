"""Kernel-level profiling: ``fnx.profile``.

    print(fnx.profile(step)(params, batch))        one call, kernel by kernel, when warm

    with fnx.profile() as seen:                     all that is computed in a block
        params = step(params, batch)
    print(seen)

Times are those of the kernels themselves, recorded by the threads that run them; nothing is traced
or compiled again. On devices with their own queue, each command is waited for while a profile is
open: its time is from the launch until the host sees its end. A row is a kernel with the user's
line that it came from. ``limit`` is the fraction of the machine's peak that it reached: of the
arithmetic rate for its dtype, or of the bandwidth of the memory level that its buffers fit in,
whichever is higher; the peak rates are measured once and cached on disk. ``busy`` is the average
number of active workers. The last rows are the time outside of kernels, by what it was spent for,
so that the first column sums to the wall-clock time; ``%`` is the share of it, ``% of kernels``
that of the time in kernels, which a compilation in the block does not change.

>>> import fnx, fnx.numpy as jnp
>>> seen = fnx.profile(fnx.jit(lambda x: jnp.exp(x) @ x))(jnp.ones((64, 64)))
>>> seen.result.shape, len(seen.kernels) > 0, seen.nanoseconds > 0
((64, 64), True, True)
"""

from __future__ import annotations

import functools
import html
import json
import os
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar, overload

from fnx.core.array.array import Array
from fnx.core.array.call_validation import validate_call
from fnx.core.ir.kernel_code import Chunk, KernelRun, RunTrace
from fnx.core.rewriting.peak_rates import PeakRates, high_limit_note
from fnx.core.scope import scope, storage
from fnx.core.support import events
from fnx.core.support.errors import ArgumentError, Location, check_folder, kernel_label
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record
from fnx.transforms.link import device_limits, record
from fnx.tree import map as tree_map

drawings = lazy_import("fnx.transforms.inspect.drawings")

__all__ = ["KernelTime", "Profile", "profile"]

P = ParamSpec("P")
R = TypeVar("R")

_WARM_UP_CALLS = 2  # the first one compiles, the second one prepares the native call


class KernelTime(Record):
    """The total time of the runs of one kernel, or of the kernels of one line.

    Attributes:
        name: the kernel, or the line.
        line: the user's line, such as ``model.py:12``.
        count: the number of runs.
        nanoseconds: the time of all runs.
        nbytes: the bytes of its buffers, read and written.
        flops: the floating-point operations.
        busy: the nanoseconds that workers were active, summed over all workers.
        arithmetic: the dtype of most of the arithmetic; empty if some is not counted, as that of
            library routines.
        device: the device that they ran on.
    """

    name: str
    line: str
    count: int
    nanoseconds: int
    nbytes: int
    flops: int
    busy: int = 0
    arithmetic: str = "float32"
    device: str = "cpu"


class Profile(Generic[R]):
    """The kernels that ran in a call or a block, and their times.

    Attributes:
        result: the result of the profiled function; None for a ``with`` block.
        runs: the kernels that ran, in order, with their times.
        lost: the number of runs, or chunks of runs, that exceeded the recording buffer.
        seconds: the time of the call or block, until its results were computed.
        workers: the number of threads.
        compilation: nanoseconds of tracing and compiling.

    >>> Profile([], 0, 0.0).nanoseconds
    0
    """

    def __init__(self, runs: Sequence[KernelRun] = (), lost: int = 0, seconds: float = 0.0,
                 result: Any = None, workers: int = 1) -> None:
        self.runs, self.lost, self.seconds, self.result = list(runs), lost, seconds, result
        self.workers, self.compilation = workers, 0
        self._stop: Callable[[], RunTrace] | None = None
        self._begun = self._cpu_begun = 0.0
        self._cpu = 0  # nanoseconds of processor time of the thread that opened it

    # ---- a block

    def __enter__(self) -> Profile[R]:
        _check_no_trace()
        if self._stop is not None:
            raise ArgumentError("expected a profile that is not open", hint="make another one")
        self._stop = record()
        events.listeners["duration"].append(self._note_compilation)
        self._begun, self._cpu_begun = time.perf_counter(), time.thread_time()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        stop, self._stop = self._stop, None
        if stop is None:
            return
        try:
            if kind is None:
                storage.finish()
        finally:
            self.seconds = time.perf_counter() - self._begun
            self._cpu = round((time.thread_time() - self._cpu_begun) * 1e9)
            if self._note_compilation in events.listeners["duration"]:
                events.listeners["duration"].remove(self._note_compilation)
            self.runs, self.lost, self.workers = stop()

    def _note_compilation(self, name: str, seconds: float, **metadata: Any) -> None:
        if name in (events.TRACE, events.COMPILE):
            self.compilation += round(seconds * 1e9)

    # ---- sums

    @property
    def nanoseconds(self) -> int:
        """The time of all kernels, in nanoseconds."""
        return sum([run.stop - run.start for run in self.runs])

    @property
    def gaps(self) -> int:
        """Nanoseconds between kernels of one submission: loops, branches, waiting workers."""
        return sum([max(0, b.start - a.stop) for a, b in zip(self.runs, self.runs[1:])
                    if a.submission == b.submission])

    @property
    def outside(self) -> int:
        """Nanoseconds outside submissions; with the kernels and ``gaps`` they sum to ``seconds``.

        ``outside_parts`` says what it is spent for.
        """
        return max(0, round(self.seconds * 1e9) - self.nanoseconds - self.gaps)

    @property
    def outside_parts(self) -> dict[str, int]:
        """The nanoseconds outside of submissions by what they are spent for."""
        compilation = min(self.compilation, self.outside)
        left = self.outside - compilation
        between = sum([max(0, b.start - a.stop) for a, b in zip(self.runs, self.runs[1:])
                       if a.submission != b.submission])
        after = round((self._begun + self.seconds) * 1e9) - self.runs[-1].stop if self.runs else 0
        after = min(left, max(0, after))
        between = min(left - after, max(0, between - compilation))
        before, idle = left - after - between, min(left, self._idle)
        in_before, in_between = min(before, idle), min(between, max(0, idle - before))
        return {"before the first kernel: Python, waking workers": before - in_before,
                "between submissions: Python": between - in_between,
                "after the last kernel: until the result was seen":
                    after - max(0, idle - in_before - in_between),
                "idle: waiting for a processor that others use, for a lock, or asleep": idle,
                "tracing and compiling, in the first call of a signature": compilation}

    @property
    def _idle(self) -> int:
        """Nanoseconds outside of submissions in which the calling thread did not run."""
        ran = max(0, self._cpu - (self.busy[0] if self.runs else 0))
        return max(0, self.outside - ran)

    @property
    def busy(self) -> list[int]:
        """Nanoseconds that each worker spent in kernels.

        The first worker is the leader thread, which runs short kernels alone.
        """
        totals = [0] * self.workers
        for run in self.runs:
            for chunk in _chunks(run):
                totals[chunk.worker] += chunk.stop - chunk.start
        return totals

    @property
    def kernels(self) -> list[KernelTime]:
        """Totals by kernel and line, the longest first."""
        return _aggregate(self.runs, lambda run: (run.name, run.locs[:1], run.device),
                          lambda run: (run.name, _format_line(run.locs)))

    @property
    def lines(self) -> list[KernelTime]:
        """Totals by the user's line, the longest first."""
        return _aggregate(self.runs, lambda run: run.locs[:1],
                          lambda run: (_format_line(run.locs) or "?", _format_line(run.locs)))

    # ---- for readers

    def table(self, by: str = "kernel", most: int = 20) -> str:
        """Return the totals as text.

        Args:
            by: "kernel" or "line".
            most: the maximal number of rows.

        Returns:
            Lines of text.

        Raises:
            ArgumentError: another value of ``by``.

        >>> print(Profile().table())
        nothing ran
        """
        if by not in ("kernel", "line"):
            raise ArgumentError(f"expected by='kernel' or by='line', got {by!r}")
        rows = self.kernels if by == "kernel" else self.lines
        if not rows:
            return "nothing ran"
        total, in_kernels = self.nanoseconds + self.gaps + self.outside or 1, self.nanoseconds or 1
        machine_limits = device_limits()
        lines = [f"{'ms':>10} {'%':>5} {'% of kernels':>12} {'runs':>6} {'MB':>9} {'MFLOP':>10} "
                 f"{'GB/s':>7} {'GFLOP/s':>8} {'limit':>6} {'busy':>5}  {by}"]
        for row in rows[:most]:
            ns = row.nanoseconds or 1
            suffix = f" ({row.line})" if by == "kernel" and row.line else ""
            suffix += f" on {row.device}" if by == "kernel" and row.device != "cpu" else ""
            lines.append(
                f"{ns / 1e6:10.4f} {100 * ns / total:5.1f} {100 * ns / in_kernels:12.1f} "
                f"{row.count:6} {row.nbytes / 1e6:9.2f} "
                f"{_rate(row, row.flops / 1e6, 2):>10} {row.nbytes / ns:7.1f} "
                f"{_rate(row, row.flops / ns, 1):>8} "
                f"{_percent(_roofline_fraction(row, machine_limits)):>6} {row.busy / ns:5.2f}  "
                f"{row.name}{suffix}")
        if len(rows) > most:
            remaining = sum(row.nanoseconds for row in rows[most:])
            lines.append(f"{remaining / 1e6:10.4f} {100 * remaining / total:5.1f} "
                         f"{100 * remaining / in_kernels:12.1f}  {len(rows) - most} more")
        lines += [f"{ns / 1e6:10.4f} {100 * ns / total:5.1f} {'':70}{what}" for what, ns in (
            ("between kernels", self.gaps), *self.outside_parts.items()) if ns]
        note = high_limit_note([_roofline(row, machine_limits) for row in rows[:most]])
        return "\n".join([*lines, *[note] * bool(note)])

    def __repr__(self) -> str:
        head = f"{self.seconds * 1e3:.3f} ms, {self.nanoseconds / 1e6:.3f} ms in " \
               f"{len(self.runs)} kernels, {self.gaps / 1e6:.3f} ms between them, " \
               f"{self.outside / 1e6:.3f} ms before the first and after the last"
        if self.workers > 1:
            per_worker = " and ".join(f"{ns / 1e6:.3f}" for ns in self.busy)
            head += f"; {self.workers} workers, busy for {per_worker} ms"
        if self.lost:
            head += f"; {self.lost} more kernels or parts of them ran and were too many to note"
        return f"{head}\n{self.table()}"

    def _repr_html_(self) -> str:
        rows = self.kernels
        longest = max([row.nanoseconds for row in rows], default=1) or 1
        machine_limits = device_limits() if rows else None
        cells = "".join(
            f"<tr><td style='text-align:left'>{html.escape(row.name)}</td>"
            f"<td style='text-align:left'>{html.escape(row.line)}</td><td>{row.count}</td>"
            f"<td>{row.nanoseconds / 1e6:.3f}</td><td style='text-align:left'><div style='"
            f"background:#47a;height:.8em;width:{12 * row.nanoseconds / longest:.2f}em'></div></td>"
            f"<td>{row.nbytes / 1e6:,.2f}</td><td>{row.flops / 1e6:,.2f}</td>"
            f"<td>{_percent(_roofline_fraction(row, machine_limits))}</td>"
            f"<td>{row.busy / (row.nanoseconds or 1):.2f}</td></tr>" for row in rows)
        heads = "".join(f"<th>{head}</th>" for head in (
            "kernel", "line", "runs", "ms", "", "MB", "MFLOP", "of the limit", "workers busy"))
        title = repr(self).partition("\n")[0]
        drawn = f"<div style='overflow-x: auto'>{drawings.time_drawing(self.runs).svg()}</div>" \
            if rows else ""
        return f"<div><p>{html.escape(title)}</p>{drawn}<table><tr>{heads}</tr>{cells}</table>" \
            "</div>"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the kernels as a trace for ui.perfetto.dev and chrome://tracing.

        It has a row of kernels, and one per worker with the chunks of kernels that it ran.

        Args:
            path: the path of the file, usually ``.json``.

        >>> import tempfile
        >>> with tempfile.NamedTemporaryFile() as file:
        ...     Profile().save(file.name)
        ...     file.read()
        b'{"traceEvents": []}'
        """
        events = [{"name": run.name, "cat": "kernel", "ph": "X", "pid": os.getpid(), "tid": 1,
                   "ts": run.start / 1e3, "dur": (run.stop - run.start) / 1e3,
                   "args": {"line": kernel_label("", run.locs).strip(" ()"), "bytes": run.nbytes,
                            "flops": run.flops, "submission": run.submission}}
                  for run in self.runs]
        events += [{"name": run.name, "cat": "chunk", "ph": "X", "pid": os.getpid(),
                    "tid": 2 + chunk.worker, "ts": chunk.start / 1e3,
                    "dur": (chunk.stop - chunk.start) / 1e3}
                   for run in self.runs for chunk in _chunks(run)]
        if self.runs:
            names = ["kernels", *[f"worker {i}" for i in range(self.workers)]]
            events += [{"name": "thread_name", "ph": "M", "pid": os.getpid(), "tid": 1 + i,
                        "args": {"name": name}} for i, name in enumerate(names)]
        check_folder(path)
        with open(path, "w") as file:
            json.dump({"traceEvents": events}, file)


@overload
def profile(f: Callable[P, R], *, warm_up: bool = True) -> Callable[P, Profile[R]]: ...


@overload
def profile(f: None = None, *, warm_up: bool = True) -> Profile[None]: ...


@validate_call
def profile(f: Callable[..., Any] | None = None, *, warm_up: bool = True) -> Any:
    """Time each kernel of a call, or of a ``with`` block.

    Args:
        f: a function, jitted or not. If omitted: a context manager that returns the Profile.
        warm_up: whether f is called twice before, on copies of its arrays, so that the profile is
            of a call that compiles nothing. What f prints or changes then happens in each call.

    Returns:
        A function that takes the arguments of f and returns a Profile, whose ``result`` is that of
        f. ``print`` shows a Profile as a table; ``lines`` has totals by the user's lines, ``save``
        writes a trace for Perfetto.

    Raises:
        ArgumentError: within another profile, or within a trace.

    >>> import fnx, fnx.numpy as jnp
    >>> with fnx.profile() as seen:
    ...     y = jnp.ones(1000) * 2
    >>> [row.count for row in seen.lines] != []
    True
    """
    if f is None:
        return Profile()
    if not callable(f):
        raise ArgumentError(f"profile: expected a function, got {type(f).__name__}",
                            hint="write profile(f)(x), not profile(f(x))")
    call = f

    @functools.wraps(call)
    def profiled(*args: Any, **kwargs: Any) -> Profile[Any]:
        _check_no_trace()
        for _ in range(_WARM_UP_CALLS if warm_up else 0):
            copies, named = tree_map(_copy, (args, kwargs))  # f may donate its arguments
            with Profile[Any]():
                call(*copies, **named)
        with Profile[Any]() as result:
            result.result = call(*args, **kwargs)
        return result
    return profiled


def _check_no_trace() -> None:
    if scope.is_open():
        raise ArgumentError("expected to profile outside of all transforms, got a profile in a "
                            "function that is being traced: nothing runs there",
                            hint="profile the call of the transformed function")


def _copy(x: Any) -> Any:
    return x.copy() if isinstance(x, Array) else x


def _chunks(run: KernelRun) -> Sequence[Chunk]:
    """Return the chunks of a kernel that the workers ran."""
    return run.chunks or (Chunk(0, run.start, run.stop),)


def _format_line(sites: Sequence[Location]) -> str:
    return kernel_label("", sites[:1]).strip(" ()")


def _rate(row: KernelTime, number: float, digits: int) -> str:
    """Format a number of operations; empty if those of the row are not counted."""
    return f"{number:.{digits}f}" if row.arithmetic else ""


def _percent(fraction: float | None) -> str:
    return "" if fraction is None else f"{100 * fraction:.0f}%"


def _aggregate(runs: Sequence[KernelRun], group: Callable[[KernelRun], Any],
               names: Callable[[KernelRun], tuple[str, str]]) -> list[KernelTime]:
    groups: dict[Any, list[KernelRun]] = {}
    for run in runs:
        groups.setdefault(group(run), []).append(run)
    rows = [KernelTime(*names(some[0]), len(some), sum([r.stop - r.start for r in some]),
                       sum([r.nbytes for r in some]), sum([r.flops for r in some]),
                       sum([c.stop - c.start for r in some for c in _chunks(r)]),
                       max(some, key=lambda r: r.flops).arithmetic
                       if all(r.arithmetic for r in some) else "", some[0].device)
            for some in groups.values()]
    return sorted(rows, key=lambda row: -row.nanoseconds)


def _roofline_fraction(row: KernelTime, machine_limits: PeakRates | None) -> float | None:
    return _roofline(row, machine_limits)[1]


def _roofline(row: KernelTime, machine_limits: PeakRates | None) -> tuple[str, float | None]:
    """Return what bounds a row, and the fraction of that limit which it reaches; None if it is not
    known."""
    if machine_limits is None or not row.nanoseconds or row.device != "cpu" or not row.arithmetic:
        return "", None
    min_time, bound = machine_limits.min_time(
        row.flops // row.count, row.nbytes // row.count, row.arithmetic)
    return bound, min_time * row.count / row.nanoseconds
