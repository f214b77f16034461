"""Threads that stand for processes: each interprets the program of its rank."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fnx.core.ir.collectives import Collective, ProcessGrid, group, results
from fnx.core.scope import communicator

T = TypeVar("T")
TIMEOUT = 30.0  # seconds that a thread waits for the others


class _Meeting:
    """Where threads exchange operands: each writes its own, and all wait at a barrier."""

    def __init__(self, size: int) -> None:
        self.barrier = threading.Barrier(size)
        self.operands: list[Any] = [None] * size


class ThreadCommunicator:
    """A communicator between threads. ``log`` has the collectives that ran."""

    def __init__(self, meeting: _Meeting, rank: int, size: int) -> None:
        self.rank, self.size, self._meeting = rank, size, meeting
        self.log: list[Collective] = []

    def start(self, arg: Collective, operands: Sequence[Any], *_: Any
              ) -> Callable[..., list[Any]]:
        """Exchange operands; an error if the threads run other collectives."""
        self.log.append(arg)
        self._meeting.operands[self.rank] = arg, operands
        self._meeting.barrier.wait(TIMEOUT)
        assert all(a == arg for a, _ in self._meeting.operands)
        ranks = group(arg.grid, self.rank, arg.names)
        out = results(arg, ranks.index(self.rank), [self._meeting.operands[r][1] for r in ranks])
        self._meeting.barrier.wait(TIMEOUT)
        return lambda targets: out


def run_ranks(grid: ProcessGrid, f: Callable[[int], T]) -> tuple[list[T], list[Collective]]:
    """Call ``f(rank)`` in a thread for each process of a grid; return its results, and the
    collectives of rank 0.

    Raises:
        BaseException: the first error of a thread.
    """
    size = math.prod(grid.sizes)
    meeting, out, errors = _Meeting(size), [None] * size, []
    ranks = [ThreadCommunicator(meeting, rank, size) for rank in range(size)]

    def body(rank: int) -> None:
        try:
            with communicator.use(ranks[rank]):
                out[rank] = f(rank)  # type: ignore[call-overload]
        except BaseException as error:
            errors.append(error)
            meeting.barrier.abort()

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((e for e in errors if not isinstance(e, threading.BrokenBarrierError)),
                   errors[0])
    return out, ranks[0].log  # type: ignore[return-value]
