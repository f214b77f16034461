"""Pinned host memory, for asynchronous copies to and from a device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from ctypes import c_uint8

import numpy as np

from fnx.backends.gpu.driver import AsyncRead, HostBytes

MAX_BLOCK = 8 << 20    # largest block of pinned memory in bytes
MAX_PINNED = 64 << 20  # ... and of all blocks, before the oldest copy is waited for
_MIN_BLOCK = 4 << 10
_RING_BLOCK, _RING_ALIGNMENT = 64 << 10, 64  # bytes of a block of short pieces, and of a piece


class PinnedPool:
    """A pool of pinned host memory, in blocks of powers of two.

    A block is acquired, then returned once the timeline has passed a value.
    """

    def __init__(self, alloc: Callable[[int], int], done: Callable[[int], bool],
                 wait: Callable[[int], None]) -> None:
        self._alloc, self._done, self._wait = alloc, done, wait
        self._free: dict[int, list[int]] = {}
        self.acquired: list[tuple[int, int]] = []                     # without a timeline value yet
        self._pending_values: deque[tuple[int, list[tuple[int, int]]]] = deque()
        self.held = 0

    def acquire(self, nbytes: int) -> int:
        """Return the address of ``nbytes`` bytes for a copy queued before the next call of
        ``behind``.
        """
        size = max(_MIN_BLOCK, 1 << (nbytes - 1).bit_length())
        while self._pending_values and self._done(self._pending_values[0][0]):
            self._settle()
        while not self._free.get(size) and self.held + size > MAX_PINNED and self._pending_values:
            self._wait(self._pending_values[0][0])
            self._settle()
        free = self._free.setdefault(size, [])
        if free:
            address = free.pop()
        else:
            address = self._alloc(size)
            self.held += size
        self.acquired.append((size, address))
        return address

    def acquire_block(self, nbytes: int) -> tuple[int, int]:
        """Acquire a block (its size and address) until it is returned by ``return_block``."""
        self.acquire(nbytes)
        return self.acquired.pop()

    def return_block(self, value: int, piece: tuple[int, int]) -> None:
        """Return a block once the timeline has passed this value."""
        self._pending_values.append((value, [piece]))

    def behind(self, value: int) -> None:
        """Return all acquired blocks once the timeline has passed this value."""
        if self.acquired:
            self._pending_values.append((value, self.acquired))
            self.acquired = []

    def _settle(self) -> None:
        for size, address in self._pending_values.popleft()[1]:
            self._free.setdefault(size, []).append(address)


class PinnedCopy(AsyncRead):
    """A copy in a block of pinned memory, and the timeline value after it."""

    __slots__ = ("_piece", "_pinned", "_value", "_wait", "nbytes")

    def __init__(self, pinned: PinnedPool, piece: tuple[int, int], nbytes: int, value: int,
                 wait: Callable[[int], None]) -> None:
        self._pinned, self._piece, self._value = pinned, piece, value
        self._wait, self.nbytes = wait, nbytes

    def wait(self) -> None:
        """Wait until the timeline has passed the value."""
        self._wait(self._value)

    def content(self) -> HostBytes:
        """The bytes of the block."""
        return np.ctypeslib.as_array(
            (c_uint8 * self.nbytes).from_address(self._piece[1]))

    def release(self) -> None:
        """Return the block once the timeline has passed the value."""
        self._pinned.return_block(self._value, self._piece)


class PinnedRing:
    """Short pieces of pinned memory, one after the other, in blocks of a pool.

    Each is for a copy that is queued next. A block is returned once the timeline has passed the
    copies from all its pieces, so most of them cost an addition.

    Args:
        pool: the pool.
        record: returns a timeline value after all that was started.
    """

    def __init__(self, pool: PinnedPool, record: Callable[[], int]) -> None:
        self._pool, self._record = pool, record
        self._block: tuple[int, int] | None = None
        self._next = self._end = 0

    def acquire(self, nbytes: int) -> int:
        """Return the address of the next piece."""
        piece = -(-nbytes // _RING_ALIGNMENT) * _RING_ALIGNMENT
        if self._next + piece > self._end:
            block, self._block, self._end = self._block, None, 0
            if block is not None:
                self._pool.return_block(self._record(), block)
            self._block = self._pool.acquire_block(max(piece, _RING_BLOCK))
            size, self._next = self._block
            self._end = self._next + size
        self._next += piece
        return self._next - piece

    def undo(self, address: int) -> None:
        """Take back the last piece: nothing was copied from it."""
        self._next = address
