"""Vectorize neighboring scalar loads and stores of a GPU thread.

    before  a = LOAD ADDRESS(p, 0) align 16        after   v = LOAD ADDRESS(p, 0) align 16
            b = LOAD ADDRESS(p, 1)                         a = EXTRACT v 0
            c = LOAD ADDRESS(p, 2)                         ...
            d = LOAD ADDRESS(p, 3)                         d = EXTRACT v 3
            STORE ADDRESS(q, 4) a    align 16              STORE ADDRESS(q, 4) VECTOR(a, b)
            STORE ADDRESS(q, 5) b

Accesses are merged if their addresses are consecutive constant offsets from one pointer and the
first one is aligned for the whole vector; strides and alignment are recorded in the ADDRESS
(program/addresses.py). Loads may share one scalar mask. Loads move up to the first of a group,
stores down to the last, within a basic block (AWAIT ends one); loads do not move across stores, nor
stores across loads. The target limits the vector length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fnx.core import build, dtypes, ops
from fnx.core.target import Target
from fnx.core.uop import UOp
from fnx.lower.program.double_buffers import ASYNC

_BORDERS = frozenset({ops.FOR, ops.PHI, ops.ENDFOR, ops.LAST, ops.BREAK, ops.IF, ops.ENDIF,
                      ops.SYNC, ops.AWAIT})
_OfPointer = tuple[tuple[UOp, ...], int]  # (pointer, masks), offset in elements


def vectors(program: UOp, target: Target) -> UOp:
    """Return the PROGRAM with neighboring scalar accesses merged into vectors.

    >>> from fnx.core import op_args
    >>> x, o = (UOp(ops.REF, dtypes.float32, (), op_args.Ref(s)) for s in (0, 1))
    >>> def at(ref, i):
    ...     aligned = 64 if i == 0 else 4
    ...     return UOp(ops.ADDRESS, dtypes.float32, (ref, build.index_const(i)), aligned)
    >>> def copied(i):
    ...     read = UOp(ops.LOAD, dtypes.float32, (at(x, i),))
    ...     return at(x, i), read, at(o, i), UOp(ops.STORE, dtypes.void, (at(o, i), read))
    >>> lines = tuple(line for i in (0, 1) for line in copied(i))
    >>> lines = (*lines[:3], *lines[4:7], lines[3], lines[7])
    >>> made = vectors(UOp(ops.PROGRAM, dtypes.void, lines), Target("gpu", vector_bits=128))
    >>> [line.op for line in made.src if line.op is not ops.ADDRESS]
    [LOAD, EXTRACT, EXTRACT, VECTOR, STORE]
    """
    out: list[UOp] = []
    to: dict[UOp, UOp] = {}
    for run in _runs(program.src):
        out += _joined_stores(_joined_loads(run, target, to), target, to) \
            if run[0].op not in _BORDERS else [_over(run[0], to)]
    return program.replace(src=_needed(out))


def _runs(lines: Sequence[UOp]) -> Iterator[list[UOp]]:
    """Split lines into basic blocks; a control-flow line is a block of its own."""
    run: list[UOp] = []
    for line in lines:
        if line.op in _BORDERS:
            if run:
                yield run
            yield [line]
            run = []
        else:
            run.append(line)
    if run:
        yield run


def _over(line: UOp, to: dict[UOp, UOp]) -> UOp:
    """Return a line over the replacements of its operands."""
    made = line.over(tuple([to.get(s, s) for s in line.src]))
    if made is line:
        to.pop(line, None)  # a load that is repeated after a store
    else:
        to[line] = made
    return made


def _place(line: UOp) -> _OfPointer | None:
    """Return a scalar access as a constant offset from a pointer, or None."""
    masks = line.src[2:] if line.op is ops.STORE else line.src[1:]
    value = line.src[1] if line.op is ops.STORE else line
    pointer, offset = line.src[0].src
    masked_store = masks and line.op is ops.STORE
    if masked_store or value.dtype.lanes > 1 or value.dtype.is_bool \
            or line.arg not in (None, ASYNC) or offset.op is not ops.CONST:
        return None
    return (pointer, *masks), int(build.const_of(offset))


def _blocks(places: dict[_OfPointer, UOp], target: Target) -> Iterator[list[UOp]]:
    """Yield groups of accesses that form a vector: the longest that alignment allows."""
    in_order = sorted(places.items(), key=lambda item: item[0][1])
    for (pointer, start), first in in_order:
        if (pointer, start) not in places:
            continue
        address = first.src[0]
        lanes = target.lanes(address.dtype.itemsize)
        while lanes > 1:
            block = [places.get((pointer, start + i)) for i in range(lanes)]
            found = [b for b in block if b is not None]
            if len(found) == lanes and address.arg >= lanes * address.dtype.itemsize and \
                    all(b.src[0].dtype is address.dtype for b in found):
                for i in range(lanes):
                    del places[pointer, start + i]
                yield found
                break
            lanes //= 2


def _address(first: UOp, lanes: int) -> UOp:
    address = first.src[0]
    return address.replace(dtype=address.dtype.vec(lanes))


def _joined_loads(run: list[UOp], target: Target, to: dict[UOp, UOp]) -> list[UOp]:
    """Merge loads between stores."""
    out: list[UOp] = []
    part: list[UOp] = []
    for line in run:
        part.append(line)
        if line.op is ops.STORE:
            out += _loads(part, target, to)
            part = []
    return out + _loads(part, target, to)


def _loads(part: list[UOp], target: Target, to: dict[UOp, UOp]) -> list[UOp]:
    places = {place: line for line in part
              if line.op is ops.LOAD and (place := _place(line)) is not None}
    block_of = {line: block for block in _blocks(places, target) for line in block}
    done: dict[UOp, UOp] = {}
    out = []
    for line in part:
        block = block_of.get(line)
        if block is None:
            out.append(_over(line, to))
            continue
        vector = done.get(block[0])
        if vector is None:
            address = _over(_address(block[0], len(block)), to)
            masks = [UOp(ops.SPLAT, dtypes.bool_.vec(len(block)), (to.get(m, m),))
                     for m in line.src[1:]]
            vector = UOp(ops.LOAD, line.dtype.vec(len(block)), (address, *masks))
            done[block[0]] = vector
            out += [address, *masks, vector]
        to[line] = UOp(ops.EXTRACT, line.dtype, (vector,), block.index(line))
        out.append(to[line])
    return out


def _joined_stores(run: list[UOp], target: Target, to: dict[UOp, UOp]) -> list[UOp]:
    """Merge stores with no load between them."""
    out: list[UOp] = []
    part: list[UOp] = []
    for line in run:
        part.append(line)
        if line.op is ops.LOAD:
            out += _stores(part, target)
            part = []
    return out + _stores(part, target)


def _stores(part: list[UOp], target: Target) -> list[UOp]:
    stores = [line for line in part if line.op is ops.STORE]
    places = {place: line for line in stores if (place := _place(line)) is not None}
    apart = len(places) == len(stores) and len({_root(p[0]) for p, _ in places}) == \
        len({p for p, _ in places})  # two pointers into one buffer may alias
    blocks = list(_blocks(dict(places), target)) if apart else []
    last = {max(block, key=part.index): block for block in blocks}
    inside = {line for block in blocks for line in block}
    out = []
    for line in part:
        if line in last:
            block = last[line]
            value = line.src[1].dtype
            address = _address(block[0], len(block))
            packed = UOp(ops.VECTOR, value.vec(len(block)), tuple([b.src[1] for b in block]))
            out += [address, packed, UOp(ops.STORE, dtypes.void, (address, packed), line.arg)]
        elif line not in inside:
            out.append(line)
    return out


def _root(pointer: UOp) -> UOp:
    """Return the buffer that a pointer points into."""
    while pointer.op is ops.ADDRESS:
        pointer = pointer.src[0]
    return pointer


def _needed(lines: Sequence[UOp]) -> tuple[UOp, ...]:
    """Drop ADDRESSes that are not used any more."""
    used: set[UOp] = set()
    kept = []
    for line in reversed(lines):
        if line.op is not ops.ADDRESS or line in used:
            kept.append(line)
            used.update(line.src)
    return tuple(reversed(kept))
