"""Memory of a LOOP of commands that becomes a kernel.

    two buffers  f(a|b by i) -> b|a by i     f(a) -> b, copy(b) -> a
    in two       LOOP 1000: f(a + 4*i)       LOOP 10: LOOP 100: f(a + 400*i + 4*j)
    operands     LOOP: f(arena 64 + 4*i)     EXEC(LOOP: f(in 0 + 4*i), arena 64:+4000)

All that a LOOP accesses of an argument, a result or the arena becomes one operand, in which each
access has an offset; so a compiler sees which addresses differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from fnx.core import build, dtypes, op_args, ops, parts
from fnx.core.build_commands import commands, exec_, slot, swap
from fnx.core.uop import UOp, rebuild
from fnx.lower.loops.cells import Unfit
from fnx.lower.memory import ALIGNMENT

TileKernel = Callable[[UOp], UOp]
Trips = tuple[int, ...]  # trip counts of the loops around a command


def uses(node: UOp, trips: Trips) -> Iterator[tuple[UOp, bool, Trips]]:
    """Yield (memory, whether a kernel writes it, trip counts of the loops around) for commands."""
    return ((memory, nbytes > 0, inner) for memory, nbytes, inner in _writes(node, trips))


def _writes(node: UOp, trips: Trips) -> Iterator[tuple[UOp, int, Trips]]:
    """As ``uses``, with the number of bytes that a kernel writes at most."""
    written = parts.written_slots(node.src[0]) if node.op is ops.EXEC else set()
    for i, s in enumerate(node.src):
        if s.op in (ops.SLOT, ops.SWAP):
            yield s, _bytes_of(node.src[0], i - 1, s) if i - 1 in written else 0, trips
        elif s.op is ops.LOOP:
            yield from _writes(s, (*trips, s.arg.trips or 0))
        elif s.op in (ops.COMMANDS, ops.BRANCH, ops.EXEC):
            yield from _writes(s, trips)


def _bytes_of(kernel: UOp, slot: int, memory: UOp) -> int:
    """Return the bytes of a memory that a kernel writes: buffers are rounded up to whole lines."""
    whole: int = min([s.nbytes for s in parts.slots(memory)])
    if kernel.op is not ops.KERNEL:
        return whole
    refs = {ref for ref in map(parts.buffer, kernel.src) if ref.arg.slot == slot}
    if any(d.op is not ops.CONST for ref in refs for d in parts.dims(ref)):
        return whole
    counts = [math.prod([build.const_of(d) for d in parts.dims(ref)]) for ref in refs]
    written: int = max([n * ref.dtype.itemsize for n, ref in zip(counts, refs)])
    return min(whole, written)


def arena_bytes(node: UOp) -> int:
    """Return how many bytes of the arena commands access."""
    return max([span_of(arg, 0, trips)[1] for memory, _, trips in uses(node, ())
                for arg in parts.slots(memory) if arg.kind == "arena"], default=0)


# ---- double buffers -----------------------------------------------------------------------------


def settled(node: UOp, depth: int) -> UOp:
    """Read the first of two buffers, in which a loop now always leaves its result."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return src[0] if node.op is ops.SWAP and node.arg == depth else None
    return rebuild([node], visit)[0]


def with_one(node: UOp, depth: int, tiled: TileKernel) -> UOp:
    """Rewrite a LOOP, and loops inside it, to have each carry in one buffer after each step.

    Raises:
        Unfit: a step writes to both buffers of a carry.
    """
    def inside(node: UOp, depth: int) -> UOp:
        made: list[UOp] = []
        ended = False
        for s in node.src:
            if s.op in (ops.LOOP, ops.BRANCH, ops.COMMANDS):
                ended = s.op is ops.LOOP
                s = with_one(s, depth, tiled) if ended else inside(s, depth)
            elif ended:  # the copies after it
                before, s = s, settled(s, depth)
                if s is not before and len(set(s.src[1:])) == 1:
                    continue
            made.append(s)
        return node.over(tuple(made))

    *test, body = [inside(s, depth + 1) if s.op is ops.COMMANDS else s for s in node.src]
    pairs: dict[tuple[UOp, UOp], int] = {}  # with the bytes after the last written one
    around = (1,) * (depth + 1)
    for memory, written, trips in _writes(body, around):
        behind = min([s.nbytes for s in parts.slots(memory)]) - written
        for pair in _both(memory, depth, trips) if written else ():
            pairs[pair] = min(behind, pairs.get(pair, behind))
    if any((b, a) in pairs for a, b in pairs):
        raise Unfit("a carry whose two buffers are written in one step")
    *test, body = [settled(s, depth) for s in (*test, body)]
    copies = [_copy(a, b, behind, tiled, node.arg) for (a, b), behind in pairs.items()]
    return node.over((*test, commands([*body.src, *copies])))


def _both(memory: UOp, depth: int, trips: Trips) -> Iterator[tuple[UOp, UOp]]:
    """Yield what is written in even and in odd steps of a loop: all that inner loops access."""
    if memory.op is not ops.SWAP:
        return
    even, odd = memory.src
    if memory.arg == depth:
        yield (_all_of(settled(even, depth), depth, trips),
               _all_of(settled(odd, depth), depth, trips))
        return
    for (a, b), (c, d) in zip(_both(even, depth, trips), _both(odd, depth, trips), strict=True):
        yield swap(a, c, memory.arg), swap(b, d, memory.arg)


