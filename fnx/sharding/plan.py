"""``plan``: a search for the shardings of arguments by predicted time."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray
from fnx.core.ir.axis_partitions import fit
from fnx.core.support.errors import ArgumentError
from fnx.core.support.quantities import duration, size
from fnx.core.support.record import Record
from fnx.sharding.comms import CommsReport, report_of, trace_call
from fnx.sharding.mesh import AbstractMesh
from fnx.sharding.named_sharding import NamedSharding, PartitionSpec, partitions_of
from fnx.sharding.topology import Topology, topology_of
from fnx.transforms.dispatch.signature import leaf_path

__all__ = ["Plan", "plan"]

Specs = tuple[PartitionSpec, ...]
_Step = tuple[int, PartitionSpec, float]  # argument, its spec, predicted seconds



class Plan(Record):
    """Shardings of arguments that a search found.

    Attributes:
        shardings: one for each argument, in a tree like theirs.
        report: what the function costs with them.
        replicated: what it costs where each device has everything.
        steps: what the search changed, in order: the argument, its spec, predicted seconds.
    """

    shardings: Any
    report: CommsReport
    replicated: CommsReport
    steps: tuple[tuple[str, PartitionSpec, float], ...]

    def __repr__(self) -> str:
        lines = [f"each device has everything: {duration(self.replicated.total * 1e9)}, "
                 f"{size(self.replicated.argument_bytes)} of arguments"]
        lines += [f"{name} as {spec}: {duration(time * 1e9)}" for name, spec, time in self.steps]
        return "\n".join([*lines, repr(self.report)])


def plan(f: Callable[..., Any], args: Sequence[Any], mesh: AbstractMesh, *,
         topology: Topology | str = "infiniband", memory: int | None = None) -> Plan:
    """Search for the shardings of arguments with which a function takes the least predicted time.

    For each axis of the mesh in turn, in each order of the axes, it goes through the arguments, the
    largest first, tries to cut each axis of one while the others stay, and keeps what is faster,
    until nothing gets better; then it tries all axes at once. So it finds a good plan and need not
    find the best one.

    Args:
        f: a function, jitted or not.
        args: its arguments: arrays, or ``ShapeDtypeStruct``.
        mesh: a Mesh, or an AbstractMesh whose devices need not exist.
        topology: a ``Topology``, or its name: "nvlink", "infiniband" or "ethernet".
        memory: bytes that arguments and results may take on a device; None: no limit.

    Returns:
        A Plan; ``print`` says what each step gained.

    Raises:
        ArgumentError: no shardings fit the memory.

    >>> import fnx, fnx.numpy as jnp
    >>> x, w = (fnx.ShapeDtypeStruct(s, "float32") for s in ((8192, 512), (512, 512)))
    >>> plans = plan(lambda x, w: jnp.tanh(x @ w), (x, w), fnx.sharding.AbstractMesh((8,), ("d",)))
    >>> plans.shardings[0].spec, plans.report.rows
    (P('d', None), ())
    """
    links = topology_of(topology)
    leaves, structure = tree.flatten(tuple(args))
    labels = tree.structure((tuple(args), {}))
    shapes = [tuple(x.shape) if hasattr(x, "shape") else asarray(x).shape for x in leaves]
    function = trace_call(f, args)
    reports: dict[Specs, CommsReport] = {}

    def cost(of: Specs) -> tuple[int, float, CommsReport]:
        report = reports[of] = reports.get(of) or report_of(function, mesh, of, links)
        over = 0 if memory is None else report.argument_bytes + report.result_bytes - memory
        return max(0, over), report.total, report

    order = sorted(range(len(shapes)), key=lambda i: -math.prod(shapes[i]))
    whole = tuple([PartitionSpec(*[None] * len(shape)) for shape in shapes])
    plans = []
    for names in itertools.permutations(mesh.axis_names):
        specs, steps = whole, list[_Step]()
        for free in [*[(name,) for name in names], names]:
            specs = _descend(specs, order, functools.partial(_candidates, shapes, free, mesh),
                             cost, steps)
        plans.append((specs, steps))
    specs, steps = min(plans, key=lambda x: cost(x[0])[:2])
    best = cost(specs)
    if best[0]:
        raise ArgumentError(
            f"plan: expected shardings with at most {size(memory or 0)} on each device, the least "
            f"found is {size(best[0] + (memory or 0))}", hint="use more devices, or let "
            "memory be larger")
    return Plan(structure.unflatten([NamedSharding(mesh, spec) for spec in specs]), best[2],
                cost(whole)[2], tuple([(leaf_path(labels, i), spec, time)
                                       for i, spec, time in steps]))


def _descend(specs: Specs, order: Sequence[int],
             candidates: Callable[[int, PartitionSpec], list[PartitionSpec]],
             cost: Callable[[Specs], tuple[int, float, CommsReport]], steps: list[_Step]) -> Specs:
    """Change one spec after another for the better, until none is; note what was changed."""
    best, before = cost(specs)[:2], None
    while best != before:
        before = best
        for i in order:
            for spec in candidates(i, specs[i]):
                tried = (*specs[:i], spec, *specs[i + 1:])
                if (now := cost(tried)[:2]) < best:
                    best, specs = now, tried
                    steps.append((i, spec, now[1]))
    return specs


def _candidates(shapes: Sequence[Sequence[int]], free: Sequence[Hashable], mesh: AbstractMesh,
                i: int, spec: PartitionSpec) -> list[PartitionSpec]:
    """Return the ways to cut argument i: each axis of the mesh that is free cuts one axis of it or
    none, the others cut it as in a spec."""
    shape = shapes[i]
    fixed = [tuple([name for name in part if name not in free])
             for part in partitions_of(spec, len(shape))]
    out = []
    for choice in itertools.product([None, *range(len(shape))], repeat=len(free)):
        parts = [*fixed]
        for name, axis in zip(free, choice):
            if axis is not None:
                parts[axis] = (*parts[axis], name)
        if fit(tuple(parts), tuple(shape), mesh.shape) == tuple(parts):
            out.append(PartitionSpec(*[p or None for p in parts]))
    return out
