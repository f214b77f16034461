"""The kernels of calls: those of the user, and opaque ones (callbacks, sorts, LAPACK).

    before  CALL(KERNEL(for i < 6: o[i] = 0; for j < 4: o[j + 1] = x[j]), x)
    after   KERNEL(for i < 6: o[i] = 0), KERNEL(for j < 4: o[j + 1] = x[j])
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from fnx.core.ir import accessors, build, build_calls, ops, tiling
from fnx.core.ir.tiling import Schedule
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.lower.analysis.memory import nodes_of
from fnx.lower.fusion.kernel_steps import ControlFlowStep, KernelStep, lines_of


def call_steps(call: UOp, reads: tuple[UOp, ...]) -> Iterator[KernelStep | ControlFlowStep]:
    """Yield the steps of a call, which reads these nodes."""
    step = _call_step(call, reads)
    if not isinstance(step, KernelStep) or step.kernel.op is not ops.KERNEL or step.is_generated:
        yield step
        return
    kernel, fills = step.kernel, _leading_fills(step.kernel)
    for fill in fills:
        ref = accessors.buffer(fill)
        store, = substitute([fill], {ref: ref.replace(arg=ref.arg.replace(slot=0))})
        target = step.operands[ref.arg.slot]
        yield KernelStep(_part_of(kernel, [store], f"{kernel.arg.name}_fill"), (target,),
                         tuple(nodes_of([target])), None, step.locs)
    if fills:
        step = step.replace(kernel=_part_of(kernel, kernel.src[len(fills):], kernel.arg.name),
                            schedule=step.schedule and _without_ranges(step.schedule, {
                                r.arg.name for fill in fills for r in fill.ranges}))
    yield step


def _without_ranges(schedule: Schedule, names: set[str]) -> Schedule:
    """Return a schedule without the transforms of some ranges, as a search finds them."""
    out: list[tiling.Transform] = []
    for transform in schedule:
        if isinstance(transform, tiling.Order):
            out.append(tiling.Order(tuple([n for n in transform.names if n not in names])))
        elif getattr(transform, "range", None) not in names:
            out.append(transform)
        elif isinstance(transform, tiling.Split):
            names = {*names, transform.outer, transform.inner}
    return tuple(out)


def _part_of(kernel: UOp, stores: Sequence[UOp], name: str) -> UOp:
    """Return the kernel of some stores of a KERNEL."""
    ids = {n.arg.id for n in toposort(stores) if n.op is ops.RANGE}
    return kernel.replace(src=tuple(stores), arg=kernel.arg.replace(
        name=name, order=tuple([i for i in kernel.arg.order if i in ids])))


def _leading_fills(kernel: UOp) -> list[UOp]:
    """Return the stores of constants in loops of their own that come before all others: they are
    kernels of their own, so that both kinds are shared among workers.

        before  KERNEL(for i < 6: o[i] = 0; for j < 4: o[j + 1] = x[j])
        after   KERNEL(for i < 6: o[i] = 0), KERNEL(for j < 4: o[j + 1] = x[j])
    """
    fills = list(itertools.takewhile(
        lambda s: s.arg is None and accessors.value(s).op is ops.CONST, kernel.src))
    others = kernel.src[len(fills):]
    has_own_loops = all(f.ranges.isdisjoint(s.ranges) for f in fills for s in others)
    return fills if others and has_own_loops else []


def _call_step(call: UOp, reads: tuple[UOp, ...]) -> KernelStep | ControlFlowStep:
    writes = build.results(call)
    locs = call.locs or lines_of(writes)
    if call.op is ops.CALLBACK:
        writes = writes[call.arg.effect:]
        reads = reads[:1] + reads[1 + call.arg.effect:]
    if call.op in (ops.CALLBACK, ops.SORT, ops.FFT_STEP, ops.LINALG):
        return KernelStep(build_calls.callee(call), reads + writes, writes, None, locs)
    if call.op is not ops.CALL or call.src[0].op is ops.FUNCTION:
        return ControlFlowStep(call, reads, writes)
    return KernelStep(call.src[0], (*reads, *writes), writes, call.arg.schedule, locs,
                      is_generated=call.arg.is_generated)
