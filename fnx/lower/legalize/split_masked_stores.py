"""Store whole vectors unmasked, and the first lanes of a last one by a masked store.

    before  m = LANE_MASK n                     after  IF 8 <= n
            STORE a, v, m                                STORE a, v
                                                       ENDIF
                                                       IF n < 8 AND 0 < n
                                                         STORE a, v, m
                                                       ENDIF

Without mask registers a masked store takes as long as six to ten whole ones on AMD's processors
(measured: 6 ns in a cache, 11 ns beyond it, to 1 ns; Zen 2 to 4 run AVX2's by microcode), and as a
branch for each lane where there is none. Loops know most tails when they are compiled; n is known
only at run time in programs for matrices, transforms and dimensions of any length.

>>> from fnx.core.ir import dtypes, op_args
>>> n = build.var(0, dtypes.index)
>>> mask = UOp(ops.LANE_MASK, dtypes.bool_.vec(8), (n,))
>>> o = UOp(ops.ADDRESS, dtypes.float32.vec(8), (UOp(ops.REF, dtypes.float32, (), op_args.Ref(0)),
...                                              build.index_const(0)), 4)
>>> ones = UOp(ops.SPLAT, dtypes.float32.vec(8), (build.const(1, dtypes.float32),))
>>> lines = o, ones, mask, UOp(ops.STORE, dtypes.void, (o, ones, mask))
>>> program = UOp(ops.PROGRAM, dtypes.void, lines)
>>> out = split_masked_stores(program, Target("cpu", vector_bits=256))
>>> [line.op for line in out.src[3:]]
[CMPLE, IF, STORE, ENDIF, CMPLT, CMPLT, AND, IF, STORE, ENDIF]
>>> split_masked_stores(program, Target("cpu", vector_bits=512)) is program
True
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.support.target import Target

_PURE = ops.ELEMENTWISE | {ops.ADDRESS, ops.SPLAT, ops.SHUFFLE, ops.EXTRACT, ops.LANE_MASK}


def split_masked_stores(program: UOp, target: Target) -> UOp:
    """Return the PROGRAM with whole stores in branches; stores of one mask share a branch."""
    if target.kind != "host" or target.has_mask_registers or \
            not any(map(_is_cut_at_run_time, program.src)):
        return program
    return program.replace(src=tuple(_lines(program.src)))


def _is_cut_at_run_time(line: UOp) -> bool:
    """Whether a line stores the first lanes of a vector, and how many is not known."""
    return line.op is ops.STORE and len(line.src) == 3 and line.src[2].op is ops.LANE_MASK and \
        line.src[2].src[0].op is not ops.CONST


def _lines(lines: Sequence[UOp]) -> Iterator[UOp]:
    number = max((line.arg for line in lines if line.op in (ops.FOR, ops.IF)), default=0)
    waiting: list[UOp] = []  # stores of one mask
    for line in lines:
        is_cut = _is_cut_at_run_time(line)
        if waiting and (line.src[2] is not waiting[0].src[2] if is_cut else
                        line.op not in _PURE):
            yield from _branches(waiting, number)
            number, waiting = number + 2, []
        if is_cut:
            waiting.append(line)
        else:
            yield line
    yield from _branches(waiting, number) if waiting else ()


def _branches(stores: Sequence[UOp], number: int) -> Iterator[UOp]:
    """Yield both branches, whose numbers follow the one given."""
    mask = stores[0].src[2]
    count, lanes = mask.src[0], build.index_const(mask.dtype.lanes)
    is_whole, is_part, is_any = (UOp(op, dtypes.bool_, order) for op, order in (
        (ops.CMPLE, (lanes, count)), (ops.CMPLT, (count, lanes)),
        (ops.CMPLT, (build.index_const(0), count))))
    both = UOp(ops.AND, dtypes.bool_, (is_part, is_any))
    cases: tuple[tuple[tuple[UOp, ...], tuple[UOp, ...]], ...] = \
        ((is_whole,), ()), ((is_part, is_any, both), (mask,))
    for i, (conditions, masks) in enumerate(cases, number + 1):
        branch = UOp(ops.IF, dtypes.void, (conditions[-1],), i)
        yield from conditions
        yield branch
        for store in stores:
            yield UOp(ops.STORE, dtypes.void, (*store.src[:2], *masks), store.arg)
        yield UOp(ops.ENDIF, dtypes.void, (branch,))
