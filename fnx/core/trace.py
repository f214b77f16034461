"""From a Python function to a closed FUNCTION.

    f(x) = x * w        with w an array of the scope around f

    ->  FUNCTION(MUL(PARAM 0, PARAM 1))  and the captures [w]

A FUNCTION is closed: everything foreign that f captured (leaves of traces around it, memory of
concrete arrays) becomes an operand after the explicit ones, in the order of first use. So a
capture can be differentiated, two functions that capture different arrays of one shape are one
body with different operands, and no PARAM of one scope can be taken for that of another.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import build, ops, scope
from fnx.core.errors import SpecError
from fnx.core.uop import UOp, substitute, toposort


def close(outs: Sequence[UOp], leaves: Sequence[UOp], name: str = "") -> tuple[UOp, list[UOp]]:
    """The FUNCTION of ``outs`` over ``leaves``, and what else it reads.

    Args:
        outs: results of the trace, in terms of its leaves.
        leaves: the explicit parameters, in order; one that is not read keeps its slot.

    Returns:
        The FUNCTION, with the captures as its last parameters; and the captures.

    Raises:
        LeakedTracerError: a foreign leaf belongs to a trace that is closed.
    """
    params = {leaf: build.param(i, leaf.dtype, leaf.shape) for i, leaf in enumerate(leaves)}
    captures: list[UOp] = []
    for node in toposort(outs):
        if node.op is ops.PARAM:
            raise SpecError(f"{node} of another scope in the trace of {name or 'a function'}")
        if node in params or node.op not in _FOREIGN:
            continue
        if node.op is ops.LEAF:
            scope.check_open(node)
        params[node] = build.param(len(params), node.dtype, node.shape)
        captures.append(node)
    return build.function(substitute(outs, params), len(params), name), captures


def inline(fn: UOp, args: Sequence[UOp]) -> list[UOp]:
    """The results of a FUNCTION as nodes over ``args``, without a CALL."""
    return substitute(fn.src, {node: args[node.arg.slot] for node in toposort(fn.src)
                               if node.op is ops.PARAM})


_FOREIGN = frozenset({ops.LEAF, ops.BUFFER})
