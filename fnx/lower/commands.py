"""Commands: kernels in order become a Block, one EXEC each on slots of memory.

    before  Launch(double, operands (p0, a)), Launch(sum, operands (a, out))     a: 4 KB
    memory  a: 4096 bytes at 0 of the arena
    after   COMMANDS(EXEC(double, SLOT in 0, SLOT arena 0), EXEC(sum, SLOT arena 0, SLOT out 0))

>>> from fnx.core import dtypes
>>> r = build.range_(8, 0)
>>> o = build.at(build.ref(0, dtypes.float32, (8,)), r)
>>> ones = build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones", [0])
>>> out = build.const(1, dtypes.float32, (8,))
>>> block = commands(plan_memory(Launches((out,), (("out", 0),), [Launch(ones, (out,), ())])))
>>> [(s.arg.kind, s.arg.nbytes) for s in block.commands.src[0].src[1:]]
[('out', 64)]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fnx.core import build, ops
from fnx.core.errors import Site
from fnx.core.uop import UOp
from fnx.lower import memory
from fnx.lower.fusion.unique_results import Result


class Launch(NamedTuple):
    """A tiled kernel, the node that each of its buffers holds, and a CONST for each VAR."""

    kernel: UOp
    operands: tuple[UOp, ...]
    scalars: tuple[UOp, ...]
    sites: tuple[Site, ...] = ()

    @property
    def name(self) -> str:
        """The kernel's name and the user's lines, for profiles and faults."""
        name: str = self.kernel.arg.name
        lines = [f"{file.rpartition('/')[2]}:{line}" for file, line in self.sites[:2]]
        return f"{name} ({', '.join(lines)})" if lines else name


class Launches(NamedTuple):
    """The launches of a FUNCTION in order, with its results, before they have memory.

    ``offsets``: of nodes in the arena, once it is planned; ``arena``: its bytes.
    """

    outs: tuple[UOp, ...]
    results: tuple[Result, ...]
    launches: Sequence[Launch]
    offsets: Mapping[UOp, int] = {}
    arena: int = 0

    @property
    def graphs(self) -> list[UOp]:
        return [launch.kernel for launch in self.launches]


class Block(NamedTuple):
    """What a FUNCTION becomes: commands, and what their slots stand for.

    Attributes:
        commands: the COMMANDS node. Slots "in" are the parameters by number.
        arena: bytes of intermediate buffers.
        outs: (shape, dtype) of the buffers of slots "out".
        results: where each result of the FUNCTION is found: "in" or "out", and which.
    """

    commands: UOp
    arena: int
    outs: tuple[UOp, ...]
    results: tuple[Result, ...]

    @property
    def graphs(self) -> tuple[UOp]:
        return (self.commands,)


def plan_memory(all: Launches) -> Launches:
    """Offsets in the arena for what is neither a parameter nor a result."""
    outs = set(all.outs)
    sizes = {n: memory.size_of(n) for launch in all.launches for n in launch.operands
             if n.op is not ops.PARAM and n not in outs}
    offsets, arena = memory.plan([launch.operands for launch in all.launches], sizes)
    return all._replace(offsets=offsets, arena=arena)


def commands(all: Launches) -> Block:
    """Slots for all operands, and one EXEC a kernel."""
    outs = {node: i for i, node in enumerate(all.outs)}

    def slot(node: UOp) -> UOp:
        nbytes = memory.size_of(node)
        if node.op is ops.PARAM:
            return build.slot("in", node.arg.slot, 0, nbytes)
        if node in outs:
            return build.slot("out", outs[node], 0, nbytes)
        return build.slot("arena", 0, all.offsets[node], nbytes)

    execs = [build.exec_(launch.kernel, [slot(n) for n in launch.operands], launch.scalars,
                         launch.name) for launch in all.launches]
    return Block(build.commands(execs), all.arena, all.outs, all.results)
