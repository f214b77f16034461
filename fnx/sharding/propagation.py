"""Shardings of results from those of arguments: one forward walk over a FUNCTION.

The sharding of a node is, for each of its axes, the axes of the mesh that partition it. The table
core/ir/axis_partitions.py says which axes of operands are axes of a result:

    x + y             axis i of both -> axis i; of the first operand that is partitioned there
    REDUCE of axis i  it ends: a sum over it needs no collective, as the devices share memory
    RESHAPE           the outermost axes of a group of axes -> those of the new group
    SCAN              carries of the body as they come in, rows without their first axis

Axes that an op needs whole and returns about as they were, such as that of a CONCAT or a SORT, are
cut as before, too. What has no rule is replicated, and so is an axis whose parts would be uneven.
An axis of the mesh that would partition two axes of an array stays with the first of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from fnx.core.array.placement import Placement, commit_to, placement_of
from fnx.core.ir import ops
from fnx.core.ir.axis_partitions import CORE_AXES, Partitions, fit, reshaped, similar_axes
from fnx.core.ir.cache import find_memo, memos_of
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import PlacementError
from fnx.sharding.constraints import constraint_of, placement_for
from fnx.sharding.device_registry import Device
from fnx.sharding.mesh import AbstractMesh, Mesh
from fnx.sharding.named_sharding import NamedSharding, PartitionSpec, Sharding
from fnx.transforms.link import transfer_storage


def commit_results(outs: list[Any], placement: Placement | None, ins: Sequence[Any], function: UOp
                   ) -> None:
    """Commit the results of a FUNCTION to the shardings that propagate to them."""
    placements = _placements(function, placement, [*map(placement_of, ins)])
    if all(result is placement for result in placements) and placement is not None and \
            placement.sharding is None:
        commit_to(placement, outs, ins)
        return
    commit_each(outs, ins, placements)


def commit_each(outs: list[Any], ins: Sequence[Any], placements: Sequence[Placement | None]
                ) -> None:
    """Commit each result to its placement. One that is the memory of an argument becomes an alias
    of it if that is placed otherwise."""
    for i, (memory, result) in enumerate(zip(outs, placements)):
        before = placement_of(memory)
        if result is None or before is not None and before.sharding == result.sharding:
            continue
        if before is not None or any(memory is x for x in ins):
            memory = outs[i] = transfer_storage(memory, result.device)
        memory.placed = result


def _placements(function: UOp, placement: Placement | None, ins: Sequence[Placement | None]
                ) -> Sequence[Placement | None]:
    """Return the placements of the results of a FUNCTION. None: it has neither committed arguments
    nor constraints."""
    ins_key = tuple([None if p is None else p.sharding for p in ins])
    key = "shardings", ins_key
    shardings: Sequence[Sharding | None] | None = find_memo(function, key)
    if shardings is None:
        shardings = memos_of(function)[key] = result_shardings(function, ins_key)
    out: list[Placement | None] = []
    for sharding in shardings:
        if sharding is None or placement is not None and sharding == placement.sharding:
            out.append(placement)
            continue
        computed = placement_for(sharding)
        if placement is not None and placement.location != computed.location:
            raise PlacementError(
                f"expected arguments on the devices of a constraint, {computed.location}, got some "
                f"on {placement.location}", hint="move them: fnx.device_put(x, sharding)")
        out.append(computed if placement is None else placement.replace(sharding=sharding))
    return out


def result_shardings(function: UOp, ins: Sequence[Sharding | None]) -> list[Sharding | None]:
    """Return the shardings of the results of a FUNCTION; None: it has neither sharded arguments
    nor constraints."""
    constraints = [constraint_of(node) for node in toposort([function], into_functions=True)
                   if node.op is ops.FUNCTION]
    named = [s for s in (*ins, *constraints)
             if isinstance(s, NamedSharding) and isinstance(s.mesh, Mesh)]
    if not named:
        return [None] * len(function.src)
    meshes = [*dict.fromkeys([s.mesh for s in named])]
    _check_devices(meshes)
    walk = _Walk(meshes)
    return [walk.named(parts) for parts in walk.results(function, [*map(walk.partitions, ins)])]


def _check_devices(meshes: Sequence[AbstractMesh]) -> None:
    """Raise if the meshes of arguments and constraints have other devices."""
    sets = [frozenset(mesh.devices.flat) for mesh in meshes if isinstance(mesh, Mesh)]
    if len({*sets}) > 1:
        other = next(i for i, devices in enumerate(sets) if devices != sets[0])
        raise PlacementError(
            f"expected arguments and constraints on the same devices, got {meshes[0]} on "
            f"{_ids(sets[0])} and {meshes[other]} on {_ids(sets[other])}",
            hint="move them: fnx.device_put(x, sharding)")


def _ids(devices: frozenset[Device]) -> str:
    ids = ",".join([str(i) for i in sorted([d.id for d in devices])])
    return f"{next(iter(devices)).platform}:{ids}"


def _spec(parts: Partitions) -> PartitionSpec:
    """Return the spec of partitions, without axes at the end that are whole."""
    while parts and not parts[-1]:
        parts = parts[:-1]
    return PartitionSpec(*[part or None for part in parts])


class _Walk:
    """The partitions of the nodes of FUNCTIONs over meshes of the same devices. The axis ``name``
    of mesh i is called (i, name), as two meshes may have axes of one name."""

    def __init__(self, meshes: Sequence[AbstractMesh]) -> None:
        self._meshes = meshes
        self._sizes: dict[Hashable, int] = {(i, name): size for i, mesh in enumerate(meshes)
                                            for name, size in mesh.shape.items()}
        # of each node; of an op with several results, those of each of them
        self._of: dict[UOp, Partitions] = {}
        self._several: dict[UOp, list[Partitions]] = {}
        # of slices: axis -> its partition and length before
        self._slices: dict[UOp, dict[int, tuple[tuple[Hashable, ...], Any]]] = {}

    def partitions(self, sharding: Sharding | None, ndim: int = 0) -> Partitions:
        """Return the partitions that a sharding says."""
        if not isinstance(sharding, NamedSharding) or sharding.mesh not in self._meshes:
            return ((),) * ndim
        i = self._meshes.index(sharding.mesh)
        return tuple([tuple([(i, name) for name in part]) for part in sharding._partitions(
            max(ndim, len(sharding.spec)))])

    def named(self, parts: Partitions) -> NamedSharding:
        """Return the sharding of partitions: those by axes of one mesh."""
        axes: list[list[Any]] = [[*part] for part in parts]
        at: int = next((i for part in axes for i, _ in part), 0)
        return NamedSharding(self._meshes[at], _spec(tuple([
            tuple([name for i, name in part if i == at]) for part in axes])))

    def results(self, function: UOp, params: Sequence[Partitions]) -> list[Partitions]:
        """Return the partitions of the results of a FUNCTION from those of its parameters."""
        outer = self._of, self._several, self._slices
        self._of, self._several, self._slices = {}, {}, {}
        for node in toposort(function.src):
            if node.op in ops.HIGHER_ORDER:
                self._several[node] = self._bodies(node)
            elif node.op in CORE_AXES:
                self._several[node] = self._batched(node)
            elif node.op is ops.PARAM:
                self._of[node] = self._fit(params[node.arg.slot], node.shape)
            elif node.op is ops.GETTUPLE:
                several = self._several.get(node.src[0])
                self._of[node] = self._fit(several[node.arg] if several else (), node.shape)
            else:
                self._of[node] = self._fit(self._computed(node), node.shape)
        out = [self._of[node] for node in function.src]
        self._of, self._several, self._slices = outer
        return out

    def _computed(self, node: UOp) -> Partitions:
        operands = [self._of.get(x, ()) for x in node.src]
        if node.op is ops.RESHAPE:
            x = node.src[0]
            return reshaped(x.shape, node.shape, self._fit(operands[0], x.shape), self._sizes)[1]
        out: list[tuple[Hashable, ...]] = [()] * len(node.shape)
        for parts, axes in zip(operands, similar_axes(node)):
            for part, i in zip(parts, axes):
                if i is not None:
                    out[i] = out[i] or part
        self._follow_slices(node, out)
        return tuple(out)

    def _follow_slices(self, node: UOp, out: list[tuple[Hashable, ...]]) -> None:
        """Let what joins or pads slices of an axis to its length be cut as the axis was:
        ``jnp.roll(x, 1)``."""
        before = {i: pair for x in node.src for i, pair in self._slices.get(x, {}).items()}
        if node.op is ops.SHRINK:
            x = node.src[0]
            before.update({i: (part, n) for i, (part, n, m) in enumerate(zip(
                self._of.get(x, ()), x.shape, node.shape)) if part and n != m})
        if node.op in (ops.CONCAT, ops.PAD):
            for i, (part, n) in before.items():
                if n == node.shape[i] and not out[i]:
                    out[i] = part
        if before and (node.op in (ops.CONCAT, ops.PAD, ops.SHRINK) or
                       node.op.kind == "elementwise"):
            self._slices[node] = before

    def _batched(self, node: UOp) -> list[Partitions]:
        """Return the partitions of the results of a SORT, as of its first operand, or of a LINALG,
        whose matrices are whole."""
        x = node.src[0]
        parts = self._of.get(x, ())
        if node.op is ops.LINALG:
            parts = parts[:max(len(x.shape) - CORE_AXES[node.op], 0)]
        return [parts] * len(node.arg.outs)

    def _bodies(self, node: UOp) -> list[Partitions]:
        bodies = OpBodies(node)
        if not bodies.steps:
            return []
        constraint = constraint_of(bodies.steps[0])
        if isinstance(constraint, NamedSharding) and isinstance(constraint.mesh, Mesh):
            return [self.partitions(constraint, len(x.shape)) for x in bodies.steps[0].src]
        consts, carries, rest = bodies.split([self._of.get(x, ()) for x in bodies.operands])
        is_scan = node.op is ops.SCAN
        out = self.results(bodies.steps[0], [*consts, *carries,
                                             *[parts[1:] if is_scan else parts for parts in rest]])
        return [((), *parts) if is_scan and i >= len(carries) else parts
                for i, parts in enumerate(out)]

    def _fit(self, parts: Partitions, shape: Shape) -> Partitions:
        return fit(parts, shape, self._sizes)
