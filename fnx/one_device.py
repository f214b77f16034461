"""Devices as users know them: by name, and what moves arrays between them.

    fnx.devices()            those of the configured platform (``config.device``)
    fnx.devices("gpu")       another one; a driver that is not here says what was looked for
    fnx.device_put(x, d)     x there, committed: what is computed of it runs there

There is one device of each name. Nothing is opened before somebody asks for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.core.array import axes, committed, scope, tree
from fnx.core.array.array import Array, from_storage
from fnx.core.array.convert import DTypeLike
from fnx.core.array.public import asarray, public, settle
from fnx.core.array.refusal import checked
from fnx.core.array.repeated import begin_placing
from fnx.core.config import DEVICES, GPUS, config
from fnx.core.errors import ArgumentError, DeviceError, ShapeError, module_face
from fnx.core.process import deferred, load
from fnx.core.uop import current_site

__all__ = [
    "Device", "block_until_ready", "copy_to_host_async", "default_backend", "device_count",
    "device_get", "device_put", "devices", "local_device_count", "local_devices",
    "make_array_from_callback", "make_array_from_single_device_arrays", "print_environment_info",
    "process_count", "process_index",
    "process_indices", "show_versions",
]


class Device:
    """A device: its platform, kind and number.

    >>> devices()
    [CpuDevice(id=0)]
    """

    id = process_index = local_hardware_id = 0

    def __init__(self, platform: str) -> None:
        self.platform = platform

    @property
    def device_kind(self) -> str:
        """What its vendor calls it; of the host's devices the platform."""
        driver = getattr(_opened(self.platform), "driver", None)
        return self.platform if driver is None else str(driver.kind)

    @property
    def client(self) -> Device:
        """What libraries ask for its platform: itself."""
        return self

    def __reduce__(self) -> Any:
        return device_named, (self.platform,)

    def __repr__(self) -> str:
        return f"{self.platform.capitalize()}Device(id=0)"

    def __str__(self) -> str:
        return f"{self.platform}:0"

    def memory_stats(self) -> dict[str, int] | None:
        """Bytes in use and held, of a device with memory of its own; else None."""
        device = _opened(self.platform)
        if getattr(device, "driver", None) is None:
            return None
        found = device.stats()
        return {"bytes_in_use": found["held"] - found["free"], "bytes_reserved": found["held"],
                "bytes_limit": device.driver.limits.memory}

    def synchronize_all_activity(self) -> None:
        """Return when all that it was given is done."""
        _opened(self.platform).synchronize()


_opened = deferred("fnx.transforms.link", "get_device")
_moved_memory = deferred("fnx.transforms.link", "moved")
_made: dict[str, Device] = {}


def device_named(platform: str) -> Device:
    """The one device of a platform, whether it is here or not."""
    return _made.setdefault(platform, Device(platform))


def _found(backend: Any) -> Device:
    """The device of a backend, which is opened."""
    if backend is None:
        return device_named(config.device)
    if backend == "gpu":
        return _first_gpu()
    if backend not in DEVICES:
        raise ArgumentError(f"expected one of {', '.join(DEVICES)} or gpu, got {backend!r}",
                            hint="fnx.devices(name) opens a device by its name")
    _opened(backend)
    return device_named(backend)


def _first_gpu() -> Device:
    said = []
    for name in GPUS:
        if name in DEVICES:
            try:
                _opened(name)
            except DeviceError as why:
                said.append(why.message)
            else:
                return device_named(name)
    raise DeviceError(f"expected a GPU: {'; '.join(said)}",
                      hint='fnx.devices("cpu") is always there')


@checked
def devices(backend: str | None = None) -> list[Device]:
    """All devices of a platform.

    Args:
        backend: the name of a device, as ``config.device`` has it; "gpu": the first of those that
            is here; None: that of ``config.device``.

    Returns:
        A list of one Device.

    Raises:
        ArgumentError: no such name.
        DeviceError: it is not here; says which package or file was looked for.

    >>> devices()
    [CpuDevice(id=0)]
    """
    return [_found(backend)]


