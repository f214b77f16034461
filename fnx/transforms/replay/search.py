"""Schedule search by timing, for user-written and for generated kernels.

    CALL(KERNEL, x, schedule = (search(3.0),))    ->    CALL(KERNEL, x, schedule = (split ...))
    KERNELs of a program, ``config.search``       ->    the schedule of each, while it is lowered

A search is a hill climb: it starts from the heuristic schedule and moves to the fastest of the
neighboring candidates (lower/schedule/candidates.py) until none is faster or the time is up. Each
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

from fnx.core import op_args, ops, tiling
from fnx.core.cache import Cache
from fnx.core.config import override
from fnx.core.record import Record, values
from fnx.core.tiling import Schedule, Search
from fnx.core.uop import UOp, inherit, rebuild, toposort
from fnx.transforms.replay.progress import Progress
from fnx.transforms.replay.stored import Disk
from fnx.transforms.replay.trials import Begin, Trials, call_of

MAX_FOUND = 1024
_FASTER = 0.97  # ratio of times below which a candidate is accepted
_CERTAIN = 3    # factor on the rounds before a candidate is accepted
_TOGETHER = 4   # candidates compiled concurrently
_MOST_NOTES = 3  # reasons for skipped candidates to report


class HasSchedule(Protocol):
    """A Candidate of lower/schedule/candidates.py."""

    @property
    def schedule(self) -> Schedule: ...


class Space(Protocol):
    """The search space of lower/schedule/candidates.py: a start and neighbors."""

    def first(self, kernel: UOp, target: Any, /) -> tuple[UOp, HasSchedule]: ...
    def near(self, kernel: UOp, target: Any, found: Any, same_bits: bool, /
             ) -> Iterator[HasSchedule]: ...
    def further(self, kernel: UOp, target: Any, found: Any, /) -> Iterator[HasSchedule]: ...


class Outcome(Record):
    """The outcome of a search.

    ``own`` and ``best`` are milliseconds of the heuristic and of ``schedule``; ``tried`` is the
    number of candidates, and ``notes`` say why some were skipped.
    """

    schedule: Schedule
    own: float
    best: float
    tried: int
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        times = f"{self.best:.4g} ms, the model's choice {self.own:.4g} ms " \
                f"({self.own / max(self.best, 1e-9):.2f}x)" if self.own > self.best else \
                f"the model's choice, {self.own:.4g} ms, is the fastest"
        notes = "".join(f"; left out: {note}" for note in self.notes)
        return f"found by search among {self.tried}: {times}{notes}"


_found: Cache[bytes, Outcome] = Cache("schedules that were searched for", MAX_FOUND)
_shown: Cache[tuple[str, Schedule], Outcome] = Cache("outcomes of searches", MAX_FOUND)


def outcome_of(name: str, schedule: Schedule | None) -> Outcome | None:
    """Return the outcome of the search that found a schedule; None if no search did."""
    return None if not schedule else _shown.get((name, schedule))


# ---- user-written kernels ----------------------------------------------------------------------


def is_searched(call: UOp) -> bool:
    """Whether a node is a CALL whose schedule is to be searched for."""
    return call.op is ops.CALL and any(isinstance(s, Search) for s in call.arg.schedule)


def searched(fn: UOp, device: Any, begin: Begin, space: Space, disk: Disk) -> UOp:
    """Replace the searches in a FUNCTION by the schedules they find.

    Args:
        fn: the FUNCTION, bodies included.
        device: the device it will run on.
        begin: compiles a FUNCTION to a program.
        space: the search space.
        disk: the disk cache of the outcomes.
    """
    done: dict[UOp, UOp] = {}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        src = tuple([done.get(s, s) for s in src])
        if not is_searched(node):
            return node.over(src)
        schedule = _of_call(node, device, begin, space, disk) if device.target.has_code else ()
        call = op_args.Call(node.arg.name, node.arg.outs, schedule, node.arg.policy)
        return inherit(UOp(ops.CALL, node.dtype, src, call), node)

    for body in toposort([fn], into_functions=True):
        if body.op is ops.FUNCTION:
            done[body] = body.over(tuple(rebuild(body.src, visit)))
    return done[fn]


def _of_call(call: UOp, device: Any, begin: Begin, space: Space, disk: Disk) -> Schedule:
    seconds = next(s.seconds for s in call.arg.schedule if isinstance(s, Search))
    task = _Task(call, call.src[0], device, begin, space, disk, same_bits=True)
    with Progress(f"searching a schedule of {call.arg.name}", seconds) as progress:
        return task.schedule(lambda: seconds, progress.tell)


# ---- generated kernels -------------------------------------------------------------------------


def schedules(kernels: Sequence[UOp], device: Any, begin: Begin, space: Space, disk: Disk,
              seconds: float, name: str) -> Mapping[UOp, Schedule]:
    """Search the schedules of a program's kernels, with time in proportion to their run time.

    Args:
        kernels: the unscheduled KERNEL of each launch.
        device: the device it will run on.
        begin: compiles a FUNCTION to a program.
        space: the search space.
        disk: the disk cache of the outcomes.
        seconds: the time limit.
        name: the name of the program.
    """
    tasks, found = {}, dict[UOp, Schedule]()
    for kernel in dict.fromkeys(kernels):
        call = call_of(kernel)
        if call is not None:
            task = _Task(call, kernel, device, begin, space, disk)
            known = task.known()
            if known is None:
                tasks[kernel] = task
            else:
                found[kernel] = known.schedule
    runs, began = Counter(kernels), time.perf_counter()
    with Progress(f"searching schedules of {name}", seconds) as progress:
        spent = {kernel: task.milliseconds() * runs[kernel] for kernel, task in tasks.items()}
        order = sorted(spent, key=lambda kernel: -spent[kernel])
        for n, kernel in enumerate(order, 1):
            whole = sum(spent[k] for k in order[n - 1:]) or 1.0
            share = spent[kernel] / whole

            def tell(_: float, text: str, n: int = n) -> None:
                progress.tell(time.perf_counter() - began, f"kernel {n} of {len(order)}, {text}")

            def left(share: float = share) -> float:
                return share * (seconds - (time.perf_counter() - began))

            found[kernel] = tasks[kernel].schedule(left, tell)
    return found


# ---- one kernel --------------------------------------------------------------------------------


class _Task:
    """The search for the schedule of one kernel."""

    def __init__(self, call: UOp, kernel: UOp, device: Any, begin: Begin, space: Space,
                 disk: Disk, same_bits: bool = False) -> None:
        self.name, self.target, self.space, self.disk = call.arg.name, device.target, space, disk
        self.same_bits = same_bits
        self.kernel, self.first = space.first(kernel, device.target)
        self.trials = Trials(call, self.kernel, device, begin)
        self._base: Any = None
        self._key = b""

    def known(self) -> Outcome | None:
        """Return the cached outcome of an earlier search, or None."""
        if not self.first.schedule:
            return Outcome((), 0.0, 0.0, 0)
        found = _found.get(self.key) or _read(self.disk.get(self.key))
        return None if found is None else self._kept(found)

    def schedule(self, seconds: Callable[[], float], tell: Callable[[float, str], None]
                 ) -> Schedule:
        """Return the cached schedule, or search for one within ``seconds()``."""
        found = self.known()
        if found is None:
            climb = _Climb(self, seconds(), tell)
            try:
                with override(check=""):  # the data is arbitrary
                    climb.run()
            except KeyboardInterrupt:
                if climb.best is not self.first:
                    self._keep(climb.outcome())
                raise
            found = self._keep(climb.outcome())
        return found.schedule

    def milliseconds(self) -> float:
        """Return the milliseconds of a run of the heuristic schedule."""
        with override(check=""):
            return self.trials.in_turns(self.base, self.base)[0]

    @property
    def base(self) -> Any:
        """The program of the heuristic schedule."""
        if self._base is None:
            self._base = self.trials.begun(self.first.schedule)()
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

    def _keep(self, found: Outcome) -> Outcome:
        """Cache an outcome, unless another process was first; on disk only if anything was
        tried."""
        found = _read(self.disk.get(self.key)) or found
        if found.tried > 1:
            self.disk.put(self.key, _written(found), f"schedule of {self.name}")
        return self._kept(found)

    def _kept(self, found: Outcome) -> Outcome:
        found = _found.keep(self.key, found)
        _shown.drop((self.name, found.schedule))  # an outcome of the same name
        _shown.keep((self.name, found.schedule), found)
        return found


class _Climb:
    """Hill climb from the heuristic schedule to ever faster neighbors."""

    def __init__(self, task: _Task, seconds: float, tell: Callable[[float, str], None]) -> None:
        self.task, self.trials, self.tell = task, task.trials, tell
        self.best, self.program = task.first, task.base
        self.want = self.trials.results(task.base)
        self.tried = {task.first.schedule}
        self.notes: Counter[str] = Counter()
        self.began = time.perf_counter()
        self.end = self.began + seconds

    def run(self) -> None:
        """Climb until no neighbor is faster or the time is up."""
        task, going = self.task, True
        while going:
            going = self._one_of(task.space.near(task.kernel, task.target, self.best,
                                                 task.same_bits)) or not task.same_bits and \
                self._one_of(task.space.further(task.kernel, task.target, self.best))

    def _one_of(self, candidates: Iterator[HasSchedule]) -> bool:
        """Try candidates in batches until one batch has a faster one; return whether it has."""
        fresh = (c for c in candidates if c.schedule not in self.tried)
        while time.perf_counter() < self.end and (batch := list(islice(fresh, _TOGETHER))):
            self.tried.update([c.schedule for c in batch])
            if self._improved(batch):
                return True
        return False

    def _improved(self, batch: Sequence[HasSchedule]) -> bool:
        """Try a batch, make its fastest candidate the best, and return whether it is faster."""
        before = self.best
        links = [(candidate, link) for candidate in batch
                 if (link := self._safely(partial(self.trials.begun, candidate.schedule,
                                               self.task.base)))]
        ready = [(candidate, made) for candidate, link in links
                 if (made := self._safely(link)) is not None]
        for candidate, made in ready:
            self._safely(partial(self._try, candidate, made))
            ratio = f"{len(self.tried)} candidates of {self.task.name}"
            self.tell(time.perf_counter() - self.began, ratio)
        return self.best is not before

    def _try(self, candidate: HasSchedule, made: Any) -> None:
        if self.trials.is_hopeless(made, self.program):
            return
        if not self.trials.agree(self.trials.results(made), self.want, self.task.same_bits):
            self.notes["other results"] += 1
            return
        for times in (1, _CERTAIN):
            ours, theirs = self.trials.in_turns(made, self.program, times)
            if ours >= _FASTER * theirs:
                return
        self.best, self.program = candidate, made

    def _safely(self, run: Callable[[], Any]) -> Any:
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
                       self.notes.most_common(_MOST_NOTES)])
        if self.best is not task.first:
            best, own = self.trials.in_turns(self.program, task.base, _CERTAIN)
            if best < _FASTER * own:
                return Outcome(self.best.schedule, own, best, len(self.tried), notes)
        own, _ = self.trials.in_turns(task.base, task.base)
        return Outcome(task.first.schedule, own, own, len(self.tried), notes)


# ---- on disk -----------------------------------------------------------------------------------


_KINDS: dict[str, Callable[..., tiling.Transform]] = {kind.__name__: kind for kind in (
    tiling.Split, tiling.Order, tiling.Parallel, tiling.Vectorize, tiling.Unroll,
    tiling.StageOperand, tiling.Subtotal, tiling.Tensorize, tiling.Collect, tiling.Bind)}


def _written(outcome: Outcome) -> bytes:
    schedule = [[type(step).__name__, *values(step)] for step in outcome.schedule]
    return json.dumps([schedule, *values(outcome)[1:]]).encode()


def _read(data: bytes | None) -> Outcome | None:
    """Decode a cached outcome; None if it cannot be read."""
    try:
        rows, own, best, tried, notes = json.loads(data or b"")
        steps = [_KINDS[kind](*[tuple(f) if isinstance(f, list) else f for f in fields])
                 for kind, *fields in rows]
        return Outcome(tuple(steps), float(own), float(best), int(tried), tuple(map(str, notes)))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):  # of another version
        return None
