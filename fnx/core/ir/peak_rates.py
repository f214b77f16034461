"""The roofline model: peak rates of a machine, and the least time that a kernel takes.

>>> machine = PeakRates((("float32", 100.0),), (("L1", 64 << 10, 400.0), ("memory", 0, 20.0)))
>>> machine.min_time(flops=1000, nbytes=400)
(10.0, 'float32')
>>> machine.min_time(flops=1000, nbytes=1 << 20)
(52428.8, 'memory')
"""

from __future__ import annotations

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.record import Record


class PeakRates(Record):
    """Peak rates of all processors of a machine together.

    Attributes:
        flops: arithmetic operations per nanosecond, for each type.
        memory_levels: levels of the memory hierarchy, the fastest first: name, capacity in bytes
            (0: any size), and bandwidth in bytes read per nanosecond.
    """

    flops: tuple[tuple[str, float], ...]
    memory_levels: tuple[tuple[str, int, float], ...]

    def min_time(self, flops: int, nbytes: int, dtype: str = "float32") -> tuple[float, str]:
        """Return the least time in nanoseconds, and what limits it: the arithmetic of a type, or
        a memory level."""
        rates = dict(self.flops)
        work = flops / rates.get(dtype, rates["float32"])
        name, _, rate = next(level for level in self.memory_levels
                             if nbytes <= level[1] or not level[1])
        moved = nbytes / rate
        return (work, dtype) if work > moved else (moved, name)


def arithmetic_type(kernel: UOp) -> str:
    """Return the main arithmetic type of a kernel: its matrix unit, or its widest float type."""
    if kernel.op is ops.LINKED:
        known: str = kernel.arg.arithmetic
        return known
    nodes = toposort([kernel])
    units = [n.arg.unit for n in nodes if n.op is ops.MMA]
    wide = any(n.dtype.is_float and n.dtype.itemsize == 8 for n in nodes)
    return units[0] if units else "float64" if wide else "float32"
