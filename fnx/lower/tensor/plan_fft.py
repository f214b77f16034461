"""FFT -> FFT_STEPs: the steps of its plan (core/formulas/fft_plan.py).

    before  FFT(x: [8, 4096, 2], axis 1)
    after   FFT_STEP(64 columns apart, twiddles)  ->  FFT_STEP(64 columns apart)

A target without programs of vectors gets the stages as graph ops instead: elementwise work and
movements, of which kernels are made as of any other.

Transposition by the first step brings the second one's columns side by side. Along an axis that
few columns follow, or that is longer than two steps can transform, elements are moved first.

>>> from fnx.core.ir import dtypes
>>> from fnx.core.ir.uop import toposort
>>> x = build.param(0, dtypes.float32, (8, 4096, 2))
>>> table = build.param(1, dtypes.float32, (fft_plan.table_size(4096, 1),))
>>> fn = build.function([build_calls.fft(x, table, 1)], 2)
>>> planned = plan_fft(fn)
>>> [node.arg.lengths for node in toposort(planned.src) if node.op is ops.FFT_STEP]
[(8, 64, 64), (8, 64, 64)]
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from fnx.core.formulas import fft_plan
from fnx.core.formulas.butterflies import Butterflies, Complex
from fnx.core.formulas.half_spectrum import from_half_spectrum, to_half_spectrum
from fnx.core.ir import build, build_calls, op_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, copy_locs, current_loc, rebuild_results


def plan_fft(fn: UOp, by_stages: bool = False) -> UOp:
    """Return a FUNCTION without FFT. ``by_stages``: without FFT_STEP, too."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.FFT:
            return None
        current_loc.set_from(node)
        return copy_locs(_expand(node, by_stages, *src), node)
    return rebuild_results(fn, visit)


def _expand(node: UOp, by_stages: bool, x: UOp, table: UOp) -> UOp:
    arg: op_args.Fft = node.arg
    axis, n = arg.axis, arg.length(x.shape)
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1:-1])
    if not math.prod(x.shape):
        return build.const(0, x.dtype, node.shape)
    plan = fft_plan.plan(n, inner)
    assert plan is not None
    expansion = (_StageExpansion if by_stages else _Expansion)(table, plan, arg.inverse, arg.scale)
    columns = build.reshape(x, (outer, x.shape[axis], inner, 2))
    out = expansion.run_real(columns) if arg.real else expansion.run(columns)
    return build.reshape(out, node.shape)


class _Expansion:
    """The steps of one transform, in order."""

    takes_rows = True  # whether a step may transform rows

    def __init__(self, table: UOp, plan: fft_plan.Plan, inverse: bool, scale: float) -> None:
        self.table, self.plan = table, plan
        self.inverse, self.scale = inverse, scale
        self.steps: Iterator[fft_plan.Step] = iter(plan.steps)

    def _run_rows(self, x: UOp, n: int, roots: int = -1) -> UOp | None:
        """Transform rows, if they are many and short."""
        outer, _, inner, _ = x.shape
        step = self.plan.rows
        if inner > 1 or step is None or outer < fft_plan.MIN_ROWS or not self.takes_rows:
            return None
        rows = build.reshape(x, (1, outer, x.shape[1], 2))
        out = self.step(rows, step, (1, n, outer), fft_plan.kinds(n), self.scale, roots)
        return build.reshape(out, (outer, out.shape[2], 1, 2))

    def run_real(self, x: UOp) -> UOp:
        """Transform pairs of neighbors in real columns, or back."""
        outer, n, inner, _ = x.shape
        n -= self.inverse
        start = self.table.shape[0] - 2 * (n + 1)
        by_rows = self._run_rows(x, n, start)
        if by_rows is not None:
            return by_rows
        w = build.shrink(self._part(start, (n + 1, 2)), [(0, n), (0, 2)])
        c, s = [build.expand(build.reshape(build.shrink(w, [(0, n), (i, i + 1)]), (1, n, 1)),
                             (outer, n, inner)) for i in range(2)]
        if self.inverse:
            return self.run(_join(from_half_spectrum(_parts(x), (c, s), 1)))
        self.scale /= 2
        return _join(to_half_spectrum(_parts(self.run(x)), (c, s), 1))

    def run(self, x: UOp) -> UOp:
        """Transform x[outer, n, inner, 2] along its second axis."""
        outer, n, inner, _ = x.shape
        plan = self.plan
        by_rows = self._run_rows(x, n)
        if by_rows is not None:
            return by_rows
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
             kinds: tuple[int, ...], scale: float, roots: int = -1) -> UOp:
        arg = op_args.FftStep("fft", x.dtype, lengths, kinds, fft_plan.radices(step.n), step.table,
                              step.twiddles, step is self.plan.rows, self.inverse, scale, roots)
        return build_calls.fft_step(x, self.table, arg)

    def _part(self, start: int, shape: tuple[int, ...]) -> UOp:
        """Return a part of the table."""
        return build.reshape(build.shrink(self.table, [(start, start + math.prod(shape))]), shape)


