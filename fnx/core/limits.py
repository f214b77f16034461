"""Limits: what a machine can do, and how long a kernel takes at least by them (its roofline).

>>> machine = Limits((("float32", 100.0),), (("L1", 64 << 10, 400.0), ("memory", 0, 20.0)))
>>> machine.least(flops=1000, nbytes=400)
(10.0, 'float32')
>>> machine.least(flops=1000, nbytes=1 << 20)
(52428.8, 'memory')
"""

from __future__ import annotations

from fnx.core import ops
from fnx.core.record import Record
from fnx.core.uop import UOp, toposort


class Limits(Record):
    """What all processors of a machine do together.

    Attributes:
        flops: of each type, arithmetic operations in a nanosecond.
        levels: of memory, the fastest first: its name, bytes up to which data lie in it (0: any),
            and bytes that are read of it in a nanosecond.
    """

    flops: tuple[tuple[str, float], ...]
    levels: tuple[tuple[str, int, float], ...]

    def least(self, flops: int, nbytes: int, dtype: str = "float32") -> tuple[float, str]:
        """Nanoseconds that so much work takes at least, and what the limit is: the type whose
        arithmetic it is, or the level of memory."""
        rates = dict(self.flops)
        work = flops / rates.get(dtype, rates["float32"])
        name, _, rate = next(level for level in self.levels if nbytes <= level[1] or not level[1])
        moved = nbytes / rate
        return (work, dtype) if work > moved else (moved, name)


def arithmetic_of(kernel: UOp) -> str:
    """The type of most of a kernel's arithmetic: the widest of its floats, or its matrix unit."""
    if kernel.op is ops.LINKED:
        known: str = kernel.arg.arithmetic
        return known
    nodes = toposort([kernel])
    units = [n.arg.unit for n in nodes if n.op is ops.MMA]
    wide = any(n.dtype.is_float and n.dtype.itemsize == 8 for n in nodes)
    return units[0] if units else "float64" if wide else "float32"
