"""Select branches: a COND whose branches are cheap becomes a selection among their results.

    before  COND(f, g, which, x)             f: x -> (x + 1,),  g: x -> (x * 2,)
    after   WHERE(which > 0, x * 2, x + 1)

A COND is a command: its operands and results cross memory, and a loop around it is no kernel. A
selection is part of the kernel of its readers. Branches are selected if they only compute elements
(no reduction, loop, read by index or effect: these are worth skipping), and if computing all of
them takes less time than starting the cheapest one and passing its operands and results through
memory. Integer division and all other elementwise ops are defined for all operands, so a branch
that is not taken may be computed.

>>> from fnx.core.ir import dtypes
>>> x, which = build.param(0, dtypes.float32, (3,)), build.param(1, dtypes.int32, ())
>>> f, g = build.function([build.add(x, x)], 1), build.function([build.mul(x, x)], 1)
>>> both = build.function(build_calls.cond([f, g], which, [x]), 2)
>>> select_branches(both).src[0].src[1:] == (build.mul(x, x), build.add(x, x))
True
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fnx.core.ir import build, build_calls, ops
from fnx.core.ir.op_bodies import OpBodies, replace_results
from fnx.core.ir.uop import UOp, toposort
from fnx.core.tracing.trace import inline_function
from fnx.lower.analysis.tuning import KERNEL_CYCLES, VECTOR_BYTES
from fnx.lower.fusion.cost import nbytes, transfer_cycles

_SOURCES = frozenset({ops.PARAM, ops.CONST, ops.IOTA})
_VIEWS = frozenset({ops.RESHAPE, ops.PERMUTE, ops.EXPAND, ops.PAD, ops.SHRINK, ops.FLIP,
                    ops.CONCAT, ops.STOP_GRADIENT})


def select_branches(fn: UOp) -> UOp:
    """Return a FUNCTION in which the cheap branches of its CONDs are selected."""
    return fn.with_operands(tuple(replace_results(fn.src, _select)))


def _select(node: UOp, src: tuple[UOp, ...]) -> list[UOp] | None:
    """Return the selected results of a COND, or None if it stays."""
    if node.op is not ops.COND:
        return None
    cond = OpBodies(node.with_operands(src))
    if not all(map(_is_elementwise, cond.steps)) or \
            _select_cycles(cond.steps) > _branch_cycles(cond.steps, cond.operands):
        return None
    which, = cond.selector
    out: list[UOp] = []
    for i, branch in enumerate(cond.steps):
        taken = build_calls.takes_branch(which, i, len(cond.steps))
        results = inline_function(branch, cond.operands)
        out = [build.where(build.expand(taken, a.shape), a, b)
               for a, b in zip(results, out)] if out else results
    return out


def _is_elementwise(branch: UOp) -> bool:
    """Whether all results of a branch are arrays of elements that no other elements take part in.
    """
    return not any(map(build_calls.is_token, branch.src)) and all(
        n.op.kind == "elementwise" or n.op in _VIEWS or n.op in _SOURCES
        for n in toposort(branch.src))


def _select_cycles(branches: Sequence[UOp]) -> float:
    """Return the time to compute all branches, and to select. A result that a branch returns as it
    came is written by a selection only: a carry that a step leaves as it is stays in place."""
    work = sum(map(_work, branches))
    for results in zip(*[branch.src for branch in branches]):
        work += (len(branches) - 1) * nbytes(results[0]) / VECTOR_BYTES
        if any(x.op is ops.PARAM for x in results):
            work += 2 * transfer_cycles(results[0])
    return work


def _branch_cycles(branches: Sequence[UOp], operands: Iterable[UOp]) -> float:
    """Return the least time of a branch that is taken: to start it, to compute it, and to write and
    read its results and those operands that could be computed where they are read."""
    crossing = sum([2 * transfer_cycles(x) for x in operands if x.op.kind == "elementwise"])
    return KERNEL_CYCLES + crossing + min(
        _work(branch) + sum([2 * transfer_cycles(x) for x in branch.src if x.op is not ops.PARAM])
        for branch in branches)


def _work(branch: UOp) -> float:
    return sum([n.op.cost * max(nbytes(n) / VECTOR_BYTES, 1) for n in toposort(branch.src)
                if n.op.kind == "elementwise"])
