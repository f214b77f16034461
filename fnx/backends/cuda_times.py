"""The times of CUDA's kernels while a profile is recorded: an event before and behind each."""

from __future__ import annotations

import time
from collections.abc import Callable
from ctypes import byref, c_float, c_uint64

from fnx.backends.device.profiling import CommandTimes, SignalProfiler
from fnx.backends.libcuda import ENUMS


class EventTimes:
    """Events of a stream, and the nanoseconds at which they were reached.

    Args:
        call: calls a function of the library, by its name.
        stream: the stream.
        wait: waits for all that is in the stream.
    """

    def __init__(self, call: Callable[..., None], stream: int, wait: Callable[[], None]) -> None:
        self._call, self._stream, self._wait = call, stream, wait
        self.commands = CommandTimes(self._read_times, self._compare_clocks)
        self._free: list[int] = []
        self._base, self._base_time = 0, 0.0  # an event, and its nanoseconds

    def switch(self, profiler: SignalProfiler | None) -> None:
        """Time kernels for another profile, or for none."""
        if profiler is not None:
            event = self.record()
            self._wait()
            if self._base:  # the time between events is a float32, so it has to be short
                self._base_time = self._time(event)
                self._free.append(self._base)
            self._base = event
        self.commands.switch(profiler)

    def record(self) -> int:
        """Record an event."""
        if self._free:
            event = self._free.pop()
        else:
            created = c_uint64()
            self._call("cuEventCreate", byref(created), ENUMS["CU_EVENT_DEFAULT"])
            event = created.value
        self._call("cuEventRecord", event, self._stream)
        return event

    def _time(self, event: int) -> float:
        milliseconds = c_float()
        self._call("cuEventElapsedTime", byref(milliseconds), self._base, event)
        return self._base_time + milliseconds.value * 1e6

    def _read_times(self, events: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Wait for kernels; return when they began and ended."""
        self._wait()
        times = [(round(self._time(a)), round(self._time(b))) for a, b in events]
        self._free += [event for pair in events for event in pair]
        return times

    def _compare_clocks(self) -> tuple[int, int]:
        """Time an event."""
        start, event = time.monotonic_ns(), self.record()
        self._wait()
        nanoseconds = time.monotonic_ns() - start
        ahead = start + nanoseconds // 2 - round(self._time(event))
        self._free.append(event)
        return nanoseconds, ahead
