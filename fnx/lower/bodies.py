"""Lower SCAN, WHILE and COND to a LOOP or BRANCH over the Blocks of their FUNCTIONs.

    before  c, ys = SCAN(body, 5 steps, carry c0, xs x)            x and ys: 5 rows of 12 bytes
    after   copy(c0) -> b
            LOOP 5: body(SWAP(b, c), x[12*i:12*i + 12]) -> SWAP(c, b), ys[12*i:12*i + 12]

Each body is lowered once to a Block, and its slots are then bound: a constant to the operand
itself, xs and ys to a row that advances with each iteration. A carry that the body can update in
place (lower/sharing.py) has one buffer, its result. Any other carry is double-buffered: an
iteration reads the buffer that the previous iteration wrote and writes the other one. The one
written last is the result; if the trip count is only known at run time, it is copied there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from fnx.core import build, dtypes, op_args, ops
from fnx.core.uop import UOp
from fnx.lower.commands import Block, Choice, Inlined, Repeat
from fnx.lower.donated import parameter_below
from fnx.lower.fusion.group import memory_of
from fnx.lower.fusion.ranges import BodyStep, StepBody, copy
from fnx.lower.memory import ALIGNMENT, BufferOrView, View, size_of

AlignmentOf = Callable[[UOp], int]
Carried = tuple[tuple[int, int], ...]  # (result, parameter) of a body
BlockOf = Callable[[UOp, tuple[int, ...], tuple[int, ...], Carried], Block]
BodyCommands = StepBody | Repeat | Choice | Inlined


def expand(step: BodyStep, block_of: BlockOf, alignment: AlignmentOf) -> Iterator[BodyCommands]:
    """Yield the command of a SCAN, WHILE, COND or CALL, with the copies before and after it.

    Args:
        step: the node with its buffers.
        block_of: lowers a FUNCTION, given the alignments of its parameters and results.
        alignment: the alignment of the buffer of a node.
    """
    return _EXPAND[step.node.op](step, block_of, alignment)


def distinct_results(fn: UOp) -> UOp:
    """Give each result its own buffer: copy a repeated buffer and a returned parameter.

    >>> p = build.param(0, dtypes.float32, (3,))
    >>> fn = distinct_results(build.function([build.neg(p), build.neg(p), p], 1))
    >>> [out.op for out in fn.src]
    [NEG, STOP, STOP]
    """
    taken: set[UOp] = set()
    outs: list[UOp] = []
    for result in fn.src:
        out = result
        while memory_of(out) in taken or memory_of(out).op is ops.PARAM:
            out = build.stop_gradient(out)
        taken.add(memory_of(out))
        outs.append(out)
    return fn.over(tuple(outs))


# ---- loops --------------------------------------------------------------------------------------


def _scan(step: BodyStep, block_of: BlockOf, alignment: AlignmentOf) -> Iterator[BodyCommands]:
    arg = step.node.arg
    n, first = arg.n_consts, arg.n_consts + arg.n_carries
    consts, inits, xs = step.reads[:n], step.reads[n:first], step.reads[first:]
    finals, ys = step.writes[:arg.n_carries], step.writes[arg.n_carries:]
    rows_in, rows_out = ([_row(a, arg.length, arg.reverse) for a in side] for side in (xs, ys))
    given, made = _alignments(alignment, (*map(_whole, (*consts, *finals)), *rows_in),
                              (*map(_whole, finals), *rows_out))
    block = block_of(step.node.src[0], given, made, _carried(n, finals))
    pairs = [(b, a) if arg.length % 2 else (a, b) for a, b in _buffers(block, finals)]
    for init, (read, _) in zip(inits, pairs):
        yield from _copies(init, read)
    if arg.length:
        yield Repeat(arg.name, arg.length, block,
                     (*map(_whole, consts), *[_swapped(a, b) for a, b in pairs], *rows_in),
                     (*[_swapped(b, a) for a, b in pairs], *rows_out), _work(block.arena),
                     sites=step.node.sites)


def _while(step: BodyStep, block_of: BlockOf, alignment: AlignmentOf) -> Iterator[BodyCommands]:
    arg, (test, body), finals = step.node.arg, step.node.src[:2], step.writes
    consts, inits = step.reads[:arg.n_consts], step.reads[arg.n_consts:]
    given, made = _alignments(alignment, [*map(_whole, (*consts, *finals))],
                              [*map(_whole, finals)])
    blocks = block_of(body, given, made, _carried(arg.n_consts, finals)), \
        block_of(test, given, (ALIGNMENT,), ())
    pairs = _buffers(blocks[0], finals)
    for init, final in zip(inits, finals):
        yield from _copies(init, final)
    yield Repeat(arg.name, None, blocks[0],
                 (*map(_whole, consts), *[_swapped(a, b) for a, b in pairs]),
                 tuple([_swapped(b, a) for a, b in pairs]),
                 _work(max(b.arena for b in blocks)), blocks[1], _work(1),
                 sites=step.node.sites)
    for a, b in pairs:
        if a is not b:
            yield from _copies(a, a, _swapped(a, b))


def _cond(step: BodyStep, block_of: BlockOf, alignment: AlignmentOf) -> Iterator[BodyCommands]:
    """Lower a COND. A parameter that all branches update in place is first copied to the result
    and updated there."""
    node, (which, *operands) = step.node, step.reads
    given, made = _alignments(alignment, [*map(_whole, operands)], [*map(_whole, step.writes)])
    branches = node.src[:node.arg.n_branches]
    carried = _updated(branches)
    while True:
        blocks = [block_of(b, given, made, carried) for b in branches]
        kept = tuple([pair for pair in carried
                      if all(b.results[pair[0]] == ("in", pair[1]) for b in blocks)])
        if kept == carried:
            break
        carried = kept
    for result, slot in carried:
        yield from _copies(operands[slot], step.writes[result])
        operands[slot] = step.writes[result]
    yield Choice(node.arg.name, which, tuple(blocks), tuple(operands),
                 step.writes, _work(max(b.arena for b in blocks)), sites=node.sites)


def _call(step: BodyStep, block_of: BlockOf, alignment: AlignmentOf) -> Iterator[BodyCommands]:
    given, made = _alignments(alignment, [*map(_whole, step.reads)], [*map(_whole, step.writes)])
    block = block_of(step.node.src[0], given, made, ())
    yield Inlined(block, step.reads, step.writes, _work(block.arena))


_EXPAND: dict[ops.Op, Callable[[BodyStep, BlockOf, AlignmentOf], Iterator[BodyCommands]]] = {
    ops.CALL: _call, ops.SCAN: _scan, ops.WHILE: _while, ops.COND: _cond}


# ---- memory -------------------------------------------------------------------------------------


def _carried(first: int, finals: Sequence[UOp]) -> Carried:
    """Pair each carry with its parameter: all may be updated in place."""
    return tuple([(k, first + k) for k in range(len(finals))])


def _buffers(block: Block, finals: Sequence[UOp]) -> list[tuple[UOp, UOp]]:
    """Return the result and the second buffer of each carry; equal if it is updated in place."""
    return [(c, c if block.results[k][0] == "in" else _like(c)) for k, c in enumerate(finals)]


def _updated(branches: Sequence[UOp]) -> Carried:
    """Return the (result, parameter) pairs in which all branches partially update the parameter."""
    found: dict[int, int] = {}
    for result in range(len(branches[0].src)):
        sources = {parameter_below(b.src[result]) for b in branches}
        slot = sources.pop()
        if not sources and slot is not None and slot not in found.values():
            found[result] = slot
    return tuple(found.items())


def _row(whole: UOp, length: int, reverse: bool) -> View:
    """Return a row of xs or ys that advances with each iteration, whatever the buffer's shape."""
    nbytes = math.prod(whole.shape) * whole.dtype.itemsize // max(length, 1)
    return View(whole, nbytes, (length - 1) * nbytes, -nbytes) if reverse else \
        View(whole, nbytes, 0, nbytes)


def _whole(node: UOp) -> View:
    return View(node, size_of(node))


def _swapped(even: UOp, odd: UOp) -> View:
    return View(even, size_of(even), odd=None if odd is even else odd)


def _like(node: UOp) -> UOp:
    """Return another buffer of this dtype and shape."""
    return UOp(ops.BUFFER, node.dtype, (), op_args.Buffer(object(), node.shape))


def _work(nbytes: int) -> UOp:
    """Return ``nbytes`` bytes of temporary memory."""
    return UOp(ops.BUFFER, dtypes.bool_, (), op_args.Buffer(object(), (nbytes,)))


def _copies(source: UOp, to: UOp, read: BufferOrView | None = None) -> Iterator[StepBody]:
    if math.prod(to.shape):
        yield copy(source if read is None else read, source, to)


def _alignments(of: AlignmentOf, *sides: Sequence[View]) -> list[tuple[int, ...]]:
    return [tuple([view.alignment(of) for view in side]) for side in sides]
