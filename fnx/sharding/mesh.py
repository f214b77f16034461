"""Meshes: grids of devices with named axes, and the current mesh."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Hashable, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from fnx.core.array.api_boundary import public_api
from fnx.core.array.arguments import check_int
from fnx.core.ir.op_args import ProcessGrid
from fnx.core.scope import communicator
from fnx.core.support.config import config
from fnx.core.support.errors import ArgumentError
from fnx.core.support.record import Record
from fnx.sharding import device_registry
from fnx.sharding.device_registry import Device

__all__ = [
    "AbstractMesh", "AxisType", "Mesh", "create_device_mesh", "get_abstract_mesh", "get_mesh",
    "make_mesh", "set_mesh", "use_abstract_mesh",
]


class AxisType(enum.Enum):
    """How JAX treats an axis of a mesh. Here all axes are treated as Auto: shardings propagate.

    >>> AxisType.Auto.name
    'Auto'
    """

    Auto = 0
    Explicit = 1
    Manual = 2


class AbstractMesh:
    """The names and lengths of the axes of a mesh.

    Args:
        axis_sizes: their lengths.
        axis_names: their names.
        axis_types: accepted for compatibility with JAX.

    Raises:
        ArgumentError: not one name for each axis, or a name twice.

    >>> AbstractMesh((4, 2), ("x", "y")).shape
    {'x': 4, 'y': 2}
    """

    def __init__(self, axis_sizes: Sequence[int], axis_names: Sequence[Hashable],
                 axis_types: Any = None) -> None:
        sizes = tuple([check_int("the length of an axis", n) for n in axis_sizes])
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        if len(sizes) != len(names):
            raise ArgumentError(f"expected a name for each axis of {sizes}, got {names}",
                                hint="reshape the array of devices, or give as many names as it "
                                     "has axes")
        if twice := [n for n, count in Counter(names).items() if count > 1]:
            raise ArgumentError(f"expected a name for each axis, got {twice[0]!r} twice",
                                hint="rename one of the axes")
        self.axis_sizes, self.axis_names = sizes, names
        self.axis_types = axis_types or (AxisType.Auto,) * len(names)

    @property
    def shape(self) -> dict[Hashable, int]:
        """A dict from axis name to length."""
        return dict(zip(self.axis_names, self.axis_sizes))

    @property
    def shape_tuple(self) -> tuple[tuple[Hashable, int], ...]:
        """Pairs of name and length."""
        return tuple(zip(self.axis_names, self.axis_sizes))

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.axis_sizes)

    @property
    def empty(self) -> bool:
        """Whether it has no axes."""
        return not self.axis_names

    def _axes(self, kind: AxisType) -> tuple[Hashable, ...]:
        return tuple([n for n, t in zip(self.axis_names, self.axis_types) if t is kind])

    @property
    def auto_axes(self) -> tuple[Hashable, ...]:
        """The names of the axes that are declared Auto."""
        return self._axes(AxisType.Auto)

    @property
    def explicit_axes(self) -> tuple[Hashable, ...]:
        """The names of the axes that are declared Explicit."""
        return self._axes(AxisType.Explicit)

    @property
    def manual_axes(self) -> tuple[Hashable, ...]:
        """The names of the axes that are declared Manual."""
        return self._axes(AxisType.Manual)

    @property
    def are_all_axes_auto(self) -> bool:
        """Whether there are axes, and all are declared Auto."""
        return not self.empty and self.auto_axes == self.axis_names

    @property
    def are_all_axes_explicit(self) -> bool:
        """Whether there are axes, and all are declared Explicit."""
        return not self.empty and self.explicit_axes == self.axis_names

    @property
    def are_all_axes_manual(self) -> bool:
        """Whether there are axes, and all are declared Manual."""
        return not self.empty and self.manual_axes == self.axis_names

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.shape_tuple == other.shape_tuple

    def __hash__(self) -> int:
        return hash((self.axis_names, self.axis_sizes))

    def __repr__(self) -> str:
        axes = ", ".join(f"{n!r}: {size}" for n, size in self.shape.items())
        return f"{type(self).__name__}({axes})"


class Mesh(AbstractMesh):
    """A grid of devices with named axes.

    Args:
        devices: an array of devices with one axis per name.
        axis_names: a name, or one per axis.
        axis_types: accepted for compatibility with JAX.

    Raises:
        ArgumentError: a device twice, something that is no device, or names that do not fit.

    >>> import fnx
    >>> Mesh(fnx.devices(), "x")
    Mesh('x': 1)
    """

    def __init__(self, devices: Any, axis_names: Any, axis_types: Any = None) -> None:
        grid = np.asarray(devices, dtype=object)
        for d in grid.flat:
            if not isinstance(d, Device):
                raise ArgumentError(f"expected devices, got {d!r}", hint="pass fnx.devices()")
        if twice := [d for d, count in Counter(grid.flat).items() if count > 1]:
            raise ArgumentError(f"expected different devices, got {twice[0]} twice",
                                hint="FNX_CPU_DEVICES=8 makes 8 devices of the processor: "
                                     "Mesh(fnx.devices(), ...)")
        super().__init__(grid.shape, axis_names, axis_types)
        self.devices = grid
        self.grid: ProcessGrid | None = None  # see process_blocks.py, which computes it

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The axes of the mesh without the devices."""
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types)

    @property
    def device_ids(self) -> np.ndarray[Any, Any]:
        """The numbers of the devices, in an array like ``devices``."""
        return np.array([d.id for d in self.devices.flat], np.int64).reshape(self.devices.shape)

    @property
    def local_devices(self) -> list[Device]:
        """The devices of this process."""
        rank = communicator.of_process().rank
        return [d for d in self.devices.flat if d.process_index == rank]

    @property
    def is_multi_process(self) -> bool:
        """Whether it has devices of several processes."""
        return len({d.process_index for d in self.devices.flat}) > 1

    @property
    def local_mesh(self) -> Mesh:
        """The mesh of its devices of this process, with the same axes."""
        here = np.array([d in self.local_devices for d in self.devices.flat], bool)
        index = np.argwhere(here.reshape(self.devices.shape))
        part = tuple([slice(int(low), int(high) + 1) for low, high in
                      zip(index.min(0), index.max(0))])
        return Mesh(self.devices[part], self.axis_names, self.axis_types)

    def __eq__(self, other: object) -> bool:
        return super().__eq__(other) and isinstance(other, Mesh) and \
            list(self.devices.flat) == list(other.devices.flat)

    def __hash__(self) -> int:
        return super().__hash__()

    def __enter__(self) -> Mesh:
        _meshes.set((*_meshes.get(), self))
        return self

    def __exit__(self, *error: Any) -> None:
        _meshes.set(_meshes.get()[:-1])


