"""Flatten a pytree to one vector and back, as in ``jax.flatten_util``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import fnx.numpy as jnp
from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray, public_api, strong_cast
from fnx.core.array.array import Array
from fnx.core.support.errors import DTypeError, ShapeError, lazy_module

__all__ = ["ravel_pytree"]


@public_api
def ravel_pytree(pytree: Any) -> tuple[Array, Callable[[Any], Any]]:
    """Concatenate all leaves to a vector; also return the inverse function.

    Args:
        pytree: a pytree of arrays and numbers.

    Returns:
        (vector of the dtype that all leaves promote to, function from such a vector to the pytree).

    Raises:
        ShapeError: the function is called with a vector of another length.
        DTypeError: it is called with another dtype, though the leaves have several.

    >>> import fnx.numpy as jnp
    >>> flat, back = ravel_pytree({"a": jnp.ones(2), "b": 3.0})
    >>> flat, back(flat)["b"]
    (Array([1., 1., 3.], dtype=float32), Array(3., dtype=float32))
    """
    leaves, structure = tree.flatten(pytree)
    arrays = [asarray(x) for x in leaves]
    kinds = [(x._shape, x._dtype) for x in arrays]
    ends = list(itertools.accumulate([math.prod(s) for s, _ in kinds]))
    flat = jnp.concatenate([jnp.ravel(x) for x in arrays]) if arrays else jnp.zeros(0)
    total = ends[-1] if ends else 0

    @public_api
    def unravel(vector: Any) -> Any:
        x = asarray(vector)
        if x.shape != (total,):
            raise ShapeError(f"expected a vector of length {total}, got shape {x.shape}")
        if x._dtype is not flat._dtype and any(t is not flat._dtype for _, t in kinds):
            raise DTypeError(f"unravel: expected an array of {flat.dtype}, to which the leaves "
                             f"were promoted, got {x.dtype}",
                             hint=f"convert it with .astype({str(flat.dtype)!r})")
        parts = [strong_cast(x[end - math.prod(s):end].reshape(s), t) for (s, t), end in
                 zip(kinds, ends)]
        return structure.unflatten(parts)
    return flat, unravel


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
