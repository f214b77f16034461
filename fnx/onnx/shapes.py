"""Operators on shapes: they move elements, or make tensors from shapes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import fnx.numpy as jnp
from fnx.core.rewriting.dimensions import Dim
from fnx.onnx.evaluate import Node
from fnx.onnx.registry import op
from fnx.onnx.types import FLOAT, Value, dtype_of, known, to_array


def ints(x: Value) -> tuple[Any, ...]:
    """Return the numbers of a value that is known, and lengths that change as they are."""
    return tuple(i if isinstance(i, Dim) else int(i) for i in np.ravel(x))


# ---- shapes as values ---------------------------------------------------------------------------


@op("Shape")
def _shape(n: Node, x: Value, *, start: int = 0, end: int | None = None) -> Value:
    return known(np.asarray(x.shape[start:end], object))


@op("Size")
def _size(n: Node, x: Value) -> Value:
    return known(math.prod(x.shape))


@op("Constant")
def _constant(n: Node, *, value: Any = None, value_float: float | None = None,
              value_int: int | None = None, value_floats: Any = None,
              value_ints: Any = None) -> Value:
    if value is not None:
        n.result_format = value[1]
        return value[0]
    floats = value_float if value_floats is None else value_floats
    whole = value_int if value_ints is None else value_ints
    return np.asarray(floats, np.float32) if floats is not None else np.asarray(whole, np.int64)


@op("ConstantOfShape", static=(0,))
def _constant_of_shape(n: Node, shape: Value, *, value: Any = None) -> Value:
    fill = np.zeros(1, np.float32) if value is None else value[0]
    n.result_format = FLOAT if value is None else value[1]
    if isinstance(fill, np.ndarray) and shape.dtype != object \
            and math.prod(ints(shape)) <= _FOLDED:
        return np.full(ints(shape), fill.reshape(()), fill.dtype)
    return jnp.broadcast_to(to_array(fill).reshape(()), ints(shape))


_FOLDED = 1 << 16  # elements of the largest tensor that is computed while tracing


@op("Range", static=(0, 1, 2))
def _range(n: Node, start: Value, limit: Value, delta: Value, *, stash_type: int = 1) -> Value:
    if object in (start.dtype, limit.dtype, delta.dtype):
        count = -(-(limit.item() - start.item()) // delta.item())
        return to_array(start) + jnp.arange(count, dtype=jnp.int64) * to_array(delta)
    count = max(math.ceil((limit.item() - start.item()) / delta.item()), 0)
    if count <= _FOLDED and start.dtype.kind in "iu":
        return start + np.arange(count, dtype=start.dtype) * delta
    return to_array(start) + jnp.arange(count).astype(start.dtype) * to_array(delta)


@op("EyeLike")
def _eye_like(n: Node, x: Value, *, dtype: int | None = None, k: int = 0) -> Value:
    t = to_array(x).dtype if dtype is None else dtype_of(dtype)
    return jnp.eye(x.shape[0], x.shape[1], k, t)


@op("OneHot", static=(1,))
def _one_hot(n: Node, indices: Value, depth: Value, values: Value, *, axis: int = -1) -> Value:
    count, values = int(np.ravel(depth)[0]), to_array(values)
    indices = to_array(indices)
    indices = jnp.expand_dims(jnp.where(indices < 0, indices + count, indices), axis)
    numbers = jnp.arange(count).reshape((-1,) + (1,) * ((-axis if axis < 0 else
                                                         indices.ndim - axis) - 1))
    return jnp.where(indices == numbers.astype(indices.dtype), values[1], values[0])


# ---- other shapes -------------------------------------------------------------------------------


@op("Reshape", static=(1,))
def _reshape(n: Node, x: Value, shape: Value, *, allowzero: int = 0) -> Value:
    sizes = [x.shape[i] if d == 0 and not allowzero else d for i, d in enumerate(ints(shape))]
    if -1 in sizes and 0 in x.shape:
        rest = math.prod(d for d in sizes if d != -1)
        sizes[sizes.index(-1)] = math.prod(x.shape) // rest if rest else 0
    if -1 not in sizes and math.prod(sizes) != math.prod(x.shape):
        raise n.refuse(f"expected a shape for {math.prod(x.shape)} elements, got {sizes}")
    return x.reshape(tuple(sizes))


@op("Flatten")
def _flatten(n: Node, x: Value, *, axis: int = 1) -> Value:
    axis = axis + x.ndim if axis < 0 else axis
    return x.reshape((math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@op("Squeeze", since=13, static=(1,))
def _squeeze(n: Node, x: Value, axes: Value = None) -> Value:
    return n.xp.squeeze(x, None if axes is None else ints(axes))


@op("Squeeze")
def _squeeze_1(n: Node, x: Value, *, axes: Any = None) -> Value:
    return n.xp.squeeze(x, None if axes is None else ints(axes))


@op("Unsqueeze", since=13, static=(1,))
def _unsqueeze(n: Node, x: Value, axes: Value) -> Value:
    return n.xp.expand_dims(x, ints(axes))


@op("Unsqueeze")
def _unsqueeze_1(n: Node, x: Value, *, axes: Any = ()) -> Value:
    return n.xp.expand_dims(x, ints(axes))


@op("Transpose")
def _transpose(n: Node, x: Value, *, perm: Any = None) -> Value:
    return n.xp.transpose(x, perm)


@op("Expand", static=(1,))
def _expand(n: Node, x: Value, shape: Value) -> Value:
    wanted = ints(shape)
    rank = max(x.ndim, len(wanted))
    pairs = zip((1,) * (rank - x.ndim) + x.shape, (1,) * (rank - len(wanted)) + wanted)
    sizes = [b if type(a) is int and a == 1 or type(b) is not int or b != 1 else a
             for a, b in pairs]
    return (jnp if object in (x.dtype, shape.dtype) else n.xp).broadcast_to(x, tuple(sizes))


@op("Tile", static=(1,))
def _tile(n: Node, x: Value, repeats: Value) -> Value:
    return n.xp.tile(x, ints(repeats))


@op("Concat")
def _concat(n: Node, *xs: Value, axis: int = 1) -> Value:
    return n.xp.concatenate(xs if n.known else [to_array(x) for x in xs], axis)


@op("Split", since=13, static=(1,))
def _split(n: Node, x: Value, split: Value = None, *, axis: int = 0,
           num_outputs: int | None = None) -> Value:
    size = x.shape[axis]
    if split is None:
        count = len(n.outputs)
        if num_outputs not in (None, count):
            raise n.refuse(f"expected {num_outputs} outputs, got {count}")
        step = -(-size // count)
        sizes = [min(step, max(size - i * step, 0)) for i in range(count)]
    else:
        sizes = list(ints(split))
    if sum(sizes) != size:
        raise n.refuse(f"expected sizes that add up to {size}, got {sizes}")
    return tuple(n.xp.split(x, np.cumsum(sizes)[:-1].tolist(), axis))


@op("Split")
def _split_2(n: Node, x: Value, *, axis: int = 0, split: Any = None) -> Value:
    return _split(n, x, split, axis=axis)


@op("Slice", since=10, static=(1, 2, 3, 4))
def _slice(n: Node, x: Value, starts: Value, ends: Value, axes: Value = None,
           steps: Value = None) -> Value:
    over = range(len(starts)) if axes is None else ints(axes)
    by = [1] * len(starts) if steps is None else ints(steps)
    index: list[Any] = [slice(None)] * x.ndim
    for axis, start, end, step in zip(over, ints(starts), ints(ends), by):
        index[axis] = slice(start, end, step)
    return x[tuple(index)]


@op("Slice")
def _slice_1(n: Node, x: Value, *, starts: Any = (), ends: Any = (), axes: Any = None) -> Value:
    return _slice(n, x, starts, ends, axes)


@op("Pad", since=11, static=(1, 3))
def _pad(n: Node, x: Value, pads: Value, value: Value = None, axes: Value = None, *,
         mode: str = "constant") -> Value:
    over = range(x.ndim) if axes is None else ints(axes)
    amounts = ints(pads)
    before, after = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(over):
        before[axis], after[axis] = amounts[i], amounts[len(over) + i]
    x = x[tuple([slice(max(-a, 0), d - max(-b, 0)) for a, b, d in zip(before, after, x.shape)])]
    widths = [(max(a, 0), max(b, 0)) for a, b in zip(before, after)]
    if mode in ("reflect", "edge", "wrap"):
        by: Any = mode
        return jnp.pad(to_array(x), widths, mode=by)
    if mode != "constant":
        raise n.refuse(f"expected a mode of Pad, got {mode!r}")
    fill = 0 if value is None else to_array(value).reshape(())
    return jnp.pad(to_array(x), widths, constant_values=fill)


@op("Pad")
def _pad_2(n: Node, x: Value, *, pads: Any = (), mode: str = "constant", value: float = 0.0
           ) -> Value:
    return _pad(n, x, pads, np.asarray(value, np.float32), mode=mode)


@op("CenterCropPad", static=(1,))
def _center_crop_pad(n: Node, x: Value, shape: Value, *, axes: Any = None) -> Value:
    over = range(x.ndim) if axes is None else axes
    x = to_array(x)
    for axis, size in zip(over, ints(shape)):
        more = size - x.shape[axis]
        if more < 0:
            start = -more // 2
            x = jnp.take(x, np.arange(start, start + size), axis)
        else:
            widths = [(0, 0)] * x.ndim
            widths[axis] = (more // 2, more - more // 2)
            x = jnp.pad(x, widths)
    return x


@op("DepthToSpace")
def _depth_to_space(n: Node, x: Value, *, blocksize: int = 1, mode: str = "DCR") -> Value:
    b, c, h, w = x.shape
    size, depth = blocksize, c // blocksize ** 2
    if mode == "DCR":
        x = x.reshape((b, size, size, depth, h, w)).transpose((0, 3, 4, 1, 5, 2))
    else:
        x = x.reshape((b, depth, size, size, h, w)).transpose((0, 1, 4, 2, 5, 3))
    return x.reshape((b, depth, h * size, w * size))


@op("SpaceToDepth")
def _space_to_depth(n: Node, x: Value, *, blocksize: int = 1, mode: str = "DCR") -> Value:
    b, c, h, w = x.shape
    size = blocksize
    blocks = x.reshape((b, c, h // size, size, w // size, size))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return blocks.transpose(order).reshape((b, c * size ** 2, h // size, w // size))


@op("Trilu", static=(1,))
def _trilu(n: Node, x: Value, k: Value = None, *, upper: int = 1) -> Value:
    offset = 0 if k is None else int(np.ravel(k)[0])
    return (jnp.triu if upper else jnp.tril)(to_array(x), offset)


@op("ReverseSequence")
def _reverse_sequence(n: Node, x: Value, lengths: Value, *, batch_axis: int = 1,
                      time_axis: int = 0) -> Value:
    x = jnp.moveaxis(to_array(x), (batch_axis, time_axis), (0, 1))
    time, lengths = jnp.arange(x.shape[1]), to_array(lengths)[:, None].astype(jnp.int32)
    at = jnp.where(time < lengths, lengths - 1 - time, time)
    y = jnp.take_along_axis(x, at.reshape(at.shape + (1,) * (x.ndim - 2)), axis=1)
    return jnp.moveaxis(y, (0, 1), (batch_axis, time_axis))


@op("Compress")
def _compress(n: Node, x: Value, condition: Value, *, axis: int | None = None) -> Value:
    chosen = np.flatnonzero(n.read(condition, "its condition"))
    x = x.reshape((-1,)) if axis is None else x
    return n.xp.take(x, chosen, axis or 0)


@op("Optional")
def _optional(n: Node, x: Value = None, *, type: Any = None) -> Value:
    return x


@op("OptionalHasElement")
def _optional_has_element(n: Node, x: Value = None) -> Value:
    return np.asarray(x is not None)


@op("OptionalGetElement")
def _optional_get_element(n: Node, x: Value) -> Value:
    if x is None:
        raise n.refuse("expected an element, got an empty optional")
    return x
