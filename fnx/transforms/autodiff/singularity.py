"""Whether an op is singular: its value or a partial can be non-finite for finite operands."""

from __future__ import annotations

from fnx.core.ir.derivations import analysis
from fnx.core.ir.ops import KERNEL
from fnx.core.ir.uop import UOp, toposort
from fnx.transforms.autodiff.derivatives import DERIVATIVES


def is_singular(node: UOp) -> bool:
    """Whether a node, or an op in one of its bodies, has a singular partial."""
    rule = DERIVATIVES[node.op]
    return rule.singular(node) or any(map(_may_be_singular, rule.bodies(node)))


@analysis
def _may_be_singular(body: UOp) -> bool:
    """Whether a body has an op with a singular partial."""
    nodes = toposort(body.src, stop=lambda n: n.op is KERNEL)
    return any(DERIVATIVES[n.op].is_active(n) and is_singular(n)
               for n in nodes if n.op is not KERNEL)
