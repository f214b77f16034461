"""Which loops a kernel may have: checked after a schedule is applied, before anything is built.

    PAR      one range, the outermost; every STORE depends on it; no REDUCE or STAGE closes it
             (the same holds for all parallel kinds: core/support/range_kinds.py)
    VEC      at most one in a value; its extent is a number (so is that of UNROLL)
    REDUCE   loops that it does not close lie outside of its own, so that it needs one accumulator
             for each UNROLL and VEC lane and no more
    STORE    one that combines, or whose indices are data, keeps the order of its loops; only a
             range that is an index of its own (no two of its values collide) may move
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from fnx.core.ir import ops
from fnx.core.ir.accessors import bound_ranges, buffer, indices
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.errors import KernelError
from fnx.core.support.range_kinds import LOOP_KINDS, PARALLEL_KINDS, RANGE_KINDS
from fnx.lower.analysis.loops import Loops, ScheduledLoop, name_of, quote_names
from fnx.lower.analysis.workload import determined_ranges


def check_loops(kernel: UOp, loops: Loops, stores: Sequence[UOp], order: Sequence[int]) -> None:
    """Raise KernelError if the loops of a kernel would change its meaning.

    Args:
        kernel: the kernel before scheduling.
        loops: its loops under the schedule.
        stores: its STOREs over the new ranges.
        order: ids of the new ranges, outermost first.
    """
    position = {id: i for i, id in enumerate(order)}
    _check_parallel(stores, loops)
    for node in toposort(stores):
        if node.op is ops.REDUCE or node.op is ops.LOOP:
            _check_closed(node, position)
        if node.op in (ops.REDUCE, ops.STAGE, ops.STORE):
            _check_lanes(node)
    for store in kernel.src:
        ordered = ordered_ranges(store)
        if ordered:
            _check_order(store, [loops.of[r] for r in ordered], loops)


def _check_parallel(stores: Sequence[UOp], loops: Loops) -> None:
    parallel_loops = [loop for loop in loops.leaves.values() if loop.kind in PARALLEL_KINDS]
    counts = Counter(loop.kind for loop in parallel_loops)
    outermost = list(loops.leaves.values())[:len(parallel_loops)]
    if parallel_loops != outermost or \
            any(n > (RANGE_KINDS[k].max_ranges or n) for k, n in counts.items()):
        raise KernelError(f"parallel: expected the outermost range {outermost[0].name!r}, got "
                          f"{quote_names(loop.name for loop in parallel_loops)}",
                          hint="put one range first with order(...) and make that parallel")
    for loop in parallel_loops:
        _check_parallel_range(stores, loop)


def _check_parallel_range(stores: Sequence[UOp], loop: ScheduledLoop) -> None:
    """Check a parallel range."""
    r = loop.final_range
    if r is None or r.op is not ops.RANGE:
        return
    for node in toposort(stores):
        if node.op in (ops.REDUCE, ops.STAGE, ops.LOOP) and r in bound_ranges(node):
            raise KernelError(f"parallel({loop.name!r}): expected a range of the result, got "
                              "one that a sum or another fold runs over",
                              hint="parallelize a range of the output: a sum must not depend on "
                                   "the number of workers")
    for store in stores:
        if r not in store.ranges:
            raise KernelError(f"parallel({loop.name!r}): expected every store to depend on it; "
                              f"the one to {buffer_name(store)} does not")


def _check_closed(node: UOp, position: dict[int, int]) -> None:
    closed_loops = [r for r in bound_ranges(node) if r.arg.kind in LOOP_KINDS]
    if not closed_loops:
        return
    outermost = min(closed_loops, key=lambda r: position[r.arg.id])
    for r in node.ranges:
        if r.arg.kind in LOOP_KINDS and position[r.arg.id] > position[outermost.arg.id]:
            raise KernelError(
                f"expected the loop {name_of(r)!r} outside of {name_of(outermost)!r}, which is "
                "folded, or carries values: else there is one accumulator for each of its values",
                hint=f"change the order, or unroll or vectorize {name_of(r)!r}")


def _check_lanes(node: UOp) -> None:
    ranges = node.ranges.union(*[s.ranges for s in node.src[:2]])
    lanes = sorted(name_of(r) for r in ranges if r.arg.kind == "VEC")
    if len(lanes) > 1:
        raise KernelError(f"vectorize: expected one vectorized range in a value, got "
                          f"{quote_names(lanes)}", hint="unroll the others")


def ordered_ranges(store: UOp) -> list[UOp]:
    """Return the ranges of a STORE whose iterations must keep their order, outermost first.

    Empty for a store at distinct indices.
    """
    if store.arg is ops.SCATTER or store.arg is None and not has_data_index(store):
        return []
    distinct = determined_ranges(indices(store))
    colliding = [r for r in store.ranges if r not in distinct and symbolic.bounds(r)[1] > 0]
    return sorted(colliding, key=lambda r: r.arg.id)


def carried_ranges(nodes: Iterable[UOp]) -> set[UOp]:
    """Return the ranges that LOOPs run over: their iterations are sequential."""
    return {bound_ranges(n)[0] for n in nodes if n.op is ops.LOOP}


def has_data_index(store: UOp) -> bool:
    """Return whether the index of a STORE is read from memory."""
    return any(n.op is ops.LOAD for n in toposort(indices(store)))


def _check_order(store: UOp, ordered: Sequence[ScheduledLoop], loops: Loops) -> None:
    expected = [leaf for loop in ordered for leaf in loop.leaves()]
    actual = [leaf for leaf in loops.leaves.values() if leaf in expected]
    description = f"the store to {buffer_name(store)}, whose order counts"
    if actual != expected:
        raise KernelError(f"order: expected {quote_names(leaf.name for leaf in expected)} in this "
                          "order "
                          f"for {description}; got {quote_names(leaf.name for leaf in actual)}")
    for leaf in expected:
        if leaf.kind in PARALLEL_KINDS | {"VEC"} or \
                (leaf.kind == "UNROLL" and leaf is not expected[-1]):
            raise KernelError(f"expected a plain loop {leaf.name!r} for {description}; got "
                              f"{leaf.kind}",
                              hint="two of its iterations may write one place")


def buffer_name(store: UOp) -> str:
    """Return the name of a STORE's buffer for error messages."""
    ref = buffer(store).arg
    return repr(ref.name) if ref.name else f"operand {ref.slot}"
