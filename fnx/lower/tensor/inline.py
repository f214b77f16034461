"""Inline: replace calls of FUNCTIONs by their bodies.

    before  FUNCTION(GETTUPLE(CALL(FUNCTION(ADD(p0, p0)), MUL(p0, p1)), 0))
    after   FUNCTION(ADD(MUL(p0, p1), MUL(p0, p1)))

A CUSTOM is inlined as its function: its rules are for derivatives only. Calls of user-written
KERNELs stay. A body that is called ten times is inlined ten times; the ten copies become equal
kernels, which are one interned node and are compiled once.

>>> from fnx.core.ir import build, dtypes
>>> p, q = (build.param(i, dtypes.float32, (3,)) for i in (0, 1))
>>> twice = build.function([build.add(p, p)], 1)
>>> result, = build_calls.call(twice, [build.mul(p, q)])
>>> inline(build.function([result], 2)).src == (build.add(build.mul(p, q), build.mul(p, q)),)
True
"""

from __future__ import annotations

from fnx.core.ir import accessors, build_calls, ops
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, rebuild_results, toposort
from fnx.core.tracing import trace

MIN_CALLS = 8  # calls of one body, in one FUNCTION or loop, from which it is lowered separately


def inline(fn: UOp) -> UOp:
    """Return a FUNCTION without calls, except calls of bodies that are called often."""
    inlined: dict[UOp, UOp] = {}
    bodies = _callees_first(fn)
    frequent = _frequently_called(fn, bodies)
    for body in bodies:
        inlined[body] = _inline_one(body, inlined, frequent)
    return inlined[fn]


def _frequently_called(fn: UOp, bodies: list[UOp]) -> set[UOp]:
    """Return bodies that some FUNCTION would have ``MIN_CALLS`` copies of and that lose little by
    not being inlined.

    ``bodies`` lists the FUNCTIONs, callees first.
    """
    calls: dict[UOp, list[UOp]] = {}
    roots = [fn]  # bodies that are lowered separately
    expensive: set[UOp] = set()
    for body in bodies:
        nodes = toposort(body.src)
        calls[body] = [n.src[0] for n in nodes if _calls_function(n)]
        roots += [b for n in nodes if n.op in _CONTROL_OPS for b in accessors.bodies(n)]
        if any(map(_is_heavy, nodes)) and not any(n.op is ops.CALLBACK or build_calls.is_token(n)
                                                  for n in nodes):
            expensive.add(body)
    frequent: set[UOp] = set()
    for frame in roots:  # grows during iteration
        copies = {frame: 1}
        for body in reversed(bodies):
            count = copies.get(body, 0)
            if count >= MIN_CALLS and body in expensive:
                if body not in frequent:
                    frequent.add(body)
                    roots.append(body)
            elif count and body not in frequent or body is frame:
                for callee in calls[body]:
                    copies[callee] = copies.get(callee, 0) + count
    return frequent


_CONTROL_OPS = frozenset({ops.SCAN, ops.WHILE, ops.COND})


def _is_heavy(node: UOp) -> bool:
    """Return whether a node is at least a kernel of its own: a matrix product, a loop, a
    scatter."""
    if node.op in _CONTROL_OPS or node.op is ops.SCATTER:
        return True
    x = node.src[0] if node.op is ops.REDUCE else node
    return node.op is ops.REDUCE and x.op is ops.MUL and all(s.op is ops.EXPAND for s in x.src)


def _callees_first(fn: UOp) -> list[UOp]:
    """Return the FUNCTIONs that are computed, callees first, without rules that nothing applies."""
    callees: dict[UOp, list[UOp]] = {}
    ordered: dict[UOp, None] = {}
    stack = [fn]
    while stack:
        body = stack[-1]
        if body not in callees:
            views = [OpBodies(node) for node in toposort(body.src) if node.op in ops.HIGHER_ORDER]
            callees[body] = [b for op in views for b in (*op.conditions, *op.steps)]
        pending = [b for b in callees[body] if b not in ordered]
        stack += pending
        if not pending:
            ordered[stack.pop()] = None
    return list(ordered)


def _inline_one(fn: UOp, inlined: dict[UOp, UOp], frequent: set[UOp]) -> UOp:
    """Return ``fn`` with its calls replaced; the bodies it calls are in ``inlined`` already."""
    results: dict[UOp, list[UOp]] = {}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        replacement = None
        if _calls_function(node) and node.src[0] in frequent:
            results[node] = [*build_calls.call(inlined[node.src[0]],
                                               src[len(accessors.bodies(node)):], node.arg.name)]
            replacement = node
        elif _calls_function(node):
            results[node] = trace.inline_function(inlined[node.src[0]],
                                                  src[len(accessors.bodies(node)):])
            replacement = node
        elif node.op is ops.GETTUPLE and node.src[0] in results:
            replacement = results[node.src[0]][node.arg]
        elif node.op is ops.FUNCTION:
            replacement = inlined.get(node)
        return replacement
    return rebuild_results(fn, visit)


def _calls_function(node: UOp) -> bool:
    return node.op in (ops.CALL, ops.CUSTOM) and node.src[0].op is ops.FUNCTION
