"""Devices as libraries ask for them: there is one, and all arrays are there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.core.array import axes, tree
from fnx.core.array.array import Array
from fnx.core.array.convert import DTypeLike
from fnx.core.array.public import asarray, public
from fnx.core.array.refusal import checked
from fnx.core.config import config
from fnx.core.errors import ArgumentError, ShapeError, module_face
from fnx.core.process import load

__all__ = [
    "Device", "block_until_ready", "copy_to_host_async", "default_backend", "device_count",
    "device_get", "device_put", "devices", "local_device_count", "local_devices",
    "make_array_from_callback", "make_array_from_single_device_arrays", "print_environment_info",
    "process_count", "process_index",
    "process_indices", "show_versions",
]


class Device:
    """The device: its platform, kind and number.

    >>> devices()
    [CpuDevice(id=0)]
    """

    id = process_index = local_hardware_id = 0

    @property
    def platform(self) -> str:
        """What computes: "cpu"."""
        return config.device

    @property
    def device_kind(self) -> str:
        """The same."""
        return config.device

    def __repr__(self) -> str:
        return f"{self.platform.capitalize()}Device(id=0)"

    def __str__(self) -> str:
        return f"{self.platform}:0"

    def memory_stats(self) -> None:
        """Nothing is counted."""


_DEVICE = Device()


def _known(backend: Any) -> None:
    if backend is not None and str(backend) != config.device:
        raise ArgumentError(f"expected backend {config.device!r}, got {backend!r}",
                            hint="fnx.config.device = ... chooses another")


@checked
def devices(backend: str | None = None) -> list[Device]:
    """All devices.

    Args:
        backend: None, or the name of the one there is.

    Returns:
        A list of one Device.

    Raises:
        ArgumentError: another backend.

    >>> devices()
    [CpuDevice(id=0)]
    """
    _known(backend)
    return [_DEVICE]


@checked
def local_devices(process_index: int | None = None, backend: str | None = None,
                  host_id: int | None = None) -> list[Device]:
    """The devices of this process.

    Args:
        process_index: None or 0.
        backend: None, or the name of the one there is.
        host_id: None or 0.

    Returns:
        A list of one Device.

    Raises:
        ArgumentError: another process or backend.

    >>> local_devices()
    [CpuDevice(id=0)]
    """
    if process_index not in (None, 0) or host_id not in (None, 0):
        raise ArgumentError("expected process 0: there is one")
    return devices(backend)


@checked
def device_count(backend: str | None = None) -> int:
    """How many devices there are.

    Args:
        backend: None, or the name of the one there is.

    Returns:
        1.

    >>> device_count()
    1
    """
    return len(devices(backend))


@checked
def local_device_count(backend: str | None = None) -> int:
    """How many devices this process has.

    Args:
        backend: None, or the name of the one there is.

    Returns:
        1.

    >>> local_device_count()
    1
    """
    return len(devices(backend))


@checked
def default_backend() -> str:
    """The platform that computes.

    Returns:
        A str, such as "cpu".

    >>> default_backend()
    'cpu'
    """
    return config.device


@checked
def process_index(backend: str | None = None) -> int:
    """The number of this process.

    Args:
        backend: None, or the name of the one there is.

    Returns:
        0.

    >>> process_index()
    0
    """
    _known(backend)
    return 0


@checked
def process_count(backend: str | None = None) -> int:
    """How many processes compute together.

    Args:
        backend: None, or the name of the one there is.

    Returns:
        1.

    >>> process_count()
    1
    """
    _known(backend)
    return 1


@checked
def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of all processes.

    Args:
        backend: None, or the name of the one there is.

    Returns:
        [0].

    >>> process_indices()
    [0]
    """
    _known(backend)
    return [0]


@public
def device_put(x: Any, device: Any = None, *, src: Any = None, donate: bool = False,
               may_alias: bool | None = None) -> Any:
    """The leaves of a tree as Arrays, on the device.

    Args:
        x: a pytree of arrays and numbers.
        device: a Device, a sharding, a tree of these, or None; all mean the one there is.
        src: accepted as JAX's.
        donate: accepted as JAX's; memory is shared where it can be.
        may_alias: accepted as JAX's.

    Returns:
        A pytree of Arrays.

    Raises:
        ArgumentError: a place that is none of those.

    >>> import fnx
    >>> device_put({"a": 1.5})
    {'a': Array(1.5, dtype=float32, weak_type=True)}
    """
    check_place(device)
    return tree.map(asarray, x)


def check_place(device: Any) -> None:
    """Refuse what names no place: neither a Device, nor a sharding, nor a tree of these."""
    if device is None or isinstance(device, Device):
        return
    faces = load("fnx.sharding")
    known = (Device, faces.Sharding, faces.PartitionSpec)
    for leaf in tree.leaves(device, is_leaf=lambda x: isinstance(x, known)):
        if not isinstance(leaf, known):
            raise ArgumentError(f"expected a device or a sharding, got {leaf!r}",
                                hint="fnx.devices()[0] is the device there is")


