"""Effects: place values that only effects read after everything else.

    before  y = f(x); print(y * 2)               results y, token
    after   the groups of y, as without the print; then y * 2 from the buffer of y, and the HOST

So a result has the same bits with and without effects. Effects run in the order of their tokens,
each as soon as its operands are available. A value whose buffer is written together with one that
depends on a later effect is not available in time: it is recomputed.
"""

from __future__ import annotations

from collections.abc import Iterable

from fnx.core import build, build_calls, ops, parts
from fnx.core.uop import UOp, rebuild, toposort
from fnx.lower.fusion.group import memory_of


def is_behind(node: UOp) -> bool:
    """Whether it is the token of an effect: its operands belong to earlier effects and are not
    read."""
    return node.op is ops.GET and build_calls.is_token(node)


def without_tokens(nodes: Iterable[UOp]) -> list[UOp]:
    """Return the nodes that have a value."""
    return [n for n in nodes if not build_calls.is_token(n)]


def effects_of(roots: Iterable[UOp]) -> list[UOp]:
    """Return the nodes below that are ordered by tokens, in that order."""
    return [n for n in toposort(roots)
            if n.op in ops.SEVERAL and any(map(build_calls.is_token, n.src))]


def between(effects: list[UOp], placed: Iterable[UOp]) -> list[tuple[list[UOp], list[UOp]]]:
    """Group effects that are not placed into runs; each with the placed effects that follow it.

    >>> from fnx.core import dtypes
    >>> a, b, c, d = (build.param(i, dtypes.bool_, ()) for i in range(4))
    >>> between([a, b, c, d], {c}) == [([a, b], [c]), ([d], [])]
    True
    """
    placed = set(placed)
    out: list[tuple[list[UOp], list[UOp]]] = []
    run: list[UOp] = []
    for i, effect in enumerate(effects):
        if effect not in placed:
            run.append(effect)
        if run and (effect in placed or i == len(effects) - 1):
            out.append((run, [e for e in effects[i:] if e in placed]))
            run = []
    return out


def reads_of(call: UOp) -> list[UOp]:
    """Return the nodes whose buffers hold the operands of a call."""
    return [memory_of(s) for s in parts.operands(call)]


def operands(effect: UOp, there: set[UOp], written: Iterable[UOp]) -> list[UOp]:
    """Return the nodes whose buffers an effect reads, with its tokens.

    Args:
        effect: a HOST, or another op that takes a token.
        there: nodes whose buffers are written in time.
        written: nodes that have buffers.
    """
    wanted = reads_of(effect)
    below = toposort(wanted, stop=lambda n: n in there or is_behind(n))
    if there.issuperset(n for n in written if n in below):
        return wanted
    known = {n: n for n in below if n in there or is_behind(n)}
    known.update({n: build.stop_gradient(n) for n in below if n.op is ops.PARAM})
    return [w if w.op is ops.PARAM else memory_of(n)
            for w, n in zip(wanted, rebuild(wanted, known=known))]
