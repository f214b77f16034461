"""Update rows: vectorize what a scatter computes per row, for a block of rows at once.

    before  STORE(o[wrap(i[r0]), r1], x[r0, r1], inside, ADD)                  r0 < 512, r1 < 2
    after   p = STAGE(wrap(i[128*r2 + r3]), r3)                                r3 < 128
            STORE(o[p[r4], r1], x[128*r2 + r4, r1], inside, ADD)               r2 < 4, r4 < 128

Updates are applied in order, one at a time, and so would be the computation of their indices and
values: wrapping negative indices, clamping indices of loads. Those values are staged that save
the most instructions: SIMD code for the fill, and a load of each.

>>> from fnx.core.ir.expr import where
>>> r = build.range_(512, 0)
>>> i = Expr(build.load(build.index_into(build.ref(0, dtypes.int32, (512,)), r)))
>>> wrapped = build.cast(where(i < 0, i + 9, i).node, dtypes.index)
>>> x, o = build.ref(1, dtypes.float32, (512,)), build.ref(2, dtypes.float32, (9,))
>>> add = build.store(build.index_into(o, wrapped), build.load(build.index_into(x, r)), None,
...                   ops.ADD)
>>> after = stage_scatter_rows(build.kernel([add], "scatter", (0,)), Target("cpu"))
>>> [n.src[0].op for n in toposort(after.src) if n.op is ops.STAGE], after.arg.order
([WHERE], (1, 2))
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import buffer, conjuncts, index_node, indices, validity, value
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp, rebuild, substitute, toposort
from fnx.core.support.target import Target
from fnx.lower.analysis.canonicalize import with_stores
from fnx.lower.analysis.tuning import WAYS
from fnx.lower.analysis.workload import extent, is_static, itemsize, stride
from fnx.lower.schedule.legality import ordered_ranges
from fnx.lower.schedule.statement_cost import UNROLL

_UNSUPPORTED = frozenset({ops.REDUCE, ops.STAGE, ops.LOOP, ops.CARRY})


def stage_scatter_rows(kernel: UOp, target: Target) -> UOp:
    """Stage the values of a KERNEL that are computed per row, if its single STORE must run in order
    and that saves instructions."""
    store = kernel.src[0]
    serial_ranges = ordered_ranges(store) if len(kernel.src) == 1 else []
    if not serial_ranges:
        return kernel
    nodes = toposort(kernel.src)
    lanes = target.vector_lanes(itemsize(nodes))
    unrolled = UNROLL * lanes
    if extent(serial_ranges[-1]) < unrolled or not all(map(is_static, store.ranges)) or \
            any(n.op in _UNSUPPORTED or _reads_target(n, store) for n in nodes):
        return kernel
    r, position = serial_ranges[-1], kernel.arg.order.index
    outer_ranges = frozenset([q for q in store.ranges if position(q.arg.id) <= position(r.arg.id)])
    if any(extent(q) > unrolled for q in store.ranges - outer_ranges):
        return kernel  # workers may share a row, and each of them would fill the stages
    staged_values = _StageSelection(r, outer_ranges, lanes).of(store.src)
    return _stage_rows(kernel, staged_values, r,
                       _block_rows(staged_values, extent(r), lanes, target)) \
        if staged_values else kernel


def _reads_target(node: UOp, store: UOp) -> bool:
    """Whether it loads from the buffer that the STORE writes, and so must see earlier updates."""
    return node.op is ops.LOAD and buffer(node).arg == buffer(store).arg


class _StageSelection:
    """Selects the values over a range and its outer ranges to stage."""

    def __init__(self, r: UOp, around: frozenset[UOp], lanes: int) -> None:
        self.r, self.around, self.lanes = r, around, lanes
        self._best: dict[UOp, tuple[float, tuple[UOp, ...]]] = {}
        self._below: dict[UOp, int] = {}  # a bit for each node below for which SIMD saves something
        self._by_saving: dict[float, int] = {}  # ... nodes with equal savings
        self._wide: set[UOp] = set()  # index comparisons, and values computed from these

    def of(self, roots: Sequence[UOp]) -> tuple[UOp, ...]:
        """Return the values that are worth a STAGE."""
        for node in toposort(roots):
            self._collect(node)
            operand_choices = [self._best[s] for s in node.src]
            combined = tuple(dict.fromkeys(v for _, values in operand_choices for v in values))
            combined_saving = sum(self._best[v][0] for v in combined)
            own_saving = self._net_saving(node) if self._can_stage(node) else 0.0
            self._best[node] = (own_saving, (node,)) if own_saving > combined_saving else \
                (combined_saving, combined)
        return tuple(dict.fromkeys(v for s in roots for v in self._best[s][1]))

    def _collect(self, node: UOp) -> None:
        """Update the set of nodes below a node, from those of its operands: each node counts
        once."""
        nodes_below = reduce(operator.or_, [self._below[s] for s in node.src], 0)
        saving = self._own_saving(node)
        if saving:
            bit = 1 << len(self._below)
            self._by_saving[saving] = self._by_saving.get(saving, 0) | bit
            nodes_below |= bit
        self._below[node] = nodes_below
        if _compares_indices(node) or not self._wide.isdisjoint(node.src):
            self._wide.add(node)

    def _can_stage(self, node: UOp) -> bool:
        return node.dtype is not dtypes.index and node.dtype is not dtypes.void \
            and (node.op in ops.ELEMENTWISE or node.op is ops.LOAD) \
            and self.r in node.ranges and node.ranges <= self.around \
            and not (node.dtype is dtypes.bool_ and node in self._wide)

    def _net_saving(self, node: UOp) -> float:
        """Return the instructions per row that SIMD saves, less those to store and load the
        value."""
        below = self._below[node]
        return sum([saved * (below & alike).bit_count()
                    for saved, alike in self._by_saving.items()]) - 1.0 - 1 / self.lanes

    def _own_saving(self, node: UOp) -> float:
        """Return the instructions of a node by itself that SIMD saves."""
        if self.r not in node.ranges or node.dtype is dtypes.index:
            return 0.0
        each = 1 - 1 / self.lanes
        if node.op is ops.LOAD:  # lanes of a strided load are read one by one
            return each if abs(stride(node, self.r)) <= 1 else 0.0
        return node.op.cost * each if node.op in ops.ELEMENTWISE else 0.0


def _compares_indices(node: UOp) -> bool:
    """Whether the lanes of a condition would be twice as wide as its result."""
    return node.op in ops.COMPARISONS and node.src[0].dtype is dtypes.index


def _is_load(node: UOp) -> bool:
    return node.op is ops.LOAD


def _block_rows(staged_values: Sequence[UOp], count: int, lanes: int, target: Target) -> int:
    """Return how many rows are computed at once: all if their stages take at most one way of each
    set of the L1 cache, else a divisor, else the size that gives blocks of equal length."""
    min_rows, row = UNROLL * lanes, sum([v.dtype.itemsize for v in staged_values])
    max_rows = max(min_rows, target.l1 // WAYS // row // lanes * lanes)
    if count <= max_rows:
        return count
    for block in range(max_rows, min_rows - 1, -lanes):
        if count % block == 0:
            return block
    blocks = -(-count // max_rows)
    return -(-count // (blocks * lanes)) * lanes


def _stage_rows(kernel: UOp, staged_values: Sequence[UOp], r: UOp, block: int) -> UOp:
    count = extent(r)
    blocks = -(-count // block)
    fresh = max(kernel.arg.order) + 1
    outer = build.range_(blocks, r.arg.id)
    fill, row = build.range_(block, fresh), build.range_(block, fresh + 1)

    def row_index(inner: UOp) -> UOp:
        return inner if blocks == 1 else (Expr(outer) * block + Expr(inner)).node

    def in_bounds(inner: UOp) -> UOp | None:
        return None if blocks * block == count else (Expr(row_index(inner)) < count).node

    stages = {}
    for i, v in enumerate(staged_values):
        filled, = _mask_fill_loads(substitute([v], {r: row_index(fill)}), fill, in_bounds(fill))
        stages[v] = build.load(build.index_into(build.stage(filled, [fill], i), row))
    stores = substitute(kernel.src, {**stages, r: row_index(row)})
    end = in_bounds(row)
    if end is not None:
        store, = stores
        valid = reduce(build.and_, [end, *conjuncts(validity(store))])
        stores = [build.store(index_node(store), value(store), valid, store.arg)]
    first = kernel.arg.order.index(r.arg.id)
    order = [*kernel.arg.order[:first], *([r.arg.id] if blocks > 1 else []), fresh, fresh + 1,
             *kernel.arg.order[first + 1:]]
    return with_stores(kernel, stores, order)


def _mask_fill_loads(roots: Sequence[UOp], fill: UOp, inside: UOp | None) -> Sequence[UOp]:
    """Restrict the loads along the fill to rows that exist."""
    if inside is None:
        return roots

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.LOAD or not any(
                n is fill for n in toposort(indices(node), stop=_is_load)):
            return None
        return build.load(src[0], inside if len(src) == 1 else build.and_(inside, src[1]))

    return rebuild(roots, visit)
