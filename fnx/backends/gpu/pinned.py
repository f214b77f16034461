"""Pinned memory of the host, from and to which a device copies while the host goes on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from ctypes import c_uint8

import numpy as np

from fnx.backends.gpu.driver import FetchedBytes, HostBytes

BLOCK = 8 << 20    # bytes of pinned memory at most in one block
PINNED = 64 << 20  # ... and in all, before the oldest copy is waited for
_LEAST = 4 << 10


class Pinned:
    """Pinned memory of the host, in blocks of powers of two: leased, then given back behind a
    number of the timeline."""

    def __init__(self, alloc: Callable[[int], int], done: Callable[[int], bool],
                 wait: Callable[[int], None]) -> None:
        self._alloc, self._done, self._wait = alloc, done, wait
        self._free: dict[int, list[int]] = {}
        self.leased: list[tuple[int, int]] = []                       # no number is behind them
        self._flying: deque[tuple[int, list[tuple[int, int]]]] = deque()
        self.held = 0

    def lease(self, nbytes: int) -> int:
        """The address of so many bytes, for a copy that is queued before the next ``behind``."""
        size = max(_LEAST, 1 << (nbytes - 1).bit_length())
        while self._flying and self._done(self._flying[0][0]):
            self._settle()
        while not self._free.get(size) and self.held + size > PINNED and self._flying:
            self._wait(self._flying[0][0])
            self._settle()
        free = self._free.setdefault(size, [])
        if free:
            address = free.pop()
        else:
            address = self._alloc(size)
            self.held += size
        self.leased.append((size, address))
        return address

    def hold(self, nbytes: int) -> tuple[int, int]:
        """A piece (its size and address) of so many bytes, until it is given ``back``."""
        self.lease(nbytes)
        return self.leased.pop()

    def back(self, value: int, piece: tuple[int, int]) -> None:
        """A piece is for others when the timeline has passed this number."""
        self._flying.append((value, [piece]))

    def behind(self, value: int) -> None:
        """What is leased goes back when the timeline has passed this number."""
        if self.leased:
            self._flying.append((value, self.leased))
            self.leased = []

    def _settle(self) -> None:
        for size, address in self._flying.popleft()[1]:
            self._free.setdefault(size, []).append(address)


class PinnedCopy(FetchedBytes):
    """A copy to a piece of pinned memory, and the number behind it."""

    __slots__ = ("_piece", "_pinned", "_value", "_wait", "nbytes")

    def __init__(self, pinned: Pinned, piece: tuple[int, int], nbytes: int, value: int,
                 wait: Callable[[int], None]) -> None:
        self._pinned, self._piece, self._value = pinned, piece, value
        self._wait, self.nbytes = wait, nbytes

    def wait(self) -> None:
        """Until the timeline has passed the number."""
        self._wait(self._value)

    def content(self) -> HostBytes:
        """The piece."""
        return np.ctypeslib.as_array(
            (c_uint8 * self.nbytes).from_address(self._piece[1]))

    def release(self) -> None:
        """Given back behind the number."""
        self._pinned.back(self._value, self._piece)
