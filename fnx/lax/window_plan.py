"""Where windows of an array at index vectors are: what gather and scatter of ``jax.lax`` share.

>>> plan = WindowPlan((5, 3), (1, 3), (0,), (0,), (), (4,))
>>> plan.kept, plan.indexed, plan.window_axes()
([1], [0], [1])
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import build
from fnx.core.array import axes
from fnx.core.array.array import Array
from fnx.core.dtypes import DType
from fnx.core.errors import ArgumentError, DTypeError, ShapeError
from fnx.core.expr import Expr, maximum, minimum
from fnx.core.index_arrays import index_type
from fnx.core.ops import Shape
from fnx.core.record import Record
from fnx.core.uop import UOp


class WindowPlan(Record):
    """Windows of an array at index vectors.

    Attributes:
        shape: of the array.
        size: of a window, along each axis of the array.
        moved: the axis for each number of an index vector.
        gone: axes of one place that windows do not have.
        beside: (axis of the array, axis of the indices) walked side by side.
        batch: the shape of the indices without their vectors.
    """

    shape: Shape
    size: Shape
    moved: tuple[int, ...]
    gone: tuple[int, ...]
    beside: tuple[tuple[int, int], ...]
    batch: Shape

    @property
    def kept(self) -> list[int]:
        """The axes of a window."""
        without = (*self.gone, *[a for a, _ in self.beside])
        return [a for a in range(len(self.shape)) if a not in without]

    @property
    def indexed(self) -> list[int]:
        """The axes whose place is data, or of which there is a part."""
        return [a for a in range(len(self.shape)) if a not in self.kept or a in self.moved
                or self.size[a] < self.shape[a]]

    def _type(self, axis: int) -> DType:
        return index_type(self.shape[axis])

    def starts(self, vectors: UOp, clip: bool) -> tuple[dict[int, Expr], UOp | None]:
        """Where windows begin along the axes that indices move them; and which are inside."""
        found: dict[int, Expr] = {}
        inside: Expr | None = None
        rank = len(self.batch)
        for number, axis in enumerate(self.moved):
            part = build.shrink(vectors, [*[(0, n) for n in self.batch], (number, number + 1)])
            start = Expr(build.cast(build.reshape(part, self.batch[:rank]), self._type(axis)))
            most = self.shape[axis] - self.size[axis]
            here = (0 <= start) & (start <= most)
            inside = here if inside is None else inside & here
            found[axis] = minimum(maximum(start, 0), most) if clip else start
        return found, None if inside is None else inside.node

    def indices(self, starts: dict[int, Expr]) -> list[UOp]:
        """An index array for each of the ``indexed`` axes: over the batch, then along those of
        them that windows have."""
        wide = [a for a in self.indexed if a in self.kept]
        shape = (*self.batch, *[self.size[a] for a in wide])
        beside = dict(self.beside)

        def along(values: UOp, at: int) -> UOp:
            """Values along one axis of the index arrays."""
            one = tuple([shape[i] if i == at else 1 for i in range(len(shape))])
            return build.expand(build.reshape(values, one), shape)

        out = []
        for a in self.indexed:
            if a in beside:
                out.append(along(build.iota(self.shape[a], self._type(a)), beside[a]))
                continue
            index = Expr(build.const(0, self._type(a), shape))
            if a in starts:
                start = starts[a].node
                start = build.reshape(start, (*start.shape, *(1,) * len(wide)))
                index = Expr(build.expand(start, shape))
            if a in wide and self.size[a] > 1:
                line = along(build.iota(self.size[a], self._type(a)),
                             len(self.batch) + wide.index(a))
                index = index + Expr(line)
            out.append(index.node)
        return out

    def window_axes(self) -> list[int]:
        """The axes of windows in the order in which GATHER and SCATTER have them."""
        return [*[a for a in self.indexed if a in self.kept],
                *[a for a in range(len(self.shape)) if a not in self.indexed]]

    def check(self, windows: Sequence[int], rank: int, vector: int) -> None:
        """Refuse axes that are not there, are named twice, or do not go together."""
        n = len(self.shape)
        axes.listed(self.moved, n)
        axes.listed([*self.gone, *[a for a, _ in self.beside]], n)
        axes.listed([b for _, b in self.beside], len(self.batch))
        axes.listed(windows, rank)
        if len(self.moved) != vector:
            raise ShapeError(f"expected index vectors of {len(self.moved)} numbers, one for each "
                             f"axis that they move, got {vector}")
        if len(windows) != len(self.kept):
            raise ArgumentError(f"expected {len(self.kept)} axes of windows, for axes "
                                f"{tuple(self.kept)} of an array of shape {self.shape}, got "
                                f"{tuple(windows)}")
        for a, size in enumerate(self.size):
            one = a in self.gone or a in [b for b, _ in self.beside]
            if not 0 <= size <= self.shape[a] or one and size > 1:
                raise ShapeError(f"expected windows inside of shape {self.shape}, of one place "
                                 f"along axes that go away, got {self.size}")
        for a, b in self.beside:
            if self.shape[a] != self.batch[b]:
                raise ShapeError(f"expected axis {a} of the array as long as axis {b} of the "
                                 f"indices, got {self.shape[a]} and {self.batch[b]}")

    def result_order(self, windows: Sequence[int]) -> list[int]:
        """Where each axis, of the batch, then of ``window_axes``, is in what users have."""
        rank = len(self.batch) + len(windows)
        others = [a for a in range(rank) if a not in windows]
        place = dict(zip(self.kept, sorted(windows)))
        return [*others, *[place[a] for a in self.window_axes()]]


def index_vectors(indices: Array) -> tuple[UOp, Shape]:
    """Indices whose last axis has index vectors, and the shape of the others."""
    if not indices._dtype.is_integer:
        raise DTypeError(f"expected integer indices, got {indices._dtype}",
                         hint="convert them with .astype(int)")
    if not indices.shape:
        raise ShapeError("expected indices whose last axis is an index vector, got a 0-d array",
                         hint="of one number each: indices[..., None]")
    return indices._node, indices.shape[:-1]
