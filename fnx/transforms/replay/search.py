"""search: the schedule of a hand-written kernel by timing, before its FUNCTION is lowered.

    CALL(KERNEL, x, schedule = (search(3.0),))    ->    CALL(KERNEL, x, schedule = (split ...))

It begins with the compiler's own choice and goes to a neighbour (lower/schedule/neighbours.py) that
is faster, until none is, or its time is over. All that it may choose gives the same bits, and each
candidate is held against the first one on the same data. What was found is kept in the process and
in the disk cache, under the digest of the kernel's code. Where nothing is compiled there is no
search.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from fnx.core import build, dtypes, op_args, ops, parts, tiling
from fnx.core.cache import Cache
from fnx.core.config import override
from fnx.core.errors import KernelError
from fnx.core.record import Record, values
from fnx.core.tiling import Schedule, Search
from fnx.core.uop import UOp, inherit, rebuild, toposort
from fnx.transforms.replay.stored import Disk

MAX_FOUND = 1024
_FASTER = 0.97          # of the time, to be worth another schedule
_ROUNDS, _ROUND_SECONDS = 5, 0.05


class Space(Protocol):
    """Where to begin, and what is near: lower/schedule/neighbours.py."""

    def first(self, kernel: UOp, target: Any, /) -> tuple[UOp, Schedule]: ...
    def neighbours(self, kernel: UOp, schedule: Schedule, /) -> Iterator[Schedule]: ...


class Outcome(Record):
    """What a search found: milliseconds of the compiler's choice and of this, how many tried."""

    schedule: Schedule
    own: float
    best: float
    tried: int

    def __str__(self) -> str:
        return (f"found by search among {self.tried}: {self.best:.3f} ms, the compiler's own "
                f"choice {self.own:.3f} ms")


_found: Cache[bytes, Outcome] = Cache("schedules that were searched for", MAX_FOUND)
_shown: Cache[tuple[str, Schedule], Outcome] = Cache("outcomes of searches", MAX_FOUND)


def outcome_of(name: str, schedule: Schedule | None) -> Outcome | None:
    """How a schedule of a kernel was found, if it was."""
    return None if not schedule else _shown.get((name, schedule))


def is_searched(call: UOp) -> bool:
    """Whether a node is a CALL whose schedule is to be searched for."""
    return call.op is ops.CALL and any(isinstance(s, Search) for s in call.arg.schedule)


def searched(fn: UOp, device: Any, link: Callable[[UOp], Any], space: Space, disk: Disk) -> UOp:
    """A FUNCTION whose CALLs of KERNELs have schedules.

    Args:
        fn: the FUNCTION; its bodies are looked into.
        device: what it will run on.
        link: makes a program of a FUNCTION.
        space: which schedules there are.
        disk: where what is found is kept.
    """
    done: dict[UOp, UOp] = {}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        src = tuple([done.get(s, s) for s in src])
        if not is_searched(node):
            return node.over(src)
        schedule = _schedule(node, device, link, space, disk) \
            if device.target.kind == "host" else ()
        call = op_args.Call(node.arg.name, node.arg.outs, schedule, node.arg.policy)
        return inherit(UOp(ops.CALL, node.dtype, src, call), node)

    for body in toposort([fn], into_functions=True):
        if body.op is ops.FUNCTION:
            done[body] = body.over(tuple(rebuild(body.src, visit)))
    return done[fn]


def _schedule(call: UOp, device: Any, link: Callable[[UOp], Any], space: Space, disk: Disk
              ) -> Schedule:
    seconds = next(s.seconds for s in call.arg.schedule if isinstance(s, Search))
    kernel, first = space.first(call.src[0], device.target)
    if not first:
        return ()
    candidates = _Candidates(call, kernel, device, link)
    base = candidates.executable(first)
    key = hashlib.sha256(b"search 1" + b"".join(
        sorted(code.key for code in base.lowered.code.values()))).digest()
    found = _found.get(key) or _read(disk.get(key))
    if found is None:
        with override(check=""):  # the data means nothing
            found = _climb(candidates, base, first, seconds,
                           lambda schedule: space.neighbours(kernel, schedule))
        disk.put(key, _written(found), f"schedule of {call.arg.name}")
    _found.keep(key, found)
    _shown.keep((call.arg.name, found.schedule), found)
    return found.schedule


