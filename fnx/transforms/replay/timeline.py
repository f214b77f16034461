"""When each kernel of a program runs, and which worker has which part of it: of one call that is
made for the reader.

Its arguments are zeros, as a lowering has only their types. So a program whose loops end by what
they compute is not run, nor one with effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core import ops
from fnx.core.errors import ArgumentError
from fnx.core.program import Recorded
from fnx.core.uop import UOp, toposort
from fnx.transforms.replay.executable import Executable, Replay

_CALLS = 3  # the last one counts: workers are awake, memory is there


def timeline(replay: Replay, executable: Executable, avals: Sequence[Any]) -> Recorded:
    """What runs in one call on zeros of these (shape, dtype, weak).

    Raises:
        ArgumentError: the program is not to be run for that, or something is profiled.
        NotBuiltError: the device times no kernels.
    """
    why = _not_run(replay, executable.block.commands)
    if why:
        raise ArgumentError(f"expected a program that can run on zeros; this one {why}",
                            hint="fnx.profile(f)(*args) times a call of yours")
    device: Any = executable.device
    given = [device.upload(np.zeros(shape, np.dtype(dtype.np))) for shape, dtype, _ in avals]
    ins = [*given, *replay.storages]
    stop = device.record()
    try:
        for _ in range(_CALLS):
            executable.run(ins)
        device.synchronize()
    finally:
        found: Recorded = stop()
    last = max([run.submission for run in found.runs], default=0)
    return found.replace(runs=[run for run in found.runs if run.submission == last])


def _not_run(replay: Replay, commands: UOp) -> str:
    """Why a program does not run for a reader; empty if it may."""
    if replay.closed.effects:
        return "has effects"
    if None in replay.storages:
        return "reads values of a trace"
    loops = [n for n in toposort([commands]) if n.op is ops.LOOP and n.arg.trips is None]
    return f"has a loop that ends by what it computes ({loops[0].arg.label})" if loops else ""
