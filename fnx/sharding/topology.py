"""Models of the links between devices, and the time of a collective over them.

A topology is a list of levels, from the closest devices to all:

    level     devices     of 64 devices in 8 nodes
    node            8     a link of its own for each device
    cluster        64     a network card for each device

A message takes ``latency + bytes / bandwidth`` of the outermost level that it crosses. Collectives
go level by level: a sum over 64 devices is scattered within each node, summed between the nodes in
eighths, and gathered within each node; within a level they take log2 n steps (Thakur, Rabenseifner
and Gropp, "Optimization of Collective Communication Operations in MPICH", 2005).

>>> from fnx.core.ir import dtypes, ops
>>> from fnx.core.ir.op_args import ProcessGrid
>>> sum_of = Collective("all_reduce", ProcessGrid(("data",), (64,)), ("data",),
...                     (((1 << 20,), dtypes.float32),), monoid=ops.ADD)
>>> round(seconds(sum_of, TOPOLOGIES["infiniband"]) * 1e6)  # microseconds
83
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.ir.collectives import Collective, group
from fnx.core.support.errors import ArgumentError
from fnx.core.support.record import Record

__all__ = ["TOPOLOGIES", "Level", "Topology"]


class Level(Record):
    """Devices that reach each other by one kind of link.

    Args:
        name: of the link.
        devices: how many devices are in one group of this level.
        latency: seconds that a message takes whatever its size.
        bandwidth: bytes per second that each device sends when all of them do.

    >>> Level("ethernet", 64, 30e-6, 3.1e9).devices
    64
    """

    name: str
    devices: int
    latency: float
    bandwidth: float

    def __init__(self, name: str, devices: int, latency: float, bandwidth: float) -> None:
        super().__init__(name, devices, latency, bandwidth)


class Topology(Record):
    """Levels of links, from the closest devices to all, and what one device computes.

    Args:
        levels: each a multiple of the one before; a last one that is too small is taken for all.
        flops: operations per second of a device.
        memory_bandwidth: bytes per second that a device reads and writes.

    >>> Topology((Level("link", 4, 2e-6, 1e10),), flops=1e12, memory_bandwidth=1e11).levels[0].name
    'link'
    """

    levels: tuple[Level, ...]
    flops: float
    memory_bandwidth: float

    def __init__(self, levels: tuple[Level, ...], flops: float, memory_bandwidth: float) -> None:
        super().__init__(levels, flops, memory_bandwidth)


# Bandwidths and rates are those of data sheets: NVLink 4 of an H100 450 GB/s in each direction,
# InfiniBand NDR 400 Gbit/s for each device, Ethernet 25 Gbit/s for each machine of one device;
# an H100 67 TFLOP/s in float32 and 3.35 TB/s. Latencies are those of small messages of NCCL and
# MPI, rounded: yours are measured by a sum of one number.
_NODE = Level("nvlink", 8, 3e-6, 450e9)
TOPOLOGIES = {
    "nvlink": Topology((_NODE,), 67e12, 3.35e12),
    "infiniband": Topology((_NODE, Level("infiniband", 64, 5e-6, 50e9)), 67e12, 3.35e12),
    "ethernet": Topology((Level("ethernet", 64, 30e-6, 3.1e9),), 1e12, 50e9),
}


def topology_of(value: Topology | str) -> Topology:
    """Return a topology by its name.

    Raises:
        ArgumentError: there is none of that name, or a level is no multiple of the one before.
    """
    if isinstance(value, str):
        if value not in TOPOLOGIES:
            raise ArgumentError(f"expected a topology, {', '.join(TOPOLOGIES)}, got {value!r}",
                                hint="or pass a fnx.sharding.Topology of your own")
        return TOPOLOGIES[value]
    below = 1
    for level in value.levels:
        if level.devices % below or level.devices <= below or min(
                level.latency, level.bandwidth, value.flops, value.memory_bandwidth) <= 0:
            raise ArgumentError(f"expected levels of more and more devices, each a multiple of the "
                                f"one before, and positive numbers, got {level} after {below}",
                                hint="list levels from the closest devices to all")
        below = level.devices
    if not value.levels:
        raise ArgumentError("expected a topology with a level, got none",
                            hint="pass levels=(fnx.sharding.Level(...),)")
    return value


def seconds(arg: Collective, topology: Topology) -> float:
    """Return the time that a collective takes, if nothing else uses the links."""
    total = sum([math.prod(shape) * dtype.itemsize for shape, dtype in arg.ins])
    if arg.name == "permute":
        return _permute_seconds(arg, topology, total)
    if arg.name == "process_index":
        return 0.0
    counts = _members(group(arg.grid, 0, arg.names), topology)
    if arg.name == "all_gather":
        total *= arg.count
    time, inside = 0.0, 1
    for level, n in zip(topology.levels, counts):
        steps = math.ceil(math.log2(n)) if n > 1 else 0
        if arg.name == "all_to_all":
            peers = (n - 1) * inside
            time += peers * level.latency + total * peers / arg.count / level.bandwidth
        else:
            passes = 2 if arg.name == "all_reduce" else 1
            time += passes * (steps * level.latency + total / inside * (n - 1) / n /
                              level.bandwidth)
        inside *= n
    return time


def messages(arg: Collective) -> int:
    """Return how many messages a process sends, if each level is one."""
    if arg.name == "permute":
        return int(any(a != b for a, b in arg.pairs))
    if arg.name in ("all_to_all", "process_index"):
        return arg.count - 1 if arg.name == "all_to_all" else 0
    return (1 + (arg.name == "all_reduce")) * math.ceil(math.log2(max(arg.count, 1)))


def _members(ranks: Sequence[int], topology: Topology) -> list[int]:
    """Return for each level how many groups of the level below a group of ranks has in it."""
    counts, blocks = [], set(ranks)
    sizes = [level.devices for level in topology.levels[:-1]]
    for size in sizes:
        within = {rank // size for rank in ranks}
        counts.append(max(1, math.ceil(len(blocks) / len(within))))
        blocks = within
    return [*counts, len(blocks)]


def _permute_seconds(arg: Collective, topology: Topology, total: int) -> float:
    ranks, worst = group(arg.grid, 0, arg.names), 0.0
    for a, b in arg.pairs:
        if a != b:
            level = next((x for x in topology.levels if ranks[a] // x.devices ==
                          ranks[b] // x.devices), topology.levels[-1])
            worst = max(worst, level.latency + total / level.bandwidth)
    return worst
