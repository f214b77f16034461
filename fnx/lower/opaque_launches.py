"""Launches of what is no KERNEL: callbacks, and programs that a device has or emits by itself.

    SORT, FFT_STEP, LINALG   ->   the same for any sizes, which are scalars of the launch
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.core.support.process import lazy_import
from fnx.lower.analysis.memory import LaunchOperand
from fnx.lower.emit import selection
from fnx.lower.emit.sorting import generalize_length, may_overwrite_operand
from fnx.lower.fusion.kernel_steps import KernelStep
from fnx.lower.memory.buffer_sharing import AliasPair
from fnx.lower.memory.commands import Launch
from fnx.lower.target_lowerings import TargetLowering

fft = lazy_import("fnx.lower.emit.fft")
linalg = lazy_import("fnx.lower.emit.linalg")


def opaque_launch(step: KernelStep, lowering: TargetLowering, has_fixed_length: bool) -> Launch:
    """Return the launch of a CALLBACK, SORT, FFT_STEP or LINALG."""
    node = step.kernel
    scalars: tuple[UOp, ...] = ()
    may_alias: tuple[AliasPair, ...] = ()
    if node.op is ops.SORT:
        if lowering.native_programs and may_overwrite_operand(node, "VEC" in lowering.kinds):
            may_alias = _whole_pairs(step.operands[:2])
        if lowering.native_programs and node.arg.selects:
            node, scalars = selection.generalize(node, "VEC" in lowering.kinds)
        elif lowering.native_programs and not has_fixed_length:
            node, scalars = generalize_length(node)
    elif node.op is ops.FFT_STEP:
        if lowering.native_programs:
            node, scalars = fft.generalize(node), fft.scalars(node)
        may_alias = _in_place(step)
    elif node.op is ops.LINALG and lowering.native_linalg:
        node, scalars = linalg.generalize_sizes(node)
    return Launch(node, step.operands, scalars, step.locs, step.writes, may_alias)


def _in_place(step: KernelStep) -> tuple[AliasPair, ...]:
    """Return (result, operand) if a step of a Fourier transform may overwrite its operand."""
    x, _, out = step.operands
    return _whole_pairs((x, out)) if max(step.kernel.arg.twiddles, step.kernel.arg.roots) < 0 \
        else ()


def _whole_pairs(operands: Sequence[LaunchOperand]) -> tuple[AliasPair, ...]:
    """Return (result, operand), if both are whole buffers."""
    x, out = operands
    return ((out, x),) if isinstance(x, UOp) and isinstance(out, UOp) else ()
