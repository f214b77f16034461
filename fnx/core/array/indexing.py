"""NumPy's indexing of a node: ``x[index]``, and writing at an index.

An index is a tuple of int, slice, None, Ellipsis, masks (NumPy arrays of bool) and nodes of
integers. It splits into a *basic* part, which is only movement ops (SHRINK, FLIP, RESHAPE), and an
*advanced* part, which is one GATHER or SCATTER:

    x[1:, i, None]  ->  y = x[:, :, None] (moves);  GATHER over y's axes 0 and 1, whose result
                        axes stand where NumPy puts them

Next to index arrays, partial slices become index arrays, too: elements outside them are neither
read nor written, so the cost of a write is proportional to what it writes. A write with slices
alone merges the value into x under a constant mask (WHERE preserves every bit outside). An
out-of-bounds index is clamped by a read and dropped by a write, as in JAX, unless ``mode`` says
otherwise; a static one also warns (out_of_bounds.py).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fnx.core.array import arguments, axes, out_of_bounds
from fnx.core.array.out_of_bounds import OutOfBoundsPolicy
from fnx.core.ir import build, dtypes
from fnx.core.ir.expr import Expr, maximum, minimum, where
from fnx.core.ir.index_arrays import broadcast_indices, index_dtype, index_range
from fnx.core.ir.op import inverse_permutation, max_value, min_value, other_axes
from fnx.core.ir.ops import Op, Shape
from fnx.core.ir.uop import UOp, set_composite
from fnx.core.rewriting.dimensions import Dim
from fnx.core.scope import storage
from fnx.core.support.errors import (
    ArgumentError,
    DTypeError,
    OutOfBoundsError,
    ShapeError,
    TracedMaskError,
)
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record

array_operators = lazy_import("fnx.core.array.array_operators")
axis_lengths = lazy_import("fnx.core.rewriting.lengths")
complex_scatter = lazy_import("fnx.core.formulas.complex_scatter")

_READ_POLICIES: dict[str | None, OutOfBoundsPolicy] = {
    None: out_of_bounds.READ_DEFAULT, "promise_in_bounds": out_of_bounds.READ_PROMISE,
    "clip": out_of_bounds.READ_CLIP, "fill": out_of_bounds.READ_FILL,
    "drop": out_of_bounds.READ_FILL}
_WRITE_POLICIES: dict[str | None, OutOfBoundsPolicy] = {
    None: out_of_bounds.WRITE_DEFAULT, "clip": out_of_bounds.WRITE_CLIP,
    **dict.fromkeys(("drop", "fill", "promise_in_bounds"), out_of_bounds.WRITE_DROP)}
READ_MODES = ("clip", "fill", "drop", "promise_in_bounds")
WRITE_MODES = ("drop", "clip", "fill", "promise_in_bounds")


def get(x: UOp, index: Sequence[Any], mode: str | None = None, fill: UOp | None = None) -> UOp:
    """``x[index]``.

    Args:
        mode: for out-of-bounds indices: "promise_in_bounds" (None; a traced index reads the
            nearest element, which gets no gradient), "clip" (reads the nearest element), or "fill"
            (reads ``fill``).
        fill: 0-d; by default NaN, the smallest int, the largest unsigned int, or True.
    """
    arguments.check_choice("mode", mode, (*READ_MODES, None))
    plan = _IndexPlan(x.shape, index, _READ_POLICIES[mode])
    if not plan.advanced:
        return plan.select(x)
    indices, in_bounds = plan.indices()
    if 0 in [plan.region[d] for d in plan.advanced]:
        _check_empty(plan.region, indices)
        out = build.const(0, x.dtype, plan.result_shape(indices[0].shape))
    else:  # 0-d indices are clipped, as in JAX
        by_axis, order = plan.scatter_axes(indices, mode == "clip" or not indices[0].shape)
        gathered = build.gather(build.reshape(x, plan.full_shape), *by_axis.values(),
                                axes=[*by_axis])
        out = build.permute(gathered, inverse_permutation(order))
    if mode in ("fill", "drop"):
        fill_value = default_fill(x) if fill is None else fill
        in_bounds = build.reshape(in_bounds,
                                  in_bounds.shape + (1,) * (len(out.shape) - len(in_bounds.shape)))
        out = build.where(build.expand(in_bounds, out.shape), out,
                          build.expand(fill_value, out.shape))
    return build.permute(out, plan.index_axis_order(len(out.shape)))


def write(x: UOp, index: Sequence[Any], value: UOp, monoid: Op | None = None,
          mode: str | None = None) -> UOp:
    """Return x with ``value`` written or combined at ``index``.

    Args:
        monoid: combines the value with the elements of x; None: the value replaces them.
        mode: for out-of-bounds indices: "drop" (None) or "clip".
    """
    arguments.check_choice("mode", mode, (*WRITE_MODES, None))
    monoid = None if monoid is None else monoid.for_dtype(x.dtype)
    plan = _IndexPlan(x.shape, index, _WRITE_POLICIES[mode])
    if plan.advanced:
        return _scatter_value(plan, x, value, monoid, mode)
    region = plan.select(x)
    update = _broadcast_value(value, region.shape)
    update = update if monoid is None else complex_scatter.combine(monoid, region, update)
    if plan.is_whole:
        return plan.restore(update)
    mask = plan.restore(build.const(True, dtypes.bool_, region.shape))
    return build.where(mask, plan.restore(update), x)


def dynamic_slice(x: UOp, starts: Mapping[int, UOp | int], sizes: Sequence[int]) -> UOp:
    """Slice some axes at computed starts, which are within the axes; ``sizes`` has all axes."""
    moving = sorted(starts)
    index = slice_indices({a: starts[a] for a in moving}, sizes, x.shape)
    order = (*moving, *other_axes(moving, len(x.shape)))
    return build.permute(build.gather(x, *index, axes=moving), inverse_permutation(order))


def slice_indices(starts: Mapping[int, UOp | int], sizes: Sequence[int], lengths: Sequence[int]
                   ) -> list[UOp]:
    """Return the index arrays of a slice along the axes that have a start."""
    shape = tuple(sizes[a] for a in starts)
    index = []
    for i, (a, start) in enumerate(starts.items()):
        t = index_dtype(lengths[a])
        offsets = build.expand(build.reshape(build.iota(sizes[a], t), tuple(
            n if j == i else 1 for j, n in enumerate(shape))), shape)
        base = build.const(start, t) if isinstance(start, int) else start
        index.append(build.add(build.expand(base, shape), offsets))
    return index


def default_fill(x: UOp) -> UOp:
    """Return JAX's fill value for out-of-bounds indices."""
    value = {"float": float("nan"), "complex": complex("nan"), "bool": True}.get(x.dtype.kind)
    if value is None:
        value = max_value(x.dtype) if x.dtype.kind == "uint" else min_value(x.dtype)
    return build.const(value, x.dtype)


