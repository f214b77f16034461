"""Warps: one line for the MMA instances that the threads of a warp compute together.

    MMA(a, b, w, a', b', 2*mi + nj, h)      mi, nj UNROLL 2: four accumulators of each thread
    v = MMA a'(mi 0, h 0) a'(1, 0) a'(0, 1) a'(1, 1) b'(h 0) b'(1) c0 c1 c2 c3
    c0 = EXTRACT v 0 ...                    in the instruction's register order
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.core.rewriting import symbolic
from fnx.lower.emit.expansion import Instance
from fnx.lower.emit.values import Values


def is_warp_mma(node: UOp) -> bool:
    """Return whether a node is an MMA with the fragments that each thread holds."""
    return node.op is ops.MMA and len(node.src) > 2 + node.arg.n_words


def multiplied(values: Values, mma: UOp, instances: Sequence[Instance],
               accumulators: Sequence[UOp]) -> list[UOp]:
    """Update the accumulators of all instances, four by one instruction."""
    left, right, result_index, half = mma.src[2 + mma.arg.n_words:]
    terms, _ = symbolic.linear_terms(result_index)
    groups: dict[tuple[tuple[int, int], ...], dict[int, int]] = {}
    for i, instance in enumerate(instances):
        result_number = sum(c * instance[m[0]] for m, c in terms.items())
        key = tuple([(r.number, v) for r, v in instance.items() if (r,) not in terms])
        groups.setdefault(key, {})[result_number] = i
    out = list(accumulators)
    for members in groups.values():
        rows = [values.value(left, {**instances[members[2 * mi]], half: k})
                for k in (0, 1) for mi in (0, 1)]
        columns = [values.value(right, {**instances[members[0]], half: k}) for k in (0, 1)]
        sums = [accumulators[members[n]] for n in range(4)]
        products = values.lines.add(ops.MMA, mma.dtype.vec(4), (*rows, *columns, *sums), mma.arg)
        for n in range(4):
            out[members[n]] = values.lines.add(ops.EXTRACT, mma.dtype, (products,), n)
    return out
