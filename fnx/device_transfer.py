"""Transfer arrays between devices, and wait for them.

    fnx.device_put(x, d)     x on device d, committed: computations on it run there
    fnx.device_get(x)        a NumPy array
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.core.array import axes, tree
from fnx.core.array import placement as committed
from fnx.core.array.api_boundary import asarray, evaluate_pending, public_api
from fnx.core.array.array import Array, from_storage
from fnx.core.array.call_validation import validate_call
from fnx.core.array.convert import DTypeLike
from fnx.core.array.eager_cache import record_placement
from fnx.core.ir.uop import current_loc
from fnx.core.scope import scope
from fnx.core.support.config import DEVICES, OWN_MEMORY, config
from fnx.core.support.errors import ArgumentError, ShapeError, TracedValueError, lazy_module
from fnx.core.support.process import lazy_import
from fnx.sharding.device_registry import Device, device_by_name, open_device

sharding = lazy_import("fnx.sharding")

__all__ = [
    "block_until_ready", "copy_to_host_async", "device_get", "device_put", "live_arrays",
    "make_array_from_callback", "make_array_from_single_device_arrays",
]

_copy_to_device = lazy_import("fnx.transforms.link", "transfer_storage")


def live_arrays(platform: str | None = None) -> list[Array]:
    """Return the Arrays of this process that have memory; slow, as it looks at all objects.

    Args:
        platform: only those on this device.

    Returns:
        A list of Arrays.

    >>> import fnx
    >>> x = fnx.numpy.ones(3)
    >>> any(y is x for y in live_arrays())
    True
    """
    arrays = [x for x in gc.get_objects() if type(x) is Array and x._storage is not None]
    return arrays if platform is None else [x for x in arrays if x.device.platform == platform]


@public_api
def device_put(x: Any, device: Any = None, *, src: Any = None, donate: bool = False,
               may_alias: bool | None = None) -> Any:
    """Transfer the leaves of a tree to a device.

    With a device, the results are committed: computations on them run there. Uncommitted arrays
    follow the committed arrays that they are combined with, else ``config.device``.

    Args:
        x: a pytree of arrays and numbers.
        device: a Device or its name, a sharding, a tree of these, or None.
        src: accepted for compatibility with JAX.
        donate: accepted for compatibility with JAX; memory is shared if possible.
        may_alias: accepted for compatibility with JAX.

    Returns:
        A pytree of Arrays.

    Raises:
        ArgumentError: ``device`` is none of these.
        DeviceError: the device is not available.

    >>> import fnx
    >>> device_put({"a": 1.5})
    {'a': Array(1.5, dtype=float32, weak_type=True)}
    >>> device_put(1.5, fnx.devices("cpu")[0]).committed
    True
    """
    check_device(device)
    arrays = tree.map(asarray, x)
    if device is None or scope.is_open():
        return arrays
    leaves, structure = tree.flatten(arrays)
    evaluate_pending(leaves)
    platform = platform_of(device)
    names = [platform] * len(leaves) if platform is not None or not _is_device_tree(device) else \
        [platform_of(d) for d in tree.leaves(device, is_leaf=_is_device_like)]
    if len(names) not in (1, len(leaves)):
        raise ArgumentError(f"expected a device for each of {len(leaves)} leaves, got {len(names)}")
    names = names * len(leaves) if len(names) == 1 else names
    return structure.unflatten([
        leaf if name is None else _move(leaf, name) for leaf, name in zip(leaves, names)])


def _is_device_like(x: Any) -> bool:
    return isinstance(x, (Device, str, sharding.Sharding, sharding.PartitionSpec))


def _is_device_tree(device: Any) -> bool:
    return not _is_device_like(device)


def platform_of(target: Any) -> str | None:
    """Return the name of the device of a Device, a name or a sharding; None: any device."""
    if isinstance(target, str):
        return open_device(target).platform
    if isinstance(target, Device):
        return target.platform
    single = getattr(target, "device", None)
    if single is None and getattr(target, "mesh", None) is not None:
        grid = getattr(target.mesh, "devices", None)
        single = None if grid is None else grid.flat[0]
    return single.platform if isinstance(single, Device) else None


def device_of(x: Array) -> Device:
    """Return the device that holds an array; for a traced one, where it will be computed."""
    memory = x._storage
    placement = committed.placement_of(memory)
    if placement is not None:
        return device_by_name(placement.device)
    name = getattr(memory, "device_name", None)
    if name is None:  # the host's
        name = config.device if memory is None or config.device not in OWN_MEMORY else "cpu"
    return device_by_name(name)


def _move(x: Array, name: str) -> Array:
    """Copy x to the memory of a device, committed."""
    memory = _copy_to_device(x._storage, name)
    memory.placed = committed.Placement(name, current_loc.loc)
    record_placement(name)
    return from_storage(memory, x._shape, x._dtype, x.weak)


def check_device(device: Any) -> None:
    """Raise unless it is a Device, its name, a sharding or a tree of these."""
    if device is None or isinstance(device, Device):
        return
    for leaf in tree.leaves(device, is_leaf=_is_device_like):
        is_known = leaf in (*DEVICES, "gpu") if isinstance(leaf, str) else _is_device_like(leaf)
        if not is_known:
            raise ArgumentError(f"expected a device or a sharding, got {leaf!r}",
                                hint="pass fnx.devices()[0]")


@validate_call
def device_get(x: Any) -> Any:
    """Convert the leaves of a tree to NumPy arrays.

    Args:
        x: a pytree of arrays and numbers.

    Returns:
        A pytree of NumPy arrays; leaves that are traced, or not Arrays, are unchanged.

    >>> import fnx.numpy as jnp
    >>> device_get({"a": jnp.ones(2)})
    {'a': array([1., 1.], dtype=float32)}
    """
    return tree.map(_fetch, x)


def _fetch(leaf: Any) -> Any:
    if type(leaf) is not Array or leaf._dtype.kind == "key":
        return leaf
    try:
        return np.asarray(leaf)
    except TracedValueError:
        return leaf


@validate_call
def block_until_ready(x: Any) -> Any:
    """Wait until all arrays of a tree are computed.

    Args:
        x: a pytree.

    Returns:
        The same pytree.

    >>> import fnx.numpy as jnp
    >>> block_until_ready([jnp.ones(2)])
    [Array([1., 1.], dtype=float32)]
    """
    for leaf in tree.leaves(x):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    return x


@public_api
def copy_to_host_async(x: Any) -> None:
    """Start to copy the arrays of a pytree to the host, if they are not there.

    Args:
        x: a pytree of arrays.

    >>> import fnx.numpy as jnp
    >>> copy_to_host_async(jnp.ones(2))
    """
    for leaf in tree.leaves(x):
        if type(leaf) is Array:
            leaf.copy_to_host_async()


@public_api
def make_array_from_callback(shape: Any, sharding: Any, data_callback: Callable[[Any], Any],
                             dtype: DTypeLike | None = None) -> Array:
    """Create an array from a function that returns its parts: with one device, the whole array.

    Args:
        shape: the shape of the array.
        sharding: a device or a sharding of one device.
        data_callback: maps an index, a tuple of slices, to the data at the index.
        dtype: the dtype of the array; by default that of the data.

    Returns:
        An Array.

    Raises:
        ShapeError: data of another shape.
        ArgumentError: ``sharding`` is neither a device nor a sharding.

    >>> import fnx, numpy as np
    >>> data = np.arange(4.0, dtype=np.float32)
    >>> make_array_from_callback((4,), fnx.devices()[0], lambda index: data[index])
    Array([0., 1., 2., 3.], dtype=float32)
    """
    lengths = axes.normalize_shape(shape)
    data = asarray(data_callback(tuple([slice(None)] * len(lengths))), dtype)
    return _put_whole(lengths, sharding, data)


@public_api
def make_array_from_single_device_arrays(shape: Any, sharding: Any, arrays: Sequence[Any], *,
                                         dtype: DTypeLike | None = None) -> Array:
    """Create an array from its parts on each device: with one device, the whole array.

    Args:
        shape: the shape of the array.
        sharding: a device or a sharding of one device.
        arrays: a list of one Array.
        dtype: the dtype of the array; by default that of the part.

    Returns:
        An Array.

    Raises:
        ArgumentError: not exactly one part, or ``sharding`` is neither a device nor a sharding.
        ShapeError: a part of another shape.

    >>> import fnx, fnx.numpy as jnp
    >>> make_array_from_single_device_arrays((2,), fnx.devices()[0], [jnp.ones(2)])
    Array([1., 1.], dtype=float32)
    """
    if len(arrays) != 1:
        raise ArgumentError(f"expected one array, as there is one device; got {len(arrays)}")
    return _put_whole(axes.normalize_shape(shape), sharding, asarray(arrays[0], dtype))


def _put_whole(shape: tuple[int, ...], sharding: Any, x: Array) -> Array:
    if x._shape != shape:
        raise ShapeError(f"expected data of shape {shape}, got {x._shape}")
    result: Array = device_put(x, sharding)
    return result


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
