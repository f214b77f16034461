"""Canonical operand order: read the left factor of a product from the lower-numbered buffer.

    before  STORE(o2[i, j], SUM_k x0[k, j] * x1[i, k])     of (y, x)
    after   STORE(o2[i, j], SUM_k x0[i, k] * x1[k, j])     of (x, y)

Which factor comes first in a graph depends on the rank of nodes, and so on lengths; without this
pass there would be two variants of each kernel for any length (eager calls).
"""

from __future__ import annotations

from fnx.core.ir import ops
from fnx.core.ir.accessors import buffer, written_slots
from fnx.core.ir.uop import UOp, rebuild
from fnx.lower.analysis.workload import leaf_loads
from fnx.lower.fusion.kernel_steps import KernelStep
from fnx.lower.schedule import contraction


def canonicalize_operand_order(step: KernelStep) -> KernelStep:
    """Swap two operands of the step if the right factor comes first."""
    match = contraction.match_contraction(step.kernel)
    if match is None:
        return step
    left, right = (min([buffer(n).arg.slot for n in leaf_loads(factor)
                        if buffer(n).op is ops.REF], default=-1)
                   for factor in (match.left, match.right))
    if left <= right or right < 0 or not written_slots(step.kernel).isdisjoint((left, right)):
        return step
    swapped = {left: right, right: left}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.REF and node.arg.slot in swapped:
            return node.replace(src=src, arg=node.arg.replace(slot=swapped[node.arg.slot]))
        return None

    kernel, = rebuild([step.kernel], visit)
    operands = [step.operands[swapped.get(i, i)] for i in range(len(step.operands))]
    return step.replace(kernel=kernel, operands=tuple(operands))
