"""Rearranging, repeating, taking and splitting: flips, rolls, tiling, diagonals, ``take``."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.array import arguments, array_operators, axes, updates
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.arguments import ReadMode, TakeMode
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import record_results
from fnx.core.array.axes import AxisLike, ShapeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.ir import build, dtypes
from fnx.core.ir.expr import Expr, where
from fnx.core.ir.uop import UOp, set_composite
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.core.support.process import lazy_import
from fnx.numpy.creation import arange
from fnx.numpy.shape_manipulation import moveaxis, ravel, reshape, wrap_like
from fnx.numpy.ufuncs import maximum, minimum, remainder

matrices = lazy_import("fnx.core.formulas.matrices")

__all__ = ["array_split", "diag", "diagonal", "flip", "repeat", "roll", "split", "take",
           "take_along_axis", "tile"]


@public_api
def flip(m: ArrayLike, axis: AxisLike = None) -> Array:
    """Reverse the order of the elements along one, several or all axes.

    Args:
        m: an Array or array-like of any shape and dtype.
        axis: the axis or axes; None means all.

    Returns:
        An Array of the shape and dtype of m.

    Raises:
        AxisError: an axis is out of range or repeated.

    >>> import fnx.numpy as jnp
    >>> jnp.flip(jnp.arange(3))
    Array([2, 1, 0], dtype=int32)
    """
    x = asarray(m)
    return wrap_like(x, build.flip(x._node, axes.sorted_axes(axis, x.ndim)))


@public_api
def roll(a: ArrayLike, shift: Any, axis: AxisLike = None) -> Array:
    """Roll elements along axes; those shifted past the end come in again at the start.

    Args:
        a: an Array or array-like of any shape and dtype.
        shift: the number of positions: an int, or one for each axis; Arrays may be traced.
        axis: the axis or axes; None rolls the flattened array.

    Returns:
        An Array of the shape and dtype of a.

    Raises:
        ArgumentError: a shift is not an integer.
        AxisError: the axis is out of range.
        ShapeError: several shifts and several axes differ in number.

    >>> import fnx.numpy as jnp
    >>> jnp.roll(jnp.arange(4), 1)
    Array([3, 0, 1, 2], dtype=int32)
    """
    x = asarray(a)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    roll_axes = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    shifts = _parse_shifts(shift)
    count = max(len(roll_axes), len(shifts)) if roll_axes and shifts else 0
    if {len(roll_axes), len(shifts)} - {1, count}:
        raise ShapeError(f"expected a shift for each axis, got {len(shifts)} for {len(roll_axes)}")
    for i in range(count):
        ax = axes.normalize_axis(roll_axes[i % len(roll_axes)], x.ndim)
        step = shifts[i % len(shifts)]
        n = x.shape[ax]
        if isinstance(step, Array):
            shift32 = step if step._dtype.bits >= 32 else step.astype("int32")
            source = remainder(arange(n) - remainder(shift32, max(n, 1)).astype("int32"), max(n, 1))
            x = x.at[(slice(None),) * ax + (source,)].get(mode="promise_in_bounds")
        elif n and step % n:
            x = wrap_like(x, build.concat([_slice_axis(x, ax, n - step % n, n),
                                           _slice_axis(x, ax, 0, n - step % n)], ax))
    return x


def _parse_shifts(shift: Any) -> list[int | Array]:
    """Return the shifts of a roll: ints, or 0-d integer Arrays, which may be traced."""
    if isinstance(shift, (Array, np.ndarray)):
        if shift.ndim > 1:
            raise ShapeError(f"expected a scalar or vector shift, got shape {shift.shape}")
        shift = [shift[i] for i in range(len(shift))] if shift.ndim else shift
    steps: list[int | Array] = []
    for s in shift if isinstance(shift, (tuple, list)) else (shift,):
        data = isinstance(s, Array) and s.ndim == 0 and s._dtype.is_integer
        steps.append(s if data else arguments.check_int("shift", s))
    return steps


def _slice_axis(x: Array, axis: int, low: int, high: int) -> UOp:
    """Slice x from low to high along an axis."""
    return build.shrink(x._node, [(low, high) if i == axis else (0, n)
                                  for i, n in enumerate(x.shape)])


@public_api
def tile(A: ArrayLike, reps: ShapeLike) -> Array:
    """Repeat an array as a whole, ``reps`` times along each axis.

    Args:
        A: an Array or array-like of any shape and dtype.
        reps: an int or ints, static under tracing.

    Returns:
        An Array of the dtype of A.

    Raises:
        ArgumentError: a count is negative.

    >>> import fnx.numpy as jnp
    >>> jnp.tile(jnp.arange(2), 2)
    Array([0, 1, 0, 1], dtype=int32)
    """
    x = asarray(A)
    counts = axes.normalize_shape(reps)
    rank = max(x.ndim, len(counts))
    counts = (1,) * (rank - len(counts)) + counts
    shape = (1,) * (rank - x.ndim) + x.shape
    node = build.reshape(x._node, tuple(m for n in shape for m in (1, n)))
    node = build.expand(node, tuple(m for c, n in zip(counts, shape) for m in (c, n)))
    tiled = build.reshape(node, tuple(c * n for c, n in zip(counts, shape)))
    set_composite(tiled, "tile", tile, [build.reshape(x._node, shape)], reps=counts)
    return wrap_like(x, tiled)


@public_api
def repeat(a: ArrayLike, repeats: Any, axis: int | None = None, *,
           total_repeat_length: int | None = None) -> Array:
    """Repeat each element, by one count for all or by one count for each.

    Args:
        a: an Array or array-like of any shape and dtype.
        repeats: the number of repetitions: one for all elements, or one for each; static under
            tracing, unless ``total_repeat_length`` is given.
        axis: the axis; None flattens a first.
        total_repeat_length: the length of the result, which is truncated, or padded with the last
            element.

    Returns:
        An Array of the dtype of a.

    Raises:
        ArgumentError: a count is not an int >= 0.
        ShapeError: there is neither one count nor one for each element.
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> jnp.repeat(jnp.arange(2), 2)
    Array([0, 0, 1, 1], dtype=int32)
    """
    if total_repeat_length is not None:
        total_repeat_length = arguments.check_int("total_repeat_length", total_repeat_length)
    x = asarray(a)
    if axis is None or x.ndim == 0 and axis in (0, -1):
        x, axis = ravel(x), 0
    ax = axes.normalize_axis(axis, x.ndim)
    if total_repeat_length is not None and type(repeats) is Array \
            and repeats._storage is None:
        return _repeat_traced(x, ax, repeats, total_repeat_length)
    counts = arguments.values_of(repeats, "pass total_repeat_length=, the length of the result: a "
                                 "constant")
    if counts.dtype.kind not in "iub":
        raise ArgumentError(f"expected repeats as ints, got {counts.dtype}",
                            hint="use int(...) on a float that is a whole number")
    if counts.ndim == 0 and total_repeat_length is None:
        k = int(counts)
        node = build.reshape(x._node, (*x.shape[:ax + 1], 1, *x.shape[ax + 1:]))
        node = build.expand(node, (*x.shape[:ax + 1], k, *x.shape[ax + 1:]))
        shape = (*x.shape[:ax], x.shape[ax] * k, *x.shape[ax + 1:])
        return wrap_like(x, build.reshape(node, shape))
    if counts.size not in (1, x.shape[ax]):
        raise ShapeError(f"repeat: expected one count, or one for each of {x.shape[ax]}, got "
                         f"{counts.size}", hint="pass axis= to repeat along one axis")
    source = np.repeat(np.arange(x.shape[ax]), counts)
    if total_repeat_length is not None:
        source = np.pad(source, (0, max(0, total_repeat_length - len(source))), mode="edge")
        source = source[:total_repeat_length]
    return array_operators.get_item(x, (slice(None),) * ax + (source,))


def _repeat_traced(x: Array, ax: int, repeats: Array, total: int) -> Array:
    """Repeat by traced counts: element i of the result reads the element whose run holds i."""
    n = x.shape[ax]
    if repeats.size not in (1, n):
        raise ShapeError(f"repeat: expected one count, or one for each of {n}, got {repeats.size}")
    ends = Array(build.expand(reshape(repeats, -1)._node, (n,))).cumsum()
    ended = Array(build.const(0, dtypes.int32, (total,))).at[ends].add(1, mode="drop")
    source = ended.cumsum(dtype="int32")  # how many runs end at an element or before
    return array_operators.get_item(x, (slice(None),) * ax + (minimum(source, n - 1),))


@public_api
def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Return the diagonals over two axes, as the last axis of the result.

    Args:
        a: an Array or array-like of at least two axes, of any dtype.
        offset: the diagonal: 0 is the main one, positive above, negative below.
        axis1: the axis of rows.
        axis2: the axis of columns.

    Returns:
        An Array whose last axis is the diagonal, of the dtype of a.

    Raises:
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> jnp.diagonal(jnp.asarray([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    x = moveaxis(a, (axis1, axis2), (-2, -1))
    n, m = x.shape[-2:]
    offset = arguments.check_int("offset", offset)
    down, right = (max(0, -offset), max(0, offset))
    count = max(0, min(n - down, m - right))
    bounds = [*[(0, k) for k in x.shape[:-2]], (down, down + count), (right, right + count)]
    return wrap_like(x, matrices.matrix_diagonal(build.shrink(x._node, bounds) if count else
                                        build.shrink(x._node, [*bounds[:-2], (0, 0), (0, 0)])))


@public_api
def diag(v: ArrayLike, k: int = 0) -> Array:
    """Create a matrix from its diagonal, or return the diagonal of a matrix.

    Args:
        v: a vector or a matrix of any dtype.
        k: the diagonal: 0 is the main one, positive above, negative below.

    Returns:
        An Array of the dtype of v.

    Raises:
        ShapeError: v has neither one nor two axes.

    >>> import fnx.numpy as jnp
    >>> jnp.diag(jnp.asarray([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    """
    x = asarray(v)
    k = arguments.check_int("k", k)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError(f"diag: expected 1 or 2 axes, got shape {x.shape}")
    n = x.shape[0] + abs(k)
    padded = build.pad(x._node, [(max(0, k), max(0, -k))], False if x._dtype.is_bool else 0)
    rows, row, column = (Expr(build.expand(build.reshape(node, shape), (n, n))) for node, shape in (
        (padded, (1, n)), (build.iota(n), (n, 1)), (build.iota(n), (1, n))))
    return wrap_like(x, where(column.eq(row + k), rows, 0).node)


@public_api
def take(a: ArrayLike, indices: ArrayLike, axis: int | None = None, out: None = None,
         mode: TakeMode = None, unique_indices: bool = False, indices_are_sorted: bool = False,
         fill_value: ArrayLike | None = None) -> Array:
    """Return the elements, or the slices along an axis, at the given indices.

    Args:
        a: an Array or array-like of any shape and dtype.
        indices: integers of any shape; negative ones count from the end.
        axis: the axis; None flattens a first.
        out: unsupported; must be None.
        mode: how out-of-bounds indices read: "fill" (default; NaN, the smallest int, or
            ``fill_value``), "clip" or "wrap"; "promise_in_bounds" acts as "clip".
        unique_indices: a promise that has no effect.
        indices_are_sorted: a promise that has no effect.
        fill_value: the value of out-of-bounds elements in mode "fill".

    Returns:
        An Array of the dtype of a.

    Raises:
        ArgumentError: the mode is unknown.
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> jnp.take(jnp.arange(10) * 2, jnp.asarray([1, 3]))
    Array([2, 6], dtype=int32)
    """
    arguments.check_choice("mode", mode, ("fill", "clip", "wrap", "promise_in_bounds", None))
    x = asarray(a)
    if axis is None:
        x, axis = ravel(x), 0
    ax = axes.normalize_axis(axis, x.ndim)
    index = asarray(np.asarray(indices) if isinstance(indices, (list, tuple)) else indices)
    if mode == "wrap":
        index = index % x.shape[ax]
    if mode == "clip":
        index = maximum(index, 0)
    read_mode: ReadMode = "fill" if mode in (None, "fill") else "clip"
    return updates.at_get(x, (slice(None),) * ax + (index,), read_mode, fill_value)


@public_api
def take_along_axis(arr: ArrayLike, indices: ArrayLike, axis: int | None = -1,
                    mode: ReadMode = None, fill_value: ArrayLike | None = None, *,
                    wrap_negative_indices: bool | None = None) -> Array:
    """Return the elements that an index array of the same rank selects along an axis.

    Args:
        arr: an Array or array-like of any shape and dtype.
        indices: integers of as many axes as arr; negative ones count from the end.
        axis: the axis; None flattens both first.
        mode: how out-of-bounds indices read: "fill" (default; "drop" is the same), "clip" or
            "promise_in_bounds".
        fill_value: the value of out-of-bounds elements in mode "fill".
        wrap_negative_indices: whether negative indices count from the end; by default True.

    Returns:
        An Array of the shape that arr and indices broadcast to, with the length of indices along
        the axis.

    Raises:
        ShapeError: arr and indices differ in their number of axes.
        ArgumentError: the mode is unknown.
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> x = jnp.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> jnp.take_along_axis(x, jnp.asarray([[1], [0]]), axis=1)
    Array([[2.],
           [3.]], dtype=float32)
    """
    arguments.check_choice("mode", mode, ("fill", "drop", "clip", "promise_in_bounds", None))
    x, index = asarray(arr), asarray(indices)
    if axis is None:
        x, index, axis = ravel(x), ravel(index), 0
    if x.ndim != index.ndim:
        raise ShapeError(f"take_along_axis: expected indices of {x.ndim} axes, got shape "
                         f"{index.shape}", hint="add axes with indices[..., None]")
    ax = axes.normalize_axis(axis, x.ndim)
    shape = axes.broadcast_shapes(
        *[(*s[:ax], 1, *s[ax + 1:]) for s in (x.shape, index.shape)])
    arguments.check_optional_bool("wrap_negative_indices", wrap_negative_indices)
    if wrap_negative_indices is False:
        at = Expr(index.astype(int)._node)
        index = Array(where(at < 0, x.shape[ax] if mode in (None, "fill", "drop") else 0, at).node)
    entries: list[Any] = []
    for i, n in enumerate(shape):
        if i == ax:
            entries.append(index)
        elif x.shape[i] == 1:
            entries.append(0)
        else:
            iota = build.reshape(build.iota(n), tuple(n if j == i else 1 for j in range(x.ndim)))
            entries.append(Array(iota))
    out = updates.at_get(x, tuple(entries), mode or "fill", fill_value)
    out_shape = (*shape[:ax], index.shape[ax], *shape[ax + 1:])
    return wrap_like(x, build.expand(out._node, out_shape))


# ---- splitting ----------------------------------------------------------------------------------


_docstr = DocTemplate(
    ary="an Array or array-like of any shape and dtype.",
    axis="the axis; negative values count from the end.",
    returns="A list of Arrays of the dtype of the array.")
_MAX_EXTRA_SECTIONS = 1_000_000  # limit on sections beyond the number of rows


@_docstr(indices_or_sections="the number of equal parts, or the indices at which to split.",
         raises=("ShapeError: the number of parts does not divide the length.",
                 "AxisError: the axis is out of range."))
def split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Split an array along an axis, into equal parts or at indices.

    >>> jnp.split(jnp.arange(4), 2)
    [Array([0, 1], dtype=int32), Array([2, 3], dtype=int32)]
    """
    x = asarray(ary)
    n = x.shape[axes.normalize_axis(axis, x.ndim)]
    if isinstance(indices_or_sections, int) and (indices_or_sections < 1
                                                 or n % indices_or_sections):
        raise ShapeError(f"split: expected a divisor of {n}, got {indices_or_sections}",
                         hint="use array_split for unequal parts")
    return array_split(x, indices_or_sections, axis)


@_docstr(indices_or_sections="the number of parts, or the indices at which to split.",
         raises=("ArgumentError: there are too many parts, or none.",
                 "AxisError: the axis is out of range."))
def array_split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Split an array along an axis, into parts of nearly equal length or at indices.

    >>> [p.shape for p in jnp.array_split(jnp.arange(5), 2)]
    [(3,), (2,)]
    """
    x = asarray(ary)
    ax = axes.normalize_axis(axis, x.ndim)
    n = x.shape[ax]
    if isinstance(indices_or_sections, int):
        k = indices_or_sections
        if k < 1:
            raise ArgumentError(f"expected at least 1 section, got {k:,}")
        if k > n + _MAX_EXTRA_SECTIONS:
            raise ArgumentError(f"expected at most {n + _MAX_EXTRA_SECTIONS:,} sections, got {k:,}")
        bounds = [i * (n // k) + min(i, n % k) for i in range(k + 1)]
    else:
        bounds = [0, *[slice(operator.index(i)).indices(n)[1] for i in indices_or_sections], n]
    out = []
    for low, high in zip(bounds, bounds[1:]):
        slices = [(0, m) for m in x.shape]
        slices[ax] = (low, max(low, high))
        out.append(wrap_like(x, build.shrink(x._node, slices)))
    if bounds == sorted(bounds):
        sizes = tuple([high - low for low, high in zip(bounds, bounds[1:])])
        record_results(out, "split", _split_by_sizes, x._node, sizes=sizes, axis=ax)
    return out


def _split_by_sizes(x: Any, *, sizes: Sequence[int], axis: int) -> list[Array]:
    return array_split(x, list(itertools.accumulate(sizes))[:-1], axis)
