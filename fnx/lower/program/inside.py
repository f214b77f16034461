"""Clamp the address of loads with a uniform mask, and select after the load.

    before  LOAD(x[i - 1, l], valid = 0 < i and i < 9 and l < n)            l VEC, x of 8 rows
    after   WHERE(0 < i and i < 9, LOAD(x[min(max(i - 1, 0), 7), l], valid = l < n), 0)

A masked load without active lanes is not free: if its address is unmapped, such as the row before
the first one, it costs the machine some hundred cycles.

>>> from fnx.core import dtypes
>>> i, l = build.range_(10, 0), build.range_(16, 1, "VEC")
>>> before = build.add(i, build.index_const(-1))
>>> valid = build.and_(build.lt(build.index_const(0), i), build.lt(i, build.index_const(9)))
>>> x = build.load(build.at(build.ref(0, dtypes.float32, (8, 16)), before, l), valid)
>>> o = build.at(build.ref(1, dtypes.float32, (10, 16)), i, l)
>>> made = inside(build.kernel([build.store(o, x)], "pad", (0, 1)))
>>> [len(n.src) for n in toposort(made.src) if n.op is ops.LOAD]
[1]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from fnx.core import build, ops
from fnx.core.expr import Expr, maximum, minimum
from fnx.core.parts import buffer, conjuncts, dims, indices
from fnx.core.rewriting import symbolic
from fnx.core.uop import UOp, rebuild, toposort


def inside(kernel: UOp) -> UOp:
    """Return the KERNEL whose loads have no conditions that are uniform across lanes."""
    found = [n for n in toposort(kernel.src) if n.op is ops.LOAD and len(n.src) > 1]
    if not found:
        return kernel
    written = {buffer(s).arg.slot for s in kernel.src}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.WHERE and src[1].op is ops.WHERE and src[1].src[0] is src[0]:
            return node.over((src[0], src[1].src[1], src[2]))
        if node.op is not ops.LOAD or len(src) < 2 or buffer(node).op is not ops.REF \
                or buffer(node).arg.slot in written or not any(map(_is_lane, node.ranges)):
            return None
        return _unmasked(node.over(src))

    return kernel.over(tuple(rebuild(kernel.src, visit)))


def _is_lane(r: UOp) -> bool:
    return bool(r.arg.kind == "VEC")


def _unmasked(load: UOp) -> UOp | None:
    """Return a WHERE of a LOAD at the nearest in-bounds index, or None."""
    at, valid = load.src
    sides = list(zip(indices(at), dims(buffer(at))))
    if not all(d.op is ops.CONST and build.const_of(d) > 0 for _, d in sides):
        return None
    together, rest = _split(conjuncts(valid))
    ranges = frozenset().union(*[c.ranges for c in together])
    touched = [i for i, _ in sides if not i.ranges.isdisjoint(ranges)]
    known = frozenset().union(*[c.ranges for c in rest])
    if any(_is_lane(r) for i in touched for r in i.ranges) \
            or all(_is_inside(i, d) for i, d in sides if i in touched) \
            or not all(_is_inside(i, d) or not known.isdisjoint(i.ranges)
                       for i, d in sides if i not in touched):
        return None
    near = [_nearest(i, d) if i in touched else i for i, d in sides]
    value = build.load(build.at(buffer(at), *near), reduce(build.and_, rest) if rest else None)
    return build.where(reduce(build.and_, together), value, build.const(0, load.dtype))


def _split(conditions: Sequence[UOp]) -> tuple[list[UOp], list[UOp]]:
    """Split off conditions that are uniform and share no range with one that is not."""
    rest = [c for c in conditions if any(map(_is_lane, c.ranges))]
    together = [c for c in conditions if c not in rest]
    while met := [c for c in together if any(not c.ranges.isdisjoint(o.ranges) for o in rest)]:
        rest += met
        together = [c for c in together if c not in met]
    return together, [c for c in conditions if c in rest]


def _is_inside(i: UOp, dim: UOp) -> bool:
    return symbolic.bounds(i)[0] >= 0 and symbolic.proves(build.lt(i, dim)) is True


def _nearest(i: UOp, dim: UOp) -> UOp:
    """Clamp an index to its axis."""
    last = Expr(build.index_const(build.const_of(dim) - 1))
    least = Expr(build.index_const(0))
    return symbolic.simplify(minimum(maximum(Expr(i), least), last).node)
