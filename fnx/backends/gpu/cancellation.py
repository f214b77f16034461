"""Interruptible waits: the time limit and Ctrl-C end a wait, and abort the work.

A first Ctrl-C only leaves the wait; a second one before the same work is done aborts it, as does
the time limit. An abort loses the results of all work in flight, so the device has failed. Kernels
with unbounded loops poll an abort word in host memory (lower/legalize/unbounded_loops.py), on
devices that can read it.
"""

from __future__ import annotations

import contextlib
import time
from abc import abstractmethod
from ctypes import c_int

from fnx.backends.device.queues import CommandLabel
from fnx.backends.gpu.driver import QueueDriver
from fnx.core.support.config import config
from fnx.core.support.errors import DeviceError
from fnx.core.support.process import exit_without_destructors

_ABORT_TIMEOUT = 1.0  # seconds for aborted work to end
_CHECK_SECONDS = 0.1  # between checks for a failed device during a wait
_MORE_PAUSE, _MAX_PAUSE = 2e-5, 1e-3  # seconds by which pauses of a wait grow, and their bound


class InterruptibleDriver(QueueDriver):
    """A driver whose waits can be interrupted.

    Attributes:
        aborted: whether work was aborted.
    """

    _interrupted_value = 0  # the value of a wait that Ctrl-C interrupted
    aborted = False

    def running(self) -> tuple[CommandLabel, ...]:
        """The commands that run, if the driver knows."""
        return ()

    @abstractmethod
    def last(self) -> int:
        """The last timeline value."""

    def check_not_aborted(self) -> None:
        """Refuse a call after an abort, as its result would never arrive.

        Raises:
            DeviceError: work was aborted.
        """
        if self.aborted:
            raise DeviceError(f"{self.name}: work was aborted")

    def waited(self, value: int, limit: float) -> bool:
        """Whether the value was reached within ``limit`` seconds; 0: no limit. Polls at increasing
        intervals.
        """
        start, pause, checked = time.monotonic(), 0.0, 0.0
        while not self.done(value):
            seconds = time.monotonic() - start
            if limit and seconds > limit:
                return False
            if seconds > checked + _CHECK_SECONDS:
                checked = seconds
                self.check_wait(value)
            time.sleep(pause)
            pause = min(pause + _MORE_PAUSE, _MAX_PAUSE)
        return True

    def check_wait(self, value: int) -> None:
        """Raise if the device failed, from time to time during a wait."""

    def wait(self, value: int) -> None:
        """Submit, then wait for the value or Ctrl-C.

        The time limit, and a second Ctrl-C before the same work is done, abort the work.
        """
        self.submit()
        self.leave(value)

    def leave(self, value: int) -> None:
        """Wait for what was already submitted, as ``wait`` does."""
        try:
            if not self.waited(value, config.time_limit):
                self.stuck = self.running()
                self.abort()
                raise DeviceError(
                    f"{self.name}: expected work that ends within {config.time_limit:g} s",
                    hint="increase fnx.config.time_limit, or set it to 0 for no limit")
        except KeyboardInterrupt:
            if self.has_interrupted_work():
                self.abort()
            self._interrupted_value = self.last()
            raise

    def has_interrupted_work(self) -> bool:
        """Whether unfinished work is left whose wait Ctrl-C interrupted."""
        return bool(self._interrupted_value) and not self.aborted and \
            not self.done(self._interrupted_value)


class AbortableDriver(InterruptibleDriver):
    """A driver whose kernels can poll a word in host memory."""

    _abort_word: c_int

    def abort(self) -> None:
        """Set the abort word: kernels that poll it end, if the device can read host memory."""
        last = self.last()
        self._abort_word.value = 1
        with contextlib.suppress(DeviceError):
            if not self.waited(last, _ABORT_TIMEOUT):
                exit_without_destructors()
        self.aborted = True
