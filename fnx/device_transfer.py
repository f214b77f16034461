"""Transfer arrays between devices, and wait for them.

    fnx.device_put(x, d)     x on device d, committed: computations on it run there
    fnx.device_get(x)        a NumPy array
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.core.array import axes, tree
from fnx.core.array import placement as committed
from fnx.core.array.api_boundary import asarray, evaluate_pending, public_api
from fnx.core.array.array import Array
from fnx.core.array.call_validation import validate_call
from fnx.core.array.convert import DTypeLike
from fnx.core.array.recorded_calls import record_call
from fnx.core.ir import build
from fnx.core.scope import scope
from fnx.core.support.config import DEVICES, OWN_MEMORY, config
from fnx.core.support.errors import (
    ArgumentError,
    MeshError,
    ShapeError,
    TracedValueError,
    lazy_module,
)
from fnx.core.support.process import lazy_import
from fnx.sharding.device_registry import Device, open_device

constraints = lazy_import("fnx.sharding.constraints")
jits = lazy_import("fnx.transforms.jit")
meshes = lazy_import("fnx.sharding.mesh")
shardings = lazy_import("fnx.sharding.named_sharding")

__all__ = [
    "block_until_ready", "copy_to_host_async", "device_get", "device_put", "live_arrays",
    "make_array_from_callback", "make_array_from_process_local_data",
    "make_array_from_single_device_arrays",
]


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
    return arrays if platform is None else [x for x in arrays if x.platform() == platform]


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
        ShapeError: a sharding that does not divide an array.
        DeviceError: the device is not available.

    >>> import fnx
    >>> device_put({"a": 1.5})
    {'a': Array(1.5, dtype=float32, weak_type=True)}
    >>> device_put(1.5, fnx.devices("cpu")[0]).committed
    True
    """
    check_device(device)
    arrays = tree.map(asarray, x)
    if device is None:
        return tree.map(lambda x: _as_equation(x, None), arrays)
    leaves, structure = tree.flatten(arrays)
    targets = structure.flatten_up_to(tree.broadcast(device, arrays, _is_device_like))
    is_traced = scope.is_open()
    if not is_traced:
        evaluate_pending(leaves)
    put = constraints.constrain if is_traced else constraints.move
    places = [None if target is None else _required_sharding(target) for target in targets]
    return structure.unflatten([
        _as_equation(leaf if place is None else put(leaf, place), target)
        for leaf, place, target in zip(leaves, places, targets)])


def placed_result(f: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any],
                  target: Any) -> Any:
    """Return the result of a call on a device or with a sharding: what ``device=`` of
    ``jnp.zeros`` and ``out_sharding=`` ask for. Over processes each computes its part."""
    check_device(target)
    sharding = _required_sharding(target)
    if sharding is None or sharding.is_fully_addressable or scope.is_open():
        return device_put(f(*args, **kwargs), sharding)
    return jits.jit(lambda: f(*args, **kwargs), out_shardings=sharding)()


def _required_sharding(target: Any) -> Any:
    """Return ``_sharding_for`` a target; a PartitionSpec needs a mesh."""
    sharding = _sharding_for(target)
    if sharding is None and isinstance(target, shardings.PartitionSpec) and \
            meshes.get_mesh().empty:
        raise MeshError(f"expected a mesh for {target}, none is set",
                        hint="pass fnx.NamedSharding(mesh, spec), or enter "
                             "`with fnx.set_mesh(mesh):`")
    return sharding


def _as_equation(x: Array, target: Any) -> Array:
    """Return an array that jaxprs show as a result of ``device_put``; only ``make_jaxpr`` does."""
    if not scope.is_within("make_jaxpr"):
        return x
    out = Array(build.barrier(x._node), x.weak)
    return asarray(record_call("device_put", lambda y: device_put(y, target), "device_put", [x],
                               out, devices=(target,), srcs=(None,),
                               copy_semantics=(_ALIAS,)))


class _CopySemantics:
    def __repr__(self) -> str:
        return "ArrayCopySemantics.REUSE_INPUT"


_ALIAS = _CopySemantics()


def _is_device_like(x: Any) -> bool:
    return x is None or isinstance(x, (Device, str, shardings.Sharding, shardings.PartitionSpec))


def _sharding_for(target: Any) -> Any:
    """Return the sharding that a target of ``device_put`` means; None: it stays where it is."""
    if isinstance(target, str):
        return shardings.SingleDeviceSharding(open_device(target))
    is_spec = isinstance(target, shardings.PartitionSpec)
    sharding = shardings.resolve(target, meshes.get_mesh() if is_spec else None)
    mesh = getattr(sharding, "mesh", None)
    return None if mesh is not None and not isinstance(mesh, meshes.Mesh) else sharding


def platform_of(target: Any) -> str | None:
    """Return the name of the device of a Device, a name or a sharding; None: any device."""
    sharding = _sharding_for(target)
    return None if sharding is None else next(iter(sharding.device_set)).platform


