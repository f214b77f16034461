"""Movement, reductions and contractions under the names of ``jax.lax``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import fnx.numpy as jnp
from fnx.core import build, ops
from fnx.core.array import array as core
from fnx.core.array import axes, convert, operate, promotion
from fnx.core.array.array import Array, public
from fnx.core.array.promotion import as_node, promoted
from fnx.core.errors import ArgumentError, ShapeError
from fnx.core.ops import Op
from fnx.numpy.contraction import contract
from fnx.numpy.reductions import fold


@public
def broadcast_in_dim(operand: Any, shape: Any, broadcast_dimensions: Sequence[int]) -> Array:
    """Axis i of the operand becomes axis ``broadcast_dimensions[i]`` of the shape.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.broadcast_in_dim(jnp.arange(2), (2, 2), (0,))
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    x = core.asarray(operand)
    size = axes.shape("broadcast_in_dim", shape)
    places = axes.listed("broadcast_in_dim", broadcast_dimensions, len(size))
    if len(places) != x.ndim or list(places) != sorted(places):
        raise ArgumentError(f"broadcast_in_dim: expected {x.ndim} increasing axes, got {places}")
    line = [1] * len(size)
    for n, at in zip(x.shape, places):
        line[at] = n
    return Array(build.expand(build.reshape(x._node, tuple(line)), size), x.weak)


@public
def broadcast(operand: Any, sizes: Any) -> Array:
    """New leading axes of these lengths.

    >>> import fnx.lax as lax
    >>> lax.broadcast(1.0, (2,)).shape
    (2,)
    """
    x = core.asarray(operand)
    return jnp.broadcast_to(x, axes.shape("broadcast", sizes) + x.shape)


@public
def reshape(operand: Any, new_sizes: Any, dimensions: Sequence[int] | None = None) -> Array:
    """The elements (of the axes in order ``dimensions``) under another shape.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.reshape(jnp.arange(4), (2, 2)).shape
    (2, 2)
    """
    x = operand if dimensions is None else jnp.transpose(operand, dimensions)
    return jnp.reshape(x, new_sizes)


@public
def transpose(operand: Any, permutation: Sequence[int]) -> Array:
    """Axes in another order.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.transpose(jnp.zeros((2, 3)), (1, 0)).shape
    (3, 2)
    """
    return jnp.transpose(operand, tuple(permutation))


@public
def rev(operand: Any, dimensions: Sequence[int]) -> Array:
    """The order reversed along axes.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.rev(jnp.arange(3), (0,))
    Array([2, 1, 0], dtype=int32)
    """
    return jnp.flip(operand, tuple(dimensions))


@public
def squeeze(array: Any, dimensions: Sequence[int]) -> Array:
    """Without these axes, which have length 1.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.squeeze(jnp.zeros((1, 2)), (0,)).shape
    (2,)
    """
    return jnp.squeeze(array, tuple(dimensions))


@public
def expand_dims(array: Any, dimensions: Sequence[int]) -> Array:
    """New axes of length 1.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.expand_dims(jnp.zeros(2), (0,)).shape
    (1, 2)
    """
    return jnp.expand_dims(array, tuple(dimensions))


@public
def concatenate(operands: Sequence[Any], dimension: int) -> Array:
    """Arrays one after the other along an axis.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.concatenate([jnp.zeros(1), jnp.ones(1)], 0)
    Array([0., 1.], dtype=float32)
    """
    return jnp.concatenate(operands, dimension)