def _broadcast_value(value: UOp, shape: Shape) -> UOp:
    """Broadcast a value to the shape that it is written to, dropping leading axes of length 1."""
    while len(value.shape) > len(shape) and value.shape[0] == 1:
        value = build.reshape(value, value.shape[1:])
    try:
        return build.expand(value, shape)
    except ShapeError:
        raise ShapeError(f"expected a value that broadcasts to {shape}, the shape of what is "
                         f"indexed; got {value.shape}",
                         hint="reshape the value, or insert axes with value[:, None]") from None


def _scatter_value(plan: _IndexPlan, x: UOp, value: UOp, monoid: Op | None,
                   mode: str | None) -> UOp:
    indices, _ = plan.indices()
    shape = plan.result_shape(indices[0].shape)
    axis_order = plan.index_axis_order(len(shape))
    value = _broadcast_value(value, tuple([shape[a] for a in axis_order]))
    value = build.permute(value, inverse_permutation(axis_order))
    if 0 in value.shape or 0 in x.shape:
        return x
    by_axis, order = plan.scatter_axes(indices, mode == "clip")
    out: UOp = complex_scatter.scatter(
        build.reshape(x, plan.full_shape), [*by_axis.values()], build.permute(value, order),
        monoid, [*by_axis])
    return build.reshape(out, x.shape)


def _clip_index(i: UOp, n: int) -> UOp:
    return minimum(maximum(Expr(i), 0), max(n - 1, 0)).node


def _check_empty(shape: Shape, indices: Sequence[UOp]) -> None:
    if 0 not in indices[0].shape:
        raise OutOfBoundsError(f"expected no index into an axis of length 0, got "
                               f"{len(indices)} of shape {indices[0].shape} into {shape}",
                               hint="check x.size first")


# ---- the plan ---------------------------------------------------------------------------------


