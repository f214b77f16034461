"""The device-related attributes of Array under JAX's names."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from fnx.core.array import arguments
from fnx.core.array.placement import placement_of
from fnx.core.support.config import config
from fnx.core.support.errors import ArgumentError
from fnx.core.support.record import Record

A = TypeVar("A", bound="ArrayDeviceMixin")


class Shard(Record):
    """The part of an array that is on one device.

    Attributes:
        device: the device.
        index: the slices of the array that the part holds.
        replica_id: the number of the replica.
        array: the array of which it is a part.
    """

    device: Any
    index: tuple[slice, ...]
    replica_id: int
    array: Any

    @property
    def data(self) -> Any:
        """The part, as an Array on its device; None: another process has it."""
        if not self.array.is_fully_addressable:
            is_here = self.device in self.array.sharding.addressable_devices
            return self.array._part(self.index) if is_here else None
        is_whole = len(self.array.devices()) == 1
        if is_whole or self.device.platform != config.device:
            return self.array if is_whole else self.array[self.index].to_device(self.device)
        return self.array._part(self.index, self.device)


class _ArrayProtocol(Protocol):
    """What this mixin needs of the rest of Array."""

    _storage: Any

    @property
    def sharding(self) -> Any: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def ndim(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def _numpy(self) -> np.ndarray[Any, Any]: ...


def _as_array(mixin: ArrayDeviceMixin) -> _ArrayProtocol:
    array: Any = mixin
    typed: _ArrayProtocol = array
    return typed


class ArrayDeviceMixin:
    """Mixin of Array: its device and its bytes."""

    __slots__ = ()

    @property
    def is_fully_addressable(self) -> bool:
        """Whether all its devices are of this process."""
        placement = placement_of(getattr(self, "_storage", None))
        return placement is None or not placement.key

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device has the whole array."""
        is_replicated: bool = _as_array(self).sharding.is_fully_replicated
        return is_replicated

    @property
    def committed(self) -> bool:
        """Whether it was placed on a device, or computed from an array that was."""
        return placement_of(getattr(self, "_storage", None)) is not None

    def addressable_data(self: A, index: int) -> A:
        """Return the part on one of the devices.

        Args:
            index: the number of the device, in the order of the sharding.

        Returns:
            An Array.

        Raises:
            ArgumentError: another number.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(1).addressable_data(0)
        Array([1.], dtype=float32)
        """
        shards = self.addressable_shards
        if not 0 <= arguments.check_int("index", index) < len(shards):
            raise ArgumentError(f"expected the number of one of {len(shards)} devices, got {index}",
                                hint="x.addressable_shards lists the parts")
        part: A = shards[index].data
        return part

    @property
    def addressable_shards(self) -> list[Shard]:
        """The parts on the devices of this process."""
        shards = self.global_shards
        if self.is_fully_addressable:
            return shards
        here = _as_array(self).sharding.addressable_devices
        return [shard for shard in shards if shard.device in here]

    @property
    def global_shards(self) -> list[Shard]:
        """The parts on all devices."""
        array = _as_array(self)
        counts: Counter[tuple[Any, ...]] = Counter()
        shards = []
        for device, index in array.sharding.devices_indices_map(array.shape).items():
            key = tuple([s.start for s in index])
            shards.append(Shard(device, index, counts[key], array))
            counts[key] += 1
        return shards

    def unsafe_buffer_pointer(self) -> int:
        """Wait for the value and return the address of its first element.

        Only the array itself keeps the memory alive.

        Returns:
            An int.

        >>> import numpy as np
        >>> import fnx.numpy as jnp
        >>> x = jnp.ones(2)
        >>> x.unsafe_buffer_pointer() == np.asarray(x).ctypes.data
        True
        """
        return _as_array(self)._numpy().ctypes.data

    def copy_to_host_async(self) -> None:
        """Start to copy the values to the host, if they are not there.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(1).copy_to_host_async()
        """
        start_copy = getattr(_as_array(self)._storage, "start_host_copy", None)
        if start_copy is not None:
            start_copy()

    def on_device_size_in_bytes(self) -> int:
        """Return the size of all elements on the device, in bytes.

        Returns:
            An int.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(3).on_device_size_in_bytes()
        12
        """
        return _as_array(self).nbytes

    def platform(self) -> str:
        """Return the platform of its devices.

        Returns:
            A str, one of the values of ``config.device``.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(1).platform()
        'cpu'
        """
        name: str = next(iter(_as_array(self).sharding.device_set)).platform
        return name

    def tobytes(self, order: Literal["C"] = "C") -> bytes:
        """Return the bytes of all elements, in row-major order.

        Args:
            order: "C".

        Returns:
            Bytes.

        Raises:
            ArgumentError: another order.

        >>> import fnx.numpy as jnp
        >>> jnp.asarray([1, 2], "uint8").tobytes()
        b'\\x01\\x02'
        """
        arguments.check_row_major(order)
        return _as_array(self)._numpy().tobytes()
