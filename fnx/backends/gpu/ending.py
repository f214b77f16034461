"""Waits that end: by the limit of time, by Ctrl-C, and the work with them.

A first Ctrl-C leaves the wait; a second one behind the same work, as the limit of time, aborts it.
What was in flight has computed nothing then, so the device has failed. Kernels whose loops may
never end look at a word of the host's memory (lower/program/endless.py), where a device sees that.
"""

from __future__ import annotations

import contextlib
import time
from abc import abstractmethod
from ctypes import c_int

from fnx.backends.gpu.driver import QueueDriver
from fnx.core.config import config
from fnx.core.errors import DeviceError
from fnx.core.process import exit_without_destructors

_PATIENCE = 1.0  # seconds for work that was told to end


class LeavingDriver(QueueDriver):
    """A driver whose waits are left.

    Attributes:
        aborted: whether work was told to end.
    """

    _waited_for = 0  # what a wait that Ctrl-C left was for
    aborted = False

    @abstractmethod
    def last(self) -> int:
        """The last number on the timeline."""

    def refuse_aborted(self) -> None:
        """Say that what was asked for will never be there.

        Raises:
            DeviceError: work was aborted.
        """
        if self.aborted:
            raise DeviceError(f"{self.name}: work was aborted")

    @abstractmethod
    def waited(self, value: int, limit: float) -> bool:
        """Whether the number was reached in so many seconds, where that is not 0."""

    def wait(self, value: int) -> None:
        """Until the number is reached, or Ctrl-C. A second one behind the same work aborts it, as
        does the limit of time."""
        self.submit()
        self.leave(value)

    def leave(self, value: int) -> None:
        """``wait`` for what was submitted."""
        try:
            if not self.waited(value, config.time_limit):
                self.abort()
                raise DeviceError(
                    f"{self.name}: expected work that ends within {config.time_limit:g} s",
                    hint="raise fnx.config.time_limit, or set it to 0")
        except KeyboardInterrupt:
            if self.is_left():
                self.abort()
            self._waited_for = self.last()
            raise

    def is_left(self) -> bool:
        """Whether work is ahead that Ctrl-C left the wait for."""
        return bool(self._waited_for) and not self.aborted and not self.done(self._waited_for)


class EndingDriver(LeavingDriver):
    """A driver whose kernels see a word of the host's memory."""

    _abort_word: c_int

    def waited(self, value: int, limit: float) -> bool:
        """Looks again and again, at growing intervals."""
        pause, start = 0.0, time.monotonic()
        while not self.done(value):
            if limit and time.monotonic() - start > limit:
                return False
            time.sleep(pause)
            pause = min(pause + 2e-5, 1e-3)
        return True

    def abort(self) -> None:
        """Kernels that look at the word end, where the device sees the host's memory."""
        last = self.last()
        self._abort_word.value = 1
        with contextlib.suppress(DeviceError):
            if not self.waited(last, _PATIENCE):
                exit_without_destructors()
        self.aborted = True
