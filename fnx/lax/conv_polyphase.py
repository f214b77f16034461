"""Convolutions of dilated inputs by polyphase decomposition, without the inserted zeros.

    out[p] = sum over k of (x[i] where i * d = p + k - before, else 0) * w[k]

Result p meets elements of the input only at every d-th element of the kernel: at those of one of
d phases, r + l * d over l. The results of a phase are every d-th, too:

    out[q * d + (before - r) % d] = sum over l of x[q + shift(r) + l - before // d] * w[r + l * d]

So each phase is a kernel of its own over the same windows with stride 1. ``shift`` is 1 for phases
above ``before % d``, else 0. If d does not divide the kernel size, the first phases have one
element more than the last.

>>> spread = PolyphasePlan(length=7, size=4, before=2, dilation=2)
>>> spread.phase_groups, spread.size, spread.count
([PhaseGroup(start=0, width=1, size=2, shift=0, num_shifts=2)], 2, 4)
>>> [(p.start, p.size, p.shift)
...  for p in PolyphasePlan(length=7, size=3, before=2, dilation=2).phase_groups]
[(0, 2, 0), (1, 1, 1)]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fnx.core.ir import build
from fnx.core.ir.uop import UOp
from fnx.core.support.record import Record
from fnx.lax.conv_space_to_depth import ConvWindows
from fnx.numpy.contraction import Labels, contract


class PhaseGroup(Record):
    """A run of phases of equal size, in the order of their results: the last phase first.

    Attributes:
        start, width: the first phase, and the number of phases.
        size: the number of kernel elements of each phase.
        shift: the offset of the phases within the windows.
        num_shifts: 2 if as many phases follow whose offset is one higher, else 1.
    """

    start: int
    width: int
    size: int
    shift: int
    num_shifts: int

    def split_kernel(self, w: UOp, axis: int, dilation: int) -> UOp:
        """Split an axis of the kernel into axes (num_shifts, width, size)."""
        count, length = self.num_shifts * self.width, self.size * dilation
        w = _slice_axis(w, axis, 0, min(length, w.shape[axis]))
        w = build.pad(w, [(0, length - n if a == axis else 0) for a, n in enumerate(w.shape)])
        w = build.reshape(w, (*w.shape[:axis], self.size, dilation, *w.shape[axis + 1:]))
        w = _slice_axis(w, axis + 1, self.start, self.start + count)
        w = build.reshape(w,
                          (*w.shape[:axis + 1], self.num_shifts, self.width, *w.shape[axis + 2:]))
        order = [*range(axis), axis + 1, axis + 2, axis, *range(axis + 3, len(w.shape))]
        return build.permute(build.flip(w, [axis + 2]), order)


class PolyphasePlan:
    """The polyphase decomposition of one spatial dimension of a convolution.

    Args:
        length: the length of the result.
        size: the kernel size.
        before: the number of zeros in front of the dilated input.
        dilation: the dilation of the input.

    Attributes:
        phase_groups: the runs of phases, in the order of their results.
        size, num_shifts: size and number of offsets of the windows that contain those of all
            phases.
        first: the start of the first window in the input.
        count: the number of windows.
    """

    def __init__(self, length: int, size: int, before: int, dilation: int) -> None:
        self.length, self.lhs_dilation, self.count = length, dilation, -(-length // dilation)
        self.first, first = -(before // dilation), before % dilation + 1
        quotient, remainder = divmod(size, dilation)
        if not remainder and 2 * first == dilation:
            self.phase_groups = [PhaseGroup(0, first, quotient, 0, 2)]
        else:
            ranges = [(low, high, shift)
                      for shift, low, high in ((0, 0, first), (1, first, dilation))]
            self.phase_groups = [
                PhaseGroup(start, stop - start, quotient + (start < remainder), shift, 1)
                for low, high, shift in ranges
                for start, stop in ((max(low, remainder), high), (low, min(high, remainder)))
                if start < stop]
        self.size = max([p.shift + p.size for p in self.phase_groups if p.size])
        self.num_shifts = self.phase_groups[0].num_shifts

    def padding(self, input_length: int) -> tuple[int, int]:
        """Return the padding of an input of length ``input_length``; negative numbers crop."""
        return -self.first, self.first + self.count - 2 + self.size + self.num_shifts - input_length


def contract_phases(w: UOp, patches: UOp, labels: Labels, plans: Mapping[int, PolyphasePlan],
                    conv_input: ConvWindows, spec: Sequence[int]) -> UOp:
    """Contract windows with each phase of the kernel and interleave the results.

    Args:
        w: the kernel: (group, output features, features, spatial...).
        patches: the windows, large enough for all phases.
        labels: the labels of the axes of ``patches``.
        plans: spatial dimension -> its polyphase plan.
        conv_input: the flattened input that the windows were taken from.
        spec: the layout of the result.
    """
    axes = sorted(plans)
    lengths = {**dict(zip(labels, patches.shape)), "out": w.shape[1],
               **{("at", i): n for i, n in enumerate(conv_input.out)}}
    out, shape, bounds = _result_layout(plans, spec, lengths)
    tail_labels: list[Any] = [x for x in out if x[0] not in ("late", "width")]
    if conv_input.is_flat:
        tail_labels = ["batch", "group", "out", "at"]
    # one contraction writes the final layout
    elif all(len(plans[i].phase_groups) == 1 for i in axes):
        total = _contract_group(w, patches, labels, {i: plans[i].phase_groups[0] for i in axes},
                                plans, out)
        return build.shrink(build.reshape(total, shape), bounds)
    lead_labels = [(name, i) for i in axes for name in ("late", "width")]

    def concat_phases(parts: tuple[PhaseGroup, ...]) -> UOp:
        depth = len(parts)
        return phase_block(parts) if depth == len(axes) else build.concat(
            [concat_phases((*parts, part)) for part in plans[axes[depth]].phase_groups], depth)

    def phase_block(parts: tuple[PhaseGroup, ...]) -> UOp:
        phases = [p.num_shifts * p.width for p in parts]
        full_shape = (*phases, *[lengths[x] for x in tail_labels])
        if not all(p.size for p in parts):
            return build.const(0, w.dtype, full_shape)
        total = _contract_group(w, patches, labels, dict(zip(axes, parts)), plans,
                                (*lead_labels, *tail_labels))
        return build.reshape(total, full_shape)

    total = concat_phases(())
    if conv_input.is_flat:
        *phases, batch, groups, outs, _ = total.shape
        total = conv_input.restore_axes(build.reshape(total,
                                                      (math.prod(phases) * batch, groups * outs,
                                                       total.shape[-1])))
        tail_labels = ["batch", "group", "out", *[("at", i) for i in range(len(conv_input.out))]]
        total = build.reshape(total, (*phases, *[lengths[x] for x in tail_labels]))
    order = [axes.index(x[1]) if x[0] == "late" else len(axes) + tail_labels.index(x)
             for x in out if x[0] != "width"]
    return build.shrink(build.reshape(build.permute(total, order), shape), bounds)


def _result_layout(plans: Mapping[int, PolyphasePlan], spec: Sequence[int],
                   lengths: Mapping[Any, int]
                   ) -> tuple[Labels, tuple[int, ...], list[tuple[int, int]]]:
    """Return the result's labels, its shape with phases merged, and the bounds to shrink it to."""
    labels: Labels = ()
    shape: list[int] = []
    bounds = []
    for axis in sorted(range(len(spec)), key=spec.__getitem__):
        i = axis - 2
        new: Labels = ("batch",) if axis == 0 else ("group", "out") if axis == 1 else (("at", i),)
        length = math.prod([lengths[x] for x in new])
        if i in plans:
            new = (*new, ("late", i), ("width", i))
            length *= plans[i].lhs_dilation
        labels = (*labels, *new)
        shape.append(length)
        bounds.append((0, plans[i].length if i in plans else length))
    return labels, tuple(shape), bounds


def _contract_group(w: UOp, patches: UOp, labels: Labels, parts: Mapping[int, PhaseGroup],
                    plans: Mapping[int, PolyphasePlan], out: Labels) -> UOp:
    """Contract some phases of the kernel with their part of the windows."""
    kernel_labels: Labels = ("group", "out", "feature", *[x for x in labels if x[0] == "in"])
    for i, part in parts.items():
        at = kernel_labels.index(("in", i))
        w = part.split_kernel(w, at, plans[i].lhs_dilation)
        patches = _slice_axis(patches, labels.index(("in", i)), part.shift, part.shift + part.size)
        kernel_labels = (*kernel_labels[:at], ("late", i), ("width", i), *kernel_labels[at:])
    return contract(w, kernel_labels, patches, labels, out, in_order=True)


def _slice_axis(x: UOp, axis: int, low: int, high: int) -> UOp:
    return build.shrink(x, [(low, high) if a == axis else (0, n) for a, n in enumerate(x.shape)])
