"""User-facing devices, by the name of their platform.

    fnx.devices()            the devices of the configured platform (``config.device``)
    fnx.devices("gpu")       another platform; the error of a missing driver says what was searched

There is one device per platform, and of the cpu as many as ``config.cpu_devices`` says: these
share its memory and its workers (docs/distributed.md). Devices are opened on first use. Those of
several processes are numbered through: with 2 each, process 1 has 2 and 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fnx.core.array.call_validation import validate_call
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.scope import communicator
from fnx.core.scope.communicator import Communicator
from fnx.core.support.config import DEVICES, GPUS, config
from fnx.core.support.errors import (
    ArgumentError,
    DeviceError,
    DistributedError,
    UnknownDeviceError,
    lazy_module,
)
from fnx.core.support.process import lazy_import

__all__ = [
    "Device", "default_backend", "device_count", "devices", "local_device_count", "local_devices",
    "process_count", "process_index", "process_indices",
]


class Device:
    """A device: its platform, kind and id.

    Args:
        platform: its name, as in ``config.device``.
        id: its number on the platform.

    >>> devices()
    [CpuDevice(id=0)]
    """

    runtime_type = "fnx"

    def __init__(self, platform: str, id: int = 0) -> None:
        self.platform, self.id = platform, id

    @property
    def process_index(self) -> int:
        """The index of the process that has the device."""
        return self.id // _count_of_process(self.platform)

    host_id = task_id = process_index

    @property
    def local_hardware_id(self) -> int:
        """The number of the device in its process."""
        return self.id % _count_of_process(self.platform)

    @property
    def device_kind(self) -> str:
        """The vendor's name of the device; for host devices the platform."""
        driver = getattr(_get_device(self.platform), "driver", None)
        return self.platform if driver is None else str(driver.kind)

    @property
    def client(self) -> Device:
        """The device itself: libraries read ``device.client.platform``."""
        return self

    def __reduce__(self) -> Any:
        return device_by_name, (self.platform, self.id)

    def __repr__(self) -> str:
        return f"{self.platform.capitalize()}Device(id={self.id})"

    def __str__(self) -> str:
        return f"{self.platform}:{self.id}"

    def memory_stats(self) -> dict[str, int] | None:
        """Return bytes in use and reserved if the device has its own memory, else None."""
        device = _get_device(self.platform)
        if getattr(device, "driver", None) is None:
            return None
        stats = device.stats()
        return {"bytes_in_use": stats["held"] - stats["free"], "bytes_reserved": stats["held"],
                "bytes_limit": device.driver.limits.memory}

    def addressable_memories(self) -> list[Any]:
        """Return the kinds of memory besides the one that all arrays are in: none."""
        return []

    def synchronize_all_activity(self) -> None:
        """Wait until all work submitted to the device is done."""
        _get_device(self.platform).synchronize()


_get_device = lazy_import("fnx.transforms.link", "get_device")
_devices: dict[tuple[str, int], Device] = {}
_docstr = DocTemplate(backend="as for ``devices``.", returns="An int.", imports="fnx",
                      wrap=validate_call)


def device_by_name(platform: str, id: int | None = None) -> Device:
    """Return a device of a platform, whether it is available or not; by default the first one of
    this process."""
    if id is None:
        id = communicator.of_process().rank * _count_of_process(platform)
    return _devices.setdefault((platform, id), Device(platform, id))


def _count_of_process(platform: str) -> int:
    """Return the number of devices of a platform that each process has."""
    return max(config.cpu_devices, 1) if platform == "cpu" else 1


def were_listed() -> bool:
    """Return whether a device was ever made."""
    return bool(_devices)


def check_equal_counts(joined: Communicator) -> None:
    """Raise unless all processes have the same number of devices.

    Raises:
        DistributedError: they have not.
    """
    counts = [int(x) for x in joined.exchange(str(_count_of_process("cpu")).encode(), "the start")]
    if len(set(counts)) > 1:
        raise DistributedError("distributed.initialize: expected the same number of devices of the "
                               f"cpu in all processes, got {counts}",
                               hint="set FNX_CPU_DEVICES to the same number for all")


