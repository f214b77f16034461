"""Columns of rows: vectorize neighboring LOADs whose lanes have the same stride.

    a[l] = x[l, 0]   b[l] = x[l, 1]   c[l] = x[l, 2]   d[l] = x[l, 3]      rows of 20, l VEC 4

    read at x[0, 0]    a0 b0 c0 d0        a0 a1 a2 a3
            x[1, 0]    a1 b1 c1 d1   ->   b0 b1 b2 b3
            x[2, 0]    a2 b2 c2 d2        c0 c1 c2 c3
            x[3, 0]    a3 b3 c3 d3        d0 d1 d2 d3

The opposite of interleave_groups.py. All columns of a block are loaded with the first one. A gather
loads each element by itself. A block takes a load of each row and log2(lanes) shuffles of all rows,
so it is cheaper from 2 + log2(lanes) columns on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.record import Record
from fnx.lower.emit.addresses import Addresses, substitute_instance
from fnx.lower.emit.expansion import ExpansionTable, Instance
from fnx.lower.emit.shuffles import MAX_STRIDE, can_transpose, transpose


class Column(Record):
    """One instance of a LOAD."""

    load: UOp
    instance: Instance


_Columns = dict[int, Column]  # by constant offset
_Key = tuple[object, ...]


class ColumnLoads:
    """The LOADs of a kernel whose lanes have a large constant stride, by what their offsets share.

    ``unproven`` returns the conjuncts of a validity that are not known to hold.
    """

    def __init__(self, kernel: UOp, expansions: ExpansionTable, addresses: Addresses,
                 unproven: Callable[[Sequence[UOp], Instance], Sequence[UOp]]) -> None:
        self.kernel, self.expansions, self.addresses = kernel, expansions, addresses
        self.unproven = unproven
        self._groups: dict[_Key, _Columns] | None = None

    def block(self, load: UOp, instance: Instance) -> Sequence[Column]:
        """Return the columns of the block that a LOAD is part of; none: it is gathered."""
        lanes = self.expansions[load.ranges].lanes
        if self._stride(load) is None or self.unproven(load.src[1:], instance):
            return ()
        if self._groups is None:
            self._groups = self._all_groups()
        key, offset = self._position(load, instance)
        columns = self._groups[key]

        def is_loaded(at: int) -> bool:
            return at == offset or self._is_loaded(columns, at)

        start = end = offset
        while is_loaded(start - 1):
            start -= 1
        while is_loaded(end):
            end += 1
        start = max(start, min(offset - (offset - start) % lanes, end - lanes))
        # another LOAD may read the same element: x[l, j] at j = 1, and x[l, j + 1] at j = 0
        block = [Column(load, instance) if i == offset else columns[i]
                 for i in range(start, min(end, start + lanes))]
        return block if len(block) > lanes.bit_length() else ()

    def _is_loaded(self, columns: _Columns, offset: int) -> bool:
        """Return whether a column is loaded without a condition."""
        column = columns.get(offset)
        return column is not None and not self.unproven(column.load.src[1:], column.instance)

    def load(self, columns: Sequence[Column], depth: int) -> list[UOp]:
        """Load the rows of a block, and return its columns."""
        lines, first = self.addresses.lines, columns[0]
        index, dtype = first.load.src[0], first.load.dtype
        _, lane, lanes = self.expansions[first.load.ranges]
        stride = self._stride(first.load)
        assert stride is not None
        mask = () if len(columns) == lanes else (lines.add(
            ops.LANE_MASK, dtypes.bool_.vec(lanes), (build.index_const(len(columns)),)),)
        rows = [self.addresses.contiguous(index, lane, first.instance, i * stride, lanes)
                for i in range(lanes)]
        return transpose(lines, [lines.add(ops.LOAD, dtype.vec(lanes), (row, *mask),
                                           min_depth=depth) for row in rows])[:len(columns)]

    def _all_groups(self) -> dict[_Key, _Columns]:
        groups: dict[_Key, _Columns] = {}
        for load in toposort([self.kernel]):
            if load.op is ops.LOAD and self._stride(load) is not None:
                for instance in self.expansions[load.ranges].instances():
                    key, offset = self._position(load, instance)
                    groups.setdefault(key, {})[offset] = Column(load, instance)
        return groups

    def _stride(self, load: UOp) -> int | None:
        """Return the stride of the lanes, if it is constant and large."""
        index = load.src[0]
        _, lane, lanes = self.expansions[load.ranges]
        if lane is None or index.src[0].op is not ops.REF or not can_transpose(lanes) or \
                load.dtype.itemsize < self.addresses.lines.permuted:
            return None
        stride = self.addresses.offset(index, lane).stride
        return stride if stride is not None and stride > MAX_STRIDE else None

    def _position(self, load: UOp, instance: Instance) -> tuple[_Key, int]:
        """Return what the offsets of a group share, and the offset in it."""
        lane = self.expansions[load.ranges].lane
        offset = self.addresses.offset(load.src[0], lane)
        terms = substitute_instance(offset.common, instance)
        constant = offset.constant + terms.pop((), 0)
        return (load.src[0].src[0], load.ranges, offset.stride, frozenset(terms.items())), constant
