"""Verify a KERNEL from an untrusted source against the rules that tracing enforces.

    x[i + 8] over 16 places    fault: 0 <= index < 16 along axis 0 of 'x', got 8 to 23
    o written where y[i] says  fault: each place once, got elements that two iterations may share

Kernels from tracing have no fault here, except where ``checked=False`` left an access unproved.
Each access is checked inside its loops: a value under a PER_ITERATION is the value in that
iteration, and a carried value that the loop does not change equals its initial value.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from fnx.core.ir import accessors, build, dtypes, kernel_args, ops
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting import algebra, symbolic
from fnx.transforms.kernel_lang import accesses, carried_values
from fnx.transforms.kernel_lang.references import name_of

NodeFault = tuple[UOp, str, str] | None  # node, what was expected, what it is
Spend = Callable[[int], None]  # charges steps of the proof; raises over budget
OperandTypes = Sequence[tuple[Shape, dtypes.DType]]

_TRACED_OPS = frozenset({
    ops.RANGE, ops.REF, ops.INDEX, ops.LOAD, ops.STORE, ops.STAGE, ops.REDUCE, ops.CARRY, ops.LOOP,
    ops.PER_ITERATION, ops.GETTUPLE, ops.CONST, ops.KERNEL, *ops.ELEMENTWISE})
_ELEMENTS_PER_NODE = 32  # about as many elements as NumPy computes while Python visits a node


def find_fault(kernel: UOp, spend: Spend) -> NodeFault:
    """Return the first fault of a KERNEL by itself. None if it has none."""
    nodes = toposort([kernel])
    spend(8 * len(nodes))
    for node in nodes:
        node_fault = _find_illegal_node(node)
        if node_fault is not None:
            return node_fault
    slots = [n.arg.slot for n in nodes if n.op is ops.REF]
    if len(set(slots)) < len(slots):
        return kernel, "one REF a slot", "several"
    return _find_out_of_bounds(kernel, nodes, spend) or _find_conflict(kernel, spend)


def find_operand_fault(call: UOp, outs: OperandTypes) -> NodeFault:
    """Return the first fault of the operands of a CALL, whose KERNEL has no fault itself."""
    kernel, *args = call.src
    types = [(x.shape, x.dtype) for x in args] + list(outs)
    written = accessors.written_slots(kernel)
    for n in toposort([kernel]):
        if n.op is ops.REF:
            shape, dtype = types[n.arg.slot]
            size = math.prod(map(build.const_of, n.src))
            if size != math.prod(shape) or dtype is not n.dtype:
                return n, f"the {math.prod(shape)} elements of {dtype}{list(shape)}", \
                    f"{size} of {n.dtype}"
        if n.op is ops.LOAD and accessors.buffer(n).op is ops.REF and \
                accessors.buffer(n).arg.slot >= len(args):
            return n, "a read of an input", f"one of the output {name_of(accessors.buffer(n))!r}"
    output_slots = {len(args) + i for i, (shape, _) in enumerate(outs) if 0 not in shape}
    if any(slot < len(args) for slot in written) or not output_slots <= written:
        return kernel, "STOREs to each output, and to no input", \
            f"STOREs to slots {sorted(written)[:8]} behind {len(args)} operands"
    return None


def _find_illegal_node(node: UOp) -> NodeFault:
    """Match a node that tracing never creates, or with attributes that only passes set."""
    op, arg = node.op, node.arg
    if op not in _TRACED_OPS:
        return node, "a node of a kernel as it is traced", op.name
    is_traced = True
    if op is ops.RANGE:
        is_traced = arg.kind == "SEQ" and _is_length(accessors.extent(node))
    elif op is ops.REF:
        is_traced = arg == kernel_args.Ref(arg.slot, arg.name) and all(map(_is_length, node.src))
    elif op is ops.STAGE:
        is_traced = arg.space == "PRIV" and not arg.double
    elif op is ops.KERNEL:
        is_traced = not (arg.stores_disjoint or arg.index_fits_int32)
    if not is_traced:
        return node, f"a {op.name} as it is traced, of lengths that are numbers", f"{arg}"
    if node.dtype is dtypes.index and op in ops.ELEMENTWISE:
        overflow = accesses.overflow_bounds(node)
        if overflow is not None:
            return node, "index arithmetic of 64 bits", f"{overflow[0]} to {overflow[1]}"
    return None


def _is_length(n: UOp) -> bool:
    return n.op is ops.CONST and 0 <= build.const_of(n) < 1 << 48


# ---- inside -----------------------------------------------------------------------------------


class _IterationValues:
    """Strips PER_ITERATIONs from nodes, and CARRYs that their loop does not change."""

    def __init__(self, nodes: Sequence[UOp]) -> None:
        self._values: dict[UOp, UOp] = {}
        self._unchanged: dict[UOp, UOp] = {}
        for loop in nodes:
            if loop.op is ops.LOOP:
                for init, after in zip(accessors.init_values(loop), accessors.next_values(loop)):
                    if after.op is ops.CARRY and after.arg.id == loop.arg.id and \
                            accessors.next_values(loop)[after.arg.i] is after and \
                            accessors.init_values(loop)[after.arg.i] is init:
                        self._unchanged[after] = init

    def _operands(self, node: UOp) -> tuple[UOp, ...]:
        if node.op is ops.PER_ITERATION:
            return node.src[:1]
        first = self._unchanged.get(node)
        return node.src if first is None else (first,)

    def of(self, root: UOp) -> UOp:
        """Return the value of a node within an iteration."""
        stack = [root]
        while stack:
            node = stack[-1]
            operands = self._operands(node)
            pending = [s for s in operands if s not in self._values]
            if pending and node not in self._values:
                self._values[node] = node  # marked while its operands are visited
                stack += pending
                continue
            stack.pop()
            if operands is node.src:
                self._values[node] = node.with_operands(tuple([self._values[s] for s in operands]))
            else:
                self._values[node] = self._values[operands[0]]
        return self._values[root]


def _find_out_of_bounds(kernel: UOp, nodes: Sequence[UOp], spend: Spend) -> NodeFault:
    """Match an access that may be out of bounds."""
    in_iteration = _IterationValues(nodes)
    for access in nodes:
        if access.op not in (ops.LOAD, ops.STORE):
            continue
        facts = [in_iteration.of(c) for c in (accessors.validity(access), *_loop_conditions(access))
                 if c is not None]
        where = None
        for c in facts:
            where = c if where is None else build.and_(where, c)
        if access.ranges and accesses.has_empty_range([access]):
            continue
        sizes = [symbolic.bounds(d)[1] for d in accessors.dims(accessors.buffer(access))]
        for axis, (i, n) in enumerate(zip(accessors.indices(access), sizes)):
            outside = _may_be_outside(in_iteration.of(i), n, where, spend)
            if any(outside):
                bounds = symbolic.bounds(in_iteration.of(i))
                return access, f"0 <= index < {n} along axis {axis} of " \
                    f"{name_of(accessors.buffer(access))!r}", f"{bounds[0]} to {bounds[1]}"
    return None


def _may_be_outside(i: UOp, n: int, where: UOp | None, spend: Spend) -> tuple[bool, bool]:
    """Whether an index may be below 0, and n or more."""
    low, high = symbolic.bounds(i)
    if 0 <= low and high < n:
        return False, False
    spend(_proof_cost([i] if where is None else [i, where]))
    return accesses.may_be_outside(i, n, where)


def _proof_cost(roots: Sequence[UOp]) -> int:
    """Return the number of steps to enumerate nodes, or compare them with all conditions."""
    nodes = toposort(roots)
    points = math.prod([symbolic.bounds(accessors.extent(r))[1]
                        for r in {r for n in roots for r in n.ranges}])
    return len(nodes) * (64 + min(points, accesses.MAX_ENUMERATED) // _ELEMENTS_PER_NODE)


def _loop_conditions(access: UOp) -> list[UOp]:
    """Return the conditions that hold in the iterations in which a STORE runs."""
    holds = []
    for node in itertools.chain(access.src[1:], accessors.indices(access)) \
            if access.op is ops.STORE else ():
        while node.op is ops.PER_ITERATION:
            stop = accessors.stop_condition(node.src[1])
            if stop is not None:
                holds.append(algebra.negate(stop))
            node = node.src[0]
    return list(dict.fromkeys(holds))


# ---- once, and all of them --------------------------------------------------------------------


def _find_conflict(kernel: UOp, spend: Spend) -> NodeFault:
    """Match STOREs that overlap where order matters, or an element that none writes."""
    stores_to: dict[UOp, list[UOp]] = {}
    for store in kernel.src:
        buffer = accessors.buffer(store)
        others = stores_to.setdefault(buffer, [])
        spend(len(others))
        needs_proof = store.arg is None and \
            not accesses.is_mixed_radix(store, accesses.free_ranges(store))
        spend(_proof_cost([store])
              * (needs_proof + sum(not _shares_rows(store, b) for b in others)))
        if needs_proof and not accesses.is_written_once(store):
            return store, f"each element of {name_of(buffer)!r} to be written once", \
                "elements that two iterations may share"
        if not all(_shares_rows(store, other) or accesses.may_share_loops(store, other)
                   for other in others):
            return store, f"STOREs to other elements of {name_of(buffer)!r} in one loop", \
                "elements that overlap"
        others.append(store)
    for buffer, stores in stores_to.items():
        size = math.prod(map(build.const_of, accessors.dims(buffer)))
        spend(sum(map(_proof_cost, [[store] for store in stores])) + size // _ELEMENTS_PER_NODE)
        plain = list(itertools.takewhile(
            lambda s: s.arg is None and not carried_values.may_be_skipped(s), stores))
        if size and not accesses.covers_buffer(plain, size):
            return kernel, f"each element of {name_of(buffer)!r} to be written", \
                "elements that nothing writes"
    return None


def _shares_rows(a: UOp, b: UOp) -> bool:
    """Whether each shared loop of two STOREs indexes one axis directly in both.

    Then they overlap within one iteration only, where the first runs before the second. This is
    the case for batch axes.
    """
    shared = set(accesses.free_ranges(a)) & set(accesses.free_ranges(b))
    return all(any(i is j is r for i, j in zip(accessors.indices(a), accessors.indices(b)))
               for r in shared)
