"""Fold transposes into loop kernels: cheap kernels access an array in its own layout.

    before  o = PERMUTE(CALL(KERNEL, PERMUTE(x)))       x, o: (B, T); the kernel: T steps, B lanes
    after   o = CALL(KERNEL', x)                        o[b, t] = sum of x[b, 0 .. t]

A SCAN runs over leading axes, so one along the last axis of an array is between two transposes,
each of which costs more than a cumulative sum does. The kernel then processes several rows at once
in scalar code (schedule/heuristics.py). With more work per step, SIMD lanes are worth the
transposes. A loop along an axis in the middle keeps its lanes, which are contiguous in either
layout.

>>> from fnx.core.ir import dtypes
>>> from fnx.core.formulas.cumulative import cumulative
>>> from fnx.lower.loops.fuse_loop_into_kernel import fuse_loop_into_kernel
>>> x = build.param(0, dtypes.float32, (64, 100))
>>> sums = build.function([cumulative(x, 1, ops.ADD)], 1)
>>> found, = fold_transposes(fuse_loop_into_kernel(sums)).src
>>> found.op, found.src[0].op, found.src[0].src[1] is x
(GETTUPLE, CALL, True)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.uop import UOp, copy_locs, rebuild, rebuild_results, toposort
from fnx.core.rewriting import symbolic

MAX_WORK = 4  # additions per step and carried value; with more, lanes pay

DimOrders = dict[int, tuple[int, ...]]  # slot -> which dimension comes first, second, ...


def fold_transposes(fn: UOp) -> UOp:
    """Fold the transposes around the kernels of such loops into these kernels."""
    nodes = toposort(fn.src)
    calls = [n for n in nodes if n.op is ops.CALL and n.src[0].op is ops.KERNEL]
    if not calls:
        return fn
    readers: dict[UOp, list[UOp]] = {out: [out] for out in fn.src}
    for node in nodes:
        for s in node.src:
            readers.setdefault(s, []).append(node)
    orders_of = {call: orders for call in calls if (orders := _layout_changes(call, readers))}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in orders_of:
            return _fold_into_call(node, src, orders_of[node])
        inner = node.src[0] if node.op is ops.PERMUTE else node
        if inner is not node and inner.op is ops.GETTUPLE and inner.src[0] in orders_of:
            return src[0] if _result_slot(inner) in orders_of[inner.src[0]] else None
        return None

    return rebuild_results(fn, visit) if orders_of else fn


def _result_slot(result: UOp) -> int:
    """Return the slot that a kernel writes a result to."""
    return len(result.src[0].src) - 1 + int(result.arg)


def _layout_changes(call: UOp, readers: Mapping[UOp, Sequence[UOp]]) -> DimOrders | None:
    """Return the slots whose layout changes; None if the kernel stays as it is."""
    kernel, *operands = call.src
    nodes = toposort([kernel])
    loops = [n for n in nodes if n.op is ops.LOOP]
    work = sum(n.op.cost for n in nodes if n.op in ops.ELEMENTWISE and n.dtype.kind != "index")
    if call.arg.schedule or len(loops) != 1:
        return None
    t, = accessors.bound_ranges(loops[0])
    dim_orders: DimOrders = {}
    for slot, operand in enumerate(operands):
        if operand.op is ops.PERMUTE:
            dim_orders[slot] = tuple([operand.arg.index(a) for a in range(len(operand.arg))])
    for result in readers.get(call, ()):
        consumers = readers.get(result, ())
        if consumers and len({(n.op, n.arg) for n in consumers}) == 1 and \
                consumers[0].op is ops.PERMUTE:
            dim_orders[_result_slot(result)] = consumers[0].arg
    traversed: set[int] = set()
    traversals: set[bool] = set()  # whether the loop traverses rows
    for index_node in (n for n in nodes if n.op is ops.INDEX and t in n.ranges):
        ref, *index = index_node.src
        if ref.op is not ops.REF:
            return None
        order = dim_orders.get(ref.arg.slot)
        if order is not None and len(order) == len(index):
            traversed.add(ref.arg.slot)
            index = [index[a] for a in order]
        is_row_wise = not any(t in i.ranges for i in index[:-1]) and \
            symbolic.coefficient(index[-1], t) in (1, -1)
        is_lane_wise = t not in index[-1].ranges and index[-1] is index_node.src[-1]
        if not is_row_wise and not is_lane_wise:
            return None
        traversals.add(is_row_wise)
    if len(traversals) != 1 or traversals == {True} and work > MAX_WORK * len(loops[0].arg.outs):
        return None
    return {slot: order for slot, order in dim_orders.items() if slot in traversed} or None


def _fold_into_call(call: UOp, src: Sequence[UOp], orders: DimOrders) -> UOp:
    """Return the call on the arrays in their original layout."""
    kernel, *operands = src

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.INDEX or src[0].op is not ops.REF or src[0].arg.slot not in orders:
            return None
        (ref, *index), order = src, orders[src[0].arg.slot]
        return build.index_into(ref.with_operands(tuple([ref.src[a] for a in order])),
                                *[index[a] for a in order])

    arguments = [operand.src[0] if slot in orders else operand
                 for slot, operand in enumerate(operands)]
    outs = [(tuple([shape[a] for a in orders[len(arguments) + i]]) if len(arguments) + i in orders
             else shape, dtype) for i, (shape, dtype) in enumerate(call.arg.outs)]
    body, = rebuild([kernel], visit)
    return copy_locs(UOp(ops.CALL, call.dtype, (body, *arguments),
                         call.arg.replace(outs=tuple(outs))),
                     call)
