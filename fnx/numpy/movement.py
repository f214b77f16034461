"""Functions of ``fnx.numpy`` that only move elements."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from fnx.core import build, dtypes
from fnx.core.array import arguments, axes, operate
from fnx.core.array import array as core
from fnx.core.array.array import Array, ArrayLike, public
from fnx.core.array.axes import AxisLike, ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.operate import ReadMode
from fnx.core.array.promotion import as_node, operand, promoted
from fnx.core.errors import ArgumentError, AxisError, ShapeError
from fnx.core.uop import UOp
from fnx.numpy.binary import maximum

TakeMode: TypeAlias = Literal["fill", "clip", "wrap", "promise_in_bounds"] | None


def _keeping(x: Array, node: UOp) -> Array:
    return Array(node, x.weak)


@public
def reshape(a: ArrayLike, /, shape: ShapeLike | None = None, order: str = "C", *, copy: Any = None
           ) -> Array:
    """The elements in row-major order under another shape; one length may be -1.

    >>> import fnx.numpy as jnp
    >>> jnp.reshape(jnp.arange(4), (2, -1))
    Array([[0, 1],
           [2, 3]], dtype=int32)
    """
    x = core.asarray(a)
    if order != "C":
        raise ArgumentError(f"reshape: expected order 'C', got {order!r}",
                            hint="transpose before and after instead")
    return _keeping(x, build.reshape(x._node, _with_free(x, shape)))


def _with_free(x: Array, shape: Any) -> tuple[int, ...]:
    """A shape argument with its -1 filled in."""
    lengths = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    free = [i for i, n in enumerate(lengths) if type(n) is int and n == -1]
    if len(free) > 1:
        raise ShapeError(f"reshape: expected at most one -1, got {tuple(lengths)}",
                         hint="spell out all lengths but one")
    for i in free:
        rest = math.prod(axes.shape(lengths[:i] + lengths[i + 1:]))
        if rest == 0 or x.size % rest:
            raise ShapeError(f"reshape: expected {x.size} elements, got shape {tuple(lengths)}",
                             hint="the other lengths must divide the number of elements")
        lengths[i] = x.size // rest
    out = axes.shape(lengths)
    if math.prod(out) != x.size:
        raise ShapeError(f"reshape: expected {x.size} elements, as in {x.shape}; got shape {out}",
                         hint="the product of the lengths must stay the same")
    return out


@public
def ravel(a: ArrayLike, order: str = "C") -> Array:
    """All elements on one axis.

    >>> import fnx.numpy as jnp
    >>> jnp.ravel(jnp.ones((2, 1)))
    Array([1., 1.], dtype=float32)
    """
    return reshape(a, -1 if core.asarray(a).size else (0,), order)


@public
def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """Axes in another order; by default reversed.

    >>> import fnx.numpy as jnp
    >>> jnp.transpose(jnp.zeros((2, 3))).shape
    (3, 2)
    """
    x = core.asarray(a)
    order = tuple(range(x.ndim))[::-1] if axes is None else _order(x, axes)
    return _keeping(x, build.permute(x._node, order))


def _order(x: Array, given: Sequence[int]) -> tuple[int, ...]:
    order = axes.listed(given, x.ndim)
    if len(order) != x.ndim:
        raise AxisError(f"transpose: expected {x.ndim} axes, got {tuple(given)}",
                        hint="name every axis once")
    return order


permute_dims = transpose


@public
def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """Two axes swapped.

    >>> import fnx.numpy as jnp
    >>> jnp.swapaxes(jnp.zeros((2, 3, 4)), 0, -1).shape
    (4, 3, 2)
    """
    x = core.asarray(a)
    order = list(range(x.ndim))
    i, j = (axes.one(a, x.ndim) for a in (axis1, axis2))
    order[i], order[j] = j, i
    return _keeping(x, build.permute(x._node, order))


@public
def moveaxis(a: ArrayLike, source: Any, destination: Any) -> Array:
    """Axes moved to other places; the rest keep their order.

    >>> import fnx.numpy as jnp
    >>> jnp.moveaxis(jnp.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    x = core.asarray(a)
    pairs = [(s,) if isinstance(s, int) else tuple(s) for s in (source, destination)]
    came, go = (axes.listed(p, x.ndim) for p in pairs)
    if len(came) != len(go):
        raise AxisError(f"moveaxis: expected as many places as axes, got {source}, {destination}")
    order = [i for i in range(x.ndim) if i not in came]
    for place, axis in sorted(zip(go, came)):
        order.insert(place, axis)
    return _keeping(x, build.permute(x._node, order))


@public
def expand_dims(a: ArrayLike, axis: AxisLike) -> Array:
    """New axes of length 1, at these places of the result.

    >>> import fnx.numpy as jnp
    >>> jnp.expand_dims(jnp.zeros(3), 0).shape
    (1, 3)
    """
    x = core.asarray(a)
    given = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    new = axes.listed(given, x.ndim + len(given))
    rest = iter(x.shape)
    shape = tuple(1 if i in new else next(rest) for i in range(x.ndim + len(given)))
    return _keeping(x, build.reshape(x._node, shape))


@public
def squeeze(a: ArrayLike, axis: AxisLike = None) -> Array:
    """Without axes of length 1 (all of them, or these).

    >>> import fnx.numpy as jnp
    >>> jnp.squeeze(jnp.zeros((1, 3, 1))).shape
    (3,)
    """
    x = core.asarray(a)
    drop = {i for i, n in enumerate(x.shape) if n == 1} if axis is None else \
        set(axes.several(axis, x.ndim))
    for i in drop:
        if x.shape[i] != 1:
            raise ShapeError(f"squeeze: expected an axis of length 1, got axis {i} of {x.shape}",
                             hint="use reshape, or index the axis")
    return _keeping(x, build.reshape(x._node, tuple(
        n for i, n in enumerate(x.shape) if i not in drop)))


@public
def broadcast_to(array: ArrayLike, shape: ShapeLike) -> Array:
    """Repeated along axes of length 1 and new leading axes, to this shape.

    >>> import fnx.numpy as jnp
    >>> jnp.broadcast_to(jnp.arange(2), (2, 2))
    Array([[0, 1],
           [0, 1]], dtype=int32)
    """
    x = core.asarray(array)
    return _keeping(x, build.expand(x._node, axes.shape(shape)))


@public
def broadcast_arrays(*args: ArrayLike) -> list[Array]:
    """The arrays broadcast to their common shape.

    >>> import fnx.numpy as jnp
    >>> [x.shape for x in jnp.broadcast_arrays(jnp.zeros(3), 1.0)]
    [(3,), (3,)]
    """
    xs = [core.asarray(x) for x in args]
    shape = build.broadcast_shapes(*[x.shape for x in xs])
    return [_keeping(x, build.expand(x._node, shape)) for x in xs]


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to.

    >>> import fnx.numpy as jnp
    >>> jnp.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    return build.broadcast_shapes(*[axes.shape(s) for s in shapes])


# ---- joining and splitting --------------------------------------------------------------------


def _rows(name: str, arrays: Any) -> list[Any]:
    xs = list(arrays)
    if not xs:
        raise ArgumentError(f"{name}: expected at least one array, got none")
    return [core.asarray(x) for x in xs]


@public
def concatenate(arrays: Any, axis: int | None = 0, dtype: DTypeLike | None = None) -> Array:
    """Arrays one after the other along an axis; None flattens them first.

    >>> import fnx.numpy as jnp
    >>> jnp.concatenate([jnp.zeros(1), jnp.ones(2)])
    Array([0., 1., 1.], dtype=float32)
    """
    xs = _rows("concatenate", arrays)
    if axis is None:
        xs, axis = [ravel(x) for x in xs], 0
    if xs[0].ndim == 0:
        raise ShapeError("concatenate: expected arrays of at least one axis, got 0-d ones",
                         hint="use stack")
    nodes, weak = promoted("any", "concatenate", xs, broadcast=False)
    out = Array(build.concat(nodes, axes.one(axis, xs[0].ndim)), weak)
    return out if dtype is None else operate.astype(out, dtype)


concat = concatenate


@public
def stack(arrays: Any, axis: int = 0, dtype: DTypeLike | None = None) -> Array:
    """Arrays of one shape along a new axis.

    >>> import fnx.numpy as jnp
    >>> jnp.stack([jnp.zeros(2), jnp.ones(2)], axis=1).shape
    (2, 2)
    """
    xs = _rows("stack", arrays)
    for x in xs:
        if x.shape != xs[0].shape:
            raise ShapeError(f"stack: expected arrays of one shape, got {xs[0].shape} and "
                             f"{x.shape}", hint="broadcast_arrays them first")
    return concatenate([expand_dims(x, axis) for x in xs], axis=axis, dtype=dtype)


def _at_least(n: int, x: Array, columns: bool = False) -> Array:
    if x.ndim >= n:
        return x
    if columns:
        return reshape(x, (-1, 1)) if x.ndim else reshape(x, (1, 1))
    return reshape(x, (1,) * (n - x.ndim) + x.shape)


@public
def vstack(tup: Any, dtype: DTypeLike | None = None) -> Array:
    """Rows below one another.

    >>> import fnx.numpy as jnp
    >>> jnp.vstack([jnp.zeros(2), jnp.ones(2)]).shape
    (2, 2)
    """
    return concatenate([_at_least(2, x) for x in _rows("vstack", tup)], 0, dtype)


@public
def hstack(tup: Any, dtype: DTypeLike | None = None) -> Array:
    """Side by side: along axis 1, or 0 for one axis.

    >>> import fnx.numpy as jnp
    >>> jnp.hstack([jnp.zeros(2), jnp.ones(1)])
    Array([0., 0., 1.], dtype=float32)
    """
    xs = [_at_least(1, x) for x in _rows("hstack", tup)]
    return concatenate(xs, 0 if xs[0].ndim == 1 else 1, dtype)


@public
def column_stack(tup: Any) -> Array:
    """One-axis arrays as columns.

    >>> import fnx.numpy as jnp
    >>> jnp.column_stack([jnp.zeros(2), jnp.ones(2)])
    Array([[0., 1.],
           [0., 1.]], dtype=float32)
    """
    return concatenate([_at_least(2, x, True) for x in _rows("column_stack", tup)], 1)


@public
def split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Equal parts along an axis (an int), or parts between indices.

    >>> import fnx.numpy as jnp
    >>> jnp.split(jnp.arange(4), 2)
    [Array([0, 1], dtype=int32), Array([2, 3], dtype=int32)]
    """
    x = core.asarray(ary)
    n = x.shape[axes.one(axis, x.ndim)]
    if isinstance(indices_or_sections, int) and (indices_or_sections < 1
                                                 or n % indices_or_sections):
        raise ShapeError(f"split: expected a divisor of {n}, got {indices_or_sections}",
                         hint="use array_split for unequal parts")
    return array_split(x, indices_or_sections, axis)


@public
def array_split(ary: ArrayLike, indices_or_sections: Any, axis: int = 0) -> list[Array]:
    """Parts along an axis whose lengths differ by at most one, or parts between indices.

    >>> import fnx.numpy as jnp
    >>> [p.shape for p in jnp.array_split(jnp.arange(5), 2)]
    [(3,), (2,)]
    """
    x = core.asarray(ary)
    at = axes.one(axis, x.ndim)
    n = x.shape[at]
    if isinstance(indices_or_sections, int):
        k = indices_or_sections
        cuts = [i * (n // k) + min(i, n % k) for i in range(k + 1)]
    else:
        cuts = [0, *[slice(operator.index(i)).indices(n)[1] for i in indices_or_sections], n]
    out = []
    for low, high in zip(cuts, cuts[1:]):
        bounds = [(0, m) for m in x.shape]
        bounds[at] = (low, max(low, high))
        out.append(_keeping(x, build.shrink(x._node, bounds)))
    return out


# ---- rearranging ------------------------------------------------------------------------------


@public
def flip(m: ArrayLike, axis: AxisLike = None) -> Array:
    """The order of elements reversed, along all axes or these.

    >>> import fnx.numpy as jnp
    >>> jnp.flip(jnp.arange(3))
    Array([2, 1, 0], dtype=int32)
    """
    x = core.asarray(m)
    return _keeping(x, build.flip(x._node, axes.several(axis, x.ndim)))


@public
def roll(a: ArrayLike, shift: Any, axis: AxisLike = None) -> Array:
    """Elements moved along axes by fixed numbers of places; those pushed out come in again.

    >>> import fnx.numpy as jnp
    >>> jnp.roll(jnp.arange(4), 1)
    Array([3, 0, 1, 2], dtype=int32)
    """
    x = core.asarray(a)
    if axis is None:
        return reshape(roll(ravel(x), shift, 0), x.shape)
    along = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    shifts = tuple(shift) if isinstance(shift, (tuple, list)) else (shift,) * len(along)
    node = x._node
    for name, s in zip(along, shifts):
        at = axes.one(name, x.ndim)
        n = node.shape[at]
        k = operator.index(s) % n if n else 0
        if k:
            whole = [(0, m) for m in node.shape]
            parts = [(n - k, n), (0, n - k)]
            node = build.concat([build.shrink(node, [*whole[:at], p, *whole[at + 1:]])
                                 for p in parts], at)
    return _keeping(x, node)


@public
def pad(array: ArrayLike, pad_width: Any, mode: str = "constant", constant_values: ArrayLike = 0
       ) -> Array:
    """Elements added before and after each axis.

    Args:
        pad_width: n, (before, after), or such a pair for each axis.
        mode: "constant", "edge" (repeat the last), "reflect", "symmetric" or "wrap".

    >>> import fnx.numpy as jnp
    >>> jnp.pad(jnp.arange(2), 1)
    Array([0, 0, 1, 0], dtype=int32)
    """
    x = core.asarray(array)
    widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist() if x.ndim else []
    if any(w < 0 for pair in widths for w in pair):
        raise ArgumentError(f"pad: expected widths >= 0, got {pad_width}", hint="slice instead")
    if mode == "constant":
        fill = as_node(operand(constant_values), x._dtype)
        if fill.shape:
            raise ArgumentError("pad: expected one number as constant_values, got an array")
        return _keeping(x, build.pad(x._node, widths, fill))
    if mode not in ("edge", "reflect", "symmetric", "wrap"):
        raise ArgumentError("pad: expected mode constant, edge, reflect, symmetric or wrap; got "
                            f"{mode!r}")
    for at, (low, high) in enumerate(widths):  # NumPy says which element goes where
        old = np.arange(x.shape[at])
        places = np.pad(old, (low, high), mode=mode)  # type: ignore[call-overload]
        x = operate.get_item(x, (slice(None),) * at + (places,)) if low or high else x
    return x


@public
def tile(A: ArrayLike, reps: ShapeLike) -> Array:
    """The array repeated as a whole, ``reps`` times along each axis.

    >>> import fnx.numpy as jnp
    >>> jnp.tile(jnp.arange(2), 2)
    Array([0, 1, 0, 1], dtype=int32)
    """
    x = core.asarray(A)
    counts = axes.shape(reps)
    rank = max(x.ndim, len(counts))
    counts = (1,) * (rank - len(counts)) + counts
    shape = (1,) * (rank - x.ndim) + x.shape
    node = build.reshape(x._node, tuple(m for n in shape for m in (1, n)))
    node = build.expand(node, tuple(m for c, n in zip(counts, shape) for m in (c, n)))
    return _keeping(x, build.reshape(node, tuple(c * n for c, n in zip(counts, shape))))


@public
def repeat(a: ArrayLike, repeats: Any, axis: int | None = None, *,
           total_repeat_length: int | None = None) -> Array:
    """Each element repeated, a fixed number of times (one for all, or one for each).

    >>> import fnx.numpy as jnp
    >>> jnp.repeat(jnp.arange(2), 2)
    Array([0, 0, 1, 1], dtype=int32)
    """
    x = core.asarray(a)
    if axis is None:
        x, axis = ravel(x), 0
    at = axes.one(axis, x.ndim)
    counts = np.asarray(repeats)
    if counts.ndim == 0 and total_repeat_length is None:
        k = int(counts)
        node = build.reshape(x._node, (*x.shape[:at + 1], 1, *x.shape[at + 1:]))
        node = build.expand(node, (*x.shape[:at + 1], k, *x.shape[at + 1:]))
        shape = (*x.shape[:at], x.shape[at] * k, *x.shape[at + 1:])
        return _keeping(x, build.reshape(node, shape))
    places = np.repeat(np.arange(x.shape[at]), counts)
    if total_repeat_length is not None:
        places = np.pad(places, (0, max(0, total_repeat_length - len(places))), mode="edge")
        places = places[:total_repeat_length]
    return operate.get_item(x, (slice(None),) * at + (places,))


@public
def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The elements whose indices along two axes are equal (but for the offset), on a last axis.

    >>> import fnx.numpy as jnp
    >>> jnp.diagonal(jnp.asarray([[1, 2], [3, 4]]))
    Array([1, 4], dtype=int32)
    """
    x = moveaxis(a, (axis1, axis2), (-2, -1))
    n, m = x.shape[-2:]
    low, right = (max(0, -offset), max(0, offset))
    count = max(0, min(n - low, m - right))
    bounds = [*[(0, k) for k in x.shape[:-2]], (low, low + count), (right, right + count)]
    return _keeping(x, diagonal_of(build.shrink(x._node, bounds) if count else
                                   build.shrink(x._node, [*bounds[:-2], (0, 0), (0, 0)])))


def diagonal_of(x: UOp) -> UOp:
    """The diagonal of the last two axes (of one length n): rows of n + 1, of which column 0."""
    *lead, n, _ = x.shape
    if n < 2:
        return build.reshape(x, (*lead, n))
    none = [(0, 0)] * len(lead)
    flat = build.pad(build.reshape(x, (*lead, n * n)), [*none, (0, n)],
                     False if x.dtype.is_bool else 0)
    rows = build.reshape(flat, (*lead, n, n + 1))
    column = build.shrink(rows, [*[(0, k) for k in lead], (0, n), (0, 1)])
    return build.reshape(column, (*lead, n))


@public
def diag(v: ArrayLike, k: int = 0) -> Array:
    """A matrix with this diagonal; or the diagonal of a matrix.

    >>> import fnx.numpy as jnp
    >>> jnp.diag(jnp.asarray([1, 2]))
    Array([[1, 0],
           [0, 2]], dtype=int32)
    """
    x = core.asarray(v)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError(f"diag: expected 1 or 2 axes, got shape {x.shape}")
    n = x.shape[0] + abs(k)
    line = build.pad(x._node, [(max(0, k), max(0, -k))], False if x._dtype.is_bool else 0)
    rows = build.expand(build.reshape(line, (1, n)), (n, n))
    place = build.iota(n)
    row = build.expand(build.reshape(place, (n, 1)), (n, n))
    column = build.expand(build.reshape(place, (1, n)), (n, n))
    test = build.eq(column, build.add(row, build.const(k, dtypes.int32, (n, n))))
    return _keeping(x, build.where(test, rows, build.like(rows, 0)))


# ---- indexed reads ----------------------------------------------------------------------------


@public
def take(a: ArrayLike, indices: ArrayLike, axis: int | None = None, out: None = None,
         mode: TakeMode = None, unique_indices: bool = False, indices_are_sorted: bool = False,
         fill_value: ArrayLike | None = None) -> Array:
    """Elements (or slices along an axis) at indices.

    Args:
        mode: of indices outside: "fill" (default; NaN, the smallest int, or ``fill_value``),
            "clip" or "wrap".

    >>> import fnx.numpy as jnp
    >>> jnp.take(jnp.arange(10) * 2, jnp.asarray([1, 3]))
    Array([2, 6], dtype=int32)
    """
    arguments.no_out(out)
    arguments.promises(indices_are_sorted, unique_indices)
    arguments.one_of("mode", mode, ("fill", "clip", "wrap", "promise_in_bounds", None))
    x = core.asarray(a)
    if axis is None:
        x, axis = ravel(x), 0
    at = axes.one(axis, x.ndim)
    index = core.asarray(np.asarray(indices) if isinstance(indices, (list, tuple)) else indices)
    if mode == "wrap":
        index = index % x.shape[at]
    if mode == "clip":
        index = maximum(index, 0)
    reading: ReadMode = "fill" if mode in (None, "fill") else "clip"
    return operate.at_get(x, (slice(None),) * at + (index,), reading, fill_value)


@public
def take_along_axis(arr: ArrayLike, indices: ArrayLike, axis: int | None = -1,
                    mode: ReadMode = None, fill_value: ArrayLike | None = None) -> Array:
    """The element along an axis that an index array of the same rank picks, at each place.

    >>> import fnx.numpy as jnp
    >>> x = jnp.asarray([[1.0, 2.0], [3.0, 4.0]])
    >>> jnp.take_along_axis(x, jnp.asarray([[1], [0]]), axis=1)
    Array([[2.],
           [3.]], dtype=float32)
    """
    arguments.one_of("mode", mode, ("fill", "clip", "promise_in_bounds", None))
    x, index = core.asarray(arr), core.asarray(indices)
    if axis is None:
        x, index, axis = ravel(x), ravel(index), 0
    if x.ndim != index.ndim:
        raise ShapeError(f"take_along_axis: expected indices of {x.ndim} axes, got shape "
                         f"{index.shape}", hint="insert axes with indices[..., None]")
    at = axes.one(axis, x.ndim)
    shape = build.broadcast_shapes(
        *[(*s[:at], 1, *s[at + 1:]) for s in (x.shape, index.shape)])
    entries: list[Any] = []
    for i, n in enumerate(shape):
        if i == at:
            entries.append(index)
        elif x.shape[i] == 1:
            entries.append(0)
        else:
            line = build.reshape(build.iota(n), tuple(n if j == i else 1 for j in range(x.ndim)))
            entries.append(Array(line))
    out = operate.at_get(x, tuple(entries), mode or "fill", fill_value)
    wanted = (*shape[:at], index.shape[at], *shape[at + 1:])
    return _keeping(x, build.expand(out._node, wanted))
