"""Mask inactive lanes in a loop with a stop condition per lane.

    before  LOOP(t, x0, f(CARRY x), stop = x > 4)                     stop over lanes l VEC 16
            STORE(y[t, l], PER_ITERATION(CARRY x))
    after   LOOP(t, x0, False, WHERE(e, CARRY x, f(CARRY x)), e, stop = e)    e = CARRY 1 or x > 4
            STORE(y[t, l], PER_ITERATION(CARRY x), valid = PER_ITERATION(not e))

All lanes and unrolled instances run in one loop, which ends when all of them are inactive.

>>> from fnx.core.ir import dtypes
>>> t, l = build.range_(9, 0), build.range_(16, 1, "VEC")
>>> x, zero = build_kernel_loops.carry(0, 0, dtypes.float32, (t, l)), build.const(0, dtypes.float32)
>>> lane = build.cast(l, dtypes.float32)
>>> loop = build_kernel_loops.loop(0, t, [zero], [build.add(x, lane)], build.lt(lane, x))
>>> o = build.index_into(build.ref(0, dtypes.float32, (16,)), l)
>>> kernel = build.kernel([build.store(o, build.results(loop)[0])], "count", (0, 1))
>>> [len(n.arg.outs) for n in toposort([mask_finished_lanes(kernel)]) if n.op is ops.LOOP]
[2]
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from fnx.core.ir import build, build_kernel_loops, dtypes, ops
from fnx.core.ir.accessors import bound_ranges, carries, init_values, next_values, stop_condition
from fnx.core.ir.uop import UOp, rebuild, toposort
from fnx.core.support.range_kinds import REPLICATED_KINDS


def mask_finished_lanes(kernel: UOp) -> UOp:
    """Return the KERNEL in which stop conditions per lane or instance are carried values."""
    nodes = toposort(kernel.src)
    if not any(n.op is ops.LOOP and _has_lane_stop(n) for n in nodes):
        return kernel
    rewritten: dict[UOp, UOp] = {}
    finished: dict[UOp, UOp] = {}  # old LOOP -> its stop condition, over its CARRYs

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.LOOP and _has_lane_stop(node):
            rewritten[node], finished[node] = _mask_finished(node.with_operands(src), nodes)
            return rewritten[node]
        if node.op is ops.GETTUPLE and node.src[0] in rewritten:
            return UOp(ops.GETTUPLE, node.dtype, (rewritten[node.src[0]],), node.arg)
        if node.op is ops.STORE:
            at, value, *valid = src
            for loop, loops_around in _loops_of(node, src):
                if loop in rewritten:
                    condition = build.logical_not(finished[loop])
                    for around in (rewritten[loop], *reversed(loops_around)):
                        condition = build_kernel_loops.per_iteration(condition, around)
                    valid.append(condition)
            return build.store(at, value, functools.reduce(build.and_, valid) if valid else None,
                               node.arg)
        return None

    return kernel.with_operands(tuple(rebuild(kernel.src, visit)))


def _loops_of(store: UOp, src: Sequence[UOp]) -> dict[tuple[UOp, tuple[UOp, ...]], None]:
    """Return the LOOPs in whose iterations a STORE runs, each with the rewritten LOOPs around it,
    the outermost first. ``src`` are the rewritten operands of the STORE."""
    loops: dict[tuple[UOp, tuple[UOp, ...]], None] = {}
    stack: list[tuple[UOp, UOp, tuple[UOp, ...]]] = [(*pair, ()) for pair in zip(store.src, src)]
    seen = {*stack}
    while stack:
        old, new, around = stack.pop()
        operands = [*zip(old.src, new.src)]
        if old.op is ops.PER_ITERATION:
            loops[old.src[1], around] = None
            operands, around = operands[:1], (*around, new.src[1])
        elif old.op is ops.LOOP:
            continue
        for pair in operands:
            if (*pair, around) not in seen:
                seen.add((*pair, around))
                stack.append((*pair, around))
    return loops


def _has_lane_stop(loop: UOp) -> bool:
    condition = stop_condition(loop)
    return condition is not None and any(r.arg.kind in REPLICATED_KINDS for r in condition.ranges)


def _mask_finished(loop: UOp, nodes: Sequence[UOp]) -> tuple[UOp, UOp]:
    """Return the LOOP with a carried inactive mask, and that mask within an iteration."""
    condition, id, t = stop_condition(loop), loop.arg.id, bound_ranges(loop)[0]
    assert condition is not None
    ranges = sorted(condition.ranges - {t}, key=lambda r: r.arg.id)
    was_finished = build_kernel_loops.carry(id, len(loop.arg.outs), dtypes.bool_, (t, *ranges))
    finished = build.or_(was_finished, condition)
    masked = [build.where(finished, old, value)
              for old, value in zip(carries(loop, nodes), next_values(loop))]
    false = build.const(False, dtypes.bool_)
    return build_kernel_loops.loop(id, t, [*init_values(loop), false], [*masked, finished],
                                   finished), finished