class _StageExpansion(_Expansion):
    """The stages of the steps, as graph ops."""

    takes_rows = False

    def step(self, x: UOp, step: fft_plan.Step, lengths: tuple[int, int, int],
             kinds: tuple[int, ...], scale: float, roots: int = -1) -> UOp:
        outer, n, inner = lengths
        numbers = _parts(x)
        sign = -1.0 if self.inverse else 1.0
        re, im = numbers[0], build.mul(numbers[1], build.const_like(numbers[1], sign))
        q, at = 1, step.table
        for r in fft_plan.radices(n):
            m = n // (q * r)
            re, im = self._stage(r, m, q, at, (build.reshape(re, (outer, r, m, q, inner)),
                                               build.reshape(im, (outer, r, m, q, inner))))
            q, at = q * r, at + 2 * m * (r - 1)
        value = build.reshape(re, lengths), build.reshape(im, lengths)
        shape: tuple[int, ...] = lengths
        if step.twiddles >= 0:
            shape = (outer, inner, n)
            value = self._twiddled(value, step, lengths)
        re, im = [build.mul(v, build.const_like(v, f)) if f != 1.0 else v
                  for v, f in zip(value, (scale, scale * sign))]
        return _join((build.reshape(re, shape), build.reshape(im, shape)))

    def _stage(self, r: int, m: int, q: int, table: int, x: Complex) -> Complex:
        outer, _, _, _, inner = x[0].shape
        shape = (outer, m, q, inner)
        graph = _Graph(shape, x[0].dtype)
        y = graph.butterfly([(graph.take(x[0], 1, j), graph.take(x[1], 1, j)) for j in range(r)])
        w = self._part(table, (m, r - 1, 2))
        for k in range(1, r) if m > 1 else ():
            factor = [build.expand(build.reshape(build.shrink(
                w, [(0, m), (k - 1, k), (i, i + 1)]), (1, m, 1, 1)), shape) for i in range(2)]
            y[k] = graph.times(y[k], (factor[0], factor[1]))
        re, im = [build.concat([build.reshape(v[i], (outer, m, 1, q, inner)) for v in y], 2)
                  for i in range(2)]
        return re, im

    def _twiddled(self, x: Complex, step: fft_plan.Step, lengths: tuple[int, int, int]) -> Complex:
        """Return the transposed matrices times w^(k c)."""
        outer, n, inner = lengths
        rows, padded = fft_plan.twiddle_rows(n), fft_plan.padded(inner)
        shape = (outer, n // rows, rows, inner)
        graph = _Graph(shape, x[0].dtype)
        factors = []
        for start, count, like in ((0, rows, (1, 1, rows, inner)),
                                   (2 * rows * padded, n // rows, (1, n // rows, 1, inner))):
            w = build.shrink(self._part(step.twiddles + start, (count, 2, padded)),
                             [(0, count), (0, 2), (0, inner)])
            re, im = [build.expand(build.reshape(build.shrink(
                w, [(0, count), (i, i + 1), (0, inner)]), like), shape) for i in range(2)]
            factors.append((re, im))
        value = build.reshape(x[0], shape), build.reshape(x[1], shape)
        product = graph.times(value, graph.times(factors[0], factors[1]))
        re, im = [build.permute(build.reshape(v, lengths), (0, 2, 1)) for v in product]
        return re, im


def _parts(x: UOp) -> Complex:
    """Return the real and the imaginary parts of x[outer, n, inner, 2]."""
    shape = x.shape[:3]
    re, im = [build.reshape(build.shrink(x, [*[(0, m) for m in shape], (i, i + 1)]), shape)
              for i in range(2)]
    return re, im


def _join(parts: Complex) -> UOp:
    return build.concat([build.reshape(v, (*v.shape, 1)) for v in parts], 3)


class _Graph(Butterflies):
    """Butterflies over arrays of one shape."""

    def __init__(self, shape: tuple[int, ...], dtype: DType) -> None:
        self.shape, self.t = shape, dtype

    def op(self, op: Op, *src: UOp) -> UOp:
        if op is ops.MULACC:
            return build.add(build.mul(src[0], src[1]), src[2])
        return build.elementwise(op, *src)

    def const(self, x: float) -> UOp:
        return build.const(x, self.t, self.shape)

    def take(self, x: UOp, axis: int, j: int) -> UOp:
        """Return a part of an array of one dimension more."""
        bounds = [(j, j + 1) if a == axis else (0, n) for a, n in enumerate(x.shape)]
        return build.reshape(build.shrink(x, bounds), self.shape)
