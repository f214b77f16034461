"""A callback for tests that records what it was called with."""

from __future__ import annotations

from typing import Any

import numpy as np

import fnx


class Log:
    """The calls of a callback, in order."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def __call__(self, *xs: Any) -> None:
        self.seen.append(tuple([np.asarray(x).tolist() for x in xs]))

    def taken(self) -> list[Any]:
        fnx.effects_barrier()
        seen, self.seen = self.seen, []
        return seen
