"""Lower SCAN, WHILE and COND to a CMD_LOOP or BRANCH over the Blocks of their FUNCTIONs.

    before  c, ys = SCAN(body, 5 steps, carry c0, xs x)            x and ys: 5 rows of 12 bytes
    after   copy(c0) -> b
            CMD_LOOP 5: body(SWAP(b, c), x[12*i:12*i + 12]) -> SWAP(c, b), ys[12*i:12*i + 12]

Each body is lowered once to a Block, and its slots are then bound: a constant to the operand
itself, xs and ys to a row that advances with each iteration. A carry that the body can update in
place (lower/memory/buffer_sharing.py) has one buffer, its result. Any other carry is
double-buffered: an iteration reads the buffer that the previous iteration wrote and writes the
other one. The one written last is the result; if the trip count is only known at run time, it is
copied there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from fnx.core.ir import accessors, build, dtypes, op_args, ops
from fnx.core.ir.uop import UOp
from fnx.lower.analysis.memory import ALIGNMENT, LaunchOperand, View, size_of
from fnx.lower.fusion.group import memory_of
from fnx.lower.fusion.kernel_steps import ControlFlowStep, KernelStep
from fnx.lower.fusion.ranges import copy_step
from fnx.lower.memory.commands import Block, BranchLaunch, CallLaunch, LoopLaunch
from fnx.lower.memory.in_place import updated_parameter

GetAlignment = Callable[[UOp], int]
CarriedPairs = tuple[tuple[int, int], ...]  # (result, parameter) of a body
LowerBody = Callable[[UOp, tuple[int, ...], tuple[int, ...], CarriedPairs], Block]
ControlFlowLaunch = KernelStep | LoopLaunch | BranchLaunch | CallLaunch


def expand_control_flow(step: ControlFlowStep, block_of: LowerBody,
                        alignment: GetAlignment) -> Iterator[ControlFlowLaunch]:
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
    [NEG, STOP_GRADIENT, STOP_GRADIENT]
    """
    used_buffers: set[UOp] = set()
    outs: list[UOp] = []
    for result in fn.src:
        out = result
        while memory_of(out) in used_buffers or memory_of(out).op is ops.PARAM:
            out = build.stop_gradient(out)
        used_buffers.add(memory_of(out))
        outs.append(out)
    return fn.with_operands(tuple(outs))


# ---- loops --------------------------------------------------------------------------------------


def _scan(step: ControlFlowStep, block_of: LowerBody,
          alignment: GetAlignment) -> Iterator[ControlFlowLaunch]:
    arg = step.node.arg
    n, first = arg.n_consts, arg.n_consts + arg.n_carries
    consts, inits, xs = step.reads[:n], step.reads[n:first], step.reads[first:]
    finals, ys = step.writes[:arg.n_carries], step.writes[arg.n_carries:]
    rows_in, rows_out = ([_row_view(a, arg.length, arg.reverse) for a in side] for side in (xs, ys))
    param_alignments, result_alignments = _alignments(alignment,
                                                      (*map(_full_view, (*consts, *finals)),
                                                       *rows_in),
                                                      (*map(_full_view, finals), *rows_out))
    block = block_of(step.node.src[0], param_alignments, result_alignments, _carry_pairs(n, finals))
    pairs = [(b, a) if arg.length % 2 else (a, b) for a, b in _double_buffers(block, finals)]
    for init, (read, _) in zip(inits, pairs):
        yield from _copy_to(init, read)
    if arg.length:
        yield LoopLaunch(accessors.loop_body_name(step.node), arg.length, block,
                         (*map(_full_view, consts), *[_swap_view(a, b) for a, b in pairs],
                          *rows_in),
                         (*[_swap_view(b, a) for a, b in pairs], *rows_out),
                         _workspace(block.arena), locs=step.node.locs)


def _while(step: ControlFlowStep, block_of: LowerBody,
           alignment: GetAlignment) -> Iterator[ControlFlowLaunch]:
    arg, (test, body), finals = step.node.arg, step.node.src[:2], step.writes
    consts, inits = step.reads[:arg.n_consts], step.reads[arg.n_consts:]
    param_alignments, result_alignments = _alignments(alignment,
                                                      [*map(_full_view, (*consts, *finals))],
                                                      [*map(_full_view, finals)])
    blocks = block_of(body, param_alignments, result_alignments,
                      _carry_pairs(arg.n_consts, finals)), \
        block_of(test, param_alignments, (ALIGNMENT,), ())
    pairs = _double_buffers(blocks[0], finals)
    for init, final in zip(inits, finals):
        yield from _copy_to(init, final)
    yield LoopLaunch(accessors.loop_body_name(step.node), None, blocks[0],
                     (*map(_full_view, consts), *[_swap_view(a, b) for a, b in pairs]),
                     tuple([_swap_view(b, a) for a, b in pairs]),
                     _workspace(max(b.arena for b in blocks)), blocks[1], _workspace(1),
                     locs=step.node.locs)
    for a, b in pairs:
        if a is not b:
            yield from _copy_to(a, a, _swap_view(a, b))


