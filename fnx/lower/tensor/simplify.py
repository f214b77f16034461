"""simplify: reduce the work of a FUNCTION while preserving every bit of every value.

One bottom-up traversal with the rules in ``algebra.py`` (elementwise values) and ``movements.py``
(shapes, constants). The bodies of CALLs are visited once for each distinct FUNCTION; user-written
KERNELs are left alone. Unused PARAMs stay, as the signature does not change.

>>> from fnx.core.ir import build, dtypes, ops
>>> x = build.param(0, dtypes.float32, (2, 3))
>>> y = build.mul(build.neg(build.neg(x)), build.const_like(x, 1.0))
>>> before = build.function([build.permute(build.permute(y, (1, 0)), (1, 0))], 1)
>>> simplify(before).src[0] is x
True

Floats are not reassociated, ``x * 0`` and ``x + 0.0`` stay, and ops whose bits depend on the
machine (``Op.exact`` is false) are not evaluated here.
"""

from __future__ import annotations

from fnx.core.ir.ops import FUNCTION, KERNEL
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting.rewrite import RuleSet, graph_rewrite
from fnx.lower.tensor import algebra, movements

RULES = RuleSet((*algebra.RULES, *movements.RULES))


def simplify(fn: UOp) -> UOp:
    """Return the simplified FUNCTION; the same object if nothing changed."""
    rewritten: dict[UOp, UOp] = {}
    for node in toposort([fn], into_functions=True, stop=lambda n: n.op is KERNEL):
        if node.op is KERNEL:
            rewritten[node] = node
        elif node.op is FUNCTION:
            rewritten[node] = node.with_operands(
                tuple(graph_rewrite(node.src, RULES, known=rewritten)))
    return rewritten[fn]
