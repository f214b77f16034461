"""Run the untiled kernels of a FUNCTION one by one on the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp import evaluate, run_kernel
from fnx.core.support.target import Target
from fnx.lower.analysis.memory import LaunchOperand, View
from fnx.lower.driver import Driver, PassTrace, find_graphs
from fnx.lower.fusion.group import memory_of
from fnx.lower.fusion.kernel_steps import ControlFlowStep, KernelStep
from fnx.lower.pipeline import FUSION_PASSES, KERNEL_PASSES, lower
from fnx.lower.target_lowerings import ScheduleInput

TARGET = Target("interp", kind="kernels")


def steps_of(fn: UOp) -> list[KernelStep | ControlFlowStep]:
    steps: list[KernelStep | ControlFlowStep] = Driver(TARGET).run(FUSION_PASSES, fn)
    return steps


# The processor of most servers, as the schedules know it; the tests may run on another.
AVX512 = Target("cpu", kind="host", vector_bits=512, vector_registers=32, cores=2)


def after_pass(name: str, fn: UOp, target: Target) -> list[Any]:
    """Return what a pass makes of each kernel of ``fn`` for ``target``, which need not be here."""
    results: list[Any] = []

    def collect(ran: PassTrace) -> None:
        if ran.name == name:
            results.append(ran.after)
    lower(fn, target, on_pass=collect)
    return results


def tiled_kernels(fn: UOp, target: Target) -> list[UOp]:
    """Return the kernels of ``fn`` as they are tiled for ``target``."""
    return [kernel for state in after_pass("privatize_stages", fn, target)
            for kernel in find_graphs(state)]


def run_steps(fn: UOp, args: Sequence[np.ndarray[Any, Any]],
              fixed_lengths: frozenset[int] | None = None) -> list[np.ndarray[Any, Any]]:
    """Return the results of ``fn`` after the passes up to untiled kernels."""
    driver = Driver(TARGET)
    memory: dict[UOp, np.ndarray[Any, Any]] = {
        p: np.array(args[p.arg.slot]) for p in toposort(fn.src) if p.op is ops.PARAM}
    for step in steps_of(fn):
        if isinstance(step, ControlFlowStep):
            memory.update(zip(step.writes, evaluate(step.writes, memory)))
            continue
        work = driver.run(KERNEL_PASSES, ScheduleInput(step.kernel, step.schedule, fixed_lengths))
        for w in step.writes:
            garbage = np.full(w.shape, 7, w.dtype.np)
            memory.setdefault(w, garbage)
        run_kernel(work.kernel, [_part(memory, o) for o in step.operands],
                   [build.const_of(s) for s in work.scalars])
    return [memory[memory_of(o)].reshape(o.shape) for o in fn.src]


def _part(memory: dict[UOp, np.ndarray[Any, Any]], operand: LaunchOperand) -> np.ndarray[Any, Any]:
    """Return the part of the memory that a kernel's operand refers to."""
    if not isinstance(operand, View):
        return memory[operand]
    whole = memory[operand.node]
    first = operand.start // whole.itemsize
    return whole.reshape(-1)[first:first + operand.nbytes // whole.itemsize]
