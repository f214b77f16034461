"""Array manipulation: dimensions, flips, joining, splitting, inserting and deleting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from fnx.core import build
from fnx.core.array import arguments, axes
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.axes import AxisLike, ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.documented import Family
from fnx.core.array.promotion import as_node
from fnx.core.array.public import asarray
from fnx.core.errors import ArgumentError, AxisError, OutOfBoundsError, ShapeError
from fnx.numpy.basic import (
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
from fnx.numpy.sorting import sort

__all__ = [
    "append", "around", "array_equiv", "atleast_1d", "atleast_2d", "atleast_3d", "block", "copy",
    "delete", "diagflat", "dsplit", "dstack", "fill_diagonal", "fliplr", "flipud", "hsplit",
    "insert", "matrix_transpose", "resize", "rollaxis", "rot90", "trim_zeros", "unstack",
    "vsplit",
]

Sections = int | Sequence[int]

_family = Family(
    a="an Array or array-like of any shape and dtype.",
    m="an Array or array-like of at least two axes.", x="an Array or array-like.",
    ary="the Array or array-like to split.", arr="an Array or array-like of any shape and dtype.",
    arys="Arrays or array-likes.",
    indices_or_sections="the number of equal parts, or the indices to split at.",
    returns="An Array of the same dtype.", axis="the axis.", values="the values to insert.",
    obj="an index, indices, a slice or a mask; static under tracing.",
    inplace="must be False: arrays are immutable, and the result is a new one.",
    raises=("AxisError: the axis is out of range.", "ShapeError: the array has too few axes."))


def _at_least(arys: tuple[ArrayLike, ...], wide: Callable[[Array], Array]) -> Array | list[Array]:
    made = [wide(asarray(x)) for x in arys]
    return made[0] if len(made) == 1 else made


@_family("An Array, or a list of Arrays for several inputs.", raises=())
def atleast_1d(*arys: ArrayLike) -> Array | list[Array]:
    """Convert each input to an array with at least one axis.

    >>> jnp.atleast_1d(1.0).shape
    (1,)
    """
    return _at_least(arys, lambda x: x if x.ndim else x.reshape(1))


@_family("An Array, or a list of Arrays for several inputs.", raises=())
def atleast_2d(*arys: ArrayLike) -> Array | list[Array]:
    """Convert each input to an array with at least two axes; missing axes are prepended.

    >>> jnp.atleast_2d(jnp.ones(3)).shape
    (1, 3)
    """
    return _at_least(arys, _rows)


def _rows(x: Array) -> Array:
    return x if x.ndim > 1 else x.reshape(1, -1) if x.ndim else x.reshape(1, 1)


@_family("An Array, or a list of Arrays for several inputs.", raises=())
def atleast_3d(*arys: ArrayLike) -> Array | list[Array]:
    """Convert each input to an array with at least three axes.

    A vector of length n becomes (1, n, 1); a matrix gets a new last axis.

    >>> jnp.atleast_3d(jnp.ones(3)).shape
    (1, 3, 1)
    """
    def wide(x: Array) -> Array:
        return x if x.ndim > 2 else _rows(x)[..., None]
    return _at_least(arys, wide)


@_family(raises=("AxisError: the axis is out of range.", "ShapeError: the shapes differ."),
         axis="the axis; None flattens both first.")
def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """Append ``values`` to the end of an array.

    >>> jnp.append(jnp.asarray([1, 2]), 3)
    Array([1, 2, 3], dtype=int32)
    """
    if axis is None:
        return concatenate([ravel(arr), ravel(values)])
    return concatenate([asarray(arr), asarray(values)], axis)


@_family("A 0-d bool Array.", a1="an Array or array-like of any shape.",
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


@_family(decimals="the number of decimal places.", raises=("ArgumentError: ``out`` is given.",))
def around(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """Round to the nearest multiple of 10**-decimals: see ``round``.

    >>> print(jnp.around(2.5))
    2.0
    """
    arguments.no_out(out)
    return round(a, decimals)


@_family(order='None, "C", "A" or "K"; memory is always row-major.', raises=())
def copy(a: ArrayLike, order: Literal["C", "K", "A"] | None = None) -> Array:
    """Return a copy of an array, in memory of its own.

    >>> jnp.copy(jnp.ones(2))
    Array([1., 1.], dtype=float32)
    """
    arguments.one_of("order", order, ("C", "K", "A", None))
    x = asarray(a)
    return x.copy() if x._storage is not None else x


# ---- flips and rotations ------------------------------------------------------------------------


def _ranked(name: str, a: ArrayLike, least: int) -> Array:
    x = asarray(a)
    if x.ndim < least:
        raise ShapeError(f"{name}: expected at least {least} axes, got shape {x.shape}",
                         hint="add axes with x[None]")
    return x


@_family()
def fliplr(m: ArrayLike) -> Array:
    """Reverse the order of the columns (axis 1).

    >>> jnp.fliplr(jnp.asarray([[1, 2]]))
    Array([[2, 1]], dtype=int32)
    """
    return flip(_ranked("fliplr", m, 2), 1)


@_family()
def flipud(m: ArrayLike) -> Array:
    """Reverse the order of the rows (axis 0).

    >>> jnp.flipud(jnp.asarray([1, 2]))
    Array([2, 1], dtype=int32)
    """
    return flip(_ranked("flipud", m, 1), 0)


@_family(k="the number of quarter turns.",
         axes="the plane of rotation, from the first axis towards the second.")
def rot90(m: ArrayLike, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """Rotate an array by 90 degrees, k times, in the plane of two axes.

    >>> jnp.rot90(jnp.asarray([[1, 2]]))
    Array([[2],
           [1]], dtype=int32)
    """
    x = asarray(m)
    one, two = _plane(axes, x.ndim)
    turns = arguments.integer("k", k) % 4
    if turns == 2:
        return flip(flip(x, one), two)
    if turns == 1:
        return swapaxes(flip(x, two), one, two)
    return flip(swapaxes(x, one, two), two) if turns else x


def _plane(given: Any, ndim: int) -> tuple[int, int]:
    found = axes.listed(given, ndim)
    if len(found) != 2:
        raise AxisError(f"expected two axes, got {given!r}")
    return found[0], found[1]


@_family(start="the position in front of which the axis is moved.")
def rollaxis(a: ArrayLike, axis: int, start: int = 0) -> Array:
    """Move an axis in front of the axis at position ``start``.

    >>> jnp.rollaxis(jnp.zeros((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    x = asarray(a)
    at = axes.one(axis, x.ndim)
    before = arguments.integer("start", start)
    to = axes.one(before, x.ndim + (before >= 0))
    return moveaxis(x, at, to - (at < to))


@_family()
def matrix_transpose(x: ArrayLike, /) -> Array:
    """Swap the last two axes.

    >>> jnp.matrix_transpose(jnp.zeros((4, 2, 3))).shape
    (4, 3, 2)
    """
    return swapaxes(_ranked("matrix_transpose", x, 2), -1, -2)


# ---- joining and splitting ----------------------------------------------------------------------


@_family("A list of Arrays.")
def vsplit(ary: ArrayLike, indices_or_sections: Sections) -> list[Array]:
    """Split an array along the first axis.

    >>> [x.shape for x in jnp.vsplit(jnp.zeros((4, 2)), 2)]
    [(2, 2), (2, 2)]
    """
    return split(_ranked("vsplit", ary, 1), indices_or_sections, 0)


@_family("A list of Arrays.")
def hsplit(ary: ArrayLike, indices_or_sections: Sections) -> list[Array]:
    """Split an array along the second axis, or a vector along its only one.

    >>> [x.shape for x in jnp.hsplit(jnp.zeros((4, 2)), 2)]
    [(4, 1), (4, 1)]
    """
    x = _ranked("hsplit", ary, 1)
    return split(x, indices_or_sections, min(1, x.ndim - 1))


@_family("A list of Arrays.")
def dsplit(ary: ArrayLike, indices_or_sections: Sections) -> list[Array]:
    """Split an array along the third axis.

    >>> [x.shape for x in jnp.dsplit(jnp.zeros((1, 1, 4)), [1])]
    [(1, 1, 1), (1, 1, 3)]
    """
    return split(_ranked("dsplit", ary, 3), indices_or_sections, 2)


@_family("A tuple of Arrays without the axis.")
def unstack(x: ArrayLike, /, *, axis: int = 0) -> tuple[Array, ...]:
    """Split an array into its slices along an axis.

    >>> jnp.unstack(jnp.asarray([[1, 2], [3, 4]]))
    (Array([1, 2], dtype=int32), Array([3, 4], dtype=int32))
    """
    array = _ranked("unstack", x, 1)
    rows = moveaxis(array, axes.one(axis, array.ndim), 0)
    return tuple([rows[i] for i in range(rows.shape[0])])


@_family(tup="Arrays whose shapes agree except along the third axis.",
         dtype="the dtype of the result.", raises=("ShapeError: the shapes differ.",))
def dstack(tup: Any, dtype: DTypeLike | None = None) -> Array:
    """Stack arrays along the third axis.

    >>> jnp.dstack([jnp.ones(2), jnp.zeros(2)]).shape
    (1, 2, 2)
    """
    parts = [atleast_3d(x) for x in tup]
    return concatenate(parts, 2, dtype)


@_family(arrays="nested lists of Arrays; the innermost are concatenated along the last axis.",
         raises=("ShapeError: the shapes do not match.",
                 "ArgumentError: the lists differ in depth, or one is empty."))
def block(arrays: Any) -> Array:
    """Assemble an array from nested lists of blocks.

    >>> jnp.block([[jnp.ones((1, 1)), jnp.zeros((1, 2))]])
    Array([[1., 0., 0.]], dtype=float32)
    """
    depth = _depth(arrays)
    rank = max(depth, *[asarray(x).ndim for x in _flat(arrays)], 0)
    return _joined(arrays, depth, rank)


def _flat(arrays: Any) -> list[Any]:
    return [x for part in arrays for x in _flat(part)] if isinstance(arrays, list) else [arrays]


def _depth(arrays: Any) -> int:
    if isinstance(arrays, tuple):
        raise ArgumentError("expected nested lists of arrays, got a tuple", hint="use a list")
    if not isinstance(arrays, list):
        return 0
    inner = {_depth(x) for x in arrays}
    if len(inner) != 1:
        raise ArgumentError("expected lists of one depth that are not empty, got "
                            f"depths {sorted(inner)}")
    return 1 + inner.pop()


def _joined(arrays: Any, depth: int, rank: int) -> Array:
    if not isinstance(arrays, list):
        x = asarray(arrays)
        return x.reshape((1,) * (rank - x.ndim) + x.shape)
    return concatenate([_joined(x, depth - 1, rank) for x in arrays], -depth)


@_family(new_shape="the new shape: an int or ints.",
         raises=("ArgumentError: a length is negative.",))
def resize(a: ArrayLike, new_shape: ShapeLike) -> Array:
    """Return an array of another shape, whose elements repeat those of ``a`` in row-major order.

    >>> jnp.resize(jnp.asarray([1, 2]), (3,))
    Array([1, 2, 1], dtype=int32)
    """
    shape, x = axes.shape(new_shape), ravel(a)
    n = math.prod(shape)
    if not x.size:
        return Array(build.const(0, x._dtype, shape))
    rows = Array(build.expand(build.reshape(x._node, (1, x.size)), (-(-n // x.size), x.size)),
                 x.weak)
    return rows.reshape(-1)[:n].reshape(shape)


# ---- inserting and deleting ---------------------------------------------------------------------


def _places(obj: Any, n: int) -> np.ndarray[Any, Any]:
    """Return the non-negative positions along an axis of length n that an index selects."""
    if isinstance(obj, slice):
        return np.arange(*obj.indices(n))
    found = np.asarray(obj)
    if found.dtype == bool:
        if found.shape != (n,):
            raise ShapeError(f"expected a mask of length {n}, got shape {found.shape}")
        return np.flatnonzero(found)
    found = found.astype(np.int64) if not found.size else found
    if found.dtype.kind not in "iu":
        raise ArgumentError(f"expected places as integers, got {obj!r}")
    low, high = (int(found.min()), int(found.max())) if found.size else (0, -1)
    if low < -n or high > n:
        raise OutOfBoundsError(f"expected places from {-n} to {n}, got {low} to {high}")
    return np.where(found < 0, found + n, found)


def _line(a: ArrayLike, axis: int | None) -> tuple[Array, int]:
    x = asarray(a)
    return (ravel(x), 0) if axis is None else (x, axes.one(axis, x.ndim))


@_family(axis="the axis; None flattens the array first.",
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
    arguments.flag("assume_unique_indices", assume_unique_indices)
    x, at = _line(arr, axis)
    if assume_unique_indices and type(obj) is Array and obj._dtype.is_integer:
        return _without(x, at, ravel(obj))
    gone = _places(obj, x.shape[at])
    if gone.size and int(gone.max()) == x.shape[at]:
        raise OutOfBoundsError(f"expected places below {x.shape[at]}, got {int(gone.max())}")
    kept = np.setdiff1d(np.arange(x.shape[at]), gone).astype(np.int32)
    return x[(slice(None),) * at + (kept,)]


def _without(x: Array, at: int, places: Array) -> Array:
    """Delete distinct positions along an axis.

    Each remaining element shifts by the number of deleted positions before it.
    """
    n = x.shape[at]
    places = where(places < 0, places + n, places)
    kept = arange(max(n - places.size, 0), dtype=places.dtype)
    gone = sort(places) - arange(places.size, dtype=places.dtype)
    return x[(slice(None),) * at + (kept + (gone[:, None] <= kept).sum(0, dtype=kept.dtype),)]


@_family(axis="the axis; None flattens the array first.",
         raises=("AxisError: the axis is out of range.",
                 "OutOfBoundsError: an index is out of bounds."))
def insert(arr: ArrayLike, obj: Any, values: ArrayLike, axis: int | None = None) -> Array:
    """Insert values along an axis, before the given positions.

    >>> jnp.insert(jnp.asarray([1, 3]), 1, 2)
    Array([1, 2, 3], dtype=int32)
    """
    x, at = _line(arr, axis)
    n, new = x.shape[at], asarray(values)
    places = _places(obj, n)
    single = places.ndim == 0
    places = places.reshape(-1)
    if single and new.ndim:
        new = moveaxis(new, 0, at) if axis is not None and new.ndim == x.ndim else new
    count = new.shape[at] if single and new.ndim == x.ndim and new.ndim else len(places)
    places = np.repeat(places, count) if single else places
    shape = (*x.shape[:at], len(places), *x.shape[at + 1:])
    put = build.expand(as_node(new, x._dtype), axes.broadcast_shapes(new.shape, shape))
    order = np.argsort(np.concatenate([np.arange(n) + 0.5, places]), kind="stable")
    both = concatenate([x, Array(put, x.weak)], at)
    return both[(slice(None),) * at + (order.astype(np.int32),)]


@_family(v="an Array or array-like, which is flattened.",
         k="the diagonal: 0 is the main one, positive above it.", raises=())
def diagflat(v: ArrayLike, k: int = 0) -> Array:
    """Create a matrix with the flattened input on a diagonal.

    >>> jnp.diagflat(jnp.asarray([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    """
    x, k = ravel(v), arguments.integer("k", k)
    n = x.size + abs(k)
    rows = np.arange(x.size, dtype=np.int32)
    zero = Array(build.const(0, x._dtype, (n, n)))
    return zero.at[rows + max(-k, 0), rows + max(k, 0)].set(x)


@_family(val="a scalar, or values that are repeated along the diagonal.",
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
    immutable("fill_diagonal", inplace)
    arguments.flag("wrap", wrap)
    x, values = _ranked("fill_diagonal", a, 2), ravel(val)
    if x.ndim > 2 and len(set(x.shape)) > 1:
        raise ShapeError(f"expected equal lengths of more than two axes, got {x.shape}")
    if x.ndim == 2 and wrap:
        places = np.arange(0, x.size, x.shape[1] + 1)
    else:
        step = sum([math.prod(x.shape[i + 1:]) for i in range(x.ndim)])
        end = min(x.shape) if x.size else 0
        places = np.arange(end) * step
    chosen = values[np.arange(len(places), dtype=np.int32) % max(values.size, 1)]
    return reshape(ravel(x).at[places.astype(np.int32)].set(chosen), x.shape)


def immutable(name: str, inplace: bool) -> None:
    """Raise on ``inplace=True``, NumPy's default."""
    arguments.flag("inplace", inplace)
    if inplace:
        raise ArgumentError(f"{name}: expected inplace=False, as arrays are immutable",
                            hint=f"x = {name}(x, ..., inplace=False)")


@_family(filt="an Array or array-like whose values are known.",
         trim='which zeros to trim: "f" (front), "b" (back) or "fb" (both).',
         axis="the axis or axes; None means all.", raises="TracedValueError: the array is traced.")
def trim_zeros(filt: ArrayLike, trim: Literal["f", "b", "fb"] = "fb", axis: AxisLike = None
               ) -> Array:
    """Trim leading or trailing zeros, or both; all nonzero elements stay.

    >>> jnp.trim_zeros(jnp.asarray([0, 1, 0]))
    Array([1], dtype=int32)
    """
    arguments.one_of("trim", trim, ("f", "b", "fb", "bf"))
    x = asarray(filt)
    along = axes.several(axis, x.ndim)
    kept = []
    for i, some in enumerate(np.nonzero(np.asarray(x)) if x.ndim else ()):
        if i not in along:
            kept.append(slice(None))
        elif some.size:
            kept.append(slice(int(some.min()) if "f" in trim else 0,
                              int(some.max()) + 1 if "b" in trim else None))
        else:
            kept.append(slice(0, 0))
    return x[tuple(kept)]
