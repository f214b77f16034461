"""Commands: lower a sequence of kernels to a Block, one EXEC each on slots of memory.

    before  Launch(double, operands (p0, a)), Launch(sum, operands (a, out))     a: 4 KB
    memory  a: 4096 bytes at 0 of the arena
    after   COMMANDS(EXEC(double, SLOT in 0, SLOT arena 0), EXEC(sum, SLOT arena 0, SLOT out 0))

>>> from fnx.core import build, dtypes
>>> r = build.range_(8, 0)
>>> o = build.at(build.ref(0, dtypes.float32, (8,)), r)
>>> ones = build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones", [0])
>>> out = build.const(1, dtypes.float32, (8,))
>>> block = commands(plan_memory(Launches((out,), (("out", 0),), [Launch(ones, (out,), ())])))
>>> [(s.arg.kind, s.arg.nbytes) for s in block.commands.src[0].src[1:]]
[('out', 64)]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fnx.core import build_commands, op_args, ops, parts
from fnx.core.errors import Site
from fnx.core.record import Record
from fnx.core.uop import UOp, rebuild
from fnx.lower import memory
from fnx.lower.fusion.unique_results import Result
from fnx.lower.memory import BufferOrView, View, nodes_of
from fnx.lower.sharing import WrittenRead, readers_first, share

SlotOf = Callable[[UOp], UOp]


class Launch(Record):
    """A tiled kernel, the operand of each of its buffers, and a CONST for each VAR.

    Attributes:
        writes: the nodes whose buffers it writes.
        shares: (written, read) pairs of nodes that may share one buffer.
        copies: such a pair if the kernel does nothing but copy one to the other.
    """

    kernel: UOp
    operands: tuple[BufferOrView, ...]
    scalars: tuple[UOp, ...]
    sites: tuple[Site, ...] = ()
    writes: tuple[UOp, ...] = ()
    shares: tuple[WrittenRead, ...] = ()
    copies: WrittenRead | None = None

    @property
    def graphs(self) -> tuple[UOp, ...]:
        return (self.kernel,) if self.kernel.op is ops.KERNEL else ()

    @property
    def has_effects(self) -> bool:
        return self.kernel.op is ops.HOST and bool(self.kernel.arg.effect)

    @property
    def follows(self) -> bool:
        """Whether it must stay right after the loop before it: it reads one of two buffers, chosen
        by the trip count of that loop."""
        return any(isinstance(o, View) and o.odd is not None for o in self.operands)

    @property
    def uses(self) -> list[UOp]:
        """The nodes whose buffers it reads or writes."""
        return nodes_of(self.operands)

    def commands(self, slot: SlotOf) -> Sequence[UOp]:
        """Return its EXEC; ``slot`` maps a node to its SLOT."""
        slots = [o.slot(slot) if isinstance(o, View) else slot(o) for o in self.operands]
        return [build_commands.exec_(self.kernel, slots, self.scalars, self.kernel.arg.name,
                                     self.sites)]


class Repeat(Record):
    """A LOOP of a Block, before memory is assigned.

    Attributes:
        trips: the trip count; None: repeat while ``test`` writes a true ``flag``.
        ins, outs: operands of the parameters and results of the body.
        work: temporary memory of the body and of the test.
    """

    name: str
    trips: int | None
    body: Block
    ins: tuple[View, ...]
    outs: tuple[View, ...]
    work: UOp
    test: Block | None = None
    flag: UOp | None = None
    graphs: tuple[UOp, ...] = ()
    shares: tuple[WrittenRead, ...] = ()
    copies: WrittenRead | None = None
    follows: bool = False
    sites: tuple[Site, ...] = ()

    @property
    def has_effects(self) -> bool:
        return _have_effects(self.body) or self.test is not None and _have_effects(self.test)

    @property
    def writes(self) -> list[UOp]:
        return nodes_of(self.outs)

    @property
    def uses(self) -> list[UOp]:
        used = [*nodes_of((*self.ins, *self.outs)), self.work]
        return used if self.flag is None else [*used, self.flag]

    def commands(self, slot: SlotOf) -> Sequence[UOp]:
        ins, outs = ([view.slot(slot) for view in side] for side in (self.ins, self.outs))
        work = slot(self.work)
        body = placed(self.body.commands, ins, outs, work, 1)
        if self.trips is not None:
            return [build_commands.loop(body, self.trips, self.name, self.sites)]
        assert self.test is not None and self.flag is not None
        flag = slot(self.flag)
        test = placed(self.test.commands, ins, [flag], work, 1)
        return [build_commands.loop_while(test, flag, body, self.name, self.sites)]


class Choice(Record):
    """A BRANCH over Blocks, before memory is assigned."""

    name: str
    which: UOp
    blocks: tuple[Block, ...]
    ins: tuple[UOp, ...]
    outs: tuple[UOp, ...]
    work: UOp
    graphs: tuple[UOp, ...] = ()
    shares: tuple[WrittenRead, ...] = ()
    copies: WrittenRead | None = None
    follows: bool = False
    sites: tuple[Site, ...] = ()

    @property
    def has_effects(self) -> bool:
        return any(map(_have_effects, self.blocks))

    @property
    def writes(self) -> tuple[UOp, ...]:
        return self.outs

    @property
    def uses(self) -> list[UOp]:
        return [self.which, *self.ins, *self.outs, self.work]

    def commands(self, slot: SlotOf) -> Sequence[UOp]:
        ins, outs = ([slot(n) for n in side] for side in (self.ins, self.outs))
        work = slot(self.work)
        return [build_commands.branch(slot(self.which), [placed(b.commands, ins, outs, work, 0)
                                                for b in self.blocks], self.name, self.sites)]


class Inlined(Record):
    """The commands of a called Block, before memory is assigned."""

    block: Block
    ins: tuple[UOp, ...]
    outs: tuple[UOp, ...]
    work: UOp
    graphs: tuple[UOp, ...] = ()
    shares: tuple[WrittenRead, ...] = ()
    copies: WrittenRead | None = None
    follows: bool = False

    @property
    def has_effects(self) -> bool:
        return _have_effects(self.block)

    @property
    def writes(self) -> tuple[UOp, ...]:
        return self.outs

    @property
    def uses(self) -> list[UOp]:
        return [*self.ins, *self.outs, self.work]

    def commands(self, slot: SlotOf) -> Sequence[UOp]:
        ins, outs = ([slot(n) for n in side] for side in (self.ins, self.outs))
        return placed(self.block.commands, ins, outs, slot(self.work), 0).src


def _have_effects(block: Block) -> bool:
    """Whether any kernel has effects, so that its order relative to other effects matters."""
    kernels = [e.src[0] for e in parts.executions(block.commands)]
    return any(k.op is ops.HOST and k.arg.effect for k in kernels)


AnyLaunch = Launch | Repeat | Choice | Inlined


class Launches(Record):
    """The launches of a FUNCTION in order, with its results, before memory is assigned.

    Attributes:
        carried: (result number, parameter slot): the result takes the parameter's memory if that
            is proved safe.
        unaligned: nodes whose buffers are not aligned to a vector register.
        apart: whether parameters and results share their memory with nothing else, so that all
            other values are in one buffer.
        memory: maps a node to the node whose buffer it shares, once that is decided.
        offsets: arena offsets of nodes, once planned.
        arena: bytes of the arena.
    """

    outs: tuple[UOp, ...]
    results: tuple[Result, ...]
    launches: Sequence[AnyLaunch]
    carried: tuple[tuple[int, int], ...] = ()
    unaligned: frozenset[UOp] = frozenset()
    apart: bool = False
    memory: Mapping[UOp, UOp] = {}
    offsets: Mapping[UOp, int] = {}
    arena: int = 0

    @property
    def graphs(self) -> list[UOp]:
        return [graph for launch in self.launches for graph in launch.graphs]


class Block(Record):
    """The lowered form of a FUNCTION: commands, and what their slots refer to.

    Attributes:
        commands: the COMMANDS node. Slots "in" are the parameters by number.
        arena: bytes of intermediate buffers.
        outs: (shape, dtype) of the buffers of slots "out".
        results: the slot of each result of the FUNCTION: "in" or "out", and its index.
        over: (buffer, parameter) pairs: those of ``outs`` that overwrite a parameter.
    """

    commands: UOp
    arena: int
    outs: tuple[UOp, ...]
    results: tuple[Result, ...]
    over: tuple[tuple[int, int], ...] = ()

    @property
    def graphs(self) -> tuple[UOp]:
        return (self.commands,)


def plan_memory(all: Launches) -> Launches:
    """Decide which nodes share a buffer, and assign arena offsets to intermediate values."""
    all = all.replace(launches=readers_first(all.launches))
    found = share(all)
    launches = [launch for i, launch in enumerate(all.launches) if i not in found.elided]
    uses = [[found.of(n) for n in launch.uses] for launch in launches]
    outs = {found.of(out) for out in all.outs}
    sizes = {n: memory.size_of(n) for used in uses for n in used
             if n.op is not ops.PARAM and n not in outs}
    offsets, arena = memory.plan(uses, sizes)
    return all.replace(launches=launches, memory=found.memory(), offsets=offsets, arena=arena)


def commands(all: Launches) -> Block:
    """Build the slots of all operands, and the command of each launch."""
    outs = {node: i for i, node in enumerate(all.outs)}

    def place(node: UOp) -> tuple[str, int]:
        node = all.memory.get(node, node)
        return ("in", node.arg.slot) if node.op is ops.PARAM else ("out", outs[node]) \
            if node in outs else ("arena", 0)

    def slot(node: UOp) -> UOp:
        kind, index = place(node)
        offset = all.offsets[all.memory.get(node, node)] if kind == "arena" else 0
        return build_commands.slot(kind, index, offset, memory.size_of(node))

    results = tuple([place(all.outs[i]) if kind == "out" else (kind, i)
                     for kind, i in all.results])
    made = [command for launch in all.launches for command in launch.commands(slot)]
    over = tuple([(i, place(out)[1]) for i, out in enumerate(all.outs) if place(out)[0] == "in"])
    return Block(build_commands.commands(made), all.arena, all.outs, results, over)


def placed(commands: UOp, ins: Sequence[UOp], outs: Sequence[UOp], arena: UOp, depth: int
           ) -> UOp:
    """Relocate the COMMANDS of a Block to the memory of its caller.

    Args:
        commands: with slots "in", "out" and "arena" of their own.
        ins, outs, arena: the SLOTs or SWAPs of the caller that these stand for.
        depth: number of loops around the Block that it does not know of.
    """
    given = {"in": ins, "out": outs, "arena": (arena,)}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.SLOT:
            return _within(given[node.arg.kind][node.arg.index], node.arg, depth)
        return node.replace(src=src, arg=node.arg + depth) if node.op is ops.SWAP else None

    kernels = {e.src[0]: e.src[0] for e in parts.executions(commands)}
    return rebuild([commands], visit, kernels)[0]


def _within(whole: UOp, part: op_args.Slot, depth: int) -> UOp:
    """Return the slot of a part of a memory: the memory moves with the ``depth`` outer loops, the
    part with the inner ones."""
    if whole.op is ops.SWAP:
        return whole.over(tuple([_within(s, part, depth) for s in whole.src]))
    arg: op_args.Slot = whole.arg
    strides = (*arg.strides, *[0] * (depth - len(arg.strides)), *part.strides)
    return build_commands.slot(arg.kind, arg.index, arg.offset + part.offset,
                      min(part.nbytes, arg.nbytes - part.offset), strides)
