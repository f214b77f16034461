"""The communicator that runs the collectives of this process, or of a thread that stands for one.

>>> from fnx.core.ir.collectives import ProcessGrid
>>> arg = Collective("process_index", ProcessGrid(("a",), (1,)), ("a",))
>>> run(arg, [])
[array(0, dtype=int32)]
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Sequence
from typing import Protocol

from fnx.core.ir.collectives import Collective, position, results
from fnx.core.ir.dtypes import NDArray
from fnx.core.support.errors import ArgumentError


class Communicator(Protocol):
    """Exchanges arrays with the other processes, of which each calls the same in the same order."""

    rank: int
    size: int

    def run(self, arg: Collective, operands: Sequence[NDArray], targets: Sequence[NDArray] = ()
            ) -> list[NDArray]:
        """Return the results of a collective for the operands of this process. They may be the
        ``targets``, arrays for them."""

    def exchange(self, data: bytes, about: str) -> list[bytes]:
        """Return the data of all processes, by their ranks; ``about`` names it in errors."""


class _Single:
    """The communicator of a process that is alone."""

    rank, size = 0, 1

    def run(self, arg: Collective, operands: Sequence[NDArray], targets: Sequence[NDArray] = ()
            ) -> list[NDArray]:
        """Return the results for a group of one process."""
        return results(arg, 0, [operands])

    def exchange(self, data: bytes, about: str) -> list[bytes]:
        """Return the data of one process."""
        return [data]


class _State(threading.local):
    of_thread: Communicator | None = None


_state = _State()
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
    communicator = current()
    if (count := math.prod(arg.grid.sizes)) != communicator.size:
        raise ArgumentError(f"expected {count} processes, as the program was compiled for, got "
                            f"{communicator.size}", hint="run it in as many processes as it was "
                            "compiled for")
    if arg.name == "process_index":
        return results(arg, position(arg.grid, communicator.rank, arg.names), [])
    return communicator.run(arg, operands, targets)
