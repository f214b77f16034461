"""Convert a STORE of a user-written kernel to array ops.

    o[i, j] = v                  PERMUTE                o[b * 4 + j] = v   RESHAPE
    o[i, 0] = v  into others     PAD, WHERE             o[y[i]] += v       SCATTER
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core import build, dtypes, ops, parts
from fnx.core.dtypes import DType
from fnx.core.uop import UOp
from fnx.transforms.kernels.reading import Affine, Over, Rank, affine, length, spread


def written(base: UOp, fresh: bool, store: UOp, place: Sequence[Over], value: Over,
            valid: Over | None, rank: Rank, integer: DType) -> UOp:
    """Return an output after a STORE.

    Args:
        base: the output before the STORE.
        fresh: whether nothing was written before.
        store: the STORE.
        place: the arrays of its indices.
        value: the array of the stored values.
        valid: the array of its condition; None if it has none.
        rank: the order of the loops.
        integer: the dtype of indices.
    """
    axes = tuple(sorted([r for r in store.ranges if length(r) != 1], key=rank))
    if 0 in map(length, axes):
        return base
    if store.arg in (None, ops.STORE):
        laid = _Laid.of(base.shape, store, axes)
        if laid is not None:
            return laid.over(base, fresh, value, valid)
    elif axes:
        value, valid, axes = _folded(store.arg, place, value, valid, axes)
    return _scattered(base, store.arg, place, value, valid, axes, integer)


class _Laid:
    """A STORE that movement ops can express: each axis is written in full, or in one block."""

    def __init__(self, shape: ops.Shape, forms: Sequence[Affine]) -> None:
        self.shape, self.forms = shape, forms

    @staticmethod
    def of(shape: ops.Shape, store: UOp, axes: Sequence[UOp]) -> _Laid | None:
        """Match a STORE. None if its indices do not have this form."""
        forms: list[Affine] = []
        for i in parts.indices(store):
            form = affine(i, lambda r: True)
            if form is None or not _is_block(form):
                return None
            forms.append(form)
        used = [r for form in forms for r, _ in form.steps]
        if len(used) != len(set(used)) or set(used) != set(axes):
            return None
        return _Laid(shape, forms)

    def _moved(self, x: Over) -> UOp:
        """Lay an array over ranges out along the axes of the output, padded with zeros."""
        wanted = [r for form in self.forms for r, _ in form.steps]
        node = spread(x, tuple(wanted)) if x.axes == tuple(wanted) else self._permuted(x, wanted)
        node = build.reshape(node, tuple([_size(form) for form in self.forms]))
        node = build.flip(node, [a for a, form in enumerate(self.forms) if _is_backwards(form)])
        cut, pad = [], []
        for form, n in zip(self.forms, self.shape):
            low, size = _start(form), _size(form)
            cut.append((min(max(0, -low), size), max(min(size, n - low), min(max(0, -low), size))))
            pad.append((max(low, 0), max(n - low - size, 0)))
        return build.pad(build.shrink(node, cut), pad)

    def _permuted(self, x: Over, wanted: Sequence[UOp]) -> UOp:
        there = [r for r in wanted if r in x.axes]
        node = build.permute(x.node, [x.axes.index(r) for r in there])
        return spread(Over(node, tuple(there)), tuple(wanted))

    def over(self, base: UOp, fresh: bool, value: Over, valid: Over | None) -> UOp:
        """Return the output after the STORE."""
        laid = self._moved(value)
        whole = all(_start(form) <= 0 and _start(form) + _size(form) >= n
                    for form, n in zip(self.forms, self.shape))
        if valid is None and (whole or fresh):
            return laid
        mask = self._moved(valid or Over(build.const(True, dtypes.bool_)))
        return build.where(mask, laid, base)


def _is_block(form: Affine) -> bool:
    """Whether an index covers a contiguous block of its axis."""
    steps = form.steps
    if len(steps) == 2:
        return steps[1][1] == 1 and steps[0][1] == length(steps[1][0])
    return len(steps) < 2 and all(abs(step) == 1 for _, step in steps)


def _is_backwards(form: Affine) -> bool:
    return any(step < 0 for _, step in form.steps)


def _size(form: Affine) -> int:
    return math.prod(length(r) for r, _ in form.steps)


def _start(form: Affine) -> int:
    return form.shift - (_size(form) - 1 if _is_backwards(form) else 0)


def _folded(monoid: ops.Op, place: Sequence[Over], value: Over, valid: Over | None,
            axes: tuple[UOp, ...]) -> tuple[Over, Over | None, tuple[UOp, ...]]:
    """Reduce over the ranges that no index depends on before scattering."""
    kept = tuple([r for r in axes if any(r in i.axes for i in place)])
    if kept == axes:
        return value, valid, axes
    x = spread(value, axes)
    if valid is not None:
        assert monoid.identity is not None
        x = build.where(spread(valid, axes), x, build.like(x, monoid.identity(x.dtype)))
    folded = build.reduce(x, monoid, [a for a, r in enumerate(axes) if r not in kept])
    return Over(folded, kept), None, kept


def _scattered(base: UOp, monoid: ops.Op | None, place: Sequence[Over], value: Over,
               valid: Over | None, axes: tuple[UOp, ...], integer: DType) -> UOp:
    shape = base.shape
    if not shape:  # 0-d: a single element
        base, place = build.reshape(base, (1,)), [Over(build.const(0, integer))]
    index = [build.cast(spread(i, axes), integer) for i in place]
    if valid is not None:  # send invalid writes out of bounds
        index[0] = build.where(spread(valid, axes), index[0], build.like(index[0], -1))
    out = build.scatter(base, index, spread(value, axes),
                        None if monoid is ops.STORE else monoid)
    return build.reshape(out, shape)
