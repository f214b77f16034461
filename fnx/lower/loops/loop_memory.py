"""Memory of a CMD_LOOP of commands that becomes a kernel.

    two buffers  f(a|b by i) -> b|a by i     f(a) -> b, copy(b) -> a
    in two       CMD_LOOP 1000: f(a + 4*i)   CMD_LOOP 10: CMD_LOOP 100: f(a + 400*i + 4*j)
    operands     CMD_LOOP: f(arena 64 + 4*i)  EXEC(CMD_LOOP: f(in 0 + 4*i), arena 64:+4000)

All that a CMD_LOOP accesses of an argument, a result or the arena becomes one operand, in which
each access has an offset; so a compiler sees which addresses differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from fnx.core.ir import accessors, build, dtypes, kernel_args, ops
from fnx.core.ir.build_calls import commands, exec_, slot, swap
from fnx.core.ir.uop import UOp, rebuild
from fnx.lower.analysis.memory import ALIGNMENT
from fnx.lower.loops.scalarize import NotFusable

ApplySchedule = Callable[[UOp], UOp]
Trips = tuple[int, ...]  # trip counts of the loops around a command


def memory_uses(node: UOp, trips: Trips) -> Iterator[tuple[UOp, bool, Trips]]:
    """Yield (memory, whether a kernel writes it, trip counts of the loops around) for commands."""
    return ((memory, writer is not None, inner) for memory, writer, inner in _uses(node, trips))


def _uses(node: UOp, trips: Trips) -> Iterator[tuple[UOp, tuple[UOp, int] | None, Trips]]:
    """As ``memory_uses``, with the kernel that writes the memory and its slot there, or None."""
    written = accessors.written_slots(node.src[0]) if node.op is ops.EXEC else set()
    for i, s in enumerate(node.src):
        if s.op in (ops.SLOT, ops.SWAP):
            yield s, (node.src[0], i - 1) if i - 1 in written else None, trips
        elif s.op is ops.CMD_LOOP:
            yield from _uses(s, (*trips, s.arg.trips or 0))
        elif s.op in (ops.COMMANDS, ops.BRANCH, ops.EXEC):
            yield from _uses(s, trips)


def _written_bytes(kernel: UOp, slot: int, memory: UOp) -> int:
    """Return the bytes of a memory that a kernel writes: buffers are rounded up to whole lines."""
    slot_bytes = _least_bytes(memory)
    if kernel.op is not ops.KERNEL:
        return slot_bytes
    refs = {ref for ref in map(accessors.buffer, kernel.src) if ref.arg.slot == slot}
    if any(d.op is not ops.CONST for ref in refs for d in accessors.dims(ref)):
        return slot_bytes
    counts = [math.prod([build.const_of(d) for d in accessors.dims(ref)]) for ref in refs]
    written: int = max([n * ref.dtype.itemsize for n, ref in zip(counts, refs)])
    return min(slot_bytes, written)


def _least_bytes(memory: UOp) -> int:
    """Return the bytes of a memory that all its alternatives have: an array that fills whole lines
    may be the other buffer of a row of another array."""
    sizes: list[int] = [s.nbytes for s in accessors.possible_slots(memory)]
    return min(sizes)


def arena_bytes(node: UOp) -> int:
    """Return how many bytes of the arena commands access."""
    return max([span_of(arg, 0, trips)[1] for memory, _, trips in memory_uses(node, ())
                for arg in accessors.possible_slots(memory) if arg.kind == "arena"], default=0)


# ---- double buffers -----------------------------------------------------------------------------


def read_first_buffer(node: UOp, depth: int) -> UOp:
    """Read the first of two buffers, in which a loop now always leaves its result."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return src[0] if node.op is ops.SWAP and node.arg == depth else None
    return rebuild([node], visit)[0]


