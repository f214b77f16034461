"""Schedule search by timing, for user-written and for generated kernels.

    CALL(KERNEL, x, schedule = (search(3.0),))    ->    CALL(KERNEL, x, schedule = (split ...))
    KERNELs of a program, ``config.search``       ->    the schedule of each, while it is lowered

A search is a hill climb: it starts from the heuristic schedule and moves to the fastest of the
neighboring candidates (lower/candidates.py) until none is faster or the time is up. Each
candidate's results are compared with those of the heuristic on the same data: bitwise for
user-written kernels, up to the order of sums for others. A candidate that is illegal, does not
compile, fails or computes other results is skipped. The outcome is cached in the process and on
disk, by the digest of the kernel's code, even if it is the heuristic: so the next process uses the
same schedules and gets the same bits. There is no search on devices that do not compile code.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Protocol

from fnx.core.ir import op_args, ops, tiling
from fnx.core.ir.tiling import Schedule, Search
from fnx.core.ir.uop import UOp, copy_locs, rebuild, toposort
from fnx.core.support.config import override
from fnx.core.support.record import Record, values
from fnx.transforms.dispatch.program_cache import ByteCache
from fnx.transforms.dispatch.progress_bar import ProgressBar
from fnx.transforms.dispatch.schedule_trials import (
    CompileFn,
    Trials,
    call_of_kernel,
    measurements,
)

_ACCEPT_RATIO = 0.97  # ratio of times below which a candidate is accepted
_CONFIRM = 3    # factor on the rounds before a candidate is accepted
_BATCH = 4   # candidates compiled concurrently
_MAX_NOTES = 3  # reasons for skipped candidates to report


class HasSchedule(Protocol):
    """A Candidate of lower/candidates.py."""

    @property
    def schedule(self) -> Schedule: ...


class Space(Protocol):
    """The search space of lower/candidates.py: a start and neighbors."""

    def first(self, kernel: UOp, target: Any, /) -> tuple[UOp, HasSchedule]: ...
    def near(self, kernel: UOp, target: Any, best: Any, same_bits: bool, /
             ) -> Iterator[HasSchedule]: ...
    def further(self, kernel: UOp, target: Any, best: Any, /) -> Iterator[HasSchedule]: ...


class Outcome(Record):
    """The outcome of a search.

    ``heuristic_ms`` and ``best_ms`` are milliseconds of the heuristic and of ``schedule``;
    ``tried`` is the number of candidates, and ``notes`` say why some were skipped.
    """

    schedule: Schedule
    heuristic_ms: float
    best_ms: float
    tried: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        times = f"{self.best_ms:.4g} ms, the model's choice {self.heuristic_ms:.4g} ms " \
                f"({self.heuristic_ms / max(self.best_ms, 1e-9):.2f}x)" \
                if self.heuristic_ms > self.best_ms else \
                f"the model's choice, {self.heuristic_ms:.4g} ms, is the fastest"
        notes = "".join(f"; left out: {note}" for note in self.notes)
        return f"found by search among {self.tried}: {times}{notes}"


def outcome_of(name: str, schedule: Schedule | None) -> Outcome | None:
    """Return the outcome of the search that found a schedule; None if no search did."""
    outcome: Outcome | None = measurements.get((name, schedule)) if schedule else None
    return outcome


# ---- user-written kernels ----------------------------------------------------------------------


def needs_search(call: UOp) -> bool:
    """Whether a node is a CALL whose schedule is to be searched for."""
    return call.op is ops.CALL and any(isinstance(s, Search) for s in call.arg.schedule)


def search_calls(fn: UOp, device: Any, compile_fn: CompileFn, space: Space, disk: ByteCache) -> UOp:
    """Replace the searches in a FUNCTION by the schedules they find.

    Args:
        fn: the FUNCTION, bodies included.
        device: the device it will run on.
        compile_fn: compiles a FUNCTION to a program.
        space: the search space.
        disk: the disk cache of the outcomes.
    """
    rewritten: dict[UOp, UOp] = {}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        src = tuple([rewritten.get(s, s) for s in src])
        if not needs_search(node):
            return node.with_operands(src)
        schedule = _search_call(node, device, compile_fn, space, disk) \
            if device.target.is_compiled else ()
        call = op_args.Call(node.arg.name, node.arg.outs, schedule, node.arg.policy)
        return copy_locs(UOp(ops.CALL, node.dtype, src, call), node)

    for body in toposort([fn], into_functions=True):
        if body.op is ops.FUNCTION:
            rewritten[body] = body.with_operands(tuple(rebuild(body.src, visit)))
    return rewritten[fn]


def _search_call(call: UOp, device: Any, compile_fn: CompileFn, space: Space,
                 disk: ByteCache) -> Schedule:
    seconds = next(s.seconds for s in call.arg.schedule if isinstance(s, Search))
    task = _SearchTask(call, call.src[0], device, compile_fn, space, disk, same_bits=True)
    with ProgressBar(f"searching a schedule of {call.arg.name}", seconds) as progress:
        return task.schedule(lambda: seconds, progress.update_bar)


# ---- generated kernels -------------------------------------------------------------------------


def search_kernels(kernels: Sequence[UOp], device: Any, compile_fn: CompileFn, space: Space,
                   disk: ByteCache, seconds: float, name: str) -> Mapping[UOp, Schedule]:
    """Search the schedules of a program's kernels, with time in proportion to their run time.

    Args:
        kernels: the unscheduled KERNEL of each launch.
        device: the device it will run on.
        compile_fn: compiles a FUNCTION to a program.
        space: the search space.
        disk: the disk cache of the outcomes.
        seconds: the time limit.
        name: the name of the program.
    """
    tasks, result = {}, dict[UOp, Schedule]()
    for kernel in dict.fromkeys(kernels):
        call = call_of_kernel(kernel)
        if call is not None:
            task = _SearchTask(call, kernel, device, compile_fn, space, disk)
            cached = task.known()
            if cached is None:
                tasks[kernel] = task
            else:
                result[kernel] = cached.schedule
    runs, start = Counter(kernels), time.perf_counter()
    with ProgressBar(f"searching schedules of {name}", seconds) as progress:
        run_ms = {kernel: task.milliseconds() * runs[kernel] for kernel, task in tasks.items()}
        order = sorted(run_ms, key=lambda kernel: -run_ms[kernel])
        for n, kernel in enumerate(order, 1):
            remaining_ms = sum(run_ms[k] for k in order[n - 1:]) or 1.0
            share = run_ms[kernel] / remaining_ms

            def report(_: float, text: str, n: int = n) -> None:
                progress.update_bar(time.perf_counter() - start,
                                    f"kernel {n} of {len(order)}, {text}")

            def seconds_left(share: float = share) -> float:
                return share * (seconds - (time.perf_counter() - start))

            result[kernel] = tasks[kernel].schedule(seconds_left, report)
    return result


# ---- one kernel --------------------------------------------------------------------------------


class _SearchTask:
    """The search for the schedule of one kernel."""

    def __init__(self, call: UOp, kernel: UOp, device: Any, compile_fn: CompileFn, space: Space,
                 disk: ByteCache, same_bits: bool = False) -> None:
        self.name, self.target, self.space, self.disk = call.arg.name, device.target, space, disk
        self.same_bits = same_bits
        self.kernel, self.first = space.first(kernel, device.target)
        self.trials = Trials(call, self.kernel, device, compile_fn)
        self._base: Any = None
        self._key = b""

    def known(self) -> Outcome | None:
        """Return the cached outcome of an earlier search, or None."""
        if not self.first.schedule:
            return Outcome((), 0.0, 0.0, 0)
        outcome = measurements.get(self.key) or _decode(self.disk.get(self.key))
        return None if outcome is None else self._put(outcome)

    def schedule(self, seconds: Callable[[], float], report: Callable[[float, str], None]
                 ) -> Schedule:
        """Return the cached schedule, or search for one within ``seconds()``."""
        outcome = self.known()
        if outcome is None:
            climb = _HillClimb(self, seconds(), report)
            try:
                with override(check=""):  # the data is arbitrary
                    climb.run()
            except KeyboardInterrupt:
                if climb.best is not self.first:
                    self._cache_outcome(climb.outcome())
                raise
            outcome = self._cache_outcome(climb.outcome())
        return outcome.schedule

    def milliseconds(self) -> float:
        """Return the milliseconds of a run of the heuristic schedule."""
        with override(check=""):
            return self.trials.time_both(self.base, self.base)[0]

    @property
    def base(self) -> Any:
        """The program of the heuristic schedule."""
        if self._base is None:
            self._base = self.trials.start_compile(self.first.schedule)()
        return self._base

    @property
    def key(self) -> bytes:
        """The cache key: the code of the heuristic schedule, which identifies the kernel and the
        versions of all code involved."""
        if not self._key:
            codes = sorted(code.key for code in self.base.lowered.code.values())
            self._key = hashlib.sha256(b"search 2" + bytes([self.same_bits]) + b"".join(codes)
                                       ).digest()
        return self._key

    def _cache_outcome(self, outcome: Outcome) -> Outcome:
        """Cache an outcome, unless another process was first; on disk only if anything was
        tried."""
        outcome = _decode(self.disk.get(self.key)) or outcome
        if outcome.tried > 1:
            self.disk.put(self.key, _encode(outcome), f"schedule of {self.name}")
        return self._put(outcome)

    def _put(self, outcome: Outcome) -> Outcome:
        cached: Outcome = measurements.put(self.key, outcome)
        measurements.remove((self.name, cached.schedule))  # an outcome of the same name
        measurements.put((self.name, cached.schedule), cached)
        return cached


class _HillClimb:
    """Hill climb from the heuristic schedule to ever faster neighbors."""

    def __init__(self, task: _SearchTask, seconds: float,
                 report: Callable[[float, str], None]) -> None:
        self.task, self.trials, self.report = task, task.trials, report
        self.best, self.program = task.first, task.base
        self.expected = self.trials.results(task.base)
        self.tried = {task.first.schedule}
        self.notes: Counter[str] = Counter()
        self.start = time.perf_counter()
        self.end = self.start + seconds

    def run(self) -> None:
        """Climb until no neighbor is faster or the time is up."""
        task, improving = self.task, True
        while improving:
            improving = self._try_batches(task.space.near(
                task.kernel, task.target, self.best, task.same_bits)) or not task.same_bits and \
                self._try_batches(task.space.further(task.kernel, task.target, self.best))

    def _try_batches(self, candidates: Iterator[HasSchedule]) -> bool:
        """Try candidates in batches until one batch has a faster one; return whether it has."""
        untried = (c for c in candidates if c.schedule not in self.tried)
        while time.perf_counter() < self.end and (batch := list(islice(untried, _BATCH))):
            self.tried.update([c.schedule for c in batch])
            if self._try_batch(batch):
                return True
        return False

    def _try_batch(self, batch: Sequence[HasSchedule]) -> bool:
        """Try a batch, make its fastest candidate the best, and return whether it is faster."""
        best_before = self.best
        links = [(candidate, link) for candidate in batch
                 if (link := self._call_safely(partial(
                     self.trials.start_compile, candidate.schedule, self.task.base)))]
        ready = [(candidate, program) for candidate, link in links
                 if (program := self._call_safely(link)) is not None]
        for candidate, program in ready:
            self._call_safely(partial(self._try, candidate, program))
            ratio = f"{len(self.tried)} candidates of {self.task.name}"
            self.report(time.perf_counter() - self.start, ratio)
        return self.best is not best_before

    def _try(self, candidate: HasSchedule, program: Any) -> None:
        if self.trials.is_hopeless(program, self.program):
            return
        if not self.trials.agree(self.trials.results(program), self.expected, self.task.same_bits):
            self.notes["other results"] += 1
            return
        for times in (1, _CONFIRM):
            candidate_ms, best_ms = self.trials.time_both(program, self.program, times)
            if candidate_ms >= _ACCEPT_RATIO * best_ms:
                return
        self.best, self.program = candidate, program

    def _call_safely(self, run: Callable[[], Any]) -> Any:
        """Call ``run``; on an exception, note it and return None."""
        try:
            return run()
        except Exception as e:  # a generated schedule may fail in any way
            self.notes[f"{type(e).__name__}: {getattr(e, 'message', e)}"] += 1
            return None

    def outcome(self) -> Outcome:
        """Return the best schedule, after a last comparison with the heuristic."""
        task = self.task
        notes = tuple([f"{count} for {note}" for note, count in
                       self.notes.most_common(_MAX_NOTES)])
        if self.best is not task.first:
            best_ms, base_ms = self.trials.time_both(self.program, task.base, _CONFIRM)
            if best_ms < _ACCEPT_RATIO * base_ms:
                return Outcome(self.best.schedule, base_ms, best_ms, len(self.tried), notes)
        base_ms, _ = self.trials.time_both(task.base, task.base)
        return Outcome(task.first.schedule, base_ms, base_ms, len(self.tried), notes)


# ---- on disk -----------------------------------------------------------------------------------


_KINDS: dict[str, Callable[..., tiling.Transform]] = {kind.__name__: kind for kind in (
    tiling.Split, tiling.Order, tiling.Parallel, tiling.Vectorize, tiling.Unroll,
    tiling.StageOperand, tiling.Subtotal, tiling.Tensorize, tiling.Collect, tiling.Bind)}


def _encode(outcome: Outcome) -> bytes:
    schedule = [[type(step).__name__, *values(step)] for step in outcome.schedule]
    return json.dumps([schedule, *values(outcome)[1:]]).encode()


def _decode(data: bytes | None) -> Outcome | None:
    """Decode a cached outcome; None if it cannot be read."""
    try:
        rows, base_ms, best_ms, tried, notes = json.loads(data or b"")
        steps = [_KINDS[kind](*[tuple(f) if isinstance(f, list) else f for f in fields])
                 for kind, *fields in rows]
        return Outcome(tuple(steps), float(base_ms), float(best_ms), int(tried),
                       tuple(map(str, notes)))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):  # of another version
        return None
