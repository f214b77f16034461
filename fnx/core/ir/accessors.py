"""Accessors for the operands of kernel-level and structural nodes.

Only this module knows their layout in ``src``.

>>> from fnx.core.ir import build, dtypes
>>> r = build.range_(8, 0)
>>> x = build.index_into(build.ref(0, dtypes.float32, (8,)), r)
>>> half = build.lt(r, build.index_const(4))
>>> read = build.load(x, half)
>>> index_node(read) is x, validity(read) is half, dims(buffer(read)) == (r.src[0],)
(True, True, True)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

from fnx.core.ir import dtypes, kernel_args, op_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.op import Op
from fnx.core.ir.uop import UOp, reachable, rebuild, toposort
from fnx.core.support.errors import Location


def count_slots(nodes: Iterable[UOp], op: Op) -> int:
    """Return how many slots the REFs or the VARs among some nodes have."""
    return max([n.arg.slot + 1 for n in nodes if n.op is op], default=0)


def ops_and_dtypes(roots: Iterable[UOp]) -> set[Op | DType]:
    """Return the ops and dtypes of all nodes reachable from ``roots``, also inside FUNCTIONs."""
    nodes = reachable(roots)
    return {n.op for n in nodes} | {n.dtype for n in nodes}


def consumers(nodes: Iterable[UOp]) -> dict[UOp, list[UOp]]:
    """Map each node of a toposorted list to its consumers in the list, once per operand."""
    out: dict[UOp, list[UOp]] = {n: [] for n in nodes}
    for node in out:
        if not node.op.is_isolated:
            for s in node.src:
                if s in out:
                    out[s].append(node)
    return out


def long_lengths(node: UOp) -> list[int]:
    """Return the lengths of the axes other than 1."""
    return [n for n in node.shape if n != 1]


def sort_order_length(node: UOp) -> int | None:
    """Return n if a node is the order of sorted rows, a permutation of 0 to n - 1; else None."""
    sort = node.src[0] if node.op is ops.GETTUPLE else node
    return sort.arg.ins[0][0][-1] if sort.op is ops.SORT and sort is not node and \
        sort.arg.outputs[node.arg] < 0 else None


def index_node(node: UOp) -> UOp:
    """Return the INDEX of a LOAD or a STORE."""
    return node.src[0]


def base_pointer(address: UOp) -> UOp:
    """Return the pointer to the buffer that an ADDRESS is an offset from."""
    while address.op is ops.ADDRESS:
        address = address.src[0]
    return address


def buffer(node: UOp) -> UOp:
    """Return the REF or STAGE of an INDEX, a LOAD or a STORE."""
    return (node if node.op is ops.INDEX else node.src[0]).src[0]


def indices(node: UOp) -> tuple[UOp, ...]:
    """Return the indices of an INDEX, a LOAD or a STORE, one per dimension."""
    return (node if node.op is ops.INDEX else node.src[0]).src[1:]


def index_dims(node: UOp) -> list[tuple[UOp, UOp]]:
    """Return (index, extent) for each dimension of an INDEX, a LOAD or a STORE."""
    index = node if node.op is ops.INDEX else node.src[0]
    return list(zip(index.src[1:], dims(index.src[0])))


def value(node: UOp) -> UOp:
    """Return the value that a STORE writes, a REDUCE reduces, or a STAGE holds."""
    return node.src[1 if node.op is ops.STORE else 0]


def validity(access: UOp) -> UOp | None:
    """Return the condition of a LOAD or a STORE, or None."""
    position = 2 if access.op is ops.STORE else 1
    return access.src[position] if len(access.src) > position else None


def conjuncts(condition: UOp | None) -> list[UOp]:
    """Split a conjunction into its conditions, in order; the list is empty for None."""
    pending = [] if condition is None else [condition]
    out: list[UOp] = []
    while pending:
        node = pending.pop()
        if node.op is ops.AND and node.dtype is dtypes.bool_:
            pending += reversed(node.src)
        else:
            out.append(node)
    return out


def bound_ranges(node: UOp) -> tuple[UOp, ...]:
    """Return the ranges that a REDUCE, STAGE, MMA or LOOP binds."""
    if node.op is ops.MMA:
        return node.src[2:2 + node.arg.n_words]
    return node.src[:1] if node.op is ops.LOOP else node.src[1:]


def init_values(loop: UOp) -> tuple[UOp, ...]:
    """Return the initial carried values of a LOOP."""
    return loop.src[1:1 + len(loop.arg.outs)]


def next_values(loop: UOp) -> tuple[UOp, ...]:
    """Return the carried values that a LOOP yields to its next iteration, over its CARRYs."""
    n = len(loop.arg.outs)
    return loop.src[1 + n:1 + 2 * n]


def carries(loop: UOp, nodes: Iterable[UOp]) -> list[UOp]:
    """Return the CARRY of each value of a LOOP, as found among ``nodes``.

    A CARRY that nothing reads is made here, over the ranges that the value depends on.
    """
    by_index = {n.arg.i: n for n in nodes if n.op is ops.CARRY and n.arg.id == loop.arg.id}
    for i, (first, after) in enumerate(zip(init_values(loop), next_values(loop))):
        if i not in by_index:
            ranges = sorted((first.ranges | after.ranges).difference(bound_ranges(loop)),
                            key=lambda r: r.arg.id)
            by_index[i] = UOp(ops.CARRY, after.dtype, (*bound_ranges(loop), *ranges),
                              kernel_args.Carry(loop.arg.id, i))
    return [by_index[i] for i in range(len(by_index))]


def stop_condition(loop: UOp) -> UOp | None:
    """Return the condition, over its CARRYs, that ends a LOOP before an iteration, or None."""
    return loop.src[-1] if len(loop.src) % 2 == 0 else None


def carry_dependences(nodes: Iterable[UOp]) -> dict[UOp, frozenset[int]]:
    """Map nodes of a toposorted list to the ids of the LOOPs whose CARRYs they depend on.

    Nodes that depend on none are left out.
    """
    out: dict[UOp, frozenset[int]] = {}
    for n in nodes:
        loop_ids = frozenset[int]().union(*[out[s] for s in n.src if s in out])
        if n.op is ops.CARRY:
            loop_ids |= {n.arg.id}
        elif n.op is ops.LOOP:
            loop_ids -= {n.arg.id}
        elif n.op is ops.PER_ITERATION:
            loop_ids -= {n.src[1].arg.id}
        if loop_ids:
            out[n] = loop_ids
    return out


def extent(r: UOp) -> UOp:
    """Return the trip count of a RANGE, an index expression."""
    return r.src[0]


def dims(buffer: UOp) -> tuple[UOp, ...]:
    """Return the extents of a REF, or of a STAGE (those of the ranges that it binds)."""
    return buffer.src if buffer.op is ops.REF else tuple([r.src[0] for r in buffer.src[1:]])


def written_slots(kernel: UOp) -> set[int]:
    """Return the slots that a KERNEL, CALLBACK, SORT, LINALG or LINKED writes, or the kernels in a
    CMD_LOOP."""
    if kernel.op is ops.CMD_LOOP:
        written = {slot.index for run in all_execs(kernel) for i in written_slots(run.src[0])
                   for slot in possible_slots(run.src[1 + i])}
        return written | {resume_slot(kernel)} if kernel.arg.strip_length else written
    if kernel.op is ops.CALLBACK:
        first = 1 + len(kernel.arg.ins)
        return set(range(first, first + len(kernel.arg.outs) - kernel.arg.effect))
    if kernel.op is ops.LINKED:
        return set(kernel.arg.writes)
    if kernel.op is ops.SORT:
        first = len(kernel.arg.ins)
        return set(range(first, first + len(kernel.arg.outputs)))
    if kernel.op is ops.FFT_STEP:
        return {2}
    if kernel.op is ops.LINALG:
        first = len(kernel.arg.ins)
        return set(range(first, first + len(kernel.arg.outs)))
    return {buffer(store).arg.slot for store in kernel.src}


def resume_slot(loop: UOp) -> int:
    """Return the index of the operand that holds the resume state of a CMD_LOOP: the last."""
    return 1 + max([n.arg.index for n in toposort([loop])
                    if n.op is ops.SLOT and n.arg.kind == "in"], default=-1)


class LoopOrder:
    """Sort key of RANGEs in the loop order of a kernel; unlisted ranges come last, by id."""

    def __init__(self, ids: Sequence[int]) -> None:
        self.positions = {id: i for i, id in enumerate(ids)}

    def __call__(self, r: UOp) -> tuple[int, int]:
        return self.positions.get(r.arg.id, len(self.positions)), r.arg.id

    def select_kinds(self, ranges: Iterable[UOp], kinds: Container[str]) -> tuple[UOp, ...]:
        """Return the ranges of some kinds, outermost first."""
        return tuple(sorted((r for r in ranges if r.arg.kind in kinds), key=self))


def bodies(node: UOp) -> tuple[UOp, ...]:
    """Return the FUNCTIONs of a structural node (CALL, SCAN, WHILE, COND, CUSTOM)."""
    return tuple([s for s in node.src if s.op is ops.FUNCTION])


def operands(node: UOp) -> tuple[UOp, ...]:
    """Return the operands of a structural node after its FUNCTIONs or KERNEL."""
    return tuple([s for s in node.src if s.op is not ops.FUNCTION and s.op is not ops.KERNEL])


def resolve_slot(memory: UOp, iteration: Mapping[int, int]) -> kernel_args.Slot:
    """Resolve the SWAPs of an operand of a command, given the iteration of each loop."""
    while memory.op is ops.SWAP:
        memory = memory.src[iteration[memory.arg] & 1]
    slot: kernel_args.Slot = memory.arg
    return slot


def possible_slots(memory: UOp) -> list[kernel_args.Slot]:
    """Return all SLOTs that an operand of a command refers to in some iteration."""
    return [memory.arg] if memory.op is ops.SLOT else \
        [n.arg for n in toposort([memory]) if n.op is ops.SLOT]


def max_bindings(memory: Sequence[UOp]) -> int:
    """Return the largest number of arguments, results and arenas that these SLOTs and SWAPs
    refer to in one iteration."""
    depths = {n.arg for m in memory for n in toposort([m]) if n.op is ops.SWAP}
    return max([len({(s.kind, s.index) for s in [resolve_slot(m, turn) for m in memory]})
                for turn in [dict(zip(depths, odd))
                             for odd in itertools.product((0, 1), repeat=len(depths))]])


def all_execs(commands: UOp) -> list[UOp]:
    """Return the EXECs of COMMANDS in program order, also those in loops and branches."""
    return [run for run, _ in execs_in_loops(commands)]


OPS_WITH_LOCATIONS = (ops.EXEC, ops.CMD_LOOP, ops.BRANCH)


def map_locations(commands: UOp, f: Callable[[Sequence[Location]], Iterable[Location]]) -> UOp:
    """Replace the locations of each command by ``f`` of them."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op not in OPS_WITH_LOCATIONS or not node.arg.locs:
            return None
        locs = tuple(dict.fromkeys(f(node.arg.locs)))
        return None if locs == node.arg.locs else node.replace(
            src=src, arg=node.arg.replace(locs=locs))
    kernels = {run.src[0]: run.src[0] for run in all_execs(commands)}
    return rebuild([commands], visit, kernels)[0]


