"""FFT in both modes: it is linear, and its transpose is the transform with the conjugate factor.

    y = FFT(x)      dx = FFT(dy, inverse)      of pairs (real, imaginary), as real numbers

Of a real transform the inverse counts each element but the first and the last one twice, as it
stands for its conjugate, too; so dy is halved there, and of an inverse transform dx is doubled.
"""

from __future__ import annotations

from fnx.core.ir import build, build_calls, ops
from fnx.core.ir.op import Shape
from fnx.core.ir.uop import UOp
from fnx.transforms.autodiff.rules import Linear, Masks, Tangents


def _transpose(node: UOp, i: int, ct: UOp) -> UOp:
    arg = node.arg
    if ct.dtype.is_bool:
        return _reached(node, ct, node.src[0].shape)
    weighted = _weigh_inner(ct, arg.axis, 0.5) if arg.real and not arg.inverse else ct
    dx = build_calls.fft(weighted, node.src[1], arg.axis, not arg.inverse, arg.scale, arg.real)
    return _weigh_inner(dx, arg.axis, 2.0) if arg.real and arg.inverse else dx


def _weigh_inner(x: UOp, axis: int, factor: float) -> UOp:
    """Multiply all elements along an axis but the first and the last one."""
    shape = tuple([n - 2 if a == axis else n for a, n in enumerate(x.shape)])
    ends = [(1, 1) if a == axis else (0, 0) for a in range(len(x.shape))]
    one = build.const(1, x.dtype)
    return build.mul(x, build.pad(build.const(factor, x.dtype, shape), ends, one))


def _reached(node: UOp, mask: UOp, to: Shape) -> UOp:
    """Each element of a transform reads all others along the axis, and both parts."""
    axes = (node.arg.axis, len(mask.shape) - 1)
    shape = tuple([1 if a in axes else n for a, n in enumerate(mask.shape)])
    any_mask = build.reduce(mask, ops.OR, axes)
    return build.expand(build.reshape(any_mask, shape), to)


class FftRule(Linear):
    """FFT: linear in the array, not in the table."""

    def __init__(self) -> None:
        super().__init__(_transpose)

    def jvp_mask(self, node: UOp, tangents: Tangents, masks: Masks) -> UOp | None:
        return None if masks[0] is None else _reached(node, masks[0], node.shape)
