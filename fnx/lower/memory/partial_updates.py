"""Rewrite a select over a donated or carried parameter as a SCATTER of the written block.

    before  out 0 = WHERE(PAD(True), PAD(v), x)        x is carried by a loop, or donated
    after   out 0 = SCATTER(x, 3 + IOTA(1), v)         x.at[:, 3].set(v): a column is written

If x is computed, the select is fused into that; if x stays live, all of it is copied anyway.
The cost is counted in cache lines: those of the block and of the values written there, compared
with those of the whole array.

>>> from fnx.core.ir import dtypes
>>> x, v = build.param(0, dtypes.float32, (64, 64)), build.param(1, dtypes.float32, (1, 64))
>>> mask = build.const(True, dtypes.bool_, (1, 64))
>>> there, values = (build.pad(n, [(3, 60), (0, 0)]) for n in (mask, v))
>>> fn = build.function([build.where(there, values, x)], 2)
>>> scatter_updates(fn, fn.src, [(0, 0)]).src[0].op
SCATTER
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.index_arrays import broadcast_indices, index_range
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp, rebuild
from fnx.core.rewriting.pattern import underlying_const

_LINE_BYTES = 64  # bytes of a cache line


def scatter_updates(fn: UOp, results: Sequence[UOp], carried: Iterable[tuple[int, int]]) -> UOp:
    """Rewrite the results that may overwrite a parameter to write only the changed blocks.

    Args:
        fn: a FUNCTION.
        results: its distinct results.
        carried: (result number, parameter slot) pairs.
    """
    selects: dict[UOp, UOp] = {}
    for result, slot in carried:
        base, writes = update_base(results[result])
        if base.op is ops.PARAM and base.arg.slot == slot:
            selects.update((node, node)
                           for node in writes if node.op is ops.WHERE and _is_profitable(node))
    if not selects:
        return fn

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return _to_scatter(node, src) if node in selects else None

    return fn.replace(src=tuple(rebuild(fn.src, visit)))


def update_base(node: UOp) -> tuple[UOp, list[UOp]]:
    """Return the base that a node updates, looking through loop carries, and the updates."""
    writes = []
    while True:
        if node.op is ops.GETTUPLE and node.arg < _carries(node.src[0]):
            node = accessors.operands(node.src[0])[node.src[0].arg.n_consts + node.arg]
        elif node.op in (ops.STOP_GRADIENT, ops.RESHAPE):
            node = node.src[0]
        elif node.op is ops.SCATTER or written_block(node) is not None:
            writes.append(node)
            node = node.src[0 if node.op is ops.SCATTER else 2]
        else:
            return node, writes


def _carries(node: UOp) -> int:
    """Return how many results of a node are carries of a loop."""
    if node.op is ops.WHILE:
        return len(node.arg.outs)
    count: int = node.arg.n_carries if node.op is ops.SCAN else 0
    return count


def written_block(node: UOp) -> tuple[tuple[int, int], ...] | None:
    """Return the (begin, end) of the block that a WHERE writes, per axis; None for other nodes."""
    if node.op is not ops.WHERE or node.src[0].op is not ops.PAD:
        return None
    mask, outside = node.src[0].src
    inside = underlying_const(mask)
    if inside is None or not inside.arg or outside.arg:
        return None
    return tuple([(low, low + n) for (low, _), n in zip(node.src[0].arg, mask.shape)])


def _is_profitable(node: UOp) -> bool:
    block = written_block(node)
    assert block is not None
    shape, size = tuple([high - low for low, high in block]), node.dtype.itemsize
    lines = math.prod(shape) // _contiguous_elements(shape, node.shape) * \
        _line_count(_contiguous_elements(shape, node.shape) * size)
    return lines + _line_count(math.prod(shape) * size) < _line_count(math.prod(node.shape) * size)


def _contiguous_elements(block: Shape, shape: Shape) -> int:
    """Return how many elements of a block are contiguous in memory."""
    run = 1
    for n, whole in zip(reversed(block), reversed(shape)):
        run *= n
        if n < whole:
            break
    return run


def _line_count(size: int) -> int:
    return -(-size // _LINE_BYTES)


def _to_scatter(node: UOp, src: Sequence[UOp]) -> UOp:
    block = written_block(node)
    assert block is not None
    _, values, x = src
    full_axes = [a for a, bounds in enumerate(block) if bounds == (0, x.shape[a])]
    first, *cut_axes = [a for a in range(len(block)) if a not in full_axes]
    indices_by_axis = {a: index_range(block[a][0], 1, block[a][1] - block[a][0], x.shape[a])
                       for a in (first, *cut_axes)}
    index = broadcast_indices({first: indices_by_axis.pop(first)}, indices_by_axis)
    if values.op is ops.PAD and values.arg == node.src[0].arg:
        values = values.src[0]
    else:
        values = build.shrink(values, block)
    values = build.permute(values, (first, *cut_axes, *full_axes))
    return build.scatter(x, [*index.values()], values, None, [*index])
