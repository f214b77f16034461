"""Convolution windows with unit stride in memory, by space-to-depth and flattening of rows.

>>> from fnx.core.ir import dtypes
>>> x = build.param(0, dtypes.float32, (1, 2, 9))
>>> places = ConvWindows(x, (3,), (2,), (1,))
>>> places.space_to_depth()
>>> places.x.shape, places.phase_size, places.strides
((1, 4, 5), [2], [1])
>>> places.windows(depthwise=False)[0].shape
(1, 2, 4, 3)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fnx.core.ir import build
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp
from fnx.lax.generic_reductions import extract_windows

_VECTOR_LANES = 16  # float32 lanes of the widest vectors


class ConvWindows:
    """The input of a convolution, whose windows are flattened into one axis where that pays.

    Contiguous rows of the input are treated as one long row. The windows with stride 1 along it
    include all windows of the convolution, and some that straddle the ends of rows, which
    ``restore_axes`` drops. So adjacent windows are adjacent in memory, in results, in gradients and
    in small images.

    Attributes:
        x: the input, of axes (batch, features times phases, spatial...).
        size: the window size in each spatial dimension.
        phase_size: the window size within the first phase, in each spatial dimension.
        phases: the number of phases of a feature in each spatial dimension.
        strides, dilation: those of windows within one phase.
        shift: spatial dimension -> how many times its windows are read, each time one element
            later; ``windows`` adds one axis for each at the end.
        out: the number of windows in each spatial dimension.
        is_flat: whether ``windows`` flattened the spatial dimensions into one axis.
    """

    def __init__(self, x: UOp, size: Shape, strides: Shape, dilation: Shape,
                 shift: Mapping[int, int] | None = None) -> None:
        self.x, self.size, self.phase_size, self.phases = x, size, list(size), [1] * len(size)
        self.strides, self.dilation = list(strides), list(dilation)
        self.shift = dict(shift or {})
        extents = [(k - 1) * d + self.shift.get(i, 1)
                   for i, (k, d) in enumerate(zip(size, dilation))]
        self.out = tuple([max(0, (m - r) // s + 1) if r > 0 else -(-m // s)
                          for m, r, s in zip(x.shape[2:], extents, strides)])
        self.is_flat = False

    def space_to_depth(self) -> None:
        """Split strided dimensions into phases (space-to-depth), after which the stride is 1.

            x[p * s + k]  =  phases[k % s, p + k // s]
        """
        if 0 in self.out or 0 in self.size:
            return
        for i, (s, d) in enumerate(zip(self.strides, self.dilation)):
            size = self.size[i]
            if s == 1 or d % s and size > 1 and d > 1:
                continue
            if size == 1 or d > 1:  # all elements of a window are in the first phase
                self.dilation[i] = max(1, d // s)
            else:
                self.phases[i], self.phase_size[i] = min(s, size), -(-size // s)
            count = self.out[i] + (self.phase_size[i] - 1) * self.dilation[i]
            self.x = _space_to_depth(self.x, 2 + i, count, s, self.phases[i])
            self.strides[i] = 1

    def windows(self, depthwise: bool, may_flatten: bool = True) -> tuple[UOp, list[Any]]:
        """Return (batch, features, windows..., window elements...) and labels of the window axes.

        Args:
            depthwise: whether the convolution is depthwise, which is no matrix product. There,
                windows of several rows share loads, which pays for the partial vectors at the ends
                of rows.
            may_flatten: whether rows may be flattened into one.
        """
        n, x = len(self.strides), self.x
        rows = [math.prod(x.shape[3 + i:]) for i in range(n)]
        self.is_flat = may_flatten and n > 1 and max(self.strides) == 1 and \
            0 not in (*self.out, *self.size) and \
            self._is_flat_cheaper(self.out[0] * rows[0], depthwise)
        steps = [(i, self.phase_size[i], self.dilation[i]) for i in range(n)]
        for i, times in self.shift.items():
            steps.insert([i for i, *_ in steps].index(i) + 1, (i, times, 1))
        if not self.is_flat:
            x = extract_windows(x, tuple([size for _, size, _ in steps]),
                                tuple([self.strides[i] for i, *_ in steps]),
                                tuple([d for *_, d in steps]), axes=[2 + i for i, *_ in steps])
            return self._order_as_kernel(x, n, steps), [("at", i) for i in range(n)]
        if rows[0] > math.prod(self.out[1:]):  # the last windows extend past the end
            x = build.pad(x, [(0, int(a == 2)) for a in range(2 + n)])
        x = build.reshape(x, (*x.shape[:2], math.prod(x.shape[2:]), *(1,) * len(steps)))
        x = build.expand(x, (*x.shape[:3], *[size for _, size, _ in steps]))
        nontrivial = [at for at, (_, size, _) in enumerate(steps) if size > 1]
        for at in nontrivial:
            i, _, d = steps[at]
            count = self.out[0] * rows[0] if at == nontrivial[-1] else None
            x = build.unfold(x, 2, 3 + at, 1, d * rows[i], count)
        return self._order_as_kernel(x, 1, steps), ["at"]

    def _order_as_kernel(self, patches: UOp, window_rank: int,
                         steps: Sequence[tuple[int, int, int]]) -> UOp:
        """Order window elements as those of the kernel, k = l * phases + phase, then the
        ``shift_shape`` axes.
        """
        n, (batch, features) = len(self.size), patches.shape[:2]
        # the first axis of windows, and of window elements
        first_window, first_element = 2 + n, 2 + n + window_rank
        first = [[i for i, *_ in steps].index(i) for i in range(n)]
        order = [*first, *[a for a in range(len(steps)) if a not in first]]
        patches = build.permute(patches,
                                [*range(2 + window_rank), *[2 + window_rank + a for a in order]])
        if self.phases == [1] * len(self.size):
            return patches
        shift_shape = patches.shape[2 + window_rank + n:]
        patches = build.reshape(patches, (batch, features // math.prod(self.phases), *self.phases,
                                          *patches.shape[2:]))
        order = [a for i in range(n) for a in (first_element + i, 2 + i)]
        patches = build.permute(patches, (0, 1, *range(first_window, first_element), *order,
                                          *range(first_element + n, len(patches.shape))))
        leading = patches.shape[:2 + window_rank]
        patches = build.reshape(patches,
                                (*leading, *map(math.prod, zip(self.phase_size, self.phases)),
                                 *shift_shape))
        return build.shrink(patches, [(0, m) for m in (*leading, *self.size, *shift_shape)])

    def _is_flat_cheaper(self, flat_count: int, depthwise: bool) -> bool:
        """Return whether one flat row of ``flat_count`` windows wastes less than separate rows.

        The waste is counted in SIMD lanes where rows fill vectors. Shorter rows are vectorized
        along features or read more than once.
        """
        if not depthwise and self.out[-1] < _VECTOR_LANES:
            return 2 * flat_count <= 3 * math.prod(self.out)
        row_lanes = math.prod(self.out[:-1]) * -(-self.out[-1] // _VECTOR_LANES) * _VECTOR_LANES
        return 3 * flat_count <= 2 * row_lanes if depthwise else \
            -(-flat_count // _VECTOR_LANES) * _VECTOR_LANES <= row_lanes

    def restore_axes(self, out: UOp) -> UOp:
        """Restore one axis per spatial dimension in (batch, features, windows...)."""
        if not self.is_flat:
            return out
        out = build.reshape(out, (*out.shape[:2], self.out[0], *self.x.shape[3:]))
        return build.shrink(out, [(0, n) for n in (*out.shape[:2], *self.out)])


def _space_to_depth(x: UOp, axis: int, count: int, step: int, phases: int) -> UOp:
    """Split an axis into ``count`` x ``step`` elements and move the first ``phases`` of each step
    into the feature axis, where the phases of one feature are adjacent.
    """
    n, rank = x.shape[axis], len(x.shape)
    x = build.shrink(x, [(0, min(n, count * step) if a == axis else m)
                         for a, m in enumerate(x.shape)])
    x = build.pad(x, [(0, max(0, count * step - n) if a == axis else 0) for a in range(rank)])
    x = build.reshape(x, (*x.shape[:axis], count, step, *x.shape[axis + 1:]))
    x = build.shrink(x, [(0, phases if a == axis + 1 else m) for a, m in enumerate(x.shape)])
    order = [a for a in range(rank + 1) if a != axis + 1]
    x = build.permute(x, [*order[:2], axis + 1, *order[2:]])
    return build.reshape(x, (x.shape[0], x.shape[1] * phases, *x.shape[3:]))
