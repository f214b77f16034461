"""Which functions of ``fnx.numpy`` are methods of Array: they take the array first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from fnx.core.array.array import Array, public, set_methods
from fnx.numpy import contraction, elementwise, movement, rearranging, reductions, searching, taking


def _one_or_listed(given: tuple[Any, ...]) -> Any:
    """``f(2, 3)`` and ``f((2, 3))`` mean the same."""
    return given[0] if len(given) == 1 and isinstance(given[0], Sequence) else given


@public
def reshape(x: Array, *shape: Any, order: Literal["C"] = "C") -> Array:
    """The elements in row-major order under another shape.

    Args:
        shape: ints, or one tuple of ints; one length may be -1.
        order: "C".

    Returns:
        An Array of the dtype of x.

    Raises:
        ShapeError: another number of elements.

    >>> import fnx.numpy as jnp
    >>> jnp.arange(4).reshape(2, -1).shape
    (2, 2)
    """
    return movement.reshape(x, shape[0] if len(shape) == 1 else shape, order)


@public
def transpose(x: Array, *axes: Any) -> Array:
    """Axes in another order; by default reversed.

    Args:
        axes: ints, or one tuple of ints: which axis of x each axis of the result is.

    Returns:
        An Array of the dtype of x.

    Raises:
        AxisError: not every axis once.

    >>> import fnx.numpy as jnp
    >>> jnp.zeros((2, 3, 4)).transpose(2, 0, 1).shape
    (4, 2, 3)
    """
    return movement.transpose(x, _one_or_listed(axes) or None)


@public
def flatten(x: Array, order: Literal["C"] = "C") -> Array:
    """All elements on one axis, in row-major order.

    Args:
        order: "C".

    Returns:
        An Array of one axis and the dtype of x.

    >>> import fnx.numpy as jnp
    >>> jnp.ones((2, 1)).flatten()
    Array([1., 1.], dtype=float32)
    """
    return movement.ravel(x, order)


set_methods({f.__name__: f for f in (
    contraction.dot, contraction.matmul, elementwise.clip, elementwise.round, flatten,
    movement.ravel, movement.squeeze, movement.swapaxes, rearranging.diagonal,
    rearranging.repeat, reductions.all, reductions.any, reductions.max, reductions.mean,
    reductions.min, reductions.prod, reductions.ptp, reductions.std, reductions.sum,
    reductions.trace, reductions.var, reshape, searching.argmax, searching.argmin,
    searching.cumprod, searching.cumsum, taking.take, transpose)})
