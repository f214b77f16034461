"""Where an Array is: on one device, whole. Faces of what JAX's arrays answer."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeVar

import numpy as np

from fnx.core.array import arguments
from fnx.core.array.committed import place_of
from fnx.core.errors import ArgumentError
from fnx.core.record import Record

A = TypeVar("A", bound="Placed")


class Shard(Record):
    """The part of an array that lies on one device.

    Attributes:
        device: the device.
        index: the slices of the whole that it is.
        replica_id: which of several equal parts.
        data: the part, as an Array.
    """

    device: Any
    index: tuple[slice, ...]
    replica_id: int
    data: Any


class _Array(Protocol):
    """What is needed of the rest of an Array."""

    _storage: Any

    @property
    def device(self) -> Any: ...

    @property
    def ndim(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def _numpy(self) -> np.ndarray[Any, Any]: ...


def _array(part: Placed) -> _Array:
    array: Any = part
    whole: _Array = array
    return whole


class Placed:
    """The part of Array that is about its device and its bytes."""

    __slots__ = ()

    @property
    def is_fully_addressable(self) -> bool:
        """Whether this process can read all of it."""
        return True

    @property
    def is_fully_replicated(self) -> bool:
        """Whether each device has all of it."""
        return True

    @property
    def committed(self) -> bool:
        """Whether it was placed on a device, or computed of what was."""
        return place_of(getattr(self, "_storage", None)) is not None

    def addressable_data(self: A, index: int) -> A:
        """The part on one of the devices: all of it.

        Args:
            index: which device: 0.

        Returns:
            The same Array.

        Raises:
            ArgumentError: another number.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(1).addressable_data(0)
        Array([1.], dtype=float32)
        """
        if arguments.integer("index", index):
            raise ArgumentError(f"expected index 0, got {index}", hint="there is one device")
        return self

    @property
    def addressable_shards(self) -> list[Shard]:
        """The parts on the devices of this process: the whole, on the one there is."""
        array = _array(self)
        return [Shard(array.device, (slice(None),) * array.ndim, 0, array)]

    @property
    def global_shards(self) -> list[Shard]:
        """The parts on all devices."""
        return self.addressable_shards

    def unsafe_buffer_pointer(self) -> int:
        """The address of the first element, once the value is there.

        Nothing keeps the memory alive but the array itself.

        Returns:
            An int.

        >>> import numpy as np
        >>> import fnx.numpy as jnp
        >>> x = jnp.ones(2)
        >>> x.unsafe_buffer_pointer() == np.asarray(x).ctypes.data
        True
        """
        return _array(self)._numpy().ctypes.data

    def copy_to_host_async(self) -> None:
        """Begin to move the values to the host, where that is not where they are.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(1).copy_to_host_async()
        """
        begin = getattr(_array(self)._storage, "set_out", None)
        if begin is not None:
            begin()

    def on_device_size_in_bytes(self) -> int:
        """Bytes of all elements on the device.

        Returns:
            An int.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(3).on_device_size_in_bytes()
        12
        """
        return _array(self).nbytes

    def platform(self) -> str:
        """What kind of device it is on.

        Returns:
            A str, as ``config.device`` has it.

        >>> import fnx.numpy as jnp
        >>> jnp.ones(1).platform()
        'cpu'
        """
        found: str = _array(self).device.platform
        return found

    def tobytes(self, order: Literal["C"] = "C") -> bytes:
        """The bytes of all elements, in row-major order.

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
        arguments.row_major(order)
        return _array(self)._numpy().tobytes()
