"""The order of two in-order queues, one of kernels and one of copies, that share memory.

This is the dependency pass (device/queues.py) in the case of two queues that run their commands in
order, with whole memories for parts of them: a wait for all that the other queue has so far makes
a value for each command needless. So a call of kernels adds its memory to a set, and no more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable

from fnx.backends.gpu.driver import DeviceMemory

MIN_QUEUED_COPY = 1 << 18  # bytes; a shorter copy takes less time than the waits between queues


class CopyOrder:
    """The memory that each queue has used since the other one last waited for it.

    A lock is held from here until the command is queued. An interrupt adds waits, and drops none.

    Attributes:
        is_open: whether copies may be in flight. If not, commands of the compute queue are not
            added, and the next copy waits for them all.
    """

    def __init__(self) -> None:
        self._computed: set[Hashable] = set()
        self._copied: set[Hashable] = set()
        self.is_open = False

    def before_copy(self, memory: DeviceMemory, wait: Callable[[], None]) -> None:
        """Add a copy from or to memory; ``wait`` lets it wait for all of the compute queue."""
        self._copied.add(memory)
        if memory in self._computed or not self.is_open:
            wait()
            self._computed.clear()
            self.is_open = True

    def before_compute(self, memory: Collection[DeviceMemory], wait: Callable[[], None]) -> None:
        """Add a command of the compute queue; ``wait`` lets it wait for all copies."""
        if self.is_open:
            self._computed.update(memory)
            if not self._copied.isdisjoint(memory):
                wait()
                self._copied.clear()

    def close(self) -> None:
        """All copies are done."""
        self.is_open = False
        self._computed.clear()
        self._copied.clear()