@public
def pad(operand: Any, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]
        ) -> Array:
    """Elements added before, after and between those of each axis; negative numbers cut.

    Args:
        padding_config: (before, after, between) for each axis.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.pad(jnp.arange(1, 3), 0, [(1, 0, 1)])
    Array([0, 1, 0, 2], dtype=int32)
    """
    x = core.asarray(operand)
    fill = as_node(promotion.operand(padding_value), x._dtype)
    node = x._node
    if len(padding_config) != x.ndim or any(k < 0 for _, _, k in padding_config):
        raise ArgumentError(f"pad: expected {x.ndim} triples (before, after, between >= 0), got "
                            f"{list(padding_config)}")
    for at, (_, _, between) in enumerate(padding_config):
        n = node.shape[at]
        if between and n > 1:
            lead, rest = node.shape[:at], node.shape[at + 1:]
            widths = [(0, 0)] * (at + 1) + [(0, between)] + [(0, 0)] * len(rest)
            node = build.pad(build.reshape(node, (*lead, n, 1, *rest)), widths, fill)
            node = build.reshape(node, (*lead, n * (between + 1), *rest))
            bounds = [(0, m) for m in node.shape]
            bounds[at] = (0, n + (n - 1) * between)
            node = build.shrink(node, bounds)
    node = build.pad(node, [(max(0, lo), max(0, hi)) for lo, hi, _ in padding_config], fill)
    cuts = []
    for n, (lo, hi, _) in zip(node.shape, padding_config):
        low, high = max(0, -lo), n - max(0, -hi)
        if low > high:
            raise ShapeError(f"pad: expected a result of length >= 0, got {high - low}")
        cuts.append((low, high))
    return Array(build.shrink(node, cuts), x.weak)


@public
def iota(dtype: Any, size: int) -> Array:
    """0, 1, ... size - 1.

    >>> import fnx.lax as lax
    >>> lax.iota("float32", 2)
    Array([0., 1.], dtype=float32)
    """
    return jnp.arange(size, dtype=dtype)


@public
def broadcasted_iota(dtype: Any, shape: Any, dimension: int) -> Array:
    """The index along one axis, at each place of a shape.

    >>> import fnx.lax as lax
    >>> lax.broadcasted_iota("int32", (2, 2), 0)
    Array([[0, 0],
           [1, 1]], dtype=int32)
    """
    size = axes.shape("broadcasted_iota", shape)
    at = axes.one("broadcasted_iota", dimension, len(size))
    return broadcast_in_dim(jnp.arange(size[at], dtype=dtype), size, (at,))


@public
def full(shape: Any, fill_value: Any, dtype: Any = None) -> Array:
    """An array of one value.

    >>> import fnx.lax as lax
    >>> lax.full((1,), 2.0, "float32")
    Array([2.], dtype=float32)
    """
    return jnp.full(shape, fill_value, dtype)


@public
def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Array:
    """One value in the shape and dtype of x.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.full_like(jnp.zeros(1), 2)
    Array([2.], dtype=float32)
    """
    return jnp.full_like(x, fill_value, dtype, shape)


# ---- reductions -------------------------------------------------------------------------------


def _reduction(name: str, monoid: Op, text: str, operand: str, result: str) -> Any:
    @public
    def f(operand: Any, axes: Sequence[int]) -> Array:
        x = core.asarray(operand)
        return Array(fold(name, x._node, monoid, tuple(axes), False))
    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"""{text}

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.{name}(jnp.asarray({operand}), (0,))
    {result}
    """
    return f


reduce_sum = _reduction("reduce_sum", ops.ADD, "The sum over axes, in the dtype of the operand.",
                        "[1, 2, 4]", "Array(7, dtype=int32)")
reduce_prod = _reduction("reduce_prod", ops.MUL, "The product over axes.",
                         "[1, 2, 4]", "Array(8, dtype=int32)")
reduce_max = _reduction("reduce_max", ops.MAX, "The largest over axes; NaN wins.",
                        "[1, 2, 4]", "Array(4, dtype=int32)")
reduce_min = _reduction("reduce_min", ops.MIN, "The smallest over axes; NaN wins.",
                        "[1, 2, 4]", "Array(1, dtype=int32)")
reduce_and = _reduction("reduce_and", ops.AND, "All bits that all have, over axes.",
                        "[3, 6]", "Array(2, dtype=int32)")
reduce_or = _reduction("reduce_or", ops.OR, "All bits that any has, over axes.",
                       "[3, 6]", "Array(7, dtype=int32)")
