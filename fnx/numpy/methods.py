"""Which functions of ``fnx.numpy`` are methods of Array: they take the array first."""

from __future__ import annotations

from typing import Any

from fnx.core.array.array import Array, set_methods
from fnx.numpy import contraction, elementwise, movement, reductions


def reshape(x: Array, *shape: Any, order: str = "C") -> Array:
    """``x.reshape(2, 3)`` or ``x.reshape((2, 3))``."""
    return movement.reshape(x, shape[0] if len(shape) == 1 else shape, order)


def transpose(x: Array, *axes: Any) -> Array:
    """``x.transpose()``, ``x.transpose(1, 0)`` or ``x.transpose((1, 0))``."""
    given = axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes
    return movement.transpose(x, given or None)


def flatten(x: Array, order: str = "C") -> Array:
    """All elements on one axis."""
    return movement.ravel(x, order)


set_methods({
    **{f.__name__: f for f in (
        contraction.dot, elementwise.clip, elementwise.round, flatten, movement.diagonal,
        movement.ravel, movement.repeat, movement.squeeze, movement.swapaxes, movement.take,
        reductions.all, reductions.any, reductions.argmax, reductions.argmin,
        reductions.cumprod, reductions.cumsum, reductions.max, reductions.mean, reductions.min,
        reductions.prod, reductions.ptp, reductions.std, reductions.sum, reductions.trace,
        reductions.var, reshape, transpose)},
    "matmul": contraction.matmul,
})
