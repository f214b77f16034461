"""How to tile a contraction: a register tile, blocks of tiles, what is packed and where.

    loops    batch..., io (PAR), jr, ir, k..., i (UNROLL), j (UNROLL), l (VEC)
    rows     m == io * block * tile + ir * tile + i           columns  n == jr * width + j, l

The accumulators of ``tile`` rows by ``width`` columns stay in registers during the sum. Both
factors are read in place as long as the right one fits the L2 cache and its rows are contiguous.
Otherwise workers share column panels (``over_pieces``): each worker packs its panel, which stays in
the L2 cache while all rows pass over it. If there are too few panels, or the left factor exceeds
all caches, workers share blocks of rows instead, and the right factor is packed once for all of
them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core import tiling
from fnx.core.target import Target
from fnx.core.tiling import Transform
from fnx.core.units import Unit
from fnx.core.uop import UOp
from fnx.lower.schedule.contraction import (
    Contraction,
    contiguous,
    has_words,
    is_plain,
    overlaps,
    stages,
    terms_of,
    walked,
    words_along,
)
from fnx.lower.schedule.loops import name_of
from fnx.lower.schedule.plan import MODEL, Decisions
from fnx.lower.schedule.register_tiles import TALLEST, Tile, other_tiles, register_tile
from fnx.lower.schedule.subtotals import CHAIN, even, in_parts, other_chains
from fnx.lower.schedule.units import unit_of
from fnx.lower.schedule.workload import (
    extent,
    itemsize,
    length,
    loads_below,
    product,
    stride,
)

_PACK_COLUMNS = 96 << 10  # bytes of a computed right factor above which packing it pays
_COLUMNS, _DEPTH = 6, 16  # vectors of columns, and terms, above which packing the left factor pays
_REUSED = 112  # rows from which packing a right factor with strided lanes pays
_REPAID = 384  # ... one that exceeds the L2 cache
_HELD, _ACROSS_HELD = 16 << 20, 4 << 20  # bytes of left factor caches hold: contiguous, strided
_BLOCK = 56  # most rows packed together
_SHARES, _EVEN = 4, 1.05  # processors; work of the busiest relative to an even share, at most
_TWO = 2  # processors of the smallest machine that shares work
_UNEVEN = 1.34  # ... if row blocks would be even with the right factor packed up front
_TILES = (4, 4), (8, 2), (4, 2), (1, 4), (1, 1)  # (rows, vectors) of tiles that shapes share
_OWN = 1 << 27  # multiply-adds from which each shape gets a kernel of its own
_CHAIN, _LONGEST = 64, 72  # terms per accumulator of a tile: in long sums, in others
_FEW = 8  # accumulators of a tile from which a rolled epilogue pays
_ACROSS = 24  # cost of a strided store of a vector, in multiply-adds of a vector
_UNIT_ROWS, _UNIT_TERMS = 4, 8  # rows and terms from which laying out words for a matrix unit pays
_EPILOGUE = 2  # epilogue cost from which the epilogue is rolled
_STREAMS, _MANY, _PAGE = 8, 56, 4096  # most rows of a tile, from so many rows on; bytes of a page
_PARALLEL = 1 << 17  # multiply-adds above which workers share the rows


def schedule(found: Contraction, target: Target, decisions: Decisions) -> list[Transform]:
    """Return the transforms that tile a contraction."""
    tiling_ = _Tiling(found, target, decisions)
    along = walked(found)
    form = "tile"
    if along is not None and tiling_.suits_dots(along):
        form = "dots"
    elif not tiling_.rough and overlaps(found.right):
        lanes, depth = tiling_.tile.lanes, product(found.summed)
        form = "windows" if depth / _filled(extent(tiling_.column), lanes) <= \
            (depth + _ACROSS) / _filled(product(found.rows), lanes) else "turned"
    elif tiling_.shares_columns():
        form = "windows"
    form = decisions.of("form", form, lambda: [
        "tile", *["dots"] * (along is not None), "windows", *["turned"] * (not tiling_.rough)])
    if form == "turned":  # lanes along the results of the other factor, which is packed
        return _Tiling(found.replace(rows=found.columns, columns=found.rows, left=found.right,
                                     right=found.left), target, decisions).steps()
    if form == "dots" and along is not None:
        return _dots(found, along, target, tiling_.unit_along(along), decisions)
    return tiling_.over_pieces() if form == "windows" else tiling_.steps()


def _shared(lengths: dict[str, int]) -> str:
    """Choose the loop that workers share: the outermost whose trip count divides evenly between two
    and four workers, so that caches hold what the inner loops reuse; else the longest."""
    def is_even(n: int) -> bool:
        return all(-(-n // workers) * workers <= _EVEN * n for workers in (_TWO, _SHARES))

    even = [x for x, n in lengths.items() if is_even(n)]
    return even[0] if even else max(lengths, key=lengths.__getitem__)


def _filled(columns: int, lanes: int) -> float:
    """Return the fraction of vector lanes that so many columns fill."""
    return columns / (-(-columns // lanes) * lanes)


def shared_schedule(found: Contraction, target: Target) -> tuple[Transform, ...] | None:
    """Return one schedule for all contractions of this form, whatever their extents: a few tiles
    serve them all. None if this one is worth a kernel of its own (long work, overlapping
    windows)."""
    tiling_ = _SharedTiling(found, target, Decisions(MODEL))
    if product(found.reduce.ranges) * tiling_.depth > _OWN:
        return None
    along = walked(found)
    if along is not None and tiling_.suits_dots(along):
        return None
    if not tiling_.rough and overlaps(found.right):
        return None
    return tuple(tiling_.steps())


# Dot products instead of packing. Least vectors along the sum; terms that pay for the horizontal
# reduction, in thirds for each row; most rows, beyond which enough of them share a packed factor.
_DOT_VECTORS, _DOT_FOLDS, _DOT_ROWS = 4, 3, 96
_DOTS = ((6, 4), (4, 4), (3, 3), (2, 2))  # accumulators of dot products, by registers


def _dots(found: Contraction, along: UOp, target: Target, unit: Unit | None, decisions: Decisions
          ) -> list[Transform]:
    """Tile by dot products, with lanes along the sum: for few columns with contiguous terms.

        loops    batch..., rows, columns, k..., along_o, i (UNROLL), j (UNROLL), along_l (VEC)

    With a matrix unit the lanes are register words along the sum.
    """
    fit = [t for t in _DOTS if t[0] * t[1] + sum(t) <= target.vector_registers + 2]
    most = decisions.of("dots", fit[0], lambda: [
        *fit[1:], *[(t[1], t[0]) for t in fit], (2 * fit[0][0], 1), (1, 2 * fit[0][0])])
    row, column = (max(some, key=extent) for some in (found.rows, found.columns))
    high, wide = (min(n, extent(r)) for n, r in zip(most, (row, column)))
    terms = unit.in_word if unit is not None else 1
    lanes = target.lanes(4 if unit is not None else
                         itemsize([found.reduce, found.left, found.right]))
    m, n, r = name_of(row), name_of(column), name_of(along)
    others = [name_of(x) for x in (*found.rows, *found.columns) if x not in (row, column)]
    outer = [*map(name_of, found.batch), f"{m}_o", f"{n}_o", *others]
    lengths = {name_of(x): extent(x) for x in (*found.batch, *found.rows, *found.columns)}
    lengths |= {f"{m}_o": -(-extent(row) // high), f"{n}_o": -(-extent(column) // wide)}
    steps: list[Transform] = [
        tiling.split(m, high, f"{m}_o", f"{m}_i"), tiling.split(n, wide, f"{n}_o", f"{n}_j"),
        tiling.split(r, lanes * terms, f"{r}_o", f"{r}_l" if unit is None else f"{r}_t")]
    word: list[str] = []
    if unit is not None:
        word = [f"{r}_e"]
        steps += [tiling.split(f"{r}_t", terms, f"{r}_l", f"{r}_e"),
                  tiling.tensorize(f"{r}_e", unit.name)]
    if product((*found.batch, *found.rows, *found.columns, *found.summed)) >= _PARALLEL:
        shared = max(outer, key=lengths.__getitem__)
        outer.remove(shared)
        outer.insert(0, shared)
        steps.append(tiling.parallel(shared))
    cut, summed = in_parts([*[(name_of(x), length(x)) for x in found.summed if x is not along],
                            (f"{r}_o", length(along, lanes * terms))])
    return [*steps, *cut, tiling.order(*outer, *_flat(summed), f"{m}_i", f"{n}_j", f"{r}_l",
                                       *word),
            tiling.unroll(f"{m}_i"), tiling.unroll(f"{n}_j"), tiling.vectorize(f"{r}_l")]


def _flat(loops: dict[str, list[str]]) -> list[str]:
    return [x for names in loops.values() for x in names]


class _Tiling:
    """The register tile, the block of tiles and the loops that suit a contraction."""

    def __init__(self, found: Contraction, target: Target, decisions: Decisions) -> None:
        self.found, self.target, self.decide = found, target, decisions.of
        self.row = found.rows[-1]
        self.column = next((r for r in found.columns if contiguous(found.right, [r])),
                           found.columns[-1])
        self.rough = any(stride(load, self.column) not in (0, 1)
                         for load in loads_below(found.right))
        self.itemsize = itemsize([found.reduce, found.left, found.right])
        self.unit = self._unit()
        self.depth, self.width = product(found.summed), product(found.columns)
        if self.unit is not None:  # register words of the sum, each as wide as a result
            self.depth, self.itemsize = -(-self.depth // self.unit.in_word), 4
        self.tile = self._tile()
        self.block = self._block()
        self.blocks = f"{name_of(self.row)}_io"  # the loop over blocks of rows

    def _tile(self) -> Tile:
        rows, columns = extent(self.row), extent(self.column)
        few = self._outside() is None and self._is_parallel(rows * columns) and \
            self.width <= self.target.lanes(self.itemsize) and self._right_bytes() <= self.target.l2
        model = register_tile(rows, columns, self.itemsize, self.target,
                              shares=_TWO if few else 1, tallest=self._tallest())
        high, wide = self.decide("tile", (model.rows, model.vectors), lambda: other_tiles(
            rows, columns, model.lanes, self.target))
        return Tile(high, wide, model.lanes)

    def _tallest(self) -> int:
        """Return the most rows of a tile. Hardware prefetch follows some eight streams at a time,
        which limits rows that are read once; of rows that lie pages apart the first-level cache
        holds as many as it has ways."""
        pitch = max([stride(x, self.row) * x.dtype.itemsize
                     for x in loads_below(self.found.left)], default=0)
        once = self.width <= self.target.lanes(self.itemsize)
        many = product(self.found.rows) > _MANY
        return _STREAMS if many and (once or pitch and pitch % _PAGE == 0) else TALLEST

    def _unit(self) -> Unit | None:
        """Return the matrix unit to use, if there is enough work to pay for laying out register
        words."""
        few = product(self.found.rows) < _UNIT_ROWS or product(self.found.summed) < _UNIT_TERMS
        unit = None if few else unit_of(self.found.reduce.src[0], self.target, "lanes")
        return unit if unit is None or self.decide("unit", True, lambda: [False]) else None

    def suits_dots(self, along: UOp) -> bool:
        """Return whether lanes go along the sum: there are few columns, or so few rows that packing
        the right factor, whose columns are strided, costs more than a horizontal reduction at the
        end."""
        lanes, terms = self.tile.lanes, extent(along)
        packing = self.rough and terms >= _DOT_VECTORS * lanes and \
            product(self.found.rows) * lanes <= min(_DOT_FOLDS * terms, _DOT_ROWS * lanes)
        return 2 * extent(self.column) <= lanes <= terms or packing

    def shares_columns(self) -> bool:
        """Return whether workers share column panels, each packed by the worker that reads it, so
        that nobody waits for a kernel that packs all. A panel must fit the L2 cache beside what
        passes over it, there must be panels for several workers, and caches must hold the left
        factor, all of which passes over each panel."""
        found = self.found
        wide = self.tile.vectors * self.tile.lanes
        pieces = -(-self.width // wide)
        busiest = -(-pieces // _SHARES) * _SHARES
        return not found.batch and self._packs_right() and not overlaps(found.right) and \
            _SHARES <= pieces and busiest <= _UNEVEN * pieces and \
            2 * wide * self.depth * self.itemsize <= self.target.l2 and \
            self._left_bytes() <= _HELD

    def _right_bytes(self) -> int:
        return self.width * self.depth * self.itemsize

    def _left_bytes(self) -> int:
        return product(self.found.rows) * self.depth * self.itemsize

    def _packs_left(self) -> bool:
        """Return whether the left factor is packed: if it is computed (for a unit: not in memory as
        register words), consists of overlapping windows, or its rows are so far apart that caches
        evict the lines of one tile before the next."""
        left = self.found.left
        across = contiguous(left, self.found.summed) == 0 and self._left_bytes() > _ACROSS_HELD
        if self.unit is not None:
            return across or not has_words(left, terms_of(self.found, self.unit), self.unit)
        return self._is_wide() and (across or overlaps(left) or not is_plain(left))

    def _packs_right(self) -> bool:
        """Return whether the right factor is packed: if it becomes register words, its lanes are
        strided, it is computed; or it exceeds the L2 cache and there are many rows."""
        rows = product(self.found.rows)
        if self.unit is not None and rows > self.tile.rows:  # words are laid out once
            return True
        if self.rough or not is_plain(self.found.right):
            return self.rough or self._is_reused() and self._is_large()
        return rows >= _REPAID and self._right_bytes() > self.target.l2

    def _is_wide(self) -> bool:
        """Return whether there are enough columns and terms that packing the left factor pays."""
        return self.width > _COLUMNS * self.tile.lanes and self.depth >= _DEPTH

    def _is_large(self) -> bool:
        """Return whether the right factor is large enough that packing it pays."""
        return self._right_bytes() > _PACK_COLUMNS

    def _is_reused(self) -> bool:
        """Return whether enough rows reuse the right factor."""
        return product(self.found.rows) >= _REUSED

    def unit_along(self, along: UOp) -> Unit | None:
        """Return the unit if both factors lie in memory as register words along a summed range."""
        whole = self.unit is not None and all(
            words_along(load, along, self.unit)
            for load in (*loads_below(self.found.left), *loads_below(self.found.right)))
        return self.unit if whole else None

    def _outside(self) -> UOp | None:
        """Return the first loop outside the row blocks with enough iterations for the workers."""
        outer = (*self.found.batch, *self.found.rows[:-1])
        return next((r for r in outer if extent(r) >= _SHARES), None)

    def _is_parallel(self, iterations: int) -> bool:
        """Return whether so many sums are shared by workers."""
        total = iterations * self.depth
        return self.decide("shared", total >= _PARALLEL, lambda: [
            total < _PARALLEL] if _PARALLEL // 8 <= total <= 8 * _PARALLEL else [])

    def _moves(self, r: UOp) -> bool:
        """Return whether a range is a loop."""
        return extent(r) > 1

    def _block(self) -> int:
        """Choose the row tiles per block: they fit half of the L2 cache and leave four blocks.

        More than a few would not reuse the right factor noticeably better. The blocks are balanced
        between two and between four processors: 10 tiles would be 5 blocks of 2, of which one of
        four processors gets 4 tiles; with one tile per block it gets 3. The last block must not be
        mostly padding, as all of its tiles are computed: 10 tiles would be 12 in blocks of 3.
        """
        rows = self.tile.rows
        fit = self.target.l2 // 2 // (rows * self.depth * self.itemsize)
        tiles = -(-extent(self.row) // rows)
        shared = self._outside() is None
        most = max(1, min(fit, _BLOCK // rows, -(-tiles // _SHARES) if shared else tiles))

        def slowest(block: int) -> int:
            if not shared:
                return 1
            blocks = -(-tiles // block)
            return sum(-(-blocks // n) * n * block for n in (_TWO, _SHARES))

        least = min(map(slowest, range(1, most + 1)))
        block = max(b for b in range(1, most + 1) if slowest(b) <= _EVEN * least
                    and -(-tiles // b) * b <= _EVEN * tiles)
        return self.decide("block", block, lambda: [
            b for b in (2 * block, block // 2, 4 * block, 1) if 1 <= b <= tiles])

    def steps(self) -> list[Transform]:
        found, (rows, vectors, lanes) = self.found, self.tile
        m, n = name_of(self.row), name_of(self.column)
        steps: list[Transform] = [
            tiling.split(m, rows * self.block, self.blocks, f"{m}_it"),
            tiling.split(f"{m}_it", rows, f"{m}_ir", f"{m}_i"),
            tiling.split(n, vectors * lanes, f"{n}_jr", f"{n}_jt"),
            tiling.split(f"{n}_jt", lanes, f"{n}_j", f"{n}_l")]
        outer = (*found.batch, *found.rows[:-1])
        loops = [*map(name_of, outer), self.blocks]
        if self._is_parallel(product((*outer, self.row)) * self.width):
            # workers share the first loop with enough iterations
            outside = self._outside()
            shared = self.blocks if outside is None else name_of(outside)
            loops.remove(shared)
            loops.insert(0, shared)
            steps.append(tiling.parallel(shared))
        across = [name_of(r) for r in found.columns if r is not self.column]
        cut, summed, terms = self._summed()
        steps += [*cut, tiling.order(*loops, *across, f"{n}_jr", f"{m}_ir", *summed,
                                     f"{m}_i", f"{n}_j", f"{n}_l", *terms),
                  tiling.unroll(f"{m}_i"), tiling.unroll(f"{n}_j"), tiling.vectorize(f"{n}_l"),
                  *self._collected()]
        return [*steps, *self._left_stages(loops), *self._right_stages(loops)]

    def over_pieces(self) -> list[Transform]:
        """Pass all of the left factor over each column panel of the right one. A panel is read in
        place if it consists of windows, else packed by the worker that reads it. Workers share
        panels, or the loops outside of them."""
        found, (rows, vectors, lanes) = self.found, self.tile
        m, n = name_of(self.row), name_of(self.column)
        steps: list[Transform] = [
            tiling.split(m, rows, f"{m}_ir", f"{m}_i"),
            tiling.split(n, vectors * lanes, f"{n}_jr", f"{n}_jt"),
            tiling.split(f"{n}_jt", lanes, f"{n}_j", f"{n}_l")]
        outer = [*found.batch, *[r for r in found.columns if r is not self.column]]
        lengths = {name_of(r): extent(r) for r in outer}
        lengths[f"{n}_jr"] = -(-extent(self.column) // (vectors * lanes))
        loops = list(lengths)
        if self._is_parallel(product((*outer, *found.rows, self.column))):
            shared = _shared(lengths)
            loops.remove(shared)
            loops.insert(0, shared)
            steps.append(tiling.parallel(shared))
        cut, summed, terms = self._summed()
        inner = [*map(name_of, found.rows[:-1]), f"{m}_ir", *summed]
        steps += [*cut, tiling.order(*loops, *inner, f"{m}_i", f"{n}_j", f"{n}_l", *terms),
                  tiling.unroll(f"{m}_i"), tiling.unroll(f"{n}_j"), tiling.vectorize(f"{n}_l"),
                  *self._collected()]
        windows = overlaps(found.right)
        packs = self._is_wide() or self.unit is not None if windows else self._packs_left()
        space = self._space("left", "GLOBAL" if packs else "", ["GLOBAL"])
        left = self._stages(found.left, None, space) if space else []
        space = self._space("right", "PRIV" if not windows and self._packs_right() else "",
                            ["PRIV"] * (not windows))
        own = {f"{n}_jr", *[name_of(r) for r in (*found.batch, *found.columns) if self._moves(r)]}
        right = self._stages(found.right, _innermost(loops, own), space) if space else []
        return [*steps, *left, *right]

    def _summed(self) -> tuple[list[Transform], list[str], list[str]]:
        """Return the loops of the sum, split if they are long, and the loop over the terms of a
        register word if a unit multiplies: it is split off the range along which more of the
        factors are contiguous."""
        loops = [(name_of(r), length(r)) for r in self.found.summed]
        cut: list[Transform] = []
        terms: list[str] = []
        if self.unit is not None:
            along = terms_of(self.found, self.unit)
            at, name, count = self.found.summed.index(along), name_of(along), self.unit.in_word
            words, term = f"{name}_w", f"{name}_e"
            loops[at], terms = (words, length(along, count)), [term]
            cut = [tiling.split(name, count, words, term),
                   tiling.tensorize(term, self.unit.name)]
        # if registers hold their accumulators too, blocked sums cost next to nothing
        few = 2 * self.tile.rows * self.tile.vectors + self.tile.vectors < \
            self.target.vector_registers
        model = even(loops, _CHAIN) if few else _CHAIN
        chain = self.decide("terms", model, lambda: other_chains(model))
        steps, parts = in_parts(loops, chain, None if few or chain != model else _LONGEST)
        return [*cut, *steps], _flat(parts), terms

    def _collected(self) -> list[Transform]:
        """Roll the epilogue of a tile into a loop over its rows, if that saves enough code."""
        pays = self.found.epilogue >= _EPILOGUE and self.tile.rows * self.tile.vectors >= _FEW
        return [tiling.collect(f"{name_of(self.row)}_i")] if pays else []

    def _has_blocks(self) -> bool:
        return extent(self.row) > self.tile.rows * self.block

    def _left_stages(self, loops: list[str]) -> list[Transform]:
        space = self._space("left", "PRIV" if self._packs_left() else "", ["PRIV", "GLOBAL"])
        if space != "PRIV":
            return self._stages(self.found.left, None, space) if space else []
        moving = {name_of(r) for r in (*self.found.batch, *self.found.rows) if self._moves(r)}
        if self._has_blocks():
            moving.add(self.blocks)
        return self._stages(self.found.left, _innermost(loops, moving))

    def _right_stages(self, loops: list[str]) -> list[Transform]:
        found = self.found
        if not found.batch:
            often = self.unit is not None or self._is_reused() or self._is_large()
            model = ("GLOBAL" if often else "PRIV") if self._packs_right() else ""
            space = self._space("right", model, ["PRIV", "GLOBAL"])
            return self._stages(found.right, None, space) if space else []
        batch = {name_of(r) for r in found.batch if self._moves(r)}
        again = self.unit is not None and product(found.rows) > self.tile.rows
        space = self._space("right", "PRIV" if self.rough or again else "", ["PRIV"])
        return self._stages(found.right, _innermost(loops, batch)) if space else []

    def _space(self, factor: str, model: str, others: Sequence[str]) -> str:
        """Return where a factor is packed. Register words of a matrix unit must be packed."""
        return self.decide(factor, model, lambda: [*others, *[""] * (self.unit is None)])

    def _stages(self, factor: UOp, at: str | None, space: str = "PRIV") -> list[Transform]:
        return stages(self.found, factor, at, name_of(self.row), name_of(self.column), space)


class _SharedTiling(_Tiling):
    """One of a few tilings for all shapes: extents are distinguished only coarsely. No matrix unit
    is used, as nothing tells whether register words lie in memory; they would be assembled term by
    term."""

    def _unit(self) -> Unit | None:
        return None

    def _tile(self) -> Tile:
        return register_tile(extent(self.row), extent(self.column), self.itemsize, self.target,
                             _TILES)

    def _is_parallel(self, iterations: int) -> bool:
        return True

    def _summed(self) -> tuple[list[Transform], list[str], list[str]]:
        """Split the sum as if its lengths were unknown: other lengths have other divisors."""
        lengths = [length(r) for r in self.found.summed]
        cut = None in lengths or math.prod([n or 1 for n in lengths]) > 2 * CHAIN
        steps, parts = in_parts([(name_of(r), None if cut else n)
                                 for r, n in zip(self.found.summed, lengths)])
        return steps, _flat(parts), []

    def _moves(self, r: UOp) -> bool:
        return True

    def _has_blocks(self) -> bool:
        return True

    def _block(self) -> int:
        return max(1, _BLOCK // self.tile.rows) if self._is_long() else 1

    def _is_long(self) -> bool:
        """Return whether packing both factors pays."""
        return self._is_large() and self._is_reused()

    def _packs_right(self) -> bool:
        return self.rough or self._is_long()

    def _left_stages(self, loops: list[str]) -> list[Transform]:
        packed = self._is_long() or self._is_wide()
        return self._stages(self.found.left, self.blocks) if packed else []


def _innermost(loops: list[str], some: set[str]) -> str | None:
    return next((x for x in reversed(loops) if x in some), None)
