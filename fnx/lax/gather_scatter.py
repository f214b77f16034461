"""Gather and scatter of ``jax.lax``: read and write windows at computed indices.

    gather    out[b, w] = x[start[b] + w]            w counts within a window
    scatter   x[start[b] + w] = updates[b, w]        or combined with the old value, in order

Dimension numbers say which axes are b, which are w, and which axes of x the components of an index
vector address. Each is one GATHER or SCATTER over the indexed axes; the other axes are sliced.
A window is out of bounds if any part of it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import fnx.numpy as jnp
from fnx.core.array import arguments, axes, indexing
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.gather_numbers import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)
from fnx.core.array.promotion import as_node
from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.expr import Expr, where
from fnx.core.ir.ops import Op, Shape
from fnx.core.ir.uop import UOp, set_composite
from fnx.core.support.errors import ArgumentError, DTypeError, ShapeError
from fnx.core.support.process import lazy_import
from fnx.lax.control_flow import fori_loop
from fnx.lax.window_plan import WindowPlan, index_vectors

complex_scatter = lazy_import("fnx.core.formulas.complex_scatter")

__all__ = [
    "GatherDimensionNumbers", "GatherScatterMode", "ScatterDimensionNumbers", "gather", "scatter",
    "scatter_add", "scatter_apply", "scatter_max", "scatter_min", "scatter_mul", "scatter_sub",
]


ScatterModeLike = str | GatherScatterMode | None


def _parse_numbers(numbers: Any, cls: type[Any], name: str) -> list[tuple[int, ...]]:
    if type(numbers) is not cls:
        raise ArgumentError(f"expected dimension_numbers as {cls.__name__}(...), got {numbers!r}",
                            hint=f"help(lax.{cls.__name__}) explains its axes")
    return [tuple([arguments.check_int(name, n) for n in field]) for field in numbers]


@public_api
def gather(operand: ArrayLike, start_indices: ArrayLike,
           dimension_numbers: GatherDimensionNumbers, slice_sizes: Sequence[int], *,
           unique_indices: bool = False, indices_are_sorted: bool = False,
           mode: ScatterModeLike = None, fill_value: ArrayLike | None = None) -> Array:
    """Gather windows of an array at computed indices.

    Args:
        operand: an Array or array-like of any dtype.
        start_indices: integers; the last axis holds index vectors, the starts of the windows.
        dimension_numbers: the roles of the axes.
        slice_sizes: the size of a window along each axis of the operand.
        unique_indices: a promise; unused.
        indices_are_sorted: a promise; unused.
        mode: how to read windows that are out of bounds: "promise_in_bounds" (default) reads the
            nearest window as a constant, "clip" the nearest window, "fill" the fill value; or a
            GatherScatterMode.
        fill_value: the value for "fill"; by default NaN, the smallest int, the largest unsigned
            int, or True.

    Returns:
        An Array with the batch axes of the indices and, at ``offset_dims``, the window axes.

    Raises:
        ArgumentError: the dimension numbers are of another class or inconsistent, or the mode is
            unknown.
        AxisError: an axis is out of range or repeated.
        ShapeError: windows are larger than the array, or index vectors have another length.
        DTypeError: the indices are not integers.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> rows = lax.GatherDimensionNumbers((1,), (0,), (0,))
    >>> lax.gather(jnp.arange(6).reshape(3, 2), jnp.asarray([[2], [0]]), rows, (1, 2))
    Array([[4, 5],
           [0, 1]], dtype=int32)
    """
    resolved_mode = GatherScatterMode.from_any("promise_in_bounds" if mode is None else mode)
    x = asarray(operand)
    vectors, batch = index_vectors(asarray(start_indices))
    offset, collapsed, index_map, batching, index_batching = _parse_numbers(
        dimension_numbers, GatherDimensionNumbers, "dimension_numbers")
    size = axes.normalize_shape(slice_sizes)
    if len(size) != x.ndim or len(batching) != len(index_batching):
        raise ShapeError(f"expected {x.ndim} slice_sizes, and equally many batching axes of "
                         f"operand and indices, got {size}, {batching} and {index_batching}")
    plan = WindowPlan(x.shape, size, index_map, collapsed, tuple(zip(batching, index_batching)),
                      batch)
    plan.check(offset, len(batch) + len(plan.window_dims), vectors.shape[-1])
    starts, in_bounds = plan.starts(vectors, True)
    out = _gather_windows(x._node, plan, starts)
    if resolved_mode is not GatherScatterMode.CLIP and in_bounds is not None:
        fill = indexing.default_fill(x._node) if fill_value is None else \
            as_node(asarray(fill_value), x._dtype)
        fallback = build.stop_gradient(out) \
            if resolved_mode is GatherScatterMode.PROMISE_IN_BOUNDS else \
            build.expand(fill, out.shape)
        in_bounds = build.reshape(in_bounds, (*batch, *(1,) * (len(out.shape) - len(batch))))
        out = build.where(build.expand(in_bounds, out.shape), out, fallback)
    order = plan.result_order(offset)
    windows = build.permute(out, sorted(range(len(order)), key=order.__getitem__))
    set_composite(windows, "gather", gather, [x._node, asarray(start_indices)._node],
                  dimension_numbers=dimension_numbers, slice_sizes=size,
                  indices_are_sorted=indices_are_sorted, unique_indices=unique_indices,
                  mode=resolved_mode, fill_value=fill_value)
    return Array(windows, x.weak)


def _gather_windows(x: UOp, plan: WindowPlan, starts: dict[int, Expr]) -> UOp:
    """Read the windows: batch axes, then ``window_axes``."""
    shape = (*plan.batch, *[plan.size[a] for a in plan.window_axes()])
    if 0 in shape:
        return build.const(0, x.dtype, shape)
    if not plan.indexed_axes:
        return build.expand(build.reshape(x, (*(1,) * len(plan.batch), *x.shape)), shape)
    return build.gather(x, *plan.indices(starts), axes=plan.indexed_axes)


# ---- written ------------------------------------------------------------------------------------


def _scatter(operand: ArrayLike, indices: ArrayLike, updates: ArrayLike,
             dimension_numbers: ScatterDimensionNumbers, monoid: Op | None,
             mode: ScatterModeLike) -> Array:
    x, update_array = asarray(operand), asarray(updates)
    if update_array._dtype is not x._dtype and not update_array.weak:
        raise DTypeError(f"expected updates of {x._dtype}, got {update_array._dtype}",
                         hint=f"convert them with .astype({x._dtype})")
    vectors, plan, windows = _scatter_plan(x.shape, asarray(indices), update_array.shape,
                                           dimension_numbers)
    resolved_mode = GatherScatterMode.from_any(mode)
    starts, in_bounds = plan.starts(vectors, resolved_mode is GatherScatterMode.CLIP)
    if in_bounds is not None and resolved_mode is not GatherScatterMode.CLIP:
        first_axis = plan.index_map[0]  # start past the end: the whole window is out of bounds
        start = where(Expr(in_bounds), starts[first_axis], plan.shape[first_axis])
        starts = {**starts, first_axis: start}
    order = plan.result_order(windows)
    value = build.permute(as_node(update_array, x._dtype), order)
    return Array(_scatter_windows(x._node, plan, starts, value, monoid), x.weak)


def _scatter_plan(shape: Shape, indices: Array, updates: Shape,
                  dimension_numbers: ScatterDimensionNumbers
                  ) -> tuple[UOp, WindowPlan, tuple[int, ...]]:
    """Return the index vectors, the window plan, and the window axes of the updates."""
    vectors, batch = index_vectors(indices)
    windows, collapsed, index_map, batching, index_batching = _parse_numbers(
        dimension_numbers, ScatterDimensionNumbers, "dimension_numbers")
    plan = WindowPlan(shape, (1,) * len(shape), index_map, collapsed,
                      tuple(zip(batching, index_batching)), batch)
    if len(windows) != len(plan.window_dims) or len(updates) != len(batch) + len(windows) or \
            len(batching) != len(index_batching):
        raise ShapeError(f"expected updates of {len(batch)} batch axes and {len(plan.window_dims)} "
                         f"window axes, got shape {updates} with window axes {windows}")
    axes.normalize_axis_tuple(windows, len(updates))
    size = [min(1, n) for n in shape]
    for a, w in zip(plan.window_dims, sorted(windows)):
        size[a] = updates[w]
    plan = plan.replace(size=tuple(size))
    plan.check(windows, len(updates), vectors.shape[-1])
    others = tuple([n for a, n in enumerate(updates) if a not in windows])
    if others != batch:
        raise ShapeError(f"expected updates with batch shape {batch}, got {others}")
    return vectors, plan, windows


def _scatter_windows(x: UOp, plan: WindowPlan, starts: dict[int, Expr], value: UOp,
                     monoid: Op | None
                     ) -> UOp:
    """SCATTER the windows of ``value`` (batch axes, then ``window_axes``) into the array."""
    if 0 in value.shape:
        return x
    monoid = None if monoid is None else monoid.for_dtype(x.dtype)
    out: UOp
    if not plan.indexed_axes:  # windows are the whole array, once per batch element
        value = build.reshape(value, (math.prod(plan.batch), *x.shape))
        index = [build.const(0, dtypes.int32, value.shape[:1])]
        out = complex_scatter.scatter(build.reshape(x, (1, *x.shape)), index, value, monoid)
        return build.reshape(out, x.shape)
    out = complex_scatter.scatter(x, plan.indices(starts), value, monoid, plan.indexed_axes)
    return out


_docstr = DocTemplate(
    operand="an Array or what ``asarray`` takes.",
    scatter_indices="integers; the last axis has the vectors that say where windows begin.",
    updates="over the other axes of the indices and those of windows, of the operand's\ndtype.",
    dimension_numbers="which axes are which.",
    indices_are_sorted="a promise, which nothing here needs.",
    unique_indices="a promise, which nothing here needs.",
    mode='of windows that are not inside: "drop" (default), "clip" or\n'
         '"promise_in_bounds", or a GatherScatterMode.',
    returns="An Array of the shape and dtype of the operand. Updates of one place follow one\n"
            "another in the order of the indices.",
    raises=("ArgumentError: dimension numbers of another kind, or that do not fit; another mode.",
            "AxisError: an axis that is not there, or is named twice.",
            "ShapeError: windows larger than the array; updates of another shape.",
            "DTypeError: indices that are no integers; updates of another dtype."),
    imports="fnx.lax as lax, fnx.numpy as jnp")
_SUMMARY = "An array with windows at places that are data {}."
_EXAMPLE = """numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> x, at = jnp.asarray([5, 6, 7]), jnp.asarray([[2], [0], [2]])
    >>> lax.{}(x, at, jnp.asarray([1, 2, 9]), numbers)"""


@_docstr.family()
def _scattering(kind: tuple[Op | None, bool], operand: ArrayLike, scatter_indices: ArrayLike,
                updates: ArrayLike, dimension_numbers: ScatterDimensionNumbers, *,
                indices_are_sorted: bool = False, unique_indices: bool = False,
                mode: ScatterModeLike = None) -> Array:
    monoid, is_negative = kind
    x, indices, values = asarray(operand), asarray(scatter_indices), asarray(updates)
    out = _scatter(x, indices, -values if is_negative else values, dimension_numbers, monoid, mode)
    name = "sub" if is_negative else None if monoid is None else monoid.name.lower()
    set_composite(out._node, f"scatter-{name}" if name else "scatter", _scatterings[name],
                  [x._node, indices._node, as_node(values, x._dtype)],
                  dimension_numbers=dimension_numbers, indices_are_sorted=indices_are_sorted,
                  unique_indices=unique_indices, mode=GatherScatterMode.from_any(mode),
                  update_jaxpr=None, update_consts=())
    return out


def scatter_by_params(f: Callable[..., Array]) -> Callable[..., Array]:
    """Return a function of scatter that takes the params of the primitive, which say less."""
    def compute(x: Any, indices: Any, updates: Any, *, dimension_numbers: Any, mode: Any = None,
                **ignored: Any) -> Array:
        return f(x, indices, updates, dimension_numbers, mode=mode)
    return compute


scatter = _scattering(
    (None, False), "scatter", _SUMMARY.format("replaced"),
    _EXAMPLE.format("scatter"), "Array([2, 6, 9], dtype=int32)")
scatter_add = _scattering(
    (ops.ADD, False), "scatter_add", _SUMMARY.format("to which updates are added"),
    _EXAMPLE.format("scatter_add"), "Array([ 7,  6, 17], dtype=int32)")
scatter_sub = _scattering(
    (ops.ADD, True), "scatter_sub", _SUMMARY.format("from which updates are subtracted"),
    _EXAMPLE.format("scatter_sub"), "Array([ 3,  6, -3], dtype=int32)")
scatter_mul = _scattering(
    (ops.MUL, False), "scatter_mul", _SUMMARY.format("with which updates are multiplied"),
    _EXAMPLE.format("scatter_mul"), "Array([10,  6, 63], dtype=int32)")
scatter_min = _scattering(
    (ops.MIN, False), "scatter_min",
    _SUMMARY.format("of which the smaller of them and updates stay"),
    _EXAMPLE.format("scatter_min"), "Array([2, 6, 1], dtype=int32)")
scatter_max = _scattering(
    (ops.MAX, False), "scatter_max",
    _SUMMARY.format("of which the larger of them and updates stay"),
    _EXAMPLE.format("scatter_max"), "Array([5, 6, 9], dtype=int32)")
_scatterings = {name: scatter_by_params(f) for name, f in {
    None: scatter, "add": scatter_add, "sub": scatter_sub, "mul": scatter_mul, "min": scatter_min,
    "max": scatter_max}.items()}


@public_api
def scatter_apply(operand: ArrayLike, scatter_indices: ArrayLike, func: Callable[[Array], Array],
                  dimension_numbers: ScatterDimensionNumbers, *, update_shape: Sequence[int] = (),
                  indices_are_sorted: bool = False, unique_indices: bool = False,
                  mode: ScatterModeLike = None) -> Array:
    """Apply a function to windows of an array at computed indices.

    Args:
        operand: an Array or array-like.
        scatter_indices: integers; the last axis holds index vectors, the starts of the windows.
        func: an elementwise function; applied to an element once per window that contains it.
        dimension_numbers: the roles of the axes.
        update_shape: the shape that updates would have.
        indices_are_sorted: a promise; unused.
        unique_indices: a promise that no element is in two windows, which saves the counting.
        mode: how to treat windows that are out of bounds: "drop" (default), "clip" or
            "promise_in_bounds", or a GatherScatterMode.

    Returns:
        An Array of the shape and dtype of the operand.

    Raises:
        ArgumentError: the dimension numbers are of another class or inconsistent, or the mode is
            unknown.
        AxisError: an axis is out of range or repeated.
        ShapeError: windows are larger than the array.
        DTypeError: the indices are not integers, or ``func`` returns another dtype.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> at = jnp.asarray([[2], [0], [2]])
    >>> lax.scatter_apply(jnp.asarray([5, 6, 7]), at, lambda x: 2 * x, numbers, update_shape=(3,))
    Array([10,  6, 28], dtype=int32)
    """
    x = asarray(operand)
    ones = Array(build.const(1, dtypes.int32, axes.normalize_shape(update_shape)))
    zeros = Array(build.const(0, dtypes.int32, x.shape))
    count = _scatter(zeros, scatter_indices, ones, dimension_numbers, ops.ADD, mode)

    def apply_where(y: Array, times: ArrayLike) -> Array:
        result = asarray(func(y))
        if result._dtype is not x._dtype or result.shape != x.shape:
            raise DTypeError(f"expected func to return {x._aval}, got {result._aval}",
                             hint="func must return one element of the same shape and dtype")
        return jnp.where(count > times, result, y)

    if unique_indices or not x.size:
        return apply_where(x, 0)
    max_count = jnp.max(count)
    out: Array = fori_loop(0, max_count, lambda i, y: apply_where(y, i), x)
    return out
