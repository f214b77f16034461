"""Written parts: a block of a parameter that a result is written over is written alone.

    before  out 0 = WHERE(PAD(True), PAD(v), x)        x is carried by a loop, or given away
    after   out 0 = SCATTER(x, 3 + IOTA(1), v)         x.at[:, 3].set(v): a column is written

Where x is computed the choice is made on the way, and where it stays, all of it is copied anyway.
The price is counted in lines of memory: those of the block and of what is written there, beside
all of the array.

>>> from fnx.core import dtypes
>>> x, v = build.param(0, dtypes.float32, (64, 64)), build.param(1, dtypes.float32, (1, 64))
>>> mask = build.const(True, dtypes.bool_, (1, 64))
>>> there, values = (build.pad(n, [(3, 60), (0, 0)]) for n in (mask, v))
>>> fn = build.function([build.where(there, values, x)], 2)
>>> parts_in_place(fn, fn.src, [(0, 0)]).src[0].op
SCATTER
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from fnx.core import build, ops, parts
from fnx.core.index_arrays import along_axes, numbers
from fnx.core.ops import Shape
from fnx.core.rewriting.pattern import constant_of
from fnx.core.uop import UOp, rebuild

_LINE = 64  # bytes


def parts_in_place(fn: UOp, results: Sequence[UOp], carried: Iterable[tuple[int, int]]) -> UOp:
    """The FUNCTION with the blocks of those results that may be over parameters written alone.

    Args:
        fn: a FUNCTION.
        results: its distinct results.
        carried: (number of a result, slot of a parameter).
    """
    found: dict[UOp, UOp] = {}
    for result, slot in carried:
        below, writes = updated(results[result])
        if below.op is ops.PARAM and below.arg.slot == slot:
            found.update((node, node) for node in writes if node.op is ops.WHERE and _pays(node))
    if not found:
        return fn

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        return _scattered(node, src) if node in found else None

    return fn.replace(src=tuple(rebuild(fn.src, visit)))


def updated(node: UOp) -> tuple[UOp, list[UOp]]:
    """What a node is an update of, through loops that carry it; and the updates."""
    writes = []
    while True:
        if node.op is ops.GET and node.arg < _carries(node.src[0]):
            node = parts.operands(node.src[0])[node.src[0].arg.n_consts + node.arg]
        elif node.op in (ops.STOP, ops.RESHAPE):
            node = node.src[0]
        elif node.op is ops.SCATTER or block_of(node) is not None:
            writes.append(node)
            node = node.src[0 if node.op is ops.SCATTER else 2]
        else:
            return node, writes


def _carries(node: UOp) -> int:
    """How many results of a node are carries of a loop."""
    if node.op is ops.WHILE:
        return len(node.arg.outs)
    count: int = node.arg.n_carries if node.op is ops.SCAN else 0
    return count


def block_of(node: UOp) -> tuple[tuple[int, int], ...] | None:
    """Where the block that a WHERE writes begins and ends along each axis; None of others."""
    if node.op is not ops.WHERE or node.src[0].op is not ops.PAD:
        return None
    mask, outside = node.src[0].src
    inside = constant_of(mask)
    if inside is None or not inside.arg or outside.arg:
        return None
    return tuple([(low, low + n) for (low, _), n in zip(node.src[0].arg, mask.shape)])


def _pays(node: UOp) -> bool:
    block = block_of(node)
    assert block is not None
    shape, size = tuple([high - low for low, high in block]), node.dtype.itemsize
    lines = math.prod(shape) // _run(shape, node.shape) * _lines(_run(shape, node.shape) * size)
    return lines + _lines(math.prod(shape) * size) < _lines(math.prod(node.shape) * size)


def _run(block: Shape, shape: Shape) -> int:
    """How many elements of a block follow one another in memory."""
    run = 1
    for n, whole in zip(reversed(block), reversed(shape)):
        run *= n
        if n < whole:
            break
    return run


def _lines(size: int) -> int:
    return -(-size // _LINE)


def _scattered(node: UOp, src: Sequence[UOp]) -> UOp:
    block = block_of(node)
    assert block is not None
    _, values, x = src
    rest = [a for a, bounds in enumerate(block) if bounds == (0, x.shape[a])]
    first, *cut = [a for a in range(len(block)) if a not in rest]
    at = {a: numbers(block[a][0], 1, block[a][1] - block[a][0], x.shape[a]) for a in (first, *cut)}
    index = along_axes({first: at.pop(first)}, at)
    if values.op is ops.PAD and values.arg == node.src[0].arg:
        values = values.src[0]
    else:
        values = build.shrink(values, block)
    values = build.permute(values, (first, *cut, *rest))
    return build.scatter(x, [*index.values()], values, None, [*index])
