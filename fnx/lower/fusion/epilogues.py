"""Epilogues: the elementwise work that the kernel of a contraction does, where others compete.

    before  b0 = x @ w                            the sum of each row is in the kernel of b1, so
            b1[i, j] = b0[i, j] * s + sum(y[i])   the product crosses memory
    after   b0[i] = sum(y[i])
            b1[i, j] = (x @ w)[i, j] * s + b0[i]

A kernel has a contraction or other reductions, not both. The lanes of a contraction are its last
axis: if that is shorter than a vector, expensive work is faster in a kernel of its own.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from fnx.core.ir.uop import UOp
from fnx.lower.analysis.tuning import CACHE_BYTES_PER_CYCLE, KERNEL_CYCLES, VECTOR_BYTES
from fnx.lower.fusion import cost
from fnx.lower.fusion.group import Group


def epilogue_contractions(nodes: Sequence[UOp], readers: Mapping[UOp, Sequence[UOp]],
                          contractions: Collection[UOp], results: Collection[UOp]
                          ) -> dict[UOp, UOp]:
    """Return for elementwise nodes the largest contraction that nobody else reads: their kernel
    could compute it."""
    out = {n: n for n in contractions}
    for node in nodes if contractions else ():
        if node.op.kind == "elementwise":
            candidates = [out[s] for s in node.src
                          if s in out and s not in results and set(readers[s]) == {node}]
            if candidates:
                out[node] = max(candidates, key=cost.nbytes)
    return out


def awaited_contraction(group: Group, epilogue_of: Mapping[UOp, UOp]) -> UOp | None:
    """Return the contraction that the kernel of a group without one could compute."""
    if group.reduces or group.stages:
        return None
    contractions = [epilogue_of[n] for n, index in group.roots if n in epilogue_of
                    and group.is_own(index)]
    return max(contractions, key=cost.nbytes, default=None)


def shared_operands(reduction: UOp, readers: Mapping[UOp, Sequence[UOp]]) -> list[UOp]:
    """Return the values that a reduction is computed from, by way of elementwise work of its own,
    and that others read, too: one kernel would read them once."""
    stack, shared = [reduction.src[0]], list[UOp]()
    while stack:
        n = stack.pop()
        if len(readers[n]) > 1:
            shared.append(n)
        elif n.op.kind in ("elementwise", "movement"):
            stack += n.src
    return shared


def rows_written_beside(groups: Iterable[Group]) -> frozenset[UOp]:
    """Return the values of rows that kernels of contractions would write, where kernels of their
    own take less time: a contraction is tiled only if all that its kernel writes has its shape.

        before  group over (i, j): s[i] = sqrt(r[i]); y[i, j] = (x @ w)[i, j] / s[i]   -> s, y
        after   group over (i):    s[i] = sqrt(r[i])                                   -> s
                group over (i, j): y[i, j] = (x @ w)[i, j] / s[i]                      -> y
    """
    out: set[UOp] = set()
    for group in groups:
        if group.contraction is not None:
            rows = [n for n, index in group.roots if not group.is_own(index)]
            if rows and math.prod(group.contraction.src[0].shape) > len(rows) * KERNEL_CYCLES:
                out.update(rows)
    return frozenset(out)


def wastes_lanes(contraction: UOp, work: int) -> bool:
    """Whether an epilogue of so much work for each element costs more in lanes beyond the last
    axis than a buffer between would."""
    lanes = VECTOR_BYTES // contraction.dtype.itemsize
    width = next((n for n in reversed(contraction.shape) if n != 1), 1)
    idle = math.ceil(width / lanes) * lanes / width - 1
    vectors = math.prod(contraction.shape) / lanes
    crossing = 2 * cost.nbytes(contraction) / CACHE_BYTES_PER_CYCLE + KERNEL_CYCLES
    return vectors * work * idle > crossing


def wastes_lanes_on(node: UOp, contraction: UOp, costs: Mapping[UOp, cost.RecomputeCost]) -> bool:
    """Whether computing an operand of an epilogue in the kernel of the contraction costs more than
    a buffer between would."""
    weight = costs[node].weight
    return wastes_lanes(contraction, weight) and \
        wastes_lanes(contraction, cost.distinct_work(node, costs, weight))
