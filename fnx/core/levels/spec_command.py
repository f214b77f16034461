"""Legality rules of the command level: kernels on memory, loops and branches over them.

Tuples of (ops, expectation, predicate), for core/levels/spec.py.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection

from fnx.core.ir import accessors, build, kernel_args, ops
from fnx.core.ir.cache import memoized
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.interp_kernel import extent

_MEMORY = (ops.SLOT, ops.SWAP)


def _operands(node: UOp) -> tuple[list[UOp], list[UOp]]:
    return ([s for s in node.src[1:] if s.op in _MEMORY],
            [s for s in node.src[1:] if s.op is ops.CONST])


@memoized
def _kernel_args(kernel: UOp, op: Op) -> dict[int, UOp]:
    return {n.arg.slot: n for n in toposort([kernel]) if n.op is op}


def _exec(node: UOp) -> bool:
    if node.src and node.src[0].op is ops.CALLBACK:
        arg, memory = node.src[0].arg, node.src[1:]
        return all(s.op in _MEMORY for s in memory) and \
            len(memory) == 1 + len(arg.ins) + len(arg.outs) - arg.effect
    if node.src and node.src[0].op is ops.LINKED:
        return node.src[1:] == sum(map(tuple, _operands(node)), ())
    if node.src and node.src[0].op is ops.SORT:
        arg, (slots, scalars) = node.src[0].arg, _operands(node)
        return node.src[1:] == (*slots, *scalars) and \
            len(slots) == len(arg.ins) + len(arg.outputs) and \
            len(scalars) == (5 if arg.selects else 2) * bool(arg.lengths)
    if node.src and node.src[0].op is ops.FFT_STEP:
        slots, scalars = _operands(node)
        return node.src[1:] == (*slots, *scalars) and len(slots) == 3 and \
            (node.src[0].arg.lengths is None) == bool(scalars)
    if node.src and node.src[0].op is ops.LINALG:
        arg, (slots, scalars) = node.src[0].arg, _operands(node)
        return node.src[1:] == (*slots, *scalars) and len(slots) == len(arg.ins) + len(arg.outs)
    if node.src and node.src[0].op is ops.CMD_LOOP:
        used = _memory_inside(node.src[0])
        return all(s.op in _MEMORY for s in node.src[1:]) and \
            all(s.kind == "numbers" or s.kind == "in" and s.index < len(node.src) - 1
                for s in used)
    if not node.src or node.src[0].op is not ops.KERNEL:
        return False
    slots, scalars = _operands(node)
    refs, variables = (_kernel_args(node.src[0], op) for op in (ops.REF, ops.VAR))
    return node.src[1:] == (*slots, *scalars) and len(slots) > max(refs, default=-1) and \
        len(scalars) > max(variables, default=-1) and \
        all(scalars[i].dtype is v.dtype for i, v in variables.items())


def _memory_inside(loop: UOp) -> list[kernel_args.Slot]:
    """Return the slots that the commands in a CMD_LOOP read and write."""
    return [n.arg for n in toposort([loop]) if n.op is ops.SLOT]


def _scalars_in_bounds(node: UOp) -> bool:
    scalars = _operands(node)[1]
    if node.src[0].op is ops.CMD_LOOP:
        return not scalars
    return all(v.arg.low <= build.const_of(scalars[i]) <= v.arg.high
               for i, v in _kernel_args(node.src[0], ops.VAR).items() if v.dtype.is_integer)


def _large_enough(node: UOp) -> bool:
    slots, constants = _operands(node)
    if node.src[0].op is ops.CMD_LOOP:
        return all(used.offset + used.nbytes <= slot.nbytes for used in _memory_inside(node.src[0])
                   if used.kind == "in" for slot in accessors.possible_slots(slots[used.index]))
    scalars = [ops.const_value(c) for c in constants]
    return all(math.prod(extent(d, scalars) for d in ref.src) * ref.dtype.itemsize
               <= slot.nbytes for i, ref in _kernel_args(node.src[0], ops.REF).items()
               for slot in accessors.possible_slots(slots[i]))


def _disjoint_writes(node: UOp) -> bool:
    """Return whether written arena slots do not overlap other slots, except identical ones."""
    slots = _operands(node)[0]
    if node.src[0].op is ops.CMD_LOOP:  # each command in it is checked
        return True
    loops = {n.arg for n in toposort(slots) if n.op is ops.SWAP}
    return all(_disjoint_in(node, slots, dict(zip(loops, odd)))
               for odd in itertools.product((0, 1), repeat=len(loops)))


def _disjoint_in(node: UOp, slots: list[UOp], odd: dict[int, int]) -> bool:
    """Check the slots for one parity of each loop; slots of different strides are not compared."""
    written = accessors.written_slots(node.src[0])
    resolved = [accessors.resolve_slot(s, odd) for s in slots]
    arena = [(i, s) for i, s in enumerate(resolved) if s.kind == "arena"]
    for i, a in arena:
        for j, b in arena if i in written else ():
            if i != j and (a.offset, a.nbytes) != (b.offset, b.nbytes) and \
                    a.strides == b.strides and \
                    a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes:
                return False
    return True


def _is_loop(node: UOp) -> bool:
    """Return whether a CMD_LOOP is a body with a trip count, or a condition, its bool and a body.

    The latter may have a maximum trip count.
    """
    ops_of = [s.op for s in node.src]
    trips = node.arg.trips
    if trips is not None and trips < 0:
        return False
    if trips is not None and len(ops_of) == 1:
        return ops_of == [ops.COMMANDS]
    return len(ops_of) == 3 and ops_of[::2] == [ops.COMMANDS] * 2 and ops_of[1] in _MEMORY and \
        all(slot.nbytes >= 1 for slot in accessors.possible_slots(node.src[1]))


def _is_branch(node: UOp) -> bool:
    return len(node.src) > 1 and node.src[0].op in _MEMORY and \
        all(slot.nbytes >= 4 for slot in accessors.possible_slots(node.src[0])) and \
        all(s.op is ops.COMMANDS for s in node.src[1:])


RULES: tuple[tuple[Collection[Op], str, Callable[[UOp], bool]], ...] = (
    ((ops.SLOT,), "memory in, out or arena, or numbers, index, offset and size >= 0",
     lambda n: n.arg.kind in ("in", "out", "arena", "numbers") and n.arg.index >= 0
     and n.arg.offset >= 0 and n.arg.nbytes >= 0),
    ((ops.SLOT,), "strides in bytes of loops, the last of them not 0",
     lambda n: all(type(s) is int for s in n.arg.strides) and n.arg.strides[-1:] != (0,)),
    ((ops.SWAP,), "two memories and the number of a loop",
     lambda n: all(s.op in _MEMORY for s in n.src) and n.arg >= 0),
    ((ops.EXEC,), "a KERNEL, a SLOT for each REF, a CONST of its dtype for each VAR; or a "
     "CALLBACK, a SORT, an FFT_STEP or a LINALG, a SLOT for its handle and each operand and "
     "result; or a LINKED; or a CMD_LOOP of commands on what its own SLOTs are", _exec),
    ((ops.EXEC,), "scalars inside the bounds of their VARs", _scalars_in_bounds),
    ((ops.EXEC,), "slots as large as the buffers of the kernel", _large_enough),
    ((ops.LINKED,), "iterations and bytes of scratch >= 0",
     lambda n: n.arg.parallel >= 0 and n.arg.scratch >= 0),
    ((ops.EXEC,), "written memory that overlaps no other slot of the command", _disjoint_writes),
    ((ops.CALLBACK, ops.SORT, ops.FFT_STEP, ops.LINALG), "no operands: those of its EXEC",
     lambda n: not n.src),
    ((ops.CMD_LOOP,), "a body and trips >= 0, or a condition, the place of its bool and a body",
     _is_loop),
    ((ops.BRANCH,), "the place of an int32, and COMMANDS", _is_branch),
    ((ops.COMMANDS,), "EXECs, CMD_LOOPs and BRANCHes",
     lambda n: all(s.op in (ops.EXEC, ops.CMD_LOOP, ops.BRANCH) for s in n.src)),
)
