"""Timeline of one call, made for inspection: when each kernel and each worker runs.

The arguments are those of the lowering. Arguments that have only a type, or have lost their value,
are replaced by numbers that exercise all of the work: positive floats, random masks, which have
true elements near the end of each row, and integers in the upper half of the longest axis, as
lengths and indices may be. A program with effects or with data-dependent loops is not run.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
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
_MAX_DRAWN = 65_521  # random numbers drawn; they repeat beyond that

RunTimes = tuple[float | None, int]  # the mean nanoseconds of a run, if known, and their number


def record_timeline(cached_trace: CachedTrace, executable: Executable, avals: Sequence[Any],
                    arguments: Sequence[Any] = ()) -> RunTrace:
    """Run a program and record its kernels.

    Args:
        cached_trace: the trace.
        executable: its program.
        avals: (shape, dtype, weak) of the arguments.
        arguments: the arguments, or ShapeDtypeStructs of them; () if none are available.

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
    for calls in (_WARM_UP_CALLS, 1):
        stop = device.record()
        try:
            for _ in range(calls):
                executable.run(ins)
            device.synchronize()
        finally:
            recorded: RunTrace = stop()
    return recorded


def run_times(commands: UOp, trace: RunTrace) -> list[RunTimes]:
    """Return for each EXEC of a program the mean time of a run, and the number of runs in a call.

    EXECs of one name and line share what ran under these if data decides what runs.

    Raises:
        ArgumentError: too much ran to be recorded, and data decides how often each kernel runs.
    """
    execs = accessors.execs_in_loops(commands)
    keys: list[Any] = list(range(len(execs)))
    order = _run_order(commands, itertools.count())
    ran: list[Any] | None = order
    if order is None and trace.lost:
        raise ArgumentError(f"expected at most {len(trace.runs):,} runs of kernels, got "
                            f"{trace.lost:,} more", hint="use smaller arguments")
    if order is None or len(order) != len(trace.runs):
        keys = [run.arg.label for run, _ in execs]
        ran = [kernel_label(run.name, run.locs) for run in trace.runs]
    spent: dict[Any, list[int]] = {}
    for key, run in zip(ran or (), trace.runs):
        spent.setdefault(key, []).append(run.stop - run.start)
    sharers = Counter(keys)
    times: list[RunTimes] = []
    for key, (_, loops) in zip(keys, execs):
        some = spent.get(key, [])
        mean = sum(some) / len(some) if some else None
        times.append((mean, known_runs(loops)) if order is not None else
                     (mean or 0.0, round(len(some) / sharers[key])))
    return times


def known_runs(loops: Sequence[UOp]) -> int:
    """Return how often CMD_LOOPs repeat what they hold; a loop with a condition counts once."""
    return math.prod([loop.arg.trips for loop in loops if loop.arg.trips is not None])


def shorter(first: RunTimes, second: RunTimes) -> RunTimes:
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
    loops = [n for n in toposort([commands]) if n.op is ops.CMD_LOOP and n.arg.trips is None]
    return f"has a loop that ends by what it computes ({loops[0].arg.label})" if loops else ""