def lines_of_nodes(nodes: Sequence[UOp], lines: Container[Location],
                   ) -> dict[UOp, tuple[Location, ...]]:
    """Return the lines of a program for its ``nodes``, in topological order. A node without any has
    those of its nearest operand that has some, else of its nearest user.

    Args:
        nodes: all nodes of a FUNCTION.
        lines: the lines that its trace ran.
    """
    lines_of = {node: tuple([loc for loc in node.locs if loc in lines]) for node in nodes}
    for node in nodes:
        lines_of[node] = lines_of[node] or next((lines_of[s] for s in node.src if lines_of[s]), ())
    for node in reversed(nodes):
        for s in node.src:
            lines_of[s] = lines_of[s] or lines_of[node]
    return lines_of


def execs_in_loops(commands: UOp) -> list[tuple[UOp, tuple[UOp, ...]]]:
    """Return the EXECs of COMMANDS in program order, each with the CMD_LOOPs around it, the
    outermost first.
    """
    out: list[tuple[UOp, tuple[UOp, ...]]] = []
    stack: list[tuple[UOp, tuple[UOp, ...]]] = [(commands, ())]
    while stack:
        node, loops = stack.pop()
        if node.op is ops.EXEC:
            out.append((node, loops))
        elif node.op in (ops.COMMANDS, ops.CMD_LOOP, ops.BRANCH):
            inner = (*loops, node) if node.op is ops.CMD_LOOP else loops
            stack += [(s, inner) for s in reversed(node.src)]
    return out


def loop_kind(node: UOp) -> str:
    """Return how the user wrote a SCAN or WHILE: "scan", "while_loop" or "fori_loop"."""
    if op_args.FORI_LOOP in node.arg.name:
        return op_args.FORI_LOOP[1:]
    return "scan" if node.op is ops.SCAN else "while_loop"


def loop_body_name(node: UOp) -> str:
    """Return the name of the function in a SCAN or WHILE, and what it is of it: "cell.backward"."""
    return str(node.arg.name).replace(op_args.FORI_LOOP, "")
