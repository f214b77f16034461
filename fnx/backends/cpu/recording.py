"""Profiles of the cpu: a buffer for events, which the workers write for each kernel and chunk.

The queue holds its address (layout.EVENTS), 0 if nothing is recorded: that costs one comparison per
command. While a profile is recorded, all work goes to the workers, even short work, and each
submission is remembered: its timeline value then identifies the command buffer, and the number of a
record the command.
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
    """A buffer for events, and the command buffers that they belong to."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._words = (ctypes.c_int64 * (layout.FIRST_EVENT + layout.EVENT_WORDS * limit))()
        self._words[layout.EVENT_LIMIT] = limit
        self.address = ctypes.addressof(self._words)
        self.buffers: dict[int, Any] = {}

    def runs(self, workers: Sequence[int]) -> Recorded:
        """Return what ran on workers with these scratch addresses. All work must be done."""
        count, limit = self._words[:layout.FIRST_EVENT]
        known: dict[tuple[int, int], KernelRun] = {}
        numbers = {scratch: i for i, scratch in enumerate(workers)}
        runs, chunks = [], list[Chunk]()
        for i in range(min(count, limit)):
            at = layout.FIRST_EVENT + i * layout.EVENT_WORDS
            value, record, start, stop, scratch = self._words[at:at + layout.EVENT_WORDS]
            if scratch:  # a retired worker gets a number, too
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
