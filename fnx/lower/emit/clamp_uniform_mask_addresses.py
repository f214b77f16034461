"""Clamp the address of loads with a uniform mask, and select after the load.

    before  LOAD(x[i - 1, l], valid = 0 < i and i < 9 and l < n)            l VEC, x of 8 rows
    after   WHERE(0 < i and i < 9, LOAD(x[min(max(i - 1, 0), 7), l], valid = l < n), 0)

A masked load without active lanes is not free: if its address is unmapped, such as the row before
the first one, it costs the machine some hundred cycles.

>>> from fnx.core.ir import dtypes
>>> i, l = build.range_(10, 0), build.range_(16, 1, "VEC")
>>> before = build.add(i, build.index_const(-1))
>>> valid = build.and_(build.lt(build.index_const(0), i), build.lt(i, build.index_const(9)))
>>> x = build.load(build.index_into(build.ref(0, dtypes.float32, (8, 16)), before, l), valid)
>>> o = build.index_into(build.ref(1, dtypes.float32, (10, 16)), i, l)
>>> made = clamp_uniform_mask_addresses(build.kernel([build.store(o, x)], "pad", (0, 1)))
>>> [len(n.src) for n in toposort(made.src) if n.op is ops.LOAD]
[1]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import buffer, conjuncts, index_dims
from fnx.core.ir.expr import Expr, maximum, minimum
from fnx.core.ir.uop import UOp, rebuild, toposort
from fnx.core.rewriting import symbolic


def clamp_uniform_mask_addresses(kernel: UOp) -> UOp:
    """Return the KERNEL whose loads have no conditions that are uniform across lanes."""
    masked_loads = [n for n in toposort(kernel.src) if n.op is ops.LOAD and len(n.src) > 1]
    if not masked_loads:
        return kernel
    written = {buffer(s).arg.slot for s in kernel.src}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.WHERE and src[1].op is ops.WHERE and src[1].src[0] is src[0]:
            return node.with_operands((src[0], src[1].src[1], src[2]))
        if node.op is not ops.LOAD or len(src) < 2 or buffer(node).op is not ops.REF \
                or buffer(node).arg.slot in written or not any(map(_is_lane, node.ranges)):
            return None
        return _clamp_load(node.with_operands(src))

    return kernel.with_operands(tuple(rebuild(kernel.src, visit)))


def _is_lane(r: UOp) -> bool:
    return bool(r.arg.kind == "VEC")


def _clamp_load(load: UOp) -> UOp | None:
    """Return a WHERE of a LOAD at the nearest in-bounds index, or None."""
    index, valid = load.src
    axes = index_dims(index)
    if not all(d.op is ops.CONST and build.const_of(d) > 0 for _, d in axes):
        return None
    uniform, rest = _split_uniform(conjuncts(valid))
    ranges = frozenset().union(*[c.ranges for c in uniform])
    clamped_indices = [i for i, _ in axes if not i.ranges.isdisjoint(ranges)]
    varying_ranges = frozenset().union(*[c.ranges for c in rest])
    if any(_is_lane(r) for i in clamped_indices for r in i.ranges) \
            or all(_is_in_bounds(i, d) for i, d in axes if i in clamped_indices) \
            or not all(_is_in_bounds(i, d) or not varying_ranges.isdisjoint(i.ranges)
                       for i, d in axes if i not in clamped_indices):
        return None
    clamped = [_clamp_index(i, d) if i in clamped_indices else i for i, d in axes]
    value = build.load(build.index_into(buffer(index), *clamped),
                       reduce(build.and_, rest) if rest else None)
    return build.where(reduce(build.and_, uniform), value, build.const(0, load.dtype))


def _split_uniform(conditions: Sequence[UOp]) -> tuple[list[UOp], list[UOp]]:
    """Split off conditions that are uniform and share no range with one that is not."""
    rest = [c for c in conditions if any(map(_is_lane, c.ranges))]
    uniform = [c for c in conditions if c not in rest]
    while linked := [c for c in uniform if any(not c.ranges.isdisjoint(o.ranges) for o in rest)]:
        rest += linked
        uniform = [c for c in uniform if c not in linked]
    return uniform, [c for c in conditions if c in rest]


def _is_in_bounds(i: UOp, dim: UOp) -> bool:
    return symbolic.bounds(i)[0] >= 0 and symbolic.prove(build.lt(i, dim)) is True


def _clamp_index(i: UOp, dim: UOp) -> UOp:
    """Clamp an index to its axis."""
    last = Expr(build.index_const(build.const_of(dim) - 1))
    least = Expr(build.index_const(0))
    return symbolic.simplify(minimum(maximum(Expr(i), least), last).node)