_meshes: ContextVar[tuple[AbstractMesh, ...]] = ContextVar("fnx meshes", default=())


@public_api
def make_mesh(axis_shapes: Sequence[int], axis_names: Sequence[Hashable], axis_types: Any = None,
              *, devices: Any = None) -> Mesh:
    """Create a mesh of the first devices.

    Args:
        axis_shapes: the lengths of its axes.
        axis_names: their names.
        axis_types: accepted for compatibility with JAX.
        devices: a list of devices; by default all of ``fnx.devices()``.

    Returns:
        A Mesh.

    Raises:
        ArgumentError: more devices than there are.

    >>> make_mesh((1,), ("x",))
    Mesh('x': 1)
    """
    return Mesh(_grid(axis_shapes, devices), axis_names, axis_types)


def _grid(shape: Sequence[int], devices: Any) -> np.ndarray[Any, Any]:
    """Arrange the first devices in an array."""
    lengths = tuple([check_int("the length of an axis", n) for n in shape])
    available = device_registry.devices() if devices is None else list(np.asarray(devices).flat)
    count = math.prod(lengths)
    if min(lengths, default=1) < 0 or count > len(available):
        cure = f"set FNX_CPU_DEVICES={count}: it makes {count} devices of the processor" \
            if config.device == "cpu" else "make a smaller mesh"
        raise ArgumentError(f"expected axes for at most {len(available)} devices, got {lengths}",
                            hint=cure)
    grid = np.empty(count, object)
    grid[:] = available[:count]
    return grid.reshape(lengths)


@public_api
def create_device_mesh(mesh_shape: Sequence[int], devices: Any = None, *,
                       contiguous_submeshes: bool = False, allow_split_physical_axes: bool = False
                       ) -> np.ndarray[Any, Any]:
    """Arrange all devices in an array, for ``Mesh``.

    Args:
        mesh_shape: the shape of the array.
        devices: a list of devices; by default all of ``fnx.devices()``.
        contiguous_submeshes: accepted for compatibility with JAX.
        allow_split_physical_axes: accepted for compatibility with JAX.

    Returns:
        A NumPy array of devices.

    Raises:
        ArgumentError: the shape has not as many elements as there are devices.

    >>> create_device_mesh((1, 1))
    array([[CpuDevice(id=0)]], dtype=object)
    """
    grid = _grid(mesh_shape, devices)
    count = len(device_registry.devices() if devices is None else list(devices))
    if grid.size != count:
        raise ArgumentError(f"expected a shape for {count} devices, got {tuple(mesh_shape)}",
                            hint=f"pass devices=fnx.devices()[:{grid.size}]")
    return grid


class _MeshContext(Record):
    """The result of ``set_mesh``: a context manager that restores the previous mesh at its end."""

    mesh: AbstractMesh

    def __enter__(self) -> AbstractMesh:
        return self.mesh

    def __exit__(self, *error: Any) -> None:
        _meshes.set(_meshes.get()[:-1])


@public_api
def set_mesh(mesh: AbstractMesh) -> Any:
    """Set the mesh that ``get_mesh`` returns.

    Args:
        mesh: a Mesh.

    Returns:
        A context manager that restores the previous mesh at its end.

    >>> with set_mesh(make_mesh((1,), ("x",))) as mesh:
    ...     get_mesh() is mesh
    True
    """
    _meshes.set((*_meshes.get(), mesh))
    return _MeshContext(mesh)


use_abstract_mesh = set_mesh


@public_api
def get_mesh() -> AbstractMesh:
    """Return the current mesh; an empty one if none is set.

    Returns:
        A Mesh.

    >>> get_mesh().empty
    True
    """
    meshes = _meshes.get()
    return meshes[-1] if meshes else AbstractMesh((), ())


@public_api
def get_abstract_mesh() -> AbstractMesh:
    """Return the axes of the current mesh.

    Returns:
        An AbstractMesh.

    >>> get_abstract_mesh().empty
    True
    """
    mesh = get_mesh()
    return mesh.abstract_mesh if isinstance(mesh, Mesh) else mesh
