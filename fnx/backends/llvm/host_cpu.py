"""Host detection: cores, caches, vector registers and matrix units, from the OS and CPU features.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from ctypes import byref, c_size_t

from fnx.core.ir.matrix_units import UNITS
from fnx.core.support.config import INSTRUCTIONS
from fnx.core.support.errors import DeviceError

_ARCH_PRCTL, _REQ_XCOMP_PERM, _TILE_DATA = 158, 0x1023, 18  # asm/prctl.h


def restrict_features(level: str, triple: str, features: list[str]) -> list[str]:
    """Restrict the features of a processor to a level of ``config.cpu``.

    >>> restrict_features("x86-64", "x86_64-linux", [
    ...     "+avx", *(f"+{f}" for f in INSTRUCTIONS["x86_64"]["x86-64"].split())])[:2]
    ['-avx', '+64bit']

    Raises:
        DeviceError: the processor is of another architecture, or lacks a part of the level.
    """
    levels = INSTRUCTIONS.get("aarch64" if triple.startswith("arm64") else triple.split("-")[0], {})
    if level not in levels:
        raise DeviceError(f"config.cpu: expected one of {', '.join(levels) or 'none'} on "
                          f"{triple}, got {level!r}", hint="fnx.config.cpu = '' takes all that "
                          "this processor has")
    allowed: set[str] = set()
    for name, added in levels.items():
        allowed.update(added.split())
        if name == level:
            break
    missing = sorted(allowed - {f[1:] for f in features if f.startswith("+")})
    if missing:
        raise DeviceError(f"config.cpu: expected a level that this processor has, got {level!r}, "
                          f"which needs {', '.join(missing)}", hint="name a lower one of "
                          f"{', '.join(levels)}, or '' for all that this processor has")
    if "avx512f" in allowed:
        allowed.add("evex512")  # LLVM 20's name for vectors of 512 bits, which later ones imply
    return [f if f.startswith("-") or f[1:] in allowed else f"-{f[1:]}" for f in features]


def matrix_units(bits: int, features: set[str]) -> tuple[str, ...]:
    """Return the matrix units of a processor."""
    supported = [u for u in UNITS.values() if u.cpu_features and u.bits <= bits
                 and features.issuperset([f"+{need}" for need in u.cpu_features])]
    return tuple([u.name for u in supported if u.layout != "tiles" or _may_use_tiles()])


@functools.cache
def _may_use_tiles() -> bool:
    """Whether the system grants this process the tile registers (AMX); requested once."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQ_XCOMP_PERM, _TILE_DATA) == 0)


def vector_registers(triple: str, features: set[str]) -> tuple[int, int]:
    """Return width and number of the vector registers."""
    if not triple.startswith("x86_64"):
        return 128, 32
    if {"+avx512f", "+avx512vl", "+avx512bw", "+avx512dq"} <= features:
        return 512, 32
    return (256, 16) if "+avx" in features else (128, 16)


def cores() -> int:
    """Return how many processors this process may use: by affinity and control group quota."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    count = len(os.sched_getaffinity(0))
    try:
        with open("/sys/fs/cgroup/cpu.max") as f:
            quota, period = f.read().split()
        count = min(count, -(-int(quota) // int(period)))
    except (OSError, ValueError):  # no such file, or "max"
        pass
    return max(1, count)


def cache_bytes(level: int, default: int) -> int:
    """Return the bytes of one core's data cache of this level, if the system reports it."""
    base = "/sys/devices/system/cpu/cpu0/cache"
    try:
        for entry in sorted(os.listdir(base)):
            fields = {}
            for field in ("level", "type", "size"):
                with open(os.path.join(base, entry, field)) as f:
                    fields[field] = f.read().strip()
            if fields["level"] == str(level) and fields["type"] != "Instruction":
                unit = {"K": 1 << 10, "M": 1 << 20}.get(fields["size"][-1:], 1)
                return int(fields["size"].rstrip("KM")) * unit
    except (OSError, KeyError, ValueError):
        pass
    return _sysctl("hw.l1dcachesize" if level == 1 else "hw.l2cachesize") or default


def _sysctl(name: str) -> int:
    if sys.platform != "darwin":
        return 0
    value, size = ctypes.c_int64(), c_size_t(8)
    ctypes.CDLL(None).sysctlbyname(name.encode(), byref(value), byref(size), None, 0)
    return value.value
