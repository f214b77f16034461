"""FFT -> FFT_STEPs: the steps of its plan (core/formulas/fft_plan.py).

    before  FFT(x: [8, 4096, 2], axis 1)
    after   FFT_STEP(64 columns apart, twiddles)  ->  FFT_STEP(64 columns apart)

Transposition by the first step brings the second one's columns side by side. Along an axis that
few columns follow, or that is longer than two steps can transform, elements are moved first.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from fnx.core.formulas import fft_plan
from fnx.core.ir import build, build_calls, op_args, ops
from fnx.core.ir.uop import UOp, copy_locs, rebuild


def plan_fft(fn: UOp) -> UOp:
    """Return a FUNCTION without FFT."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.FFT:
            return None
        return copy_locs(_expand(node, *src), node)
    return fn.with_operands(tuple(rebuild(fn.src, visit)))


def _expand(node: UOp, x: UOp, table: UOp) -> UOp:
    axis = node.arg.axis
    outer, n, inner = (math.prod(x.shape[:axis]), x.shape[axis], math.prod(x.shape[axis + 1:-1]))
    if not math.prod(x.shape):
        return x
    steps = fft_plan.plan(n, inner)
    assert steps is not None
    flat = build.reshape(x, (outer, n, inner, 2))
    return build.reshape(_run(flat, table, iter(steps), node), x.shape)


def _run(x: UOp, table: UOp, steps: Iterator[fft_plan.Step], node: UOp) -> UOp:
    """Transform x[outer, n, inner, 2] along its second axis."""
    outer, n, inner, _ = x.shape
    if fft_plan.is_column(n, inner):
        return _step(x, table, next(steps), node.arg.inverse, node.arg.scale)
    if inner > 1:
        rows = build.reshape(build.permute(x, (0, 2, 1, 3)), (outer * inner, n, 1, 2))
        out = build.reshape(_run(rows, table, steps, node), (outer, inner, n, 2))
        return build.permute(out, (0, 2, 1, 3))
    step = next(steps)
    columns = build.reshape(x, (outer, step.n, step.inner, 2))
    rows = _step(columns, table, step, node.arg.inverse, 1.0)
    return build.reshape(_run(build.reshape(rows, (outer, n // step.n, step.n, 2)), table, steps,
                              node), x.shape)


def _step(x: UOp, table: UOp, step: fft_plan.Step, inverse: bool, scale: float) -> UOp:
    outer, n, inner, _ = x.shape
    arg = op_args.FftStep("fft", x.dtype, (outer, n, inner), *fft_plan.radices(n), step.table,
                          step.twiddles, inverse, scale)
    return build_calls.fft_step(x, table, arg)
