"""Loop fusion: a SCAN or WHILE with a small body becomes one kernel with a LOOP.

    before  SCAN(f, consts (p,), carries (x0: [3],), xs)          f: (p, x, u) -> (x + p*u*x, x[0])
    after   CALL(KERNEL, p, x0, xs) with
              KERNEL(STORE(o0[i], GETTUPLE(it, i)) for i in 0, 1, 2,
                     STORE(o1[t], PER_ITERATION(CARRY 0, it)))
              it = LOOP(t, LOAD(x0[i])..., CARRY i + LOAD(p) * LOAD(xs[t]) * CARRY i...)

Axes that all values have in common are lanes of the kernel: each lane runs its own loop.
The elements of the other axes become scalars, which stay in registers. Results with different
lanes are computed by different kernels, each with the carries that it needs; unused results are not
computed. A body that does not fit remains a loop of commands; one that runs at most once is
unrolled.
A loop with effects remains as it is for the effects; its values come from a kernel without them.
For each loop it is reported what becomes of it, and why.

>>> from fnx.core.ir import dtypes
>>> x, u = build.param(0, dtypes.float32, (3,)), build.param(1, dtypes.float32, ())
>>> body = build.function([build.add(x, build.expand(u, (3,)))], 2, "add")
>>> sums = build_calls.scan(body, 8, [], [build.param(0, dtypes.float32, (3,))],
...                   [build.param(1, dtypes.float32, (8,))])
>>> found, = fuse_loop_into_kernel(build.function(sums, 2)).src
>>> found.src[0].op, found.src[0].src[0].arg.name
(CALL, 'scan_add')
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from fnx.core.ir import accessors, build, build_calls, build_kernel_loops, dtypes, op_args, ops
from fnx.core.ir.op_bodies import replace_results
from fnx.core.ir.uop import UOp, copy_locs, toposort
from fnx.core.support.record import Record
from fnx.core.tracing.trace import inline_function
from fnx.lower.analysis.masks import mask_of
from fnx.lower.fusion.group import memory_of
from fnx.lower.loops.axis_classes import AxisClasses, NodeAxis
from fnx.lower.loops.drop_effects import drop_effects
from fnx.lower.loops.scalarize import (
    NotFusable,
    ScalarArray,
    ScalarBuffer,
    ScalarizedBody,
    make_scalar,
)
from fnx.lower.loops.select_cost import selecting_costs_more
from fnx.lower.loops.strip_mine import is_constant, strip_mine_while

MAX_CARRY_SCALARS = 16     # of one carry
MAX_CARRIED = 48     # of all carries of a kernel: roughly the number of registers
MAX_NODES = 1 << 10  # of a kernel
MAX_WORK = 2400      # of a kernel, in additions: compile time grows faster
MAX_SCALAR_AXIS = 8            # an axis of at most this length becomes scalars

ReportLoop = Callable[[UOp, str], None]


def fuse_loop_into_kernel(fn: UOp, report: ReportLoop | None = None, buffers: int = 0,
                          steps: int = 0) -> UOp:
    """Replace the loops of a FUNCTION that fit by calls of kernels.

    Args:
        fn: the FUNCTION; loops inside its bodies stay as they are.
        report: called for each loop with what becomes of it, and why.
        buffers: most buffers of a kernel; 0: unlimited.
        steps: most steps of all loops of a thread; 0: unlimited.
    """
    nodes = toposort(fn.src)
    used_results: dict[UOp, set[int]] = {n: set() for n in nodes if n.op in (ops.SCAN, ops.WHILE)}
    if not used_results:
        return fn
    for n in nodes:
        if n.op is ops.GETTUPLE and n.src[0] in used_results:
            used_results[n.src[0]].add(n.arg)

    def fuse(node: UOp, src: tuple[UOp, ...]) -> dict[int, UOp] | None:
        results: dict[int, UOp] | None = None
        if node not in used_results:
            return None
        if node.op is ops.SCAN and node.arg.length < 2:
            results = dict(enumerate(_unroll(node.with_operands(src))))
            outcome = "no loop: it has a step at most"
        else:
            try:
                if steps and node.op is ops.SCAN and node.arg.length >= steps:
                    raise NotFusable(f"of more steps than a thread may take, {steps:,}")
                results = _loop_results(node.with_operands(src), used_results[node], buffers)
                outcome = _describe(results)
            except NotFusable as e:
                outcome = f"its kernels are launched in each iteration: {e}"
        if report is not None:
            report(node, outcome)
        return results

    return fn.with_operands(tuple(replace_results(fn.src, fuse)))


def _describe(result_nodes: dict[int, UOp]) -> str:
    """Describe the kernels: ``one kernel: 2 scalars carried in each of 128 lanes``."""
    kernels: dict[UOp, None] = {}
    for result in result_nodes.values():
        node = result.src[0] if result.op is ops.GETTUPLE else result
        if node.op is ops.WHILE:  # strip-mined
            kernels.update(dict.fromkeys([n.src[0] for n in toposort(node.src[1].src)
                                          if n.op is ops.CALL and n.src[0].op is ops.KERNEL]))
        elif node.op is ops.CALL:
            kernels[node.src[0]] = None
    texts: dict[str, None] = {}
    for kernel in kernels:
        nodes = toposort([kernel])
        carried = sum([len(n.arg.outs) for n in nodes if n.op is ops.LOOP])
        lanes = [build.const_of(accessors.extent(n)) for n in nodes
                 if n.op is ops.RANGE and n.arg.name != "t"]
        lane_text = f" in each of {math.prod(lanes)} lanes" if lanes else ""
        texts[f"{carried} scalar{'s' * (carried != 1)} carried{lane_text}"] = None
    count = "one kernel" if len(kernels) < 2 else f"{len(kernels)} kernels"
    return f"{count}: {'; '.join(texts) or 'nothing is carried'}"


def _loop_results(node: UOp, used: set[int], buffers: int) -> dict[int, UOp]:
    """As ``kernel_results``; the values of a loop with effects are computed by a loop without
    them."""
    effect_free = drop_effects(node)
    tokens = {i: r for i, r in enumerate(build.results(node))
              if i in used and build_calls.is_token(r)}
    if not tokens or effect_free is None:
        return _build_kernels(node, sorted(used), buffers)
    value_loop, result_map = effect_free
    values = _build_kernels(value_loop, sorted([result_map[i] for i in used - tokens.keys()]),
                            buffers)
    return tokens | {i: values[result_map[i]] for i in used - tokens.keys()}


def _build_kernels(node: UOp, used: Sequence[int], buffers: int) -> dict[int, UOp]:
    build_results = partial(kernel_results, buffers=buffers)
    return build_results(node, used) if node.op is ops.SCAN else \
        strip_mine_while(node, used, build_results)


def _unroll(scan: UOp) -> list[UOp]:
    """Return the results of a SCAN of at most one step."""
    arg, operands = scan.arg, accessors.operands(scan)
    carries, xs = operands[arg.n_consts:], operands[arg.n_consts + arg.n_carries:]
    if not arg.length:
        return [*carries[:arg.n_carries], *[build.const(0, dtype, shape)
                                            for shape, dtype in arg.outs[arg.n_carries:]]]
    arguments = [*operands[:len(operands) - len(xs)], *[build.reshape(x, x.shape[1:]) for x in xs]]
    outs = inline_function(scan.src[0], arguments)
    return [*outs[:arg.n_carries], *[build.reshape(y, (1, *y.shape))
                                     for y in outs[arg.n_carries:]]]


def kernel_results(node: UOp, used: Sequence[int], max_steps: int = 0,
                   buffers: int = 0) -> dict[int, UOp]:
    """Return the used results of a SCAN or WHILE, computed by kernels.

    Args:
        node: the loop.
        used: which results.
        max_steps: for a WHILE, the most steps of a kernel.
        buffers: most buffers of a kernel; 0: unlimited.

    Raises:
        Unfit: the loop does not fit a kernel.
    """
    loop = _normalize_loop(node, max_steps)
    alone = _end_by_lane(loop) or loop
    axes, lanes = _choose_lanes(alone)
    if alone.condition is not None and not all(
            axes.find((alone.condition, a)) in lanes
            for a, n in enumerate(alone.condition.shape) if n != 1):
        axes, lanes = _choose_lanes(loop)
    else:
        loop = alone
    if node.op is ops.SCAN and selecting_costs_more(
            loop.nodes, loop.outs, loop.is_memory, lambda n, a: axes.find((n, a)) in lanes):
        raise NotFusable("an index that is data would select among the scalars of all lanes")
    out: dict[int, UOp] = {}
    groups: dict[frozenset[NodeAxis], list[int]] = {}
    for i in used:
        value = loop.outs[i]
        result_axes = {axes.find((value, a)) for a, n in enumerate(value.shape) if n != 1}
        groups.setdefault(frozenset(result_axes & lanes.keys()), []).append(i)
    for lane_classes, members in groups.items():
        group_lanes = {c: r for c, r in lanes.items() if c in lane_classes}
        builder = _LoopKernel(loop, axes, group_lanes, members)
        out.update(zip(members, builder.call()))
        if buffers and len(builder.slots) + len(members) > buffers:
            raise NotFusable(f"a kernel of more than {buffers} buffers")
    return out


class _NormalizedLoop(Record):
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
        return f"{accessors.loop_kind(self.node)}_{accessors.loop_body_name(self.node)}"

    @property
    def carries(self) -> range:
        """The slots of the carries."""
        return range(self.slots[0], sum(self.slots))

    @property
    def operands(self) -> tuple[UOp, ...]:
        return accessors.operands(self.node)

    def is_memory(self, node: UOp) -> bool:
        """Whether a node is a PARAM that is loaded from a buffer: a const, or the x of a step."""
        return node.op is ops.PARAM and node.arg.slot not in self.carries


def _normalize_loop(node: UOp, max_steps: int) -> _NormalizedLoop:
    arg = node.arg
    for body in accessors.bodies(node):
        if any(n.op in ops.MULTI_RESULT for n in toposort(body.src)):
            raise NotFusable("a loop or a call inside")
    if any(0 in n.shape for n in (*accessors.operands(node), *build.results(node))):
        raise NotFusable("arrays without elements")
    outs, length, count = accessors.bodies(node)[-1].src, max_steps, len(arg.outs)
    condition = None
    if node.op is ops.WHILE:
        condition = node.src[0].src[0]
    else:
        length, count = arg.length, arg.n_carries
    nodes = toposort(outs if condition is None else (*outs, condition))
    params = {n.arg.slot: n for n in nodes if n.op is ops.PARAM}
    return _NormalizedLoop(node, outs, condition, (arg.n_consts, count), length, tuple(nodes),
                           params)


def _end_by_lane(loop: _NormalizedLoop) -> _NormalizedLoop | None:
    """Return a WHILE over a batch as a loop of each element, if an element that is not active
    stays as it is.

        before  while any(active): active = active & g(x), x = where(active, f(x), x)
        after   while active:      active = active & g(x), x = f(x)

    It is equal if no element reads another one: then the axes of ``active`` are lanes.
    """
    condition = loop.condition
    if condition is None or condition.op is not ops.REDUCE or condition.shape or \
            condition.arg.monoid is not ops.OR:
        return None
    active, alone = condition.src[0], list[UOp]()
    if not any(active is loop.params.get(slot) for slot in loop.carries):
        return None
    for slot, out in zip(loop.carries, loop.outs):
        carry, rank = loop.params.get(slot), len(active.shape)
        if out.op is ops.WHERE and out.src[2] is carry and mask_of(out.src[0]) == (active, True):
            alone.append(out.src[1])
        elif out is carry and out.shape[:rank] == active.shape or \
                carry is active and out.op is ops.AND and carry in out.src:
            alone.append(out)
        else:
            return None
    nodes = toposort((*alone, active))
    params = {n.arg.slot: n for n in nodes if n.op is ops.PARAM}
    return loop.replace(outs=tuple(alone), condition=active, nodes=tuple(nodes), params=params)


# ---- which axes are lanes ---------------------------------------------------------------------


def _choose_lanes(loop: _NormalizedLoop) -> tuple[AxisClasses, dict[NodeAxis, UOp]]:
    """Return the classes of axes, and a RANGE for each class that is lanes."""
    axes = AxisClasses()
    axes.add_nodes(loop.nodes, loop.is_memory)
    params = loop.params
    for slot, out in zip(loop.carries, loop.outs):
        init = loop.operands[slot]
        if slot in params:
            axes.unify_all(params[slot], out)
        axes.unify_all(out, init)
        if loop.condition is not None:  # of each lane
            axes.unify_pairs(out, loop.condition,
                             [(a, a) for a in range(len(loop.condition.shape))])
    constants: list[UOp] = []
    for slot, param in params.items():
        operand = loop.operands[slot]
        if is_constant(operand):
            constants += toposort([operand])
            axes.add_nodes(toposort([operand]))
            axes.unify_pairs(param, operand, _axis_pairs(param, operand))
    axes.separate_repeated((*loop.nodes, *loop.operands, *constants))
    lengths: dict[NodeAxis, int] = {}
    for node in (*loop.nodes, *loop.operands):
        for a, n in enumerate(node.shape):
            if n != 1 and not axes.is_small((node, a)):
                lengths[axes.find((node, a))] = n
    chosen = [c for c, n in lengths.items() if n > MAX_SCALAR_AXIS]
    for c, _ in sorted(lengths.items(), key=lambda item: -item[1]):
        if c not in chosen and not _fits_registers(loop, axes, chosen):
            chosen.append(c)
    if not _fits_registers(loop, axes, chosen):
        raise NotFusable(f"a carry of more than {MAX_CARRY_SCALARS} scalars")
    return axes, {c: build.range_(lengths[c], i + 1, name=f"l{i}") for i, c in enumerate(chosen)}


def _axis_pairs(param: UOp, operand: UOp) -> list[tuple[int, int]]:
    """Pair the axes of a PARAM with those of its operand: an x has one less."""
    more = len(operand.shape) - len(param.shape)
    return [(a, a + more) for a in range(len(param.shape))]


def _fits_registers(loop: _NormalizedLoop, axes: AxisClasses, lanes: Iterable[NodeAxis]) -> bool:
    """Whether no value that is carried or stored has too many scalars."""
    lane_classes = set(lanes)
    return all(np.prod([n for a, n in enumerate(out.shape)
                        if axes.find((out, a)) not in lane_classes]) <= MAX_CARRY_SCALARS
               for out in loop.outs)


# ---- the kernel ---------------------------------------------------------------------------------


class _LoopKernel:
    """The kernel that computes some results of a loop, over the lanes that they have."""

    def __init__(self, loop: _NormalizedLoop, axes: AxisClasses, lanes: dict[NodeAxis, UOp],
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
        needed: set[int] = set()
        while True:
            slots = {n.arg.slot for n in toposort(roots) if n.op is ops.PARAM}
            referenced = {s - loop.slots[0] for s in slots if s in loop.carries}
            referenced |= {i for i in self.members if i < loop.slots[1]}
            if referenced <= needed:
                return sorted(needed)
            needed |= referenced
            roots += [loop.outs[i] for i in needed]

    def call(self) -> list[UOp]:
        """Return the results as those of a CALL of the kernel."""
        body, carries = self._body()
        outs = [self.loop.outs[i] for i in (*self.carried, *self.members)]
        ends = [] if self.loop.condition is None else [self.loop.condition]
        body.compute(toposort([*outs, *ends]))
        iter_, gets = self._build_iter(body, carries)
        stores = self._stores(body, iter_, gets)
        kernel = build.kernel(stores, self.loop.name, self._order(stores))
        if len(toposort([kernel])) > MAX_NODES:
            raise NotFusable(f"a kernel of more than {MAX_NODES} nodes")
        if sum([n.op.cost for n in toposort([kernel])]) > MAX_WORK:
            raise NotFusable(f"a step of more work than {MAX_WORK} additions takes long to compile")
        shapes = tuple([self.loop.node.arg.outs[i] for i in self.members])
        operands = sorted(self.slots, key=self.slots.__getitem__)
        arg = op_args.Call(self.loop.name, shapes, is_generated=True)
        node = UOp(ops.CALL, dtypes.void, (kernel, *operands), arg)
        return list(build.results(copy_locs(node, self.loop.node)))

    def _order(self, stores: Sequence[UOp]) -> list[int]:
        used_ids = {n.arg.id for n in toposort(stores) if n.op is ops.RANGE}
        return [r.arg.id for r in (*self.lanes.values(), self.t) if r.arg.id in used_ids]

    def _body(self) -> tuple[ScalarizedBody, dict[int, ScalarArray]]:
        """Return the body with its inputs: constants, memory, and a CARRY for each carried
        scalar."""
        loop = self.loop
        inputs: dict[UOp, ScalarArray | ScalarBuffer] = {}
        carries: dict[int, ScalarArray] = {}
        constant = ScalarizedBody(self.axes, self.lanes, {})
        for slot, param in loop.params.items():
            operand = loop.operands[slot]
            if slot in loop.carries:
                continue
            is_x = slot >= loop.carries.stop
            if not is_x and is_constant(operand):
                constant.compute(toposort([operand]))
                inputs[param] = constant.scalars_of(operand)
            else:
                inputs[param] = ScalarBuffer(self._ref(operand), (self.at,) if is_x else ())
        body, count = ScalarizedBody(self.axes, self.lanes, inputs), 0
        for i in self.carried:
            out = loop.outs[i]
            scalars = np.empty(body.shape(out), object)
            carry_lanes = [r for a in range(len(out.shape)) if (r := body.lane(out, a)) is not None]
            for at in np.ndindex(scalars.shape):
                scalars[at] = build_kernel_loops.carry(0, count, out.dtype, (self.t, *carry_lanes))
                count += 1
            carries[i] = scalars
            if loop.slots[0] + i in loop.params:
                body.scalars[loop.params[loop.slots[0] + i]] = scalars
        if count > MAX_CARRIED:
            raise NotFusable(f"more than {MAX_CARRIED} scalars carried")
        return body, carries

    def _ref(self, operand: UOp) -> UOp:
        memory = memory_of(operand)
        slot = self.slots.setdefault(memory, len(self.slots))
        return build.ref(slot, operand.dtype, operand.shape)

    def _build_iter(self, body: ScalarizedBody,
                    carries: dict[int, ScalarArray]) -> tuple[UOp | None, list[UOp]]:
        """Return the LOOP and its results."""
        if not carries:
            return None, []
        loop = self.loop
        init_body = ScalarizedBody(self.axes, self.lanes, {})
        inits: list[UOp] = []
        nexts: list[UOp] = []
        for i, scalars in carries.items():
            operand = loop.operands[loop.slots[0] + i]
            if is_constant(operand):
                init_body.compute(toposort([operand]))
            else:
                init_body.memory[operand] = ScalarBuffer(self._ref(operand))
            inits += np.broadcast_to(init_body.scalars_of(operand), scalars.shape).ravel().tolist()
            nexts += np.broadcast_to(body.scalars_of(loop.outs[i]), scalars.shape).ravel().tolist()
        stop = None
        if loop.condition is not None:
            goes_on: UOp = body.scalars_of(loop.condition).item()
            stop = make_scalar(ops.NOT, dtypes.bool_, (goes_on,))
        node = build_kernel_loops.loop(0, self.t, inits, nexts, stop)
        for carry in [c for scalars in carries.values() for c in scalars.flat]:
            if not carry.ranges - {self.t} <= node.ranges:
                raise NotFusable("a carried array that is constant along an axis")
        return node, list(build.results(copy_locs(node, loop.node)))

    def _stores(self, body: ScalarizedBody, iter_: UOp | None, gets: Sequence[UOp]) -> list[UOp]:
        """Return a STORE for each scalar of each result."""
        loop = self.loop
        stores: list[UOp] = []
        first_get: dict[int, int] = {}
        offset = 0
        for i in self.carried:
            first_get[i] = offset
            offset += int(np.prod(body.shape(loop.outs[i])))
        for number, i in enumerate(self.members):
            out = loop.outs[i]
            shape, dtype = loop.node.arg.outs[i]
            is_y = i >= loop.slots[1]
            ref = build.ref(len(self.slots) + number, dtype, shape)
            memory = ScalarBuffer(ref, (self.at,) if is_y else ())
            scalars = np.broadcast_to(body.scalars_of(out), body.shape(out))
            for k, at in enumerate(np.ndindex(scalars.shape)):
                value: UOp = scalars.item(at) if is_y else gets[first_get[i] + k]
                if is_y and iter_ is not None:
                    value = build_kernel_loops.per_iteration(value, iter_)
                stores.append(copy_locs(build.store(body.address(out, memory, at), value), out))
        return stores
