"""Effects: place values that only effects read after everything else.

    before  y = f(x); print(y * 2)               results y, token
    after   the groups of y, as without the print; then y * 2 from the buffer of y, and the CALLBACK

So a result has the same bits with and without effects. Effects run in the order of their tokens,
each as soon as its operands are available. A value whose buffer is written together with one that
depends on a later effect is not available in time: it is recomputed.
"""

from __future__ import annotations

from collections.abc import Iterable

from fnx.core.ir import accessors, build, build_calls, ops
from fnx.core.ir.uop import UOp, rebuild, toposort
from fnx.lower.fusion.group import is_effect_token, memory_of


def ordered_effects(roots: Iterable[UOp]) -> list[UOp]:
    """Return the nodes below that are ordered by tokens, in that order."""
    return [n for n in toposort(roots)
            if n.op in ops.MULTI_RESULT and any(map(build_calls.is_token, n.src))]


def unplaced_runs(effects: list[UOp], placed: Iterable[UOp]) -> list[tuple[list[UOp], list[UOp]]]:
    """Group effects that are not placed into runs; each with the placed effects that follow it.

    >>> from fnx.core.ir import dtypes
    >>> a, b, c, d = (build.param(i, dtypes.bool_, ()) for i in range(4))
    >>> unplaced_runs([a, b, c, d], {c}) == [([a, b], [c]), ([d], [])]
    True
    """
    placed = set(placed)
    out: list[tuple[list[UOp], list[UOp]]] = []
    pending: list[UOp] = []
    for i, effect in enumerate(effects):
        if effect not in placed:
            pending.append(effect)
        if pending and (effect in placed or i == len(effects) - 1):
            out.append((pending, [e for e in effects[i:] if e in placed]))
            pending = []
    return out


def operand_buffers(call: UOp) -> list[UOp]:
    """Return the nodes whose buffers hold the operands of a call."""
    return [memory_of(s) for s in accessors.operands(call)]


def operands(effect: UOp, available: set[UOp], buffered: Iterable[UOp]) -> list[UOp]:
    """Return the nodes whose buffers an effect reads, with its tokens.

    Args:
        effect: a CALLBACK, or another op that takes a token.
        available: nodes whose buffers are written in time.
        buffered: nodes that have buffers.
    """
    targets = operand_buffers(effect)
    subgraph = toposort(targets, stop=lambda n: n in available or is_effect_token(n))
    if available.issuperset(n for n in buffered if n in subgraph):
        return targets
    known = {n: n for n in subgraph if n in available or is_effect_token(n)}
    known.update({n: build.stop_gradient(n) for n in subgraph if n.op is ops.PARAM})
    return [w if w.op is ops.PARAM else memory_of(n)
            for w, n in zip(targets, rebuild(targets, known=known))]
