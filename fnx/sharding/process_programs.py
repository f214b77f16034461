"""Programs on arrays over several processes: what each of them runs.

    FUNCTION on whole arrays, shardings of its arguments
      ->  shardings of its results, as in one process (propagation.py)
      ->  FUNCTION on blocks, with collectives (lower/partition), whose results are so cut
      ->  all processes compare its digest, before it first runs

An argument that is not sharded is whole, and the same in all processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.core.array.placement import LocalProgram
from fnx.core.ir import build, ops
from fnx.core.ir.axis_partitions import Partitions
from fnx.core.ir.cache import find_memo, memos_of
from fnx.core.ir.uop import UOp, toposort
from fnx.core.scope import communicator
from fnx.core.support.errors import DistributedError, format_location
from fnx.sharding.constraints import constraint_of, placement_for
from fnx.sharding.mesh import Mesh
from fnx.sharding.named_sharding import NamedSharding, PartitionSpec, Sharding
from fnx.sharding.process_blocks import cuts, grid_of, spans_processes
from fnx.sharding.propagation import result_shardings
from fnx.sharding.topology import TOPOLOGIES
from fnx.transforms.link import combine_sums, partition

_LINK = TOPOLOGIES["ethernet"].levels[-1]
_ENOUGH = 16 * _LINK.latency * _LINK.bandwidth  # bytes of a message of which latency is a sixteenth
_DIGITS = 16  # of the digest of a program, in its name
_TEXT = 200  # characters of the description of a program that processes exchange
_agreed: set[bytes] = set()  # digests of the programs that all processes have


def local_program(function: UOp, shardings: tuple[Any, ...]) -> LocalProgram | None:
    """Return the program of this process for a FUNCTION and the shardings of its arguments.

    None: nothing in it is over several processes.

    Raises:
        DistributedError: arrays over different meshes, or the processes have different programs.
    """
    key = "processes", shardings
    known: tuple[LocalProgram | None] | None = find_memo(function, key)
    if known is not None:
        return known[0]
    mesh = _mesh(function, shardings)
    local = None if mesh is None else _partitioned(function, shardings, mesh)
    if local is None or local.function is not function:  # a memo must not keep its own key
        memos_of(function)[key] = (local,)
    return local


def _mesh(function: UOp, shardings: Sequence[Sharding | None]) -> Mesh | None:
    """Return the mesh over several processes that arguments and constraints are on."""
    constraints = [constraint_of(node) for node in toposort([function], into_functions=True)
                   if node.op is ops.FUNCTION]
    meshes = list(dict.fromkeys([
        s.mesh for s in (*shardings, *constraints)
        if isinstance(s, NamedSharding) and isinstance(s.mesh, Mesh) and spans_processes(s.mesh)]))
    if len(meshes) > 1:
        raise DistributedError(f"expected arrays over one mesh, got some over {meshes[0]} and some "
                               f"over {meshes[1]}",
                               hint="make one mesh with all axes, and shard each array over some "
                                    "of them")
    return meshes[0] if meshes else None


def _partitioned(function: UOp, shardings: Sequence[Sharding | None], mesh: Mesh) -> LocalProgram:
    params = build.params(function)

    def parts_of(i: int) -> Partitions:
        sharding, ndim = shardings[i], len(params[i].shape) if i in params else 0
        return cuts(mesh, sharding._partitions(ndim)) if isinstance(sharding, NamedSharding) \
            and sharding.mesh == mesh else ((),) * ndim

    def constraint(called: UOp) -> Partitions | None:
        sharding, ndim = constraint_of(called), len(called.src[0].shape)
        return cuts(mesh, sharding._partitions(ndim)) if isinstance(sharding, NamedSharding) \
            and sharding.mesh == mesh else None

    results = [NamedSharding(mesh, PartitionSpec()) if s is None else s
               for s in result_shardings(function, tuple(shardings))]
    wanted = [cuts(mesh, s._partitions(len(x.shape))) for s, x in zip(results, function.src)]
    name = f"{function.arg.name} {function.digest().hex()[:_DIGITS]}"
    local, _ = partition(function, grid_of(mesh).replace(program=name),
                         [parts_of(i) for i in range(len(shardings))], wanted, constraint)
    local = combine_sums(local, _ENOUGH)
    if any(n.op is ops.COLLECTIVE and n.arg.name != "process_index"
           for n in toposort([local], into_functions=True)):
        _agree(local, function)
    return LocalProgram(local, tuple([placement_for(s) for s in results]))


def _agree(local: UOp, function: UOp) -> None:
    """Raise unless all processes have the same program; once for each."""
    digest = local.digest()
    if digest in _agreed:
        return
    text = f"{function.arg.name}{_types(function)}"
    if (loc := next((x.loc for x in function.src if x.loc is not None), None)) is not None:
        text += f" ({format_location(loc)})"
    got = communicator.of_process().exchange(
        digest + text[:_TEXT].encode(), f"the comparison of programs, before {text}")
    rank = communicator.of_process().rank
    others = {i: data[len(digest):].decode(errors="replace") for i, data in enumerate(got)
              if data[:len(digest)] != digest}
    if others:
        listed = "; ".join(f"process {i} {other}" for i, other in list(others.items())[:4])
        raise DistributedError(
            f"expected the same program in all processes, process {rank} has {text}, {listed}",
            hint="all processes must call the same functions in the same order, with arrays of the "
                 "same shapes, dtypes and shardings, and the same numbers in their code: what "
                 "depends on fnx.process_index() is an argument")
    _agreed.add(digest)


def _types(function: UOp) -> str:
    params = build.params(function)
    return f"({', '.join([f'{x.dtype}{list(x.shape)}' for _, x in sorted(params.items())])})"
