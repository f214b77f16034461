"""Windows of a convolution, so that their neighbours are neighbours in memory.

>>> from fnx.core import dtypes
>>> x = build.param(0, dtypes.float32, (1, 2, 9))
>>> places = ConvolvedPlaces(x, (3,), (2,), (1,))
>>> places.in_phases()
>>> places.x.shape, places.long, places.strides
((1, 4, 5), [2], [1])
>>> places.windows(alone=False)[0].shape
(1, 2, 4, 3)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fnx.core import build
from fnx.core.ops import Shape
from fnx.core.uop import UOp
from fnx.lax.folds import windows

_LANES = 16  # of float32 on wide machines


class ConvolvedPlaces:
    """An input, whose windows are counted along one axis where that is possible.

    Rows of an input that lie one behind the other are one long row. Windows with strides of 1
    along that row are all that there are, and some over the ends of rows, which are dropped: so
    neighbours are neighbours in memory, for results, gradients, and small images, too.

    Attributes:
        x: the input, of (batch, features and their phases, places).
        size: how many places a window has, along each of them.
        long: of how many of those of its first phase.
        phases: of a feature, along each place.
        strides, dilation: of windows in one phase.
        late: along which places windows are read again one place later, and so often; ``windows``
            has an axis for each, behind all others.
        out: how many windows there are.
    """

    def __init__(self, x: UOp, size: Shape, strides: Shape, dilation: Shape,
                 late: Mapping[int, int] | None = None) -> None:
        self.x, self.size, self.long, self.phases = x, size, list(size), [1] * len(size)
        self.strides, self.dilation = list(strides), list(dilation)
        self.late = dict(late or {})
        reach = [(k - 1) * d + self.late.get(i, 1) for i, (k, d) in enumerate(zip(size, dilation))]
        self.out = tuple([max(0, (m - r) // s + 1) if r > 0 else -(-m // s)
                          for m, r, s in zip(x.shape[2:], reach, strides)])
        self.is_flat = False

    def in_phases(self) -> None:
        """Strides of s: every s-th place is a phase of its own, and the stride is 1.

            x[p * s + k]  =  phases[k % s, p + k // s]
        """
        if 0 in self.out or 0 in self.size:
            return
        for i, (s, d) in enumerate(zip(self.strides, self.dilation)):
            size = self.size[i]
            if s == 1 or d % s and size > 1 and d > 1:
                continue
            if size == 1 or d > 1:  # all places of a window are in the first phase
                self.dilation[i] = max(1, d // s)
            else:
                self.phases[i], self.long[i] = min(s, size), -(-size // s)
            count = self.out[i] + (self.long[i] - 1) * self.dilation[i]
            self.x = _in_phases(self.x, 2 + i, count, s, self.phases[i])
            self.strides[i] = 1

    def windows(self, alone: bool, may_join: bool = True) -> tuple[UOp, list[Any]]:
        """(batch, features, windows..., places of a window...) and names of the axes of windows.

        ``alone``: each feature by itself, which is no matrix product: there windows of several rows
        share what they read, which pays for what rows leave of their last vectors. ``may_join``:
        rows may be one.
        """
        n, x = len(self.strides), self.x
        rows = [math.prod(x.shape[3 + i:]) for i in range(n)]
        self.is_flat = may_join and n > 1 and max(self.strides) == 1 and \
            0 not in (*self.out, *self.size) and self._pays(self.out[0] * rows[0], alone)
        steps = [(i, self.long[i], self.dilation[i]) for i in range(n)]
        for i, times in self.late.items():
            steps.insert([i for i, *_ in steps].index(i) + 1, (i, times, 1))
        if not self.is_flat:
            x = windows(x, tuple([size for _, size, _ in steps]),
                        tuple([self.strides[i] for i, *_ in steps]),
                        tuple([d for *_, d in steps]), axes=[2 + i for i, *_ in steps])
            return self._of_kernel(x, n, steps), [("at", i) for i in range(n)]
        if rows[0] > math.prod(self.out[1:]):  # the last windows reach over the end
            x = build.pad(x, [(0, int(a == 2)) for a in range(2 + n)])
        x = build.reshape(x, (*x.shape[:2], math.prod(x.shape[2:]), *(1,) * len(steps)))
        x = build.expand(x, (*x.shape[:3], *[size for _, size, _ in steps]))
        wide = [at for at, (_, size, _) in enumerate(steps) if size > 1]
        for at in wide:
            i, _, d = steps[at]
            count = self.out[0] * rows[0] if at == wide[-1] else None
            x = build.unfold(x, 2, 3 + at, 1, d * rows[i], count)
        return self._of_kernel(x, 1, steps), ["at"]

    def _of_kernel(self, seen: UOp, places: int, steps: Sequence[tuple[int, int, int]]) -> UOp:
        """Windows whose elements are counted as those of the kernel: k = l * phases + phase; and
        behind them how late."""
        n, (batch, features) = len(self.size), seen.shape[:2]
        at, behind = 2 + n, 2 + n + places  # the first axes of places, and of those of windows
        first = [[i for i, *_ in steps].index(i) for i in range(n)]
        order = [*first, *[a for a in range(len(steps)) if a not in first]]
        seen = build.permute(seen, [*range(2 + places), *[2 + places + a for a in order]])
        if self.phases == [1] * len(self.size):
            return seen
        late = seen.shape[2 + places + n:]
        seen = build.reshape(seen, (batch, features // math.prod(self.phases), *self.phases,
                                    *seen.shape[2:]))
        order = [a for i in range(n) for a in (behind + i, 2 + i)]
        seen = build.permute(seen, (0, 1, *range(at, behind), *order,
                                    *range(behind + n, len(seen.shape))))
        there = seen.shape[:2 + places]
        seen = build.reshape(seen, (*there, *map(math.prod, zip(self.long, self.phases)), *late))
        return build.shrink(seen, [(0, m) for m in (*there, *self.size, *late)])

    def _pays(self, places: int, alone: bool) -> bool:
        """Whether one row of so many places wastes less than rows apart: of lanes, where rows
        fill vectors; shorter ones are read more than once, or have lanes along features."""
        if not alone and self.out[-1] < _LANES:
            return 2 * places <= 3 * math.prod(self.out)
        apart = math.prod(self.out[:-1]) * -(-self.out[-1] // _LANES) * _LANES
        return 3 * places <= 2 * apart if alone else -(-places // _LANES) * _LANES <= apart

    def unrolled(self, out: UOp) -> UOp:
        """(batch, features, windows...) with an axis for each place again."""
        if not self.is_flat:
            return out
        out = build.reshape(out, (*out.shape[:2], self.out[0], *self.x.shape[3:]))
        return build.shrink(out, [(0, n) for n in (*out.shape[:2], *self.out)])


def _in_phases(x: UOp, axis: int, count: int, step: int, phases: int) -> UOp:
    """Some axis as ``count`` times ``step`` places, the first ``phases`` of which are features,
    those of one feature behind one another."""
    n, rank = x.shape[axis], len(x.shape)
    x = build.shrink(x, [(0, min(n, count * step) if a == axis else m)
                         for a, m in enumerate(x.shape)])
    x = build.pad(x, [(0, max(0, count * step - n) if a == axis else 0) for a in range(rank)])
    x = build.reshape(x, (*x.shape[:axis], count, step, *x.shape[axis + 1:]))
    x = build.shrink(x, [(0, phases if a == axis + 1 else m) for a, m in enumerate(x.shape)])
    order = [a for a in range(rank + 1) if a != axis + 1]
    x = build.permute(x, [*order[:2], axis + 1, *order[2:]])
    return build.reshape(x, (x.shape[0], x.shape[1] * phases, *x.shape[3:]))
