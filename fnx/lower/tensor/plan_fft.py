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

_MIN_ROWS = 16  # as many as there are lanes


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
    plan = fft_plan.plan(n, inner)
    assert plan is not None
    expansion = _Expansion(table, plan, node.arg.inverse, node.arg.scale)
    return build.reshape(expansion.run(build.reshape(x, (outer, n, inner, 2))), x.shape)


class _Expansion:
    """The steps of one transform, in order."""

    def __init__(self, table: UOp, plan: fft_plan.Plan, inverse: bool, scale: float) -> None:
        self.table, self.plan = table, plan
        self.inverse, self.scale = inverse, scale
        self.steps: Iterator[fft_plan.Step] = iter(plan.steps)

    def run(self, x: UOp) -> UOp:
        """Transform x[outer, n, inner, 2] along its second axis."""
        outer, n, inner, _ = x.shape
        plan = self.plan
        if inner == 1 and plan.rows is not None and outer >= _MIN_ROWS:
            rows = build.reshape(x, (1, outer, n, 2))
            out = self.step(rows, plan.rows, (1, n, outer), fft_plan.kinds(n), self.scale)
            return build.reshape(out, x.shape)
        if fft_plan.is_column(n, inner):
            return self.step(x, next(self.steps), (outer, n, inner), plan.kinds, self.scale)
        if inner > 1:
            rows = build.reshape(build.permute(x, (0, 2, 1, 3)), (outer * inner, n, 1, 2))
            out = build.reshape(self.run(rows), (outer, inner, n, 2))
            return build.permute(out, (0, 2, 1, 3))
        step = next(self.steps)
        columns = build.reshape(x, (outer, step.n, step.inner, 2))
        out = self.step(columns, step, (outer, step.n, step.inner), plan.kinds, 1.0)
        return build.reshape(self.run(build.reshape(out, (outer, step.inner, step.n, 2))), x.shape)

    def step(self, x: UOp, step: fft_plan.Step, lengths: tuple[int, int, int],
             kinds: tuple[int, ...], scale: float) -> UOp:
        arg = op_args.FftStep("fft", x.dtype, lengths, kinds, fft_plan.radices(step.n), step.table,
                              step.twiddles, step is self.plan.rows, self.inverse, scale)
        return build_calls.fft_step(x, self.table, arg)
