"""Fold transposes into loop kernels: cheap kernels access an array in its own layout.

    before  o = PERMUTE(CALL(KERNEL, PERMUTE(x)))       x, o: (B, T); the kernel: T steps, B lanes
    after   o = CALL(KERNEL', x)                        o[b, t] = sum of x[b, 0 .. t]

A SCAN runs over leading axes, so one along the last axis of an array is between two transposes,
each of which costs more than a cumulative sum does. The kernel then processes several rows at once
in scalar code (schedule/choose.py). With more work per step, SIMD lanes are worth the transposes.
A loop along an axis in the middle keeps its lanes, which are contiguous in either layout.

>>> from fnx.core import dtypes
>>> from fnx.core.array.running import running
>>> from fnx.lower.loops.one_kernel import one_kernel
>>> x = build.param(0, dtypes.float32, (64, 100))
>>> found, = turned(one_kernel(build.function([running(x, 1, ops.ADD)], 1))).src
>>> found.op, found.src[0].op, found.src[0].src[1] is x
(GET, CALL, True)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fnx.core import build, ops, parts
from fnx.core.rewriting import symbolic
from fnx.core.uop import UOp, inherit, rebuild, toposort

MAX_WORK = 4  # additions per step and carried value; with more, lanes pay

Orders = dict[int, tuple[int, ...]]  # slot -> which dimension comes first, second, ...


def turned(fn: UOp) -> UOp:
    """Fold the transposes around the kernels of such loops into these kernels."""
    nodes = toposort(fn.src)
    calls = [n for n in nodes if n.op is ops.CALL and n.src[0].op is ops.KERNEL]
    if not calls:
        return fn
    readers: dict[UOp, list[UOp]] = {out: [out] for out in fn.src}
    for node in nodes:
        for s in node.src:
            readers.setdefault(s, []).append(node)
    found = {call: orders for call in calls if (orders := _orders(call, readers))}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in found:
            return _call(node, src, found[node])
        below = node.src[0] if node.op is ops.PERMUTE else node
        if below is not node and below.op is ops.GET and below.src[0] in found:
            return src[0] if _slot(below) in found[below.src[0]] else None
        return None

    return fn.over(tuple(rebuild(fn.src, visit))) if found else fn


def _slot(result: UOp) -> int:
    """Return the slot that a kernel writes a result to."""
    return len(result.src[0].src) - 1 + int(result.arg)


def _orders(call: UOp, readers: Mapping[UOp, Sequence[UOp]]) -> Orders | None:
    """Return the slots whose layout changes; None if the kernel stays as it is."""
    kernel, *operands = call.src
    nodes = toposort([kernel])
    loops = [n for n in nodes if n.op is ops.ITER]
    work = sum(n.op.cost for n in nodes if n.op in ops.ELEMENTWISE and n.dtype.kind != "index")
    if call.arg.schedule or len(loops) != 1:
        return None
    t, = parts.closed(loops[0])
    found: Orders = {}
    for slot, operand in enumerate(operands):
        if operand.op is ops.PERMUTE:
            found[slot] = tuple([operand.arg.index(a) for a in range(len(operand.arg))])
    for result in readers.get(call, ()):
        turns = readers.get(result, ())
        if turns and len({(n.op, n.arg) for n in turns}) == 1 and turns[0].op is ops.PERMUTE:
            found[_slot(result)] = turns[0].arg
    used: set[int] = set()
    ways: set[bool] = set()  # whether the loop traverses rows
    for place in (n for n in nodes if n.op is ops.INDEX and t in n.ranges):
        ref, *index = place.src
        if ref.op is not ops.REF:
            return None
        order = found.get(ref.arg.slot)
        if order is not None and len(order) == len(index):
            used.add(ref.arg.slot)
            index = [index[a] for a in order]
        along = not any(t in i.ranges for i in index[:-1]) and \
            symbolic.coefficient(index[-1], t) in (1, -1)
        beside = t not in index[-1].ranges and index[-1] is place.src[-1]
        if not along and not beside:
            return None
        ways.add(along)
    if len(ways) != 1 or ways == {True} and work > MAX_WORK * len(loops[0].arg.outs):
        return None
    return {slot: order for slot, order in found.items() if slot in used} or None


def _call(call: UOp, src: Sequence[UOp], orders: Orders) -> UOp:
    """Return the call on the arrays in their original layout."""
    kernel, *operands = src

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.INDEX or src[0].op is not ops.REF or src[0].arg.slot not in orders:
            return None
        (ref, *index), order = src, orders[src[0].arg.slot]
        return build.at(ref.over(tuple([ref.src[a] for a in order])), *[index[a] for a in order])

    given = [operand.src[0] if slot in orders else operand
             for slot, operand in enumerate(operands)]
    outs = [(tuple([shape[a] for a in orders[len(given) + i]]) if len(given) + i in orders
             else shape, dtype) for i, (shape, dtype) in enumerate(call.arg.outs)]
    body, = rebuild([kernel], visit)
    return inherit(UOp(ops.CALL, call.dtype, (body, *given), call.arg.replace(outs=tuple(outs))),
                   call)
