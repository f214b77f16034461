"""Effects in groups: what only effects read is placed when all else is.

    before  y = f(x); print(y * 2)               results y, token
    after   the groups of y, as without the print; then y * 2 from the buffer of y, and the HOST

So a result has the same bits with and without effects. They run in the order of their tokens,
each as soon as what it reads is there. A value that was given a buffer together with one that
reads a later effect is not there in time: it is computed again.
"""

from __future__ import annotations

from collections.abc import Iterable

from fnx.core import build, build_calls, ops, parts
from fnx.core.uop import UOp, rebuild, toposort
from fnx.lower.fusion.group import memory_of


def is_behind(node: UOp) -> bool:
    """Whether it is the token of an effect: below is what comes before, and not what is read."""
    return node.op is ops.GET and build_calls.is_token(node)


def without_tokens(nodes: Iterable[UOp]) -> list[UOp]:
    """Those that have a value."""
    return [n for n in nodes if not build_calls.is_token(n)]


def effects_of(roots: Iterable[UOp]) -> list[UOp]:
    """The nodes below that take part in the order of effects, in that order."""
    return [n for n in toposort(roots)
            if n.op in ops.SEVERAL and any(map(build_calls.is_token, n.src))]


def between(effects: list[UOp], placed: Iterable[UOp]) -> list[tuple[list[UOp], list[UOp]]]:
    """Effects that are not placed, those next to each other together; what is placed after them.

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
    """The nodes whose buffers the operands of a call are in."""
    return [memory_of(s) for s in parts.operands(call)]


def operands(effect: UOp, there: set[UOp], written: Iterable[UOp]) -> list[UOp]:
    """The nodes whose buffers an effect reads, with its tokens.

    Args:
        effect: a HOST, or another that takes a token.
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
