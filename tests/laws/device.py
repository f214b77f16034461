"""The device that these tests compare with the interpreter: the cpu, or what ``LAWS_DEVICE`` names.

``python scripts/device_laws.py`` sets it and runs the files that use it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from fnx.backends.device.base import get_device
from fnx.core.ir.dtypes import DType

MACHINE = os.environ.get("LAWS_DEVICE", "cpu")
LAWS = ("completeness", "custom", "effect_programs", "effects_change_nothing", "elementwise_tails",
        "functions", "user_written_kernels", "jit_eager_interp", "kernel_programs",
        "batched_collectives", "loop_programs", "movements")
LAWS_OF_32_BITS = ("completeness", "elementwise_tails", "batched_collectives", "loop_programs",
                   "movements")


def computes(types: Iterable[DType]) -> bool:
    """Return whether the device has these types."""
    return get_device(MACHINE).target.has_64bit or all(t.bits <= 32 for t in types)
