"""Shardings: which part of an array each device holds."""

from __future__ import annotations

import itertools
import math
import sys
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any

from fnx.core.ir.axis_partitions import Partitions
from fnx.core.scope import communicator
from fnx.core.support.errors import ArgumentError, ShapeError, UnknownNameError
from fnx.sharding import process_blocks
from fnx.sharding.device_registry import Device, device_by_name, local_devices
from fnx.sharding.mesh import AbstractMesh, Mesh

__all__ = ["NamedSharding", "PartitionSpec", "Sharding", "SingleDeviceSharding"]


class _Unconstrained:
    """The entry of a PartitionSpec for an axis that a constraint leaves open."""

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> str:
        return "PartitionSpec.UNCONSTRAINED"


class PartitionSpec(tuple[Any, ...]):
    """The mesh axes over which each axis of an array is partitioned.

    Args:
        partitions: for each axis of the array a name, a tuple of names, or None. A tuple
            partitions over the product of axes, of which the last goes fastest.

    >>> PartitionSpec("x", None)
    P('x', None)
    """

    UNCONSTRAINED = _Unconstrained()

    def __new__(cls, *partitions: Any) -> PartitionSpec:
        parts = [None if part == () else part[0] if type(part) is tuple and len(part) == 1 else
                 part for part in partitions]
        return super().__new__(cls, parts)

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)

    def __repr__(self) -> str:
        return f"P({', '.join(map(repr, self))})"

    unreduced: frozenset[Hashable] = frozenset()  # what JAX says of axes: there are none here
    reduced: frozenset[Hashable] = frozenset()

    @property
    def partitions(self) -> tuple[Any, ...]:
        """The partitions of each axis."""
        return tuple(self)

    def __add__(self, other: Any) -> PartitionSpec:
        return PartitionSpec(*self, *other)


def partitions_of(spec: Sequence[Any], ndim: int) -> Partitions:
    """Return the mesh axes of each of ``ndim`` axes of an array."""
    parts = [part if isinstance(part, tuple) else () if part is None or
             part is PartitionSpec.UNCONSTRAINED else (part,) for part in spec]
    return (*parts, *[()] * (ndim - len(parts)))


