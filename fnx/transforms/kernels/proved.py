"""Verify a KERNEL from an untrusted source against the rules that tracing enforces.

    x[i + 8] over 16 places    fault: 0 <= index < 16 along axis 0 of 'x', got 8 to 23
    o written where y[i] says  fault: each place once, got places that two iterations may share

Kernels from tracing have no fault here, except where ``checked=False`` left an access unproved.
Each access is checked inside its loops: a value under a STEP is the value in that iteration, and a
carried value that the loop does not change equals its initial value.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

from fnx.core import build, dtypes, op_args, ops, parts
from fnx.core.ops import Shape
from fnx.core.rewriting import conditions, symbolic
from fnx.core.uop import UOp, toposort
from fnx.transforms.kernels import carried, places
from fnx.transforms.kernels.references import name_of

NodeFault = tuple[UOp, str, str] | None  # node, what was expected, what it is
Spend = Callable[[int], None]  # charges steps of the proof; raises over budget
OperandTypes = Sequence[tuple[Shape, dtypes.DType]]

_OF_TRACES = frozenset({
    ops.RANGE, ops.REF, ops.INDEX, ops.LOAD, ops.STORE, ops.STAGE, ops.REDUCE, ops.CARRY, ops.ITER,
    ops.STEP, ops.GET, ops.CONST, ops.KERNEL, *ops.ELEMENTWISE})
_SAME_TIME = 32  # about as many elements as NumPy computes while Python visits a node


def fault(kernel: UOp, spend: Spend) -> NodeFault:
    """Return the first fault of a KERNEL by itself. None if it has none."""
    nodes = toposort([kernel])
    spend(8 * len(nodes))
    for node in nodes:
        found = _other_kind(node)
        if found is not None:
            return found
    slots = [n.arg.slot for n in nodes if n.op is ops.REF]
    if len(set(slots)) < len(slots):
        return kernel, "one REF a slot", "several"
    return _outside(kernel, nodes, spend) or _meeting(kernel, spend)


def operand_fault(call: UOp, outs: OperandTypes) -> NodeFault:
    """Return the first fault of the operands of a CALL, whose KERNEL has no fault itself."""
    kernel, *args = call.src
    given = [(x.shape, x.dtype) for x in args] + list(outs)
    written = parts.written_slots(kernel)
    for n in toposort([kernel]):
        if n.op is ops.REF:
            shape, dtype = given[n.arg.slot]
            size = math.prod(map(build.const_of, n.src))
            if size != math.prod(shape) or dtype is not n.dtype:
                return n, f"the {math.prod(shape)} elements of {dtype}{list(shape)}", \
                    f"{size} of {n.dtype}"
        if n.op is ops.LOAD and parts.buffer(n).op is ops.REF and \
                parts.buffer(n).arg.slot >= len(args):
            return n, "a read of an input", f"one of the output {name_of(parts.buffer(n))!r}"
    sizes = {len(args) + i for i, (shape, _) in enumerate(outs) if 0 not in shape}
    if any(slot < len(args) for slot in written) or not sizes <= written:
        return kernel, "STOREs to each output, and to no input", \
            f"STOREs to slots {sorted(written)[:8]} behind {len(args)} operands"
    return None


def _other_kind(node: UOp) -> NodeFault:
    """Match a node that tracing never creates, or with attributes that only passes set."""
    op, arg = node.op, node.arg
    if op not in _OF_TRACES:
        return node, "a node of a kernel as it is traced", op.name
    plain = True
    if op is ops.RANGE:
        plain = arg.kind == "SEQ" and _is_length(parts.extent(node))
    elif op is ops.REF:
        plain = arg == op_args.Ref(arg.slot, arg.name) and all(map(_is_length, node.src))
    elif op is ops.STAGE:
        plain = arg.space == "PRIV" and not arg.double
    elif op is ops.KERNEL:
        plain = not (arg.apart or arg.near)
    if not plain:
        return node, f"a {op.name} as it is traced, of lengths that are numbers", f"{arg}"
    if node.dtype is dtypes.index and op in ops.ELEMENTWISE:
        found = places.beyond_64_bits(node)
        if found is not None:
            return node, "index arithmetic of 64 bits", f"{found[0]} to {found[1]}"
    return None


def _is_length(n: UOp) -> bool:
    return n.op is ops.CONST and 0 <= build.const_of(n) < 1 << 48


# ---- inside -----------------------------------------------------------------------------------


class _Bare:
    """Strips STEPs from nodes, and CARRYs that their loop does not change."""

    def __init__(self, nodes: Sequence[UOp]) -> None:
        self._bare: dict[UOp, UOp] = {}
        self._first: dict[UOp, UOp] = {}
        for loop in nodes:
            if loop.op is ops.ITER:
                for init, after in zip(parts.inits(loop), parts.nexts(loop)):
                    if after.op is ops.CARRY and after.arg.id == loop.arg.id and \
                            parts.nexts(loop)[after.arg.i] is after and \
                            parts.inits(loop)[after.arg.i] is init:
                        self._first[after] = init

    def _operands(self, node: UOp) -> tuple[UOp, ...]:
        if node.op is ops.STEP:
            return node.src[:1]
        first = self._first.get(node)
        return node.src if first is None else (first,)

    def of(self, root: UOp) -> UOp:
        """Return the value of a node within an iteration."""
        stack = [root]
        while stack:
            node = stack[-1]
            operands = self._operands(node)
            left = [s for s in operands if s not in self._bare]
            if left and node not in self._bare:
                self._bare[node] = node  # marked while its operands are visited
                stack += left
                continue
            stack.pop()
            if operands is node.src:
                self._bare[node] = node.over(tuple([self._bare[s] for s in operands]))
            else:
                self._bare[node] = self._bare[operands[0]]
        return self._bare[root]


def _outside(kernel: UOp, nodes: Sequence[UOp], spend: Spend) -> NodeFault:
    """Match an access that may be out of bounds."""
    bare = _Bare(nodes)
    for access in nodes:
        if access.op not in (ops.LOAD, ops.STORE):
            continue
        facts = [bare.of(c) for c in (parts.validity(access), *_of_loops(access))
                 if c is not None]
        where = None
        for c in facts:
            where = c if where is None else build.and_(where, c)
        if access.ranges and places.never_runs([access]):
            continue
        sizes = [symbolic.bounds(d)[1] for d in parts.dims(parts.buffer(access))]
        for axis, (i, n) in enumerate(zip(parts.indices(access), sizes)):
            found = _limits(bare.of(i), n, where, spend)
            if any(found):
                at = symbolic.bounds(bare.of(i))
                return access, f"0 <= index < {n} along axis {axis} of " \
                    f"{name_of(parts.buffer(access))!r}", f"{at[0]} to {at[1]}"
    return None


def _limits(i: UOp, n: int, where: UOp | None, spend: Spend) -> tuple[bool, bool]:
    """Whether an index may be below 0, and n or more."""
    low, high = symbolic.bounds(i)
    if 0 <= low and high < n:
        return False, False
    spend(_effort([i] if where is None else [i, where]))
    return places.limits(i, n, where)


def _effort(roots: Sequence[UOp]) -> int:
    """Return the number of steps to enumerate nodes, or compare them with all conditions."""
    nodes = toposort(roots)
    points = math.prod([symbolic.bounds(parts.extent(r))[1]
                        for r in {r for n in roots for r in n.ranges}])
    return len(nodes) * (64 + min(points, places.MAX_POINTS) // _SAME_TIME)


def _of_loops(access: UOp) -> list[UOp]:
    """Return the conditions that hold in the iterations in which a STORE runs."""
    found = []
    for node in itertools.chain(access.src[1:], parts.indices(access)) \
            if access.op is ops.STORE else ():
        while node.op is ops.STEP:
            stop = parts.stop(node.src[1])
            if stop is not None:
                found.append(conditions.negated(stop))
            node = node.src[0]
    return list(dict.fromkeys(found))


# ---- once, and all of them --------------------------------------------------------------------


def _meeting(kernel: UOp, spend: Spend) -> NodeFault:
    """Match STOREs that overlap where order matters, or an element that none writes."""
    before: dict[UOp, list[UOp]] = {}
    for store in kernel.src:
        buffer = parts.buffer(store)
        others = before.setdefault(buffer, [])
        spend(len(others))
        once = store.arg is None and not places.has_own_strides(store, places.free_ranges(store))
        spend(_effort([store]) * (once + sum(not _by_rows(store, b) for b in others)))
        if once and not places.is_written_once(store):
            return store, f"each place of {name_of(buffer)!r} to be written once", \
                "places that two iterations may share"
        if not all(_by_rows(store, other) or places.are_apart(store, other) for other in others):
            return store, f"STOREs to other places of {name_of(buffer)!r} in one loop", \
                "places that meet"
        others.append(store)
    for buffer, stores in before.items():
        size = math.prod(map(build.const_of, parts.dims(buffer)))
        spend(sum(map(_effort, [[store] for store in stores])) + size // _SAME_TIME)
        plain = list(itertools.takewhile(
            lambda s: s.arg is None and not carried.may_be_skipped(s), stores))
        if size and not places.is_covered(plain, size):
            return kernel, f"each place of {name_of(buffer)!r} to be written", \
                "places that nothing writes"
    return None


def _by_rows(a: UOp, b: UOp) -> bool:
    """Whether each shared loop of two STOREs indexes one axis directly in both.

    Then they overlap within one iteration only, where the first runs before the second. This is
    the case for batch axes.
    """
    shared = set(places.free_ranges(a)) & set(places.free_ranges(b))
    return all(any(i is j is r for i, j in zip(parts.indices(a), parts.indices(b)))
               for r in shared)
