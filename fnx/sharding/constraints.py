"""The shardings of arrays: how they are placed, and what constrains those of results.

    device_put(x, sharding)                a copy of x, committed to the sharding
    with_sharding_constraint(x, sharding)  the same; in a traced function a CALL of the identity,
                                           whose label names the sharding
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray, evaluate_pending
from fnx.core.array.array import Array, from_storage
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.eager_cache import record_placement
from fnx.core.array.placement import Placement, not_addressable
from fnx.core.ir import build_calls, ops
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp, current_loc
from fnx.core.scope import communicator, scope, storage
from fnx.core.support.errors import ArgumentError, DistributedError, MeshError
from fnx.core.support.process import lazy_import
from fnx.jaxprs.registries import Labelled, labelled
from fnx.sharding.device_registry import Device
from fnx.sharding.mesh import Mesh, get_mesh
from fnx.sharding.named_sharding import NamedSharding, PartitionSpec, Sharding, resolve

__all__ = ["reshard", "with_sharding_constraint"]

hashlib = lazy_import("hashlib")
_copy_to_device = lazy_import("fnx.transforms.link", "transfer_storage")
_TARGETS = (Sharding, PartitionSpec, Device)
_LABEL = "sharding_constraint("
_END = " devices)"
_BATCHED = ".batched"
_FORMS = _BATCHED, ".backward", ".jvp"  # what derived bodies add to the label
_constraints: dict[str, NamedSharding] = {}  # by the label of the identity that stands for it


def targets_of(value: Any, shardings: Any) -> list[Any]:
    """Return the entry of a tree of shardings for each leaf of a tree.

    Raises:
        PytreeError: the tree of shardings is no prefix of the other.
    """
    leaves = checked_targets(shardings)
    if len(leaves) == 1 and leaves[0] is shardings:
        return leaves * tree.structure(value).num_leaves
    return tree.leaves(tree.broadcast(shardings, value, is_leaf=_is_target), is_leaf=_is_target)


def _is_target(x: Any) -> bool:
    return x is None or isinstance(x, _TARGETS)


def checked_targets(shardings: Any) -> list[Any]:
    """Return the entries of a tree of shardings.

    Raises:
        ArgumentError: one is something else.
    """
    leaves: list[Any] = tree.leaves(shardings, is_leaf=_is_target)
    for x in leaves:
        if not _is_target(x):
            raise ArgumentError(f"expected shardings or PartitionSpecs, got {type(x).__name__}",
                                hint="pass fnx.sharding.PartitionSpec(...), or a NamedSharding")
    return leaves


def placement_for(sharding: Sharding) -> Placement:
    """Return the placement of arrays with a sharding."""
    devices = sharding._device_assignment
    ids = tuple([d.id for d in devices])
    key = "" if sharding.is_fully_addressable else f"{devices[0].platform}:{ids} {sharding!r}"
    placement = Placement(devices[0].platform, current_loc.loc, ids, sharding, key)
    record_placement(placement)
    return placement


def move(x: Array, sharding: Sharding) -> Array:
    """Return an evaluated array committed to a sharding, in the memory of its platform.

    Raises:
        ShapeError: the sharding does not divide the array.
    """
    sharding.shard_shape(x._shape)
    if not sharding.is_fully_addressable:
        return _move_over_processes(x, sharding)
    placement = placement_for(sharding)
    if not x.is_fully_addressable and not x.is_fully_replicated:
        raise not_addressable("device_put")
    memory = _copy_to_device(x._storage, placement.device)
    memory.placed = placement
    return from_storage(memory, x._shape, x._dtype, x.weak)


def _move_over_processes(x: Array, sharding: Sharding) -> Array:
    """Return an array, which all processes have or share already, over several processes."""
    if not isinstance(sharding, NamedSharding):
        raise ArgumentError(f"expected devices of this process, got {sharding}",
                            hint="fnx.local_devices() lists them; a NamedSharding over a mesh of "
                                 "all devices has a part on each")
    if not x.is_fully_addressable:
        moved = _constrained(x, sharding)
        evaluate_pending([moved])
        return moved
    value = x._numpy()
    digest = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).digest()
    others = communicator.of_process().exchange(digest, "device_put over several processes")
    if differ := [i for i, other in enumerate(others) if other != digest]:
        raise DistributedError(
            f"device_put: expected the same array in all processes, process {differ[0]} has other "
            "values", hint="make it from what each process has: "
                           "fnx.make_array_from_process_local_data(sharding, block)")
    return from_block(value[sharding._block(x._shape)], sharding, x._shape, x._dtype, x.weak)


def from_block(block: NDArray, sharding: Sharding, shape: Shape, dtype: DType, weak: bool = False
               ) -> Array:
    """Return an array over several processes from the block of this one."""
    memory = storage.put(np.ascontiguousarray(block))
    memory.placed = placement_for(sharding)
    return from_storage(memory, shape, dtype, weak)


def constrain(x: Array, sharding: Sharding, may_be_uneven: bool = False) -> Array:
    """Return x with a sharding: moved, or in a traced function with a constraint. Inside of one, an
    axis that the sharding does not divide may stay whole."""
    if may_be_uneven and scope.is_open():
        sharding._check_rank(x._shape)
    else:
        sharding.shard_shape(x._shape)
    if not isinstance(sharding, NamedSharding) or sharding.num_devices == 1:
        return x
    if not scope.is_open():
        if not isinstance(sharding.mesh, Mesh):
            return x
        if x._storage is not None:
            return move(x, sharding)
    return _constrained(x, sharding)


def _constrained(x: Array, sharding: NamedSharding) -> Array:
    devices = "no"  # of an abstract mesh: for comms.py
    if isinstance(sharding.mesh, Mesh):
        placement_for(sharding)
        devices = ", ".join([f"{d.platform}:{d.id}" for d in sharding.mesh.devices.flat])
    label = f"{_LABEL}{sharding!r} on {devices}{_END}"
    _constraints[label] = sharding
    return Array(build_calls.label(x._node, label), x.weak)


def _constraint_params(label: str) -> dict[str, Any] | None:
    """Return the params by which jaxprs say a constraint; None for its derivative."""
    sharding = _constraints.get(label)
    return None if sharding is None else {
        "context_mesh": get_mesh(), "layout": None, "sharding": sharding,
        "unconstrained_dims": frozenset()}


labelled[_LABEL] = Labelled(
    "sharding_constraint", _constraint_params,
    lambda x, *, sharding, **_: constrain(asarray(x), sharding, may_be_uneven=True))


def constraint_of(function: UOp) -> NamedSharding | None:
    """Return the sharding that the identity with the label of a FUNCTION stands for.

    Its transpose, and its form for values and tangents, have the same one; batched, it leaves the
    new axes in front open.
    """
    if not (label := function.arg.name).startswith(_LABEL) or any(
            x.op is not ops.PARAM or x.arg.slot != i for i, x in enumerate(function.src)):
        return None
    label, end, forms = label.partition(_END)
    sharding = _constraints.get(label + end)
    n = forms.count(_BATCHED)
    if sharding is None or sum([forms.count(form) * len(form) for form in _FORMS]) != len(forms):
        return None
    return sharding if not n else sharding.update(
        spec=PartitionSpec(*[None] * n, *sharding.spec))


def with_shardings(value: Any, shardings: Any, may_be_uneven: bool = False) -> Any:
    """Return the arrays of a tree with shardings, as ``with_sharding_constraint`` does."""
    arrays, structure = tree.flatten(tree.map(asarray, value))
    targets = targets_of(value, shardings)
    if not scope.is_open():
        evaluate_pending(arrays)
    current = get_mesh()
    out = []
    for x, target in zip(arrays, targets):
        sharding = resolve(target, current)
        if sharding is None and target is not None and current.empty:
            raise MeshError(f"expected a mesh for {target}, none is set",
                            hint="pass fnx.NamedSharding(mesh, spec), or enter "
                                 "`with fnx.set_mesh(mesh):`")
        out.append(x if sharding is None else constrain(x, sharding, may_be_uneven))
    return structure.unflatten(out)


_docstr = DocTemplate(
    x="a pytree of arrays.", xs="a pytree of arrays.",
    shardings="a sharding or a PartitionSpec, or a tree of these. A PartitionSpec is over the "
              "current mesh, see ``set_mesh``.",
    out_shardings="a sharding or a PartitionSpec, or a tree of these.",
    returns="The same pytree.", raises=("ArgumentError: what is no sharding.",
                                        "MeshError: a PartitionSpec, and no mesh is set.",
                                        "ShapeError: a sharding that does not divide an array, "
                                        "outside of traces."))


@_docstr()
def with_sharding_constraint(x: Any, shardings: Any) -> Any:
    """Constrain the sharding of arrays.

    In a traced function an axis whose length the sharding does not divide stays whole.

    >>> import fnx
    >>> with fnx.set_mesh(fnx.make_mesh((1,), ("x",))):
    ...     with_sharding_constraint(jnp.ones(2), PartitionSpec(None))
    Array([1., 1.], dtype=float32)
    """
    return with_shardings(x, shardings, may_be_uneven=True)


@_docstr()
def reshard(xs: Any, out_shardings: Any) -> Any:
    """Change the sharding of arrays.

    >>> import fnx
    >>> with fnx.set_mesh(fnx.make_mesh((1,), ("x",))):
    ...     reshard(jnp.ones(2), PartitionSpec("x"))
    Array([1., 1.], dtype=float32)
    """
    return with_shardings(xs, out_shardings)
