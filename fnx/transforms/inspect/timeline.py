"""Timelines of calls that are made for inspection: when each kernel and each worker runs.

Other programs may take the processor from a kernel while it runs. So several calls are recorded,
and the time of each run is that of the fastest of these.

The arguments are those of the lowering. Arguments that have only a type, or have lost their value,
are replaced by numbers that exercise all of the work: positive floats, random masks, which have
true elements near the end of each row, and integers in the upper half of the longest axis, as
lengths and indices may be. A program with effects or with data-dependent loops is not run.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core.array.array import Array
from fnx.core.ir import accessors, ops
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.ir.kernel_code import RunTrace
from fnx.core.ir.low_precision import encode
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import ArgumentError, FnxError, kernel_label
from fnx.transforms.dispatch.executable import CachedTrace, Executable

_WARM_UP_CALLS = 2  # after them, workers are awake and memory is allocated
_LEAST_CALLS, _ENOUGH_SECONDS = 3, 0.05  # recorded of several calls, even if they take longer
_MAX_DRAWN = 65_521  # random numbers drawn; they repeat beyond that

RunTimes = tuple[float | None, int]  # the mean nanoseconds of a run, if known, and their number


def record_timelines(cached_trace: CachedTrace, executable: Executable, avals: Sequence[Any],
                     arguments: Sequence[Any] = (), most: int = 1) -> list[RunTrace]:
    """Run a program and record its kernels.

    The calls recorded are ``most``, or fewer if they take long, but at least three of many.

    Args:
        cached_trace: the trace.
        executable: its program.
        avals: (shape, dtype, weak) of the arguments.
        arguments: the arguments, or ShapeDtypeStructs of them; () if none are available.
        most: the number of calls to record, without those that warm up.

    Raises:
        ArgumentError: the program may not be run for inspection, or a profile is being recorded.
        NotBuiltError: the device does not time kernels.
    """
    why = _why_not_runnable(cached_trace, executable.block.commands)
    if why:
        raise ArgumentError(f"expected a program that can be run for its times; this one {why}",
                            hint="use fnx.profile(f)(*args) to time a call")
    device: Any = executable.device
    longest = max([n for shape, *_ in avals for n in shape], default=1)
    values = map(_known_value, arguments or [None] * len(avals))
    ins = [device.upload(synthetic_numbers(shape, dtype, longest) if x is None else x)
           for (shape, dtype, _), x in zip(avals, values)]
    for storage in ins:
        storage.is_aliased = True  # so that no call overwrites them
    ins += cached_trace.storages
    recorded: list[RunTrace] = []
    begun = time.monotonic()
    for i in range(_WARM_UP_CALLS + most):
        if i >= _WARM_UP_CALLS + _LEAST_CALLS and time.monotonic() - begun > _ENOUGH_SECONDS:
            break
        stop = device.record()
        try:
            executable.run(ins)
            device.synchronize()
        finally:
            recorded.append(stop())
    return recorded[_WARM_UP_CALLS:]


def run_times(commands: UOp, traces: Sequence[RunTrace]) -> list[RunTimes]:
    """Return for each EXEC of a program the mean time of a run, and the number of runs in a call.

    A run, such as that in iteration 3 of a loop, has its shortest time in several calls: what took
    the processor from it in one call did not in another. If data decides what runs, EXECs of one
    name and line share what ran under these, and have the shortest of the means of the calls.

    Raises:
        ArgumentError: too much ran to be recorded, and data decides how often each kernel runs.
    """
    execs = accessors.execs_in_loops(commands)
    keys: list[Any] = list(range(len(execs)))
    order = _run_order(commands, itertools.count())
    spent: dict[Any, list[int]] = {}
    if order is not None and all(len(order) == len(trace.runs) for trace in traces):
        for key, *runs in zip(order, *[trace.runs for trace in traces]):
            spent.setdefault(key, []).append(min([run.stop - run.start for run in runs]))
        return _means(execs, keys, spent, True)
    keys = [run.arg.label for run, _ in execs]
    times: list[RunTimes] = []
    for trace in traces:
        if order is None and trace.lost:
            raise ArgumentError(f"expected at most {len(trace.runs):,} runs of kernels, got "
                                f"{trace.lost:,} more", hint="use smaller arguments")
        spent = {}
        for run in trace.runs:
            spent.setdefault(kernel_label(run.name, run.locs), []).append(run.stop - run.start)
        latest = _means(execs, keys, spent, order is not None)
        times = list(map(_shorter, times, latest)) if times else latest
    return times


def slowdown(traces: Sequence[RunTrace], shortest: float) -> float:
    """Return how many times as long as the shortest times of its runs a typical call took."""
    totals = [sum([run.stop - run.start for run in trace.runs]) for trace in traces]
    return statistics.median(totals) / shortest if totals and shortest else 1.0


def _means(execs: Sequence[tuple[UOp, Sequence[UOp]]], keys: Sequence[Any],
           spent: Mapping[Any, Sequence[int]], is_fixed: bool) -> list[RunTimes]:
    """Return the times of EXECs, given those of all runs under their keys.

    ``is_fixed``: the number of runs of each does not depend on data.
    """
    sharers = Counter(keys)
    times: list[RunTimes] = []
    for key, (_, loops) in zip(keys, execs):
        some = spent.get(key, [])
        mean = sum(some) / len(some) if some else None
        times.append((mean, known_runs(loops)) if is_fixed else
                     (mean or 0.0, round(len(some) / sharers[key])))
    return times


def known_runs(loops: Sequence[UOp]) -> int:
    """Return how often CMD_LOOPs repeat what they hold; a loop with a condition counts once."""
    return math.prod([loop.arg.trips for loop in loops if loop.arg.trips is not None])


def _shorter(first: RunTimes, second: RunTimes) -> RunTimes:
    """Return the shorter of the times of an EXEC in two calls."""
    return first if second[0] is None or first[0] is not None and first[0] <= second[0] else second


def _run_order(node: UOp, numbers: Iterator[int]) -> list[int] | None:
    """Return the numbers of the EXECs in the order in which they run; None if data decides it."""
    if node.op is ops.EXEC:
        return [next(numbers)]
    if node.op is ops.BRANCH or node.op is ops.CMD_LOOP and node.arg.trips is None:
        return None
    order: list[int] = []
    for s in node.src:
        if s.op in (ops.EXEC, ops.COMMANDS, ops.CMD_LOOP, ops.BRANCH):
            inner = _run_order(s, numbers)
            if inner is None:
                return None
            order += inner
    return order * node.arg.trips if node.op is ops.CMD_LOOP else order


def _known_value(x: Any) -> NDArray | None:
    """Return the value of an argument; None if it has none any more."""
    try:
        return x._numpy() if type(x) is Array else None
    except FnxError:  # traced, or donated since
        return None


def synthetic_numbers(shape: tuple[int, ...], dtype: DType, longest: int) -> NDArray:
    """Generate numbers for an argument without a value, given the length of the longest axis.

    >>> from fnx.core.ir import dtypes
    >>> bool((synthetic_numbers((3, 4), dtypes.int32, 100) >= 50).all())
    True
    """
    rng = np.random.default_rng(0)
    if dtype.kind == "key":
        drawn = np.frombuffer(rng.bytes(_MAX_DRAWN * dtype.itemsize), dtype.np)
    elif dtype.is_float:
        drawn = encode(rng.uniform(0.1, 1.0, _MAX_DRAWN), dtype)
    elif dtype.is_bool:
        drawn = encode(rng.integers(0, 2, _MAX_DRAWN), dtype)
    else:
        largest = min(longest, int(dtype.limits[1]))
        drawn = encode(rng.integers((largest + 1) // 2, largest + 1, _MAX_DRAWN), dtype)
    return np.resize(drawn, shape)


def _why_not_runnable(cached_trace: CachedTrace, commands: UOp) -> str:
    """Return why a program may not run for inspection; empty if it may."""
    if cached_trace.closed.effects:
        return "has effects"
    if None in cached_trace.storages:
        return "reads values of a trace"
    nodes = toposort([commands])
    if any(n.op is ops.CALLBACK and n.arg.collective is not None for n in nodes):
        return "exchanges arrays with other processes, which may not run it now"
    loops = [n for n in nodes if n.op is ops.CMD_LOOP and n.arg.trips is None]
    return f"has a loop that ends by what it computes ({loops[0].arg.label})" if loops else ""
