"""Meshes, shardings over them, and functions of shards.

    mesh.py             grids of devices with named axes
    named_sharding.py   which part of an array each device holds
    constraints.py      how arrays get their shardings
    propagation.py      shardings of results from those of arguments
    jit_shardings.py    shardings of the arguments and results of ``jit``
    process_blocks.py   several processes: the block of an array that each has
    process_programs.py several processes: the program of each
    pictures.py         which device holds what, as text
    shard_map.py        functions of shards, with collectives over the axes of a mesh
    pmap.py             the same over one axis of devices
    topology.py         models of the links between devices
    comms.py            what a program costs on a mesh, without its devices
    plan.py             a search for shardings by that cost

The devices of one process share memory: a sharded array is one buffer with its sharding as
metadata. Over several processes it is the block of this one (docs/distributed.md).
"""

from typing import TYPE_CHECKING

from fnx.core.array.placement import set_propagation
from fnx.core.support.errors import lazy_module
from fnx.sharding import jit_shardings, propagation
from fnx.sharding.comms import comms, comms_of
from fnx.sharding.constraints import reshard, with_sharding_constraint
from fnx.sharding.mesh import (
    AbstractMesh,
    AxisType,
    Mesh,
    get_abstract_mesh,
    get_mesh,
    make_mesh,
    set_mesh,
    use_abstract_mesh,
)
from fnx.sharding.named_sharding import (
    NamedSharding,
    PartitionSpec,
    Sharding,
    SingleDeviceSharding,
)
from fnx.sharding.plan import plan
from fnx.sharding.pmap import pmap
from fnx.sharding.shard_map import shard_map
from fnx.sharding.topology import TOPOLOGIES, Level, Topology
from fnx.transforms.inspect.lowering import register_comms
from fnx.transforms.jit import register_sharded
from fnx.transforms.stages import register_propagation

__all__ = [
    "TOPOLOGIES", "AbstractMesh", "AxisType", "Level", "Mesh", "NamedSharding", "PartitionSpec",
    "Sharding", "SingleDeviceSharding", "Topology", "comms", "get_abstract_mesh", "get_mesh",
    "make_mesh", "plan", "pmap", "reshard", "set_mesh", "shard_map", "use_abstract_mesh",
    "with_sharding_constraint",
]

set_propagation(propagation.commit_results)
register_propagation(propagation.result_shardings)
register_sharded(jit_shardings.sharded_jit)
register_comms(comms_of)

if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