class _Slice:
    """The start, step and element count of a slice of an axis of length n."""

    __slots__ = ("n", "start", "step", "count")

    def __init__(self, s: slice, n: int) -> None:
        if s.step == 0:
            raise ArgumentError(f"expected a nonzero slice step, got {s}",
                                hint="use a step of 1 or -1")
        if type(n) is int and type(s.start) is not Dim and type(s.stop) is not Dim:
            self.start, stop, self.step = s.indices(n)
            self.count = len(range(self.start, stop, self.step))
        else:
            self.start, self.step, self.count = axis_lengths.slice_of_axis(s, n)
        self.n = n

    @property
    def is_whole(self) -> bool:
        return self.step == 1 and self.count == self.n

    def numbers(self) -> UOp:
        """Return the indices that the slice selects."""
        return index_range(self.start, self.step, self.count, self.n)


class _IndexPlan:
    """An index split into its basic and advanced parts.

    ``slices[axis]`` is the slice that the basic part takes of each axis of x. An int drops its axis
    if there are no index arrays, and is one of them otherwise. ``advanced`` maps an axis of the
    basic result to its index array.
    """

    def __init__(self, shape: Shape, index: Sequence[Any], policy: OutOfBoundsPolicy) -> None:
        self.shape = shape
        entries = _normalize_ints(_expand_index(shape, index), shape, policy)
        has_arrays = any(isinstance(e, UOp | _NewAxisMask) for e in entries)
        self.slices: list[_Slice] = []
        self.dims: list[int | None] = []       # axes of the basic result; None: length 1
        self.advanced: dict[int, Any] = {}
        self.positions: list[int] = []            # positions of the advanced ones in ``entries``
        # axes of the basic result before the first of them
        self.basic_axes_before = 0
        for position, entry in enumerate(entries):
            if entry is None:
                self.dims.append(None)
            if entry is None or entry is Ellipsis:
                continue
            if isinstance(entry, _NewAxisMask):
                self._index(entry.index, position, None)
                continue
            axis, n = len(self.slices), shape[len(self.slices)]
            self.slices.append(_Slice(entry if isinstance(entry, slice) else slice(None), n))
            if isinstance(entry, slice):
                self.dims.append(axis)
                continue
            if isinstance(entry, int | Dim) and not has_arrays:
                self.slices[axis] = _Slice(slice(entry, entry + 1), n)
                continue
            self._index(entry, position, axis)
        self.is_whole = all(s.is_whole for s in self.slices)

    def _index(self, entry: Any, position: int, axis: int | None) -> None:
        """Add an index array, or an int among index arrays, for an axis."""
        self.basic_axes_before = self.basic_axes_before if self.advanced else len(self.dims)
        self.advanced[len(self.dims)] = entry
        self.positions.append(position)
        self.dims.append(axis)

    # ---- the basic part

    @property
    def region(self) -> Shape:
        """The shape of what the basic part selects."""
        return tuple(1 if d is None else self.slices[d].count for d in self.dims)

    def select(self, x: UOp) -> UOp:
        """Apply the basic part: slices, dropped axes and new axes."""
        bounds = []
        for s in self.slices:
            low = s.start if s.step > 0 else s.start + (s.count - 1) * s.step
            bounds.append((low, low + (s.count - 1) * abs(s.step) + 1) if s.count else (0, 0))
        backward = [a for a, s in enumerate(self.slices) if s.step < 0]
        taken = build.flip(build.shrink(x, bounds), backward)
        strides = [1 if s.count in (0, 1) else abs(s.step) for s in self.slices]
        for axis, step in enumerate(strides):
            if step > 1:
                taken = _take_strided(taken, axis, step, self.slices[axis].count)
        if max(strides, default=1) > 1 and not backward:
            starts, limits = zip(*bounds)
            set_composite(taken, "slice", array_operators.slice_by_params, [x],
                          start_indices=starts, limit_indices=limits, strides=tuple(strides))
        return build.reshape(taken, self.region)

    def restore(self, y: UOp) -> UOp:
        """Invert ``select``: place the region where it is in x, with zeros (False) around it."""
        y = build.reshape(y, tuple(s.count for s in self.slices))
        for axis, s in enumerate(self.slices):
            if abs(s.step) > 1 and s.count not in (0, 1):
                y = _interleave_zeros(y, axis, abs(s.step))
        y = build.flip(y, [a for a, s in enumerate(self.slices) if s.step < 0])
        widths = []
        for s, n in zip(self.slices, y.shape):
            low = min(s.start, s.start + (s.count - 1) * s.step) if s.count else 0
            widths.append((low, s.n - n - low))
        return build.pad(y, widths, False if y.dtype.is_bool else 0)

    # ---- the advanced part

    def indices(self) -> tuple[list[UOp], UOp]:
        """Return index nodes of one shape, and where all of them are in bounds.

        Negative indices count from the end.
        """
        nodes, valid = [], []
        shapes = [() if isinstance(e, int | Dim) else e.shape for e in self.advanced.values()]
        try:
            shape = axes.broadcast_shapes(*shapes)
        except ShapeError as e:
            raise ShapeError(f"expected indices of one shape: {e.message}", hint=e.hint) from None
        for dim, entry in self.advanced.items():
            n = self.region[dim]
            node = _index_node(entry, n)
            if not isinstance(entry, int | Dim):
                i = Expr(node)
                valid.append(Expr(build.expand(((0 <= i) & (i < n)).node, shape)))
            nodes.append(build.expand(node, shape))
        return nodes, functools.reduce(operator.and_, valid).node

    @property
    def full_shape(self) -> Shape:
        """The shape of x with the new axes."""
        return tuple([1 if a is None else self.shape[a] for a in self.dims])

    def result_shape(self, index: Shape) -> Shape:
        """Return the result shape: the axes of the indices, then the other axes of the region."""
        return (*index, *[self.region[d] for d in other_axes(tuple(self.advanced), len(self.dims))])

    def scatter_axes(self, indices: Sequence[UOp], clip: bool) -> tuple[dict[int, UOp], list[int]]:
        """Return index arrays by axis of ``whole``, and the order of ``result`` with them in front.

        Axes with partial slices get index arrays, too, so elements outside the slices are neither
        read nor written.
        """
        by_axis = dict(zip(self.advanced, indices))
        if clip:
            by_axis = {d: _clip_index(i, self.full_shape[d]) for d, i in by_axis.items()}
        rest_axes = other_axes(tuple(by_axis), len(self.dims))
        partial = {d: self.slices[a].numbers() for d, a in enumerate(self.dims)
                   if d not in by_axis and a is not None and not self.slices[a].is_whole}
        rank, window_axes = len(indices[0].shape), [*partial,
                                                    *[d for d in rest_axes if d not in partial]]
        return broadcast_indices(by_axis, partial), [
            *range(rank), *[rank + rest_axes.index(d) for d in window_axes]]

    def index_axis_order(self, rank: int) -> tuple[int, ...]:
        """Return the permutation that moves the index axes from the front to NumPy's position.

        That is the position of the indices if they are adjacent, else the front.
        """
        are_adjacent = self.positions == list(range(self.positions[0],
                                                    self.positions[0] + len(self.positions)))
        count = rank - (len(self.region) - len(self.advanced))
        position = self.basic_axes_before if are_adjacent else 0
        other_axes = list(range(count, rank))
        return tuple(other_axes[:position] + list(range(count)) + other_axes[position:])


