"""Mask inactive lanes in a loop with a stop condition per lane.

    before  ITER(t, x0, f(CARRY x), stop = x > 4)                     stop over lanes l VEC 16
            STORE(y[t, l], STEP(CARRY x))
    after   ITER(t, x0, False, WHERE(e, CARRY x, f(CARRY x)), e, stop = e)    e = CARRY 1 or x > 4
            STORE(y[t, l], STEP(CARRY x), valid = STEP(not e))

All lanes and unrolled instances run in one loop, which ends when all of them are inactive.

>>> from fnx.core import dtypes
>>> t, l = build.range_(9, 0), build.range_(16, 1, "VEC")
>>> x, zero = build.carry(0, 0, dtypes.float32, (t, l)), build.const(0, dtypes.float32)
>>> lane = build.cast(l, dtypes.float32)
>>> loop = build.iterate(0, t, [zero], [build.add(x, lane)], build.lt(lane, x))
>>> o = build.at(build.ref(0, dtypes.float32, (16,)), l)
>>> kernel = build.kernel([build.store(o, build.results(loop)[0])], "count", (0, 1))
>>> [len(n.arg.outs) for n in toposort([ended_lanes(kernel)]) if n.op is ops.ITER]
[2]
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import build, dtypes, ops
from fnx.core.parts import carries, closed, inits, nexts, stop
from fnx.core.range_kinds import REPLICATED
from fnx.core.uop import UOp, rebuild, toposort


def ended_lanes(kernel: UOp) -> UOp:
    """Return the KERNEL in which stop conditions per lane or instance are carried values."""
    nodes = toposort(kernel.src)
    if not any(n.op is ops.ITER and _ends_apart(n) for n in nodes):
        return kernel
    made: dict[UOp, UOp] = {}
    ended: dict[UOp, UOp] = {}  # old ITER -> its stop condition, over its CARRYs

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.ITER and _ends_apart(node):
            made[node], ended[node] = _masked(node.over(src), nodes)
            return made[node]
        if node.op is ops.GET and node.src[0] in made:
            return UOp(ops.GET, node.dtype, (made[node.src[0]],), node.arg)
        if node.op is ops.STORE:
            loops = [n.src[1] for n in toposort([node], stop=lambda n: n.op is ops.STEP)
                     if n.op is ops.STEP and n.src[1] in made]
            at, value, *valid = src
            for loop in dict.fromkeys(loops):
                valid.append(build.step(build.logical_not(ended[loop]), made[loop]))
            together = None
            for condition in valid:
                together = condition if together is None else build.and_(together, condition)
            return build.store(at, value, together, node.arg)
        return None

    return kernel.over(tuple(rebuild(kernel.src, visit)))


def _ends_apart(loop: UOp) -> bool:
    condition = stop(loop)
    return condition is not None and any(r.arg.kind in REPLICATED for r in condition.ranges)


def _masked(loop: UOp, nodes: Sequence[UOp]) -> tuple[UOp, UOp]:
    """Return the ITER with a carried inactive mask, and that mask within an iteration."""
    condition, id, t = stop(loop), loop.arg.id, closed(loop)[0]
    assert condition is not None
    ranges = sorted(condition.ranges - {t}, key=lambda r: r.arg.id)
    before = build.carry(id, len(loop.arg.outs), dtypes.bool_, (t, *ranges))
    ended = build.or_(before, condition)
    kept = [build.where(ended, old, value)
            for old, value in zip(carries(loop, nodes), nexts(loop))]
    false = build.const(False, dtypes.bool_)
    return build.iterate(id, t, [*inits(loop), false], [*kept, ended], ended), ended
