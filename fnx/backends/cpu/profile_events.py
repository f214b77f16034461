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
from fnx.backends.cpu.encoding import RecordInfo
from fnx.backends.device.profiling import profile_entry
from fnx.core.ir.kernel_code import Chunk, KernelRun, RunTrace

MAX_EVENTS = 1 << 18  # events of a recording, 10 MB


class EventRecording:
    """A buffer for events, and the command buffers that they belong to."""

    def __init__(self, limit: int = MAX_EVENTS) -> None:
        self._words = (ctypes.c_int64 * (layout.FIRST_EVENT + layout.EVENT_WORDS * limit))()
        self._words[layout.EVENT_LIMIT] = limit
        self.address = ctypes.addressof(self._words)
        self.buffers: dict[int, Any] = {}

    def runs(self, workers: Sequence[int]) -> RunTrace:
        """Return what ran on workers with these scratch addresses. All work must be done."""
        count, limit = self._words[:layout.FIRST_EVENT]
        entry_cache: dict[tuple[int, int], KernelRun] = {}
        worker_numbers = {scratch: i for i, scratch in enumerate(workers)}
        runs, chunks = [], list[Chunk]()
        for i in range(min(count, limit)):
            offset = layout.FIRST_EVENT + i * layout.EVENT_WORDS
            value, record, start, stop, scratch = self._words[offset:offset + layout.EVENT_WORDS]
            if scratch:  # a retired worker gets a number, too
                chunks.append(Chunk(worker_numbers.setdefault(scratch, len(worker_numbers)), start,
                                    stop))
                continue
            run_chunks, chunks = tuple(chunks), []
            buffer = self.buffers.get(value)
            if buffer is None:
                continue
            key = id(buffer), record
            if key not in entry_cache:
                entry_cache[key] = _profile_entry(buffer.places[record])
            runs.append(entry_cache[key].replace(start=start, stop=stop, submission=value,
                                                 chunks=run_chunks))
        return RunTrace(runs, max(0, count - limit), max(1, len(worker_numbers)))


def _profile_entry(info: RecordInfo) -> KernelRun:
    command = info.command
    return KernelRun(info.name, (), 0, 0) if command is None else profile_entry(command)
