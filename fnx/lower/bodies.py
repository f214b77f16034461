"""Bodies: a SCAN, WHILE or COND runs the Blocks of its FUNCTIONs as a LOOP or a BRANCH.

    before  c, ys = SCAN(body, 5 steps, carry c0, xs x)            x and ys: 5 rows of 12 bytes
    after   copy(c0) -> b
            LOOP 5: body(SWAP(b, c), x[12*i:12*i + 12]) -> SWAP(c, b), ys[12*i:12*i + 12]

Each body is lowered once to a Block, whose slots are then filled in: a constant is the operand
itself, xs and ys are rows, so each iteration moves them on by a row. A carry has two buffers: an
iteration reads the one that the iteration before wrote, and writes the other. The last one
written is the result; after a number of steps that only the run tells, it is copied there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from fnx.core import build, dtypes, ops
from fnx.core.uop import UOp
from fnx.lower.commands import Block, Choice, Repeat, named
from fnx.lower.fusion.group import memory_of
from fnx.lower.fusion.ranges import BodyStep, Step
from fnx.lower.memory import Operand, View, size_of

AlignmentOf = Callable[[UOp], int]
BlockOf = Callable[[UOp, tuple[int, ...], tuple[int, ...]], Block]
Made = Step | Repeat | Choice


def expand(step: BodyStep, block_of: BlockOf, alignment: AlignmentOf) -> Iterator[Made]:
    """The command of a SCAN, WHILE or COND, and the copies before and behind it.

    Args:
        step: the node with its buffers.
        block_of: lowers a FUNCTION; its parameters and results have these alignments.
        alignment: of the buffer of a node.
    """
    return _EXPAND[step.node.op](step, block_of, alignment)


def distinct_results(fn: UOp) -> UOp:
    """Each result a buffer of its own: a second one of a buffer, or of a parameter, is a copy.

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


def copy(source: UOp, to: UOp, read: Operand | None = None) -> Step:
    """The contents of a buffer to another one (``read``: from what the first one is then)."""
    count = math.prod(source.shape)
    r = build.range_(count, 0)
    o, x = (build.at(build.ref(i, source.dtype, (count,)), r) for i in (1, 0))
    kernel = build.kernel([build.store(o, build.load(x))], "copy", (0,))
    return Step(kernel, (source if read is None else read, to), (to,), None, to.sites)


# ---- loops --------------------------------------------------------------------------------------


def _scan(step: BodyStep, block_of: BlockOf, alignment: AlignmentOf) -> Iterator[Made]:
    arg, body = step.node.arg, step.node.src[0]
    n, first = arg.n_consts, arg.n_consts + arg.n_carries
    consts, inits, xs = step.reads[:n], step.reads[n:first], step.reads[first:]
    finals, ys = step.writes[:arg.n_carries], step.writes[arg.n_carries:]
    pairs = [(_like(c), c) if arg.length % 2 else (c, _like(c)) for c in finals]
    for init, (read, _) in zip(inits, pairs):
        yield from _copies(init, read)
    if not arg.length:
        return

    def row(whole: UOp) -> View:
        nbytes = math.prod(whole.shape[1:]) * whole.dtype.itemsize
        start = (arg.length - 1) * nbytes if arg.reverse else 0
        return View(whole, nbytes, start, -nbytes if arg.reverse else nbytes)

    ins = (*map(_whole, consts), *[_swapped(a, b) for a, b in pairs], *map(row, xs))
    outs = (*[_swapped(b, a) for a, b in pairs], *map(row, ys))
    block = block_of(body, *_alignments(alignment, ins, outs))
    yield Repeat(named(arg.name, step.node.sites), arg.length, block, ins, outs,
                 _work(block.arena))


def _while(step: BodyStep, block_of: BlockOf, alignment: AlignmentOf) -> Iterator[Made]:
    arg, (test, body) = step.node.arg, step.node.src[:2]
    consts, inits = step.reads[:arg.n_consts], step.reads[arg.n_consts:]
    pairs = [(c, _like(c)) for c in step.writes]
    for init, final in zip(inits, step.writes):
        yield from _copies(init, final)
    ins = (*map(_whole, consts), *[_swapped(a, b) for a, b in pairs])
    outs = tuple([_swapped(b, a) for a, b in pairs])
    given, made = _alignments(alignment, ins, outs)
    blocks = block_of(body, given, made), block_of(test, given, (64,))
    flag = _work(1)
    yield Repeat(named(arg.name, step.node.sites), None, blocks[0], ins, outs,
                 _work(max(b.arena for b in blocks)), blocks[1], flag)
    for a, b in pairs:
        yield from _copies(a, a, _swapped(a, b))


def _cond(step: BodyStep, block_of: BlockOf, alignment: AlignmentOf) -> Iterator[Made]:
    node, (which, *operands) = step.node, step.reads
    ins, outs = (tuple(map(_whole, side)) for side in (operands, step.writes))
    given, made = _alignments(alignment, ins, outs)
    blocks = [block_of(b, given, made) for b in node.src[:node.arg.n_branches]]
    yield Choice(named(node.arg.name, node.sites), which, tuple(blocks), tuple(operands),
                 step.writes, _work(max(b.arena for b in blocks)))


_EXPAND: dict[ops.Op, Callable[[BodyStep, BlockOf, AlignmentOf], Iterator[Made]]] = {
    ops.SCAN: _scan, ops.WHILE: _while, ops.COND: _cond}


# ---- memory -------------------------------------------------------------------------------------


def _whole(node: UOp) -> View:
    return View(node, size_of(node))


def _swapped(even: UOp, odd: UOp) -> View:
    return View(even, size_of(even), odd=odd)


def _like(node: UOp) -> UOp:
    """Another buffer of this type."""
    return UOp(ops.BUFFER, node.dtype, (), ops.Buffer(object(), node.shape))


def _work(nbytes: int) -> UOp:
    """So many bytes of temporary memory."""
    return UOp(ops.BUFFER, dtypes.bool_, (), ops.Buffer(object(), (nbytes,)))


def _copies(source: UOp, to: UOp, read: Operand | None = None) -> Iterator[Step]:
    if math.prod(to.shape):
        yield copy(source, to, read)


def _alignments(of: AlignmentOf, *sides: Sequence[View]) -> list[tuple[int, ...]]:
    return [tuple([view.alignment(of) for view in side]) for side in sides]
