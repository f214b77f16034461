"""Row tiles as explicit loops, for a kernel that also accumulates a reduction over all rows.

    dk[i, c] = sum over j of w[i, j] * q[j, c]       i: a row of the kernel     j: by blocks
    dq[j, c] = sum over i of w[i, j] * k[i, c]

    dq[j, c] = 0
    for each tile of rows i_o, each block b: w of the tile and the block is a STAGE
        dq[j, c] += sum over the rows ir of the tile of w[ir, j] * k[ir, c]

So the products that w is computed from are computed once. Tiles run in order, on any worker.
"""

from __future__ import annotations

from fnx.core.ir import build, build_kernel_loops, dtypes, ops
from fnx.core.ir.uop import UOp, substitute


class RowTile:
    """The rows of a tile.

    Attributes:
        outer: the loop over tiles.
        inner: the loop over the rows of one tile.
        reduced: the same, as a reduction loop.
    """

    def __init__(self, row: UOp, length: int, count: int, first: int) -> None:
        self.row, self.length, self.count = row, length, count
        self.outer = build.range_(-(-length // count), first, name="i_o")
        self.inner = build.range_(count, first + 1, name="i_i")
        self.reduced = build.range_(count, first + 2, name="ir")
        self.first = build.mul(self.outer, build.index_const(count))

    def at(self, r: UOp) -> UOp:
        """Return a row of the tile, clamped to the last row."""
        row_index, last = build.add(self.first, r), build.index_const(self.length - 1)
        return row_index if self._is_exact else build.minimum(row_index, last)

    @property
    def _is_exact(self) -> bool:
        return self.length % self.count == 0

    def _in_bounds(self, r: UOp) -> UOp | None:
        length_node = build.index_const(self.length)
        return None if self._is_exact else build.lt(build.add(self.first, r), length_node)

    def reduce(self, value: UOp) -> UOp:
        """Sum a value over the rows of the tile."""
        inside = self._in_bounds(self.reduced)
        if inside is not None:
            value = build.where(inside, value, build.const_like(value, 0))
        return build.reduce_ranges(value, ops.ADD, [self.reduced])

    def all(self, condition: UOp) -> UOp:
        """Whether a condition holds for all rows of the tile."""
        of_row, = substitute([condition], {self.row: self.at(self.inner)})
        least = build.reduce_ranges(build.cast(of_row, dtypes.int32), ops.MIN, [self.inner])
        return build.ne(least, build.const_like(least, 0))

    def step(self, value: UOp, t: UOp, stop: UOp | None) -> UOp:
        """Return a value per iteration of a loop without carried values, for all rows of the
        tile."""
        nothing = build.const(0, dtypes.int32)
        loop = build_kernel_loops.loop(1, t, [nothing], [nothing], stop)
        return build_kernel_loops.per_iteration(value, loop)

    def store(self, store: UOp) -> UOp:
        """Rewrite a STORE of a row to one of a row of the tile."""
        index, value = store.src
        index, = substitute([index], {self.row: build.add(self.first, self.inner)})
        value, = substitute([value], {self.row: self.at(self.inner)})
        return build.store(index, value, self._in_bounds(self.inner))

    def accumulate(self, store: UOp, j: UOp, column: UOp, inside: UOp | None) -> list[UOp]:
        """Rewrite a STORE to a sum that starts with 0, to which each tile adds its share."""
        target, value = store.src
        value, = substitute([value], {self.row: self.at(self.inner)})
        target_at_column, = substitute([target], {j: column})
        return [build.store(target, build.const_like(value, 0)),
                build.store(target_at_column, value, inside, ops.ADD)]
