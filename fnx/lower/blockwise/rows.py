"""Tiles of rows as loops of their own, for a kernel that adds to a fold over all rows.

    dk[i, c] = sum over j of w[i, j] * q[j, c]       i: a row of the kernel     j: by blocks
    dq[j, c] = sum over i of w[i, j] * k[i, c]

    dq[j, c] = 0
    for each tile of rows i_o, each block b: w of the tile and the block is a STAGE
        dq[j, c] += sum over the rows ir of the tile of w[ir, j] * k[ir, c]

So the products that w is made of are computed once. Tiles follow one another, whoever runs them.
"""

from __future__ import annotations

from fnx.core import build, dtypes, ops
from fnx.core.uop import UOp, substitute


class Rows:
    """The rows of a tile.

    Attributes:
        outer: the loop over tiles.
        inner: over the rows of one.
        folded: the same, where they are folded.
    """

    def __init__(self, row: UOp, length: int, count: int, first: int) -> None:
        self.row, self.length, self.count = row, length, count
        self.outer = build.range_(-(-length // count), first, name="i_o")
        self.inner = build.range_(count, first + 1, name="i_i")
        self.folded = build.range_(count, first + 2, name="ir")
        self.first = build.mul(self.outer, build.index_const(count))

    def at(self, r: UOp) -> UOp:
        """A row of the tile; behind the last one it is the last one."""
        place, last = build.add(self.first, r), build.index_const(self.length - 1)
        return place if self._is_whole else build.minimum(place, last)

    @property
    def _is_whole(self) -> bool:
        return self.length % self.count == 0

    def _inside(self, r: UOp) -> UOp | None:
        whole = build.index_const(self.length)
        return None if self._is_whole else build.lt(build.add(self.first, r), whole)

    def fold(self, value: UOp) -> UOp:
        """The sum of a value over the rows of the tile."""
        inside = self._inside(self.folded)
        if inside is not None:
            value = build.where(inside, value, build.like(value, 0))
        return build.reduce_ranges(value, ops.ADD, [self.folded])

    def all(self, condition: UOp) -> UOp:
        """Whether a condition holds of all rows of the tile."""
        of_row, = substitute([condition], {self.row: self.at(self.inner)})
        least = build.reduce_ranges(build.cast(of_row, dtypes.int32), ops.MIN, [self.inner])
        return build.ne(least, build.like(least, 0))

    def step(self, value: UOp, t: UOp, stop: UOp | None) -> UOp:
        """A value in each iteration of a loop that carries nothing, for all rows of the tile."""
        nothing = build.const(0, dtypes.int32)
        return build.step(value, build.iterate(1, t, [nothing], [nothing], stop))

    def store(self, store: UOp) -> UOp:
        """A STORE of a row as one of a row of the tile."""
        place, value = store.src
        place, = substitute([place], {self.row: build.add(self.first, self.inner)})
        value, = substitute([value], {self.row: self.at(self.inner)})
        return build.store(place, value, self._inside(self.inner))

    def adding(self, store: UOp, j: UOp, at: UOp, inside: UOp | None) -> list[UOp]:
        """A STORE as a sum that begins with 0, to which each tile adds its own at a place."""
        place, value = store.src
        value, = substitute([value], {self.row: self.at(self.inner)})
        there, = substitute([place], {j: at})
        return [build.store(place, build.like(value, 0)),
                build.store(there, value, inside, ops.ADD)]
