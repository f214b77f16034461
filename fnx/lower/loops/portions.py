"""Strip-mining of WHILE: a loop with a condition becomes a loop of kernels that terminate.

    before  WHILE(goes_on, step, consts, carries)
    after   WHILE(flag, of at most 1000 steps, consts, (carries..., True))
              of at most 1000 steps: (consts, carries, flag) -> (carries', goes_on(carries'))

A kernel can't be interrupted. One that might never terminate could only run on a thread that can
be abandoned, and waking that costs more than a loop of a few steps takes. In strips, the first
steps run on the calling thread, workers continue from there, and Ctrl-C waits for one strip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from fnx.core import build, build_calls, dtypes, ops, parts
from fnx.core.array.trace import inline
from fnx.core.uop import UOp, inherit, toposort

# Run time limits of loop kernels, as nothing interrupts them: cycles as schedule/cost.py predicts
# them, about 3 per nanosecond. A launch (cost.LAUNCH) is less than 1/1000 of each of these.
FIRST = 1 << 17    # of a strip: 40 us, in which work could be handed to a worker instead
WHOLE = 1 << 21    # of a kernel with a known trip count: 0.7 ms
LONGEST = 1 << 23  # of a strip in the worst case of its data: 3 ms, before Ctrl-C is noticed
MOST = 1 << 12     # most steps of a strip, as each may take longer than predicted
_LEAST = 16        # least steps, as carries go through memory between strips
_ADDITION = 2      # cycles of an addition or similar op in scalar code

Portion = Callable[[UOp, Sequence[int], int], dict[int, UOp]]


def in_portions(node: UOp, used: Sequence[int], portion: Portion) -> dict[int, UOp]:
    """Return the used results of a WHILE, keyed by their number among its results.

    Args:
        node: the WHILE.
        used: which results.
        portion: ``portion(while, numbers, steps)``: these results after at most so many steps.
    """
    arg, operands = node.arg, parts.operands(node)
    condition, step = parts.bodies(node)
    needed = _needed(node, used)
    kept = [*range(arg.n_consts), *[arg.n_consts + i for i in needed]]
    given = list(operands)
    for new, old in enumerate(kept):
        if old >= arg.n_consts or not is_constant(operands[old]):
            given[old] = build.param(new, operands[old].dtype, operands[old].shape)
    inner = inherit(node.over((condition, step, *given)), node)
    found = portion(inner, needed, _steps(step))
    last = [found.get(i, given[arg.n_consts + i]) for i in range(len(arg.outs))]
    goes_on, = inline(condition, [*given[:arg.n_consts], *last])
    flag = build.param(len(kept), dtypes.bool_, ())
    body = build.function([*[found[i] for i in needed], goes_on], len(kept) + 1, step.arg.name)
    test = build.function([flag], len(kept) + 1, condition.arg.name)
    made = build_calls.while_(test, body, operands[:arg.n_consts],
                              [*[operands[arg.n_consts + i] for i in needed],
                               build.const(True, dtypes.bool_, ())], arg.name)
    inherit(made[0].src[0], node)
    return {i: made[needed.index(i)] for i in used}


def is_constant(node: UOp) -> bool:
    """Whether an array is computed without any operand."""
    return all(n.op in _CONSTANT for n in toposort([node]))


_CONSTANT = frozenset({ops.CONST, ops.RESHAPE, ops.EXPAND, ops.IOTA, ops.CAST})


def _needed(node: UOp, used: Sequence[int]) -> list[int]:
    """Return the carries that these results and the condition depend on."""
    condition, step = parts.bodies(node)
    first = node.arg.n_consts
    found = set(used)
    while True:
        roots = [*condition.src, *[step.src[i] for i in found]]
        wanted = {n.arg.slot - first for n in toposort(roots)
                  if n.op is ops.PARAM and n.arg.slot >= first}
        if wanted <= found:
            return sorted(found)
        found |= wanted


def _steps(step: UOp) -> int:
    """Return the number of steps of a strip, from the work of one step."""
    work = sum(max(n.op.cost, 1) * int(np.prod(n.shape)) for n in toposort(step.src)
               if n.op is not ops.PARAM)
    return max(_LEAST, min(MOST, FIRST // _ADDITION // max(work, 1)))
