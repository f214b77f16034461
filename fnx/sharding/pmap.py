"""pmap: a function mapped over an axis of arguments, one index per device."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from fnx.core.array import tree
from fnx.core.array.array import Array
from fnx.core.array.placement import placement_of
from fnx.core.scope import scope
from fnx.core.support.config import config
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.sharding import device_registry
from fnx.sharding.constraints import constrain, move
from fnx.sharding.device_registry import Device
from fnx.sharding.mesh import Mesh
from fnx.sharding.named_sharding import NamedSharding, PartitionSpec
from fnx.transforms.jit import Jitted
from fnx.transforms.vmap import vmap

__all__ = ["pmap"]

_AXIS = "_internal_pmap_axis_name"  # JAX's name of the axis of a function without axis_name


def pmap(fun: Callable[..., Any], axis_name: Hashable = None, *, in_axes: Any = 0,
         out_axes: Any = 0, static_broadcasted_argnums: int | Sequence[int] = (),
         devices: Any = None, backend: str | None = None, axis_size: int | None = None,
         donate_argnums: int | Sequence[int] = ()) -> Callable[..., Any]:
    """Map a function over devices: each index of the mapped axis is on one of them.

    Args:
        fun: a function of one shard.
        axis_name: the name of the axis, for collectives.
        in_axes: the mapped axis of each argument, or None.
        out_axes: the position of the axis in the results, or None for the result of the first
            device: an int or None for all of them, or a tree.
        static_broadcasted_argnums: positions of static arguments.
        devices: the devices; by default the first ones of the platform.
        backend: the platform; by default the configured one.
        axis_size: the length of the axis, if no argument is mapped.
        donate_argnums: as for ``jit``.

    Returns:
        The mapped function.

    Raises:
        ShapeError: a mapped axis that is longer than there are devices.
        ArgumentError: a call with other arguments than in_axes or static_broadcasted_argnums has.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> pmap(lambda x: lax.psum(x, "i"), "i")(jnp.ones((1, 2)))
    Array([[1., 1.]], dtype=float32)
    """
    static = _numbers(static_broadcasted_argnums)

    def available() -> Sequence[Device]:
        return device_registry.devices(backend) if devices is None else list(devices)

    def devices_of(*args: Any, **kwargs: Any) -> Sequence[Device]:
        axes = _axes_of_arguments(in_axes, len(args), static)
        lengths = [np.shape(x)[axis] for i, axis in enumerate(axes) if isinstance(axis, int) and
                   i not in static for x in tree.leaves(args[i]) if np.ndim(x) > axis]
        return available()[:lengths[0]] if lengths else ()

    def mapped(*args: Any, **kwargs: Any) -> Any:
        dynamic = [i for i in range(len(args)) if i not in static]
        axes = _axes_of_arguments(in_axes, len(args), static)

        def per_part(*parts: Any, **named: Any) -> Any:
            filled = list(args)
            for i, part in zip(dynamic, parts):
                filled[i] = part
            return fun(*filled, **named)
        mapped_axes = tuple([axes[i] for i in dynamic])
        usable = available()
        for i, axis in zip(dynamic, mapped_axes):
            for x in tree.leaves(args[i]) if isinstance(axis, int) else ():
                _check_length(np.shape(x), axis, i, len(usable))
        stacked = tree.map(lambda axis: 0 if axis is None else axis, out_axes, is_leaf=_is_none)
        out = vmap(per_part, in_axes=mapped_axes, out_axes=stacked, axis_name=axis_name,
                   axis_size=axis_size)(*[args[i] for i in dynamic], **kwargs)
        positions = tree.leaves(tree.broadcast(out_axes, out, _is_none), is_leaf=_is_none)
        leaves, structure = tree.flatten(out)
        name = _AXIS if axis_name is None else axis_name
        return structure.unflatten([_shard(x, axis, usable, name)
                                    for x, axis in zip(leaves, positions)])
    return _Pmapped(mapped, static, _numbers(donate_argnums), devices_of)


class _Pmapped(Jitted[..., Any]):
    """A mapped function under ``jit``, to whose devices arguments move that are on others."""

    def __init__(self, mapped: Callable[..., Any], static: tuple[int, ...],
                 donated: tuple[int, ...], devices_of: Callable[..., Sequence[Device]]) -> None:
        super().__init__(mapped, static, (), donated)
        self._devices_of = devices_of

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if config.placing and not scope.is_open():
            devices = self._devices_of(*args, **kwargs)
            args, kwargs = tree.map(lambda x: _moved(x, devices), (args, kwargs))
        return super().__call__(*args, **kwargs)


def _moved(x: Any, devices: Sequence[Device]) -> Any:
    """Return an array that is committed to other devices on these."""
    placement = placement_of(getattr(x, "_storage", None))
    if placement is None or not devices or placement.ids == tuple([d.id for d in devices]):
        return x
    return move(x, NamedSharding(Mesh(np.array(devices, object), _AXIS), PartitionSpec()))


def _is_none(x: Any) -> bool:
    return x is None


def _numbers(argnums: int | Sequence[int]) -> tuple[int, ...]:
    return (argnums,) if isinstance(argnums, int) else tuple(argnums)


def _axes_of_arguments(in_axes: Any, count: int, static: Sequence[int]) -> Sequence[Any]:
    """Return the mapped axes of each argument."""
    if absent := [i for i in static if not -count <= i < count]:
        raise ArgumentError(f"pmap: expected arguments at static_broadcasted_argnums={absent}, got "
                            f"{count} by position", hint="pass static arguments by position")
    axes = in_axes if isinstance(in_axes, (tuple, list)) else (in_axes,) * count
    if len(axes) != count:
        raise ArgumentError(f"pmap: expected in_axes of {count} arguments, got {in_axes}",
                            hint="pass one int or None, or a tuple with one for each argument")
    return axes


def _shard(x: Array, axis: Any, devices: Sequence[Any], name: Hashable) -> Array:
    """Return a result with its sharding: an index of its mapped axis on each device. Without an
    axis: that of the first device, on all of them."""
    at = 0 if axis is None else axis % x.ndim
    mesh = Mesh(np.array(devices[:x.shape[at]], object), name)
    if axis is None:
        return constrain(x[0], NamedSharding(mesh, PartitionSpec()))
    return constrain(x, NamedSharding(mesh, PartitionSpec(*[None] * at, name)))


def _check_length(shape: Sequence[int], axis: int, i: int, available: int) -> None:
    if -len(shape) <= axis < len(shape) and shape[axis] > available:
        raise ShapeError(f"pmap: expected a mapped axis of at most {available} elements, one for "
                         f"each device; got {shape[axis]} at args[{i}]",
                         hint=f"set FNX_CPU_DEVICES={shape[axis]}, or use vmap")
