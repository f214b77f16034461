"""Functions of one operand that share most of their work: one kernel computes both.

    before  group 0: t = x * w; s = sin(t)             -> t, s    sin and cos of t take the same
            group 1: c = cos(t) * g                               range reduction, twice here
    after   group 0: t = x * w; s = sin(t); c = cos(t) -> s, c
            group 1: c * g

kernelize meets both when all that read one of them is placed: ``pair`` orders the nodes so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.lower.analysis.tuning import KERNEL_CYCLES, VECTOR_BYTES
from fnx.lower.fusion.cost import RecomputeCost, is_cheap, nbytes, transfer_cycles
from fnx.lower.fusion.group import Group, creation_order
from fnx.lower.fusion.index_tokens import Tokens, identity_index

PARTNER_OP = {ops.SIN: ops.COS, ops.COS: ops.SIN}
Uses = Mapping[Group, Sequence[Tokens]]


def pair(nodes: list[UOp]) -> list[UOp]:
    """Return the nodes, operands first, each directly after the one it shares its work with."""
    later: dict[UOp, UOp] = {}  # the first of two: the second
    first: dict[UOp, UOp] = {}  # by operand
    for node in nodes:
        if node.op in PARTNER_OP and first.setdefault(node.src[0], node) is not node:
            later[first[node.src[0]]] = node
    if not later:
        return nodes
    moved = set(later.values())
    return [n for node in nodes if node not in moved
            for n in ((node, later[node]) if node in later else (node,))]


def partner(node: UOp, readers: Mapping[UOp, Iterable[UOp]]) -> UOp | None:
    """Return the node that shares most of its work with this one, as the COS of an operand does
    with its SIN."""
    op = PARTNER_OP.get(node.op)
    return next((n for n in readers[node.src[0]] if n.op is op), None) if op is not None else None


def join_uses(first: Uses, second: Uses) -> dict[Group, list[Tokens]]:
    """Return the indices at which each group reads one of two nodes."""
    return {g: list(dict.fromkeys([*first.get(g, ()), *second.get(g, ())]))
            for g in (*first, *second)}


def host(node: UOp, readers: Uses, takes: Callable[[Group], bool]) -> Group | None:
    """Return a group that reads one of two nodes, both only at its own index, and can compute
    both."""
    index = identity_index(node.shape)
    return next((g for g in sorted(readers, key=creation_order)
                 if list(readers[g]) == [index] and g.is_own(index) and takes(g)), None)


def saves_time(node: UOp, written: int, takes_kernel: bool, costs: Mapping[UOp, RecomputeCost]
               ) -> bool:
    """Whether the work that two nodes share, half of that of one, takes longer than what it takes
    to share it: to write ``written`` of them, and a kernel. Without that the operand would be
    written, by such a kernel, unless it is in memory or cheap."""
    cycles = written * transfer_cycles(node)
    if not is_cheap(costs[node.src[0]]):
        cycles -= transfer_cycles(node)
    elif takes_kernel:
        cycles += KERNEL_CYCLES
    return nbytes(node) * node.op.cost / 2 / VECTOR_BYTES > cycles
