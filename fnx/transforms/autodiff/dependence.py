"""Dependence analysis: which PARAMs each result of a FUNCTION has a derivative in.

    FUNCTION(MUL(p0, p1), FLOOR(p1))    ->    ({0, 1}, {})

The analysis enters bodies, so that only those results of a call are active that depend on a
differentiated operand. Loops find their active carries by it (carry_fixpoints.py).
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from fnx.core.ir import build, ops
from fnx.core.ir.derivations import Derivation, derive, register_derivation, run_derivation
from fnx.core.ir.uop import UOp, toposort
from fnx.transforms.autodiff.derivatives import DERIVATIVES
from fnx.transforms.autodiff.higher_order import DependenceKey, GetTupleRule, HigherOrderRule


def result_deps(body: UOp) -> tuple[frozenset[int], ...]:
    """Return, for each result of a FUNCTION, the PARAMs that it has a derivative in.

    >>> from fnx.core.ir import dtypes, ops
    >>> x, y = (build.param(i, dtypes.float32, ()) for i in (0, 1))
    >>> floor = build.elementwise(ops.FLOOR, y)
    >>> [sorted(d) for d in result_deps(build.function([build.mul(x, y), floor], 2))]
    [[0, 1], []]
    """
    deps: tuple[frozenset[int], ...] = derive(body, DependenceKey())
    return deps


class ActivityAnalysis:
    """Activity analysis of loops and branches: which results have a derivative in an active
    operand.

    Query a result only after all operands of its node are classified; cached per node.
    """

    def __init__(self, active: Container[UOp]) -> None:
        self.active = active
        self.deps: dict[UOp, frozenset[int]] = {}

    def is_active(self, part: UOp) -> bool:
        node = part.src[0]
        rule = DERIVATIVES[node.op]
        if node.op is ops.CALL or not isinstance(rule, HigherOrderRule):
            return True
        active_outs = self.deps.get(node)
        if active_outs is None:
            active = {i for i, k in enumerate(rule.operands(node)) if node.src[k] in self.active}
            active_outs = self.deps[node] = frozenset([
                o for o, read in enumerate(run_derivation(rule.depends(node)))
                if not read.isdisjoint(active)])
        return part.arg in active_outs


@register_derivation(DependenceKey)
def _derive(body: UOp, key: DependenceKey) -> Derivation[tuple[frozenset[int], ...]]:
    """Compute the dependence, with sets of PARAMs as bits of an integer."""
    bits_of = {node: 1 << i for i, node in build.params(body).items() if node.dtype.is_inexact}
    results: dict[UOp, list[int]] = {}
    for node in toposort(body.src, stop=lambda n: n.op is ops.KERNEL):
        rule = DERIVATIVES.get(node.op)
        if not node.src or rule is None or node.op.is_isolated:
            continue
        bits = 0
        if isinstance(rule, HigherOrderRule):
            operand_bits = [bits_of.get(node.src[i], 0) for i in rule.operands(node)]
            deps = yield from rule.depends(node)
            results[node] = [_union([operand_bits[i] for i in r]) for r in deps]
        elif isinstance(rule, GetTupleRule):
            bits = results[node.src[0]][node.arg] if rule.is_active(node) else 0
        elif rule.is_active(node):
            bits = _union([bits_of.get(node.src[i], 0) for i in rule.operands(node)])
        if bits:
            bits_of[node] = bits
    n = body.arg.n_params
    return tuple([frozenset([i for i in range(n) if bits >> i & 1]) if bits else frozenset()
                  for bits in [bits_of.get(o, 0) for o in body.src]])


def _union(sets: Iterable[int]) -> int:
    out = 0
    for s in sets:
        out |= s
    return out
