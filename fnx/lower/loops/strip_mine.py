"""Strip-mining of WHILE: a loop with a condition becomes a loop of kernels that terminate.

    before  WHILE(goes_on, step, consts, carries)
    after   WHILE(flag, of at most 1000 steps, consts, (carries..., True))
              of at most 1000 steps: (consts, carries, flag) -> (carries', goes_on(carries'))

A kernel can't be interrupted. One that might never terminate could only run on a thread that can
be abandoned, and waking that costs more than a loop of a few steps takes. In strips, the first
steps run on the calling thread, workers continue from there, and Ctrl-C waits for one strip.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fnx.core.ir import accessors, build, build_calls, dtypes, ops
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, copy_locs, toposort
from fnx.core.tracing.trace import inline_function
from fnx.lower.analysis.tuning import VECTOR_BYTES
from fnx.lower.fusion.cost import nbytes

# Run time limits of loop kernels, as nothing interrupts them: cycles as schedule/cost_model.py
# predicts them, about 3 per nanosecond. A launch (LAUNCH_CYCLES) is less than 1/1000 of each of
# these.
STRIP_CYCLES = 1 << 17    # of a strip: 40 us, in which work could be handed to a worker instead
KERNEL_CYCLES = 1 << 21    # of a kernel with a known trip count: 0.7 ms
MAX_CYCLES = 1 << 23  # of a strip in the worst case of its data: 3 ms, before Ctrl-C is noticed
MAX_STEPS = 1 << 12     # most steps of a strip, as each may take longer than predicted
_MIN_STEPS = 16        # least steps, as carries go through memory between strips
_FEW = 16          # elements that may be scalars, at least
_ADD_CYCLES = 2      # cycles of an addition or similar op in scalar code

BuildStrip = Callable[[UOp, Sequence[int], int], dict[int, UOp]]


def strip_mine_while(node: UOp, used: Sequence[int], build_strip: BuildStrip) -> dict[int, UOp]:
    """Return the used results of a WHILE, keyed by their number among its results.

    Args:
        node: the WHILE.
        used: which results.
        build_strip: ``build_strip(while, numbers, steps)``: these results after at most so many
            steps.
    """
    arg, operands = node.arg, accessors.operands(node)
    condition, step = accessors.bodies(node)
    needed = OpBodies(node).live_results(used)
    kept_operands = [*range(arg.n_consts), *[arg.n_consts + i for i in needed]]
    arguments = list(operands)
    for new, old in enumerate(kept_operands):
        if old >= arg.n_consts or not is_constant(operands[old]):
            arguments[old] = build.param(new, operands[old].dtype, operands[old].shape)
    inner = copy_locs(node.with_operands((condition, step, *arguments)), node)
    strip_results = build_strip(inner, needed, _strip_steps(step))
    last = [strip_results.get(i, arguments[arg.n_consts + i]) for i in range(len(arg.outs))]
    continues, = inline_function(condition, [*arguments[:arg.n_consts], *last])
    flag = build.param(len(kept_operands), dtypes.bool_, ())
    body = build.function([*[strip_results[i] for i in needed], continues], len(kept_operands) + 1,
                          step.arg.name)
    test = build.function([flag], len(kept_operands) + 1, condition.arg.name)
    outer_results = build_calls.while_(test, body, operands[:arg.n_consts],
                                       [*[operands[arg.n_consts + i] for i in needed],
                                        build.const(True, dtypes.bool_, ())], arg.name)
    copy_locs(outer_results[0].src[0], node)
    return {i: outer_results[needed.index(i)] for i in used}


def is_constant(node: UOp) -> bool:
    """Whether an array is computed without any operand."""
    return all(n.op in _CONSTANT_OPS for n in toposort([node]))


_CONSTANT_OPS = frozenset({ops.CONST, ops.RESHAPE, ops.EXPAND, ops.IOTA, ops.CAST})


def _strip_steps(step: UOp) -> int:
    """Return the number of steps of a strip, from the work of one step: of few elements each is a
    scalar, and many are lanes."""
    work = sum(max(n.op.cost, 1) * min(math.prod(n.shape), max(_FEW, nbytes(n) // VECTOR_BYTES))
               for n in toposort(step.src) if n.op is not ops.PARAM)
    return max(_MIN_STEPS, min(MAX_STEPS, STRIP_CYCLES // _ADD_CYCLES // max(work, 1)))
