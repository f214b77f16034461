"""Values between the elements of images: Resize, GridSample, RoiAlign, deformable convolutions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.numpy.weighted_windows import Windows, cubic_far, cubic_near, weigh_windows
from fnx.onnx.evaluate import Node
from fnx.onnx.networks import by_channel
from fnx.onnx.registry import op
from fnx.onnx.types import Value, to_array, type_of

Floats = np.ndarray[Any, Any]


# ---- resizing: positions are known while tracing ------------------------------------------------

_NEAREST: dict[str, Callable[[Floats], Floats]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5), "floor": np.floor, "ceil": np.ceil,
    "round_prefer_ceil": lambda x: np.floor(x + 0.5)}


def _positions(n: Node, mode: str, size: int, count: int, scale: float, roi: Sequence[float]
               ) -> Floats:
    """Return where each of ``count`` results lies among ``size`` elements of an axis."""
    t = np.arange(count, dtype=np.float64)
    start, end = roi
    inside, single = start * (size - 1), count == 1
    by_mode = {
        "half_pixel": lambda: (t + 0.5) / scale - 0.5,
        "half_pixel_symmetric": lambda: size / 2 * (1 - count / (size * scale))
        + (t + 0.5) / scale - 0.5,
        "pytorch_half_pixel": lambda: t if single else (t + 0.5) / scale - 0.5,
        "align_corners": lambda: t if single else t * (size - 1) / (count - 1),
        "asymmetric": lambda: t / scale, "tf_half_pixel_for_nn": lambda: (t + 0.5) / scale,
        "tf_crop_and_resize": lambda: t + (inside + end * (size - 1)) / 2 if single else
        inside + t * (end - start) * (size - 1) / (count - 1)}
    if mode not in by_mode:
        raise n.refuse(f"expected a mode of coordinates, got {mode!r}")
    return by_mode[mode]()


def _weights(at: Floats, size: int, slope: float | None, stretch: float, exclude_outside: int
             ) -> tuple[Floats, Floats]:
    """Return which elements have a weight in each result, and the weights: linear, or cubic with
    a slope; ``stretch``: how much wider the kernel is."""
    radius = (1 if slope is None else 2) * stretch
    index = (np.floor(at - radius) + 1)[:, None] + np.arange(math.ceil(2 * radius))
    d = np.abs(index - at[:, None]) / stretch
    weights = np.maximum(1 - d, 0) if slope is None else \
        np.where(d <= 1, cubic_near(d, slope), np.where(d < 2, cubic_far(d, slope), 0))
    if exclude_outside:
        weights = np.where((index < 0) | (index >= size), 0, weights)
    if exclude_outside or stretch > 1:
        weights = weights / weights.sum(1, keepdims=True)
    return index.astype(np.int64), weights


def _sizes(n: Node, old: Sequence[int], scales: Any, sizes: Any, policy: str
           ) -> tuple[list[int], list[float]]:
    """Return the sizes of the result, and the scale of each axis."""
    if sizes is None or not sizes.size:
        if scales is None or scales.size != len(old):
            raise n.refuse(f"expected {len(old)} scales or sizes")
        factors = [float(s) for s in scales]
        return [int(np.float32(d) * np.float32(s)) for d, s in zip(old, factors)], factors
    if sizes.size != len(old):
        raise n.refuse(f"expected {len(old)} sizes, got {sizes.size}")
    new = [int(s) for s in sizes]
    if policy != "stretch":
        ratios = [a / b for a, b in zip(new, old)]
        factor = min(ratios) if policy == "not_larger" else max(ratios)
        return [math.floor(factor * d + 0.5) for d in old], [factor] * len(old)
    return new, [a / b for a, b in zip(new, old)]


@op("Resize", since=11, static=(1, 2, 3))
def _resize(n: Node, x: Value, roi: Value = None, scales: Value = None, sizes: Value = None, *,
            antialias: int = 0, axes: Any = None,
            coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75,
            exclude_outside: int = 0, extrapolation_value: float = 0.0,
            keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
            nearest_mode: str = "round_prefer_floor") -> Value:
    if mode not in ("nearest", "linear", "cubic") or nearest_mode not in _NEAREST:
        raise n.refuse(f"expected a mode of Resize, got {mode!r} and {nearest_mode!r}")
    over = [a % x.ndim for a in axes] if axes else list(range(x.ndim))
    old, crops = [x.shape[a] for a in over], coordinate_transformation_mode == "tf_crop_and_resize"
    new, factors = _sizes(n, old, scales, sizes, keep_aspect_ratio_policy)
    y = to_array(x)
    y = y if type_of(x).is_inexact or mode == "nearest" else y.astype(jnp.float32)
    outside: Any = False
    for i, axis in enumerate(over):
        ends = (float(roi[i]), float(roi[len(over) + i])) if crops else (0.0, 1.0)
        at = _positions(n, coordinate_transformation_mode, old[i], new[i], factors[i], ends)
        column = (-1,) + (1,) * (x.ndim - 1 - axis)
        if crops:
            outside = outside | ((at < 0) | (at > old[i] - 1)).reshape(column)
        if old[i] == new[i] and np.array_equal(at, np.arange(old[i])):
            continue
        if mode == "nearest":
            nearest = _NEAREST[nearest_mode](at).astype(np.int64)[:, None]
            y = weigh_windows(y, axis, Windows.of(nearest, np.ones(nearest.shape), old[i]))
            continue
        stretch = max(1 / factors[i], 1.0) if antialias else 1.0
        index, weights = _weights(at, old[i], cubic_coeff_a if mode == "cubic" else None, stretch,
                                  exclude_outside)
        y = weigh_windows(y, axis, Windows.of(index, weights, old[i]))
    y = jnp.where(jnp.asarray(outside), extrapolation_value, y) if crops else y
    return y.astype(x.dtype)


@op("Resize", since=10, static=(1,))
@op("Upsample", since=9, static=(1,))
def _upsample(n: Node, x: Value, scales: Value, *, mode: str = "nearest") -> Value:
    return _resize(n, x, scales=scales, mode="nearest" if mode == "nearest" else "linear",
                   coordinate_transformation_mode="asymmetric", nearest_mode="floor")


@op("Upsample", since=7)
def _upsample_7(n: Node, x: Value, *, mode: str = "nearest", scales: Any = ()) -> Value:
    return _upsample(n, x, np.asarray(scales, np.float32), mode=mode)


# ---- sampling: positions are data ---------------------------------------------------------------


def _taps(at: Array, mode: str) -> list[tuple[Array, Any]]:
    """Return the elements around a position of one axis, each with its weight."""
    if mode == "nearest":
        return [(jnp.round(at), 1)]
    low = jnp.floor(at)
    t = at - low
    if mode == "linear":
        return [(low, 1 - t), (low + 1, t)]
    return [(low - 1, cubic_far(1 + t, -0.75)), (low, cubic_near(t, -0.75)),
            (low + 1, cubic_near(1 - t, -0.75)), (low + 2, cubic_far(2 - t, -0.75))]


def _padded(index: Array, size: int, padding: str, align_corners: int) -> Array:
    """Return which element stands for one outside of an axis."""
    if padding == "reflection":
        low, period = (0.0, 2.0 * (size - 1)) if align_corners else (-0.5, 2.0 * size)
        part = jnp.remainder(index - low, max(period, 1.0))
        index = jnp.minimum(part, period - part) + low
    return jnp.clip(index, 0, size - 1)


def _tap_values(x: Array, at: Sequence[Array], mode: str = "linear", padding: str = "zeros",
                align_corners: int = 0) -> list[Array]:
    """Return the weighted elements around positions, which add up to the interpolated values.

    ``x``: (N, C, D1, ..., Dr); ``at``: r arrays of positions (N, ...). Returns (N, C, ...) each.
    """
    rows = jnp.arange(x.shape[0]).reshape((-1,) + (1,) * (at[0].ndim - 1))
    last = jnp.moveaxis(x, 1, -1)
    values = []
    for taps in itertools.product(*[_taps(a, mode) for a in at]):
        weight: Any = 1
        index = [_padded(i, d, padding, align_corners) for (i, _), d in zip(taps, x.shape[2:])]
        for (i, w), inside in zip(taps, index):
            weight = weight * w * ((i == inside) if padding == "zeros" else 1)
        chosen = last[(rows, *[i.astype(jnp.int32) for i in index])]
        values.append(jnp.moveaxis(chosen * jnp.expand_dims(weight, -1).astype(x.dtype), -1, 1))
    return values


@op("GridSample", since=16)
def _grid_sample(n: Node, x: Value, grid: Value, *, align_corners: int = 0, mode: str = "linear",
                 padding_mode: str = "zeros") -> Value:
    x, grid, spatial = to_array(x), to_array(grid), x.shape[2:]
    mode = mode.removeprefix("bi")
    if grid.shape[-1] != len(spatial) or mode not in ("linear", "nearest", "cubic"):
        raise n.refuse(f"expected {len(spatial)} coordinates and a mode of GridSample, got "
                       f"{grid.shape[-1]} and {mode!r}")
    at = [(g + 1) / 2 * (d - 1) if align_corners else ((g + 1) * d - 1) / 2 for g, d in zip(
        [grid[..., len(spatial) - 1 - i] for i in range(len(spatial))], spatial)]
    return sum(_tap_values(x, at, mode, padding_mode, align_corners))


@op("DeformConv")
def _deform_conv(n: Node, x: Value, w: Value, offset: Value, b: Value = None, mask: Value = None,
                 *, dilations: Any = None, group: int = 1, kernel_shape: Any = None,
                 offset_group: int = 1, pads: Any = None, strides: Any = None) -> Value:
    x, w, offset = to_array(x), to_array(w), to_array(offset)
    rank, kernel, count = x.ndim - 2, w.shape[2:], math.prod(w.shape[2:])
    strides, dilations, pads = strides or [1] * rank, dilations or [1] * rank, pads or [0] * rank
    batch, channels, out = x.shape[0], x.shape[1], offset.shape[2:]
    offset = offset.reshape((batch * offset_group, count, rank, *out))
    at = []
    for i in range(rank):
        tap = np.indices(kernel)[i].reshape((1, -1) + (1,) * rank) * dilations[i]
        place = np.arange(out[i]).reshape((-1,) + (1,) * (rank - 1 - i)) * strides[i]
        at.append(offset[:, :, i] + jnp.asarray((tap + place - pads[i]).astype(np.float32)))
    grouped = x.reshape((batch * offset_group, channels // offset_group, *x.shape[2:]))
    columns = jnp.asarray(sum(_tap_values(grouped, at)))
    if mask is not None:
        columns = columns * to_array(mask).reshape((batch * offset_group, 1, count, *out))
    columns = columns.reshape((batch, group, channels // group, count, -1))
    filters = w.reshape((group, w.shape[0] // group, w.shape[1], count))
    y = jnp.einsum("bgckp,gock->bgop", columns, filters).reshape((batch, w.shape[0], *out))
    return y if b is None else y + by_channel(b, y.ndim)


@op("RoiAlign")
def _roi_align_10(n: Node, x: Value, rois: Value, batch: Value, *, mode: str = "avg",
                  output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
                  spatial_scale: float = 1.0) -> Value:
    return _roi_align(n, x, rois, batch, coordinate_transformation_mode="output_half_pixel",
                      mode=mode, output_height=output_height, output_width=output_width,
                      sampling_ratio=sampling_ratio, spatial_scale=spatial_scale)


@op("RoiAlign", since=16)
def _roi_align(n: Node, x: Value, rois: Value, batch: Value, *,
               coordinate_transformation_mode: str = "half_pixel", mode: str = "avg",
               output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
               spatial_scale: float = 1.0) -> Value:
    x, shifts = to_array(x), coordinate_transformation_mode == "half_pixel"
    if not sampling_ratio:  # the number of points follows from the sizes of the regions
        rois = n.read(rois, "its regions, as sampling_ratio is 0")
    corners = rois * np.float32(spatial_scale) - (0.5 if shifts else 0)
    at, live, counts = [], [], []
    for low, high, size, count in ((1, 3, x.shape[2], output_height),
                                   (0, 2, x.shape[3], output_width)):
        length = corners[:, high] - corners[:, low]
        bin_size = (length if shifts else length.clip(1)) / count
        points = sampling_ratio or np.maximum(np.ceil(bin_size), 1)
        step = bin_size / points
        bins = jnp.asarray(bin_size)[:, None, None] * np.arange(count)[:, None]
        corner = jnp.asarray(corners[:, low])[:, None, None]
        index = np.arange(sampling_ratio) if sampling_ratio else \
            _points_on(size, np.asarray(corner + bins), step[:, None, None], points)
        sample = bins + (index + 0.5).astype(np.float32) * jnp.asarray(step)[:, None, None] + corner
        at.append(jnp.clip(sample, 0, size - 1))
        live.append((sample >= -1) & (sample <= size) & (index < np.reshape(points, (-1, 1, 1))))
        counts.append(points)
    return _pooled_samples(x, batch, at, live, counts[0] * counts[1], mode)


def _points_on(size: int, starts: Any, step: Any, points: Any) -> Any:
    """Return the indices of the points of each bin that may lie on an axis: few, although a region
    may be far larger than the image, whose points outside are zeros."""
    step = np.where(step > 0, step, np.inf)  # of no extent: one point
    most = int(min(np.max(points, initial=1), (size + 1) / np.min(step, initial=1) + 3))
    first = np.minimum(np.floor((-1 - starts) / step) - 1, points[:, None, None] - most)
    return np.maximum(first, 0) + np.arange(most)


def _pooled_samples(x: Array, batch: Value, at: Sequence[Array], live: Sequence[Array],
                    count: Any, mode: str) -> Array:
    """Reduce the values at points of the bins of regions.

    Args:
        at: positions (regions, bins, points) for each axis.
        live: which of them are points of the region on the image.
        count: how many points the bins of each region have; the others are zeros.
    """
    shape = (*at[0].shape[:2], *at[1].shape[1:2], at[0].shape[2], at[1].shape[2])

    def both(v: Array, axis: int) -> Array:
        return jnp.broadcast_to(jnp.expand_dims(v, (2, 4) if axis == 0 else (1, 3)), shape)

    inside = (both(live[0], 0) & both(live[1], 1))[:, None]
    count = jnp.asarray(np.float32(count)).reshape((-1, 1, 1, 1))
    values = _tap_values(jnp.take(x, to_array(batch), 0), [both(at[0], 0), both(at[1], 1)])
    if mode == "max":
        most = jnp.stack(values).max(0) if len(values) > 1 else values[0]
        most = jnp.max(jnp.where(inside, most, -jnp.inf), (-2, -1))
        return jnp.asarray(jnp.where(jnp.sum(inside, (-2, -1)) < count, jnp.maximum(most, 0), most))
    total: Array = jnp.sum(jnp.where(inside, sum(values), 0), (-2, -1)) / count.astype(x.dtype)
    return total


@op("MaxRoiPool")
def _max_roi_pool(n: Node, x: Value, rois: Value, *, pooled_shape: Any = (),
                  spatial_scale: float = 1.0) -> Value:
    rois = to_array(rois)
    y = jnp.take(to_array(x), rois[:, 0].astype(jnp.int32), 0)
    corners = jnp.round(rois[:, 1:] * spatial_scale)
    for axis, count in enumerate(pooled_shape):
        low, high = corners[:, 1 - axis, None, None], corners[:, 3 - axis, None, None]
        length, size = jnp.maximum(high - low + 1, 1), y.shape[2]
        part, at = jnp.arange(count)[:, None], jnp.arange(size)
        inside = (at >= jnp.floor(part * length / count) + low) & \
            (at < jnp.ceil((part + 1) * length / count) + low)
        masked = jnp.where(inside[:, None, :, :, None], y[:, :, None], -jnp.inf)
        y = jnp.moveaxis(jnp.max(masked, 3), 2, -1)  # the other axis is next
    return jnp.where(jnp.isinf(y), 0, y)