@checked
def local_devices(process_index: int | None = None, backend: str | None = None,
                  host_id: int | None = None) -> list[Device]:
    """The devices of this process.

    Args:
        process_index: None or 0.
        backend: as ``devices`` has it.
        host_id: None or 0.

    Returns:
        A list of one Device.

    Raises:
        ArgumentError: another process, or no such backend.

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
        backend: as ``devices`` has it.

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
        backend: as ``devices`` has it.

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
        backend: as ``devices`` has it.

    Returns:
        0.

    >>> process_index()
    0
    """
    _found(backend)
    return 0


@checked
def process_count(backend: str | None = None) -> int:
    """How many processes compute together.

    Args:
        backend: as ``devices`` has it.

    Returns:
        1.

    >>> process_count()
    1
    """
    _found(backend)
    return 1


@checked
def process_indices(backend: str | None = None) -> list[int]:
    """The numbers of all processes.

    Args:
        backend: as ``devices`` has it.

    Returns:
        [0].

    >>> process_indices()
    [0]
    """
    _found(backend)
    return [0]


@public
def device_put(x: Any, device: Any = None, *, src: Any = None, donate: bool = False,
               may_alias: bool | None = None) -> Any:
    """The leaves of a tree as Arrays, on a device.

    Where a device is named they are committed: what is computed of them runs there. Others follow
    those that they are computed with, else ``config.device``.

    Args:
        x: a pytree of arrays and numbers.
        device: a Device or its name, a sharding, a tree of these, or None.
        src: accepted as JAX's.
        donate: accepted as JAX's; memory is shared where it can be.
        may_alias: accepted as JAX's.

    Returns:
        A pytree of Arrays.

    Raises:
        ArgumentError: a place that is none of those.
        DeviceError: the device is not here.

    >>> import fnx
    >>> device_put({"a": 1.5})
    {'a': Array(1.5, dtype=float32, weak_type=True)}
    >>> device_put(1.5, fnx.devices("cpu")[0]).committed
    True
    """
    check_place(device)
    made = tree.map(asarray, x)
    if device is None or scope.is_open():
        return made
    leaves, made_tree = tree.flatten(made)
    settle(leaves)
    to = platform_of(device)
    names = [to] * len(leaves) if to is not None or not _is_tree(device) else \
        [platform_of(d) for d in tree.leaves(device, is_leaf=_is_place)]
    if len(names) not in (1, len(leaves)):
        raise ArgumentError(f"expected a device for each of {len(leaves)} leaves, got {len(names)}")
    names = names * len(leaves) if len(names) == 1 else names
    return made_tree.unflatten([
        leaf if name is None else _moved(leaf, name) for leaf, name in zip(leaves, names)])


def _is_place(x: Any) -> bool:
    faces = load("fnx.sharding")
    return isinstance(x, (Device, str, faces.Sharding, faces.PartitionSpec))


def _is_tree(device: Any) -> bool:
    return not _is_place(device)


def platform_of(place: Any) -> str | None:
    """The name of the device that a Device, a name or a sharding means; None: of any."""
    if isinstance(place, str):
        return _found(place).platform
    if isinstance(place, Device):
        return place.platform
    one = getattr(place, "device", None)
    if one is None and getattr(place, "mesh", None) is not None:
        grid = getattr(place.mesh, "devices", None)
        one = None if grid is None else grid.flat[0]
    return one.platform if isinstance(one, Device) else None


def device_of(x: Array) -> Device:
    """Where the memory of an array is; of one that is traced, where it will be computed."""
    memory = x._storage
    place = committed.place_of(memory)
    if place is not None:
        return device_named(place.device)
    name = getattr(memory, "device_name", None)
    if name is None:  # the host's
        name = config.device if memory is None or config.device not in GPUS else "cpu"
    return device_named(name)


def _moved(x: Array, name: str) -> Array:
    """x in the memory of a device, committed."""
    made = _moved_memory(x._storage, name)
    made.placed = committed.PlacedAt(name, current_site.site)
    if name != config.device or _elsewhere:
        _elsewhere.add(name)
        begin_placing()
    return from_storage(made, x._shape, x._dtype, x.weak)


_elsewhere: set[str] = set()


def check_place(device: Any) -> None:
    """Refuse what names no place: neither a Device, nor a sharding, nor a tree of these."""
    if device is None or isinstance(device, Device):
        return
    for leaf in tree.leaves(device, is_leaf=_is_place):
        known = leaf in (*DEVICES, "gpu") if isinstance(leaf, str) else _is_place(leaf)
        if not known:
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
    """Begin to copy a pytree to the host, where that is not where it is.

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
