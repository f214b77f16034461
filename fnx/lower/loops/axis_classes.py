"""Axis classes: which axes of a loop's body are one axis, and which may be lanes of a kernel.

    state (1000, 3), body: stack of sums of slices      axis 0 of all values: one class, 1000 long
    of its columns                                      axis 1: sliced, so it becomes scalars

An elementwise op unifies the axes of its operands, a movement op those that it leaves intact. If an
op slices, pads, joins, reduces or indexes an axis, its class is small: its elements become scalars.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from fnx.core.ir import ops
from fnx.core.ir.op import other_axes
from fnx.core.ir.ops import Op, Shape
from fnx.core.ir.uop import UOp

NodeAxis = tuple[UOp, int]


class AxisClasses:
    """Equivalence classes of axes of a length other than 1 (union-find).

    >>> from fnx.core.ir import build, dtypes
    >>> x = build.param(0, dtypes.float32, (9, 3))
    >>> y = build.add(x, x)
    >>> z = build.shrink(y, [(0, 9), (1, 2)])
    >>> axes = AxisClasses()
    >>> axes.add_nodes([x, y, z])
    >>> axes.find((z, 0)) == axes.find((x, 0)), axes.is_small((x, 1)), axes.is_small((x, 0))
    (True, True, False)
    """

    def __init__(self) -> None:
        self._parent: dict[NodeAxis, NodeAxis] = {}
        self._small: set[NodeAxis] = set()

    def find(self, axis: NodeAxis) -> NodeAxis:
        """Return the representative of the class of an axis."""
        parent = self._parent
        while (above := parent.get(axis, axis)) != axis:
            parent[axis] = parent.get(above, above)
            axis = above
        return axis

    def unify(self, a: NodeAxis, b: NodeAxis) -> None:
        a, b = self.find(a), self.find(b)
        if a != b:
            self._parent[b] = a
            if b in self._small:
                self._small.add(a)

    def make_small(self, node: UOp, axes: Iterable[int]) -> None:
        """Require the elements along these axes to be scalars."""
        self._small.update([self.find((node, a)) for a in axes if node.shape[a] != 1])

    def is_small(self, axis: NodeAxis) -> bool:
        return self.find(axis) in self._small

    def separate_repeated(self, nodes: Iterable[UOp]) -> None:
        """Make a class small if a node has it twice: as one range it would be the diagonal.

        >>> from fnx.core.ir import build, dtypes
        >>> x = build.param(0, dtypes.float32, (9, 9))
        >>> axes, both = AxisClasses(), build.add(x, build.permute(x, (1, 0)))
        >>> axes.add_nodes(both.src)
        >>> axes.add_nodes([both])
        >>> axes.separate_repeated([both])
        >>> axes.is_small((x, 0))
        True
        """
        for node in nodes:
            class_ids = [self.find((node, a)) for a, n in enumerate(node.shape) if n != 1]
            self._small.update([c for c in class_ids if class_ids.count(c) > 1])

    def unify_all(self, a: UOp, b: UOp) -> None:
        """Unify the axes of two nodes of one shape."""
        self.unify_pairs(a, b, [(i, i) for i in range(len(a.shape))])

    def unify_pairs(self, a: UOp, b: UOp, axes: Iterable[tuple[int, int]]) -> None:
        for i, j in axes:
            if a.shape[i] != 1 and b.shape[j] != 1:
                self.unify((a, i), (b, j))

    def add_nodes(self, nodes: Iterable[UOp], memory: Callable[[UOp], bool] = lambda node: False
             ) -> None:
        """Add the nodes of a body. ``memory``: whether a node can be read from memory at any
        index."""
        for node in nodes:
            if node.op is ops.GATHER:
                self._gather(node, memory(node.src[0]))
            elif node.op.batching == "first":
                self.unify_all(node, node.src[0])
            elif node.op.kind == "elementwise":
                for s in node.src:
                    self.unify_all(node, s)
            elif node.op in _RULES:
                _RULES[node.op](self, node)

    def _gather(self, node: UOp, from_memory: bool) -> None:
        x, *index = node.src
        for i in index:
            self.unify_pairs(node, i, [(a, a) for a in range(len(i.shape))])
        lead = len(index[0].shape)
        self.unify_pairs(node, x, enumerate(other_axes(node.arg.axes, len(x.shape)), lead))
        if not from_memory:
            self.make_small(x, node.arg.axes)

    def _scatter(self, node: UOp) -> None:
        x, *index, updates = node.src
        lead = len(index[0].shape)
        self.unify_all(node, x)
        self.make_small(x, node.arg.axes)
        for i in index:
            self.make_small(i, range(lead))
        self.make_small(updates, range(lead))
        self.unify_pairs(updates, node, enumerate(other_axes(node.arg.axes, len(x.shape)), lead))

    def _reshape(self, node: UOp) -> None:
        x = node.src[0]
        for old, new in aligned_axes(x.shape, node.shape):
            if len(old) == len(new) == 1:
                self.unify((node, new[0]), (x, old[0]))
            else:
                self.make_small(x, old)
                self.make_small(node, new)

    def _reduce(self, node: UOp) -> None:
        x = node.src[0]
        self.make_small(x, node.arg.axes)
        remaining_axes = [a for a in range(len(x.shape)) if a not in node.arg.axes]
        self.unify_pairs(node, x, list(enumerate(remaining_axes)))

    def _permute(self, node: UOp) -> None:
        self.unify_pairs(node, node.src[0], list(enumerate(node.arg)))

    def _expand(self, node: UOp) -> None:
        self.unify_all(node, node.src[0])

    def _unify_intact(self, node: UOp, touched: Sequence[bool]) -> None:
        """Unify the axes that are not touched; make the others small."""
        for x in [s for s in node.src if len(s.shape) == len(node.shape)]:
            self.unify_pairs(node, x, [(a, a) for a, cut in enumerate(touched) if not cut])
            self.make_small(x, [a for a, cut in enumerate(touched) if cut])
        self.make_small(node, [a for a, cut in enumerate(touched) if cut])

    def _pad(self, node: UOp) -> None:
        self._unify_intact(node, [widths != (0, 0) for widths in node.arg])

    def _shrink(self, node: UOp) -> None:
        self._unify_intact(node,
                           [bounds != (0, n) for bounds, n in zip(node.arg, node.src[0].shape)])

    def _flip(self, node: UOp) -> None:
        self._unify_intact(node, [a in node.arg for a in range(len(node.shape))])

    def _concat(self, node: UOp) -> None:
        self._unify_intact(node, [a == node.arg for a in range(len(node.shape))])


_RULES: dict[Op, Callable[[AxisClasses, UOp], None]] = {
    ops.RESHAPE: AxisClasses._reshape, ops.PERMUTE: AxisClasses._permute,
    ops.EXPAND: AxisClasses._expand, ops.PAD: AxisClasses._pad, ops.SHRINK: AxisClasses._shrink,
    ops.FLIP: AxisClasses._flip, ops.CONCAT: AxisClasses._concat, ops.REDUCE: AxisClasses._reduce,
    ops.SCATTER: AxisClasses._scatter,
}


def aligned_axes(old: Shape, new: Shape) -> Iterator[tuple[list[int], list[int]]]:
    """Yield groups of axes of two shapes with equal element counts; axes of length 1 are left out.

    >>> list(aligned_axes((6, 1, 4), (2, 3, 4)))
    [([0], [0, 1]), ([2], [2])]
    """
    i = j = 0
    while i < len(old) or j < len(new):
        first, second, a, b = i, j, 1, 1
        while True:
            if a <= b and i < len(old) and (a < b or old[i] == 1 or i == first):
                a, i = a * old[i], i + 1
            elif j < len(new) and (b < a or new[j] == 1 or j == second):
                b, j = b * new[j], j + 1
            else:
                break
        group = ([k for k in range(first, i) if old[k] != 1],
                 [k for k in range(second, j) if new[k] != 1])
        if group[0] or group[1]:
            yield group
        if (i, j) == (first, second):
            return
