"""Trials: one kernel as a program under several schedules, on data, beside one another.

    CALL(KERNEL, x, ..., schedule = ...)    ->    an executable of it alone, its results, its time

Programs are made ready several at a time, so LLVM compiles them beside one another, and are run
when it is done, so nothing else works while one is timed. Two are timed in turns: what slows the
machine down slows down both.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fnx.core import build, dtypes, op_args, ops, parts
from fnx.core.dtypes import NDArray
from fnx.core.narrow import decoded, encoded
from fnx.core.tiling import Schedule
from fnx.core.uop import UOp, toposort

_ROUNDS, _ROUND_SECONDS = 11, 0.08  # of two programs that are timed in turns, at most
_SAMPLE = 1e-3      # seconds that a sample should take at least: short programs run several times
_MOST_BYTES = 1 << 30  # of the data of a kernel
_SLOWER = 1.5       # times the other's time, from which on it is clear
_HOPELESS, _FIRST = 8, 5e-3  # times the other's, and seconds that a first run may take longer
_LONGER, _LONG = 4, 1 << 14  # times the text of the model's choice, and characters beside
# Steps of the type of the arithmetic by which two orders of a sum may differ, and for each square
# root of its terms, each of which is rounded as it goes in; steps of the result's own type.
_ULPS, _TERM_ULPS, _OWN_ULPS = 8, 4, 4

# Of a FUNCTION, with at most so many characters of text (0: any): to be linked when asked for.
Begin = Callable[[UOp, int], Callable[[], Any]]


class Trials:
    """Programs of one CALL under schedules, and data for them.

    Args:
        call: the CALL of a KERNEL.
        kernel: the KERNEL as schedules name its ranges.
        device: where they run.
        begin: makes a program of a FUNCTION.
    """

    def __init__(self, call: UOp, kernel: UOp, device: Any, begin: Begin) -> None:
        self.call, self.kernel, self._begin = call, kernel, begin
        self.params = [build.param(i, x.dtype, x.shape)
                       for i, x in enumerate(parts.operands(call))]
        self._device = device
        self._data: list[list[Any]] = []  # sets of inputs; the first one is for times

    def begun(self, schedule: Schedule, beside: Any = None) -> Callable[[], Any]:
        """The CALL alone under a schedule, which is compiled from now on: what links it.

        Args:
            schedule: the schedule.
            beside: a program with another one, whose code is not much shorter.

        Raises:
            KernelError: the schedule is not legal, or its code is too long to be worth compiling.
        """
        longest = 0 if beside is None else _LONG + _LONGER * max(
            [len(code.text()) for code in beside.lowered.code.values()], default=0)
        arg = op_args.Call(self.call.arg.name, self.call.arg.outs, schedule)
        node = UOp(ops.CALL, dtypes.void, (self.kernel, *self.params), arg)
        return self._begin(build.function(build.results(node), len(self.params), arg.name),
                           longest)

    def results(self, made: Any) -> list[NDArray]:
        """What a program computes of each set of data, as bytes."""
        return [storage.view(np.dtype(np.uint8), (storage.nbytes,)).copy()
                for inputs in self._inputs() for storage in made.run(inputs)]

    def is_hopeless(self, ours: Any, theirs: Any) -> bool:
        """Whether ours is so much slower in its first run that no second one is worth its time."""
        return self._seconds(ours, 1) > _HOPELESS * self._seconds(theirs, 1) + _FIRST

    def agree(self, ours: Sequence[NDArray], theirs: Sequence[NDArray], same_bits: bool) -> bool:
        """Whether results are equal; else up to the order of sums."""
        if same_bits:
            return all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))
        outs = [*self.call.arg.outs] * len(self._inputs())
        terms = _terms(self.kernel)
        return all(near(a, b, dtype, terms)
                   for a, b, (_, dtype) in zip(ours, theirs, outs, strict=True))

    def in_turns(self, ours: Any, theirs: Any, times: int = 1) -> tuple[float, float]:
        """Milliseconds of a run of two programs, medians of rounds in which they take turns; fewer
        rounds where ours is clearly slower, so many times as many where it has to be certain."""
        once = min(self._seconds(ours, 1), self._seconds(theirs, 1))
        count = max(1, min(1000, int(_SAMPLE / max(once, 1e-7))))
        found: tuple[list[float], list[float]] = [], []
        began = time.perf_counter()
        for n in range(times * _ROUNDS):
            for made, spent in zip((ours, theirs), found):
                spent.append(self._seconds(made, count))
            slower = min(found[0]) > _SLOWER * max(min(found[1]), 1e-9)
            if n and (slower or time.perf_counter() - began > times * _ROUND_SECONDS):
                break
        mine, other = (statistics.median(spent) * 1e3 for spent in found)
        return mine, other

    def _seconds(self, made: Any, count: int) -> float:
        """Of a run, of so many in a row; each is waited for."""
        inputs = self._inputs()[0]
        start = time.perf_counter()
        for _ in range(count):
            for storage in made.run(inputs):
                storage.wait()
        return (time.perf_counter() - start) / count

    def _inputs(self) -> list[list[Any]]:
        if not self._data:
            rng = np.random.default_rng(0)
            self._data = [[self._device.upload(make(rng, p)) for p in self.params]
                          for make in (_positive, _around_zero)]
        return self._data


def call_of(kernel: UOp) -> UOp | None:
    """A KERNEL that fnx made as a CALL on operands of its own; None where data that nobody knows
    would decide what it touches or when it ends, where a result is also read, and where there is
    too much of it."""
    nodes = toposort([kernel])
    if any(n.op is ops.VAR or n.op is ops.ITER and parts.stop(n) is not None or
           n.op is ops.INDEX and _is_data(n) for n in nodes) or \
            any(store.arg is not None for store in kernel.src):
        return None
    refs: dict[int, UOp] = {}
    for n in nodes:
        if n.op is ops.REF and (n.arg.slot not in refs or
                                _elements(n) > _elements(refs[n.arg.slot])):
            refs[n.arg.slot] = n
    written = parts.written_slots(kernel)
    read = {parts.buffer(n).arg.slot for n in nodes
            if n.op is ops.LOAD and parts.buffer(n).op is ops.REF}
    count, n_in = len(refs), len(refs) - len(written)
    sizes = [_elements(ref) * ref.dtype.itemsize for ref in refs.values()]
    if set(refs) != set(range(count)) or written != set(range(n_in, count)) or read & written \
            or any(ref.dtype.kind == "key" for ref in refs.values()) \
            or not 0 < min(sizes) or sum(sizes) > _MOST_BYTES:
        return None
    shapes = [tuple([int(build.const_of(d)) for d in refs[i].src]) for i in range(count)]
    params = [build.param(i, refs[i].dtype, shapes[i]) for i in range(n_in)]
    outs = tuple([(shapes[i], refs[i].dtype) for i in range(n_in, count)])
    return UOp(ops.CALL, dtypes.void, (kernel, *params), op_args.Call(kernel.arg.name, outs))


def _elements(ref: UOp) -> int:
    return math.prod([int(build.const_of(d)) for d in ref.src])


def _is_data(place: UOp) -> bool:
    return any(n.op in (ops.LOAD, ops.CARRY, ops.GET)
               for n in toposort(place.src[1:], stop=lambda n: n.op is ops.LOAD))


def _positive(rng: np.random.Generator, param: UOp) -> NDArray:
    """Numbers that are ordinary for most functions."""
    dtype = param.dtype
    if dtype.is_float:
        return encoded(rng.uniform(0.1, 1.0, param.shape), dtype)
    return encoded(rng.integers(0, 2 if dtype.is_bool else 8, param.shape), dtype)


def _around_zero(rng: np.random.Generator, param: UOp) -> NDArray:
    """Numbers of which long sums of products are neither large nor small."""
    if not param.dtype.is_float:
        return _positive(rng, param)
    return encoded(rng.normal(size=param.shape) * max(param.shape, default=1) ** -0.25,
                   param.dtype)


def _terms(kernel: UOp) -> int:
    """Of the longest sum."""
    return max([math.prod([int(build.const_of(parts.extent(r))) for r in parts.closed(n)])
                for n in toposort(kernel.src) if n.op in (ops.REDUCE, ops.ITER)], default=1)


def near(ours: NDArray, theirs: NDArray, dtype: dtypes.DType, terms: int) -> bool:
    """Whether two results, as bytes, are equal up to what another order of sums of so many terms
    changes.

    >>> one, other = (np.array([1 + i * 2.0 ** -17], "f4").view("u1") for i in range(2))
    >>> near(one, other, dtypes.float32, 10), near(one, other, dtypes.float32, 1000)
    (False, True)
    """
    if not dtype.is_float:
        return bool(np.array_equal(ours, theirs))
    wide = dtype.compute if dtype.storage is not None else dtype
    a, b = (np.asarray(decoded(x.view(dtype.np), dtype), np.float64) for x in (ours, theirs))
    finite = np.isfinite(b)
    if not np.array_equal(finite, np.isfinite(a)) or not np.array_equal(
            a[~finite], b[~finite], equal_nan=True):
        return False
    a, b = a[finite], b[finite]
    ulps = _ULPS + _TERM_ULPS * math.sqrt(terms)
    eps = ulps * 2.0 ** -wide.mantissa + _OWN_ULPS * 2.0 ** -dtype.mantissa
    size = np.abs(b) + np.sqrt(np.mean(b * b)) if len(b) else b
    return bool((np.abs(a - b) <= eps * size).all())
