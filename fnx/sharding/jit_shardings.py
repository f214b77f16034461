"""``jit`` with shardings of arguments and results over several devices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray
from fnx.core.array.placement import placement_of
from fnx.core.scope import scope
from fnx.core.support.errors import ArgumentError, MeshError
from fnx.sharding.constraints import checked_targets, move, targets_of, with_shardings
from fnx.sharding.mesh import get_mesh
from fnx.sharding.named_sharding import PartitionSpec, resolve
from fnx.transforms.dispatch.signature import positions
from fnx.transforms.jit import Jitted


class ShardedJitted(Jitted[..., Any]):
    """A function under ``jit`` whose arguments are moved to shardings, and whose results have
    some."""

    def __init__(self, in_shardings: Any, f: Callable[..., Any], static: tuple[int, ...],
                 *options: Any) -> None:
        super().__init__(f, static, *options)
        self._in_shardings, self._static = in_shardings, static

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not scope.is_open():
            args = map_dynamic(self._put, self._in_shardings, args, self._static)
        return super().__call__(*args, **kwargs)

    def _put(self, value: Any, shardings: Any) -> Any:
        leaves, structure = tree.flatten(value)
        current = get_mesh()
        out = []
        for leaf, target in zip(leaves, targets_of(value, shardings)):
            x, sharding = asarray(leaf), resolve(target, current)
            placement = placement_of(x._storage)
            if sharding is None or x._storage is None:
                out.append(leaf)
            elif placement is None or placement.sharding is None:
                out.append(move(x, sharding))
            elif placement.sharding == sharding or \
                    placement.sharding.is_equivalent_to(sharding, x.ndim):
                out.append(x)
            else:
                raise ArgumentError(
                    f"{self._name}: expected an argument with the sharding of in_shardings, "
                    f"{sharding}, got one with {placement.sharding}",
                    hint="move it: fnx.device_put(x, sharding), or leave in_shardings out")
        return structure.unflatten(out)


def map_dynamic(f: Callable[[Any, Any], Any], shardings: Any, args: tuple[Any, ...],
                static: tuple[int, ...]) -> tuple[Any, ...]:
    """Apply f to the dynamic arguments of a call as one tree, and their shardings."""
    fixed = positions(static, len(args))
    dynamic = iter(f(tuple([x for i, x in enumerate(args) if i not in fixed]), shardings))
    return tuple([x if i in fixed else next(dynamic) for i, x in enumerate(args)])


def sharded_jit(in_shardings: Any, out_shardings: Any, f: Callable[..., Any],
                static: tuple[int, ...], *options: Any) -> Jitted[..., Any]:
    """Return a function under ``jit`` with shardings; on one device they have no effect."""
    current = get_mesh()

    targets = checked_targets((in_shardings, out_shardings))
    resolved = [resolve(s, current) for s in targets if s is not None]
    if current.empty and any(isinstance(s, PartitionSpec) for s in targets):
        raise MeshError("jit: expected a mesh for the PartitionSpecs of in_shardings and "
                        "out_shardings, none is set",
                        hint="pass fnx.NamedSharding(mesh, spec), or enter "
                             "`with fnx.set_mesh(mesh):`")
    if all(s is None or s.num_devices == 1 for s in resolved):
        return Jitted(f, static, *options)

    @functools.wraps(f)
    def constrained(*args: Any, **kwargs: Any) -> Any:
        if in_shardings is not None:
            args = map_dynamic(with_shardings, in_shardings, args, static)
        out = f(*args, **kwargs)
        return out if out_shardings is None else with_shardings(out, out_shardings)
    return ShardedJitted(in_shardings, constrained, static, *options)
