"""Interleaved groups: vectorize neighboring STOREs whose lanes have the same stride.

    o[l, 0] = a[l]   o[l, 1] = b[l]   o[l, 2] = c[l]   o[l, 3] = d[l]      rows of 20, l VEC 4

    a0 a1 a2 a3        a0 b0 c0 d0        written at o[0, 0]
    b0 b1 b2 b3   ->   a1 b1 c1 d1                   o[1, 0]
    c0 c1 c2 c3        a2 b2 c2 d2                   o[2, 0]
    d0 d1 d2 d3        a3 b3 c3 d3                   o[3, 0]

A block has a power of two of columns: as many as there are lanes. A last, smaller block ends with
the last column, so some columns may be written twice, with the same value. If there are few columns
and they fill the stride, they are interleaved instead (program/interleaved.py). Without this, each
element would be a store of its own, in a scatter.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fnx.core import build, ops, parts
from fnx.core.record import Record
from fnx.core.uop import UOp, substitute, toposort
from fnx.lower.program import interleaved, stores
from fnx.lower.program.builder import Lines
from fnx.lower.program.roles import Instance
from fnx.lower.program.streamed import LINE, is_line
from fnx.lower.program.transpose import can_transpose, transpose
from fnx.lower.program.values import FALSE, Values


class Column(Record):
    """One instance of a STORE."""

    store: UOp
    instance: Instance


def collect(values: Values, nodes: Sequence[UOp]) -> list[stores.Write]:
    """Collect all instances of neighboring STOREs, like ``stores.collect`` of each."""
    out: list[stores.Write] = []
    of_slot: dict[int, list[UOp]] = {}
    for node in nodes:
        of_slot.setdefault(parts.buffer(node).arg.slot, []).append(node)
    for beside in of_slot.values():
        are_columns = len(beside) > 1 and _may_be_columns(values, beside)
        columns = _columns(values, beside) if are_columns else {}
        runs = list(_runs(columns))
        if any(len(run) > 1 for run in runs):
            out += [w for run in runs for w in _run(values, [columns[i] for i in run])]
        else:
            out += [w for node in beside for w in stores.collect(values, node)]
    return out


def _may_be_columns(values: Values, nodes: Sequence[UOp]) -> bool:
    """Return whether all STOREs have one stride and one condition."""
    first = values.replication[nodes[0].ranges]
    lane, strides = first.lane, set[int | None]()
    if lane is None or not can_transpose(first.lanes):
        return False
    for node in nodes:
        place, _, *valid = node.src
        if values.replication[node.ranges].lane is not lane or node.arg is not None \
                or tuple(valid) != nodes[0].src[2:] \
                or any(n.op is ops.STAGE for n in toposort([*place.src[1:], *valid])):
            return False
        strides.add(values.addresses.offset(place, lane).stride)
    stride, = strides if len(strides) == 1 else [None]
    return stride is not None and stride > 1


def _columns(values: Values, nodes: Sequence[UOp]) -> dict[int, Column]:
    """Return the instances by constant offset; empty if offsets differ by non-constants."""
    found: dict[int, Column] = {}
    moving: Any = None
    for node in nodes:
        replicas = values.replication[node.ranges]
        offset = values.addresses.offset(parts.place(node), replicas.lane)
        for instance in replicas.instances():
            rest, at = _rest(offset.common, instance), offset.constant
            at += rest.pop((), 0)
            if rest != (rest if moving is None else moving) or at in found:
                return {}
            moving, found[at] = rest, Column(node, instance)
    return found


def _rest(terms: Any, at: Instance) -> dict[Any, int]:
    """Substitute the instance into terms; the constant part has the key ()."""
    out: dict[Any, int] = {}
    for monomial, c in terms.items():
        left = tuple([a for a in monomial if a not in at])
        out[left] = out.get(left, 0) + c * math.prod([at[a] for a in monomial if a in at])
    return out


def _runs(places: Iterable[int]) -> Iterator[list[int]]:
    """Yield runs of consecutive offsets."""
    run: list[int] = []
    for i in sorted(places):
        if run and i != run[-1] + 1:
            yield run
            run = []
        run.append(i)
    if run:
        yield run


def _run(values: Values, columns: Sequence[Column]) -> Iterator[stores.Write]:
    """Yield the writes of a run of columns."""
    first = columns[0]
    _, lane, lanes = values.replication[first.store.ranges]
    stride = values.addresses.offset(parts.place(first.store), lane).stride
    assert lane is not None and stride is not None
    lines, valid = values.lines, values.conditions.untested(first.store.src[2:])
    if len(columns) == 1 or any(c.instance[r] != i for r, i in first.instance.items()
                                for c in columns if any(r in v.ranges for v in valid)):
        for c in columns:
            yield from stores.instance(values, c.store, c.instance, lane)
        return
    condition, mask = values.masks(first.store.src[2:], first.instance)
    if condition is FALSE:
        return
    vectors = [lines.widen(values.value(parts.value(c.store), c.instance), lanes) for c in columns]
    if len(columns) == stride <= interleaved.MOST \
            and parts.place(first.store).dtype.itemsize >= lines.permuted:
        for i, vector in enumerate(interleaved.together(lines, vectors)):
            own = None if mask is None else interleaved.mask_of(lines, mask, stride, i)
            yield _write(values, first, lane, i * lanes, vector, condition, own)
        return
    made = [(columns[start], rows(lines, vectors[start:start + count]))
            for start, count in blocks(len(columns), lanes)]
    row = build.range_(lanes, lane.arg.id, "UNROLL")
    own_valid = substitute(valid, {lane: row})
    for i in range(lanes):
        condition, _ = values.masks(own_valid, {**first.instance, row: i})
        for column, turned in made if condition is not FALSE else ():
            yield _write(values, column, lane, i * stride, turned[i], condition, None)


def _write(values: Values, column: Column, lane: UOp, shift: int, vector: UOp,
           condition: UOp | None, mask: UOp | None) -> stores.Write:
    """Return the write of a vector, ``shift`` elements after the first lane of a column."""
    address = values.addresses.neighbours(parts.place(column.store), lane, column.instance, shift,
                                          vector.dtype.lanes)
    streams = mask is None and stores.streams(values, column.store) and \
        is_line(address, vector, LINE)
    return stores.Write(address, vector, condition, mask, None, streams)


def blocks(count: int, lanes: int) -> list[tuple[int, int]]:
    """Return (first, length) of the blocks of ``count`` >= 2 columns.

    >>> blocks(20, 16), blocks(63, 16)[-1], blocks(7, 16)
    ([(0, 16), (16, 4)], (47, 16), [(0, 4), (3, 4)])
    """
    out = [(i, lanes) for i in range(0, count - lanes + 1, lanes)]
    left = count - len(out) * lanes
    size = max(2, 1 << (left - 1).bit_length())
    if left and size <= count:
        out.append((count - size, size))
    elif left:
        out += [(0, size // 2), (count - size // 2, size // 2)]
    return out


def rows(lines: Lines, columns: Sequence[UOp]) -> list[UOp]:
    """Return the rows: for each lane, that lane of all columns."""
    count, lanes = len(columns), columns[0].dtype.lanes
    if count == lanes:
        return transpose(lines, columns)
    low = tuple([x for i in range(lanes // 2) for x in (i, lanes + i)])
    high = tuple([x + lanes // 2 for x in low])
    vectors = list(columns)
    for _ in range(count.bit_length() - 1):
        vectors = [lines.add(ops.SHUFFLE, a.dtype, (a, b), order)
                   for a, b in zip(vectors[:count // 2], vectors[count // 2:])
                   for order in (low, high)]
    return [lines.lanes(v, i, count) for v in vectors for i in range(0, lanes, count)]
