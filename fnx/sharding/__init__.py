"""Shardings over devices. There is one device: meshes have axes of length 1, arrays are whole."""

from __future__ import annotations

import enum
import math
import sys
from collections.abc import Callable, Hashable, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import numpy as np

from fnx.core.array import arguments, tree
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.support.errors import (
    ArgumentError,
    NotBuiltError,
    ShapeError,
    UnknownNameError,
    lazy_module,
)
from fnx.core.support.record import Record
from fnx.sharding.device_registry import Device, devices
from fnx.transforms.jit import jit
from fnx.transforms.vmap import vmap

__all__ = [
    "AbstractMesh", "AxisType", "Mesh", "NamedSharding", "PartitionSpec", "Sharding",
    "SingleDeviceSharding", "get_abstract_mesh", "get_mesh", "make_mesh", "pmap", "reshard",
    "set_mesh", "shard_map", "use_abstract_mesh", "with_sharding_constraint",
]


class AxisType(enum.Enum):
    """How JAX treats an axis of a mesh; with one device all types are equivalent.

    >>> AxisType.Auto.name
    'Auto'
    """

    Auto = 0
    Explicit = 1
    Manual = 2


class PartitionSpec(tuple[Any, ...]):
    """The mesh axes over which each axis of an array is partitioned.

    Args:
        partitions: for each axis of the array a name, a tuple of names, or None.

    >>> PartitionSpec("x", None)
    P('x', None)
    """

    UNCONSTRAINED = None

    def __new__(cls, *partitions: Any) -> PartitionSpec:
        return super().__new__(cls, partitions)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"P({', '.join(map(repr, self))})"


class AbstractMesh:
    """The names and lengths of the axes of a mesh.

    Args:
        axis_sizes: their lengths, each 1.
        axis_names: their names.
        axis_types: accepted for compatibility with JAX.

    >>> AbstractMesh((1,), ("x",)).shape
    {'x': 1}
    """

    def __init__(self, axis_sizes: Sequence[int], axis_names: Sequence[Hashable],
                 axis_types: Any = None) -> None:
        sizes, names = tuple(axis_sizes), tuple(axis_names)
        if len(sizes) != len(names):
            raise ArgumentError(f"expected a name for each of {sizes}, got {names}")
        self.axis_sizes, self.axis_names = sizes, names
        self.axis_types = axis_types or (AxisType.Auto,) * len(names)

    @property
    def shape(self) -> dict[Hashable, int]:
        """A dict from axis name to length."""
        return dict(zip(self.axis_names, self.axis_sizes))

    @property
    def size(self) -> int:
        """The number of devices."""
        return math.prod(self.axis_sizes)

    @property
    def empty(self) -> bool:
        """Whether it has no axes."""
        return not self.axis_names

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self.shape == other.shape

    def __hash__(self) -> int:
        return hash((self.axis_names, self.axis_sizes))

    def __repr__(self) -> str:
        axes = ", ".join(f"{n!r}: {size}" for n, size in self.shape.items())
        return f"{type(self).__name__}({axes})"


class Mesh(AbstractMesh):
    """A grid of devices with named axes. There is one device, so each axis has length 1.

    Args:
        devices: the device, in an array with one axis per name.
        axis_names: a name, or one per axis.
        axis_types: accepted for compatibility with JAX.

    >>> import fnx
    >>> Mesh(fnx.devices(), "x")
    Mesh('x': 1)
    """

    def __init__(self, devices: Any, axis_names: Any, axis_types: Any = None) -> None:
        grid = np.asarray(devices, dtype=object)
        names = (axis_names,) if isinstance(axis_names, str) else tuple(axis_names)
        super().__init__(grid.shape, names, axis_types)
        self.devices = grid

    @property
    def abstract_mesh(self) -> AbstractMesh:
        """The axes of the mesh without the devices."""
        return AbstractMesh(self.axis_sizes, self.axis_names, self.axis_types)

    def __enter__(self) -> Mesh:
        _meshes.set((*_meshes.get(), self))
        return self

    def __exit__(self, *error: Any) -> None:
        _meshes.set(_meshes.get()[:-1])


_meshes: ContextVar[tuple[AbstractMesh, ...]] = ContextVar("fnx meshes", default=())