class _NewAxisMask(Record):
    """A 0-d mask, as in NumPy: a new axis of length 1, which is selected or empty."""

    index: UOp


def _is_mask(entry: Any) -> bool:
    return isinstance(entry, np.ndarray)


def _expand_index(shape: Shape, index: Sequence[Any]) -> list[Any]:
    """Expand an index to one entry per axis or new axis.

    Masks become the indices of their True elements, and ``...`` is followed by the slices that it
    stands for. ``...`` itself remains: even if it stands for no axis, it separates index arrays.
    """
    ellipses = [i for i, e in enumerate(index) if e is Ellipsis]
    if len(ellipses) > 1:
        raise ArgumentError("expected at most one ... in an index, got more",
                            hint="use one ... and write : for each other axis")
    missing = len(shape) - sum(_axis_count(e) for e in index)
    if missing < 0:
        raise OutOfBoundsError(f"expected at most {len(shape)} indices for shape {shape}, got "
                               f"{len(shape) - missing}", hint="use at most one index per axis")
    split = ellipses[0] if ellipses else len(index)
    entries: list[Any] = []
    axis = 0
    for entry in (*index[:split + len(ellipses)], *[slice(None)] * missing,
                  *index[split + len(ellipses):]):
        if _is_mask(entry):
            entries.extend(_mask_indices(entry, shape[axis:axis + entry.ndim]))
        else:
            entries.append(entry)
        axis += _axis_count(entry)
    return entries


