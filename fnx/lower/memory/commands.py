"""Commands: lower a sequence of kernels to a Block, one EXEC each on slots of memory.

    before  Launch(double, operands (p0, a)), Launch(sum, operands (a, out))     a: 4 KB
    memory  a: 4096 bytes at 0 of the arena
    after   COMMANDS(EXEC(double, SLOT in 0, SLOT arena 0), EXEC(sum, SLOT arena 0, SLOT out 0))

>>> from fnx.core.ir import build, dtypes
>>> r = build.range_(8, 0)
>>> o = build.index_into(build.ref(0, dtypes.float32, (8,)), r)
>>> ones = build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones", [0])
>>> out = build.const(1, dtypes.float32, (8,))
>>> block = build_block(plan_memory(Launches((out,), (("out", 0),), [Launch(ones, (out,), ())])))
>>> [(s.arg.kind, s.arg.nbytes) for s in block.commands.src[0].src[1:]]
[('out', 64)]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fnx.core.ir import accessors, build_calls, kernel_args, ops
from fnx.core.ir.uop import UOp, rebuild
from fnx.core.support.errors import Location
from fnx.core.support.record import Record
from fnx.lower.analysis import memory
from fnx.lower.analysis.memory import LaunchOperand, View, nodes_of
from fnx.lower.analysis.tuning import REORDERED_BYTES
from fnx.lower.fusion.unique_results import Result
from fnx.lower.memory.buffer_sharing import AliasPair, hoist_readers, share_buffers
from fnx.lower.memory.free_early import allocate_late, free_early, take_least

GetSlot = Callable[[UOp], UOp]


class Launch(Record):
    """A tiled kernel, the operand of each of its buffers, and a CONST for each VAR.

    Attributes:
        writes: the nodes whose buffers it writes.
        may_alias: (written, read) pairs of nodes that may share one buffer.
        copy_pair: such a pair if the kernel does nothing but copy one to the other.
    """

    kernel: UOp
    operands: tuple[LaunchOperand, ...]
    scalars: tuple[UOp, ...]
    locs: tuple[Location, ...] = ()
    writes: tuple[UOp, ...] = ()
    may_alias: tuple[AliasPair, ...] = ()
    copy_pair: AliasPair | None = None

    @property
    def graphs(self) -> tuple[UOp, ...]:
        return (self.kernel,) if self.kernel.op is ops.KERNEL else ()

    @property
    def has_effects(self) -> bool:
        return self.kernel.op is ops.CALLBACK and bool(self.kernel.arg.effect)

    @property
    def follows_loop(self) -> bool:
        """Whether it must stay right after the loop before it: it reads one of two buffers, chosen
        by the trip count of that loop."""
        return any(isinstance(o, View) and o.odd is not None for o in self.operands)

    @property
    def uses(self) -> list[UOp]:
        """The nodes whose buffers it reads or writes."""
        return nodes_of(self.operands)

    def commands(self, slot: GetSlot) -> Sequence[UOp]:
        """Return its EXEC; ``slot`` maps a node to its SLOT."""
        slots = [o.slot(slot) if isinstance(o, View) else slot(o) for o in self.operands]
        return [build_calls.exec_(self.kernel, slots, self.scalars, self.kernel.arg.name,
                                  self.locs)]


class LoopLaunch(Record):
    """A CMD_LOOP of a Block, before memory is assigned.

    Attributes:
        trips: the trip count; None: repeat while ``test`` writes a true ``flag``.
        ins, outs: operands of the parameters and results of the body.
        workspace: temporary memory of the body and of the test.
    """

    name: str
    trips: int | None
    body: Block
    ins: tuple[View, ...]
    outs: tuple[View, ...]
    workspace: UOp
    test: Block | None = None
    flag: UOp | None = None
    graphs: tuple[UOp, ...] = ()
    may_alias: tuple[AliasPair, ...] = ()
    copy_pair: AliasPair | None = None
    follows_loop: bool = False
    locs: tuple[Location, ...] = ()

    @property
    def has_effects(self) -> bool:
        return _have_effects(self.body) or self.test is not None and _have_effects(self.test)

    @property
    def writes(self) -> list[UOp]:
        return nodes_of(self.outs)

    @property
    def uses(self) -> list[UOp]:
        used = [*nodes_of((*self.ins, *self.outs)), self.workspace]
        return used if self.flag is None else [*used, self.flag]

    def commands(self, slot: GetSlot) -> Sequence[UOp]:
        ins, outs = ([view.slot(slot) for view in side] for side in (self.ins, self.outs))
        work = slot(self.workspace)
        body = relocate(self.body.commands, ins, outs, work, 1, self.locs)
        if self.trips is not None:
            return [build_calls.cmd_loop(body, self.trips, self.name, self.locs)]
        assert self.test is not None and self.flag is not None
        flag = slot(self.flag)
        test = relocate(self.test.commands, ins, [flag], work, 1, self.locs)
        return [build_calls.cmd_while(test, flag, body, self.name, self.locs)]


class BranchLaunch(Record):
    """A BRANCH over Blocks, before memory is assigned."""

    name: str
    which: UOp
    blocks: tuple[Block, ...]
    ins: tuple[UOp, ...]
    outs: tuple[UOp, ...]
    workspace: UOp
    graphs: tuple[UOp, ...] = ()
    may_alias: tuple[AliasPair, ...] = ()
    copy_pair: AliasPair | None = None
    follows_loop: bool = False
    locs: tuple[Location, ...] = ()

    @property
    def has_effects(self) -> bool:
        return any(map(_have_effects, self.blocks))

    @property
    def writes(self) -> tuple[UOp, ...]:
        return self.outs

    @property
    def uses(self) -> list[UOp]:
        return [self.which, *self.ins, *self.outs, self.workspace]

    def commands(self, slot: GetSlot) -> Sequence[UOp]:
        ins, outs = ([slot(n) for n in side] for side in (self.ins, self.outs))
        work = slot(self.workspace)
        blocks = [relocate(b.commands, ins, outs, work, 0, self.locs) for b in self.blocks]
        return [build_calls.branch(slot(self.which), blocks, self.name, self.locs)]


class CallLaunch(Record):
    """The commands of a called Block, before memory is assigned."""

    block: Block
    ins: tuple[UOp, ...]
    outs: tuple[UOp, ...]
    workspace: UOp
    graphs: tuple[UOp, ...] = ()
    may_alias: tuple[AliasPair, ...] = ()
    copy_pair: AliasPair | None = None
    follows_loop: bool = False

    @property
    def has_effects(self) -> bool:
        return _have_effects(self.block)

    @property
    def writes(self) -> tuple[UOp, ...]:
        return self.outs

    @property
    def uses(self) -> list[UOp]:
        return [*self.ins, *self.outs, self.workspace]

    def commands(self, slot: GetSlot) -> Sequence[UOp]:
        ins, outs = ([slot(n) for n in side] for side in (self.ins, self.outs))
        return relocate(self.block.commands, ins, outs, slot(self.workspace), 0).src


def _have_effects(block: Block) -> bool:
    """Whether any kernel has effects, so that its order relative to other effects matters."""
    kernels = [e.src[0] for e in accessors.all_execs(block.commands)]
    return any(k.op is ops.CALLBACK and k.arg.effect for k in kernels)


LaunchKind = Launch | LoopLaunch | BranchLaunch | CallLaunch


class Launches(Record):
    """The launches of a FUNCTION in order, with its results, before memory is assigned.

    Attributes:
        carried: (result number, parameter slot): the result takes the parameter's memory if that
            is proved safe.
        unaligned: nodes whose buffers are not aligned to a vector register.
        no_alias: whether parameters and results share their memory with nothing else, so that all
            other values are in one buffer.
        memory: maps a node to the node whose buffer it shares, once that is decided.
        in_results: maps a node to a result whose memory holds it before that is written, and to
            the offset there.
        offsets: arena offsets of the other nodes, once planned.
        arena: bytes of the arena.
    """

    outs: tuple[UOp, ...]
    results: tuple[Result, ...]
    launches: Sequence[LaunchKind]
    carried: tuple[tuple[int, int], ...] = ()
    unaligned: frozenset[UOp] = frozenset()
    no_alias: bool = False
    memory: Mapping[UOp, UOp] = {}
    in_results: Mapping[UOp, tuple[UOp, int]] = {}
    offsets: Mapping[UOp, int] = {}
    arena: int = 0

    @property
    def has_started_collectives(self) -> bool:
        """Whether a collective starts in one launch and is waited for in another."""
        return any(isinstance(step, Launch) and step.kernel.op is ops.CALLBACK and
                   step.kernel.arg.phase for step in self.launches)

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


def plan_memory(launches_in: Launches) -> Launches:
    """Decide which nodes share a buffer, and assign memory to intermediate values: that of results
    before they are written, else the arena. Launches change their order if the arena is smaller."""
    planned = _plan_memory(launches_in)
    if planned.arena < REORDERED_BYTES or any(map(_has_callbacks, launches_in.launches)):
        return planned  # the order around collectives is that of overlap_collectives.py
    launches, outs, carried = launches_in.launches, launches_in.outs, launches_in.carried
    early = free_early(launches, outs, carried)
    orders = [early, allocate_late(early, outs, carried), take_least(launches, outs, carried)]
    distinct = [order for i, order in enumerate(orders)
                if order is not launches and not any(order is other for other in orders[:i])]
    plans = [_plan_memory(launches_in.replace(launches=order)) for order in distinct]
    return min([planned, *plans], key=_bytes_in_use)


def _has_callbacks(launch: LaunchKind) -> bool:
    """Whether a launch calls the host, as collectives do."""
    if isinstance(launch, Launch):
        return launch.kernel.op is ops.CALLBACK
    blocks = launch.blocks if isinstance(launch, BranchLaunch) else \
        (launch.block,) if isinstance(launch, CallLaunch) else \
        (launch.body,) if launch.test is None else (launch.test, launch.body)
    return any(e.src[0].op is ops.CALLBACK
               for block in blocks for e in accessors.all_execs(block.commands))


def _bytes_in_use(planned: Launches) -> int:
    """Return the bytes of the arena and of the results that have memory of their own."""
    outs = {planned.memory.get(node, node) for node in planned.outs}
    return planned.arena + sum([memory.size_of(n) for n in outs if n.op is not ops.PARAM])


def _plan_memory(launches_in: Launches) -> Launches:
    if any(launch.copy_pair is not None for launch in launches_in.launches):
        launches_in = launches_in.replace(launches=hoist_readers(launches_in.launches))
    sharing = share_buffers(launches_in)
    outs = {*map(sharing.owner, launches_in.outs)}
    launches, uses, sizes = [], [], dict[UOp, int]()
    for i, launch in enumerate(launches_in.launches):
        if i in sharing.elided:
            continue
        launches.append(launch)
        uses.append([*map(sharing.owner, launch.uses)])
        for node in uses[-1]:
            if node.op is not ops.PARAM and node not in outs:
                sizes[node] = memory.size_of(node)
    placed = {} if launches_in.no_alias else memory.place_in_results(uses, sizes, [
        node for node in outs if node.op is not ops.PARAM and node not in launches_in.unaligned])
    offsets, arena = memory.plan_arena(uses, {n: s for n, s in sizes.items() if n not in placed})
    return launches_in.replace(launches=launches, memory=sharing.memory(), in_results=placed,
                               offsets=offsets, arena=arena)


def build_block(planned: Launches) -> Block:
    """Build the slots of all operands, and the command of each launch."""
    outs = {node: i for i, node in enumerate(planned.outs)}

    def locate(node: UOp) -> tuple[str, int, int]:
        owner = planned.memory.get(node, node)
        owner, offset = planned.in_results.get(owner, (owner, planned.offsets.get(owner, 0)))
        kind, index = ("in", owner.arg.slot) if owner.op is ops.PARAM else \
            ("out", outs[owner]) if owner in outs else ("arena", 0)
        return kind, index, offset

    def slot(node: UOp) -> UOp:
        return build_calls.slot(*locate(node), memory.size_of(node))

    results = tuple([locate(planned.outs[i])[:2] if kind == "out" else (kind, i)
                     for kind, i in planned.results])
    command_list = _fill_locations([command for launch in planned.launches
                                    for command in launch.commands(slot)])
    overwritten = tuple([(i, locate(out)[1])
                         for i, out in enumerate(planned.outs) if locate(out)[0] == "in"])
    return Block(build_calls.commands(command_list), planned.arena, planned.outs, results,
                 overwritten)


def _fill_locations(commands: list[UOp]) -> list[UOp]:
    """Give a command that has no line that of the next one, which it prepares; the last ones that
    of the one before."""
    for step in (-1, 1):
        locs: tuple[Location, ...] = ()
        for i in range(len(commands))[::step]:
            arg = commands[i].arg
            if not arg.locs and locs:
                commands[i] = commands[i].replace(arg=arg.replace(locs=locs))
            locs = arg.locs or locs
    return commands


def relocate(commands: UOp, ins: Sequence[UOp], outs: Sequence[UOp], arena: UOp, depth: int,
             locs: tuple[Location, ...] = ()) -> UOp:
    """Relocate the COMMANDS of a Block to the memory of its caller.

    Args:
        commands: with slots "in", "out" and "arena" of their own.
        ins, outs, arena: the SLOTs or SWAPs of the caller that these stand for.
        depth: number of loops around the Block that it does not know of.
        locs: the lines of commands that have none.
    """
    slots_by_kind = {"in": ins, "out": outs, "arena": (arena,)}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.SLOT:
            return _nested_slot(slots_by_kind[node.arg.kind][node.arg.index], node.arg, depth)
        if node.op in accessors.OPS_WITH_LOCATIONS and not node.arg.locs:
            return node.replace(src=src, arg=node.arg.replace(locs=locs))
        return node.replace(src=src, arg=node.arg + depth) if node.op is ops.SWAP else None

    kernels = {e.src[0]: e.src[0] for e in accessors.all_execs(commands)}
    return rebuild([commands], visit, kernels)[0]


def _nested_slot(outer_slot: UOp, inner_arg: kernel_args.Slot, depth: int) -> UOp:
    """Return the slot of a part of a memory: the memory moves with the ``depth`` outer loops, the
    part with the inner ones."""
    if outer_slot.op is ops.SWAP:
        return outer_slot.with_operands(tuple([_nested_slot(s, inner_arg, depth)
                                               for s in outer_slot.src]))
    arg: kernel_args.Slot = outer_slot.arg
    strides = (*arg.strides, *[0] * (depth - len(arg.strides)), *inner_arg.strides)
    return build_calls.slot(arg.kind, arg.index, arg.offset + inner_arg.offset,
                            min(inner_arg.nbytes, arg.nbytes - inner_arg.offset), strides)
