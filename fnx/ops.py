"""Segment reductions, as in ``jax.ops``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import fnx.numpy as jnp
from fnx.core.array import arguments, axes
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array, ArrayLike
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.ir import build
from fnx.core.support.errors import ArgumentError, ShapeError, lazy_module
from fnx.numpy.histograms import widen_indices

__all__ = ["segment_max", "segment_min", "segment_prod", "segment_sum"]

SegmentMode = Literal["drop", "clip", "fill", "promise_in_bounds"] | None

_docstr = DocTemplate(
    data="of at least one axis.", segment_ids="the number of the segment of each row of data.",
    num_segments="how many segments the result has; by default the largest number and one.",
    indices_are_sorted="a promise, which nothing here needs.",
    unique_indices="a promise, which nothing here needs.",
    bucket_size="None: sums are not cut into buckets.",
    mode='of numbers outside: "drop" (default) or "clip".',
    returns="An Array with a row for each segment.", imports="fnx.ops as ops",
    raises=("ShapeError: not one number for each row.",
            "TracedValueError: no ``num_segments`` in a trace."))


def _min_value(x: Array) -> Any:
    t = x._dtype
    return -np.inf if t.is_float else t.limits[0]


def _max_value(x: Array) -> Any:
    t = x._dtype
    return np.inf if t.is_float else t.limits[1]


@_docstr.family()
def _segment_reduction(
        reduction: tuple[str, Callable[[Array], Any]], data: ArrayLike, segment_ids: ArrayLike,
        num_segments: int | None = None, indices_are_sorted: bool = False,
        unique_indices: bool = False, bucket_size: None = None, mode: SegmentMode = None,
        out_sharding: None = None) -> Array:
    method, start = reduction
    arguments.check_choice("mode", mode, ("drop", "clip", "fill", "promise_in_bounds", None))
    if bucket_size is not None or out_sharding is not None:
        raise ArgumentError("expected bucket_size=None and out_sharding=None",
                            hint="there is one device")
    x, ids = asarray(data), widen_indices(asarray(segment_ids))
    row = x.shape[ids.ndim:] if ids.ndim and ids.shape == x.shape[:ids.ndim] else x.shape[1:]
    if axes.broadcast_shapes(x.shape, (*ids.shape, *row)) != (*ids.shape, *row):
        raise ShapeError(f"expected a number for each row of shape {x.shape}, got {ids.shape}")
    if num_segments is None:
        values = arguments.values_of(ids, "pass num_segments=, the number of segments: a constant")
        num_segments = int(values.max()) + 1 if values.size else 0
    n = max(arguments.check_int("num_segments", num_segments), 0)
    rows = Array(build.const(start(x), x._dtype, (n, *row)))
    index = jnp.where(ids < 0, n, ids) if mode != "clip" else jnp.maximum(ids, 0)
    result: Array = getattr(rows.at[index], method)(x, mode=mode)
    return result


segment_sum = _segment_reduction(
    ("add", lambda x: 0), "segment_sum", "Sum the rows of each segment.",
    "ops.segment_sum(jnp.arange(3), jnp.asarray([0, 0, 1]))", "Array([1, 2], dtype=int32)")
segment_prod = _segment_reduction(
    ("multiply", lambda x: 1), "segment_prod", "Multiply the rows of each segment.",
    "ops.segment_prod(jnp.arange(1, 4), jnp.asarray([0, 0, 1]))", "Array([2, 3], dtype=int32)")
segment_max = _segment_reduction(
    ("max", _min_value), "segment_max", "Take the maximum over the rows of each segment.",
    "ops.segment_max(jnp.arange(3), jnp.asarray([0, 0, 1]))", "Array([1, 2], dtype=int32)")
segment_min = _segment_reduction(
    ("min", _max_value), "segment_min", "Take the minimum over the rows of each segment.",
    "ops.segment_min(jnp.arange(3), jnp.asarray([0, 0, 1]))", "Array([0, 2], dtype=int32)")


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