def _climb(candidates: _Candidates, base: Any, first: Schedule, seconds: float,
           near: Callable[[Schedule], Iterator[Schedule]]) -> Outcome:
    end = time.perf_counter() + seconds
    want = candidates.results(base)
    own = best = candidates.milliseconds(base)
    schedule, program, tried = first, base, {first}
    going = True
    while going:
        going = False
        for other in near(schedule):
            if time.perf_counter() > end:
                break
            if other in tried:
                continue
            tried.add(other)
            try:
                made = candidates.executable(other)
            except KernelError:  # it is not legal
                continue
            spent = candidates.milliseconds(made, best)
            if spent < _FASTER * best:  # unless the machine was busy before
                best = min(best, candidates.milliseconds(program))
            if spent < _FASTER * best and candidates.results(made) == want:
                schedule, program, best, going = other, made, spent, True
                break
    return Outcome(schedule, own, best, len(tried))


class _Candidates:
    """Executables of one CALL under schedules, and data for them."""

    def __init__(self, call: UOp, kernel: UOp, device: Any, link: Callable[[UOp], Any]) -> None:
        self.call, self.kernel, self.link = call, kernel, link
        self.params = [build.param(i, x.dtype, x.shape)
                       for i, x in enumerate(parts.operands(call))]
        rng = np.random.default_rng(0)
        self.data = [device.upload(_random(rng, p)) for p in self.params]

    def executable(self, schedule: Schedule) -> Any:
        """The CALL alone, under a schedule."""
        arg = op_args.Call(self.call.arg.name, self.call.arg.outs, schedule)
        node = UOp(ops.CALL, dtypes.void, (self.kernel, *self.params), arg)
        return self.link(build.function(build.results(node), len(self.params), arg.name))

    def results(self, made: Any) -> list[bytes]:
        """The bytes of its results."""
        return [s.view(np.dtype(np.uint8), (s.nbytes,)).tobytes()
                for s in made.run(self.data)]

    def milliseconds(self, made: Any, limit: float = float("inf")) -> float:
        """The least time of some runs; no more of them once it is clear that it is slower."""
        least, began = float("inf"), time.perf_counter()
        for n in range(1 + _ROUNDS):
            start = time.perf_counter()
            for s in made.run(self.data):
                s.wait()
            spent = (time.perf_counter() - start) * 1e3
            least = min(least, spent)
            if n and (least > 1.5 * limit or time.perf_counter() - began > _ROUND_SECONDS):
                break
        return least


def _random(rng: np.random.Generator, param: UOp) -> np.ndarray[Any, Any]:
    if param.dtype.is_float:
        return rng.uniform(0.1, 1.0, param.shape).astype(param.dtype.np)
    return rng.integers(0, 2 if param.dtype.is_bool else 8, param.shape).astype(param.dtype.np)


# ---- on disk -------------------------------------------------------------------------------------


_KINDS: dict[str, Callable[..., tiling.Transform]] = {kind.__name__: kind for kind in (
    tiling.Split, tiling.Order, tiling.Parallel, tiling.Vectorize, tiling.Unroll,
    tiling.StageOperand, tiling.Subtotal, tiling.Tensorize, tiling.Collect)}


def _written(outcome: Outcome) -> bytes:
    schedule = [[type(step).__name__, *values(step)] for step in outcome.schedule]
    return json.dumps([schedule, outcome.own, outcome.best, outcome.tried]).encode()


def _read(data: bytes | None) -> Outcome | None:
    if data is None:
        return None
    rows, own, best, tried = json.loads(data)
    steps = [_KINDS[kind](*[tuple(f) if isinstance(f, list) else f for f in fields])
             for kind, *fields in rows]
    return Outcome(tuple(steps), own, best, tried)
