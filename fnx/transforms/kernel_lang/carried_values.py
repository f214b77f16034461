"""Completion of carried values after tracing: the ranges of each CARRY, and STOREs in loops.

During tracing a CARRY has the ranges of its initial value. It also depends on every range that its
next value depends on:

    before  LOOP(t, 0, CARRY(t) + x[j])           after  LOOP(t, 0, CARRY(t, j) + x[j])
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import accessors, build, build_kernel_loops, ops
from fnx.core.ir.uop import UOp, copy_locs, substitute, toposort
from fnx.core.support.errors import KernelError


def move_into_loop(store: UOp, loop: UOp) -> UOp:
    """Move a STORE out of the body of a LOOP, wrapped so that it runs in each iteration."""
    access, value, *valid = store.src
    indices = [_wrap_in_step(i, loop) for i in accessors.indices(store)]
    moved = build.store(build.index_into(accessors.buffer(access), *indices),
                        build_kernel_loops.per_iteration(value, loop),
                        _wrap_in_step(valid[0], loop) if valid else None, store.arg)
    return copy_locs(moved, store)


def _wrap_in_step(node: UOp, loop: UOp) -> UOp:
    """Wrap a node that reads values of the loop in a PER_ITERATION."""
    reads_loop = any(n.op is ops.CARRY and n.arg.id == loop.arg.id or n.op is ops.LOOP
                     and loop.src[0] in n.ranges for n in toposort([node]))
    return build_kernel_loops.per_iteration(node, loop) if reads_loop else node


def is_in_loop(store: UOp) -> bool:
    """Whether a STORE is in a loop with carried values."""
    return any(n.op is ops.PER_ITERATION
               for n in toposort([store], stop=lambda n: n.op is ops.PER_ITERATION))


def may_be_skipped(store: UOp) -> bool:
    """Whether a STORE is in a loop that may stop early or not run at all."""
    return any(n.op is ops.PER_ITERATION and accessors.stop_condition(n.src[1]) is not None
               for n in toposort([store]))


def complete_carries(stores: Sequence[UOp]) -> list[UOp]:
    """Extend each CARRY under the STOREs to all ranges that its value depends on.

    Raises:
        KernelError: a value of a loop is used after the loop.
    """
    out = list(stores)
    while True:
        nodes = toposort(out)
        extended = _extended_carries(nodes)
        if not extended:
            break
        out = substitute(out, extended)
    _check_closed(out)
    return out


def _extended_carries(nodes: Sequence[UOp]) -> dict[UOp, UOp]:
    """Return each CARRY that lacks ranges -> the CARRY with all ranges it needs."""
    loops = {n.arg.id: n for n in nodes if n.op is ops.LOOP}
    extended: dict[UOp, UOp] = {}
    for n in nodes:
        loop = loops.get(n.arg.id) if n.op is ops.CARRY else None
        if loop is None:
            continue
        needed = accessors.init_values(loop)[n.arg.i].ranges | \
            accessors.next_values(loop)[n.arg.i].ranges
        stop = accessors.stop_condition(loop)
        if stop is not None:
            needed |= stop.ranges
        t, *ranges = n.src
        missing = sorted(needed.difference(n.src), key=lambda r: r.arg.id)
        if missing:
            extended[n] = UOp(ops.CARRY, n.dtype, (t, *sorted((*ranges, *missing),
                                                              key=lambda r: r.arg.id)), n.arg)
    return extended


def _check_closed(stores: Sequence[UOp]) -> None:
    free = accessors.carry_dependences(toposort(stores))
    for store in stores:
        if store in free:
            raise KernelError(
                "expected loop values to be used inside the loop, got a store after it",
                hint="return the value from the step: k.loop returns the final "
                     "values", loc=store.loc)
