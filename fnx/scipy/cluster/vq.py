"""Vector quantization, as in ``jax.scipy.cluster.vq``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import fnx.numpy as jnp
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.float32_compute import compute_in_float32
from fnx.core.array.promotion import promote_arrays
from fnx.core.support.errors import ShapeError, lazy_module

__all__ = ["vq"]


@compute_in_float32
def vq(obs: ArrayLike, code_book: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """Return the nearest code of each observation, and its Euclidean distance.

    Args:
        obs: observations, one in each row; a vector has observations of length 1.
        code_book: codes, one in each row.
        check_finite: accepted as JAX's; values are not checked.

    Returns:
        (indices of rows of ``code_book``, distances); of equally near codes the first.

    Raises:
        ShapeError: the arguments have not the same number of axes (1 or 2), rows have not the
            same length, or there is no code.

    >>> import fnx.numpy as jnp
    >>> codes, distances = vq(jnp.asarray([1.0, 4.5]), jnp.asarray([0.0, 1.0, 4.0]))
    >>> print(codes, distances)
    [1 2] [0.  0.5]
    """
    x, codes = promote_arrays("vq", obs, code_book)
    if x.ndim != codes.ndim or x.ndim not in (1, 2):
        raise ShapeError("expected observations and codes as two vectors or as two matrices, got "
                         f"shapes {x.shape} and {codes.shape}",
                         hint="each row is an observation or a code")
    if x.ndim == 1:
        x, codes = x[:, None], codes[:, None]
    if x.shape[1] != codes.shape[1] or not codes.shape[0]:
        raise ShapeError("expected at least one code, of the length of the observations, got "
                         f"shapes {x.shape} and {codes.shape}")
    distances = jnp.linalg.norm(x[:, None, :] - codes[None], axis=-1)
    index = jnp.argmin(distances, axis=-1)
    return index, jnp.take_along_axis(distances, index[:, None], axis=-1, mode="clip")[:, 0]


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
