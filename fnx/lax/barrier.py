"""``optimization_barrier``: constrain the order of computations."""

from __future__ import annotations

from typing import TypeVar

from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array
from fnx.core.ir import build

__all__ = ["optimization_barrier"]

T = TypeVar("T")


@public_api
def optimization_barrier(operand: T, /) -> T:
    """Return the same values, none of them available before all of them are.

    Computations on the result are not merged (CSE) with equal computations on the operand, and run
    later.

    Args:
        operand: a pytree of arrays.

    Returns:
        A pytree like ``operand``.

    >>> import fnx.lax as lax
    >>> lax.optimization_barrier((1.0, 2.0))
    (Array(1., dtype=float32, weak_type=True), Array(2., dtype=float32, weak_type=True))
    """
    leaves, structure = tree.flatten(operand)
    arrays = [asarray(x) for x in leaves]
    nodes = [x._node for x in arrays]
    out: T = structure.unflatten([
        Array(build.barrier(x._node, *nodes[:i], *nodes[i + 1:]), x.weak)
        for i, x in enumerate(arrays)])
    return out