class Sharding:
    """The placement of an array on devices: by default whole, on the first one.

    >>> import fnx
    >>> isinstance(SingleDeviceSharding(fnx.devices()[0]), Sharding)
    True
    """

    memory_kind: str | None = None

    def with_memory_kind(self, kind: str) -> Sharding:
        """Return the sharding; memory is of one kind."""
        return self

    def __getattr__(self, name: str) -> Any:
        """Raise. JAX itself, given an array of fnx, asks its sharding for private attributes."""
        imported = sys.modules.get("jax")
        is_jax_itself = imported is not None and "fnx" not in str(imported.__spec__)
        raise UnknownNameError(
            "sharding of a fnx Array", name, dir(type(self)),
            "call fnx.as_jax.install() before anything imports jax, so that libraries such as "
            "optax run on fnx" if is_jax_itself else "help(fnx.sharding) lists its attributes",
            f"an Array of fnx was given to JAX, which asked its sharding for {name!r}"
            if is_jax_itself else "")

    @property
    def _device_assignment(self) -> tuple[Device, ...]:
        """The devices in order."""
        return (local_devices()[0],)

    @property
    def _addressable_device_assignment(self) -> tuple[Device, ...]:
        """The devices of this process in order, which orbax reads."""
        current = communicator.of_process()
        return self._device_assignment if current.size == 1 else tuple([
            d for d in self._device_assignment if d.process_index == current.rank])

    @property
    def device_set(self) -> set[Device]:
        """The devices."""
        return set(self._device_assignment)

    @property
    def addressable_devices(self) -> set[Device]:
        """The devices of this process."""
        return set(self._addressable_device_assignment)

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all devices are of this process."""
        return len(self._addressable_device_assignment) == self.num_devices

    @property
    def has_addressable_devices(self) -> bool:
        """Whether some devices are of this process."""
        return bool(self._addressable_device_assignment)

    @property
    def num_devices(self) -> int:
        """The number of devices."""
        return len(self._device_assignment)

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device has the whole array."""
        return True

    def _partitions(self, ndim: int) -> Partitions:
        """Return the mesh axes of each axis of an array."""
        return ((),) * ndim

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a shard."""
        return tuple(global_shape)

    def check_compatible_aval(self, aval_shape: Sequence[int]) -> None:
        """Raise if it does not fit arrays of a shape."""
        self.shard_shape(aval_shape)

    def _check_rank(self, shape: Sequence[int]) -> None:
        """Raise if arrays of a shape have too few axes for it."""

    def devices_indices_map(self, global_shape: Sequence[int]
                            ) -> dict[Device, tuple[slice, ...]]:
        """Return which part of an array each device holds."""
        return {device: (slice(None),) * len(global_shape)
                for device in self._device_assignment}

    def addressable_devices_indices_map(self, global_shape: Sequence[int]
                                        ) -> dict[Device, tuple[slice, ...]]:
        """Return which part of an array each device of this process holds."""
        indices, here = self.devices_indices_map(global_shape), self._addressable_device_assignment
        return indices if len(here) == len(indices) else {d: indices[d] for d in here}

    def _block(self, global_shape: Sequence[int]) -> tuple[slice, ...]:
        """Return the part of an array that this process holds."""
        return tuple([slice(0, n) for n in global_shape])

    def _joined(self, block_shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of an array of which each process has a block of a shape."""
        whole = (self.num_devices,) * len(block_shape)  # what any of its cuts divides
        return tuple([n * self.num_devices // (s.stop - s.start)
                      for n, s in zip(block_shape, self._block(whole))])

    def is_equivalent_to(self, other: Sharding, ndim: int) -> bool:
        """Whether each device holds the same part of an array of ``ndim`` axes."""
        if not isinstance(other, Sharding):
            return False
        shape = (math.lcm(self.num_devices, other.num_devices),) * ndim

        def bounds(sharding: Sharding) -> dict[Device, list[tuple[int, ...]]]:
            return {device: [part.indices(n) for part, n in zip(index, shape)]
                    for device, index in sharding.devices_indices_map(shape).items()}
        return bounds(self) == bounds(other)


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
    def _device_assignment(self) -> tuple[Device, ...]:
        return (self.device,)

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

    Raises:
        ArgumentError: the spec has an axis that the mesh lacks, or one twice.

    >>> import fnx
    >>> NamedSharding(Mesh(fnx.devices(), "x"), PartitionSpec("x"))
    NamedSharding(mesh=Mesh('x': 1), spec=P('x',))
    """

    def __init__(self, mesh: AbstractMesh, spec: PartitionSpec, *, memory_kind: str | None = None
                 ) -> None:
        check_spec(mesh, spec)
        self.mesh, self.spec, self.memory_kind = mesh, spec, memory_kind

    def update(self, **changes: Any) -> NamedSharding:
        """Return a sharding with another mesh, spec or memory kind."""
        return NamedSharding(**{"mesh": self.mesh, "spec": self.spec,
                                "memory_kind": self.memory_kind, **changes})

    @property
    def _device_assignment(self) -> tuple[Device, ...]:
        if not isinstance(self.mesh, Mesh):
            raise ArgumentError(f"expected a mesh of devices, got {self.mesh}",
                                hint="make one with fnx.make_mesh(lengths, names)")
        return tuple(self.mesh.devices.flat)

    @property
    def num_devices(self) -> int:
        """The number of devices."""
        return self.mesh.size

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device has the whole array."""
        return self._factors(len(self.spec)) == [1] * len(self.spec)

    def _partitions(self, ndim: int) -> Partitions:
        return partitions_of(self.spec, ndim)

    def _factors(self, ndim: int) -> list[int]:
        """Return the number of parts of each axis of an array."""
        return [math.prod([self.mesh.shape[name] for name in part])
                for part in self._partitions(ndim)]

    def shard_shape(self, global_shape: Sequence[int]) -> tuple[int, ...]:
        """Return the shape of a shard.

        Raises:
            ShapeError: the array has fewer axes than the spec, or one that is not divisible.
        """
        shape = tuple(global_shape)
        self._check_rank(shape)
        factors = self._factors(len(shape))
        for axis, (n, parts) in enumerate(zip(shape, factors)):
            if n % parts:
                raise ShapeError(f"expected axis {axis} of shape {shape} to be divisible into "
                                 f"{parts} parts for {self}, got {n} elements",
                                 hint="pad the array, or leave the axis whole with None")
        return tuple([n // parts for n, parts in zip(shape, factors)])

    def _check_rank(self, shape: Sequence[int]) -> None:
        if len(self.spec) > len(shape):
            raise ShapeError(f"expected an array of at least {len(self.spec)} axes for {self}, got "
                             f"shape {tuple(shape)}",
                             hint="shorten the spec; P() replicates a scalar")

    def devices_indices_map(self, global_shape: Sequence[int]
                            ) -> dict[Device, tuple[slice, ...]]:
        """Return which part of an array each device holds."""
        lengths, sizes = self.shard_shape(global_shape), self.mesh.shape
        parts = self._partitions(len(lengths))
        out = {}
        for device, place in zip(self._device_assignment,
                                 itertools.product(*map(range, self.mesh.axis_sizes))):
            at = dict(zip(self.mesh.axis_names, place))
            index = []
            for names, length in zip(parts, lengths):
                i = 0
                for name in names:
                    i = i * sizes[name] + at[name]
                index.append(slice(i * length, (i + 1) * length) if names else slice(None))
            out[device] = tuple(index)
        return out

    def _block(self, global_shape: Sequence[int]) -> tuple[slice, ...]:
        lengths = tuple(global_shape)
        if not isinstance(self.mesh, Mesh) or not process_blocks.spans_processes(self.mesh):
            return super()._block(lengths)
        return process_blocks.block_of(self.mesh, self._partitions(len(lengths)), lengths)

    def __repr__(self) -> str:
        items = ", ".join(map(repr, self.spec)) + "," * (len(self.spec) == 1)
        return f"NamedSharding(mesh={self.mesh!r}, spec=P({items}))"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, NamedSharding) and (self.mesh, self.spec) == (
            other.mesh, other.spec)

    def __hash__(self) -> int:
        return hash((self.mesh, self.spec))


def check_spec(mesh: AbstractMesh, spec: Any) -> None:
    """Raise unless it is a spec of axes of the mesh, each at most once."""
    if not isinstance(spec, PartitionSpec):
        raise ArgumentError(f"expected a PartitionSpec, got {type(spec).__name__}",
                            hint="write it as fnx.P('x', None)")
    count = Counter([name for part in partitions_of(spec, 0) for name in part])
    if unknown := [name for name in count if name not in mesh.axis_names]:
        raise ArgumentError(f"expected axes of {mesh}, got {unknown} in {spec}",
                            hint=f"its axes are {', '.join(map(repr, mesh.axis_names))}")
    if twice := [name for name, n in count.items() if n > 1]:
        raise ArgumentError(f"expected each axis of a mesh at most once, got {twice[0]!r} twice in "
                            f"{spec}", hint="partition one axis of the array over it")


def resolve(target: Any, current: AbstractMesh | None) -> Sharding | None:
    """Return the sharding that a Device, its name, a PartitionSpec or a sharding means.

    None for a spec outside of all meshes.
    """
    if isinstance(target, PartitionSpec):
        return NamedSharding(current, target) if isinstance(current, Mesh) else None
    if isinstance(target, Device):
        return SingleDeviceSharding(target)
    sharding: Sharding = target
    return sharding


def whole_on(platform: str) -> SingleDeviceSharding:
    """Return the sharding on the first device of a platform."""
    return SingleDeviceSharding(device_by_name(platform))
