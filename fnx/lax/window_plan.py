"""Windows of an array at index vectors: the index computation of ``jax.lax`` gather and scatter.

>>> plan = WindowPlan((5, 3), (1, 3), (0,), (0,), (), (4,))
>>> plan.window_dims, plan.indexed_axes, plan.window_axes()
([1], [0], [1])
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.array import axes
from fnx.core.array.array import Array
from fnx.core.ir import build
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr, maximum, minimum
from fnx.core.ir.index_arrays import index_dtype
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError, DTypeError, ShapeError
from fnx.core.support.record import Record


class WindowPlan(Record):
    """Windows of an array at index vectors.

    Attributes:
        shape: the shape of the array.
        size: the size of a window along each axis of the array.
        index_map: the axis of the array for each component of an index vector.
        collapsed: axes of window size 1 that windows do not have (collapsed).
        batching: pairs (axis of the array, axis of the indices) of batch axes.
        batch: the shape of the indices without the vector axis.
    """

    shape: Shape
    size: Shape
    index_map: tuple[int, ...]
    collapsed: tuple[int, ...]
    batching: tuple[tuple[int, int], ...]
    batch: Shape

    @property
    def window_dims(self) -> list[int]:
        """Return the axes of the array that windows have."""
        dropped = (*self.collapsed, *[a for a, _ in self.batching])
        return [a for a in range(len(self.shape)) if a not in dropped]

    @property
    def indexed_axes(self) -> list[int]:
        """Return the axes that need an index: moved, sliced, collapsed or batch axes."""
        return [a for a in range(len(self.shape))
                if a not in self.window_dims or a in self.index_map
                or self.size[a] < self.shape[a]]

    def _type(self, axis: int) -> DType:
        return index_dtype(self.shape[axis])

    def starts(self, vectors: UOp, clip: bool) -> tuple[dict[int, Expr], UOp | None]:
        """Return the start of the windows along each moved axis, and a mask of in-bounds windows.

        ``clip``: clamp the starts so that windows are within the array.
        """
        begins: dict[int, Expr] = {}
        in_bounds: Expr | None = None
        rank = len(self.batch)
        for number, axis in enumerate(self.index_map):
            part = build.shrink(vectors, [*[(0, n) for n in self.batch], (number, number + 1)])
            start = Expr(build.cast(build.reshape(part, self.batch[:rank]), self._type(axis)))
            max_start = self.shape[axis] - self.size[axis]
            in_axis = (0 <= start) & (start <= max_start)
            in_bounds = in_axis if in_bounds is None else in_bounds & in_axis
            begins[axis] = minimum(maximum(start, 0), max_start) if clip else start
        return begins, None if in_bounds is None else in_bounds.node

    def indices(self, starts: dict[int, Expr]) -> list[UOp]:
        """Return an index array for each of the ``indexed_axes`` axes, over the batch axes and
        those ``indexed_axes`` axes that windows have.
        """
        sized_axes = [a for a in self.indexed_axes if a in self.window_dims]
        shape = (*self.batch, *[self.size[a] for a in sized_axes])
        batching = dict(self.batching)

        def along(values: UOp, axis: int) -> UOp:
            """Broadcast values along one axis of the index arrays."""
            axis_shape = tuple([shape[i] if i == axis else 1 for i in range(len(shape))])
            return build.expand(build.reshape(values, axis_shape), shape)

        out = []
        for a in self.indexed_axes:
            if a in batching:
                out.append(along(build.iota(self.shape[a], self._type(a)), batching[a]))
                continue
            index = Expr(build.const(0, self._type(a), shape))
            if a in starts:
                start = starts[a].node
                start = build.reshape(start, (*start.shape, *(1,) * len(sized_axes)))
                index = Expr(build.expand(start, shape))
            if a in sized_axes and self.size[a] > 1:
                offsets = along(build.iota(self.size[a], self._type(a)),
                                len(self.batch) + sized_axes.index(a))
                index = index + Expr(offsets)
            out.append(index.node)
        return out

    def window_axes(self) -> list[int]:
        """Return the window axes in the order of GATHER and SCATTER."""
        return [*[a for a in self.indexed_axes if a in self.window_dims],
                *[a for a in range(len(self.shape)) if a not in self.indexed_axes]]

    def check(self, windows: Sequence[int], rank: int, vector: int) -> None:
        """Raise if axes are out of range, repeated or inconsistent."""
        n = len(self.shape)
        axes.normalize_axis_tuple(self.index_map, n)
        axes.normalize_axis_tuple([*self.collapsed, *[a for a, _ in self.batching]], n)
        axes.normalize_axis_tuple([b for _, b in self.batching], len(self.batch))
        axes.normalize_axis_tuple(windows, rank)
        if len(self.index_map) != vector:
            raise ShapeError(f"expected index vectors of {len(self.index_map)} numbers, one per "
                             f"indexed axis, got {vector}")
        if len(windows) != len(self.window_dims):
            raise ArgumentError(f"expected {len(self.window_dims)} window axes, for axes "
                                f"{tuple(self.window_dims)} of an array of shape {self.shape}, got "
                                f"{tuple(windows)}")
        for a, size in enumerate(self.size):
            must_be_one = a in self.collapsed or a in [b for b, _ in self.batching]
            if not 0 <= size <= self.shape[a] or must_be_one and size > 1:
                raise ShapeError(f"expected windows within shape {self.shape}, of length 1 along "
                                 f"collapsed axes, got {self.size}")
        for a, b in self.batching:
            if self.shape[a] != self.batch[b]:
                raise ShapeError(f"expected equal lengths of axis {a} of the array and axis {b} of "
                                 f"the indices, got {self.shape[a]} and {self.batch[b]}")

    def result_order(self, windows: Sequence[int]) -> list[int]:
        """Return the user-visible position of each axis: batch axes, then ``window_axes``."""
        rank = len(self.batch) + len(windows)
        others = [a for a in range(rank) if a not in windows]
        position = dict(zip(self.window_dims, sorted(windows)))
        return [*others, *[position[a] for a in self.window_axes()]]


def index_vectors(indices: Array) -> tuple[UOp, Shape]:
    """Return indices whose last axis holds index vectors, and the shape of their other axes."""
    if not indices._dtype.is_integer:
        raise DTypeError(f"expected integer indices, got {indices._dtype}",
                         hint="convert them with .astype(int)")
    if not indices.shape:
        raise ShapeError("expected indices whose last axis is an index vector, got a 0-d array",
                         hint="add an axis of length 1: indices[..., None]")
    return indices._node, indices.shape[:-1]
