"""Loop fusion: a SCAN or WHILE with a small body becomes one kernel with an ITER.

    before  SCAN(f, consts (p,), carries (x0: [3],), xs)          f: (p, x, u) -> (x + p*u*x, x[0])
    after   CALL(KERNEL, p, x0, xs) with
              KERNEL(STORE(o0[i], GET(it, i)) for i in 0, 1, 2, STORE(o1[t], STEP(CARRY 0, it)))
              it = ITER(t, LOAD(x0[i])..., CARRY i + LOAD(p) * LOAD(xs[t]) * CARRY i...)

Axes that all values have in common are lanes of the kernel: each lane runs its own loop.
The elements of the other axes become scalars, which stay in registers. Results with different
lanes are computed by different kernels, each with the carries that it needs; unused results are not
computed. A body that does not fit remains a loop of commands; one that runs at most once is
unrolled.
A loop with effects remains as it is for the effects; its values come from a kernel without them.
For each loop it is reported what becomes of it, and why.

>>> from fnx.core import dtypes
>>> x, u = build.param(0, dtypes.float32, (3,)), build.param(1, dtypes.float32, ())
>>> body = build.function([build.add(x, build.expand(u, (3,)))], 2, "add")
>>> sums = build_calls.scan(body, 8, [], [build.param(0, dtypes.float32, (3,))],
...                   [build.param(1, dtypes.float32, (8,))])
>>> found, = one_kernel(build.function(sums, 2)).src
>>> found.src[0].op, found.src[0].src[0].arg.name
(CALL, 'scan_add')
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from fnx.core import build, build_calls, dtypes, op_args, ops, parts
from fnx.core.array.trace import inline
from fnx.core.record import Record
from fnx.core.uop import UOp, inherit, rebuild, toposort
from fnx.lower.fusion.group import memory_of
from fnx.lower.loops.axes import Axes, NodeAxis
from fnx.lower.loops.cells import BodyCells, Cells, Memory, Unfit, scalar
from fnx.lower.loops.portions import in_portions, is_constant
from fnx.lower.loops.quiet import without_effects

MAX_SCALARS = 16     # of one carry
MAX_CARRIED = 48     # of all carries of a kernel: roughly the number of registers
MAX_NODES = 1 << 10  # of a kernel
MAX_WORK = 2400      # of a kernel, in additions: compile time grows faster
SHORT = 8            # an axis of at most this length becomes scalars

Tell = Callable[[UOp, str], None]


def one_kernel(fn: UOp, tell: Tell | None = None, buffers: int = 0, steps: int = 0) -> UOp:
    """Replace the loops of a FUNCTION that fit by calls of kernels.

    Args:
        fn: the FUNCTION; loops inside its bodies stay as they are.
        tell: called for each loop with what becomes of it, and why.
        buffers: most buffers of a kernel; 0: unlimited.
        steps: most steps of all loops of a thread; 0: unlimited.
    """
    nodes = toposort(fn.src)
    read: dict[UOp, set[int]] = {n: set() for n in nodes if n.op in (ops.SCAN, ops.WHILE)}
    if not read:
        return fn
    for n in nodes:
        if n.op is ops.GET and n.src[0] in read:
            read[n.src[0]].add(n.arg)
    made: dict[UOp, dict[int, UOp]] = {}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.SCAN and node.arg.length < 2:
            made[node] = dict(enumerate(_unrolled(node.over(src))))
            if tell is not None:
                tell(node, "no loop: it has a step at most")
        elif node in read:
            try:
                if steps and node.op is ops.SCAN and node.arg.length >= steps:
                    raise Unfit(f"of more steps than a thread may take, {steps:,}")
                made[node] = _results(node.over(src), read[node], buffers)
            except Unfit as e:
                if tell is not None:
                    tell(node, f"a loop of commands: {e}")
                return None
            if tell is not None:
                tell(node, _described(made[node]))
        if node.op is ops.GET and node.src[0] in made:
            return made[node.src[0]][node.arg]
        return None

    return fn.over(tuple(rebuild(fn.src, visit)))


def _described(made: dict[int, UOp]) -> str:
    """Describe the kernels: ``one kernel: 2 scalars carried in each of 128 lanes``."""
    found: dict[UOp, None] = {}
    for result in made.values():
        node = result.src[0] if result.op is ops.GET else result
        if node.op is ops.WHILE:  # strip-mined
            found.update(dict.fromkeys([n.src[0] for n in toposort(node.src[1].src)
                                        if n.op is ops.CALL and n.src[0].op is ops.KERNEL]))
        elif node.op is ops.CALL:
            found[node.src[0]] = None
    texts: dict[str, None] = {}
    for kernel in found:
        nodes = toposort([kernel])
        carried = sum([len(n.arg.outs) for n in nodes if n.op is ops.ITER])
        lanes = [build.const_of(parts.extent(n)) for n in nodes
                 if n.op is ops.RANGE and n.arg.name != "t"]
        over = f" in each of {math.prod(lanes)} lanes" if lanes else ""
        texts[f"{carried} scalar{'s' * (carried != 1)} carried{over}"] = None
    count = "one kernel" if len(found) < 2 else f"{len(found)} kernels"
    return f"{count}: {'; '.join(texts) or 'nothing is carried'}"


def _results(node: UOp, used: set[int], buffers: int) -> dict[int, UOp]:
    """As ``results``; the values of a loop with effects are computed by a loop without them."""
    found = without_effects(node)
    tokens = {i: r for i, r in enumerate(build.results(node))
              if i in used and build_calls.is_token(r)}
    if not tokens or found is None:
        return _kernels(node, sorted(used), buffers)
    quiet, places = found
    values = _kernels(quiet, sorted([places[i] for i in used - tokens.keys()]), buffers)
    return tokens | {i: values[places[i]] for i in used - tokens.keys()}


def _kernels(node: UOp, used: Sequence[int], buffers: int) -> dict[int, UOp]:
    made = partial(results, buffers=buffers)
    return made(node, used) if node.op is ops.SCAN else in_portions(node, used, made)


def _unrolled(scan: UOp) -> list[UOp]:
    """Return the results of a SCAN of at most one step."""
    arg, operands = scan.arg, parts.operands(scan)
    carries, xs = operands[arg.n_consts:], operands[arg.n_consts + arg.n_carries:]
    if not arg.length:
        return [*carries[:arg.n_carries], *[build.const(0, dtype, shape)
                                            for shape, dtype in arg.outs[arg.n_carries:]]]
    given = [*operands[:len(operands) - len(xs)], *[build.reshape(x, x.shape[1:]) for x in xs]]
    outs = inline(scan.src[0], given)
    return [*outs[:arg.n_carries], *[build.reshape(y, (1, *y.shape))
                                     for y in outs[arg.n_carries:]]]


def results(node: UOp, used: Sequence[int], most: int = 0, buffers: int = 0) -> dict[int, UOp]:
    """Return the used results of a SCAN or WHILE, computed by kernels.

    Args:
        node: the loop.
        used: which results.
        most: for a WHILE, the most steps of a kernel.
        buffers: most buffers of a kernel; 0: unlimited.

    Raises:
        Unfit: the loop does not fit a kernel.
    """
    loop = _loop_of(node, most)
    axes, lanes = _lanes(loop)
    out: dict[int, UOp] = {}
    groups: dict[frozenset[NodeAxis], list[int]] = {}
    for i in used:
        value = loop.outs[i]
        found = {axes.find((value, a)) for a, n in enumerate(value.shape) if n != 1}
        groups.setdefault(frozenset(found & lanes.keys()), []).append(i)
    for over, members in groups.items():
        own = {c: r for c, r in lanes.items() if c in over}
        made = _LoopKernel(loop, axes, own, members)
        out.update(zip(members, made.call()))
        if buffers and len(made.slots) + len(members) > buffers:
            raise Unfit(f"a kernel of more than {buffers} buffers")
    return out


class _StepLoop(Record):
    """A SCAN or WHILE in a common form.

    Attributes:
        node: the SCAN or WHILE.
        outs: next values of the carries, then the outputs of a step.
        condition: of a WHILE, whether it continues.
        slots: number of consts and of carries: these are the first PARAMs.
        length: iterations.
        nodes: of the body and the condition, operands first.
        params: the PARAMs among them, by slot.
    """

    node: UOp
    outs: tuple[UOp, ...]
    condition: UOp | None
    slots: tuple[int, int]
    length: int
    nodes: tuple[UOp, ...]
    params: dict[int, UOp]

    @property
    def name(self) -> str:
        return f"{self.node.op.name.lower()}_{self.node.arg.name}"

    @property
    def carries(self) -> range:
        """The slots of the carries."""
        return range(self.slots[0], sum(self.slots))

    @property
    def operands(self) -> tuple[UOp, ...]:
        return parts.operands(self.node)

    def is_memory(self, node: UOp) -> bool:
        """Whether a node is a PARAM that is loaded from a buffer: a const, or the x of a step."""
        return node.op is ops.PARAM and node.arg.slot not in self.carries


def _loop_of(node: UOp, most: int) -> _StepLoop:
    arg = node.arg
    for body in parts.bodies(node):
        if any(n.op in ops.SEVERAL for n in toposort(body.src)):
            raise Unfit("a loop or a call inside")
    if any(0 in n.shape for n in (*parts.operands(node), *build.results(node))):
        raise Unfit("arrays without elements")
    outs, length, count = parts.bodies(node)[-1].src, most, len(arg.outs)
    condition = None
    if node.op is ops.WHILE:
        condition = node.src[0].src[0]
    else:
        length, count = arg.length, arg.n_carries
    nodes = toposort(outs if condition is None else (*outs, condition))
    params = {n.arg.slot: n for n in nodes if n.op is ops.PARAM}
    return _StepLoop(node, outs, condition, (arg.n_consts, count), length, tuple(nodes), params)


# ---- which axes are lanes ---------------------------------------------------------------------


def _lanes(loop: _StepLoop) -> tuple[Axes, dict[NodeAxis, UOp]]:
    """Return the classes of axes, and a RANGE for each class that is lanes."""
    axes = Axes()
    axes.read(loop.nodes, loop.is_memory)
    params = loop.params
    for slot, out in zip(loop.carries, loop.outs):
        first = loop.operands[slot]
        if slot in params:
            axes.same(params[slot], out)
        axes.same(out, first)
    constants: list[UOp] = []
    for slot, param in params.items():
        operand = loop.operands[slot]
        if is_constant(operand):
            constants += toposort([operand])
            axes.read(toposort([operand]))
            axes.pairs(param, operand, _own_axes(param, operand))
    axes.keep_apart((*loop.nodes, *loop.operands, *constants))
    lengths: dict[NodeAxis, int] = {}
    for node in (*loop.nodes, *loop.operands):
        for a, n in enumerate(node.shape):
            if n != 1 and not axes.is_small((node, a)):
                lengths[axes.find((node, a))] = n
    chosen = [c for c, n in lengths.items() if n > SHORT]
    for c, _ in sorted(lengths.items(), key=lambda item: -item[1]):
        if c not in chosen and not _fits(loop, axes, chosen):
            chosen.append(c)
    if not _fits(loop, axes, chosen):
        raise Unfit(f"a carry of more than {MAX_SCALARS} scalars")
    return axes, {c: build.range_(lengths[c], i + 1, name=f"l{i}") for i, c in enumerate(chosen)}


def _own_axes(param: UOp, operand: UOp) -> list[tuple[int, int]]:
    """Pair the axes of a PARAM with those of its operand: an x has one less."""
    more = len(operand.shape) - len(param.shape)
    return [(a, a + more) for a in range(len(param.shape))]


def _fits(loop: _StepLoop, axes: Axes, lanes: Iterable[NodeAxis]) -> bool:
    """Whether no value that is carried or stored has too many scalars."""
    found = set(lanes)
    return all(np.prod([n for a, n in enumerate(out.shape)
                        if axes.find((out, a)) not in found]) <= MAX_SCALARS for out in loop.outs)


# ---- the kernel ---------------------------------------------------------------------------------


class _LoopKernel:
    """The kernel that computes some results of a loop, over the lanes that they have."""

    def __init__(self, loop: _StepLoop, axes: Axes, lanes: dict[NodeAxis, UOp],
                 members: Sequence[int]) -> None:
        self.loop, self.axes, self.lanes, self.members = loop, axes, lanes, members
        self.t = build.range_(loop.length, 0, name="t")
        self.at = self.t
        if loop.node.op is ops.SCAN and loop.node.arg.reverse:
            self.at = build.sub(build.index_const(loop.length - 1), self.t)
        self.slots: dict[UOp, int] = {}
        self.carried = self._needed()

    def _needed(self) -> list[int]:
        """Return the carries that the results and the condition depend on."""
        loop = self.loop
        roots = [loop.outs[i] for i in self.members]
        roots += [] if loop.condition is None else [loop.condition]
        found: set[int] = set()
        while True:
            slots = {n.arg.slot for n in toposort(roots) if n.op is ops.PARAM}
            wanted = {s - loop.slots[0] for s in slots if s in loop.carries}
            wanted |= {i for i in self.members if i < loop.slots[1]}
            if wanted <= found:
                return sorted(found)
            found |= wanted
            roots += [loop.outs[i] for i in found]

    def call(self) -> list[UOp]:
        """Return the results as those of a CALL of the kernel."""
        body, carries = self._body()
        outs = [self.loop.outs[i] for i in (*self.carried, *self.members)]
        ends = [] if self.loop.condition is None else [self.loop.condition]
        body.take(toposort([*outs, *ends]))
        iter_, gets = self._iter(body, carries)
        stores = self._stores(body, iter_, gets)
        kernel = build.kernel(stores, self.loop.name, self._order(stores))
        if len(toposort([kernel])) > MAX_NODES:
            raise Unfit(f"a kernel of more than {MAX_NODES} nodes")
        if sum([n.op.cost for n in toposort([kernel])]) > MAX_WORK:
            raise Unfit(f"a step of more work than {MAX_WORK} additions takes long to compile")
        shapes = tuple([self.loop.node.arg.outs[i] for i in self.members])
        operands = sorted(self.slots, key=self.slots.__getitem__)
        arg = op_args.Call(self.loop.name, shapes, of_loop=True)
        node = UOp(ops.CALL, dtypes.void, (kernel, *operands), arg)
        return list(build.results(inherit(node, self.loop.node)))

    def _order(self, stores: Sequence[UOp]) -> list[int]:
        found = {n.arg.id for n in toposort(stores) if n.op is ops.RANGE}
        return [r.arg.id for r in (*self.lanes.values(), self.t) if r.arg.id in found]

    def _body(self) -> tuple[BodyCells, dict[int, Cells]]:
        """Return the body with its inputs: constants, memory, and a CARRY for each carried
        scalar."""
        loop = self.loop
        given: dict[UOp, Cells | Memory] = {}
        carries: dict[int, Cells] = {}
        constant = BodyCells(self.axes, self.lanes, {})
        for slot, param in loop.params.items():
            operand = loop.operands[slot]
            if slot in loop.carries:
                continue
            is_x = slot >= loop.carries.stop
            if not is_x and is_constant(operand):
                constant.take(toposort([operand]))
                given[param] = constant.of(operand)
            else:
                given[param] = Memory(self._ref(operand), (self.at,) if is_x else ())
        body, count = BodyCells(self.axes, self.lanes, given), 0
        for i in self.carried:
            out = loop.outs[i]
            cells = np.empty(body.shape(out), object)
            own = [r for a in range(len(out.shape)) if (r := body.lane(out, a)) is not None]
            for at in np.ndindex(cells.shape):
                cells[at] = build.carry(0, count, out.dtype, (self.t, *own))
                count += 1
            carries[i] = cells
            if loop.slots[0] + i in loop.params:
                body.cells[loop.params[loop.slots[0] + i]] = cells
        if count > MAX_CARRIED:
            raise Unfit(f"more than {MAX_CARRIED} scalars carried")
        return body, carries

    def _ref(self, operand: UOp) -> UOp:
        memory = memory_of(operand)
        slot = self.slots.setdefault(memory, len(self.slots))
        return build.ref(slot, operand.dtype, operand.shape)

    def _iter(self, body: BodyCells, carries: dict[int, Cells]) -> tuple[UOp | None, list[UOp]]:
        """Return the ITER and its results."""
        if not carries:
            return None, []
        loop = self.loop
        first = BodyCells(self.axes, self.lanes, {})
        inits: list[UOp] = []
        nexts: list[UOp] = []
        for i, cells in carries.items():
            operand = loop.operands[loop.slots[0] + i]
            if is_constant(operand):
                first.take(toposort([operand]))
            else:
                first.memory[operand] = Memory(self._ref(operand))
            inits += np.broadcast_to(first.of(operand), cells.shape).ravel().tolist()
            nexts += np.broadcast_to(body.of(loop.outs[i]), cells.shape).ravel().tolist()
        stop = None
        if loop.condition is not None:
            goes_on: UOp = body.of(loop.condition).item(())
            stop = scalar(ops.NOT, dtypes.bool_, (goes_on,))
        node = build.iterate(0, self.t, inits, nexts, stop)
        return node, list(build.results(inherit(node, loop.node)))

    def _stores(self, body: BodyCells, iter_: UOp | None, gets: Sequence[UOp]) -> list[UOp]:
        """Return a STORE for each scalar of each result."""
        loop = self.loop
        stores: list[UOp] = []
        start: dict[int, int] = {}
        offset = 0
        for i in self.carried:
            start[i] = offset
            offset += int(np.prod(body.shape(loop.outs[i])))
        for number, i in enumerate(self.members):
            out = loop.outs[i]
            shape, dtype = loop.node.arg.outs[i]
            is_y = i >= loop.slots[1]
            ref = build.ref(len(self.slots) + number, dtype, shape)
            memory = Memory(ref, (self.at,) if is_y else ())
            cells = np.broadcast_to(body.of(out), body.shape(out))
            for k, at in enumerate(np.ndindex(cells.shape)):
                value: UOp = cells.item(at) if is_y else gets[start[i] + k]
                if is_y and iter_ is not None:
                    value = build.step(value, iter_)
                stores.append(inherit(build.store(body.place(out, memory, at), value), out))
        return stores
