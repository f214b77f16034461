"""Inline: replace calls of FUNCTIONs by their bodies.

    before  FUNCTION(GET(CALL(FUNCTION(ADD(p0, p0)), MUL(p0, p1)), 0))
    after   FUNCTION(ADD(MUL(p0, p1), MUL(p0, p1)))

A CUSTOM is inlined as its function: its rules are for derivatives only. Calls of user-written
KERNELs stay. A body that is called ten times is inlined ten times; the ten copies become equal
kernels, which are one interned node and are compiled once.

>>> from fnx.core import build, dtypes
>>> p, q = (build.param(i, dtypes.float32, (3,)) for i in (0, 1))
>>> twice = build.function([build.add(p, p)], 1)
>>> result, = build_calls.call(twice, [build.mul(p, q)])
>>> inline(build.function([result], 2)).src == (build.add(build.mul(p, q), build.mul(p, q)),)
True
"""

from __future__ import annotations

from fnx.core import build_calls, ops, parts
from fnx.core.array import trace
from fnx.core.uop import UOp, rebuild, toposort

MIN_CALLS = 8  # calls of one body, in one FUNCTION or loop, from which it is lowered separately


def inline(fn: UOp) -> UOp:
    """Return a FUNCTION without calls, except calls of bodies that are called often."""
    flat: dict[UOp, UOp] = {}
    order = _inner_first(fn)
    often = _called_often(fn, order)
    for body in order:
        flat[body] = _inline_one(body, flat, often)
    return flat[fn]


def _called_often(fn: UOp, order: list[UOp]) -> set[UOp]:
    """Return bodies that some FUNCTION would have ``MIN_CALLS`` copies of and that lose little by
    not being inlined.

    ``order`` lists the FUNCTIONs, callees first.
    """
    calls: dict[UOp, list[UOp]] = {}
    frames = [fn]  # bodies that are lowered separately
    heavy: set[UOp] = set()
    for body in order:
        nodes = toposort(body.src)
        calls[body] = [n.src[0] for n in nodes if _calls_function(n)]
        frames += [b for n in nodes if n.op in _FRAMES for b in parts.bodies(n)]
        if any(map(_is_heavy, nodes)) and not any(n.op is ops.HOST or build_calls.is_token(n)
                                                  for n in nodes):
            heavy.add(body)
    often: set[UOp] = set()
    for frame in frames:  # grows during iteration
        copies = {frame: 1}
        for body in reversed(order):
            count = copies.get(body, 0)
            if count >= MIN_CALLS and body in heavy:
                if body not in often:
                    often.add(body)
                    frames.append(body)
            elif count and body not in often or body is frame:
                for callee in calls[body]:
                    copies[callee] = copies.get(callee, 0) + count
    return often


_FRAMES = frozenset({ops.SCAN, ops.WHILE, ops.COND})


def _is_heavy(node: UOp) -> bool:
    """Return whether a node is at least a kernel of its own: a matrix product, a loop, a
    scatter."""
    if node.op in _FRAMES or node.op is ops.SCATTER:
        return True
    x = node.src[0] if node.op is ops.REDUCE else node
    return node.op is ops.REDUCE and x.op is ops.MUL and all(s.op is ops.EXPAND for s in x.src)


def _inner_first(fn: UOp) -> list[UOp]:
    """Return the FUNCTIONs that are computed, callees first, without rules that nothing applies."""
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


def _inline_one(fn: UOp, flat: dict[UOp, UOp], often: set[UOp]) -> UOp:
    """Return ``fn`` with its calls replaced; the bodies it calls are in ``flat`` already."""
    results: dict[UOp, list[UOp]] = {}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        made = None
        if _calls_function(node) and node.src[0] in often:
            results[node] = [*build_calls.call(flat[node.src[0]], src[len(parts.bodies(node)):],
                                               node.arg.name)]
            made = node
        elif _calls_function(node):
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