reduce_xor = _reduction("reduce_xor", ops.XOR, "Exclusive or over axes.",
                        "[3, 6]", "Array(5, dtype=int32)")


@public
def argmax(operand: Any, axis: int, index_dtype: Any = int) -> Array:
    """The first index of the largest element along an axis.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> print(lax.argmax(jnp.arange(3), 0, int))
    2
    """
    return operate.astype(jnp.argmax(operand, axis), index_dtype)


@public
def argmin(operand: Any, axis: int, index_dtype: Any = int) -> Array:
    """The first index of the smallest element along an axis.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> print(lax.argmin(jnp.arange(3), 0, int))
    0
    """
    return operate.astype(jnp.argmin(operand, axis), index_dtype)


@public
def cumsum(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """Running sums along an axis, from its end if ``reverse``.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.cumsum(jnp.arange(3), reverse=True)
    Array([3, 3, 2], dtype=int32)
    """
    if reverse:
        return jnp.flip(jnp.cumsum(jnp.flip(operand, axis), axis), axis)
    return jnp.cumsum(operand, axis)


@public
def cumprod(operand: Any, axis: int = 0, reverse: bool = False) -> Array:
    """Running products along an axis, from its end if ``reverse``.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.cumprod(jnp.arange(1, 4))
    Array([1, 2, 6], dtype=int32)
    """
    if reverse:
        return jnp.flip(jnp.cumprod(jnp.flip(operand, axis), axis), axis)
    return jnp.cumprod(operand, axis)


# ---- contractions -----------------------------------------------------------------------------


@public
def dot(lhs: Any, rhs: Any, precision: Any = None, preferred_element_type: Any = None) -> Array:
    """Product of vectors and matrices.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> print(lax.dot(jnp.ones(3), jnp.ones(3)))
    3.0
    """
    return jnp.dot(lhs, rhs, preferred_element_type=preferred_element_type)


@public
def dot_general(lhs: Any, rhs: Any, dimension_numbers: Any, precision: Any = None,
                preferred_element_type: Any = None) -> Array:
    """Sum of products over pairs of axes, for each index of the batch axes.

    Args:
        dimension_numbers: ((folded of lhs, folded of rhs), (batch of lhs, batch of rhs)).

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> x = jnp.ones((2, 3, 4))
    >>> lax.dot_general(x, x, (((2,), (2,)), ((0,), (0,)))).shape
    (2, 3, 3)
    """
    (fold_l, fold_r), (batch_l, batch_r) = dimension_numbers
    (x, y), _ = promoted("any", "dot_general", (lhs, rhs), broadcast=False)
    if preferred_element_type is not None:
        t = convert.dtype_argument(preferred_element_type)
        x, y = build.cast(x, t), build.cast(y, t)
    pairs = [*zip(batch_l, batch_r), *zip(fold_l, fold_r)]
    for i, j in pairs:
        if x.shape[i] != y.shape[j]:
            raise ShapeError(f"dot_general: expected axis {i} of {x.shape} as long as axis {j} "
                             f"of {y.shape}")
    of_l = {i: ("shared", n) for n, (i, _) in enumerate(pairs)}
    of_r = {j: ("shared", n) for n, (_, j) in enumerate(pairs)}
    la = tuple(of_l.get(i, ("left", i)) for i in range(len(x.shape)))
    lb = tuple(of_r.get(j, ("right", j)) for j in range(len(y.shape)))
    batch = tuple(("shared", n) for n in range(len(batch_l)))
    out = (*batch, *[z for z in la if z[0] == "left"], *[z for z in lb if z[0] == "right"])
    return Array(contract(x, la, y, lb, out))


@public
def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Array:
    """Matrix product of the last two axes, for each index of the others.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> lax.batch_matmul(jnp.ones((2, 3, 4)), jnp.ones((2, 4, 5))).shape
    (2, 3, 5)
    """
    return jnp.matmul(lhs, rhs)