def _cond(step: ControlFlowStep, block_of: LowerBody,
          alignment: GetAlignment) -> Iterator[ControlFlowLaunch]:
    """Lower a COND. A parameter that all branches update in place is first copied to the result
    and updated there."""
    node, (selector, *operands) = step.node, step.reads
    param_alignments, result_alignments = _alignments(alignment, [*map(_full_view, operands)],
                                                      [*map(_full_view, step.writes)])
    branches = node.src[:node.arg.n_branches]
    carried = _in_place_updates(branches)
    while True:
        blocks = [block_of(b, param_alignments, result_alignments, carried) for b in branches]
        remaining = tuple([pair for pair in carried
                           if all(b.results[pair[0]] == ("in", pair[1]) for b in blocks)])
        if remaining == carried:
            break
        carried = remaining
    for result, slot in carried:
        yield from _copy_to(operands[slot], step.writes[result])
        operands[slot] = step.writes[result]
    yield BranchLaunch(node.arg.name, selector, tuple(blocks), tuple(operands),
                       step.writes, _workspace(max(b.arena for b in blocks)), locs=node.locs)


def _call(step: ControlFlowStep, block_of: LowerBody,
          alignment: GetAlignment) -> Iterator[ControlFlowLaunch]:
    param_alignments, result_alignments = _alignments(alignment, [*map(_full_view, step.reads)],
                                                      [*map(_full_view, step.writes)])
    block = block_of(step.node.src[0], param_alignments, result_alignments, ())
    yield CallLaunch(block, step.reads, step.writes, _workspace(block.arena))


_EXPAND: dict[ops.Op,
              Callable[[ControlFlowStep, LowerBody, GetAlignment], Iterator[ControlFlowLaunch]]] = {
    ops.CALL: _call, ops.SCAN: _scan, ops.WHILE: _while, ops.COND: _cond}


# ---- memory -------------------------------------------------------------------------------------


def _carry_pairs(first: int, finals: Sequence[UOp]) -> CarriedPairs:
    """Pair each carry with its parameter: all may be updated in place."""
    return tuple([(k, first + k) for k in range(len(finals))])


def _double_buffers(block: Block, finals: Sequence[UOp]) -> list[tuple[UOp, UOp]]:
    """Return the result and the second buffer of each carry; equal if it is updated in place."""
    return [(c, c if block.results[k][0] == "in" else _buffer_like(c))
            for k, c in enumerate(finals)]


def _in_place_updates(branches: Sequence[UOp]) -> CarriedPairs:
    """Return the (result, parameter) pairs in which all branches partially update the parameter."""
    pairs: dict[int, int] = {}
    for result in range(len(branches[0].src)):
        sources = {updated_parameter(b.src[result]) for b in branches}
        slot = sources.pop()
        if not sources and slot is not None and slot not in pairs.values():
            pairs[result] = slot
    return tuple(pairs.items())


def _row_view(buffer: UOp, length: int, reverse: bool) -> View:
    """Return a row of xs or ys that advances with each iteration, whatever the buffer's shape."""
    nbytes = math.prod(buffer.shape) * buffer.dtype.itemsize // max(length, 1)
    return View(buffer, nbytes, (length - 1) * nbytes, -nbytes) if reverse else \
        View(buffer, nbytes, 0, nbytes)


def _full_view(node: UOp) -> View:
    return View(node, size_of(node))


def _swap_view(even_node: UOp, odd_node: UOp) -> View:
    return View(even_node, size_of(even_node), odd=None if odd_node is even_node else odd_node)


def _buffer_like(node: UOp) -> UOp:
    """Return another buffer of this dtype and shape."""
    return UOp(ops.BUFFER, node.dtype, (), op_args.Buffer(object(), node.shape))


def _workspace(nbytes: int) -> UOp:
    """Return ``nbytes`` bytes of temporary memory."""
    return UOp(ops.BUFFER, dtypes.bool_, (), op_args.Buffer(object(), (nbytes,)))


def _copy_to(source: UOp, to: UOp, read: LaunchOperand | None = None) -> Iterator[KernelStep]:
    if math.prod(to.shape):
        yield copy_step(source if read is None else read, source, to)


def _alignments(get_alignment: GetAlignment, *sides: Sequence[View]) -> list[tuple[int, ...]]:
    return [tuple([view.alignment(get_alignment) for view in side]) for side in sides]
