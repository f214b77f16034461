"""The roofline model: peak rates of a machine, FLOP counts of kernels, and the least time that a
kernel takes.

>>> machine = PeakRates((("float32", 100.0),), (("L1", 64 << 10, 400.0), ("memory", 0, 20.0)))
>>> machine.min_time(flops=1000, nbytes=400)
(10.0, 'float32')
>>> machine.min_time(flops=1000, nbytes=1 << 20)
(52428.8, 'memory')

>>> from fnx.core.ir import dtypes
>>> r = build.range_(8, 0)
>>> x, y = [build.index_into(build.ref(i, dtypes.float32, (8,)), r) for i in (0, 1)]
>>> double = build.kernel([build.store(y, build.mul(build.load(x), build.load(x)))], "double", [0])
>>> count_flops(double, [])
8
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.matrix_units import UNITS
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting.algebra import evaluate
from fnx.core.support.record import Record

HIGH_LIMIT = 1.005  # a fraction of a limit that is shown as more than 100%


def high_limit_note(shares: Iterable[tuple[str, float | None]]) -> str:
    """Return what to say if some fractions of limits, each with its bound, exceed 100%; else "".

    >>> high_limit_note([("L2", 0.5), ("L2", 1.2), ("float32", 0.9), ("L1", None)])[:30]
    'more than 100% of L2: either a'
    """
    bounds = sorted({bound for bound, share in shares if share is not None and share > HIGH_LIMIT})
    return f"more than 100% of {' and '.join(bounds)}: either a kernel does less than is counted " \
        "(masked accesses count in full), or other work ran when the limit was measured" \
        if bounds else ""


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
    """Return the main arithmetic type of a kernel: its matrix unit, or its widest float type; empty
    for library routines, whose operations are not counted.
    """
    if kernel.op is ops.LINKED:
        known: str = kernel.arg.arithmetic
        return known
    if kernel.op in _LIBRARY_ROUTINES:
        return ""
    nodes = toposort([kernel])
    units = [n.arg.unit for n in nodes if n.op is ops.MMA]
    wide = any(n.dtype.is_float and n.dtype.itemsize == 8 for n in nodes)
    return units[0] if units else "float64" if wide else "float32"


_LIBRARY_ROUTINES = frozenset({ops.SORT, ops.LINALG, ops.FFT_STEP, ops.CALLBACK})


# ---- flop counts --------------------------------------------------------------------------------


def count_flops(kernel: UOp, scalars: Sequence[Any]) -> int:
    """Count the float ops of a kernel, each once per iteration of its free ranges."""
    if kernel.op is ops.LINKED:
        known: int = kernel.arg.flops
        return known
    if kernel.op is ops.CMD_LOOP:
        trips = 1 if kernel.arg.trips is None else kernel.arg.trips
        return trips * sum([_command_flops(c) for s in kernel.src for c in s.src])
    total, stored = 0, _stored_elements(kernel, scalars)
    for node in toposort([kernel]):
        if node.op.kind == "elementwise" and node.dtype.is_float:
            count = min(_trip_count(node, scalars), stored.get(node.ranges, _UNBOUNDED))
            total += (2 if node.op is ops.MULACC else 1) * count
        elif node.op is ops.MMA and node.dtype.is_float:
            unit = UNITS[node.arg.unit]
            n_words = unit.words_per_k if node.arg.n_words else 1
            total += 2 * unit.terms_per_word * n_words * _trip_count(node, scalars)
        elif node.op is ops.REDUCE and node.dtype.is_float and node.src[0].op is not ops.MMA:
            total += _trip_count(accessors.value(node), scalars)
    return total


def _stored_elements(kernel: UOp, scalars: Sequence[Any]) -> dict[frozenset[UOp], int]:
    """Return the elements that a plain STORE writes, by its ranges. Splits round these up: a kernel
    of any length has loops of thousands of iterations, also for ten elements."""
    values = dict(enumerate(scalars))
    counts: dict[frozenset[UOp], int] = {}
    for store in kernel.src:
        if store.op is ops.STORE and store.arg is None:
            elements = math.prod([evaluate(n, values) for n in
                                  accessors.dims(accessors.buffer(store))])
            counts[store.ranges] = max(elements, counts.get(store.ranges, 0))
    return counts


def _command_flops(command: UOp) -> int:
    """Count the float ops of a command in a CMD_LOOP; of a BRANCH those of the costliest branch."""
    if command.op is ops.BRANCH:
        return max([sum(map(_command_flops, s.src)) for s in command.src[1:]])
    kernel, *operands = (command, *command.src) if command.op is ops.CMD_LOOP else command.src
    return count_flops(kernel, [build.const_of(s) for s in operands if s.op is ops.CONST])


_UNBOUNDED = 1 << 62


# ---- bytes that are read and written ---------------------------------------------------------


def count_bytes(kernel: UOp, scalars: Sequence[Any], sizes: Sequence[int]) -> int:
    """Count the bytes of its buffers that a kernel reads and writes, those of each buffer once.

    A lookup of a few rows reads these, and not all of the table. ``sizes``: the bytes of the memory
    of each slot.
    """
    accessed = accessed_bytes(kernel, scalars)
    if accessed is None:
        return sum(sizes)
    return sum([min(size, accessed.get(slot, 0)) for slot, size in enumerate(sizes)])


def accessed_bytes(kernel: UOp, scalars: Sequence[Any]) -> Mapping[int, int] | None:
    """Return the bytes of all accesses to each slot of a kernel; None if they are not known."""
    if kernel.op is ops.LINKED:
        return None if kernel.arg.accessed is None else dict(kernel.arg.accessed)
    if kernel.op is not ops.KERNEL:
        return None
    accessed: dict[int, int] = {}
    for node in toposort([kernel]):
        if node.op in (ops.LOAD, ops.STORE):
            index = node.src[0]
            buffer = index.src[0]
            if buffer.op is ops.REF:
                slot = buffer.arg.slot
                accessed[slot] = accessed.get(slot, 0) + \
                    buffer.dtype.itemsize * _count_elements(index, scalars)
    return accessed


def _count_elements(index: UOp, scalars: Sequence[Any]) -> int:
    """Return how many elements an INDEX can address, at most: of each dimension as many as its
    index has values."""
    if None in _extents(index.src, scalars):
        return _UNBOUNDED
    sides = [min(_trip_count(i, scalars), _evaluate(dim, scalars))
             for i, dim in zip(index.src[1:], index.src[0].src)]
    return min(_trip_count(index, scalars), math.prod(sides))


def _trip_count(node: UOp, scalars: Sequence[Any]) -> int:
    """Return how often a node is computed; an unknown extent counts as 1."""
    return math.prod(1 if n is None else n for n in _extents([node], scalars))


def _extents(nodes: Sequence[UOp], scalars: Sequence[Any]) -> list[int | None]:
    """Return the extents of the free ranges; None if one is data or varies with another range."""
    extents = [accessors.extent(r) for r in dict.fromkeys(r for n in nodes for r in n.ranges)]
    return [None if any(n.op.kind != "elementwise" and n.op not in (ops.CONST, ops.VAR)
                        for n in toposort([e])) else _evaluate(e, scalars) for e in extents]


def _evaluate(size: UOp, scalars: Sequence[Any]) -> int:
    return evaluate(size, dict(enumerate(scalars)))
