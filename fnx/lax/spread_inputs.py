"""Convolutions of dilated inputs by polyphase decomposition, without the inserted zeros.

    out[p] = sum over k of (x[i] where i * d = p + k - before, else 0) * w[k]

Result p meets elements of the input only at every d-th element of the kernel: at those of one of
d phases, r + l * d over l. The results of a phase are every d-th, too:

    out[q * d + (before - r) % d] = sum over l of x[q + late(r) + l - before // d] * w[r + l * d]

So each phase is a kernel of its own over the same windows with stride 1. ``late`` is 1 for phases
above ``before % d``, else 0. If d does not divide the kernel size, the first phases have one
element more than the last.

>>> spread = Spread(length=7, size=4, before=2, apart=2)
>>> spread.parts, spread.size, spread.count
([Phases(start=0, width=1, size=2, late=0, lates=2)], 2, 4)
>>> [(p.start, p.size, p.late) for p in Spread(length=7, size=3, before=2, apart=2).parts]
[(0, 2, 0), (1, 1, 1)]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fnx.core import build
from fnx.core.record import Record
from fnx.core.uop import UOp
from fnx.lax.convolved_places import ConvolvedPlaces
from fnx.numpy.contraction import Labels, contract


class Phases(Record):
    """A run of phases of equal size, in the order of their results: the last phase first.

    Attributes:
        start, width: the first phase, and the number of phases.
        size: the number of kernel elements of each phase.
        late: the offset of the phases within the windows.
        lates: 2 if as many phases follow whose offset is one higher, else 1.
    """

    start: int
    width: int
    size: int
    late: int
    lates: int

    def of_kernel(self, w: UOp, axis: int, apart: int) -> UOp:
        """Split an axis of the kernel into axes (lates, width, size)."""
        count, length = self.lates * self.width, self.size * apart
        w = _cut(w, axis, 0, min(length, w.shape[axis]))
        w = build.pad(w, [(0, length - n if a == axis else 0) for a, n in enumerate(w.shape)])
        w = build.reshape(w, (*w.shape[:axis], self.size, apart, *w.shape[axis + 1:]))
        w = _cut(w, axis + 1, self.start, self.start + count)
        w = build.reshape(w, (*w.shape[:axis + 1], self.lates, self.width, *w.shape[axis + 2:]))
        order = [*range(axis), axis + 1, axis + 2, axis, *range(axis + 3, len(w.shape))]
        return build.permute(build.flip(w, [axis + 2]), order)


class Spread:
    """The polyphase decomposition of one spatial dimension of a convolution.

    Args:
        length: the length of the result.
        size: the kernel size.
        before: the number of zeros in front of the dilated input.
        apart: the dilation of the input.

    Attributes:
        parts: the runs of phases, in the order of their results.
        size, lates: size and number of offsets of the windows that contain those of all phases.
        first: the start of the first window in the input.
        count: the number of windows.
    """

    def __init__(self, length: int, size: int, before: int, apart: int) -> None:
        self.length, self.apart, self.count = length, apart, -(-length // apart)
        self.first, first = -(before // apart), before % apart + 1
        each, more = divmod(size, apart)
        if not more and 2 * first == apart:
            self.parts = [Phases(0, first, each, 0, 2)]
        else:
            ends = [(low, high, late) for late, low, high in ((0, 0, first), (1, first, apart))]
            self.parts = [Phases(start, stop - start, each + (start < more), late, 1)
                          for low, high, late in ends
                          for start, stop in ((max(low, more), high), (low, min(high, more)))
                          if start < stop]
        self.size = max([p.late + p.size for p in self.parts if p.size])
        self.lates = self.parts[0].lates

    def padding(self, places: int) -> tuple[int, int]:
        """Return the padding of an input of length ``places``; negative numbers crop."""
        return -self.first, self.first + self.count - 2 + self.size + self.lates - places


def by_phases(w: UOp, seen: UOp, labels: Labels, spreads: Mapping[int, Spread],
              places: ConvolvedPlaces, spec: Sequence[int]) -> UOp:
    """Contract windows with each phase of the kernel and interleave the results.

    Args:
        w: the kernel: (group, output features, features, spatial...).
        seen: the windows, large enough for all phases.
        labels: the labels of the axes of ``seen``.
        spreads: spatial dimension -> its polyphase plan.
        places: the flattened input that the windows were taken from.
        spec: the layout of the result.
    """
    axes = sorted(spreads)
    lengths = {**dict(zip(labels, seen.shape)), "out": w.shape[1],
               **{("at", i): n for i, n in enumerate(places.out)}}
    out, shape, bounds = _result(spreads, spec, lengths)
    rest: list[Any] = [x for x in out if x[0] not in ("late", "width")]
    if places.is_flat:
        rest = ["batch", "group", "out", "at"]
    elif all(len(spreads[i].parts) == 1 for i in axes):  # one contraction writes the final layout
        total = _product(w, seen, labels, {i: spreads[i].parts[0] for i in axes}, spreads, out)
        return build.shrink(build.reshape(total, shape), bounds)
    lead = [(name, i) for i in axes for name in ("late", "width")]

    def joined(parts: tuple[Phases, ...]) -> UOp:
        at = len(parts)
        return block(parts) if at == len(axes) else build.concat(
            [joined((*parts, part)) for part in spreads[axes[at]].parts], at)

    def block(parts: tuple[Phases, ...]) -> UOp:
        phases = [p.lates * p.width for p in parts]
        whole = (*phases, *[lengths[x] for x in rest])
        if not all(p.size for p in parts):
            return build.const(0, w.dtype, whole)
        total = _product(w, seen, labels, dict(zip(axes, parts)), spreads, (*lead, *rest))
        return build.reshape(total, whole)

    total = joined(())
    if places.is_flat:
        *phases, batch, groups, outs, _ = total.shape
        total = places.unrolled(build.reshape(total, (math.prod(phases) * batch, groups * outs,
                                                      total.shape[-1])))
        rest = ["batch", "group", "out", *[("at", i) for i in range(len(places.out))]]
        total = build.reshape(total, (*phases, *[lengths[x] for x in rest]))
    order = [axes.index(x[1]) if x[0] == "late" else len(axes) + rest.index(x)
             for x in out if x[0] != "width"]
    return build.shrink(build.reshape(build.permute(total, order), shape), bounds)


def _result(spreads: Mapping[int, Spread], spec: Sequence[int], lengths: Mapping[Any, int]
            ) -> tuple[Labels, tuple[int, ...], list[tuple[int, int]]]:
    """Return the result's labels, its shape with phases merged, and the bounds to shrink it to."""
    labels: Labels = ()
    shape: list[int] = []
    bounds = []
    for axis in sorted(range(len(spec)), key=spec.__getitem__):
        i = axis - 2
        new: Labels = ("batch",) if axis == 0 else ("group", "out") if axis == 1 else (("at", i),)
        length = math.prod([lengths[x] for x in new])
        if i in spreads:
            new = (*new, ("late", i), ("width", i))
            length *= spreads[i].apart
        labels = (*labels, *new)
        shape.append(length)
        bounds.append((0, spreads[i].length if i in spreads else length))
    return labels, tuple(shape), bounds


def _product(w: UOp, seen: UOp, labels: Labels, parts: Mapping[int, Phases],
             spreads: Mapping[int, Spread], out: Labels) -> UOp:
    """Contract some phases of the kernel with their part of the windows."""
    of_kernel: Labels = ("group", "out", "feature", *[x for x in labels if x[0] == "in"])
    for i, part in parts.items():
        at = of_kernel.index(("in", i))
        w = part.of_kernel(w, at, spreads[i].apart)
        seen = _cut(seen, labels.index(("in", i)), part.late, part.late + part.size)
        of_kernel = (*of_kernel[:at], ("late", i), ("width", i), *of_kernel[at:])
    return contract(w, of_kernel, seen, labels, out, in_order=True)


def _cut(x: UOp, axis: int, low: int, high: int) -> UOp:
    return build.shrink(x, [(low, high) if a == axis else (0, n) for a, n in enumerate(x.shape)])
