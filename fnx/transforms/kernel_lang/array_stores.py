"""Convert a STORE of a user-written kernel to array ops.

    o[i, j] = v                  PERMUTE                o[b * 4 + j] = v   RESHAPE
    o[i, 0] = v  into others     PAD, WHERE             o[y[i]] += v       SCATTER
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp
from fnx.transforms.kernel_lang.array_loads import (
    AffineIndex,
    RangedArray,
    RangeRank,
    expand_to,
    match_affine,
    trip_count,
)


def apply_store(base: UOp, is_first: bool, store: UOp, indices: Sequence[RangedArray],
                value: RangedArray, valid: RangedArray | None, rank: RangeRank,
                integer: DType) -> UOp:
    """Return an output after a STORE.

    Args:
        base: the output before the STORE.
        is_first: whether nothing was written before.
        store: the STORE.
        indices: the arrays of its indices.
        value: the array of the stored values.
        valid: the array of its condition; None if it has none.
        rank: the order of the loops.
        integer: the dtype of indices.
    """
    axes = tuple(sorted([r for r in store.ranges if trip_count(r) != 1], key=rank))
    if 0 in map(trip_count, axes):
        return base
    if store.arg in (None, ops.STORE):
        block = _BlockStore.of(base.shape, store, axes)
        if block is not None:
            return block.over(base, is_first, value, valid)
    elif axes:
        value, valid, axes = _reduce_unindexed(store.arg, indices, value, valid, axes)
    return _scatter(base, store.arg, indices, value, valid, axes, integer)


class _BlockStore:
    """A STORE that movement ops can express: each axis is written in full, or in one block."""

    def __init__(self, shape: ops.Shape, forms: Sequence[AffineIndex]) -> None:
        self.shape, self.forms = shape, forms

    @staticmethod
    def of(shape: ops.Shape, store: UOp, axes: Sequence[UOp]) -> _BlockStore | None:
        """Match a STORE. None if its indices do not have this form."""
        forms: list[AffineIndex] = []
        for i in accessors.indices(store):
            form = match_affine(i, lambda r: True)
            if form is None or not _is_contiguous(form):
                return None
            forms.append(form)
        used = [r for form in forms for r, _ in form.steps]
        if len(used) != len(set(used)) or set(used) != set(axes):
            return None
        return _BlockStore(shape, forms)

    def _to_output_layout(self, x: RangedArray) -> UOp:
        """Lay an array over ranges out along the axes of the output, padded with zeros."""
        order = [r for form in self.forms for r, _ in form.steps]
        node = expand_to(x, tuple(order)) if x.axes == tuple(order) else self._permuted(x, order)
        node = build.reshape(node, tuple([_size(form) for form in self.forms]))
        node = build.flip(node, [a for a, form in enumerate(self.forms) if _is_backwards(form)])
        crop, padding = [], []
        for form, n in zip(self.forms, self.shape):
            low, size = _start(form), _size(form)
            crop.append((min(max(0, -low), size), max(min(size, n - low), min(max(0, -low), size))))
            padding.append((max(low, 0), max(n - low - size, 0)))
        return build.pad(build.shrink(node, crop), padding)

    def _permuted(self, x: RangedArray, order: Sequence[UOp]) -> UOp:
        present = [r for r in order if r in x.axes]
        node = build.permute(x.node, [x.axes.index(r) for r in present])
        return expand_to(RangedArray(node, tuple(present)), tuple(order))

    def over(self, base: UOp, is_first: bool, value: RangedArray, valid: RangedArray | None) -> UOp:
        """Return the output after the STORE."""
        stored = self._to_output_layout(value)
        is_full = all(_start(form) <= 0 and _start(form) + _size(form) >= n
                      for form, n in zip(self.forms, self.shape))
        if valid is None and (is_full or is_first):
            return stored
        mask = self._to_output_layout(valid or RangedArray(build.const(True, dtypes.bool_)))
        return build.where(mask, stored, base)


def _is_contiguous(form: AffineIndex) -> bool:
    """Whether an index covers a contiguous block of its axis."""
    steps = form.steps
    if len(steps) == 2:
        return steps[1][1] == 1 and steps[0][1] == trip_count(steps[1][0])
    return len(steps) < 2 and all(abs(step) == 1 for _, step in steps)


def _is_backwards(form: AffineIndex) -> bool:
    return any(step < 0 for _, step in form.steps)


def _size(form: AffineIndex) -> int:
    return math.prod(trip_count(r) for r, _ in form.steps)


def _start(form: AffineIndex) -> int:
    return form.shift - (_size(form) - 1 if _is_backwards(form) else 0)


def _reduce_unindexed(
    monoid: ops.Op, indices: Sequence[RangedArray], value: RangedArray,
    valid: RangedArray | None, axes: tuple[UOp, ...],
) -> tuple[RangedArray, RangedArray | None, tuple[UOp, ...]]:
    """Reduce over the ranges that no index depends on before scattering."""
    indexed = tuple([r for r in axes if any(r in i.axes for i in indices)])
    if indexed == axes:
        return value, valid, axes
    x = expand_to(value, axes)
    if valid is not None:
        assert monoid.identity is not None
        x = build.where(expand_to(valid, axes), x, build.const_like(x, monoid.identity(x.dtype)))
    reduced = build.reduce(x, monoid, [a for a, r in enumerate(axes) if r not in indexed])
    return RangedArray(reduced, indexed), None, indexed


def _scatter(base: UOp, monoid: ops.Op | None, indices: Sequence[RangedArray], value: RangedArray,
             valid: RangedArray | None, axes: tuple[UOp, ...], integer: DType) -> UOp:
    shape = base.shape
    if not shape:  # 0-d: a single element
        base, indices = build.reshape(base, (1,)), [RangedArray(build.const(0, integer))]
    index = [build.cast(expand_to(i, axes), integer) for i in indices]
    if valid is not None:  # send invalid writes out of bounds
        index[0] = build.where(expand_to(valid, axes), index[0], build.const_like(index[0], -1))
    out = build.scatter(base, index, expand_to(value, axes),
                        None if monoid is ops.STORE else monoid)
    return build.reshape(out, shape)
