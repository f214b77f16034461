"""Which calls of functions with derivative rules need the rules at once.

    grad of f       a call in f needs its rules: they are traced at the call
    jit of f        it may never be differentiated: they are traced when a derivative asks for them
                    (transforms/custom/lazy_rules.py), and f is traced again under grad

Inside the rules, one derivative less is taken; inside the function itself, none.

>>> with scope.Scope("grad of f"):
...     with scope.Scope("the fwd of g"):
...         inside = derivative_order()
...     derivative_order(), inside
(1, 0)
"""

from __future__ import annotations

from typing import Any

from fnx.core.ir import accessors, ops
from fnx.core.ir.cache import find_graphs
from fnx.core.ir.derivations import analysis
from fnx.core.ir.uop import UOp, toposort
from fnx.core.scope import scope

ON_DEMAND = "rules on demand"  # the scope in which they are traced

_DERIVATIVES = frozenset({
    "grad", "jvp", "vjp", "linearize", "jacfwd", "jacrev", "saved_residuals", "linear_transpose"})
_ANY_ORDER = 64  # derivatives of what is exported
_RULES = frozenset({"the fwd", "the bwd", "the jvp"})
_WITHOUT_DERIVATIVES = frozenset({"custom_jvp", "custom_vjp", ON_DEMAND})


def derivative_order() -> int:
    """Return how many derivatives the open transforms take of a call made now."""
    order = 0
    for opened in reversed(scope.open_scopes()):
        kind = opened.name.partition(" of ")[0]
        if kind in _WITHOUT_DERIVATIVES:
            break
        order += (kind in _DERIVATIVES) - (kind in _RULES) + _ANY_ORDER * (kind == "export")
    return order


@analysis
def lazy_rules_inside(body: UOp) -> frozenset[bool]:
    """Return, of the functions in a FUNCTION whose rules are not traced, whether a call under a
    derivative would be the same. Bodies of functions with rules are not differentiated."""
    flags: set[bool] = set()
    for node in toposort(body.src):
        if node.op is ops.CUSTOM:
            maker = node.arg.rule_maker
            if maker is not None and maker.primitive is None:
                flags.add(maker.is_always_lazy)
        elif node.op in ops.HIGHER_ORDER:
            flags.update(*map(lazy_rules_inside, accessors.bodies(node)))
    return frozenset(flags)


def suits(traced: Any) -> bool:
    """Whether a trace can be used now: it has the rules that derivatives need."""
    return not (derivative_order() > 0 and any(
        False in lazy_rules_inside(fn) for fn in find_graphs(traced) if fn.op is ops.FUNCTION))
