"""Products of matrices with groups of rows: ``lax.ragged_dot`` and its general form."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

import fnx.numpy as jnp
from fnx.core.array import arguments
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.arguments import PrecisionLike
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.promotion import promote_arrays
from fnx.core.support.errors import ArgumentError, DTypeError, NotBuiltError, ShapeError

__all__ = ["RaggedDotDimensionNumbers", "ragged_dot", "ragged_dot_general"]


class RaggedDotDimensionNumbers:
    """The roles of the axes of ``ragged_dot_general``.

    Args:
        dot_dimension_numbers: ((contracted axes of lhs, of rhs), (batch axes of lhs, of rhs)).
        lhs_ragged_dimensions: the axis of lhs that is divided into groups.
        rhs_group_dimensions: the axis of rhs with an entry for each group, or none.

    >>> import fnx.lax as lax
    >>> lax.RaggedDotDimensionNumbers((([1], [1]), ([], [])), [0], [0]).rhs_group_dimensions
    (0,)
    """

    def __init__(self, dot_dimension_numbers: Any, lhs_ragged_dimensions: Sequence[int],
                 rhs_group_dimensions: Sequence[int]) -> None:
        (a, b), (c, d) = dot_dimension_numbers
        self.dot_dimension_numbers = ((tuple(a), tuple(b)), (tuple(c), tuple(d)))
        self.lhs_ragged_dimensions = tuple(lhs_ragged_dimensions)
        self.rhs_group_dimensions = tuple(rhs_group_dimensions)

    def _key(self) -> Any:
        return (self.dot_dimension_numbers, self.lhs_ragged_dimensions, self.rhs_group_dimensions)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RaggedDotDimensionNumbers) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"RaggedDotDimensionNumbers{self._key()}"


def _check(lhs: ArrayLike, rhs: ArrayLike, group_sizes: ArrayLike, group_offset: Any,
           out_sharding: Any) -> tuple[Array, Array, Array]:
    arguments.check_choice("out_sharding", out_sharding, (None,))
    if group_offset is not None:
        raise NotBuiltError("group_offset is not implemented", hint="shift group_sizes")
    x, y = promote_arrays("ragged_dot", asarray(lhs), asarray(rhs), domain="any")
    sizes = asarray(group_sizes)
    if not sizes._dtype.is_integer:
        raise DTypeError(f"expected group_sizes as integers, got {sizes.dtype}")
    if not sizes.ndim:
        raise ShapeError("expected group_sizes as a vector, got a number")
    return x, y, sizes


@public_api
def ragged_dot(lhs: ArrayLike, rhs: ArrayLike, group_sizes: ArrayLike,
               precision: PrecisionLike = None, preferred_element_type: DTypeLike | None = None,
               group_offset: ArrayLike | None = None, out_sharding: Any = None) -> Array:
    """Multiply groups of rows of a matrix, each by the matrix of its group.

    Args:
        lhs: of shape (m, k).
        rhs: of shape (g, k, n): a matrix for each group.
        group_sizes: g integers: the numbers of rows of the groups, in order.
        precision: one of JAX's names; all mean full precision.
        preferred_element_type: the dtype of the result.
        group_offset: must be None.
        out_sharding: None: there is one device.

    Returns:
        An Array of shape (m, n); rows after the last group are 0.

    Raises:
        ShapeError: the shapes do not fit.
        DTypeError: ``group_sizes`` are not integers.
        NotBuiltError: there is a ``group_offset``.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> x, y = jnp.ones((3, 1)), jnp.asarray([[[1.0]], [[5.0]]])
    >>> print(lax.ragged_dot(x, y, jnp.asarray([1, 2]))[:, 0])
    [1. 5. 5.]
    """
    x, y, sizes = _check(lhs, rhs, group_sizes, group_offset, out_sharding)
    if x.ndim != 2 or y.ndim != 3 or sizes.shape != y.shape[:1] or x.shape[1] != y.shape[1]:
        raise ShapeError(f"expected shapes (m, k), (g, k, n) and (g,), got {x.shape}, {y.shape} "
                         f"and {sizes.shape}")
    kind = x.dtype if preferred_element_type is None else preferred_element_type
    group = jnp.searchsorted(jnp.cumsum(sizes), jnp.arange(x.shape[0]), side="right")
    in_group = (group < sizes.size)[:, None]
    matrices = y.at[group].get(mode="clip")
    rows = jnp.einsum("mk,mkn->mn", x, matrices, preferred_element_type=kind)
    return jnp.where(in_group, rows, 0)


@public_api
def ragged_dot_general(lhs: ArrayLike, rhs: ArrayLike, group_sizes: ArrayLike,
                       ragged_dot_dimension_numbers: RaggedDotDimensionNumbers,
                       precision: PrecisionLike = None,
                       preferred_element_type: DTypeLike | None = None,
                       group_offset: ArrayLike | None = None, out_sharding: Any = None) -> Array:
    """Contract axes of two arrays, in groups along one axis of the first.

    Args:
        lhs: an array.
        rhs: an array.
        group_sizes: the lengths of the groups; or these for each index of the axes of lhs before
            the ragged one, in the order batch, free or contracted.
        ragged_dot_dimension_numbers: the roles of the axes.
        precision: one of JAX's names; all mean full precision.
        preferred_element_type: the dtype of the result.
        group_offset: must be None.
        out_sharding: None: there is one device.

    Returns:
        An Array with the batch axes, the free axes of lhs and of rhs; if the ragged axis is
        contracted, with an axis of groups in front.

    Raises:
        ArgumentError: not one ragged axis, or not one group axis where it is free.
        ShapeError: the shapes do not fit.
        DTypeError: ``group_sizes`` are not integers.
        NotBuiltError: there is a ``group_offset``.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> roles = lax.RaggedDotDimensionNumbers((([0], [0]), ([], [])), [0], [])
    >>> x = jnp.asarray([[1.0], [2.0], [3.0]])
    >>> print(lax.ragged_dot_general(x, x, jnp.asarray([1, 2]), roles)[:, 0, 0])
    [ 1. 13.]
    """
    x, y, sizes = _check(lhs, rhs, group_sizes, group_offset, out_sharding)
    roles = ragged_dot_dimension_numbers
    if not isinstance(roles, RaggedDotDimensionNumbers):
        raise ArgumentError("expected a RaggedDotDimensionNumbers, got "
                            f"{type(ragged_dot_dimension_numbers).__name__}")
    (a, b), (c, d) = roles.dot_dimension_numbers
    if len(roles.lhs_ragged_dimensions) != 1:
        raise ArgumentError(f"expected one ragged axis, got {roles.lhs_ragged_dimensions}")
    ragged, = roles.lhs_ragged_dimensions
    is_free = ragged not in (*a, *c)
    if len(roles.rhs_group_dimensions) != is_free:
        raise ArgumentError(f"expected {int(is_free)} group axes of rhs, got "
                            f"{roles.rhs_group_dimensions}",
                            hint="there is one if the ragged axis is neither contracted nor batch")
    letters = iter(string.ascii_letters)
    left, right = [""] * x.ndim, [""] * y.ndim
    for i, j in (*zip(a, b, strict=True), *zip(c, d, strict=True)):
        left[i] = right[j] = next(letters)
    group = next(letters)
    for j in roles.rhs_group_dimensions:
        right[j] = group
    left = [label or next(letters) for label in left]
    right = [label or next(letters) for label in right]
    free = [label for i, label in enumerate(left) if i not in (*a, *c)]
    rest = [label for label in right if label not in left and label != group]
    out = [left[i] for i in c] + free + rest
    kind = x.dtype if preferred_element_type is None else preferred_element_type
    if ragged in c:  # each index of a batch axis is on its own anyway
        return jnp.einsum(f"{''.join(left)},{''.join(right)}->{''.join(out)}", x, y,
                          preferred_element_type=kind)
    before = [*c, *[i for i in (a if ragged in a else range(x.ndim)) if i < ragged
                    and i not in c and (ragged in a or i not in a)]]
    prefix = "".join([left[i] for i in before])
    if sizes.ndim == 1:
        prefix = ""
    elif sizes.shape[:-1] != tuple([x.shape[i] for i in before]):
        raise ShapeError(f"expected group_sizes of one axis, or of shape "
                         f"{tuple([x.shape[i] for i in before])} and the groups, got "
                         f"{sizes.shape}")
    ends = jnp.cumsum(sizes, -1)[..., None]
    at = jnp.arange(x.shape[ragged])
    mask = ((at >= ends - sizes[..., None]) & (at < ends)).astype(x.dtype)
    terms = f"{''.join(left)},{prefix}{group}{left[ragged]},{''.join(right)}"
    result = ([] if is_free else [group]) + out
    return jnp.einsum(f"{terms}->{''.join(result)}", x, mask, y, preferred_element_type=kind)
