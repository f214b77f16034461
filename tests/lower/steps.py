"""Run the untiled kernels of a FUNCTION one by one on the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core import build, ops
from fnx.core.levels import spec
from fnx.core.levels.interp import run_kernel
from fnx.core.uop import UOp, toposort
from fnx.lower.fusion.group import memory_of
from fnx.lower.fusion.kernelize import kernelize
from fnx.lower.fusion.ranges import Step, build_kernels
from fnx.lower.kernel.coalesce import coalesce
from fnx.lower.kernel.runtime_extents import generalize


def steps_of(fn: UOp) -> list[Step]:
    return build_kernels(kernelize(fn))


def run_steps(fn: UOp, args: Sequence[np.ndarray[Any, Any]], *, collapsed: bool = True,
              runtime_extents: bool = False) -> list[np.ndarray[Any, Any]]:
    """Results of ``fn`` through kernelize, ranges, coalesce and generalize."""
    memory: dict[UOp, np.ndarray[Any, Any]] = {
        p: np.array(args[p.arg.slot]) for p in toposort(fn.src) if p.op is ops.PARAM}
    for step in steps_of(fn):
        kernel, scalars = step.kernel, ()
        spec.check([kernel], "kernel")
        if collapsed and step.schedule is None:
            kernel = coalesce(kernel)
            spec.check([kernel], "kernel")
        if runtime_extents and step.schedule is None:
            kernel, scalars = generalize(kernel)
            spec.check([kernel], "kernel")
        for w in step.writes:
            garbage = np.full(w.shape, 7, w.dtype.np)
            memory.setdefault(w, garbage)
        run_kernel(kernel, [memory[o] for o in step.operands],
                   [build.const_of(s) for s in scalars])
    return [memory[memory_of(o)].reshape(o.shape) for o in fn.src]
