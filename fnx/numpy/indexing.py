"""Index arrays: positions of nonzero elements, grids of indices, flat indices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from fnx.core.array import arguments, axes, convert
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.ir import build, dtypes
from fnx.core.support.errors import (
    ArgumentError,
    OutOfBoundsError,
    ShapeError,
    TracedValueError,
)
from fnx.numpy.base import (
    clip,
    equal,
    ravel,
    remainder,
    stack,
    where,
)
from fnx.transforms.vmap import vmap

__all__ = [
    "argwhere", "compress", "diag_indices", "diag_indices_from", "extract", "flatnonzero",
    "fromfunction", "indices", "ix_", "mask_indices", "nonzero", "ravel_multi_index",
    "tril_indices", "tril_indices_from", "triu_indices", "triu_indices_from", "unravel_index",
]

_docstr = DocTemplate(
    a="an Array or array-like of any shape and dtype.",
    arr="an Array or array-like of any shape and dtype.", n="the number of rows.",
    m="the number of columns; by default n.",
    k="the diagonal: 0 is the main one, positive above, negative below.",
    size="the number of elements of the result, required under tracing; missing elements are "
         "``fill_value``.", fill_value="the padding for missing elements; by default 0.",
    axis="the axis.", condition="an Array or array-like; nonzero values are true.",
    inplace="must be False: arrays are immutable.",
    returns="A tuple of Arrays of the default int dtype, one per axis.",
    raises=("TracedValueError: the length of the result depends on traced values; give "
            "``size``.",))


# ---- nonzero elements ---------------------------------------------------------------------------


def resolve_size(size: int | None, mask: Array) -> int:
    """Return ``size``, or count the true elements of a concrete mask."""
    if size is not None:
        return arguments.check_int("size", size)
    try:
        return int(np.count_nonzero(arguments.values_of(
            mask, "pass size=, the largest number of elements, to which the result is padded; or "
            "keep all: fnx.numpy.where(mask, x, y)")))
    except TracedValueError as error:
        error.is_derived = True  # the user passed no mask
        raise


def true_indices(mask: Array, size: int | None, fill: ArrayLike = 0) -> Array:
    """Return the positions of True in a flat mask.

    Each position is written at the index given by the count of True before it.
    """
    n = resolve_size(size, mask)
    positions = Array(build.iota(mask.size))
    slot = where(mask, mask.astype("int32").cumsum() - 1, n)
    out = Array(build.const(0, dtypes.int32, (n,))) + asarray(fill).astype("int32")
    return out.at[slot].set(positions, mode="drop")


def _nonzero(a: ArrayLike, size: int | None, fill_value: Any) -> tuple[Array, ...]:
    x = asarray(a)
    if not x.ndim:
        raise ShapeError("expected at least one axis, got a scalar", hint="use x.reshape(1)")
    fill_values = fill_value if isinstance(fill_value, tuple) else (fill_value,) * x.ndim
    if len(fill_values) != x.ndim:
        raise ArgumentError(f"expected 1 or {x.ndim} fill values, got {len(fill_values)}")
    mask = ravel(x).astype("bool") if not x._dtype.is_bool else ravel(x)
    flat_index = true_indices(mask, size, mask.size)
    index = unravel_index(clip(flat_index, 0, max(mask.size - 1, 0)), x.shape)
    missing, np_int = equal(flat_index, mask.size), convert.default_int().np
    return tuple([where(missing, asarray(0 if f is None else f).astype("int32"), i).astype(np_int)
                  for i, f in zip(index, fill_values)])


@_docstr()
def nonzero(a: ArrayLike, *, size: int | None = None, fill_value: Any = None
            ) -> tuple[Array, ...]:
    """Return the indices of the nonzero elements, in row-major order.

    >>> jnp.nonzero(jnp.asarray([0, 5, 7]))
    (Array([1, 2], dtype=int32),)
    >>> jnp.nonzero(jnp.asarray([0, 5, 7]), size=3, fill_value=-1)
    (Array([ 1,  2, -1], dtype=int32),)
    """
    return _nonzero(a, size, fill_value)


@_docstr("A vector of int32.")
def flatnonzero(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Array:
    """Return the row-major flat indices of the nonzero elements.

    >>> jnp.flatnonzero(jnp.asarray([[0, 5], [7, 0]]))
    Array([1, 2], dtype=int32)
    """
    return _nonzero(ravel(a), size, fill_value)[0]


@_docstr("An int32 Array with one row per element and one column per axis.")
def argwhere(a: ArrayLike, *, size: int | None = None, fill_value: Any = None) -> Array:
    """Return the indices of the nonzero elements, one element per row.

    >>> jnp.argwhere(jnp.asarray([[0, 5], [7, 0]]))
    Array([[0, 1],
           [1, 0]], dtype=int32)
    """
    x = asarray(a)
    if not x.ndim:
        n = resolve_size(size, x.reshape(1))
        return Array(build.const(0, convert.default_int(), (n, 0)))
    return stack(_nonzero(x, size, fill_value), -1)


@_docstr("A vector of the dtype of arr.")
def extract(condition: ArrayLike, arr: ArrayLike, *, size: int | None = None,
            fill_value: ArrayLike = 0) -> Array:
    """Return the elements where a condition holds, in row-major order.

    >>> jnp.extract(jnp.asarray([True, False, True]), jnp.asarray([1, 2, 3]))
    Array([1, 3], dtype=int32)
    """
    return compress(ravel(condition), ravel(arr), size=size, fill_value=fill_value)


@_docstr("An Array with the selected slices along the axis.",
         axis="the axis; None flattens the array first.",
         raises=("TracedValueError: the condition is traced and there is no ``size``.",
                 "ShapeError: the condition has more than one axis."))
def compress(condition: ArrayLike, a: ArrayLike, axis: int | None = None, *,
             size: int | None = None, fill_value: ArrayLike = 0, out: None = None) -> Array:
    """Select the slices along an axis where a condition holds.

    >>> jnp.compress(jnp.asarray([False, True]), jnp.asarray([[1, 2], [3, 4]]), axis=0)
    Array([[3, 4]], dtype=int32)
    """
    x, mask = asarray(a), asarray(condition).astype("bool")
    if mask.ndim != 1:
        raise ShapeError(f"expected a 1-d condition, got shape {mask.shape}")
    if axis is None:
        x, axis = ravel(x), 0
    ax = axes.normalize_axis(axis, x.ndim)
    n = min(mask.shape[0], x.shape[ax])
    positions = true_indices(mask[:n], size, x.shape[ax])
    fill = asarray(fill_value).astype(x.dtype)
    return x.at[(slice(None),) * ax + (positions,)].get(mode="fill", fill_value=fill)


# ---- grids of indices ---------------------------------------------------------------------------


def _index_array(data: Any) -> Array:
    return asarray(np.asarray(data, convert.default_int().np))


@_docstr(n="the length of each axis.", ndim="the number of axes, 0 to 64.",
         raises=("ArgumentError: ``ndim`` is out of range.",))
def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """Return the indices of the main diagonal of a square array.

    >>> jnp.diag_indices(2)
    (Array([0, 1], dtype=int32), Array([0, 1], dtype=int32))
    """
    diagonal = _index_array(np.arange(arguments.check_int("n", n)))
    count = arguments.check_int("ndim", ndim)
    if not 0 <= count <= axes.MAX_AXES:
        raise ArgumentError(f"expected ndim from 0 to {axes.MAX_AXES}, got {count}")
    return (diagonal,) * count


@_docstr(arr="an Array of at least two axes of equal length.",
         raises=("ShapeError: the axes differ in length, or there is only one.",))
def diag_indices_from(arr: ArrayLike) -> tuple[Array, ...]:
    """Return the indices of the main diagonal of an array.

    >>> jnp.diag_indices_from(jnp.zeros((1, 1)))
    (Array([0], dtype=int32), Array([0], dtype=int32))
    """
    x = asarray(arr)
    if x.ndim < 2 or len(set(x.shape)) != 1:
        raise ShapeError(f"expected at least two axes of equal length, got shape {x.shape}")
    return diag_indices(x.shape[0], x.ndim)


@_docstr.family("(rows, columns), int32 Arrays.", ())
def _triangle_indices(f: Callable[..., Any], n: int, k: int = 0, m: int | None = None
                      ) -> tuple[Array, Array]:
    rows, columns = axes.normalize_shape((n, n if m is None else m))
    i, j = np.nonzero(f(np.ones((rows, columns), bool), arguments.check_int("k", k)))
    return _index_array(i), _index_array(j)


tril_indices = _triangle_indices(
    np.tril, "tril_indices",
    "Return the indices of the lower triangle of a matrix: on and below the k-th diagonal.",
    "jnp.tril_indices(2)", "(Array([0, 1, 1], dtype=int32), Array([0, 0, 1], dtype=int32))")
triu_indices = _triangle_indices(
    np.triu, "triu_indices",
    "Return the indices of the upper triangle of a matrix: on and above the k-th diagonal.",
    "jnp.triu_indices(2)", "(Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))")


@_docstr.family("(rows, columns), int32 Arrays.", ("ShapeError: arr is not a matrix.",),
                arr="a matrix.")
def _triangle_indices_from(f: Callable[..., tuple[Array, Array]], arr: ArrayLike, k: int = 0
                           ) -> tuple[Array, Array]:
    x = asarray(arr)
    if x.ndim != 2:
        raise ShapeError(f"expected a matrix, got shape {x.shape}")
    return f(x.shape[0], k, x.shape[1])


tril_indices_from = _triangle_indices_from(
    tril_indices, "tril_indices_from",
    "Return the indices of the lower triangle of the given matrix.",
    "jnp.tril_indices_from(jnp.zeros((1, 2)))",
    "(Array([0], dtype=int32), Array([0], dtype=int32))")
triu_indices_from = _triangle_indices_from(
    triu_indices, "triu_indices_from",
    "Return the indices of the upper triangle of the given matrix.",
    "jnp.triu_indices_from(jnp.zeros((2, 1)))",
    "(Array([0], dtype=int32), Array([0], dtype=int32))")


@_docstr(mask_func="a function of a matrix and k that keeps some elements, such as ``jnp.triu``.",
         k="passed on to ``mask_func``.")
def mask_indices(n: int, mask_func: Callable[[Any, Any], Any], k: int = 0, *,
                 size: int | None = None) -> tuple[Array, ...]:
    """Return the indices of the elements of an n by n matrix that a mask function keeps.

    >>> jnp.mask_indices(2, jnp.triu, 1)
    (Array([0], dtype=int32), Array([1], dtype=int32))
    """
    full = Array(build.const(1, dtypes.int32, axes.normalize_shape((n, n))))
    return nonzero(mask_func(full, k), size=size)


@_docstr("The index arrays of all axes, stacked along a new first axis; a tuple if ``sparse``.",
         dimensions="the shape of the grid.", dtype="the dtype of the indices; by default int32.",
         sparse="whether to return one Array per axis, which broadcast.",
         raises=("ArgumentError: a length is negative.",))
def indices(dimensions: Sequence[int], dtype: DTypeLike | None = None, sparse: bool = False
            ) -> Array | tuple[Array, ...]:
    """Return the index arrays of a grid.

    >>> jnp.indices((1, 2))
    Array([[[0, 0]],
    <BLANKLINE>
           [[0, 1]]], dtype=int32)
    """
    shape = axes.normalize_shape(tuple(dimensions))
    index_dtype = convert.default_int() if dtype is None else dtypes.as_dtype(dtype)
    lines = []
    for i, n in enumerate(shape):
        line = build.reshape(build.cast(build.iota(n), index_dtype),
                             tuple([n if j == i else 1 for j in range(len(shape))]))
        lines.append(Array(line if sparse else build.expand(line, shape)))
    if sparse:
        return tuple(lines)
    return stack(lines) if lines else Array(build.const(0, index_dtype, (0,)))


@_docstr("A tuple of int32 Arrays that broadcast.", args="vectors of indices or masks.",
         raises=("ShapeError: an input has more than one axis.",))
def ix_(*args: ArrayLike) -> tuple[Array, ...]:
    """Return index arrays that form an open mesh: ``x[...]`` takes every combination.

    >>> [i.shape for i in jnp.ix_(jnp.arange(2), jnp.arange(3))]
    [(2, 1), (1, 3)]
    """
    out = []
    for i, arg in enumerate(args):
        x = asarray(arg)
        if x.ndim != 1:
            raise ShapeError(f"expected 1-d index arrays, got shape {x.shape}")
        if x._dtype.is_bool:
            x = nonzero(x)[0]
        if not x.size:
            x = x.astype("int32")
        out.append(x.reshape([-1 if j == i else 1 for j in range(len(args))]))
    return tuple(out)


@_docstr("What the function returns.",
         function="a function of one index per axis, and of ``kwargs``.",
         shape="the shape of the grid.", dtype="the dtype of the indices.",
         kwargs="passed on to the function.", raises=())
def fromfunction(function: Callable[..., Any], shape: ShapeLike, *, dtype: DTypeLike = float,
                 **kwargs: Any) -> Any:
    """Evaluate a function at every index of a grid. It is traced once and mapped with vmap.

    >>> jnp.fromfunction(lambda i, j: i + 10 * j, (2, 2), dtype=int)
    Array([[ 0, 10],
           [ 1, 11]], dtype=int32)
    """
    grid = axes.normalize_shape(shape)
    index_dtype = dtypes.as_dtype(dtype)
    def call(*index: Any) -> Any:
        return function(*index, **kwargs)
    for i in range(len(grid)):
        in_axes = tuple([0 if j == len(grid) - 1 - i else None for j in range(len(grid))])
        call = vmap(call, in_axes=in_axes)
    return call(*[Array(build.cast(build.iota(n), index_dtype)) for n in grid])


@_docstr(indices="row-major flat indices; negative ones count from the end.",
         shape="the shape of the array.", raises=("ArgumentError: a length is negative.",))
def unravel_index(indices: ArrayLike, shape: ShapeLike) -> tuple[Array, ...]:
    """Convert flat indices to one index per axis. Indices out of bounds are clipped.

    >>> jnp.unravel_index(5, (2, 3))
    (Array(1, dtype=int32, weak_type=True), Array(2, dtype=int32, weak_type=True))
    """
    lengths, x = axes.normalize_shape(shape), asarray(indices)
    n = math.prod(lengths)
    x = clip(where(x < 0, x + n, x), 0, max(n - 1, 0))
    out: list[Array] = []
    for length in reversed(lengths):
        out.append(remainder(x, max(length, 1)))
        x = x // max(length, 1)
    return tuple(reversed(out))


@_docstr("An integer Array.", multi_index="one index array per axis.",
         dims="the shape of the array.",
         mode='what out-of-bounds indices do: "raise" (values must be known), "wrap" or "clip"; '
              "or one per axis.", order='must be "C".', dtype="the dtype of the result.",
         raises=('OutOfBoundsError: mode is "raise" and an index is out of bounds.',
                 "ArgumentError: the number of index arrays differs from that of axes."))
def ravel_multi_index(multi_index: Sequence[ArrayLike], dims: Sequence[int],
                      mode: str | tuple[str, ...] = "raise", order: Literal["C"] = "C", *,
                      dtype: DTypeLike | None = None) -> Array:
    """Convert one index per axis to row-major flat indices.

    >>> print(jnp.ravel_multi_index((1, 2), (2, 3)))
    5
    """
    arguments.check_row_major(order)
    shape = axes.normalize_shape(tuple(dims))
    modes = mode if isinstance(mode, tuple) else (mode,) * len(shape)
    if len(multi_index) != len(shape) or len(modes) != len(shape):
        raise ArgumentError(f"expected {len(shape)} indices and modes, got {len(multi_index)} and "
                            f"{len(modes)}")
    total: Any = 0
    for axis_index, n, rule in zip(multi_index, shape, modes):
        arguments.check_choice("mode", rule, ("raise", "wrap", "clip"))
        i = asarray(axis_index)
        if rule == "raise":
            data = np.asarray(i)
            if data.size and (data.min() < 0 or data.max() >= n):
                raise OutOfBoundsError(f"expected indices from 0 to {n - 1}, got "
                                       f"{data.min()} to {data.max()}", hint='use mode="clip"')
        i = clip(i, 0, n - 1) if rule == "clip" else remainder(i, n) if rule == "wrap" else i
        total = total * n + i
    flat_index = asarray(total)
    return flat_index if dtype is None else flat_index.astype(dtype)
