"""Shape queries, reshaping, axis permutations, broadcasting and joining."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np

from fnx.core.array import arguments, array_operators, axes
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.array_operators import record
from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.array.axes import AxisLike, ShapeLike
from fnx.core.array.convert import DTypeLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.promotion import promote_operands
from fnx.core.ir import build
from fnx.core.ir.uop import UOp
from fnx.core.rewriting.dimensions import is_equal
from fnx.core.support.errors import ArgumentError, AxisError, ShapeError

__all__ = [
    "broadcast_arrays", "broadcast_shapes", "broadcast_to", "column_stack", "concat",
    "concatenate", "expand_dims", "hstack", "moveaxis", "ndim", "permute_dims", "ravel", "reshape",
    "shape", "size", "squeeze", "stack", "swapaxes", "transpose", "vstack",
]


ElementOrder: TypeAlias = Literal["C", "F"]


@public_api
def shape(a: Any) -> tuple[int, ...]:
    """Return the lengths of the axes.

    Args:
        a: an Array or array-like.

    Returns:
        A tuple of ints.

    >>> shape([[1, 2]])
    (1, 2)
    """
    return _dims(a)


@public_api
def ndim(a: Any) -> int:
    """Return the number of axes.

    Args:
        a: an Array or array-like.

    Returns:
        An int.

    >>> ndim([[1, 2]])
    2
    """
    return len(_dims(a))


@public_api
def size(a: Any, axis: AxisLike = None) -> int:
    """Return the number of elements, in total or along some axes.

    Args:
        a: an Array or array-like.
        axis: the axis or axes; None means all.

    Returns:
        An int.

    >>> size([[1, 2]], 0)
    1
    """
    dims = _dims(a)
    return math.prod([dims[i] for i in axes.sorted_axes(axis, len(dims))])


def _dims(a: Any) -> tuple[int, ...]:
    """Return the lengths of the axes of an array-like or a ShapeDtypeStruct; None has no axes."""
    if a is None:
        return ()
    return a.shape if isinstance(a, ShapeDtypeStruct) else asarray(a).shape


def wrap_like(x: Array, node: UOp) -> Array:
    """Wrap a node with rearranged elements of x, keeping the weak type of x."""
    return Array(node, x.weak)


_docstr = DocTemplate(
    a="an Array or array-like of any shape and dtype.",
    ary="an Array or array-like of any shape and dtype.",
    axis="the axis; negative values count from the end.",
    dtype="the dtype of the result; by default the common one.",
    order='the order of the elements: "C" (row-major) or "F" (column-major).',
    returns="An Array of the dtype of a.",
    raises=("ShapeError: the shapes do not broadcast.",))


@_docstr(shape="an int or ints; one may be -1, which is inferred.",
         copy="accepted for NumPy compatibility; as Arrays are immutable, it has no effect.",
         raises=("ShapeError: the number of elements differs.",
                 "ArgumentError: the ``order`` is unknown."))
def reshape(a: ArrayLike, shape: ShapeLike, order: ElementOrder = "C", *,
            copy: bool | None = None) -> Array:
    """Return the elements in another shape; one length may be -1, which is inferred.

    >>> jnp.reshape(jnp.arange(4), (2, -1))
    Array([[0, 1],
           [2, 3]], dtype=int32)
    """
    x = asarray(a)
    arguments.check_optional_bool("copy", copy)
    arguments.check_choice("order", order, ("C", "F"))
    node = x._node
    new_shape = _resolve_shape(x, shape)
    if order == "C":
        return wrap_like(x, build.reshape(node, new_shape))
    columns = build.reshape(_reverse_axes(node), new_shape[::-1])
    return wrap_like(x, _reverse_axes(columns))


def _reverse_axes(node: UOp) -> UOp:
    """Reverse the order of the axes."""
    return build.permute(node, range(len(node.shape))[::-1])


def _resolve_shape(x: Array, shape: Any) -> tuple[int, ...]:
    """Resolve the -1 of a shape argument."""
    if getattr(shape, "ndim", None) == 1:  # an array of lengths
        shape = np.asarray(shape).tolist()
    lengths = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    inferred = [i for i, n in enumerate(lengths) if type(n) is int and n == -1]
    if len(inferred) > 1:
        raise ShapeError(f"reshape: expected at most one -1, got {tuple(lengths)}",
                         hint="pass all lengths but one")
    for i in inferred:
        known = math.prod(axes.normalize_shape(lengths[:i] + lengths[i + 1:]))
        if known == 0 or x.size % known:
            raise ShapeError(f"reshape: expected {x.size} elements, got shape {tuple(lengths)}",
                             hint="the other lengths must divide the number of elements")
        lengths[i] = x.size // known
    out = axes.normalize_shape(lengths)
    if math.prod(out) != x.size:
        raise ShapeError(f"reshape: expected {x.size} elements, as in {x.shape}; got shape {out}",
                         hint="the product of the lengths must stay the same")
    return out


@_docstr("An Array of one axis, of the dtype of a.", ("ArgumentError: the ``order`` is unknown.",))
def ravel(a: ArrayLike, order: ElementOrder = "C") -> Array:
    """Flatten an array to a vector.

    >>> jnp.ravel(jnp.ones((2, 1)))
    Array([1., 1.], dtype=float32)
    """
    return reshape(a, -1 if asarray(a).size else (0,), order)


@_docstr(raises=("AxisError: the axes are not a permutation.",),
         axes="the axis of a for each axis of the result; by default the reverse order.")
def transpose(a: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """Permute the axes; by default, reverse them.

    >>> jnp.transpose(jnp.zeros((2, 3))).shape
    (3, 2)
    """
    x = asarray(a)
    order = tuple(range(x.ndim))[::-1] if axes is None else _permutation(x, axes)
    return wrap_like(x, build.permute(x._node, order))


def _permutation(x: Array, axes_arg: Sequence[int]) -> tuple[int, ...]:
    order = axes.normalize_axis_tuple(axes_arg, x.ndim)
    if len(order) != x.ndim:
        raise AxisError(f"transpose: expected {x.ndim} axes, got {tuple(axes_arg)}",
                        hint="name each axis exactly once")
    return order


@_docstr(raises=("AxisError: the axes are not a permutation.",),
         axes="the axis of a for each axis of the result.")
def permute_dims(a: ArrayLike, /, axes: Sequence[int]) -> Array:
    """Permute the axes; the name of the array API standard.

    >>> jnp.permute_dims(jnp.zeros((2, 3)), (1, 0)).shape
    (3, 2)
    """
    return transpose(a, axes)


@_docstr(raises=("AxisError: the axis is out of range.",), axis1="the first axis.",
         axis2="the second axis.")
def swapaxes(a: ArrayLike, axis1: int, axis2: int) -> Array:
    """Swap two axes.

    >>> jnp.swapaxes(jnp.zeros((2, 3, 4)), 0, -1).shape
    (4, 3, 2)
    """
    x = asarray(a)
    order = list(range(x.ndim))
    i, j = (axes.normalize_axis(a, x.ndim) for a in (axis1, axis2))
    order[i], order[j] = j, i
    return wrap_like(x, build.permute(x._node, order))


@_docstr(source="the axis or axes to move.", destination="the position of each in the result.",
         raises=("AxisError: an axis is out of range, or source and destination differ in "
                 "number.",))
def moveaxis(a: ArrayLike, source: Any, destination: Any) -> Array:
    """Move axes to other positions; the remaining axes keep their order.

    >>> jnp.moveaxis(jnp.zeros((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    x = asarray(a)
    pairs = [(s,) if isinstance(s, int) else tuple(s) for s in (source, destination)]
    sources, targets = (axes.normalize_axis_tuple(p, x.ndim) for p in pairs)
    if len(sources) != len(targets):
        raise AxisError(f"moveaxis: expected source and destination of equal length, got {source}, "
                        f"{destination}")
    order = [i for i in range(x.ndim) if i not in sources]
    for target, axis in sorted(zip(targets, sources)):
        order.insert(target, axis)
    return wrap_like(x, build.permute(x._node, order))


@_docstr(raises=("AxisError: an axis is out of range or repeated.",),
         axis="the positions of the new axes in the result, one or several.")
def expand_dims(a: ArrayLike, axis: AxisLike) -> Array:
    """Insert axes of length 1 at the given positions of the result.

    >>> jnp.expand_dims(jnp.zeros(3), 0).shape
    (1, 3)
    >>> jnp.expand_dims(jnp.zeros(3), range(2)).shape
    (1, 1, 3)
    """
    x = asarray(a)
    positions = tuple(axis) if isinstance(axis, Sequence) else (axis,)
    new = axes.normalize_axis_tuple(positions, x.ndim + len(positions))
    lengths = iter(x.shape)
    shape = tuple(1 if i in new else next(lengths) for i in range(x.ndim + len(positions)))
    return wrap_like(x, build.reshape(x._node, shape))


@_docstr(axis="the axis or axes to remove; by default all of length 1.",
         raises=("ShapeError: the length of an axis is not 1.",
                 "AxisError: the axis is out of range."))
def squeeze(a: ArrayLike, axis: AxisLike = None) -> Array:
    """Remove axes of length 1: all of them, or those given.

    >>> jnp.squeeze(jnp.zeros((1, 3, 1))).shape
    (3,)
    """
    x = asarray(a)
    removed = {i for i, n in enumerate(x.shape) if is_equal(n, 1)} if axis is None else \
        set(axes.sorted_axes(axis, x.ndim))
    for i in removed:
        if not is_equal(x.shape[i], 1):
            raise ShapeError(f"squeeze: expected an axis of length 1, got axis {i} of {x.shape}",
                             hint="use reshape, or index the axis")
    return wrap_like(x, build.reshape(x._node, tuple(
        n for i, n in enumerate(x.shape) if i not in removed)))


@_docstr("An Array of this shape, of the dtype of the array.",
         ("ShapeError: the array does not broadcast to the shape.",),
         array="an Array or array-like of any shape and dtype.",
         shape="the shape of the result: an int or ints, static under tracing.")
def broadcast_to(array: ArrayLike, shape: ShapeLike) -> Array:
    """Broadcast an array to a shape.

    >>> jnp.broadcast_to(jnp.arange(2), (2, 2))
    Array([[0, 1],
           [0, 1]], dtype=int32)
    """
    x = asarray(array)
    return wrap_like(x, build.expand(x._node, axes.normalize_shape(shape)))


@_docstr("A list of Arrays of one shape, each with its own dtype.", args="Arrays or array-likes.")
def broadcast_arrays(*args: ArrayLike) -> list[Array]:
    """Broadcast arrays to their common shape.

    >>> [x.shape for x in jnp.broadcast_arrays(jnp.zeros(3), 1.0)]
    [(3,), (3,)]
    """
    xs = [asarray(x) for x in args]
    shape = axes.broadcast_shapes(*[x.shape for x in xs])
    return [wrap_like(x, build.expand(x._node, shape)) for x in xs]


@_docstr("A tuple of ints.", shapes="ints, or sequences of ints.")
def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """Return the shape that arrays of these shapes broadcast to.

    >>> jnp.broadcast_shapes((2, 1), (3,))
    (2, 3)
    """
    return axes.broadcast_shapes(*[axes.normalize_shape(s) for s in shapes])


def _array_list(name: str, arrays: Any) -> list[Any]:
    try:
        xs = list(arrays)
    except TypeError:
        raise ArgumentError(f"{name}: expected a sequence of arrays, got "
                            f"{type(arrays).__name__}") from None
    if not xs:
        raise ArgumentError(f"{name}: expected at least one array, got none",
                            hint="start with fnx.numpy.zeros if the list may be empty")
    return [asarray(x) for x in xs]


@public_api
def concatenate(arrays: Any, axis: int | None = 0, dtype: DTypeLike | None = None) -> Array:
    """Concatenate arrays along an existing axis.

    Args:
        arrays: Arrays whose other axes agree; they are promoted to a common dtype.
        axis: the axis; None flattens the arrays first.
        dtype: the dtype of the result; by default the common one.

    Returns:
        An Array of ``dtype`` or the common dtype.

    Raises:
        ArgumentError: there are no arrays.
        ShapeError: the arrays are 0-d, or their other axes differ.
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> jnp.concatenate([jnp.zeros(1), jnp.ones(2)])
    Array([0., 1., 1.], dtype=float32)
    """
    xs = _array_list("concatenate", arrays)
    if axis is None:
        xs, axis = [ravel(x) for x in xs], 0
    if xs[0].ndim == 0:
        raise ShapeError("concatenate: expected arrays of at least one axis, got 0-d ones",
                         hint="use stack")
    nodes, weak = promote_operands("any", "concatenate", xs, broadcast=False)
    out = Array(build.concat(nodes, axes.normalize_axis(axis, xs[0].ndim)), weak)
    return out if dtype is None else array_operators.astype(out, dtype)


@_docstr("An Array of the common dtype.", arrays="Arrays whose other axes agree.",
         axis="the axis; None flattens the arrays first.",
         raises=("ArgumentError: there are no arrays.", "ShapeError: the other axes differ.",
                 "AxisError: the axis is out of range."))
def concat(arrays: Any, /, *, axis: int | None = 0) -> Array:
    """Concatenate arrays along an existing axis; the name of the array API standard.

    >>> jnp.concat([jnp.zeros(1), jnp.ones(2)])
    Array([0., 1., 1.], dtype=float32)
    """
    return concatenate(arrays, axis)


@public_api
def stack(arrays: Any, axis: int = 0, out: None = None, dtype: DTypeLike | None = None) -> Array:
    """Stack arrays of one shape along a new axis.

    Args:
        arrays: Arrays of one shape.
        axis: the position of the new axis in the result.
        out: unsupported; must be None.
        dtype: the dtype of the result; by default the common one.

    Returns:
        An Array with one more axis, of ``dtype`` or the common dtype.

    Raises:
        ArgumentError: there are no arrays.
        ShapeError: the shapes differ.
        AxisError: the axis is out of range.

    >>> import fnx.numpy as jnp
    >>> jnp.stack([jnp.zeros(2), jnp.ones(2)], axis=1).shape
    (2, 2)
    """
    xs = _array_list("stack", arrays)
    for x in xs:
        if x.shape != xs[0].shape:
            raise ShapeError(f"stack: expected arrays of equal shape, got {xs[0].shape} and "
                             f"{x.shape}",
                             hint="call broadcast_arrays first")
    stacked: Array = concatenate([expand_dims(x, axis) for x in xs], axis=axis, dtype=dtype)
    operands = [build.cast(x._node, stacked._dtype) for x in xs]
    return record(stacked, "stack", stack_by_params, *operands,
                  axis=axes.normalize_axis(axis, stacked.ndim))


def stack_by_params(*xs: Any, axis: int) -> Array:
    """Stack arrays, as JAX's primitive does."""
    out: Array = stack(xs, axis)
    return out


def _with_min_rank(min_rank: int, x: Array, columns: bool = False) -> Array:
    if x.ndim >= min_rank:
        return x
    if columns:
        return reshape(x, (-1, 1)) if x.ndim else reshape(x, (1, 1))
    return reshape(x, (1,) * (min_rank - x.ndim) + x.shape)


@_docstr("An Array of at least two axes.",
         ("ArgumentError: there are no arrays.", "ShapeError: the other axes differ."),
         tup="Arrays of one axis (a row each) or more.")
def vstack(tup: Any, dtype: DTypeLike | None = None) -> Array:
    """Stack arrays vertically (along axis 0); vectors become rows.

    >>> jnp.vstack([jnp.zeros(2), jnp.ones(2)]).shape
    (2, 2)
    """
    return concatenate([_with_min_rank(2, x) for x in _array_list("vstack", tup)], 0, dtype)


@_docstr("An Array.", ("ArgumentError: there are no arrays.", "ShapeError: the other axes differ."),
         tup="Arrays whose other axes agree; they are promoted to a common dtype.")
def hstack(tup: Any, dtype: DTypeLike | None = None) -> Array:
    """Stack arrays horizontally: along axis 1, or along axis 0 for vectors.

    >>> jnp.hstack([jnp.zeros(2), jnp.ones(1)])
    Array([0., 0., 1.], dtype=float32)
    """
    xs = [_with_min_rank(1, x) for x in _array_list("hstack", tup)]
    return concatenate(xs, 0 if xs[0].ndim == 1 else 1, dtype)


@_docstr("An Array of at least two axes.",
         ("ArgumentError: there are no arrays.", "ShapeError: the numbers of rows differ."),
         tup="Arrays of one axis (a column each) or two.")
def column_stack(tup: Any) -> Array:
    """Stack vectors as the columns of a matrix.

    >>> jnp.column_stack([jnp.zeros(2), jnp.ones(2)])
    Array([[0., 1.],
           [0., 1.]], dtype=float32)
    """
    return concatenate([_with_min_rank(2, x, True) for x in _array_list("column_stack", tup)], 1)
