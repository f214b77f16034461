"""When each kernel ran, and each chunk on which worker: memory that the workers write events to.

The queue holds its address (layout.EVENTS), 0 where nothing is recorded: that costs a comparison
for each command. While there is one all work goes to the workers, the short too, and each
submission is remembered: a number of the timeline then leads to its command buffer, and the number
of a record to its command.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from fnx.backends.cpu import layout
from fnx.backends.cpu.encoding import Place
from fnx.backends.kernel_runs import run_of
from fnx.core.program import Chunk, KernelRun, Recorded

LIMIT = 1 << 18  # events of a recording, 10 MB


class Recording:
    """Memory for events, and the command buffers that they are of."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._words = (ctypes.c_int64 * (layout.FIRST_EVENT + layout.EVENT_WORDS * limit))()
        self._words[layout.EVENT_LIMIT] = limit
        self.address = ctypes.addressof(self._words)
        self.buffers: dict[int, Any] = {}

    def runs(self, workers: Sequence[int]) -> Recorded:
        """What ran on the workers with this scratch; all work that was recorded must be done."""
        count, limit = self._words[:layout.FIRST_EVENT]
        known: dict[tuple[int, int], KernelRun] = {}
        numbers = {scratch: i for i, scratch in enumerate(workers)}
        runs, chunks = [], list[Chunk]()
        for i in range(min(count, limit)):
            at = layout.FIRST_EVENT + i * layout.EVENT_WORDS
            value, record, start, stop, scratch = self._words[at:at + layout.EVENT_WORDS]
            if scratch:  # of a worker that was given up: a number of its own, too
                chunks.append(Chunk(numbers.setdefault(scratch, len(numbers)), start, stop))
                continue
            done, chunks = tuple(chunks), []
            buffer = self.buffers.get(value)
            if buffer is None:
                continue
            key = id(buffer), record
            if key not in known:
                known[key] = _facts(buffer.places[record])
            runs.append(known[key].replace(start=start, stop=stop, submission=value, chunks=done))
        return Recorded(runs, max(0, count - limit), max(1, len(numbers)))


def _facts(place: Place) -> KernelRun:
    command = place.command
    return KernelRun(place.name, (), 0, 0) if command is None else run_of(command)
