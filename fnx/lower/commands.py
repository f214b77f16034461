"""Commands: kernels in order become a Block, one EXEC each on slots of memory.

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
    """A tiled kernel, what each of its buffers is, and a CONST for each VAR.

    Attributes:
        writes: the nodes whose buffers it writes.
        shares: pairs of what is written and what is read that may be one memory.
        copies: such a pair, where all that it does is to copy one to the other.
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
        """Whether it stays behind the loop before it: it reads one of two buffers, by how often
        that loop ran."""
        return any(isinstance(o, View) and o.odd is not None for o in self.operands)

    @property
    def uses(self) -> list[UOp]:
        """The nodes whose buffers it reads or writes."""
        return nodes_of(self.operands)

    def commands(self, slot: SlotOf) -> Sequence[UOp]:
        """Its EXEC; ``slot`` gives the SLOT of a node."""
        slots = [o.slot(slot) if isinstance(o, View) else slot(o) for o in self.operands]
        return [build_commands.exec_(self.kernel, slots, self.scalars, self.kernel.arg.name,
                                     self.sites)]


class Repeat(Record):
    """A LOOP of a Block, before its memory is known.

    Attributes:
        trips: how often; None: as long as ``test`` writes a true ``flag``.
        ins, outs: what the parameters and results of the body are.
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
    """A BRANCH over Blocks, before its memory is known."""

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
    """The commands of a Block, before its memory is known: a call of what is called often."""

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
    """Whether its order among others that have some matters."""
    kernels = [e.src[0] for e in parts.executions(block.commands)]
    return any(k.op is ops.HOST and k.arg.effect for k in kernels)


AnyLaunch = Launch | Repeat | Choice | Inlined


class Launches(Record):
    """The launches of a FUNCTION in order, with its results, before they have memory.

    Attributes:
        carried: (number of a result, slot of a parameter): the result takes the parameter's
            memory, where that is proved to change nothing.
        unaligned: nodes whose buffers do not begin where a vector register would.
        apart: whether nothing else lies in the memory of parameters and results, so that all else
            is one buffer.
        memory: the node in whose buffer another one is, once that is decided.
        offsets: of nodes in the arena, once it is planned; arena: its bytes.
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
    """What a FUNCTION becomes: commands, and what their slots stand for.

    Attributes:
        commands: the COMMANDS node. Slots "in" are the parameters by number.
        arena: bytes of intermediate buffers.
        outs: (shape, dtype) of the buffers of slots "out".
        results: where each result of the FUNCTION is found: "in" or "out", and which.
        over: (buffer, parameter): of ``outs``, those that are written over a parameter.
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
    """Which nodes share a buffer, and offsets in the arena for what is no parameter or result."""
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
    """Slots for all operands, and one command a launch."""
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
    """The COMMANDS of a Block on the memory of what runs it.

    Args:
        commands: with slots "in", "out" and "arena" of their own.
        ins, outs, arena: the SLOTs, or SWAPs, that these are.
        depth: how many loops, of those around what runs it, the Block does not know.
    """
    given = {"in": ins, "out": outs, "arena": (arena,)}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.SLOT:
            return _within(given[node.arg.kind][node.arg.index], node.arg, depth)
        return node.replace(src=src, arg=node.arg + depth) if node.op is ops.SWAP else None

    kernels = {e.src[0]: e.src[0] for e in parts.executions(commands)}
    return rebuild([commands], visit, kernels)[0]


def _within(whole: UOp, part: op_args.Slot, depth: int) -> UOp:
    """A part of a memory that moves with ``depth`` loops, inside of which the part moves."""
    if whole.op is ops.SWAP:
        return whole.over(tuple([_within(s, part, depth) for s in whole.src]))
    arg: op_args.Slot = whole.arg
    strides = (*arg.strides, *[0] * (depth - len(arg.strides)), *part.strides)
    return build_commands.slot(arg.kind, arg.index, arg.offset + part.offset,
                      min(part.nbytes, arg.nbytes - part.offset), strides)
