"""Whether an op is singular: its value or a partial can be non-finite for finite operands."""

from __future__ import annotations

from fnx.core.ir.cache import WeakMemo
from fnx.core.ir.ops import KERNEL
from fnx.core.ir.uop import UOp, toposort
from fnx.transforms.autodiff.derivatives import DERIVATIVES

_singular_memo: WeakMemo[UOp, bool] = WeakMemo()


def is_singular(node: UOp) -> bool:
    """Whether a node, or an op in one of its bodies, has a singular partial."""
    rule = DERIVATIVES[node.op]
    return rule.singular(node) or any(map(_may_be_singular, rule.bodies(node)))


def _may_be_singular(body: UOp) -> bool:
    """Whether a body has an op with a singular partial."""
    result = _singular_memo.get(body)
    if result is None:
        functions = toposort([body], into_functions=True, stop=_singular_memo.__contains__)
        for fn in functions:  # inner functions come first
            if fn.op is body.op and fn not in _singular_memo:
                nodes = toposort(fn.src, stop=lambda n: n.op is KERNEL)
                _singular_memo[fn] = any(DERIVATIVES[n.op].is_active(n) and is_singular(n)
                                         for n in nodes if n.op is not KERNEL)
        result = _singular_memo[body]
    return result
