"""GATHER and SCATTER as ``gather`` and ``scatter``: index arrays become vectors of one array.

    GATHER(x: [5, 4], i: [2], axes 0)     ->   j: [2, 1] = broadcast_in_dim i
                                               gather[mode=clip slice_sizes=(1, 4)] x j

An element is a window of size 1 along the indexed axes, and whole along the others.
"""

from __future__ import annotations

from typing import Any

from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.core.array.gather_numbers import (
    GatherDimensionNumbers,
    GatherScatterMode,
    ScatterDimensionNumbers,
)
from fnx.core.ir import build, ops
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError
from fnx.jaxprs.primitive import built_in, define
from fnx.jaxprs.templates import View

_SCATTERS = {None: "scatter", ops.ADD: "scatter-add", ops.MUL: "scatter-mul",
             ops.MIN: "scatter-min", ops.MAX: "scatter-max"}


def gather_row(node: UOp) -> View | None:
    """View a GATHER, or None if its index arrays differ in dtype."""
    x, *index = node.src
    axes, rank = node.arg.axes, len(index[0].shape)
    vectors = _vectors(index)
    if vectors is None:
        return None
    offsets = tuple(range(rank, rank + len(x.shape) - len(axes)))
    return View(built_in("gather"), (x, vectors), {
        "dimension_numbers": GatherDimensionNumbers(offsets, axes, axes),
        "slice_sizes": tuple([1 if a in axes else n for a, n in enumerate(x.shape)]),
        "indices_are_sorted": False, "unique_indices": False, "mode": GatherScatterMode.CLIP,
        "fill_value": None})


def scatter_row(node: UOp) -> View | None:
    """View a SCATTER, or None if its index arrays differ in dtype, or JAX has none like it."""
    x, *index, updates = node.src
    axes, rank = node.arg.axes, len(index[0].shape)
    vectors = _vectors(index)
    if vectors is None or node.arg.monoid not in _SCATTERS:
        return None
    numbers = ScatterDimensionNumbers(tuple(range(rank, len(updates.shape))), axes, axes)
    return View(built_in(_SCATTERS[node.arg.monoid]), (x, vectors, updates), {
        "dimension_numbers": numbers, "indices_are_sorted": False, "unique_indices": False,
        "mode": GatherScatterMode.FILL_OR_DROP, "update_jaxpr": None, "update_consts": ()})


def _vectors(index: list[UOp]) -> UOp | None:
    if any(i.dtype is not index[0].dtype for i in index):
        return None
    columns = [build.reshape(i, (*i.shape, 1)) for i in index]
    return columns[0] if len(columns) == 1 else build.concat(columns, len(index[0].shape))


def _columns(vectors: Any, axes: tuple[int, ...]) -> list[UOp]:
    node = asarray(vectors)._node
    batch = node.shape[:-1]
    return [build.reshape(build.shrink(node, [*[(0, n) for n in batch], (i, i + 1)]), batch)
            for i in range(len(axes))]


def _gather(x: Any, vectors: Any, *, dimension_numbers: Any, mode: Any, **_: Any) -> Array:
    axes = tuple(dimension_numbers.start_index_map)
    _check(mode is GatherScatterMode.CLIP and axes == dimension_numbers.collapsed_slice_dims)
    return Array(build.gather(asarray(x)._node, *_columns(vectors, axes), axes=axes))


def _build_scatter(monoid: ops.Op | None) -> Any:
    def compute(x: Any, vectors: Any, updates: Any, *, dimension_numbers: Any, mode: Any,
                **_: Any) -> Array:
        axes = tuple(dimension_numbers.scatter_dims_to_operand_dims)
        _check(mode is GatherScatterMode.FILL_OR_DROP and
               axes == dimension_numbers.inserted_window_dims)
        return Array(build.scatter(asarray(x)._node, _columns(vectors, axes),
                                   asarray(updates)._node, monoid, axes))
    return compute


def _check(is_plain: bool) -> None:
    if not is_plain:
        raise ArgumentError("expected the params of an equation of make_jaxpr",
                            hint="import fnx.lax.primitives, which takes all params")


define("gather", _gather)
for _monoid, _name in _SCATTERS.items():
    define(_name, _build_scatter(_monoid))