@checked
def device_get(x: Any) -> Any:
    """The leaves of a tree as NumPy data.

    Args:
        x: a pytree of arrays and numbers.

    Returns:
        A pytree of NumPy arrays; what is no Array stays as it is.

    >>> import fnx.numpy as jnp
    >>> device_get({"a": jnp.ones(2)})
    {'a': array([1., 1.], dtype=float32)}
    """
    return tree.map(lambda leaf: np.asarray(leaf)
                    if type(leaf) is Array and leaf._dtype.kind != "key" else leaf, x)


@checked
def block_until_ready(x: Any) -> Any:
    """A tree, once the values of all its arrays are there.

    Args:
        x: a pytree.

    Returns:
        The same.

    >>> import fnx.numpy as jnp
    >>> block_until_ready([jnp.ones(2)])
    [Array([1., 1.], dtype=float32)]
    """
    for leaf in tree.leaves(x):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    return x


@public
def copy_to_host_async(x: Any) -> None:
    """Begin to copy a pytree to the host: the device is the host, so it is there.

    Args:
        x: a pytree of arrays.

    >>> import fnx.numpy as jnp
    >>> copy_to_host_async(jnp.ones(2))
    """
    tree.leaves(x)


@public
def make_array_from_callback(shape: Any, sharding: Any, data_callback: Callable[[Any], Any],
                             dtype: DTypeLike | None = None) -> Array:
    """An array whose parts a function gives: here one part, which is all of it.

    Args:
        shape: of the array.
        sharding: a device or a sharding of one device.
        data_callback: of an index, a tuple of slices; returns what is there.
        dtype: of the array; by default that of the data.

    Returns:
        An Array.

    Raises:
        ShapeError: data of another shape.
        ArgumentError: no device.

    >>> import fnx, numpy as np
    >>> data = np.arange(4.0, dtype=np.float32)
    >>> make_array_from_callback((4,), fnx.devices()[0], lambda index: data[index])
    Array([0., 1., 2., 3.], dtype=float32)
    """
    lengths = axes.shape(shape)
    found = asarray(data_callback(tuple([slice(None)] * len(lengths))), dtype)
    return _placed(lengths, sharding, found)


@public
def make_array_from_single_device_arrays(shape: Any, sharding: Any, arrays: Sequence[Any], *,
                                         dtype: DTypeLike | None = None) -> Array:
    """An array of its parts on each device: here one part, which is all of it.

    Args:
        shape: of the array.
        sharding: a device or a sharding of one device.
        arrays: a list of one Array.
        dtype: of the array; by default that of the part.

    Returns:
        An Array.

    Raises:
        ArgumentError: more parts than one, or no device.
        ShapeError: a part of another shape.

    >>> import fnx, fnx.numpy as jnp
    >>> make_array_from_single_device_arrays((2,), fnx.devices()[0], [jnp.ones(2)])
    Array([1., 1.], dtype=float32)
    """
    if len(arrays) != 1:
        raise ArgumentError(f"expected one array, as there is one device; got {len(arrays)}")
    return _placed(axes.shape(shape), sharding, asarray(arrays[0], dtype))


def _placed(shape: tuple[int, ...], sharding: Any, x: Array) -> Array:
    if x._shape != shape:
        raise ShapeError(f"expected data of shape {shape}, got {x._shape}")
    placed: Array = device_put(x, sharding)
    return placed


@checked
def print_environment_info(return_string: bool = False) -> str | None:
    """Print the versions of what computes, for reports of faults.

    Args:
        return_string: return the text instead.

    Returns:
        The text, or None.

    >>> print_environment_info(return_string=True).splitlines()[0].split()[0]
    'fnx:'
    """
    text = "\n".join([
        f"fnx: {load('fnx').__version__}", f"numpy: {np.__version__}",
        f"llvmlite: {load('importlib.metadata').version('llvmlite')}",
        f"python: {sys.version}",
        f"device: {config.device}", f"platform: {load('platform').platform()}"])
    if return_string:
        return text
    print(text)
    return None


def show_versions() -> None:
    """Print what a report of a fault should say.

    That is versions, the machine, and the settings that are not as usual.

    >>> show_versions()  # doctest: +ELLIPSIS
    fnx: ...
    settings: ...
    """
    print(print_environment_info(return_string=True))
    for name in ("jax", "ml_dtypes", "torch", "scipy"):
        if name in sys.modules:
            print(f"{name}: {getattr(sys.modules[name], '__version__', '?')}")
    changed = [line.partition(":")[0] for line in repr(config).splitlines()
               if "(default)" not in line]
    print(f"settings: {'; '.join(changed) or 'the defaults'}")


if not TYPE_CHECKING:  # else every name would be there for type checkers
    __getattr__, __dir__ = module_face(__name__, __all__)
