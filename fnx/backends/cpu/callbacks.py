"""CALLBACK commands on the cpu: a kernel that calls Python, on the thread that runs its submission.

The leader thread of the queue is native; during a call it is also a Python thread, with no open
trace and no state of its own. It acquires the GIL, which threads that wait for it have released, so
there is no deadlock.

What a callback computes with fnx runs synchronously, on its own thread (``InlineSubmission``):
queued after the submission that the callback is part of, it would never start. An exception in a
callback aborts its submission and all that is queued after it, which may read what was not
computed.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import numpy as np

from fnx.backends.cpu import layout
from fnx.backends.device.hcq import Command, run_callback
from fnx.core.support.errors import DistributedError

_PROTOTYPE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                              ctypes.c_int64, ctypes.c_void_p)


class CallbackKernel:
    """The kernel in the records of CALLBACK commands.

    ``failed`` is called with what a callback raises in a submission of the queue.
    """

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._code = _PROTOTYPE(self._call)
        self.address: int = ctypes.cast(self._code, ctypes.c_void_p).value or 0

    def _call(self, buffers: int, scalars: int, low: int, high: int, scratch: int) -> None:
        submission = _active.runs[-1] if _active.runs else None
        command_ptr = ctypes.c_size_t.from_address(scalars).value
        command = ctypes.cast(ctypes.c_void_p(command_ptr), ctypes.py_object).value
        try:
            run_callback(command.kernel.arg, _operand_bytes(command, buffers))
        except BaseException as error:  # there is no caller to raise it to
            if isinstance(error, DistributedError) and command.node.arg.locs:
                error.loc = command.node.arg.locs[0]
            if submission is None:
                self._failed(error)
            else:
                submission.fail(error)


def _operand_bytes(command: Command,
                   buffers: int) -> list[np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    pointers = (ctypes.c_size_t * len(command.slots)).from_address(buffers)
    return [np.frombuffer((ctypes.c_uint8 * nbytes).from_address(pointer), np.uint8)
            if nbytes else _NOTHING for pointer, nbytes in zip(pointers, command.sizes)]


_NOTHING = np.zeros(0, np.uint8)


class CallbackPlan:
    """The launch plan of a CALLBACK: a kernel of one iteration and unknown duration."""

    iterations = chunk = chunks = 1
    scratch = short = 0
    work = elapsed_ns = idle = float("inf")

    def __init__(self, kernel: CallbackKernel) -> None:
        self.kernel = kernel


class _ActiveSubmissions(threading.local):
    def __init__(self) -> None:
        self.runs: list[InlineSubmission] = []


_active = _ActiveSubmissions()


class InlineSubmission:
    """A submission that runs on this thread, in a callback, with a queue of its own."""

    def __init__(self) -> None:
        self._memory = (ctypes.c_int64 * (layout.QUEUE_WORDS + 16))()
        self.address = ctypes.addressof(self._memory)
        self.address += -self.address % 128
        self._error: BaseException | None = None

    def run(self, execute: Callable[[int, int, int, int, int], int], program: int, block: int,
            scratch: int) -> None:
        """Run a program on a block; raise what a callback in it raised."""
        _active.runs.append(self)
        try:
            execute(self.address, program, block, 1, scratch)
        finally:
            _active.runs.remove(self)
        if self._error is not None:
            raise self._error

    def fail(self, error: BaseException) -> None:
        """Skip the remaining commands, and raise the error at the end."""
        self._error = error
        self.abort()

    def abort(self) -> None:
        """Skip the remaining commands."""
        ctypes.c_int64.from_address(self.address + 8 * layout.ABORT).value = 1
