"""Array manipulation: dimensions, flips, joining, splitting, inserting and deleting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from fnx.core.array import arguments, axes
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import record_results
from fnx.core.array.axes import AxisLike, ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import as_node
from fnx.core.ir import build
from fnx.core.support.errors import ArgumentError, AxisError, OutOfBoundsError, ShapeError
from fnx.numpy.base import (
    arange,
    concatenate,
    equal,
    flip,
    moveaxis,
    ravel,
    reshape,
    round,
    split,
    swapaxes,
    where,
)
from fnx.numpy.histograms import searchsorted
from fnx.numpy.sorting import sort

__all__ = [
    "append", "around", "array_equiv", "atleast_1d", "atleast_2d", "atleast_3d", "block", "copy",
    "delete", "diagflat", "dsplit", "dstack", "fill_diagonal", "fliplr", "flipud", "hsplit",
    "insert", "matrix_transpose", "resize", "rollaxis", "rot90", "trim_zeros", "unstack", "vsplit",
]

Sections = int | Sequence[int]

_docstr = DocTemplate(
    a="an Array or array-like of any shape and dtype.",
    m="an Array or array-like of at least two axes.", x="an Array or array-like.",
    ary="the Array or array-like to split.", arr="an Array or array-like of any shape and dtype.",
    arys="Arrays or array-likes.",
    indices_or_sections="the number of equal parts, or the indices to split at.",
    returns="An Array of the same dtype.", axis="the axis.", values="the values to insert.",
    obj="an index, indices, a slice or a mask; static under tracing.",
    inplace="must be False: arrays are immutable, and the result is a new one.",
    raises=("AxisError: the axis is out of range.", "ShapeError: the array has too few axes."))


def _as_at_least_2d(x: Array) -> Array:
    return x if x.ndim > 1 else x.reshape(1, -1) if x.ndim else x.reshape(1, 1)


@_docstr.family("An Array, or a list of Arrays for several inputs.", ())
def _at_least(lift: Callable[[Array], Array], *arys: ArrayLike) -> Array | list[Array]:
    arrays = [lift(asarray(x)) for x in arys]
    return arrays[0] if len(arrays) == 1 else arrays


atleast_1d = _at_least(
    lambda x: x if x.ndim else x.reshape(1), "atleast_1d",
    "Convert each input to an array with at least one axis.", "jnp.atleast_1d(1.0).shape", "(1,)")
atleast_2d = _at_least(
    _as_at_least_2d, "atleast_2d",
    "Convert each input to an array with at least two axes; missing axes are prepended.",
    "jnp.atleast_2d(jnp.ones(3)).shape", "(1, 3)")
atleast_3d = _at_least(
    lambda x: x if x.ndim > 2 else _as_at_least_2d(x)[..., None], "atleast_3d",
    "Convert each input to an array with at least three axes.\n\n"
    "    A vector of length n becomes (1, n, 1); a matrix gets a new last axis.",
    "jnp.atleast_3d(jnp.ones(3)).shape", "(1, 3, 1)")


@_docstr(raises=("AxisError: the axis is out of range.", "ShapeError: the shapes differ."),
         axis="the axis; None flattens both first.")
def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """Append ``values`` to the end of an array.

    >>> jnp.append(jnp.asarray([1, 2]), 3)
    Array([1, 2, 3], dtype=int32)
    """
    if axis is None:
        return concatenate([ravel(arr), ravel(values)])
    return concatenate([asarray(arr), asarray(values)], axis)


@_docstr("A 0-d bool Array.", a1="an Array or array-like of any shape.",
         a2="an Array or array-like of any shape.", raises=())
def array_equiv(a1: ArrayLike, a2: ArrayLike) -> Array:
    """Return whether two arrays are equal after broadcasting; False if they do not broadcast.

    >>> print(jnp.array_equiv(jnp.ones(2), 1.0))
    True
    """
    x, y = asarray(a1), asarray(a2)
    try:
        axes.broadcast_shapes(x.shape, y.shape)
    except ShapeError:
        return asarray(False)
    return equal(x, y).all()


@_docstr(decimals="the number of decimal places.", raises=("ArgumentError: ``out`` is given.",))
def around(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """Round to the nearest multiple of 10**-decimals: see ``round``.

    >>> print(jnp.around(2.5))
    2.0
    """
    return round(a, decimals)


@_docstr(order='None, "C", "A" or "K"; memory is always row-major.', raises=())
def copy(a: ArrayLike, order: Literal["C", "K", "A"] | None = None) -> Array:
    """Return a copy of an array, in memory of its own.

    >>> jnp.copy(jnp.ones(2))
    Array([1., 1.], dtype=float32)
    """
    arguments.check_choice("order", order, ("C", "K", "A", None))
    x = asarray(a)
    return x.copy() if x._storage is not None else x


# ---- flips and rotations ------------------------------------------------------------------------


def _require_rank(name: str, a: ArrayLike, min_rank: int) -> Array:
    x = asarray(a)
    if x.ndim < min_rank:
        raise ShapeError(f"{name}: expected at least {min_rank} axes, got shape {x.shape}",
                         hint="add axes with x[None]")
    return x


@_docstr.family()
def _flip_along(axis: int, m: ArrayLike) -> Array:
    return flip(_require_rank("fliplr" if axis else "flipud", m, axis + 1), axis)


fliplr = _flip_along(1, "fliplr", "Reverse the order of the columns (axis 1).",
                     "jnp.fliplr(jnp.asarray([[1, 2]]))", "Array([[2, 1]], dtype=int32)")
flipud = _flip_along(0, "flipud", "Reverse the order of the rows (axis 0).",
                     "jnp.flipud(jnp.asarray([1, 2]))", "Array([2, 1], dtype=int32)")


@_docstr(k="the number of quarter turns.",
         axes="the plane of rotation, from the first axis towards the second.")
def rot90(m: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """Rotate an array by 90 degrees, k times, in the plane of two axes.

    >>> jnp.rot90(jnp.asarray([[1, 2]]))
    Array([[2],
           [1]], dtype=int32)
    """
    x = asarray(m)
    first, second = _rotation_plane(axes, x.ndim)
    turns = arguments.check_int("k", k) % 4
    if turns == 2:
        return flip(flip(x, first), second)
    if turns == 1:
        return swapaxes(flip(x, second), first, second)
    return flip(swapaxes(x, first, second), second) if turns else x


def _rotation_plane(axes_arg: Any, ndim: int) -> tuple[int, int]:
    pair = axes.normalize_axis_tuple(axes_arg, ndim)
    if len(pair) != 2:
        raise AxisError(f"expected two axes, got {axes_arg!r}")
    return pair[0], pair[1]


@_docstr(start="the position in front of which the axis is moved.")
def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Array:
    """Move an axis in front of the axis at position ``start``.

    >>> jnp.rollaxis(jnp.zeros((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    x = asarray(a)
    ax = axes.normalize_axis(axis, x.ndim)
    position = arguments.check_int("start", start)
    target = axes.normalize_axis(position, x.ndim + (position >= 0))
    return moveaxis(x, ax, target - (ax < target))


@_docstr()
def matrix_transpose(x: ArrayLike, /) -> Array:
    """Swap the last two axes.

    >>> jnp.matrix_transpose(jnp.zeros((4, 2, 3))).shape
    (4, 3, 2)
    """
    return swapaxes(_require_rank("matrix_transpose", x, 2), -1, -2)


# ---- joining and splitting ----------------------------------------------------------------------


@_docstr.family("A list of Arrays.")
def _split_along(name: str, ary: ArrayLike, indices_or_sections: Sections) -> list[Array]:
    x = _require_rank(name, ary, 3 if name == "dsplit" else 1)
    axis = {"vsplit": 0, "hsplit": min(1, x.ndim - 1), "dsplit": 2}[name]
    return split(x, indices_or_sections, axis)


vsplit = _split_along("vsplit", "vsplit", "Split an array along the first axis.",
                      "[x.shape for x in jnp.vsplit(jnp.zeros((4, 2)), 2)]", "[(2, 2), (2, 2)]")
hsplit = _split_along(
    "hsplit", "hsplit",
    "Split an array along the second axis, or a vector along its only one.",
    "[x.shape for x in jnp.hsplit(jnp.zeros((4, 2)), 2)]", "[(4, 1), (4, 1)]")
dsplit = _split_along("dsplit", "dsplit", "Split an array along the third axis.",
                      "[x.shape for x in jnp.dsplit(jnp.zeros((1, 1, 4)), [1])]",
                      "[(1, 1, 1), (1, 1, 3)]")


@_docstr("A tuple of Arrays without the axis.")
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Split an array into its slices along an axis.

    >>> jnp.unstack(jnp.asarray([[1, 2], [3, 4]]))
    (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))
    """
    array = _require_rank("unstack", x, 1)
    leading = moveaxis(array, axes.normalize_axis(axis, array.ndim), 0)
    out = tuple([leading[i] for i in range(leading.shape[0])])
    record_results(out, "unstack", unstack, array._node,
                   axis=axes.normalize_axis(axis, array.ndim))
    return out


@_docstr(tup="Arrays whose shapes agree except along the third axis.",
         dtype="the dtype of the result.", raises=("ShapeError: the shapes differ.",))
def dstack(tup: Any, dtype: DTypeLike | None = None) -> Array:
    """Stack arrays along the third axis.

    >>> jnp.dstack([jnp.ones(2), jnp.zeros(2)]).shape
    (1, 2, 2)
    """
    parts = [atleast_3d(x) for x in tup]
    return concatenate(parts, 2, dtype)


@_docstr(arrays="nested lists of Arrays; the innermost are concatenated along the last axis.",
         raises=("ShapeError: the shapes do not match.",
                 "ArgumentError: the lists differ in depth, or one is empty."))
def block(arrays: Any) -> Array:
    """Assemble an array from nested lists of blocks.

    >>> jnp.block([[jnp.ones((1, 1)), jnp.zeros((1, 2))]])
    Array([[1., 0., 0.]], dtype=float32)
    """
    depth = _nesting_depth(arrays)
    rank = max(depth, *[asarray(x).ndim for x in _leaves(arrays)], 0)
    return _concat_nested(arrays, depth, rank)


def _leaves(arrays: Any) -> list[Any]:
    return [x for part in arrays for x in _leaves(part)] if isinstance(arrays, list) else [arrays]


def _nesting_depth(arrays: Any) -> int:
    if isinstance(arrays, tuple):
        raise ArgumentError("expected nested lists of arrays, got a tuple", hint="use a list")
    if not isinstance(arrays, list):
        return 0
    inner = {_nesting_depth(x) for x in arrays}
    if len(inner) != 1:
        raise ArgumentError(f"expected non-empty lists of equal depth, got depths {sorted(inner)}")
    return 1 + inner.pop()


def _concat_nested(arrays: Any, depth: int, rank: int) -> Array:
    if not isinstance(arrays, list):
        x = asarray(arrays)
        return x.reshape((1,) * (rank - x.ndim) + x.shape)
    return concatenate([_concat_nested(x, depth - 1, rank) for x in arrays], -depth)


@_docstr(new_shape="the new shape: an int or ints.",
         raises=("ArgumentError: a length is negative.",))
def resize(a: ArrayLike, new_shape: ShapeLike) -> Array:
    """Return an array of another shape, whose elements repeat those of ``a`` in row-major order.

    >>> jnp.resize(jnp.asarray([1, 2]), (3,))
    Array([1, 2, 1], dtype=int32)
    """
    shape, x = axes.normalize_shape(new_shape), ravel(a)
    n = math.prod(shape)
    if not x.size:
        return Array(build.const(0, x._dtype, shape))
    rows = Array(build.expand(build.reshape(x._node, (1, x.size)), (-(-n // x.size), x.size)),
                 x.weak)
    return rows.reshape(-1)[:n].reshape(shape)


# ---- inserting and deleting ---------------------------------------------------------------------


def _resolve_index(obj: Any, n: int) -> np.ndarray[Any, Any]:
    """Return the non-negative positions along an axis of length n that an index selects."""
    if isinstance(obj, slice):
        return np.arange(*obj.indices(n))
    index = np.asarray(obj)
    if index.dtype == bool:
        if index.shape != (n,):
            raise ShapeError(f"expected a mask of length {n}, got shape {index.shape}")
        return np.flatnonzero(index)
    index = index.astype(np.int64) if not index.size else index
    if index.dtype.kind not in "iu":
        raise ArgumentError(f"expected integer indices, got {obj!r}")
    lowest, highest = (int(index.min()), int(index.max())) if index.size else (0, -1)
    if lowest < -n or highest > n:
        raise OutOfBoundsError(f"expected indices from {-n} to {n}, got {lowest} to {highest}")
    return np.where(index < 0, index + n, index)


def _flatten_or_axis(a: ArrayLike, axis: int | None) -> tuple[Array, int]:
    x = asarray(a)
    return (ravel(x), 0) if axis is None else (x, axes.normalize_axis(axis, x.ndim))


@_docstr(axis="the axis; None flattens the array first.",
         assume_unique_indices="a promise that the indices are distinct, which lets them be "
                               "traced.",
         raises=("AxisError: the axis is out of range.",
                 "OutOfBoundsError: an index is out of bounds."))
def delete(arr: ArrayLike, obj: Any, axis: int | None = None, *,
           assume_unique_indices: bool = False) -> Array:
    """Remove positions along an axis.

    >>> jnp.delete(jnp.asarray([1, 2, 3]), 1)
    Array([1, 3], dtype=int32)
    """
    x, ax = _flatten_or_axis(arr, axis)
    if assume_unique_indices and type(obj) is Array and obj._dtype.is_integer:
        return _delete_distinct(x, ax, ravel(obj))
    if type(obj) is Array:
        obj = arguments.values_of(obj, "pass assume_unique_indices=True if no index occurs twice")
    deleted = _resolve_index(obj, x.shape[ax])
    if deleted.size and int(deleted.max()) == x.shape[ax]:
        raise OutOfBoundsError(f"expected indices below {x.shape[ax]}, got {int(deleted.max())}")
    remaining = np.setdiff1d(np.arange(x.shape[ax]), deleted).astype(np.int32)
    return x[(slice(None),) * ax + (remaining,)]


def _delete_distinct(x: Array, ax: int, deleted: Array) -> Array:
    """Delete distinct positions along an axis.

    Each remaining element shifts by the number of deleted positions before it.
    """
    n = x.shape[ax]
    deleted = where(deleted < 0, deleted + n, deleted)
    index = arange(max(n - deleted.size, 0), dtype=deleted.dtype)
    shift = sort(deleted) - arange(deleted.size, dtype=deleted.dtype)
    index += searchsorted(shift, index, "right").astype(index.dtype)
    return x[(slice(None),) * ax + (index,)]


@_docstr(axis="the axis; None flattens the array first.",
         raises=("AxisError: the axis is out of range.",
                 "OutOfBoundsError: an index is out of bounds."))
def insert(arr: ArrayLike, obj: Any, values: ArrayLike, axis: int | None = None) -> Array:
    """Insert values along an axis, before the given positions.

    >>> jnp.insert(jnp.asarray([1, 3]), 1, 2)
    Array([1, 2, 3], dtype=int32)
    """
    x, ax = _flatten_or_axis(arr, axis)
    n, new = x.shape[ax], asarray(values)
    positions = _resolve_index(obj, n)
    single = positions.ndim == 0
    positions = positions.reshape(-1)
    if single and new.ndim:
        new = moveaxis(new, 0, ax) if axis is not None and new.ndim == x.ndim else new
    count = new.shape[ax] if single and new.ndim == x.ndim and new.ndim else len(positions)
    positions = np.repeat(positions, count) if single else positions
    shape = (*x.shape[:ax], len(positions), *x.shape[ax + 1:])
    inserted = build.expand(as_node(new, x._dtype), axes.broadcast_shapes(new.shape, shape))
    order = np.argsort(np.concatenate([np.arange(n) + 0.5, positions]), kind="stable")
    joined = concatenate([x, Array(inserted, x.weak)], ax)
    return joined[(slice(None),) * ax + (order.astype(np.int32),)]


@_docstr(v="an Array or array-like, which is flattened.",
         k="the diagonal: 0 is the main one, positive above it.", raises=())
def diagflat(v: ArrayLike, k: int = 0) -> Array:
    """Create a matrix with the flattened input on a diagonal.

    >>> jnp.diagflat(jnp.asarray([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    """
    x, k = ravel(v), arguments.check_int("k", k)
    n = x.size + abs(k)
    positions = np.arange(x.size, dtype=np.int32)
    zero = Array(build.const(0, x._dtype, (n, n)))
    return zero.at[positions + max(-k, 0), positions + max(k, 0)].set(x)


@_docstr(val="a scalar, or values that are repeated along the diagonal.",
         wrap="whether the diagonal restarts after each square block of a tall matrix.",
         raises=("ArgumentError: ``inplace`` is not False.",
                 "ShapeError: the array has too few axes."))
def fill_diagonal(a: ArrayLike, val: ArrayLike, wrap: bool = False, *, inplace: bool = True
                  ) -> Array:
    """Return a copy of an array with other values on its main diagonal.

    >>> jnp.fill_diagonal(jnp.zeros((2, 2)), 1.0, inplace=False)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    require_not_inplace("fill_diagonal", inplace)
    x, values = _require_rank("fill_diagonal", a, 2), ravel(val)
    if x.ndim > 2 and len(set(x.shape)) > 1:
        raise ShapeError(f"expected axes of equal length for rank > 2, got {x.shape}")
    if x.ndim == 2 and wrap:
        flat_index = np.arange(0, x.size, x.shape[1] + 1)
    else:
        step = sum([math.prod(x.shape[i + 1:]) for i in range(x.ndim)])
        length = min(x.shape) if x.size else 0
        flat_index = np.arange(length) * step
    diagonal = values[np.arange(len(flat_index), dtype=np.int32) % max(values.size, 1)]
    return reshape(ravel(x).at[flat_index.astype(np.int32)].set(diagonal), x.shape)


def require_not_inplace(name: str, inplace: bool) -> None:
    """Raise on ``inplace=True``, NumPy's default."""
    arguments.check_bool("inplace", inplace)
    if inplace:
        raise ArgumentError(f"{name}: expected inplace=False, as arrays are immutable",
                            hint=f"x = {name}(x, ..., inplace=False)")


@_docstr(filt="an Array or array-like whose values are known.",
         trim='which zeros to trim: "f" (front), "b" (back) or "fb" (both).',
         axis="the axis or axes; None means all.", raises="TracedValueError: the array is traced.")
def trim_zeros(filt: ArrayLike, trim: Literal["f", "b", "fb"] = "fb", axis: AxisLike = None
               ) -> Array:
    """Trim leading or trailing zeros, or both; all nonzero elements stay.

    >>> jnp.trim_zeros(jnp.asarray([0, 1, 0]))
    Array([1], dtype=int32)
    """
    arguments.check_choice("trim", trim, ("f", "b", "fb", "bf"))
    x = asarray(filt)
    trimmed = axes.sorted_axes(axis, x.ndim)
    slices = []
    for i, nonzero in enumerate(np.nonzero(np.asarray(x)) if x.ndim else ()):
        if i not in trimmed:
            slices.append(slice(None))
        elif nonzero.size:
            slices.append(slice(int(nonzero.min()) if "f" in trim else 0,
                                int(nonzero.max()) + 1 if "b" in trim else None))
        else:
            slices.append(slice(0, 0))
    return x[tuple(slices)]
