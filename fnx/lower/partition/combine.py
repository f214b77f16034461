"""Combine sums: partial sums that do not depend on each other share one message, up to a size.

    before  g = all_reduce[a](x);  h = all_reduce[a](y)        y does not read g
    after   g, h = all_reduce[a](x, y)

The level of an all_reduce is the most of them on a path to it. Those of one level over the same
processes are one: none of them reads another, not even through others. A message of at least
``enough`` bytes takes no further sums: it may be on its way while these are computed.

>>> from fnx.core.ir import dtypes, ops
>>> grid = ProcessGrid(("a",), (2,))
>>> outs = [collective("all_reduce", grid, ("a",), [build.param(i, dtypes.float32, (2,))],
...                    monoid=ops.ADD)[0] for i in range(2)]
>>> combined = combine_sums(build.function(outs, 2))
>>> [n.arg.count for n in toposort(combined.src) if n.op is ops.COLLECTIVE]
[2]
"""

from __future__ import annotations

import math
from typing import Any

from fnx.core.ir import build, ops
from fnx.core.ir.collectives import ProcessGrid, collective
from fnx.core.ir.uop import UOp, copy_locs, substitute, toposort

__all__ = ["ProcessGrid", "combine_sums"]


def combine_sums(fn: UOp, enough: float = math.inf) -> UOp:
    """Return the program of a process with fewer messages, in its bodies, too."""
    rewritten: dict[UOp, UOp] = {}
    for body in toposort([fn], into_functions=True):
        if body.op is ops.FUNCTION:
            new = body.with_operands(tuple(substitute(body.src, rewritten)))
            rewritten[body] = _combined(new, enough)
    return rewritten[fn]


def _is_sum(node: UOp) -> bool:
    return node.op is ops.COLLECTIVE and node.arg.name == "all_reduce"


def _combined(fn: UOp, enough: float) -> UOp:
    level: dict[UOp, int] = {}
    groups: dict[tuple[Any, ...], list[UOp]] = {}  # the deepest are replaced first
    for node in toposort(fn.src, stop=lambda n: n.op.is_isolated):
        level[node] = max([level[s] for s in node.src if s in level], default=0)
        if _is_sum(node):
            arg = node.arg
            groups.setdefault((level[node], arg.grid, arg.names, arg.monoid), []).append(node)
            level[node] += 1
    for key in sorted(groups, key=lambda key: key[0], reverse=True):
        replaced: dict[UOp, UOp] = {}
        for nodes in _messages(groups[key], enough):
            if len(nodes) > 1:
                replaced |= _one_of(nodes)
        if replaced:
            fn = fn.with_operands(tuple(substitute(fn.src, replaced)))
    return fn


def _messages(sums: list[UOp], enough: float) -> list[list[UOp]]:
    """Return sums by the message that they share."""
    out: list[list[UOp]] = []
    nbytes = enough
    for node in sums:
        if nbytes >= enough:
            out.append([])
            nbytes = 0
        out[-1].append(node)
        nbytes += sum([math.prod(shape) * dtype.itemsize for shape, dtype in node.arg.ins])
    return out


def _one_of(nodes: list[UOp]) -> dict[UOp, UOp]:
    """Return the results of the collectives -> those of one."""
    arg, operands = nodes[0].arg, list(dict.fromkeys([x for n in nodes for x in n.src]))
    outs = dict(zip(operands, collective("all_reduce", arg.grid, arg.names, operands,
                                         monoid=arg.monoid)))
    for node in nodes:
        for out in (*outs.values(), next(iter(outs.values())).src[0]):
            copy_locs(out, node)
    return {result: outs[x] for node in nodes
            for result, x in zip(build.results(node), node.src)}
