"""Conditions that are known to be true, or false, at the current point of emission.

A comparison of indices is decided by the bounds of its ranges, or because a loop was peeled such
that it is constant in this span (``assuming``). A decided condition emits no code.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import conjuncts, value
from fnx.core.ir.uop import UOp
from fnx.core.rewriting import algebra, symbolic
from fnx.core.rewriting.algebra import Polynomial


class Conditions:
    """The known truth of conditions; ``_truth`` is the only state."""

    def __init__(self) -> None:
        self._truth: dict[UOp, bool | None] = {}

    def truth(self, condition: UOp) -> bool | None:
        """Return the known truth of a condition; None if unknown."""
        if condition in self._truth:
            return self._truth[condition]
        if condition.op is ops.CONST:
            return bool(condition.arg)
        if condition.op is ops.AND:
            truths = [self.truth(c) for c in conjuncts(condition)]
            return False if False in truths else None if None in truths else True
        if condition.op not in ops.COMPARISONS or condition.src[0].dtype is not dtypes.index:
            return None
        truth = self._truth[condition] = symbolic.prove(condition)
        return truth

    def unproven(self, valid: Sequence[UOp]) -> list[UOp]:
        """Return the conjuncts of an optional validity that must be tested."""
        return [c for v in valid for c in conjuncts(v) if self.truth(c) is not True]

    @contextmanager
    def assuming(self, known: Iterable[tuple[UOp, bool]]) -> Iterator[None]:
        """Assume the truth of conditions while the context is active."""
        previous = self._truth
        self._truth = {**previous, **dict(known)}
        yield
        self._truth = previous


INEQUALITIES = {ops.CMPLT: 0, ops.CMPLE: 1}


def as_positive(condition: UOp) -> tuple[Polynomial, int]:
    """Return (terms, constant) whose sum is positive exactly if a < b or a <= b holds."""
    (left, c), (right, d) = map(symbolic.linear_terms, condition.src)
    return algebra.add(right, left, -1), d - c + INEQUALITIES[condition.op]


def match_masked_reduce(reduce: UOp) -> tuple[UOp, UOp] | None:
    """Match a REDUCE of WHERE(condition, value, identity). Return (condition, value) or None."""
    value_node = value(reduce)
    first = value_node.src[0] if value_node.op is ops.ARG_PAIR else value_node
    if first.op is not ops.WHERE:
        return None
    condition, reduced, other = first.src
    identity = build.const(reduce.arg.monoid.identity(first.dtype), first.dtype)
    if other is not identity:
        return None
    if value_node.op is ops.ARG_PAIR:
        index = value_node.src[1]
        is_masked = index.op is ops.WHERE and index.src[0] is condition
        return (condition, build.arg_pair(reduced, index.src[1])) if is_masked else None
    return condition, reduced