def sharding_of(x: Array) -> Any:
    """Return the sharding of an array; of a traced one, where it will be computed."""
    memory = x._storage
    placement = committed.placement_of(memory)
    if placement is not None and placement.sharding is not None:
        return placement.sharding
    if placement is not None:
        return shardings.whole_on(placement.device)
    name = getattr(memory, "device_name", None)
    if name is None:  # the host's
        name = config.device if memory is None or config.device not in OWN_MEMORY else "cpu"
    return shardings.whole_on(name)


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
    """Create an array from a function that returns its parts.

    Args:
        shape: the shape of the array.
        sharding: a device or a sharding.
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
    lengths, sharding = axes.normalize_shape(shape), _sharding_of_devices(sharding)
    parts: dict[Any, Any] = {}
    for index in sharding.addressable_devices_indices_map(lengths).values():
        key = tuple([(s.start, s.stop) for s in index])
        if key not in parts:
            parts[key] = index, data_callback(index)
    return _join(lengths, sharding, [*parts.values()], dtype)


@public_api
def make_array_from_process_local_data(sharding: Any, local_data: Any, global_shape: Any = None
                                       ) -> Array:
    """Create an array from the data of this process: with one process, the whole array.

    Args:
        sharding: a device or a sharding.
        local_data: NumPy data, or a tree of it: the block of this process. An axis of the length
            of the array is whole, and each process takes its part.
        global_shape: the shape of the array; None: that of the blocks together.

    Returns:
        An Array, or a tree of Arrays.

    Raises:
        ShapeError: data that is not the block of this process.
        ArgumentError: ``sharding`` is neither a device nor a sharding.

    >>> import fnx, numpy as np
    >>> make_array_from_process_local_data(fnx.devices()[0], np.ones(2, np.float32))
    Array([1., 1.], dtype=float32)
    """
    def put(data: Any) -> Array:
        lengths = np.shape(data)
        whole = placed._joined(lengths) if global_shape is None else \
            axes.normalize_shape(global_shape)
        block = placed._block(whole) if len(whole) == len(lengths) else ()
        wanted = tuple([s.stop - s.start for s in block])
        if len(whole) != len(lengths) or any(
                got not in (n, total) for got, n, total in zip(lengths, wanted, whole)):
            raise ShapeError(f"expected data of shape {wanted or whole}, got {lengths}",
                             hint="one process has all of the data" if wanted == whole else
                                  f"it is the block of this process, of an array of shape {whole}")
        rows = np.asarray(data)[tuple([s if got == total else slice(None) for s, got, total in
                                       zip(block, lengths, whole)])]
        return _join(whole, placed, [(block, rows)], None)

    placed = _sharding_of_devices(sharding)
    out: Array = tree.map(put, local_data)
    return out


@public_api
def make_array_from_single_device_arrays(shape: Any, sharding: Any, arrays: Sequence[Any], *,
                                         dtype: DTypeLike | None = None) -> Array:
    """Create an array from its parts on each device.

    Args:
        shape: the shape of the array.
        sharding: a device or a sharding.
        arrays: an array for each device of the sharding that this process has, in their order.
        dtype: the dtype of the array; by default that of the parts.

    Returns:
        An Array.

    Raises:
        ArgumentError: not one part for each device, or ``sharding`` is neither a device nor a
            sharding.
        ShapeError: a part of another shape.

    >>> import fnx, fnx.numpy as jnp
    >>> make_array_from_single_device_arrays((2,), fnx.devices()[0], [jnp.ones(2)])
    Array([1., 1.], dtype=float32)
    """
    lengths, sharding = axes.normalize_shape(shape), _sharding_of_devices(sharding)
    indices = sharding.addressable_devices_indices_map(lengths)
    if len(arrays) != len(indices):
        raise ArgumentError(f"expected one array for each of {len(indices)} devices, got "
                            f"{len(arrays)}", hint="pass them in the order of the mesh's devices")
    by_device = {d: x for x in arrays if type(x) is Array and x._storage is not None
                 for d in x.devices()}
    ordered = [by_device[d] for d in indices] if indices.keys() == by_device.keys() else arrays
    return _join(lengths, sharding, [*zip(indices.values(), ordered)], dtype)


def _sharding_of_devices(target: Any) -> Any:
    check_device(target)
    sharding = None if target is None else _sharding_for(target)
    if sharding is None:
        raise ArgumentError(f"expected a device or a sharding of devices, got {target!r}",
                            hint="pass NamedSharding(mesh, spec) with a mesh of devices")
    return sharding


def _join(shape: tuple[int, ...], sharding: Any, parts: Sequence[tuple[Any, Any]],
          dtype: DTypeLike | None) -> Array:
    """Return an array with a sharding from pairs of an index and its data."""
    block = sharding._block(shape)
    held: Any = None
    for index, data in parts:
        rows = np.asarray(data)
        ends = [s.indices(n)[:2] for s, n in zip(index, shape)]
        expected = tuple([stop - start for start, stop in ends])
        if rows.shape != expected:
            raise ShapeError(f"expected data of shape {expected}, got {rows.shape}")
        if held is None:
            held = np.empty([s.stop - s.start for s in block], rows.dtype)
        held[tuple([slice(start - s.start, stop - s.start)
                    for (start, stop), s in zip(ends, block)])] = rows
    x = asarray(held, dtype)
    result: Array = device_put(x, sharding) if sharding.is_fully_addressable else \
        constraints.from_block(x._numpy(), sharding, shape, x._dtype, x.weak)
    return result


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
