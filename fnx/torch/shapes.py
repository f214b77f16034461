"""Ops of ATen that create, move or select elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import fnx.numpy as jnp
from fnx import lax
from fnx.core.array.array import Array
from fnx.numpy.bits import bitcast_convert_type
from fnx.torch.entry import Table, UnsupportedOpError, dtype_name, dtype_of, entries, meta_of


def _expand(x: Array, size: Sequence[int], *, implicit: bool = False) -> Array:
    new = len(size) - x.ndim
    return jnp.broadcast_to(x, tuple([x.shape[i - new] if n == -1 else n
                                      for i, n in enumerate(size)]))


def _squeeze(x: Array, dim: Any = None) -> Array:
    axes = range(x.ndim) if dim is None else [dim] if isinstance(dim, int) else dim
    return jnp.squeeze(x, tuple([d for d in axes if x.ndim and x.shape[d] == 1]))


def _range(n: int, start: int | None, end: int | None) -> tuple[int, int]:
    """Return the bounds of a slice of ``n`` elements, within 0 .. n."""
    first, last = [min(n, max(0, v + n if v < 0 else v))
                   for v in (0 if start is None else start, n if end is None else end)]
    return first, max(first, last)


def _slice_of(x: Array, dim: int, start: int | None, end: int | None, step: int
              ) -> tuple[slice, ...]:
    dim %= x.ndim
    return (*[slice(None)] * dim, slice(*_range(x.shape[dim], start, end), step))


def _slice(x: Array, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
           ) -> Array:
    return x[_slice_of(x, dim, start, end, step)]


def _slice_scatter(x: Array, source: Array, dim: int = 0, start: int | None = None,
                   end: int | None = None, step: int = 1) -> Array:
    return x.at[_slice_of(x, dim, start, end, step)].set(source.astype(x.dtype))


def _at(x: Array, dim: int, index: int) -> tuple[Any, ...]:
    dim %= x.ndim
    return (*[slice(None)] * dim, index)


def _split(x: Array, sizes: Any, dim: int = 0) -> list[Array]:
    n = x.shape[dim]
    if isinstance(sizes, int):
        sizes = [min(sizes, n - i) for i in range(0, n, sizes)] if n else [0]
    ends = [sum(sizes[:i + 1]) for i in range(len(sizes))]
    return [_slice(x, dim, end - size, end) for end, size in zip(ends, sizes)]


def _pad(x: Array, pad: Sequence[int], value: Any = 0) -> Array:
    pairs = [(pad[2 * i], pad[2 * i + 1], 0) for i in range(len(pad) // 2)]
    config = [(0, 0, 0)] * (x.ndim - len(pairs)) + pairs[::-1]
    return lax.pad(x, jnp.asarray(value, x.dtype), config)


def _diagonal_index(x: Array, offset: int, dim1: int, dim2: int) -> tuple[Any, ...]:
    dim1, dim2 = dim1 % x.ndim, dim2 % x.ndim
    rows, columns = x.shape[dim1], x.shape[dim2]
    n = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
    i = jnp.arange(n)
    index: list[Any] = [slice(None)] * x.ndim
    index[dim1], index[dim2] = i - min(offset, 0), i + max(offset, 0)
    return tuple(index)


def _diagonal_scatter(x: Array, source: Array, offset: int = 0, dim1: int = 0, dim2: int = 1
                      ) -> Array:
    axes = sorted((dim1 % x.ndim, dim2 % x.ndim))
    moved = jnp.moveaxis(x, (dim1, dim2), (-2, -1))
    changed = moved.at[_diagonal_index(moved, offset, -2, -1)].set(source.astype(x.dtype))
    assert len(axes) == 2
    return jnp.moveaxis(changed, (-2, -1), (dim1, dim2))


def memory_order(size: Sequence[int], stride: Sequence[int]) -> list[int] | None:
    """Return the axes by descending stride if the elements are dense in memory, else None.

    >>> memory_order((2, 3), (1, 2)), memory_order((2, 3), (0, 1))
    ([1, 0], None)
    """
    order = sorted(range(len(size)), key=lambda d: (-stride[d], size[d] != 1, d))
    expected = 1
    for d in reversed(order):
        if size[d] == 1:
            continue
        if stride[d] != expected:
            return None
        expected *= size[d]
    return order


def _as_strided(x: Array, size: Sequence[int], stride: Sequence[int], offset: int | None = None,
                *, node: Any) -> Array:
    source = meta_of(node.args[0])
    order = memory_order(x.shape, [int(s) for s in source.stride()])
    if order is None or int(source.storage_offset()):
        raise UnsupportedOpError("as_strided of memory that is not dense, or of a part of it")
    flat = x.transpose(order).reshape(-1) if x.ndim else x.reshape(-1)
    return flat[_memory_index(size, stride, offset)]


def _memory_index(size: Sequence[int], stride: Sequence[int], offset: int | None) -> Array:
    index = jnp.full((), offset or 0, "int64")
    for i, (n, s) in enumerate(zip(size, stride)):
        index = index + (jnp.arange(n) * s).reshape(-1, *[1] * (len(size) - 1 - i))
    return jnp.broadcast_to(index, tuple(size))


def _as_strided_scatter(x: Array, source: Array, size: Sequence[int], stride: Sequence[int],
                        offset: int | None = None, *, node: Any) -> Array:
    order = memory_order(x.shape, [int(s) for s in meta_of(node.args[0]).stride()])
    if order is None:
        raise UnsupportedOpError("as_strided_scatter into memory that is not dense")
    moved = x.transpose(order) if x.ndim else x
    index = _memory_index(size, stride, offset)
    flat = moved.reshape(-1).at[index].set(source.astype(x.dtype)).reshape(moved.shape)
    return flat.transpose([order.index(d) for d in range(x.ndim)]) if x.ndim else flat


def _copy(x: Array, source: Array, non_blocking: bool = False) -> Array:
    return jnp.broadcast_to(source.astype(x.dtype), x.shape)


def _convert(x: Array, *, dtype: Any = None, **layout: Any) -> Array:
    return x if dtype is None else x.astype(dtype_name(dtype))


def _full(size: Sequence[int], value: Any, *, node: Any, **layout: Any) -> Array:
    return jnp.full(tuple(size), value, dtype_of(node))


def _full_as(value: int) -> Callable[..., Any]:
    """An entry whose result is filled with a number, whatever its arguments are."""
    def run(*args: Any, node: Any, **layout: Any) -> Array:
        size = [n for n in args if isinstance(n, list | tuple)]
        shape = args[0].shape if isinstance(args[0], Array) and not size else size[0]
        return jnp.full(tuple(shape), value, dtype_of(node))
    return run


def _full_like(x: Array, value: Any, *, node: Any, **layout: Any) -> Array:
    return jnp.full(x.shape, value, dtype_of(node))


def _arange(*bounds: Any, node: Any, **layout: Any) -> Any:
    start, end, step = {1: (0, *bounds, 1), 2: (*bounds, 1)}.get(len(bounds), bounds)
    dtype, n = dtype_of(node), math.ceil((end - start) / step)
    if dtype.startswith(("int", "uint")):
        return jnp.arange(n, dtype=dtype) * int(step) + int(start)
    return (jnp.arange(n, dtype="float64") * step + start).astype(dtype)


def _unfold(x: Array, dim: int, size: int, step: int) -> Array:
    if x.ndim == 0:
        return jnp.broadcast_to(x, (size,))
    dim %= x.ndim
    n = (x.shape[dim] - size) // step + 1
    index = jnp.arange(n)[:, None] * step + jnp.arange(size)[None]
    return jnp.moveaxis(jnp.take(x, index, dim), dim + 1, -1)


def _triangle(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, diagonal=0: f(x, diagonal)


def _roll(x: Array, shifts: Any, dims: Any = ()) -> Array:
    return jnp.roll(x, tuple(shifts), tuple(dims)) if dims else jnp.roll(x, shifts[0])


def _repeat(x: Array, repeats: Sequence[int]) -> Array:
    return jnp.tile(x, tuple(repeats))


def _reshape(x: Array, size: Any) -> Array:
    return x.reshape(tuple(size))


def _view(x: Array, size: Any) -> Array:
    if not isinstance(size, list | tuple):
        return bitcast_convert_type(x, dtype_name(size))
    return _reshape(x, size)


def _cat(tensors: Sequence[Array], dim: int = 0, *, node: Any) -> Array:
    dtype = dtype_of(node)
    rank = max([x.ndim for x in tensors])
    parts = [x.astype(dtype) for x in tensors
             if not (x.shape == (0,) and rank > 1)]  # an empty list, for old programs
    return jnp.concatenate(parts, dim) if len(parts) > 1 else parts[0]


def _identity(x: Any, *args: Any, **named: Any) -> Any:
    return x


TABLE: Table = {
    **entries({
        "view": _view, "_unsafe_view": _reshape, "_reshape_copy": _reshape,
        "view_copy": _view,
        "permute": lambda x, dims: x.transpose(tuple(dims)) if dims else x,
        "transpose": lambda x, a, b: jnp.swapaxes(x, a, b) if x.ndim else x,
        "t": lambda x: x.T,
        "expand": _expand, "expand_copy": _expand,
        "squeeze": _squeeze, "squeeze_copy": _squeeze,
        "unsqueeze": lambda x, dim: jnp.expand_dims(x, dim),
        "slice": _slice, "slice_scatter": _slice_scatter,
        "select": lambda x, dim, index: x[_at(x, dim, index)],
        "select_scatter": lambda x, source, dim, index: x.at[_at(x, dim, index)].set(
            source.astype(x.dtype)),
        "split": _split, "split_with_sizes": _split,
        "unbind": lambda x, dim=0: [x[_at(x, dim, i)] for i in range(x.shape[dim])],
        "stack": lambda tensors, dim=0: jnp.stack(tensors, dim),
        "flip": lambda x, dims: jnp.flip(x, tuple(dims)) if dims and x.ndim else x,
        "roll": _roll, "repeat": _repeat,
        "constant_pad_nd": _pad,
        "diagonal": lambda x, offset=0, dim1=0, dim2=1: jnp.diagonal(x, offset, dim1, dim2),
        "diagonal_scatter": _diagonal_scatter,
        "clone": _identity, "alias": _identity, "detach": lax.stop_gradient,
        "lift_fresh_copy": _identity, "lift_fresh": _identity,
        "_to_copy": _convert, "convert_element_type": lambda x, dtype: x.astype(dtype_name(dtype)),
        "copy": _copy, "copy_": _copy, "unfold": _unfold,
        "tril": _triangle(jnp.tril), "triu": _triangle(jnp.triu),
        "view_as_real": lambda x: jnp.stack([jnp.real(x), jnp.imag(x)], -1),
        "view_as_complex": lambda x: lax.complex(x[..., 0], x[..., 1]),
        "sym_size": lambda x, dim: x.shape[dim],
    }),
    **entries({
        "as_strided": _as_strided, "as_strided_scatter": _as_strided_scatter,
        "full": _full, "full_like": _full_like, "cat": _cat,
        "fill": _full_like, "arange": _arange,
        "new_full": lambda x, size, value, node, **layout: _full(size, value, node=node),
        "scalar_tensor": lambda value, node, **layout: jnp.asarray(value, dtype_of(node)),
        "empty": _full_as(0), "empty_strided": _full_as(0), "empty_like": _full_as(0),
        "empty_permuted": _full_as(0), "new_empty": _full_as(0), "new_empty_strided": _full_as(0),
        "zeros": _full_as(0), "zeros_like": _full_as(0), "new_zeros": _full_as(0),
        "ones": _full_as(1), "ones_like": _full_as(1),
        "eye": lambda n, m=None, node=None, **layout: jnp.eye(n, m, dtype=dtype_of(node)),
        "iota": lambda n, start, step, dtype, node, **layout:
            jnp.arange(n, dtype=dtype_of(node)) * step + start,
    }, takes_node=True),
}
