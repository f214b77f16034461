"""The communicator that runs the collectives of this process, or of a thread that stands for one.

>>> from fnx.core.ir.collectives import ProcessGrid
>>> arg = Collective("process_index", ProcessGrid(("a",), (1,)), ("a",))
>>> run(arg, [])
[array(0, dtype=int32)]
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from fnx.core.ir.collectives import Collective, position, results
from fnx.core.ir.dtypes import NDArray
from fnx.core.support.errors import ArgumentError

Finish = Callable[[Sequence[NDArray]], list[NDArray]]  # targets, or none -> results


class Communicator(Protocol):
    """Exchanges arrays with the other processes, of which each calls the same in the same order."""

    rank: int
    size: int

    def start(self, arg: Collective, operands: Sequence[NDArray], is_overlapped: bool = True
              ) -> Finish:
        """Start a collective with the operands of this process; return what waits for it.
        ``is_overlapped``: whether something else runs before that."""

    def exchange(self, data: bytes, about: str) -> list[bytes]:
        """Return the data of all processes, by their ranks; ``about`` names it in errors."""


class _Single:
    """The communicator of a process that is alone."""

    rank, size = 0, 1

    def start(self, arg: Collective, operands: Sequence[NDArray], is_overlapped: bool = True
              ) -> Finish:
        """Return the results for a group of one process."""
        return lambda targets: results(arg, 0, [operands])

    def exchange(self, data: bytes, about: str) -> list[bytes]:
        """Return the data of one process."""
        return [data]


class _State(threading.local):
    of_thread: Communicator | None = None


_state = _State()
_tickets = itertools.count()
_started: dict[int, Finish] = {}  # collectives that nobody has waited for, by their tickets
_of_process: list[Communicator] = [_Single()]


def current() -> Communicator:
    """Return the communicator of this thread, or of the process."""
    return _state.of_thread or _of_process[0]


def of_process() -> Communicator:
    """Return the communicator of the process."""
    return _of_process[0]


def set_for_process(communicator: Communicator | None) -> None:
    """Make a communicator that of the process; None: it is alone."""
    _of_process[0] = _Single() if communicator is None else communicator


@contextlib.contextmanager
def use(communicator: Communicator) -> Iterator[None]:
    """Make a communicator that of this thread."""
    before, _state.of_thread = _state.of_thread, communicator
    try:
        yield
    finally:
        _state.of_thread = before


def run(arg: Collective, operands: Sequence[NDArray], targets: Sequence[NDArray] = ()
        ) -> list[NDArray]:
    """Return the results of a COLLECTIVE, which may be the ``targets``.

    Raises:
        ArgumentError: its grid has another number of processes.
    """
    return _start(arg, operands, False)(targets)


def start(arg: Collective, operands: Sequence[NDArray]) -> int:
    """Start a COLLECTIVE; return a ticket to wait for it. The operands stay as they are till then,
    except those of an all_reduce."""
    ticket = next(_tickets)
    _started[ticket] = _start(arg, operands, True)
    return ticket


def wait(ticket: int, targets: Sequence[NDArray] = ()) -> list[NDArray]:
    """Return the results of a COLLECTIVE that was started, which may be the ``targets``."""
    return _started.pop(ticket)(targets)


def _start(arg: Collective, operands: Sequence[NDArray], is_overlapped: bool) -> Finish:
    communicator = current()
    if (count := math.prod(arg.grid.sizes)) != communicator.size:
        raise ArgumentError(f"expected {count} processes, as the program was compiled for, got "
                            f"{communicator.size}", hint="run it in as many processes as it was "
                            "compiled for")
    if arg.name == "process_index":
        index = results(arg, position(arg.grid, communicator.rank, arg.names), [])
        return lambda targets: index
    return communicator.start(arg, operands, is_overlapped)
