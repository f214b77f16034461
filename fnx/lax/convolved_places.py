"""Windows of a convolution, so that their neighbours are neighbours in memory.

>>> from fnx.core import dtypes
>>> x, w = (build.param(i, dtypes.float32, shape) for i, shape in enumerate([(1, 2, 9), (4, 2, 3)]))
>>> places = ConvolvedPlaces(x, w, (2,), (1,))
>>> places.in_phases()
>>> places.x.shape, places.w.shape, places.strides
((1, 4, 5), (4, 4, 2), [1])
"""

from __future__ import annotations

import math
from typing import Any

from fnx.core import build
from fnx.core.ops import Shape
from fnx.core.uop import UOp
from fnx.lax.folds import windows

_LANES = 16  # of float32 on wide machines; rows that fill few of them are better joined


class ConvolvedPlaces:
    """An input and a kernel, whose windows are counted along one axis where that is possible.

    Rows of an input that lie one behind the other are one long row. Windows with strides of 1
    along that row are all that there are, and some over the ends of rows, which are dropped: so
    neighbours are neighbours in memory, for results, gradients, and small images, too.
    """

    def __init__(self, x: UOp, w: UOp, strides: Shape, dilation: Shape) -> None:
        self.x, self.w = x, w
        self.strides, self.dilation = list(strides), list(dilation)
        reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilation)]
        self.out = tuple([max(0, (n - r) // s + 1) if r > 0 else -(-n // s)
                          for n, r, s in zip(x.shape[2:], reach, strides)])
        self.is_flat = False

    def in_phases(self) -> None:
        """Strides of s: every s-th place is a feature of its own, and the stride is 1.

        The kernel gets zeros where it is no multiple of s long.
        """
        if 0 in self.out or 0 in self.w.shape:
            return
        for i, (s, d) in enumerate(zip(self.strides, self.dilation)):
            size, axis = self.w.shape[2 + i], 2 + i
            if s == 1 or d % s and size > 1 and d > 1:
                continue
            if size == 1 or d > 1:  # all places of the kernel are in the first phase
                phases, long, self.dilation[i] = 1, size, max(1, d // s)
            else:
                phases, long = min(s, size), -(-size // s)
                self.w = _as_features(self.w, axis, long, s if long > 1 else size, phases)
            count = self.out[i] + (long - 1) * self.dilation[i]
            self.x = _as_features(self.x, axis, count, s, phases)
            self.strides[i] = 1

    def has_ends(self) -> bool:
        """Whether the kernel would get zeros behind its ends in phases."""
        return any(1 < s and k % s for s, k in zip(self.strides, self.w.shape[2:]))

    def windows(self, alone: bool) -> tuple[UOp, list[Any]]:
        """(batch, features, windows..., places of a window...) and names of the axes of windows.

        ``alone``: each feature by itself, which is no matrix product: there windows of several rows
        share what they read, which pays for what rows leave of their last vectors.
        """
        n, x, size = len(self.strides), self.x, self.w.shape[2:]
        rows = [math.prod(x.shape[3 + i:]) for i in range(n)]
        self.is_flat = n > 1 and max(self.strides) == 1 and 0 not in (*self.out, *size) and \
            self._pays(self.out[0] * rows[0], alone)
        if not self.is_flat:
            axes = range(2, 2 + n)
            return windows(x, size, tuple(self.strides), tuple(self.dilation), axes=axes), \
                [("at", i) for i in range(n)]
        if rows[0] > math.prod(self.out[1:]):  # the last windows reach over the end
            x = build.pad(x, [(0, 1) if a == 2 else (0, 0) for a in range(2 + n)])
        x = build.reshape(x, (*x.shape[:2], math.prod(x.shape[2:]), *(1,) * n))
        x = build.expand(x, (*x.shape[:3], *size))
        wide = [i for i in range(n) if size[i] > 1]
        for i in wide:
            count = self.out[0] * rows[0] if i == wide[-1] else None
            x = build.unfold(x, 2, 3 + i, 1, self.dilation[i] * rows[i], count)
        return x, ["at"]

    def _pays(self, places: int, alone: bool) -> bool:
        """Whether one row of so many places wastes less than rows apart."""
        if not alone:
            return 2 * places <= 3 * math.prod(self.out)
        return 3 * places <= 2 * math.prod(self.out[:-1]) * -(-self.out[-1] // _LANES) * _LANES

    def unrolled(self, out: UOp) -> UOp:
        """(batch, features, windows...) with an axis for each place again."""
        if not self.is_flat:
            return out
        out = build.reshape(out, (*out.shape[:2], self.out[0], *self.x.shape[3:]))
        return build.shrink(out, [(0, n) for n in (*out.shape[:2], *self.out)])


def _as_features(x: UOp, axis: int, count: int, step: int, phases: int) -> UOp:
    """Some axis as ``count`` times ``step`` places, the first ``phases`` of which are features."""
    n = x.shape[axis]
    x = build.shrink(x, [(0, min(n, count * step) if a == axis else m)
                         for a, m in enumerate(x.shape)])
    x = build.pad(x, [(0, max(0, count * step - n) if a == axis else 0)
                      for a in range(len(x.shape))])
    x = build.reshape(x, (*x.shape[:axis], count, step, *x.shape[axis + 1:]))
    x = build.shrink(x, [(0, phases if a == axis + 1 else m) for a, m in enumerate(x.shape)])
    order = [a for a in range(len(x.shape)) if a != axis + 1]
    x = build.permute(x, [*order[:2], axis + 1, *order[2:]])
    return build.reshape(x, (x.shape[0], x.shape[1] * phases, *x.shape[3:]))
