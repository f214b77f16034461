"""The device-related attributes of Array under JAX's names. An array is whole, on one device."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from fnx.core.array import arguments
from fnx.core.array.placement import placement_of
from fnx.core.support.errors import ArgumentError
from fnx.core.support.record import Record

A = TypeVar("A", bound="ArrayDeviceMixin")


class Shard(Record):
    """The part of an array that is on one device.

    Attributes:
        device: the device.
        index: the slices of the array that the part holds.
        replica_id: the number of the replica.
        data: the part, as an Array.
    """

    device: Any
    index: tuple[slice, ...]
    replica_id: int
    data: Any


class _ArrayProtocol(Protocol):
    """What this mixin needs of the rest of Array."""

    _storage: Any

    @property
    def device(self) -> Any: ...

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
        """Whether this process can read the whole array: always."""
        return True

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device has the whole array: always."""
        return True

    @property
    def committed(self) -> bool:
        """Whether it was placed on a device, or computed from an array that was."""
        return placement_of(getattr(self, "_storage", None)) is not None

    def addressable_data(self: A, index: int) -> A:
        """Return the part on one of the devices: the whole array.

        Args:
            index: the number of the device: 0.

        Returns:
            The same Array.

        Raises:
            ArgumentError: another number.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(1).addressable_data(0)
        Array([1.], dtype=float32)
        """
        if arguments.check_int("index", index):
            raise ArgumentError(f"expected index 0, got {index}", hint="there is one device")
        return self

    @property
    def addressable_shards(self) -> list[Shard]:
        """The parts on the devices of this process: the whole array, on its device."""
        array = _as_array(self)
        return [Shard(array.device, (slice(None),) * array.ndim, 0, array)]

    @property
    def global_shards(self) -> list[Shard]:
        """The parts on all devices."""
        return self.addressable_shards

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
        """Return the platform of its device.

        Returns:
            A str, one of the values of ``config.device``.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(1).platform()
        'cpu'
        """
        name: str = _as_array(self).device.platform
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
