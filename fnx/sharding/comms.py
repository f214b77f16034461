"""What a program costs on a mesh, without its devices: ``comms``.

The graph is partitioned as for processes (lower/partition), one for each device of the mesh, so
meshes may be abstract and of any size. Collectives are counted with the steps of the scans around
them and timed by a model of links (topology.py). Arithmetic is counted in the graph, before
kernels are made: operations at the device's rate, or arguments and results at its bandwidth,
whichever takes longer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.ir import build, ops
from fnx.core.ir.axis_partitions import Partitions, fit
from fnx.core.ir.collectives import Collective, bytes_sent
from fnx.core.ir.op_args import ProcessGrid
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import ArgumentError, format_location
from fnx.core.support.quantities import duration, size
from fnx.core.support.record import Record
from fnx.sharding.constraints import constraint_of
from fnx.sharding.mesh import AbstractMesh
from fnx.sharding.named_sharding import NamedSharding, PartitionSpec, partitions_of
from fnx.sharding.topology import Topology, messages, seconds, topology_of
from fnx.transforms.jit import Jitted, jit
from fnx.transforms.link import partition

__all__ = ["CommsReport", "CommsRow", "comms"]


class CommsRow(Record):
    """One collective of a program.

    Attributes:
        routine: such as "all_reduce".
        axes: of the mesh, over which it goes.
        arrays: its operands on one device.
        line: the user's line.
        count: how often it runs in a call; a ``while`` loop counts as one step.
        nbytes: bytes that a device sends in a call.
        messages: messages that a device sends in a call.
        seconds: predicted time of a call.
    """

    routine: str
    axes: tuple[Hashable, ...]
    arrays: str
    line: str
    count: int
    nbytes: int
    messages: int
    seconds: float


class CommsReport(Record):
    """The collectives of a program on a mesh, and what a device computes.

    Attributes:
        rows: the collectives, the longest first.
        devices: the number of devices.
        argument_bytes: of the arguments, on one device.
        result_bytes: of the results, on one device.
        flops: operations of one device.
        compute_seconds: predicted for these.
        out_specs: how the results are sharded.

    >>> import fnx, fnx.numpy as jnp
    >>> mesh = fnx.sharding.AbstractMesh((8,), ("data",))
    >>> x = fnx.ShapeDtypeStruct((1024, 64), "float32", sharding=NamedSharding(
    ...     mesh, PartitionSpec("data")))
    >>> report = comms(lambda x: jnp.tanh(x).sum(0), x)
    >>> [(row.routine, row.nbytes) for row in report.rows], report.argument_bytes
    ([('all_reduce', 448)], 32768)
    """

    rows: tuple[CommsRow, ...]
    devices: int
    argument_bytes: int
    result_bytes: int
    flops: int
    compute_seconds: float
    out_specs: tuple[PartitionSpec, ...]

    @property
    def seconds(self) -> float:
        """Predicted time of all collectives, one after another."""
        return sum([row.seconds for row in self.rows])

    @property
    def total(self) -> float:
        """Predicted time of a call, if collectives do not overlap with computation."""
        return self.seconds + self.compute_seconds

    @property
    def nbytes(self) -> int:
        """Bytes that a device sends."""
        return sum([row.nbytes for row in self.rows])

    def __repr__(self) -> str:
        lines = [f"{self.devices} devices: collectives {duration(self.seconds * 1e9)}, "
                 f"{size(self.nbytes)} sent by each; computation "
                 f"{duration(self.compute_seconds * 1e9)}, {self.flops / 1e9:.3g} GFLOP each; "
                 f"arguments {size(self.argument_bytes)}, results {size(self.result_bytes)} on "
                 "each"]
        if self.rows:
            lines.append(f"{'time':>10} {'sent':>10} {'messages':>8} {'times':>6}  collective")
        for row in self.rows:
            axes = ", ".join(map(str, row.axes))
            lines.append(f"{duration(row.seconds * 1e9):>10} {size(row.nbytes):>10} "
                         f"{row.messages:8} {row.count:6}  {row.routine} over {axes} of "
                         f"{row.arrays}{row.line and f' ({row.line})'}")
        return "\n".join(lines)


def comms(f: Callable[..., Any], *args: Any, topology: Topology | str = "infiniband"
          ) -> CommsReport:
    """Return the collectives that a function needs on a mesh, with bytes, messages and times.

    Nothing runs, and the devices need not exist.

    Args:
        f: a function, jitted or not.
        args: arrays, or ``ShapeDtypeStruct``; their shardings are over one mesh, which may be an
            ``AbstractMesh``. What has no sharding is on each device.
        topology: a ``Topology``, or its name: "nvlink", "infiniband" or "ethernet".

    Returns:
        A CommsReport; ``print`` shows it as a table.

    Raises:
        ArgumentError: no argument has a sharding over a mesh, or several meshes.
        ShapeError: a sharding that does not divide its array.

    >>> import fnx
    >>> mesh = fnx.sharding.AbstractMesh((4,), ("model",))
    >>> w = fnx.ShapeDtypeStruct((64, 64), "float32", sharding=NamedSharding(
    ...     mesh, PartitionSpec("model", None)))
    >>> [row.routine for row in comms(lambda x, w: x @ w, fnx.numpy.ones((8, 64)), w).rows]
    ['all_reduce']
    """
    return comms_of(trace_call(f, args), tree.leaves(args), topology)


def comms_of(function: UOp, leaves: Sequence[Any], topology: Topology | str) -> CommsReport:
    """Return the report of a FUNCTION whose first parameters are arrays with shardings."""
    links = topology_of(topology)
    shardings = [getattr(leaf, "sharding", None) for leaf in leaves]
    named = [s for s in shardings if isinstance(s, NamedSharding) and s.num_devices > 1]
    if not named:
        raise ArgumentError("comms: expected an argument with a NamedSharding, got none",
                            hint="pass fnx.ShapeDtypeStruct(shape, dtype, sharding="
                                 "fnx.NamedSharding(mesh, fnx.P(...))), or device_put it")
    if other := next((s for s in named if s.mesh.shape != named[0].mesh.shape), None):
        raise ArgumentError(f"comms: expected shardings over one mesh, got {named[0].mesh} and "
                            f"{other.mesh}", hint="put all arguments on the same mesh")
    specs = [s.spec if isinstance(s, NamedSharding) else PartitionSpec() for s in shardings]
    return report_of(function, named[0].mesh, specs, links)


def trace_call(f: Callable[..., Any], args: Sequence[Any]) -> UOp:
    """Return the FUNCTION of a call."""
    jitted = f if isinstance(f, Jitted) else jit(f)
    function: UOp = jitted.trace(*args).jaxpr.function
    return function


def report_of(function: UOp, mesh: AbstractMesh, specs: Sequence[PartitionSpec], links: Topology
              ) -> CommsReport:
    """Return the report of a FUNCTION whose first parameters have specs over a mesh."""
    grid = ProcessGrid(mesh.axis_names, mesh.axis_sizes)
    params = build.params(function)
    parts = {i: partitions_of(specs[i] if i < len(specs) else (), len(p.shape))
             for i, p in params.items()}

    def constraint(identity: UOp) -> Partitions | None:
        sharding, shape = constraint_of(identity), identity.src[0].shape
        if not isinstance(sharding, NamedSharding) or sharding.mesh.shape != mesh.shape:
            return None
        return fit(sharding._partitions(len(shape)), shape, mesh.shape)
    local, cuts = partition(function, grid, [parts.get(i, ()) for i in range(
        function.arg.n_params)], constraint=constraint)
    rows: dict[tuple[Any, ...], int] = {}
    flops = 0
    for node, count in _executed(local, 1):
        if node.op is ops.COLLECTIVE:
            if node.arg.name != "process_index":
                key = node.arg, format_location(node.loc) if node.loc else ""
                rows[key] = rows.get(key, 0) + count
        else:
            flops += count * _operations(node)
    nbytes = [_nbytes(x) for x in (*build.params(local).values(), *local.src)]
    n_params = len(params)
    return CommsReport(
        tuple(sorted([_row(arg, line, count, links) for (arg, line), count in rows.items()],
                     key=lambda row: -row.seconds)),
        mesh.size, sum(nbytes[:n_params]), sum(nbytes[n_params:]), flops,
        max(flops / links.flops, sum(nbytes) / links.memory_bandwidth),
        tuple([PartitionSpec(*[p or None for p in cut]) for cut in cuts]))


def _row(arg: Collective, line: str, count: int, links: Topology) -> CommsRow:
    arrays = ", ".join([f"{dtype}{list(shape)}" for shape, dtype in arg.ins])
    return CommsRow(arg.name, arg.names, arrays, line, count, count * bytes_sent(arg),
                    count * messages(arg), count * seconds(arg, links))


def _executed(function: UOp, count: int) -> Iterator[tuple[UOp, int]]:
    """Yield the nodes of a FUNCTION, those of its bodies too, with how often a call runs each. All
    branches of a COND count, and one step of a WHILE."""
    for node in toposort(function.src, stop=lambda n: n.op in (ops.FUNCTION, ops.KERNEL)):
        if node.op in ops.HIGHER_ORDER:
            bodies = OpBodies(node)
            steps = node.arg.length if node.op is ops.SCAN else 1
            for body in (*bodies.steps, *bodies.conditions):
                yield from _executed(body, count * steps)
        elif node.op not in (ops.FUNCTION, ops.KERNEL):
            yield node, count


def _operations(node: UOp) -> int:
    """Return the arithmetic operations of a node: the sum of a product is two for each term."""
    if node.op is ops.REDUCE:
        return math.prod(node.src[0].shape)
    return math.prod(node.shape) if node.op in ops.ELEMENTWISE and node.dtype.is_float else 0


def _nbytes(node: UOp) -> int:
    return math.prod(node.shape) * node.dtype.itemsize
