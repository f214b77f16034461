"""Interleaved groups: vectorize neighboring STOREs whose lanes have the same stride.

    o[l, 0] = a[l]   o[l, 1] = b[l]   o[l, 2] = c[l]   o[l, 3] = d[l]      rows of 20, l VEC 4

    a0 a1 a2 a3        a0 b0 c0 d0        written at o[0, 0]
    b0 b1 b2 b3   ->   a1 b1 c1 d1                   o[1, 0]
    c0 c1 c2 c3        a2 b2 c2 d2                   o[2, 0]
    d0 d1 d2 d3        a3 b3 c3 d3                   o[3, 0]

A block has a power of two of columns: as many as there are lanes. A last, smaller block ends with
the last column, so some columns may be written twice, with the same value. If there are few columns
and they fill the stride, they are interleaved instead (emit/shuffles.py). Without this, each
element would be a store of its own, in a scatter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.support.record import Record
from fnx.lower.emit import shuffles, stores
from fnx.lower.emit.addresses import substitute_instance
from fnx.lower.emit.builder import ProgramBuilder
from fnx.lower.emit.expansion import Instance
from fnx.lower.emit.shuffles import can_transpose, transpose
from fnx.lower.emit.stores import CACHE_LINE, fits_line
from fnx.lower.emit.values import FALSE, Values


class Column(Record):
    """One instance of a STORE."""

    store: UOp
    instance: Instance


def collect(values: Values, nodes: Sequence[UOp]) -> list[stores.Write]:
    """Collect all instances of neighboring STOREs, like ``stores.collect`` of each."""
    out: list[stores.Write] = []
    stores_by_slot: dict[int, list[UOp]] = {}
    for node in nodes:
        stores_by_slot.setdefault(accessors.buffer(node).arg.slot, []).append(node)
    for neighbors in stores_by_slot.values():
        are_columns = len(neighbors) > 1 and _can_interleave(values, neighbors)
        columns = _columns_by_offset(values, neighbors) if are_columns else {}
        runs = list(_consecutive_runs(columns))
        if any(len(run) > 1 for run in runs):
            out += [w for run in runs for w in _run_writes(values, [columns[i] for i in run])]
        else:
            out += [w for node in neighbors for w in stores.collect(values, node)]
    return out


def _can_interleave(values: Values, nodes: Sequence[UOp]) -> bool:
    """Return whether all STOREs have one stride and one condition."""
    first = values.expansions[nodes[0].ranges]
    lane, strides = first.lane, set[int | None]()
    if lane is None or not can_transpose(first.lanes):
        return False
    for node in nodes:
        index, _, *valid = node.src
        if values.expansions[node.ranges].lane is not lane or node.arg is not None \
                or tuple(valid) != nodes[0].src[2:] \
                or any(n.op is ops.STAGE for n in toposort([*index.src[1:], *valid])):
            return False
        strides.add(values.addresses.offset(index, lane).stride)
    stride, = strides if len(strides) == 1 else [None]
    return stride is not None and stride > 1


def _columns_by_offset(values: Values, nodes: Sequence[UOp]) -> dict[int, Column]:
    """Return the instances by constant offset; empty if offsets differ by non-constants."""
    columns: dict[int, Column] = {}
    common: Any = None
    for node in nodes:
        replicas = values.expansions[node.ranges]
        offset = values.addresses.offset(accessors.index_node(node), replicas.lane)
        for instance in replicas.instances():
            terms, offset_constant = substitute_instance(offset.common, instance), offset.constant
            offset_constant += terms.pop((), 0)
            if terms != (terms if common is None else common) or offset_constant in columns:
                return {}
            common, columns[offset_constant] = terms, Column(node, instance)
    return columns


def _consecutive_runs(offsets: Iterable[int]) -> Iterator[list[int]]:
    """Yield runs of consecutive offsets."""
    run: list[int] = []
    for i in sorted(offsets):
        if run and i != run[-1] + 1:
            yield run
            run = []
        run.append(i)
    if run:
        yield run


def _run_writes(values: Values, columns: Sequence[Column]) -> Iterator[stores.Write]:
    """Yield the writes of a run of columns."""
    first = columns[0]
    _, lane, lanes = values.expansions[first.store.ranges]
    stride = values.addresses.offset(accessors.index_node(first.store), lane).stride
    assert lane is not None and stride is not None
    lines, valid = values.lines, values.conditions.unproven(first.store.src[2:])
    if len(columns) == 1 or any(c.instance[r] != i for r, i in first.instance.items()
                                for c in columns if any(r in v.ranges for v in valid)):
        for c in columns:
            yield from stores.expand_store(values, c.store, c.instance, lane)
        return
    condition, mask = values.masks(first.store.src[2:], first.instance)
    if condition is FALSE:
        return
    vectors = [lines.widen(values.value(accessors.value(c.store), c.instance), lanes)
               for c in columns]
    if len(columns) == stride <= shuffles.MAX_STRIDE \
            and accessors.index_node(first.store).dtype.itemsize >= lines.permuted:
        for i, vector in enumerate(shuffles.interleave(lines, vectors)):
            lane_mask = None if mask is None else shuffles.vector_mask(lines, mask, stride, i)
            yield _column_write(values, first, lane, i * lanes, vector, condition, lane_mask)
        return
    blocks_of_rows = [(columns[start], transpose_columns(lines, vectors[start:start + count]))
                      for start, count in column_blocks(len(columns), lanes)]
    row = build.range_(lanes, lane.arg.id, "UNROLL")
    row_valid = substitute(valid, {lane: row})
    for i in range(lanes):
        condition, _ = values.masks(row_valid, {**first.instance, row: i})
        for column, block_rows in blocks_of_rows if condition is not FALSE else ():
            yield _column_write(values, column, lane, i * stride, block_rows[i], condition, None)


def _column_write(values: Values, column: Column, lane: UOp, shift: int, vector: UOp,
                  condition: UOp | None, mask: UOp | None) -> stores.Write:
    """Return the write of a vector, ``shift`` elements after the first lane of a column."""
    address = values.addresses.contiguous(accessors.index_node(column.store), lane, column.instance,
                                          shift, vector.dtype.lanes)
    nontemporal = mask is None and stores.is_nontemporal(values, column.store) and \
        fits_line(address, vector, CACHE_LINE)
    return stores.Write(address, vector, condition, mask, None, nontemporal)


def column_blocks(count: int, lanes: int) -> list[tuple[int, int]]:
    """Return (first, length) of the blocks of ``count`` >= 2 columns.

    >>> column_blocks(20, 16), column_blocks(63, 16)[-1], column_blocks(7, 16)
    ([(0, 16), (16, 4)], (47, 16), [(0, 4), (3, 4)])
    """
    out = [(i, lanes) for i in range(0, count - lanes + 1, lanes)]
    remaining = count - len(out) * lanes
    size = max(2, 1 << (remaining - 1).bit_length())
    if remaining and size <= count:
        out.append((count - size, size))
    elif remaining:
        out += [(0, size // 2), (count - size // 2, size // 2)]
    return out


def transpose_columns(lines: ProgramBuilder, columns: Sequence[UOp]) -> list[UOp]:
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
