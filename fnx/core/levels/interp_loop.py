"""The state of a LOOP in the interpreter: carried values, and the values of its PER_ITERATIONs.

Each carried value is an array over the ranges that it depends on, with extent 1 along the loop's
own axis. If the loop has a stop condition, each element ends by itself, and then keeps its values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core.ir import accessors, ops
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.uop import UOp, toposort


class LoopState:
    """A LOOP that runs along ``axis``.

    Attributes:
        last: the carried values.
        steps: value under a PER_ITERATION -> its values in all iterations, once the loop has ended.
    """

    def __init__(self, loop: UOp, values: Sequence[UOp], axis: int, inits: Sequence[NDArray]
                 ) -> None:
        self.loop, self.axis = loop, axis
        self.last = list(inits)
        self.steps: dict[UOp, Any] = {v: [] for v in values}
        self._active: list[NDArray] = []  # the active mask of each iteration
        self._step_masks: dict[UOp, list[NDArray]] = {v: [] for v in values}  # active masks by step

    def update_active(self, stop: NDArray) -> bool:
        """Deactivate elements where ``stop`` holds; return whether any element is active."""
        previous = self._active[-1] if self._active else np.ones((1,) * stop.ndim, bool)
        active = previous & ~stop
        if active.any():
            self._active.append(active)
            return True
        return False

    def record(self, values: Mapping[UOp, Any], inner: Mapping[UOp, NDArray]) -> None:
        """Record an iteration; ``inner`` holds the active masks of steps of inner loops."""
        nexts = [values[n] for n in accessors.next_values(self.loop)]
        if self._active and not self._active[-1].all():
            nexts = [np.where(self._active[-1], n, old) for n, old in zip(nexts, self.last)]
        self.last = nexts
        for value, history in self.steps.items():
            history.append(values[value])
            masks = [*self._active[-1:], *([inner[value]] if value in inner else [])]
            if masks:
                self._step_masks[value].append(np.logical_and.reduce(np.broadcast_arrays(*masks)))

    def finish(self, trips: int) -> None:
        """Stack the values of all iterations along the loop's axis, 0 for those not run."""
        for value, history in self.steps.items():
            self.steps[value] = self._stack(history, trips, value.dtype.np)

    def ran(self, value: UOp, trips: int) -> NDArray | None:
        """Return the active mask of a step over all iterations; None: active everywhere."""
        if accessors.stop_condition(self.loop) is None and not self._step_masks[value]:
            return None
        return self._stack(self._step_masks[value], trips, np.dtype(bool))

    def _stack(self, history: Sequence[NDArray], trips: int, dtype: np.dtype[Any]) -> NDArray:
        ndim = self.last[0].ndim
        shape = [1] * ndim if not history else \
            list(np.broadcast_shapes(*{s.shape for s in history}))
        shape[self.axis] = trips
        out = np.zeros(shape, dtype)
        for i, s in enumerate(history):
            np.moveaxis(out, self.axis, 0)[i] = np.moveaxis(s, self.axis, 0)[0]
        return out


def group_by_loops(kernel: UOp) -> list[list[UOp]]:
    """Return for each STORE of a KERNEL the STOREs that share a LOOP with it, directly or
    transitively, and itself."""
    if len(kernel.src) == 1:
        return [list(kernel.src)]
    groups = [[i] for i in range(len(kernel.src))]
    first: dict[UOp, int] = {}  # LOOP -> the first STORE that contains it
    for i, store in enumerate(kernel.src):
        for loop in (n for n in toposort([store]) if n.op is ops.LOOP):
            group, earlier = groups[i], groups[first.setdefault(loop, i)]
            if group is not earlier:
                earlier += group
                for j in group:
                    groups[j] = earlier
    return [[kernel.src[j] for j in sorted(group)] for group in groups]
