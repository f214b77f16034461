"""Replace masked stores, which are slow without mask registers, by stores of parts of vectors.

    before  STORE a, v, mask of 5 of 8 lanes    after  STORE a, SHUFFLE v 0..3
                                                       STORE a + 4, EXTRACT v 4

    before  m = LANE_MASK n                     after  IF 8 <= n
            STORE a, v, m                                STORE a, v
                                                       ENDIF
                                                       IF n < 8 AND 0 < n
                                                         STORE a, v, m
                                                       ENDIF

A masked store of AVX2 takes as long as six to ten whole ones on AMD's processors (measured: 6 ns in
a cache, 11 ns beyond it, to 1 ns; Zen 2 to 4 run it by microcode), and elsewhere it is a branch for
each lane. Tails of rows are known when they are compiled; n is known only at run time in programs
for matrices, transforms and dimensions of any length, where all vectors but the last are whole.

Mask registers make such a store cheap, yet a load of the bytes after its last lane, which the store
spans, waits until it has reached the cache. Rows updated in place load the next row there: 200 x
200, ``q - 2 * outer(q @ v, v)``, takes 6.4 us with masked tails of 8 of 16 lanes and 3.5 without
(Zen 4). So lanes known when compiled are stored as one or two parts there, too.

>>> from fnx.core.ir import kernel_args
>>> n = build.var(0, dtypes.index)
>>> ref = UOp(ops.REF, dtypes.float32, (), kernel_args.Ref(0))
>>> o = UOp(ops.ADDRESS, dtypes.float32.vec(8), (ref, build.index_const(0)), 4)
>>> ones = UOp(ops.SPLAT, dtypes.float32.vec(8), (build.const(1, dtypes.float32),))
>>> for count in (n, build.index_const(5)):
...     mask = UOp(ops.LANE_MASK, dtypes.bool_.vec(8), (count,))
...     lines = o, ones, mask, UOp(ops.STORE, dtypes.void, (o, ones, mask))
...     program = UOp(ops.PROGRAM, dtypes.void, lines)
...     out = split_masked_stores(program, Target("cpu", vector_bits=256))
...     print(*[line.op.name for line in out.src[3:]])
CMPLE IF STORE ENDIF CMPLT CMPLT AND IF STORE ENDIF
ADDRESS SHUFFLE ADDRESS STORE EXTRACT ADDRESS STORE
>>> wide = Target("cpu", vector_bits=512)
>>> print(*[line.op.name for line in split_masked_stores(program, wide).src[3:]])
ADDRESS SHUFFLE ADDRESS STORE EXTRACT ADDRESS STORE
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.support.target import Target
from fnx.lower.analysis.active_lanes import active_lanes

_PURE = ops.ELEMENTWISE | {ops.ADDRESS, ops.SPLAT, ops.SHUFFLE, ops.EXTRACT, ops.LANE_MASK}


def split_masked_stores(program: UOp, target: Target) -> UOp:
    """Return the PROGRAM without masked stores, except in branches for the last vectors, and of
    many parts where the target has mask registers."""
    if target.kind != "host" or not any(map(_is_masked, program.src)):
        return program
    lines = _known_parts(program.src) if target.has_mask_registers else _lines(program.src)
    return program.replace(src=tuple(_defined_once(lines)))


def _defined_once(lines: Iterable[UOp]) -> Iterator[UOp]:
    """Yield lines without those that an open loop or branch has already: what follows it would
    read the inner one."""
    scopes: list[set[UOp]] = [set()]
    for line in lines:
        if line.op in (ops.ENDFOR, ops.ENDIF):
            scopes.pop()
        if line.op not in _PURE or not any(line in scope for scope in scopes):
            scopes[-1].add(line)
            yield line
        if line.op in (ops.FOR, ops.IF):
            scopes.append(set())


def _is_masked(line: UOp) -> bool:
    """Whether a line stores some lanes of a vector, next to each other in memory."""
    return line.op is ops.STORE and len(line.src) == 3 and line.src[1].dtype.lanes > 1 and \
        line.src[0].src[1].dtype.lanes == 1


def _neighbors(line: UOp) -> Sequence[int] | None:
    """Return the lanes that a masked store stores, if they are known and follow each other."""
    active = active_lanes(line.src[2]) if _is_masked(line) else None
    return None if active and active[-1] - active[0] >= len(active) else active


def _is_cut_at_run_time(line: UOp) -> bool:
    """Whether a line stores the first lanes of a vector, and how many is not known."""
    return _is_masked(line) and line.src[2].op is ops.LANE_MASK and \
        line.src[2].src[0].op is not ops.CONST


def _lines(lines: Sequence[UOp]) -> Iterator[UOp]:
    number = max((line.arg for line in lines if line.op in (ops.FOR, ops.IF)), default=0)
    waiting: list[UOp] = []  # stores of one mask, which share branches
    for line in lines:
        is_cut = _is_cut_at_run_time(line)
        if waiting and (line.src[2] is not waiting[0].src[2] if is_cut else
                        line.op not in _PURE):
            yield from _branches(waiting, number)
            number, waiting = number + 2, []
        if is_cut:
            waiting.append(line)
            continue
        active = _neighbors(line)
        yield from (line,) if active is None else _parts(line, active)
    yield from _branches(waiting, number) if waiting else ()


def _known_parts(lines: Sequence[UOp]) -> Iterator[UOp]:
    """Yield lines with masked stores in one or two parts where the lanes are known."""
    for line in lines:
        active = _neighbors(line)
        if active is None or len(active).bit_count() > 2:
            yield line
        else:
            yield from _parts(line, active)


def _parts(store: UOp, active: Sequence[int]) -> Iterator[UOp]:
    """Yield stores of neighboring lanes, powers of two of them."""
    address, value, _ = store.src
    element, t = address.dtype.scalar, value.dtype.scalar
    start = UOp(ops.ADDRESS, element, address.src, address.arg)
    yield start
    while active:
        lanes = 1 << len(active).bit_length() - 1
        at = active[0]
        if lanes == 1:
            part = UOp(ops.EXTRACT, t, (value,), at)
        elif lanes == value.dtype.lanes:
            part = value
        else:
            part = UOp(ops.SHUFFLE, t.vec(lanes), (value, value), tuple(active[:lanes]))
        destination = UOp(ops.ADDRESS, element.vec(lanes) if lanes > 1 else element,
                          (start, build.index_const(at)),
                          math.gcd(address.arg, at * element.itemsize))
        yield from (part, destination) if part is not value else (destination,)
        yield UOp(ops.STORE, dtypes.void, (destination, part), store.arg)
        active = active[lanes:]


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