class Sharding:
    """The placement of an array on devices: whole, on a single device.

    >>> import fnx
    >>> isinstance(SingleDeviceSharding(fnx.devices()[0]), Sharding)
    True
    """

    memory_kind: str | None = None
    is_fully_replicated = is_fully_addressable = True
    num_devices = 1

    def __getattr__(self, name: str) -> Any:
        """Raise. JAX itself, given an array of fnx, asks its sharding for private attributes."""
        imported = sys.modules.get("jax")
        is_jax_itself = imported is not None and "fnx" not in str(imported.__spec__)
        raise UnknownNameError(
            "sharding of a fnx Array", name, dir(type(self)),
            "an Array was given to JAX itself: call fnx.as_jax.install() before anything imports "
            "jax, so that libraries such as optax run on fnx" if is_jax_itself else
            "help(fnx.sharding) lists its attributes")

    @property
    def device_set(self) -> set[Device]:
        """The devices."""
        return set(devices())

    @property
    def addressable_devices(self) -> set[Device]:
        """The devices of this process."""
        return set(devices())

    @property
    def _addressable_device_assignment(self) -> tuple[Device, ...]:
        """The devices in order, which orbax reads."""
        return tuple(self.device_set)

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a shard: that of the array."""
        return tuple(global_shape)

    def devices_indices_map(self, global_shape: Sequence[int]
                            ) -> dict[Device, tuple[slice, ...]]:
        """Return which part of an array each device holds: all of it."""
        return {device: (slice(None),) * len(global_shape) for device in self.device_set}

    addressable_devices_indices_map = devices_indices_map

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether two shardings are equivalent: all are."""
        return isinstance(other, Sharding)


class SingleDeviceSharding(Sharding):
    """A sharding on one device.

    Args:
        device: the device.
        memory_kind: accepted for compatibility with JAX.

    >>> import fnx
    >>> SingleDeviceSharding(fnx.devices()[0])
    SingleDeviceSharding(device=CpuDevice(id=0))
    """

    def __init__(self, device: Device, *, memory_kind: str | None = None) -> None:
        self.device, self.memory_kind = device, memory_kind

    @property
    def device_set(self) -> set[Device]:
        """The device."""
        return {self.device}

    def __repr__(self) -> str:
        return f"SingleDeviceSharding(device={self.device!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SingleDeviceSharding) and self.device is other.device

    def __hash__(self) -> int:
        return hash(self.device)


class NamedSharding(Sharding):
    """A sharding over the axes of a mesh.

    Args:
        mesh: a Mesh.
        spec: a PartitionSpec, whose names are axes of the mesh.
        memory_kind: accepted for compatibility with JAX.

    >>> import fnx
    >>> NamedSharding(Mesh(fnx.devices(), "x"), PartitionSpec("x"))
    NamedSharding(mesh=Mesh('x': 1), spec=P('x',))
    """

    def __init__(self, mesh: AbstractMesh, spec: PartitionSpec, *, memory_kind: str | None = None
                 ) -> None:
        named = [n for part in spec if part is not None
                 for n in (part if isinstance(part, tuple) else (part,))]
        unknown = [n for n in named if n not in mesh.axis_names]
        if unknown:
            raise ArgumentError(f"expected axes of {mesh}, got {unknown}")
        self.mesh, self.spec, self.memory_kind = mesh, spec, memory_kind

    def update(self, **changes: Any) -> NamedSharding:
        """Return a sharding with another mesh, spec or memory kind."""
        return NamedSharding(**{"mesh": self.mesh, "spec": self.spec,
                                "memory_kind": self.memory_kind, **changes})

    def __repr__(self) -> str:
        items = ", ".join(map(repr, self.spec)) + "," * (len(self.spec) == 1)
        return f"NamedSharding(mesh={self.mesh!r}, spec=P({items}))"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedSharding) and (self.mesh, self.spec) == (
            other.mesh, other.spec)

    def __hash__(self) -> int:
        return hash((self.mesh, self.spec))


@public_api
def make_mesh(axis_shapes: Sequence[int], axis_names: Sequence[Hashable], axis_types: Any = None,
              *, devices: Any = None) -> Mesh:
    """Create a mesh of one device.

    Args:
        axis_shapes: the lengths of its axes, each 1.
        axis_names: their names.
        axis_types: accepted for compatibility with JAX.
        devices: a list with the device; by default the current one.

    Returns:
        A Mesh.

    Raises:
        ArgumentError: an axis longer than 1.

    >>> make_mesh((1,), ("x",))
    Mesh('x': 1)
    """
    if math.prod(axis_shapes) != 1:
        raise ArgumentError(f"expected axes of length 1, got {tuple(axis_shapes)}",
                            hint="there is one device: use vmap instead")
    grid = np.empty(tuple(axis_shapes), object)
    grid.fill(_devices()[0] if devices is None else list(devices)[0])
    return Mesh(grid, axis_names, axis_types)


_devices = devices


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


def _check_layouts(value: Any, shardings: Any) -> Any:
    """Convert the leaves of a tree to Arrays, and check that the shardings are valid."""
    layouts = (Sharding, PartitionSpec, Device)
    for layout in tree.leaves(shardings, is_leaf=lambda s: isinstance(s, layouts)):
        if not isinstance(layout, layouts):
            raise ArgumentError("expected shardings or PartitionSpecs, got "
                                f"{type(layout).__name__}",
                                hint="pass fnx.sharding.PartitionSpec(...), or a NamedSharding")
    return tree.map(asarray, value)


_docstr = DocTemplate(
    x="a pytree of arrays.", xs="a pytree of arrays.",
    shardings="a sharding or a PartitionSpec, or a tree of these.",
    out_shardings="a sharding or a PartitionSpec, or a tree of these.",
    returns="The same pytree.", raises=("ArgumentError: what is no sharding.",))


