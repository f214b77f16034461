"""pmap: a function mapped over an axis of arguments, one index per device."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from fnx.core.array import tree
from fnx.core.array.array import Array
from fnx.core.support.errors import ShapeError
from fnx.sharding import device_registry
from fnx.sharding.constraints import constrain
from fnx.sharding.mesh import Mesh
from fnx.sharding.named_sharding import NamedSharding, PartitionSpec
from fnx.transforms.jit import jit
from fnx.transforms.vmap import vmap

__all__ = ["pmap"]

_AXIS = "pmap"  # the axis of the mesh of a function without axis_name


def pmap(fun: Callable[..., Any], axis_name: Hashable = None, *, in_axes: Any = 0,
         out_axes: Any = 0, static_broadcasted_argnums: int | Sequence[int] = (),
         devices: Any = None, backend: str | None = None, axis_size: int | None = None,
         donate_argnums: int | Sequence[int] = ()) -> Callable[..., Any]:
    """Map a function over devices: each index of the mapped axis is on one of them.

    Args:
        fun: a function of one shard.
        axis_name: the name of the axis, for collectives.
        in_axes: the mapped axis of each argument, or None.
        out_axes: the position of the axis in the results.
        static_broadcasted_argnums: positions of static arguments.
        devices: the devices; by default the first ones of the platform.
        backend: the platform; by default the configured one.
        axis_size: the length of the axis, if no argument is mapped.
        donate_argnums: as for ``jit``.

    Returns:
        The mapped function.

    Raises:
        ShapeError: a mapped axis that is longer than there are devices.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> pmap(lambda x: lax.psum(x, "i"), "i")(jnp.ones((1, 2)))
    Array([[1., 1.]], dtype=float32)
    """
    static = (static_broadcasted_argnums,) if isinstance(static_broadcasted_argnums, int) else \
        tuple(static_broadcasted_argnums)

    def mapped(*args: Any, **kwargs: Any) -> Any:
        dynamic = [i for i in range(len(args)) if i not in static]
        axes = in_axes if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)

        def per_part(*parts: Any, **named: Any) -> Any:
            filled = list(args)
            for i, part in zip(dynamic, parts):
                filled[i] = part
            return fun(*filled, **named)
        mapped_axes = tuple([axes[i] for i in dynamic])
        available = device_registry.devices(backend) if devices is None else list(devices)
        for i, axis in zip(dynamic, mapped_axes):
            for x in tree.leaves(args[i]) if isinstance(axis, int) else ():
                _check_length(np.shape(x), axis, i, len(available))
        out = vmap(per_part, in_axes=mapped_axes, out_axes=out_axes, axis_name=axis_name,
                   axis_size=axis_size)(*[args[i] for i in dynamic], **kwargs)
        return tree.map(lambda x: _shard(x, out_axes, available), out)
    return jit(mapped, static_argnums=static, donate_argnums=donate_argnums)


def _shard(x: Array, axis: Any, devices: Sequence[Any]) -> Array:
    """Return a result with its sharding: an index of its mapped axis on each device."""
    if not isinstance(axis, int) or not -x.ndim <= axis < x.ndim:
        return x
    at = axis % x.ndim
    mesh = Mesh(np.array(devices[:x.shape[at]], object), _AXIS)
    return constrain(x, NamedSharding(mesh, PartitionSpec(*[None] * at, _AXIS)))


def _check_length(shape: Sequence[int], axis: int, i: int, available: int) -> None:
    if -len(shape) <= axis < len(shape) and shape[axis] > available:
        raise ShapeError(f"pmap: expected a mapped axis of at most {available} elements, one for "
                         f"each device; got {shape[axis]} at args[{i}]",
                         hint=f"set FNX_CPU_DEVICES={shape[axis]}, or use vmap")
