"""Vectorize neighboring scalar loads and stores of a GPU thread.

    before  a = LOAD ADDRESS(p, 0) align 16        after   v = LOAD ADDRESS(p, 0) align 16
            b = LOAD ADDRESS(p, 1)                         a = EXTRACT v 0
            c = LOAD ADDRESS(p, 2)                         ...
            d = LOAD ADDRESS(p, 3)                         d = EXTRACT v 3
            STORE ADDRESS(q, 4) a    align 16              STORE ADDRESS(q, 4) VECTOR(a, b)
            STORE ADDRESS(q, 5) b

Accesses are merged if their addresses are consecutive constant offsets from one pointer and the
first one is aligned for the whole vector; strides and alignment are recorded in the ADDRESS
(emit/addresses.py). Loads may share one scalar mask. Loads move up to the first of a group,
stores down to the last, within a basic block (ASYNC_WAIT ends one); loads do not move across
stores, nor stores across loads. The target limits the vector length.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import base_pointer
from fnx.core.ir.uop import UOp
from fnx.core.support.target import Target
from fnx.lower.emit.shared_memory import ASYNC

_BLOCK_ENDS = frozenset({ops.FOR, ops.PHI, ops.ENDFOR, ops.LOOP_RESULT, ops.BREAK, ops.IF,
                         ops.ENDIF, ops.SYNC, ops.ASYNC_WAIT})
_Location = tuple[tuple[UOp, ...], int]  # (pointer, masks), offset in elements


def vectorize_accesses(program: UOp, target: Target) -> UOp:
    """Return the PROGRAM with neighboring scalar accesses merged into vectors.

    >>> from fnx.core.ir import kernel_args
    >>> x, o = (UOp(ops.REF, dtypes.float32, (), kernel_args.Ref(s)) for s in (0, 1))
    >>> def at(ref, i):
    ...     aligned = 64 if i == 0 else 4
    ...     return UOp(ops.ADDRESS, dtypes.float32, (ref, build.index_const(i)), aligned)
    >>> def copied(i):
    ...     read = UOp(ops.LOAD, dtypes.float32, (at(x, i),))
    ...     return at(x, i), read, at(o, i), UOp(ops.STORE, dtypes.void, (at(o, i), read))
    >>> lines = tuple(line for i in (0, 1) for line in copied(i))
    >>> lines = (*lines[:3], *lines[4:7], lines[3], lines[7])
    >>> made = vectorize_accesses(UOp(ops.PROGRAM, dtypes.void, lines),
    ...                           Target("gpu", vector_bits=128))
    >>> [line.op for line in made.src if line.op is not ops.ADDRESS]
    [LOAD, EXTRACT, EXTRACT, VECTOR, STORE]
    """
    out: list[UOp] = []
    new: dict[UOp, UOp] = {}
    for block in _basic_blocks(program.src):
        if block[0].op in _BLOCK_ENDS:
            out.append(_rewrite(block[0], new))
            continue
        loaded = [line for segment in _segments(block, ops.STORE)
                  for line in _merge_loads(segment, target, new)]
        out += [line for segment in _segments(loaded, ops.LOAD)
                for line in _merge_stores(segment, target)]
    return program.replace(src=drop_unused(out, {ops.ADDRESS}))


def _basic_blocks(lines: Sequence[UOp]) -> Iterator[list[UOp]]:
    """Split lines into basic blocks; a control-flow line is a block of its own."""
    block: list[UOp] = []
    for line in lines:
        if line.op in _BLOCK_ENDS:
            if block:
                yield block
            yield [line]
            block = []
        else:
            block.append(line)
    if block:
        yield block


def _rewrite(line: UOp, new: dict[UOp, UOp]) -> UOp:
    """Return a line over the replacements of its operands."""
    new_line = line.with_operands(tuple([new.get(s, s) for s in line.src]))
    if new_line is line:
        new.pop(line, None)  # a load that is repeated after a store
    else:
        new[line] = new_line
    return new_line


def _location(line: UOp) -> _Location | None:
    """Return a scalar access as a constant offset from a pointer, or None."""
    masks = line.src[2:] if line.op is ops.STORE else line.src[1:]
    value = line.src[1] if line.op is ops.STORE else line
    pointer, offset = line.src[0].src
    masked_store = masks and line.op is ops.STORE
    if masked_store or value.dtype.lanes > 1 or value.dtype.is_bool \
            or line.arg not in (None, ASYNC) or offset.op is not ops.CONST:
        return None
    return (pointer, *masks), int(build.const_of(offset))


def _find_vectors(accesses: dict[_Location, UOp], target: Target) -> Iterator[list[UOp]]:
    """Yield groups of accesses that form a vector: the longest that alignment allows."""
    in_order = sorted(accesses.items(), key=lambda item: item[0][1])
    for (pointer, start), first in in_order:
        if (pointer, start) not in accesses:
            continue
        address = first.src[0]
        lanes = target.vector_lanes(address.dtype.itemsize)
        while lanes > 1:
            block = [accesses.get((pointer, start + i)) for i in range(lanes)]
            present = [b for b in block if b is not None]
            if len(present) == lanes and address.arg >= lanes * address.dtype.itemsize and \
                    all(b.src[0].dtype is address.dtype for b in present):
                for i in range(lanes):
                    del accesses[pointer, start + i]
                yield present
                break
            lanes //= 2


def _vector_address(first: UOp, lanes: int) -> UOp:
    address = first.src[0]
    return address.replace(dtype=address.dtype.vec(lanes))


def _segments(block: Sequence[UOp], end: ops.Op) -> Iterator[list[UOp]]:
    """Split a block behind each line of an op."""
    segment: list[UOp] = []
    for line in block:
        segment.append(line)
        if line.op is end:
            yield segment
            segment = []
    yield segment


def _merge_loads(segment: list[UOp], target: Target, new: dict[UOp, UOp]) -> list[UOp]:
    """Merge the loads between two stores."""
    accesses = {location: line for line in segment
                if line.op is ops.LOAD and (location := _location(line)) is not None}
    block_of = {line: block for block in _find_vectors(accesses, target) for line in block}
    done: dict[UOp, UOp] = {}
    out = []
    for line in segment:
        block = block_of.get(line)
        if block is None:
            out.append(_rewrite(line, new))
            continue
        vector = done.get(block[0])
        if vector is None:
            address = _rewrite(_vector_address(block[0], len(block)), new)
            masks = [UOp(ops.SPLAT, dtypes.bool_.vec(len(block)), (new.get(m, m),))
                     for m in line.src[1:]]
            vector = UOp(ops.LOAD, line.dtype.vec(len(block)), (address, *masks))
            done[block[0]] = vector
            out += [address, *masks, vector]
        new[line] = UOp(ops.EXTRACT, line.dtype, (vector,), block.index(line))
        out.append(new[line])
    return out


def _merge_stores(segment: list[UOp], target: Target) -> list[UOp]:
    """Merge stores with no load between them."""
    stores = [line for line in segment if line.op is ops.STORE]
    accesses = {location: line for line in stores if (location := _location(line)) is not None}
    no_alias = len(accesses) == len(stores) and len({base_pointer(p[0]) for p, _ in accesses}) == \
        len({p for p, _ in accesses})  # two pointers into one buffer may alias
    blocks = list(_find_vectors(dict(accesses), target)) if no_alias else []
    last = {max(block, key=segment.index): block for block in blocks}
    merged = {line for block in blocks for line in block}
    out = []
    for line in segment:
        if line in last:
            block = last[line]
            value = line.src[1].dtype
            address = _vector_address(block[0], len(block))
            packed = UOp(ops.VECTOR, value.vec(len(block)), tuple([b.src[1] for b in block]))
            out += [address, packed, UOp(ops.STORE, dtypes.void, (address, packed), line.arg)]
        elif line not in merged:
            out.append(line)
    return out


def drop_unused(lines: Sequence[UOp], droppable: Container[ops.Op]) -> tuple[UOp, ...]:
    """Drop the lines of some ops that are not used any more."""
    used: set[UOp] = set()
    remaining = []
    for line in reversed(lines):
        if line.op not in droppable or line in used:
            remaining.append(line)
            used.update(line.src)
    return tuple(reversed(remaining))