@_docstr()
def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """Constrain the sharding of arrays; no effect with one device.

    >>> with_sharding_constraint(jnp.ones(2), PartitionSpec(None))
    Array([1., 1.], dtype=float32)
    """
    return _check_layouts(x, shardings)


@_docstr()
def reshard(xs: Any, out_shardings: Any) -> Any:
    """Change the sharding of arrays; no effect with one device.

    >>> reshard(jnp.ones(2), PartitionSpec(None))
    Array([1., 1.], dtype=float32)
    """
    return _check_layouts(xs, out_shardings)


def pmap(fun: Callable[..., Any], axis_name: Hashable = None, *, in_axes: Any = 0,
         out_axes: Any = 0, static_broadcasted_argnums: int | Sequence[int] = (),
         devices: Any = None, backend: str | None = None, axis_size: int | None = None,
         donate_argnums: int | Sequence[int] = ()) -> Callable[..., Any]:
    """Map a function over devices. There is one device, so the mapped axis has length 1.

    Args:
        fun: a function of one shard.
        axis_name: the name of the axis, for collectives.
        in_axes: the mapped axis of each argument, or None.
        out_axes: the position of the axis in the results.
        static_broadcasted_argnums: positions of static arguments.
        devices: accepted for compatibility with JAX.
        backend: accepted for compatibility with JAX.
        axis_size: 1.
        donate_argnums: as for ``jit``.

    Returns:
        The mapped function.

    Raises:
        ShapeError: a longer mapped axis.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> pmap(lambda x: lax.psum(x, "i"), "i")(jnp.ones((1, 2)))
    Array([[1., 1.]], dtype=float32)
    """
    if axis_size not in (None, 1):
        raise ShapeError(f"pmap: expected axis_size 1, got {axis_size}",
                         hint="there is one device: use vmap instead")
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
        for i, axis in zip(dynamic, mapped_axes):
            for x in tree.leaves(args[i]) if isinstance(axis, int) else ():
                _check_one_part(np.shape(x), axis, i)
        return vmap(per_part, in_axes=mapped_axes, out_axes=out_axes, axis_name=axis_name,
                    axis_size=1)(
            *[args[i] for i in dynamic], **kwargs)
    return jit(mapped, static_argnums=static, donate_argnums=donate_argnums)


def _check_one_part(shape: Sequence[int], axis: int, i: int) -> None:
    if -len(shape) <= axis < len(shape) and shape[axis] != 1:
        raise ShapeError(f"pmap: expected a mapped axis of length 1, as there is one device; got "
                         f"{shape[axis]} at args[{i}]", hint="use vmap instead")


def shard_map(f: Callable[..., Any] | None = None, *, out_specs: Any = None, in_specs: Any = None,
              mesh: AbstractMesh | None = None, axis_names: Any = frozenset(),
              check_vma: bool = True) -> Any:
    """Map a function over the shards of arrays on a mesh.

    With one device a shard is the whole array, and the axes that it opens have length 1.

    Args:
        f: a function of shards. If omitted: a decorator.
        out_specs: the partition specs of the results.
        in_specs: the partition specs of the arguments.
        mesh: its axes are open in f, for collectives; by default the current mesh.
        axis_names: the axes to open; by default all.
        check_vma: accepted for compatibility with JAX.

    Returns:
        A function of whole arrays.

    Raises:
        ArgumentError: no mesh.
        NotBuiltError: an axis longer than 1.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> total = shard_map(lambda x: lax.psum(x, "x"), mesh=make_mesh((1,), ("x",)),
    ...                   in_specs=PartitionSpec("x"), out_specs=PartitionSpec())
    >>> total(jnp.ones(2))
    Array([1., 1.], dtype=float32)
    """
    arguments.check_bool("check_vma", check_vma)
    if f is None:
        return lambda g: shard_map(g, out_specs=out_specs, in_specs=in_specs, mesh=mesh,
                                   axis_names=axis_names, check_vma=check_vma)
    active_mesh = mesh or get_mesh()
    if active_mesh.empty:
        raise ArgumentError("shard_map: expected a mesh, got none", hint="pass mesh=")
    names = [n for n in active_mesh.axis_names if not axis_names or n in axis_names]
    if long_axes := {n: active_mesh.shape[n] for n in names if active_mesh.shape[n] != 1}:
        raise NotBuiltError(
            "shard_map: expected axes of length 1, as each array is on one device; got "
            f"{long_axes}",
            hint="use vmap(f, axis_name=...), which supports collectives")

    def whole(*args: Any) -> Any:
        g: Callable[..., Any] = lambda _: f(*args)  # noqa: E731
        for name in names:
            g = _with_axis(g, name)
        return g(np.zeros(1, np.float32))
    return whole


def _with_axis(g: Callable[..., Any], name: Hashable) -> Callable[..., Any]:
    """Wrap g in a named axis of length 1."""
    def call(element: Any) -> Any:
        return tree.map(lambda y: y[0], vmap(lambda _: g(element), axis_name=name)(element[:1]))
    return call


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
