"""Inline: calls of FUNCTIONs are replaced by their bodies.

    before  FUNCTION(GET(CALL(FUNCTION(ADD(p0, p0)), MUL(p0, p1)), 0))
    after   FUNCTION(ADD(MUL(p0, p1), MUL(p0, p1)))

A CUSTOM goes by its function: its rules are for derivatives. Calls of hand-written KERNELs stay.
A body that is called ten times is inlined ten times; the ten copies become equal kernels, which
are one interned node and are compiled once.

>>> from fnx.core import build, dtypes
>>> p, q = (build.param(i, dtypes.float32, (3,)) for i in (0, 1))
>>> twice = build.function([build.add(p, p)], 1)
>>> result, = build.call(twice, [build.mul(p, q)])
>>> inline(build.function([result], 2)).src == (build.add(build.mul(p, q), build.mul(p, q)),)
True
"""

from __future__ import annotations

from fnx.core import ops, parts
from fnx.core.array import trace
from fnx.core.uop import UOp, rebuild, toposort


def inline(fn: UOp) -> UOp:
    """A FUNCTION without calls of FUNCTIONs."""
    flat: dict[UOp, UOp] = {}
    for body in _inner_first(fn):
        flat[body] = _inline_one(body, flat)
    return flat[fn]


def _inner_first(fn: UOp) -> list[UOp]:
    """The FUNCTIONs that are computed, without rules that nothing applies."""
    inside: dict[UOp, list[UOp]] = {}
    done: dict[UOp, None] = {}
    stack = [fn]
    while stack:
        body = stack[-1]
        if body not in inside:
            inside[body] = [b for node in toposort(body.src) if node.op in ops.STRUCTURAL
                            for b in parts.bodies(node)[:1 if node.op is ops.CUSTOM else None]]
        missing = [b for b in inside[body] if b not in done]
        stack += missing
        if not missing:
            done[stack.pop()] = None
    return list(done)


def _inline_one(fn: UOp, flat: dict[UOp, UOp]) -> UOp:
    """``fn`` with its calls replaced; the bodies it calls are in ``flat`` already."""
    results: dict[UOp, list[UOp]] = {}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        made = None
        if _calls_function(node):
            results[node] = trace.inline(flat[node.src[0]], src[len(parts.bodies(node)):])
            made = node
        elif node.op is ops.GET and node.src[0] in results:
            made = results[node.src[0]][node.arg]
        elif node.op is ops.FUNCTION:
            made = flat.get(node)
        return made
    return fn.over(tuple(rebuild(fn.src, visit)))


def _calls_function(node: UOp) -> bool:
    return node.op in (ops.CALL, ops.CUSTOM) and node.src[0].op is ops.FUNCTION