def _normalize_ints(entries: Sequence[Any], shape: Shape, policy: OutOfBoundsPolicy) -> list[Any]:
    """Make ints count from the start; the policy replaces out-of-bounds ints."""
    result: list[Any] = []
    axis, has_arrays = 0, any(isinstance(e, UOp | _NewAxisMask) for e in entries)
    for entry in entries:
        if isinstance(entry, int):
            n = shape[axis]
            entry = (entry if entry >= 0 else entry + n) if -n <= entry < n else \
                policy.index(entry, axis, shape, has_arrays)
        result.append(entry)
        axis += not (entry is None or entry is Ellipsis or isinstance(entry, _NewAxisMask))
    return result


def _axis_count(entry: Any) -> int:
    """Return the number of axes of x that an entry indexes."""
    if entry is None or entry is Ellipsis:
        return 0
    if _is_mask(entry):
        return int(entry.ndim)
    if isinstance(entry, (int, slice)) or isinstance(entry, UOp) and entry.dtype.is_integer:
        return 1
    if isinstance(entry, UOp) and entry.dtype.is_bool:
        raise TracedMaskError(
            "expected a bool mask with a concrete value, got a traced one of shape "
            f"{list(entry.shape)}: the shape of the result depends on its values",
            hint="use fnx.numpy.where(mask, x, 0), or .at[...] with integer indices")
    description = entry.dtype if isinstance(entry, UOp) else repr(entry)
    raise DTypeError(f"expected integers, slices or bool masks as an index, got {description}",
                     hint="use int(i), or .astype(int32) of an array; only a dict has string keys")


def _mask_indices(mask: np.ndarray[Any, Any], shape: Shape) -> list[UOp | _NewAxisMask]:
    if not mask.ndim:
        return [_NewAxisMask(build.const(0, dtypes.int32, (int(mask),)))]
    if shape != mask.shape:
        raise ShapeError(f"expected a mask of shape {shape}, got {mask.shape}",
                         hint="use a mask with the shape of the axes that it indexes")
    return [storage.buffer_node(i.astype(np.int32)) for i in np.nonzero(mask)]


def _index_node(entry: int | UOp, n: int) -> UOp:
    """Return an index as a node whose dtype can hold n; negative values count from the end."""
    t = index_dtype(n)
    if isinstance(entry, int | Dim):
        return build.const(entry, t)
    i = Expr(entry)
    if entry.dtype.itemsize < t.itemsize:
        i = i.cast(t)  # n may not fit in its own dtype
    elif entry.dtype.kind == "uint":
        return minimum(i, t.limits[1]).cast(t).node
    return where(i < 0, i + n, i).node


def _take_strided(x: UOp, axis: int, step: int, count: int) -> UOp:
    """Take every ``step``-th element: reshape to rows of length ``step``, take the first column."""
    n = x.shape[axis]
    widths = [(0, 0)] * len(x.shape)
    widths[axis] = (0, count * step - n)
    x = build.pad(x, widths, False if x.dtype.is_bool else 0)
    shape = x.shape
    x = build.reshape(x, (*shape[:axis], count, step, *shape[axis + 1:]))
    bounds = [(0, m) for m in x.shape]
    bounds[axis + 1] = (0, 1)
    x = build.shrink(x, bounds)
    return build.reshape(x, (*shape[:axis], count, *shape[axis + 1:]))


def _interleave_zeros(y: UOp, axis: int, step: int) -> UOp:
    """Invert ``_take_strided``: insert ``step - 1`` zeros between elements."""
    shape, count = y.shape, y.shape[axis]
    y = build.reshape(y, (*shape[:axis], count, 1, *shape[axis + 1:]))
    widths = [(0, 0)] * len(y.shape)
    widths[axis + 1] = (0, step - 1)
    y = build.pad(y, widths, False if y.dtype.is_bool else 0)
    y = build.reshape(y, (*shape[:axis], count * step, *shape[axis + 1:]))
    bounds = [(0, m) for m in y.shape]
    bounds[axis] = (0, (count - 1) * step + 1)
    return build.shrink(y, bounds)


OUT_OF_BOUNDS = -2**31 + 1  # an index that is out of bounds even after adding the length of an axis


def invalidate_negative(index: UOp) -> UOp:
    """Return an index array with negative indices replaced by OUT_OF_BOUNDS."""
    i = build.cast(index, dtypes.int32)
    zero, invalid = (build.const(n, dtypes.int32, i.shape) for n in (0, OUT_OF_BOUNDS))
    return build.where(build.lt(i, zero), invalid, i)
