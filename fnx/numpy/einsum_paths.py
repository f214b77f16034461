"""The order in which the operands of an ``einsum`` are contracted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.support.errors import ArgumentError
from fnx.numpy.einsum_subscripts import to_subscripts

__all__ = ["einsum_path"]


def next_pair(path: list[tuple[int, ...]], count: int) -> tuple[int, int]:
    """Consume the next step of a path and return the indices of its two terms.

    The caller appends the contracted term at the end of the list.
    """
    while path and len(path[0]) < 2:
        path.pop(0)  # a step with a single term contracts nothing
    step = path.pop(0) if path else (0, 1)
    i, j, *others = sorted([i + count if i < 0 else i for i in step])
    if not 0 <= i < j < count or others and others[-1] >= count:
        raise ArgumentError(f"expected places of {count} terms in a path, got {step}",
                            hint="use what einsum_path gives")
    if others:
        path.insert(0, tuple([k - 2 for k in others] + [count - 2]))
    return i, j


@public_api
def einsum_path(subscripts: Any, /, *operands: Any,
                optimize: bool | str | Sequence[Sequence[int]] = "auto"
                ) -> tuple[list[tuple[int, ...]], str]:
    """Return the order in which NumPy would contract the operands of an ``einsum``.

    Args:
        subscripts: as ``"ij,jk->ik"``; or the first Array, as ``einsum`` takes it.
        operands: one Array for each input term; only their shapes matter.
        optimize: "auto", "optimal", "greedy", True, False, or a path.

    Returns:
        A list of steps, for ``einsum(..., optimize=path)``, and a printable report. Each step
        names the positions of the terms it contracts.

    Raises:
        ArgumentError: the subscripts are malformed or do not match the operands.

    >>> import fnx.numpy as jnp
    >>> jnp.einsum_path("ij,jk,k->i", jnp.ones((9, 9)), jnp.ones((9, 9)), jnp.ones(9))[0]
    [(1, 2), (0, 1)]
    """
    if not isinstance(subscripts, str):
        subscripts, operands = to_subscripts([subscripts, *operands])
    shapes = [asarray(x).shape for x in operands]
    np_optimize: Any = optimize
    if isinstance(optimize, list | tuple):
        np_optimize = ["einsum_path", *optimize]
    elif optimize == "auto":
        np_optimize = "optimal" if len(shapes) <= 4 else "greedy"
    else:
        arguments.check_choice("optimize", optimize, (True, False, "optimal", "greedy"))
    data = [np.broadcast_to(np.float32(0), shape) for shape in shapes]
    try:
        (_, *path), text = np.einsum_path(subscripts, *data, optimize=np_optimize)
    except (ValueError, KeyError) as error:
        raise ArgumentError(f"expected subscripts of {len(shapes)} operands, got {subscripts!r}: "
                            f"{error}") from None
    return [tuple(step) for step in path], text
