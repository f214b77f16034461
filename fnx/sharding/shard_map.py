"""shard_map: a function of shards -> a function of whole arrays.

    x: f32[8, 6], spec P('a', 'b') on a mesh of 4 x 2
    split    f32[4, 2, 2, 3]      the axes of the mesh in front, then the shard
    map      over each axis of the mesh by vmap, with its name, for collectives
    join     f32[8, 6]            by the spec of the result

So grad, vmap, scan and jit compose as with vmap, and the leading axes of each kernel are shared
over the workers. A result without an axis of the mesh in its spec is the same on all devices of
that axis: it is if it has no batch axis there.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from fnx.core.array import arguments, tree
from fnx.core.array.api_boundary import asarray
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval
from fnx.core.array.placement import placement_of
from fnx.core.ir import build
from fnx.core.ir.axis_partitions import Partitions
from fnx.core.ir.uop import UOp
from fnx.core.scope import scope
from fnx.core.support.errors import ArgumentError, PlacementError, ShapeError
from fnx.sharding.constraints import constrain
from fnx.sharding.mesh import AbstractMesh, Mesh, get_mesh
from fnx.sharding.named_sharding import (
    NamedSharding,
    PartitionSpec,
    check_spec,
    partitions_of,
)
from fnx.transforms.transformed import Transformed
from fnx.transforms.vmap import Vmapped

__all__ = ["shard_map"]


def shard_map(f: Callable[..., Any] | None = None, *, out_specs: Any = None, in_specs: Any = None,
              mesh: AbstractMesh | None = None, axis_names: Any = frozenset(),
              check_vma: bool = True, check_rep: bool | None = None) -> Any:
    """Map a function over the shards of arrays on a mesh.

    Args:
        f: a function of shards. If omitted: a decorator.
        out_specs: the partition specs of the results, a tree or a prefix of one.
        in_specs: the partition specs of the arguments, a tuple or one for all.
        mesh: its axes are open in f, for collectives; by default the current mesh.
        axis_names: the axes to open; by default all.
        check_vma: raise if a result may differ along an axis that its spec does not have; False:
            the result of the first device of that axis is taken.
        check_rep: the former name of ``check_vma``.

    Returns:
        A function of whole arrays.

    Raises:
        ArgumentError: no mesh, a spec with other axes, or a result that may differ between devices.
        ShapeError: an argument that its spec does not divide.

    >>> import fnx, fnx.lax as lax, fnx.numpy as jnp
    >>> total = shard_map(lambda x: lax.psum(x, "x"), mesh=fnx.make_mesh((1,), ("x",)),
    ...                   in_specs=fnx.P("x"), out_specs=fnx.P())
    >>> total(jnp.ones(2))
    Array([1., 1.], dtype=float32)
    """
    check = check_vma if check_rep is None else check_rep
    arguments.check_bool("check_vma", check)
    if f is None:
        return lambda g: shard_map(g, out_specs=out_specs, in_specs=in_specs, mesh=mesh,
                                   axis_names=axis_names, check_vma=check)
    return _ShardMapped(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs,
                        axis_names=tuple(axis_names), check=check)


class _ShardMapped(Transformed[..., Any]):
    kind = "shard_map"
    summary = "Maps over the shards of its arguments, which are those of the function."

    def apply(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        mesh: AbstractMesh = self._options["mesh"] or get_mesh()
        if not isinstance(mesh, AbstractMesh):
            raise ArgumentError(f"shard_map of {self._name}: expected a mesh, got "
                                f"{type(mesh).__name__}",
                                hint="make one: mesh=fnx.make_mesh(lengths, names)")
        if mesh.empty:
            raise ArgumentError(f"shard_map of {self._name}: expected a mesh, got none",
                                hint="pass mesh=fnx.make_mesh(lengths, names), or enter "
                                     "`with fnx.set_mesh(mesh):`")
        if kwargs:
            raise ArgumentError(f"shard_map of {self._name}: expected arguments by position, got "
                                f"{', '.join(kwargs)}=", hint="in_specs has none for keywords")
        names = self._open_axes(mesh)
        leaves, in_tree = tree.flatten(args)
        specs = _specs_of_leaves(self._options["in_specs"], args,
                                 f"in_specs of shard_map of {self._name}", mesh, names)
        arrays = [asarray(x) for x in leaves]
        self._check_devices(arrays, mesh)
        split = [self._split(x, spec, mesh, names, in_tree, i)
                 for i, (x, spec) in enumerate(zip(arrays, specs))]
        results = _Results(self._options["out_specs"], self._name, mesh, names)

        def flat(*shards: Any) -> list[Any]:
            return results.flatten(self._f(*in_tree.unflatten(shards)))

        g: Callable[..., Any] = flat
        for name in reversed(names):
            g = _OverAxis(g, results, name, self._options["check"], tuple([
                0 if any(name in part for part in partitions_of(spec, 0)) else None
                for spec in specs]), mesh.shape[name])
        joined = [_join(x, spec, mesh) for x, spec in zip(g(*split), results.specs)]
        return results.structure.unflatten(joined)

    def _open_axes(self, mesh: AbstractMesh) -> tuple[Hashable, ...]:
        chosen = self._options["axis_names"]
        if unknown := [name for name in chosen if name not in mesh.axis_names]:
            raise ArgumentError(f"shard_map of {self._name}: expected axis_names of {mesh}, got "
                                f"{unknown}",
                                hint=f"its axes are {', '.join(map(repr, mesh.axis_names))}")
        return tuple([name for name in mesh.axis_names if not chosen or name in chosen])

    def _check_devices(self, arrays: Sequence[Array], mesh: AbstractMesh) -> None:
        """Raise if an array is committed to other devices than those of the mesh."""
        ids = {d.id for d in mesh.devices.flat} if isinstance(mesh, Mesh) else set()
        for x in arrays if ids else ():
            placement = placement_of(x._storage)
            if placement is not None and set(placement.ids) != ids:
                raise PlacementError(
                    f"shard_map of {self._name}: expected arrays on the devices of {mesh}, got "
                    f"{x._aval} on {placement.location}",
                    hint="move it: fnx.device_put(x, fnx.NamedSharding(mesh, spec))")

    def _split(self, x: Array, spec: PartitionSpec, mesh: AbstractMesh, names: Sequence[Hashable],
               in_tree: tree.TreeDef, i: int) -> Array:
        """Return x with the axes of the mesh that are in its spec in front."""
        try:
            NamedSharding(mesh, spec).shard_shape(x._shape)
        except ShapeError as error:
            error.prefix_caller(f"shard_map of {self._name}: args"
                                f"{tree.keystr(tree.paths(in_tree)[i])}")
            raise
        if scope.is_open():  # in derivatives the cotangent has this sharding, too
            x = constrain(x, NamedSharding(mesh, spec))
        lengths, axes = _split_shape(x._shape, partitions_of(spec, x.ndim), mesh)
        order = [axes.index(name) for name in names if name in axes]
        order += [at for at, name in enumerate(axes) if name is None]
        return Array(build.permute(build.reshape(x._node, tuple(lengths)), order), x.weak)


def _split_shape(shape: Sequence[int], parts: Partitions, mesh: AbstractMesh
                 ) -> tuple[list[int], list[Hashable]]:
    """Return the lengths of an array whose axes are split into those of the mesh and the rest, and
    the name of each: None for the rest."""
    lengths: list[int] = []
    axes: list[Hashable] = []
    for n, part in zip(shape, parts):
        sizes = [mesh.shape[name] for name in part]
        for size in sizes:
            n //= max(size, 1)
        lengths += [*sizes, n]
        axes += [*part, None]
    return lengths, axes


def _join(x: Array, spec: PartitionSpec, mesh: AbstractMesh) -> Array:
    """Return the whole array of shards that have the axes of the mesh in their spec in front."""
    named = [name for part in partitions_of(spec, 0) for name in part]
    front = [name for name in mesh.axis_names if name in named]
    shard = x._shape[len(front):]
    parts = partitions_of(spec, len(shard))
    order: list[int] = []
    lengths: list[int] = []
    for i, (n, part) in enumerate(zip(shard, parts)):
        order += [*[front.index(name) for name in part], len(front) + i]
        for name in part:
            n *= mesh.shape[name]
        lengths.append(n)
    whole = Array(build.reshape(build.permute(x._node, order), tuple(lengths)), x.weak)
    return constrain(whole, NamedSharding(mesh, spec))


def _specs_of_leaves(specs: Any, value: Any, what: str, mesh: AbstractMesh,
                     names: Sequence[Hashable]) -> list[PartitionSpec]:
    """Return the spec of each leaf of a tree, checked."""
    def is_spec(x: Any) -> bool:
        return x is None or isinstance(x, PartitionSpec)

    if is_spec(specs):
        out = [specs] * tree.structure(value).num_leaves
    else:
        if type(value) is tuple and isinstance(specs, (list, tuple)):
            if len(specs) != len(value):
                raise ArgumentError(f"{what}: expected specs of {len(value)} arguments, got "
                                    f"{len(specs)}: {specs}",
                                    hint="pass one PartitionSpec, or a tuple with one for each")
            specs = tuple(specs)
        out = tree.leaves(tree.broadcast(specs, value, is_leaf=is_spec), is_leaf=is_spec)
    out = [PartitionSpec() if spec is None else spec for spec in out]
    for spec in out:
        try:
            check_spec(mesh, spec)
        except ArgumentError as error:
            error.prefix_caller(what)
            raise
        if closed := [name for part in partitions_of(spec, 0) for name in part
                      if name not in names]:
            raise ArgumentError(f"{what}: expected axes of axis_names, got {closed} in {spec}",
                                hint="add them to axis_names, or leave them out of the spec")
    return out


class _Results:
    """The results of a function of shards: their structure and specs, known once it has run."""

    def __init__(self, out_specs: Any, name: str, mesh: AbstractMesh, names: Sequence[Hashable]
                 ) -> None:
        self._out_specs, self.name, self._mesh, self._names = out_specs, name, mesh, names
        self.specs: list[PartitionSpec] = []
        self.structure = tree.structure(None)

    def flatten(self, out: Any) -> list[Array]:
        leaves, self.structure = tree.flatten(out)
        if self._out_specs is None and leaves:
            raise ArgumentError(f"shard_map of {self.name}: expected out_specs, got None",
                                hint="pass fnx.P() for results that are the same on all devices")
        self.specs = _specs_of_leaves(self._out_specs, out,
                                      f"out_specs of shard_map of {self.name}", self._mesh,
                                      self._names)
        arrays = [asarray(x) for x in leaves]
        for i, (x, spec) in enumerate(zip(arrays, self.specs)):
            if len(spec) > x.ndim:
                raise ShapeError(f"shard_map of {self.name}: expected a result of at least "
                                 f"{len(spec)} axes for {spec}, got {x._aval} at "
                                 f"result{self.where(i)}",
                                 hint="shorten the spec, or give the result more axes: x[None]")
        return arrays

    def where(self, i: int) -> str:
        """Return the path of a result."""
        return tree.keystr(tree.paths(self.structure)[i])


class _OverAxis(Vmapped[..., Any]):
    """A function mapped over one axis of the mesh. Results have the axis in front if their spec has
    it; others are taken from one device."""

    kind = "shard_map"

    def __init__(self, f: Callable[..., Any], results: _Results, name: Hashable, check: bool,
                 in_axes: tuple[int | None, ...], size: int) -> None:
        super().__init__(f, in_axes=in_axes, out_axes=0, axis_name=name, axis_size=size)
        self._results, self._check = results, check
        self._sums_cotangents = check
        self._name = results.name

    def _out(self, node: tuple[UOp, bool], axis: int | None, aval: Aval, out_tree: tree.TreeDef,
             i: int, size: int) -> Array:
        x, is_batched = node
        name, spec = self._options["axis_name"], self._results.specs[i]
        if any(name in part for part in partitions_of(spec, 0)):
            return super()._out(node, axis, aval, out_tree, i, size)
        if is_batched and self._check:
            raise ArgumentError(
                f"shard_map of {self._name}: expected a result{self._results.where(i)} that is the "
                f"same on all devices of axis {name!r}, which is not in {spec}; got one that may "
                "differ", hint=f"reduce it, as by fnx.lax.psum(x, {name!r}), put {name!r} into "
                               "out_specs, or pass check_vma=False to take it from one device")
        if is_batched:
            x = build.reshape(build.shrink(x, [(0, 1), *[(0, n) for n in x.shape[1:]]]),
                              x.shape[1:])
        return Array(x, aval.weak)
