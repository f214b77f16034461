"""Eight devices of the processor."""

from tests.sharding.conftest import _eight_devices as _eight_devices