def use_single_buffers(node: UOp, depth: int, apply_schedule: ApplySchedule) -> UOp:
    """Rewrite a CMD_LOOP, and loops inside it, to have each carry in one buffer after each step.

    Raises:
        Unfit: a step writes to both buffers of a carry.
    """
    def rewrite_body(node: UOp, depth: int) -> UOp:
        rewritten: list[UOp] = []
        after_loop = False
        for s in node.src:
            if s.op in (ops.CMD_LOOP, ops.BRANCH, ops.COMMANDS):
                after_loop = s.op is ops.CMD_LOOP
                s = use_single_buffers(s, depth, apply_schedule) if after_loop else \
                    rewrite_body(s, depth)
            elif after_loop:  # the copies after it
                before, s = s, read_first_buffer(s, depth)
                if s is not before and len(set(s.src[1:])) == 1:
                    continue
            rewritten.append(s)
        return node.with_operands(tuple(rewritten))

    *test, body = [rewrite_body(s, depth + 1) if s.op is ops.COMMANDS else s for s in node.src]
    tail_of_pair: dict[tuple[UOp, UOp], int] = {}  # with the bytes after the last written one
    unit_trips = (1,) * (depth + 1)
    for memory, writer, trips in _uses(body, unit_trips):
        if writer is not None and memory.op is ops.SWAP:
            tail_bytes = _least_bytes(memory) - _written_bytes(*writer, memory)
            for pair in _even_odd(memory, depth, trips):
                tail_of_pair[pair] = min(tail_bytes, tail_of_pair.get(pair, tail_bytes))
    if any((b, a) in tail_of_pair for a, b in tail_of_pair):
        raise NotFusable("a carry whose two buffers are written in one step")
    *test, body = [read_first_buffer(s, depth) for s in (*test, body)]
    copies = [_copy(a, b, behind, apply_schedule, node.arg) for (a, b),
              behind in tail_of_pair.items()]
    return node.with_operands((*test, commands([*body.src, *copies])))


def _even_odd(memory: UOp, depth: int, trips: Trips) -> Iterator[tuple[UOp, UOp]]:
    """Yield what is written in even and in odd steps of a loop: all that inner loops access."""
    if memory.op is not ops.SWAP:
        return
    even, odd = memory.src
    if memory.arg == depth:
        yield (_full_span(read_first_buffer(even, depth), depth, trips),
               _full_span(read_first_buffer(odd, depth), depth, trips))
        return
    for (a, b), (c, d) in zip(_even_odd(even, depth, trips), _even_odd(odd, depth, trips),
                              strict=True):
        yield swap(a, c, memory.arg), swap(b, d, memory.arg)


