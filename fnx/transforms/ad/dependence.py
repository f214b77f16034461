"""Dependence analysis: which PARAMs each result of a FUNCTION has a derivative in.

    FUNCTION(MUL(p0, p1), FLOOR(p1))    ->    ({0, 1}, {})

The analysis enters bodies, so that only those results of a call are active that depend on a
differentiated operand. Loops find their active carries by it (carries.py).
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from fnx.core import build, ops
from fnx.core.derived import Steps, derives, form, run
from fnx.core.uop import UOp, toposort
from fnx.transforms.ad.derivatives import DERIVATIVES
from fnx.transforms.ad.structural import Depends, ResultRule, Structural


def dependence(body: UOp) -> tuple[frozenset[int], ...]:
    """Return, for each result of a FUNCTION, the PARAMs that it has a derivative in.

    >>> from fnx.core import dtypes, ops
    >>> x, y = (build.param(i, dtypes.float32, ()) for i in (0, 1))
    >>> floor = build.elementwise(ops.FLOOR, y)
    >>> [sorted(d) for d in dependence(build.function([build.mul(x, y), floor], 2))]
    [[0, 1], []]
    """
    found: tuple[frozenset[int], ...] = form(body, Depends())
    return found


class TakingPart:
    """Activity analysis of loops and branches: which results have a derivative in an active
    operand.

    Query a result only after all operands of its node are classified; cached per node.
    """

    def __init__(self, active: Container[UOp]) -> None:
        self.active = active
        self.found: dict[UOp, frozenset[int]] = {}

    def takes_part(self, part: UOp) -> bool:
        node = part.src[0]
        rule = DERIVATIVES[node.op]
        if node.op is ops.CALL or not isinstance(rule, Structural):
            return True
        found = self.found.get(node)
        if found is None:
            taking = {i for i, k in enumerate(rule.operands(node)) if node.src[k] in self.active}
            found = self.found[node] = frozenset([
                o for o, read in enumerate(run(rule.depends(node))) if not read.isdisjoint(taking)])
        return part.arg in found


@derives(Depends, "dependence")
def _derive(body: UOp, key: Depends) -> Steps[tuple[frozenset[int], ...]]:
    """Compute the dependence, with sets of PARAMs as bits of an integer."""
    found = {node: 1 << i for i, node in build.params(body).items() if node.dtype.is_float}
    results: dict[UOp, list[int]] = {}
    for node in toposort(body.src, stop=lambda n: n.op is ops.KERNEL):
        rule = DERIVATIVES.get(node.op)
        if not node.src or rule is None or node.op.closed:
            continue
        bits = 0
        if isinstance(rule, Structural):
            given = [found.get(node.src[i], 0) for i in rule.operands(node)]
            read = yield from rule.depends(node)
            results[node] = [_union([given[i] for i in r]) for r in read]
        elif isinstance(rule, ResultRule):
            bits = results[node.src[0]][node.arg] if rule.is_active(node) else 0
        elif rule.is_active(node):
            bits = _union([found.get(node.src[i], 0) for i in rule.operands(node)])
        if bits:
            found[node] = bits
    n = body.arg.n_params
    return tuple([frozenset([i for i in range(n) if bits >> i & 1]) if bits else frozenset()
                  for bits in [found.get(o, 0) for o in body.src]])


def _union(sets: Iterable[int]) -> int:
    out = 0
    for s in sets:
        out |= s
    return out