def open_device(backend: Any) -> Device:
    """Open and return the first device of a backend."""
    if backend is None:
        return device_by_name(config.device)
    if backend == "gpu":
        return _first_gpu()
    if backend not in DEVICES:
        raise UnknownDeviceError(f"expected one of {', '.join(DEVICES)} or gpu, got {backend!r}",
                                 hint="use fnx.devices(name) to open a device by name")
    _get_device(backend)
    return device_by_name(backend)


def _first_gpu() -> Device:
    reasons = []
    for name in GPUS:
        if name in DEVICES:
            try:
                driver = _get_device(name).driver
            except DeviceError as error:
                reasons.append(error.message)
            else:
                if not driver.is_processor:
                    return device_by_name(name)
                reasons.append(f"{name}: {driver.kind} computes on a processor")
    raise DeviceError(f"expected a GPU: {'; '.join(reasons)}",
                      hint='use fnx.devices("cpu"), which is always available, or open one '
                           'that computes on a processor by its name')


@validate_call
def devices(backend: str | None = None) -> list[Device]:
    """Return all devices of a platform.

    Args:
        backend: a name as in ``config.device``; "gpu": the first available GPU, not a driver
            that computes on a processor; None: ``config.device``.

    Returns:
        A list of Devices: of the cpu ``config.cpu_devices`` of each process, of other platforms
        one.

    Raises:
        UnknownDeviceError: no device has this name.
        DeviceError: the device is not available; the message has the package or file searched.

    >>> devices()
    [CpuDevice(id=0)]
    """
    platform = open_device(backend).platform
    count = _count_of_process(platform) * communicator.of_process().size
    return [device_by_name(platform, i) for i in range(count)]


@validate_call
def local_devices(process_index: int | None = None, backend: str | None = None,
                  host_id: int | None = None) -> list[Device]:
    """Return the devices of this process.

    Args:
        process_index: the index of a process; by default this one.
        backend: as for ``devices``.
        host_id: another name of ``process_index``.

    Returns:
        A list of Devices.

    Raises:
        ArgumentError: no such process, or an unknown backend.

    >>> local_devices()
    [CpuDevice(id=0)]
    """
    current = communicator.of_process()
    index = current.rank if process_index is None and host_id is None else process_index or host_id
    if index not in range(current.size):
        raise ArgumentError(f"expected the index of one of {current.size} processes, got {index}",
                            hint="fnx.process_count() is their number; start more by mpiexec -n")
    return [device for device in devices(backend) if device.process_index == index]


@_docstr()
def device_count(backend: str | None = None) -> int:
    """Return the number of devices.

    >>> fnx.device_count()
    1
    """
    return len(devices(backend))


@_docstr()
def local_device_count(backend: str | None = None) -> int:
    """Return the number of devices of this process.

    >>> fnx.local_device_count()
    1
    """
    return len(local_devices(backend=backend))


@validate_call
def default_backend() -> str:
    """Return the platform that is used by default.

    Returns:
        A str, such as "cpu".

    >>> default_backend()
    'cpu'
    """
    return config.device


@_docstr("An int.")
def process_index(backend: str | None = None) -> int:
    """Return the index of this process.

    >>> fnx.process_index()
    0
    """
    open_device(backend)
    return communicator.of_process().rank


@_docstr()
def process_count(backend: str | None = None) -> int:
    """Return the number of processes that compute together.

    >>> fnx.process_count()
    1
    """
    open_device(backend)
    return communicator.of_process().size


@_docstr("A list of ints.")
def process_indices(backend: str | None = None) -> list[int]:
    """Return the indices of all processes.

    >>> fnx.process_indices()
    [0]
    """
    open_device(backend)
    return [*range(communicator.of_process().size)]


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
