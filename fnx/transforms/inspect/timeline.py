"""Timeline of one call, made for inspection: when each kernel and each worker runs.

The arguments are those of the lowering. Arguments that have only a type, or have lost their value,
are replaced by numbers that exercise all of the work: positive floats, random masks, which have
true elements near the end of each row, and integers in the upper half of the longest axis, as
lengths and indices may be. A program with effects or with data-dependent loops is not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.array.array import Array
from fnx.core.ir import ops
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.ir.kernel_code import RunTrace
from fnx.core.ir.low_precision import encode
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import ArgumentError, FnxError
from fnx.transforms.dispatch.executable import CachedTrace, Executable

_WARMUP_CALLS = 3  # the last one counts: workers are awake, memory is allocated
_MAX_DRAWN = 65_521  # random numbers drawn; they repeat beyond that


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
        raise ArgumentError(f"expected a program that can run for a reader; this one {why}",
                            hint="use fnx.profile(f)(*args) to time a call")
    device: Any = executable.device
    longest = max([n for shape, *_ in avals for n in shape], default=1)
    values = map(_known_value, arguments or [None] * len(avals))
    ins = [device.upload(synthetic_numbers(shape, dtype, longest) if x is None else x)
           for (shape, dtype, _), x in zip(avals, values)]
    for storage in ins:
        storage.is_aliased = True  # so that no call overwrites them
    ins += cached_trace.storages
    stop = device.record()
    try:
        for _ in range(_WARMUP_CALLS):
            executable.run(ins)
        device.synchronize()
    finally:
        recorded: RunTrace = stop()
    last = max([run.submission for run in recorded.runs], default=0)
    return recorded.replace(runs=[run for run in recorded.runs if run.submission == last])


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