def _all_of(memory: UOp, depth: int, trips: Trips) -> UOp:
    """Extend a memory to all that the deeper loops access."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.SLOT:
            return None
        low, high = span_of(node.arg, depth + 1, trips)
        arg = node.arg
        return slot(arg.kind, arg.index, low, high - low, arg.strides[:depth + 1])
    return rebuild([memory], visit)[0]


def span_of(arg: op_args.Slot, depth: int, trips: Trips) -> tuple[int, int]:
    """Return the begin and end of what the loops from ``depth`` on access."""
    far = [s * (n - 1) for s, n in zip(arg.strides[depth:], trips[depth:])]
    return (arg.offset + sum([min(0, s) for s in far]),
            arg.offset + arg.nbytes + sum([max(0, s) for s in far]))


def _copy(source: UOp, to: UOp, behind: int, tiled: TileKernel, arg: op_args.Loop) -> UOp:
    """Return an EXEC that copies the written bytes. Values are copied in units of their own size,
    as a processor stalls on a load that spans several stores."""
    found = [s for memory in (source, to) for s in parts.slots(memory)]
    nbytes = min(s.nbytes for s in found) - behind
    step = math.gcd(ALIGNMENT, *[n for s in found for n in (s.offset, *s.strides)])
    dtype = dtypes.uint32 if math.gcd(step, nbytes) % 4 == 0 else dtypes.uint8
    count = nbytes // dtype.itemsize
    r = build.range_(count, 0)
    refs = [build.ref(i, dtype, r.src) for i in (0, 1)]
    x, o = [build.at(ref.replace(arg=ref.arg.replace(alignment=step)), r) for ref in refs]
    kernel = tiled(build.kernel([build.store(o, build.load(x))], "copy", (0,)))
    return exec_(kernel, [source, to], (), "copy", arg.sites)


# ---- loop splitting -----------------------------------------------------------------------------


def in_two(node: UOp, depth: int, steps: int) -> UOp:
    """Split the body of a loop for a nest of two, the inner of which has ``steps`` iterations."""
    def twice(arg: op_args.Slot) -> UOp:
        at, inner = arg.strides[depth:depth + 1] or (0,), arg.strides[depth + 1:]
        outer = (*arg.strides[:depth], *[0] * (depth - len(arg.strides)), at[0] * steps)
        return slot(arg.kind, arg.index, arg.offset, arg.nbytes, (*outer, *at, *inner))
    return _on_slots(node, twice)


def moved(node: UOp, depth: int, steps: int) -> UOp:
    """Return the body of a loop that starts after ``steps`` iterations."""
    def later(arg: op_args.Slot) -> UOp:
        offset = arg.offset + sum(arg.strides[depth:depth + 1]) * steps
        return slot(arg.kind, arg.index, offset, arg.nbytes, arg.strides)
    return _on_slots(node, later)


def _on_slots(node: UOp, made: Callable[[op_args.Slot], UOp]) -> UOp:
    return rebuild([node], lambda n, _: made(n.arg) if n.op is ops.SLOT else None)[0]


# ---- operands -----------------------------------------------------------------------------------


def on_operands(node: UOp, depth: int) -> UOp:
    """Return the EXEC of a LOOP inside ``depth`` others, with the memory that it accesses as
    operands.

    Raises:
        Unfit: the two buffers of a carry are traversed differently.
    """
    found: dict[UOp, tuple[int, int]] = {}  # operand -> begin, end
    whole = commands([node])
    for memory, _, trips in uses(whole, (1,) * depth):
        if memory.op is ops.SLOT and memory.arg.kind == "numbers":
            continue
        key = _base(memory, depth)
        for arg in parts.slots(memory):
            low, high = span_of(arg, depth, trips)
            if memory.op is ops.SWAP:
                low, high = low - arg.offset, high - arg.offset
            before = found.get(key, (low, high))
            found[key] = min(low, before[0]), max(high, before[1])
    spans = {key: (low - low % ALIGNMENT if key.op is ops.SLOT else low, high)
             for key, (low, high) in found.items()}
    numbers = {key: i for i, key in enumerate(spans)}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op in (ops.SLOT, ops.SWAP):
            key = _base(node, depth)
            if node.op is ops.SLOT and node.arg.kind == "numbers":
                arg = node.arg
                return slot(arg.kind, 0, arg.offset, arg.nbytes, arg.strides[depth:])
            if key not in numbers:
                return None  # of a SWAP, which is one operand
            inner, = {(s.nbytes, s.strides[depth:]) for s in parts.slots(node)}
            offset = node.arg.offset if node.op is ops.SLOT else 0
            return slot("in", numbers[key], offset - spans[key][0], *inner)
        return None

    operands = [_part(key, *span) for key, span in spans.items()]
    return exec_(rebuild([node], visit)[0], operands, (), node.arg.name, node.arg.sites)


def _base(memory: UOp, depth: int) -> UOp:
    """Return the memory that this is a part of, which moves with the outer loops only."""
    if memory.op is ops.SLOT:
        return slot(memory.arg.kind, memory.arg.index, 0, 0, memory.arg.strides[:depth])
    if len({(s.nbytes, s.strides[depth:]) for s in parts.slots(memory)}) > 1:
        raise Unfit("two buffers that are walked along in two ways")
    return _on_slots(memory, lambda s: slot(s.kind, s.index, s.offset, 0, s.strides[:depth]))


def _part(base: UOp, low: int, high: int) -> UOp:
    return _on_slots(base, lambda s: slot(s.kind, s.index, s.offset + low, high - low, s.strides))