def _full_span(memory: UOp, depth: int, trips: Trips) -> UOp:
    """Extend a memory to all that the deeper loops access."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.SLOT:
            return None
        low, high = span_of(node.arg, depth + 1, trips)
        arg = node.arg
        return slot(arg.kind, arg.index, low, high - low, arg.strides[:depth + 1])
    return rebuild([memory], visit)[0]


def span_of(arg: kernel_args.Slot, depth: int, trips: Trips) -> tuple[int, int]:
    """Return the begin and end of what the loops from ``depth`` on access."""
    extents = [s * (n - 1) for s, n in zip(arg.strides[depth:], trips[depth:])]
    return (arg.offset + sum([min(0, s) for s in extents]),
            arg.offset + arg.nbytes + sum([max(0, s) for s in extents]))


def _copy(source: UOp, target: UOp, tail_bytes: int, apply_schedule: ApplySchedule,
          arg: kernel_args.CmdLoop) -> UOp:
    """Return an EXEC that copies the written bytes. Values are copied in units of their own size,
    as a processor stalls on a load that spans several stores."""
    all_slots = [s for memory in (source, target) for s in accessors.possible_slots(memory)]
    nbytes = min(s.nbytes for s in all_slots) - tail_bytes
    step = math.gcd(ALIGNMENT, *[n for s in all_slots for n in (s.offset, *s.strides)])
    dtype = dtypes.uint32 if math.gcd(step, nbytes) % 4 == 0 else dtypes.uint8
    count = nbytes // dtype.itemsize
    r = build.range_(count, 0)
    refs = [build.ref(i, dtype, r.src) for i in (0, 1)]
    x, o = [build.index_into(ref.replace(arg=ref.arg.replace(alignment=step)), r) for ref in refs]
    kernel = apply_schedule(build.kernel([build.store(o, build.load(x))], "copy", (0,)))
    return exec_(kernel, [source, target], (), "copy", arg.locs)


# ---- loop splitting -----------------------------------------------------------------------------


def split_loop(node: UOp, depth: int, steps: int) -> UOp:
    """Split the body of a loop for a nest of two, the inner of which has ``steps`` iterations."""
    def split_slot(arg: kernel_args.Slot) -> UOp:
        at, inner = arg.strides[depth:depth + 1] or (0,), arg.strides[depth + 1:]
        outer = (*arg.strides[:depth], *[0] * (depth - len(arg.strides)), at[0] * steps)
        return slot(arg.kind, arg.index, arg.offset, arg.nbytes, (*outer, *at, *inner))
    return _map_slots(node, split_slot)


def advance_loop(node: UOp, depth: int, steps: int) -> UOp:
    """Return the body of a loop that starts after ``steps`` iterations."""
    def advance_slot(arg: kernel_args.Slot) -> UOp:
        offset = arg.offset + sum(arg.strides[depth:depth + 1]) * steps
        return slot(arg.kind, arg.index, offset, arg.nbytes, arg.strides)
    return _map_slots(node, advance_slot)


def _map_slots(node: UOp, make_slot: Callable[[kernel_args.Slot], UOp]) -> UOp:
    return rebuild([node], lambda n, _: make_slot(n.arg) if n.op is ops.SLOT else None)[0]


# ---- operands -----------------------------------------------------------------------------------


def bind_operands(node: UOp, depth: int) -> UOp:
    """Return the EXEC of a CMD_LOOP inside ``depth`` others, with the memory that it accesses as
    operands.

    Raises:
        Unfit: the two buffers of a carry are traversed differently.
    """
    span_of_operand: dict[UOp, tuple[int, int]] = {}  # operand -> begin, end
    sequence = commands([node])
    for memory, _, trips in memory_uses(sequence, (1,) * depth):
        if memory.op is ops.SLOT and memory.arg.kind == "numbers":
            continue
        key = _operand_base(memory, depth)
        nbytes = _least_bytes(memory)
        for arg in accessors.possible_slots(memory):
            low, high = span_of(arg, depth, trips)
            if memory.op is ops.SWAP:
                low, high = low - arg.offset, high - arg.offset - (arg.nbytes - nbytes)
            known_span = span_of_operand.get(key, (low, high))
            span_of_operand[key] = min(low, known_span[0]), max(high, known_span[1])
    spans = {key: (low - low % ALIGNMENT if key.op is ops.SLOT else low, high)
             for key, (low, high) in span_of_operand.items()}
    numbers = {key: i for i, key in enumerate(spans)}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op in (ops.SLOT, ops.SWAP):
            key = _operand_base(node, depth)
            if node.op is ops.SLOT and node.arg.kind == "numbers":
                arg = node.arg
                return slot(arg.kind, 0, arg.offset, arg.nbytes, arg.strides[depth:])
            if key not in numbers:
                return None  # of a SWAP, which is one operand
            strides, = {s.strides[depth:] for s in accessors.possible_slots(node)}
            offset = node.arg.offset if node.op is ops.SLOT else 0
            return slot("in", numbers[key], offset - spans[key][0], _least_bytes(node), strides)
        return None

    operands = [_operand_slot(key, *span) for key, span in spans.items()]
    return exec_(rebuild([node], visit)[0], operands, (), node.arg.name, node.arg.locs)


def _operand_base(memory: UOp, depth: int) -> UOp:
    """Return the memory that this is a part of, which moves with the outer loops only."""
    if memory.op is ops.SLOT:
        return slot(memory.arg.kind, memory.arg.index, 0, 0, memory.arg.strides[:depth])
    if len({s.strides[depth:] for s in accessors.possible_slots(memory)}) > 1:
        raise NotFusable("two buffers that are walked along in two ways")
    return _map_slots(memory, lambda s: slot(s.kind, s.index, s.offset, 0, s.strides[:depth]))


def _operand_slot(base: UOp, low: int, high: int) -> UOp:
    return _map_slots(base, lambda s: slot(s.kind, s.index, s.offset + low, high - low, s.strides))
