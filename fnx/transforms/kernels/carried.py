"""Completion of carried values after tracing: the ranges of each CARRY, and STOREs in loops.

During tracing a CARRY has the ranges of its initial value. It also depends on every range that its
next value depends on:

    before  ITER(t, 0, CARRY(t) + x[j])           after  ITER(t, 0, CARRY(t, j) + x[j])
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import build, ops, parts
from fnx.core.errors import KernelError
from fnx.core.uop import UOp, inherit, substitute, toposort

RangeSet = frozenset[UOp]


def inside(store: UOp, loop: UOp) -> UOp:
    """Move a STORE out of the body of an ITER, wrapped so that it runs in each iteration."""
    place, value, *valid = store.src
    indices = [_step(i, loop) for i in parts.indices(store)]
    made = build.store(build.at(parts.buffer(place), *indices), build.step(value, loop),
                       _step(valid[0], loop) if valid else None, store.arg)
    return inherit(made, store)


def _step(node: UOp, loop: UOp) -> UOp:
    """Wrap a node that reads values of the loop in a STEP."""
    reads = any(n.op is ops.CARRY and n.arg.id == loop.arg.id or n.op is ops.ITER
                and loop.src[0] in n.ranges for n in toposort([node]))
    return build.step(node, loop) if reads else node


def is_inside(store: UOp) -> bool:
    """Whether a STORE is in a loop with carried values."""
    return any(n.op is ops.STEP for n in toposort([store], stop=lambda n: n.op is ops.STEP))


def may_be_skipped(store: UOp) -> bool:
    """Whether a STORE is in a loop that may stop early or not run at all."""
    return any(n.op is ops.STEP and parts.stop(n.src[1]) is not None for n in toposort([store]))


def completed(stores: Sequence[UOp]) -> list[UOp]:
    """Extend each CARRY under the STOREs to all ranges that its value depends on.

    Raises:
        KernelError: a value of a loop is used after the loop.
    """
    found = list(stores)
    while True:
        nodes = toposort(found)
        more = _grown(nodes)
        if not more:
            break
        found = substitute(found, more)
    _check_closed(found)
    return found


def _grown(nodes: Sequence[UOp]) -> dict[UOp, UOp]:
    """Return each CARRY that lacks ranges -> the CARRY with all ranges it needs."""
    loops = {n.arg.id: n for n in nodes if n.op is ops.ITER}
    more: dict[UOp, UOp] = {}
    for n in nodes:
        loop = loops.get(n.arg.id) if n.op is ops.CARRY else None
        if loop is None:
            continue
        needed = parts.inits(loop)[n.arg.i].ranges | parts.nexts(loop)[n.arg.i].ranges
        stop = parts.stop(loop)
        if stop is not None:
            needed |= stop.ranges
        t, *own = n.src
        fresh = sorted(needed.difference(n.src), key=lambda r: r.arg.id)
        if fresh:
            more[n] = UOp(ops.CARRY, n.dtype, (t, *sorted((*own, *fresh),
                                                          key=lambda r: r.arg.id)), n.arg)
    return more


def _check_closed(stores: Sequence[UOp]) -> None:
    free = parts.open_loops(toposort(stores))
    for store in stores:
        if store in free:
            raise KernelError(
                "expected values of a loop to be used inside it, got one that is stored after it",
                hint="return it from the step: k.loop gives the last values", site=store.site)
