"""Sorts of which only the first or the last few elements are read, as steps of a selection.

    before  SHRINK (SORT (p0: (rows, n)), [(0, rows), (n - k, n)])
    after   SCAN of k steps: the largest (key, index) below the one before
            GATHER (p0, indices), padded to n, which nobody reads

``sort(x)[..., -k:]``, ``argsort(x)[..., :k]`` and ``top_k`` are such sorts. A step reads the keys
of all rows, so k steps pay while they and their kernels take less time than the sort. Casts, flips
and elementwise ops with constants may lie between the two. Of equal elements the one that a stable
sort puts there is taken.

>>> from fnx.core.ir.uop import toposort
>>> x, = build_calls.sort([build.param(0, dtypes.float32, (50, 200))], 1)
>>> fn = build.function([build.shrink(x, [(0, 50), (195, 200)])], 1)
>>> out, = select_from_sort(fn, Target("cpu"), is_remote=False).src
>>> [n.arg.length for n in toposort([out]) if n.op is ops.SCAN]
[5]
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.expr import Expr, where
from fnx.core.ir.op_bodies import replace_results
from fnx.core.ir.uop import UOp, consumers, toposort
from fnx.core.rewriting.rewrite import underlying_const
from fnx.core.support.target import Target
from fnx.lower.analysis import tuning
from fnx.lower.emit.sorting import MAX_RANKED
from fnx.lower.tensor.sort_by_network import network_steps, sort_key, with_lines_of

Interval = tuple[int, int]
_PASSES_ROWS = (ops.PERMUTE, ops.FLIP)


def select_from_sort(fn: UOp, target: Target, is_remote: bool) -> UOp:
    """Return a FUNCTION in which the ends of sorted rows are selected, where that is cheaper.

    ``is_remote``: whether the target would sort by a network of kernels.
    """
    nodes = toposort(fn.src, stop=lambda n: n.op is ops.KERNEL)
    if not any(n.op is ops.SORT for n in nodes):
        return fn
    selections: dict[UOp, Interval] = {}
    for node, (low, high) in _elements_read(nodes, fn.src).items():
        n = node.arg.ins[0][0][-1]
        end = (0, high) if high <= n - low else (low, n)
        if _pays(node, end[1] - end[0], target, is_remote):
            selections[node] = end

    def replace(node: UOp, src: tuple[UOp, ...]) -> Sequence[UOp] | None:
        if node not in selections:
            return None
        return with_lines_of(node, src, _selected(node, src, *selections[node]))
    return fn.with_operands(tuple(replace_results(fn.src, replace))) if selections else fn


def _elements_read(nodes: Sequence[UOp], outs: Sequence[UOp]) -> dict[UOp, Interval]:
    """Return for each SORT by one key the part of its rows that is read; (0, 0): nothing."""
    users, results = consumers(nodes), set(outs)
    axes: dict[UOp, int] = {}  # what has whole sorted rows, and along which axis
    for node in nodes:
        if node.op is ops.GETTUPLE and _is_candidate(node.src[0]):
            axes[node] = len(node.shape) - 1
        elif node.op in _PASSES_ROWS and node.src[0] in axes:
            axis = axes[node.src[0]]
            axes[node] = node.arg.index(axis) if node.op is ops.PERMUTE else axis
        elif node.op in ops.ELEMENTWISE and (row := _only_variable(node)) in axes:
            axes[node] = axes[row]
    parts: dict[UOp, Interval] = {}

    def through(user: UOp, axis: int, n: int) -> Interval:
        if user.op is ops.SHRINK:
            bounds: Interval = user.arg[axis]
            return bounds
        low, high = parts.get(user, (0, n))
        is_flipped = user.op is ops.FLIP and user in axes and axis in user.arg
        return (n - high, n - low) if is_flipped else (low, high)
    for node, axis in reversed(axes.items()):
        n = node.shape[axis]
        parts[node] = (0, n) if node in results else \
            _union([through(user, axis, n) for user in users[node]])
    return {node: _union([parts[result] for result in users[node]])
            for node in nodes if _is_candidate(node)}


def _is_candidate(node: UOp) -> bool:
    return node.op is ops.SORT and node.arg.n_keys == 1


def _only_variable(node: UOp) -> UOp | None:
    """Return the operand of an elementwise op whose others are constants; None if there are
    several."""
    variables = {s for s in node.src if underlying_const(s) is None}
    return variables.pop() if len(variables) == 1 else None


def _union(parts: Sequence[Interval]) -> Interval:
    parts = [part for part in parts if part[0] < part[1]]
    return (min([low for low, _ in parts]), max([high for _, high in parts])) if parts else (0, 0)


def _pays(sort: UOp, k: int, target: Target, is_remote: bool) -> bool:
    """Return whether k steps, each a kernel, take less time than the sort."""
    shape, dtype = sort.arg.ins[0]
    n: int = shape[-1]
    count = math.prod(shape)
    if not 0 < k <= n // 2 or count > dtypes.int32.limits[1] or \
            dtype.kind == "key" or dtype.is_complex:
        return False
    if is_remote:
        return k <= network_steps(n)
    lanes = target.vector_lanes(max(4, dtype.itemsize))
    digits, comparisons = (1, n / lanes) if n <= MAX_RANKED else (dtype.itemsize, 0)
    sorting = digits * tuning.DIGIT_INSTRUCTIONS + comparisons * tuning.RANK_INSTRUCTIONS
    selecting = k * tuning.SELECT_INSTRUCTIONS / lanes
    pays: bool = count * selecting + k * tuning.DISPATCH_CYCLES <= count * sorting
    return pays


def _selected(node: UOp, operands: Sequence[UOp], low: int, high: int) -> list[UOp]:
    """Return the results of a SORT, of which only the elements from ``low`` to ``high`` are
    right."""
    arg = node.arg
    shape = arg.ins[0][0]
    rows, n, k = math.prod(shape[:-1]), shape[-1], high - low
    keys = _signed_key(build.reshape(operands[0], (rows, n)))
    from_end = low > 0
    order = _order(keys, k, from_end)
    row = build.expand(build.reshape(build.iota(rows), (rows, 1)), (rows, k))
    results = [order if i < 0 else build.gather(build.reshape(operands[i], (rows, n)), row, order)
               for i in arg.outputs]
    widths = [(0, 0), (low, n - high)]
    return [build.reshape(build.pad(x, widths), shape) for x in results]


def _order(keys: UOp, k: int, from_end: bool) -> UOp:
    """Return the indices of the k least elements of each row in order; of the k largest, with
    ``from_end``."""
    rows, n = keys.shape
    near, far = keys.dtype.limits[::-1] if from_end else keys.dtype.limits
    extreme, outside = (ops.MAX, -1) if from_end else (ops.MIN, n)
    index = Expr(build.expand(build.reshape(build.iota(n), (1, n)), (rows, n)))

    def step(consts: Sequence[UOp], carries: Sequence[UOp], _: Sequence[UOp]
             ) -> tuple[list[UOp], list[UOp]]:
        key = Expr(consts[0])
        last_key, last_index = [Expr(_column(x, n)) for x in carries]
        is_after, follows = (key < last_key, index < last_index) if from_end else \
            (key > last_key, index > last_index)
        is_left = is_after | key.eq(last_key) & follows
        best = build.reduce(where(is_left, key, far).node, extreme, [1])
        is_best = is_left & key.eq(Expr(_column(best, n)))
        chosen = build.reduce(where(is_best, index, outside).node, extreme, [1])
        return [best, chosen], [chosen]
    start = [build.const(near, keys.dtype, (rows,)),
             build.const(n if from_end else -1, dtypes.int32, (rows,))]
    _, (chosen,) = build_calls.build_scan(step, k, [keys], start, [], name="select")
    order = build.permute(chosen, (1, 0))
    return build.flip(order, [1]) if from_end else order


def _column(x: UOp, n: int) -> UOp:
    rows, = x.shape
    return build.expand(build.reshape(x, (rows, 1)), (rows, n))


def _signed_key(x: UOp) -> UOp:
    """Return integers of the order of an operand; vectors compare signed ones in one
    instruction."""
    key = sort_key(x)
    signed = dtypes.int64 if key.dtype.itemsize == 8 else dtypes.int32
    return build.bitcast((Expr(key) ^ 1 << 8 * key.dtype.itemsize - 1).node, signed)
