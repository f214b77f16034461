"""FFT in both modes: it is linear, and its transpose is the transform with the conjugate factor.

    y = FFT(x)      dx = FFT(dy, inverse)      of pairs (real, imaginary), as real numbers
"""

from __future__ import annotations

from fnx.core.ir import build, build_calls, ops
from fnx.core.ir.uop import UOp
from fnx.transforms.autodiff.rules import Linear, Masks, Tangents


def _transpose(node: UOp, i: int, ct: UOp) -> UOp:
    arg = node.arg
    if ct.dtype.is_bool:
        return _reached(node, ct)
    return build_calls.fft(ct, node.src[1], arg.axis, not arg.inverse, arg.scale)


def _reached(node: UOp, mask: UOp) -> UOp:
    """Each element of a transform reads all others along the axis, and both parts."""
    axes = (node.arg.axis, len(mask.shape) - 1)
    shape = tuple([1 if a in axes else n for a, n in enumerate(mask.shape)])
    any_mask = build.reduce(mask, ops.OR, axes)
    return build.expand(build.reshape(any_mask, shape), mask.shape)


class FftRule(Linear):
    """FFT: linear in the array, not in the table."""

    def __init__(self) -> None:
        super().__init__(_transpose)

    def jvp_mask(self, node: UOp, tangents: Tangents, masks: Masks) -> UOp | None:
        return None if masks[0] is None else _reached(node, masks[0])
