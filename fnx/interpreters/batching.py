"""Batching rules of primitives, under the names of ``jax.interpreters.batching``.

>>> from fnx.extend.core import Primitive
>>> p = Primitive("twice")
>>> defvectorized(p)
>>> p in primitive_batchers
True
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fnx.core.support.errors import ArgumentError
from fnx.jaxprs.primitive import Primitive
from fnx.jaxprs.registries import (
    AxisData,
    axis_primitive_batchers,
    fancy_primitive_batchers,
    primitive_batchers,
)
from fnx.numpy import broadcast_to, expand_dims, moveaxis, ndim, shape
from fnx.transforms.vmap import VMAPPABLE

__all__ = ["AxisData", "axis_primitive_batchers", "bdim_at_front", "broadcast", "defbroadcasting",
           "defreducer", "defvectorized", "fancy_primitive_batchers", "not_mapped",
           "primitive_batchers", "register_vmappable", "unregister_vmappable"]

not_mapped = None


def defvectorized(prim: Primitive) -> None:
    """Define that a primitive with one result applies to a batch as to one element.

    Args:
        prim: the primitive.
    """
    fancy_primitive_batchers[prim] = functools.partial(_vectorized, prim)


def _vectorized(prim: Primitive, axis: AxisData, args: Any, dims: Any, **params: Any) -> Any:
    mapped = {d for d in dims if d is not None}
    if len(mapped) > 1 or mapped and None in dims:
        raise ArgumentError(f"expected all operands of {prim} to have the batch axis {max(mapped)},"
                            f" got {dims}", hint="use batching.defbroadcasting, or write a rule")
    return prim.bind(*args, **params), dims[0]


def defbroadcasting(prim: Primitive) -> None:
    """Define that a primitive broadcasts its operands, and applies to a batch as to one element.

    Args:
        prim: the primitive.
    """
    fancy_primitive_batchers[prim] = functools.partial(_broadcasting, prim)


def _broadcasting(prim: Primitive, axis: AxisData, args: Any, dims: Any, **params: Any) -> Any:
    if any(d is not None for d in dims):
        rank = max(ndim(x) - (d is not None) for x, d in zip(args, dims))
        fronted = [bdim_at_front(x, d, 1) for x, d in zip(args, dims)]
        args = [expand_dims(x, tuple(range(1, 1 + rank - ndim(x) + 1))) for x in fronted]
        args = [broadcast_to(x, (axis.size, *shape(x)[1:])) for x in args]
    out = prim.bind(*args, **params)
    dim = 0 if any(d is not None for d in dims) else None
    return out, ([dim] * len(out) if prim.multiple_results else dim)


def defreducer(prim: Primitive) -> None:
    """Define that a primitive of one operand reduces the axes in its param ``axes``.

    Args:
        prim: the primitive.
    """
    fancy_primitive_batchers[prim] = functools.partial(_reducer, prim)


def _reducer(prim: Primitive, axis: AxisData, args: Any, dims: Any, axes: Any, **params: Any
             ) -> Any:
    (x,), (dim,) = args, dims
    if dim is None:
        return prim.bind(x, axes=axes, **params), None
    moved = tuple([a if a < dim else a + 1 for a in axes])
    remaining = [a for a in range(ndim(x)) if a not in moved]
    return prim.bind(x, axes=moved, **params), remaining.index(dim)


def bdim_at_front(x: Any, bdim: int | None, size: int, mesh_axis: Any = None) -> Any:
    """Return an array with the batch axis in front.

    Args:
        x: the array.
        bdim: its batch axis; None: it has none.
        size: the length of the batch axis, if it has none.
        mesh_axis: accepted for JAX's sake.
    """
    return broadcast(x, size, 0, mesh_axis) if bdim is None else moveaxis(x, bdim, 0)


def broadcast(x: Any, sz: int, axis: int, mesh_axis: Any = None) -> Any:
    """Return an array with an axis inserted, along which it repeats.

    Args:
        x: the array.
        sz: the length of the axis.
        axis: its position.
        mesh_axis: accepted for JAX's sake.
    """
    wide = list(shape(x))
    wide.insert(axis, sz)
    return broadcast_to(expand_dims(x, axis), tuple(wide))


def register_vmappable(data_type: type, spec_type: type, axis_size_type: type,
                       to_elt: Callable[..., Any], from_elt: Callable[..., Any],
                       make_iota: Callable[..., Any] | None) -> None:
    """Accept a type; vmap of one raises, as it maps arrays in pytrees only.

    Args:
        data_type: a type of values with a batch axis.
        spec_type: the type of entries of in_axes for it.
        axis_size_type: the type of its axis size.
        to_elt: takes an element out of it.
        from_elt: makes it of elements.
        make_iota: makes indices of an axis size.
    """
    VMAPPABLE.add(data_type)


def unregister_vmappable(data_type: type) -> None:
    """Forget a type that ``register_vmappable`` accepted.

    Args:
        data_type: a type.
    """
    VMAPPABLE.discard(data_type)
