"""Contractions of ``jax.lax``: dot, dot_general and batch_matmul."""

from __future__ import annotations

from typing import Any

import fnx.numpy as jnp
from fnx.core.array import axes, convert
from fnx.core.array.api_boundary import public_api
from fnx.core.array.arguments import PrecisionLike
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import promote_operands
from fnx.core.ir import build
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.numpy.contraction import contract

__all__ = ["batch_matmul", "dot", "dot_general"]


@public_api
def dot(lhs: ArrayLike, rhs: ArrayLike, *, dimension_numbers: Any = None,
        precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None) -> Array:
    """Multiply vectors and matrices.

    Args:
        lhs: a vector or a matrix.
        rhs: a vector or a matrix.
        dimension_numbers: as for ``dot_general``, for operands of any rank.
        precision: one of JAX's names, or a pair of them; all mean full precision here.
        preferred_element_type: a dtype to convert the operands to before the multiplication.

    Returns:
        An Array of the common dtype.

    Raises:
        ShapeError: the contracted axes differ in length.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> print(lax.dot(jnp.ones(3), jnp.ones(3)))
    3.0
    """
    if dimension_numbers is not None:
        return dot_general(lhs, rhs, dimension_numbers, precision, preferred_element_type)
    return jnp.dot(lhs, rhs, precision=precision, preferred_element_type=preferred_element_type)


@public_api
def dot_general(lhs: ArrayLike, rhs: ArrayLike, dimension_numbers: Any,
                precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None
               ) -> Array:
    """Contract pairs of axes, for each index of the batch axes.

    Args:
        lhs: an Array or array-like of any shape and dtype.
        rhs: an Array or array-like of any shape and dtype.
        dimension_numbers: ((contracted axes of lhs, of rhs), (batch axes of lhs, of rhs)).
        precision: one of JAX's names, or a pair of them; all mean full precision here.
        preferred_element_type: a dtype to convert the operands to before the multiplication.

    Returns:
        An Array with the batch axes, then the other axes of lhs, then those of rhs; of the common
        dtype.

    Raises:
        ArgumentError: dimension_numbers of another form, or with an unpaired axis.
        AxisError: an axis is out of range or repeated.
        ShapeError: paired axes that differ in length.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> x = jnp.ones((2, 3, 4))
    >>> lax.dot_general(x, x, (((2,), (2,)), ((0,), (0,)))).shape
    (2, 3, 3)
    """
    (x, y), _ = promote_operands("any", "dot_general", (lhs, rhs), broadcast=False)
    if preferred_element_type is not None:
        t = convert.product_dtype("dot_general", x.dtype, preferred_element_type)
        x, y = build.cast(x, t), build.cast(y, t)
    batch, contracted = _paired_axes(dimension_numbers, len(x.shape), len(y.shape))
    pairs = [*batch, *contracted]
    for i, j in pairs:
        if x.shape[i] != y.shape[j]:
            raise ShapeError(f"dot_general: expected equal lengths of axis {i} of {x.shape} and "
                             f"axis {j} of {y.shape}",
                             hint="check dimension_numbers, or transpose one operand")
    lhs_labels = {i: ("shared", n) for n, (i, _) in enumerate(pairs)}
    rhs_labels = {j: ("shared", n) for n, (_, j) in enumerate(pairs)}
    la = tuple(lhs_labels.get(i, ("left", i)) for i in range(len(x.shape)))
    lb = tuple(rhs_labels.get(j, ("right", j)) for j in range(len(y.shape)))
    shared = tuple(("shared", n) for n in range(len(batch)))
    out = (*shared, *[z for z in la if z[0] == "left"], *[z for z in lb if z[0] == "right"])
    return Array(contract(x, la, y, lb, out))


def _paired_axes(numbers: Any, rank_l: int, rank_r: int
                 ) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Split ``dimension_numbers`` into the pairs of batch axes and of contracted axes."""
    try:
        (contract_l, contract_r), (batch_l, batch_r) = numbers
    except (TypeError, ValueError):
        raise ArgumentError("dot_general: expected dimension_numbers ((lhs_contracting, "
                            f"rhs_contracting), (lhs_batch, rhs_batch)), got {numbers!r}",
                            hint="a matrix product is (((1,), (0,)), ((), ()))") from None
    left = axes.normalize_axis_tuple([*batch_l, *contract_l], rank_l)
    right = axes.normalize_axis_tuple([*batch_r, *contract_r], rank_r)
    n = len(batch_l)
    if n != len(batch_r) or len(left) != len(right):
        raise ArgumentError("dot_general: expected the same number of axes of lhs and rhs, got "
                            f"{numbers!r}",
                            hint="pair each axis of lhs with one of rhs")
    pairs = list(zip(left, right))
    return pairs[:n], pairs[n:]


@public_api
def batch_matmul(lhs: ArrayLike, rhs: ArrayLike, precision: PrecisionLike = None) -> Array:
    """Multiply matrices in the last two axes, for each index of the others.

    Args:
        lhs: of shape (..., m, k).
        rhs: of shape (..., k, n).
        precision: one of JAX's names, or a pair of them; all mean full precision here.

    Returns:
        An Array of shape (..., m, n), of the common dtype.

    Raises:
        ShapeError: the contracted axes differ in length.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.batch_matmul(jnp.ones((2, 3, 4)), jnp.ones((2, 4, 5))).shape
    (2, 3, 5)
    """
    return jnp.matmul(lhs, rhs, precision=precision)
