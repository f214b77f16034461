"""Canonical operand order: read the left factor of a product from the lower-numbered buffer.

    before  STORE(o2[i, j], SUM_k x0[k, j] * x1[i, k])     of (y, x)
    after   STORE(o2[i, j], SUM_k x0[i, k] * x1[k, j])     of (x, y)

Which factor comes first in a graph depends on the rank of nodes, and so on lengths; without this
pass there would be two variants of each kernel for any length (eager calls).
"""

from __future__ import annotations

from fnx.core import ops
from fnx.core.parts import buffer, written_slots
from fnx.core.uop import UOp, rebuild
from fnx.lower.fusion.ranges import StepBody
from fnx.lower.schedule import contraction
from fnx.lower.schedule.workload import loads_below


def left_first(step: StepBody) -> StepBody:
    """Swap two operands of the step if the right factor comes first."""
    found = contraction.find(step.kernel)
    if found is None:
        return step
    left, right = (min([buffer(n).arg.slot for n in loads_below(factor)
                        if buffer(n).op is ops.REF], default=-1)
                   for factor in (found.left, found.right))
    if left <= right or right < 0 or not written_slots(step.kernel).isdisjoint((left, right)):
        return step
    other = {left: right, right: left}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.REF and node.arg.slot in other:
            return node.replace(src=src, arg=node.arg.replace(slot=other[node.arg.slot]))
        return None

    kernel, = rebuild([step.kernel], visit)
    operands = [step.operands[other.get(i, i)] for i in range(len(step.operands))]
    return step.replace(kernel=kernel, operands=tuple(operands))
