"""Sorts of which only the first or the last few elements are read become selections.

    before  SHRINK (SORT (p0: (rows, n)), [(0, rows), (n - k, n)])
    after   SORT (FLIP p0, selects="largest", count=k), flipped and padded to n, which nobody reads

``sort(x)[..., -k:]``, ``argsort(x)[..., :k]`` and ``top_k`` are such sorts. A selection is one
native program (emit/selection.py); a device that shares no memory with the host selects by steps
(select_by_steps.py). Elementwise ops, flips, and gathers at the order, as of derivatives, may lie
between the sort and what reads it, and zeros may be added at the rest of the order. Of equal
elements the one that a stable sort puts there is taken. Sorts of the same rows, of which one has
the order and another one the elements, become one.

>>> from fnx.core.ir.uop import toposort
>>> from fnx.core.ir import build_calls
>>> x, = build_calls.sort([build.param(0, dtypes.float32, (50, 200))], 1)
>>> fn = build.function([build.shrink(x, [(0, 50), (195, 200)])], 1)
>>> out, = select_from_sort(fn, Target("cpu"), is_remote=False).src
>>> [n.arg.count for n in toposort([out]) if n.op is ops.SORT]
[5]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import consumers
from fnx.core.ir.op_bodies import replace_results
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting.rewrite import underlying_const
from fnx.core.support.target import Target
from fnx.lower.analysis import tuning
from fnx.lower.emit.selection import lanes_of
from fnx.lower.emit.sorting import MAX_RANKED
from fnx.lower.tensor.select_by_steps import select_by_steps
from fnx.lower.tensor.sort_by_network import sort_steps, with_lines_of

Interval = tuple[int, int]
_PASSES_ROWS = (ops.PERMUTE, ops.FLIP)


def select_from_sort(fn: UOp, target: Target, is_remote: bool) -> UOp:
    """Return a FUNCTION in which the ends of sorted rows are selected, where that is cheaper.

    ``is_remote``: whether the target would sort by a network of kernels.
    """
    nodes = toposort(fn.src, stop=lambda n: n.op is ops.KERNEL)
    if not any(n.op is ops.SORT for n in nodes):
        return fn
    ends: dict[UOp, Interval] = {}
    for node, (low, high) in _elements_read(nodes, fn.src).items():
        n = node.arg.ins[0][0][-1]
        end = (0, high) if high <= n - low else (low, n)
        if _pays(node, end[1] - end[0], target, is_remote):
            ends[node] = end
    merged = _merged([n for n in nodes if n.op is ops.SORT], ends)

    def replace(node: UOp, src: tuple[UOp, ...]) -> Sequence[UOp] | None:
        if node not in ends and node not in merged:
            return None
        whole = node.replace(src=src, arg=node.arg.replace(outputs=merged.get(node,
                                                                              node.arg.outputs)))
        if node in ends:
            select = select_by_steps if is_remote else _selected
            results: Sequence[UOp] = select(whole, src, *ends[node])
        else:
            results = build.results(whole)
        by_output = dict(zip(whole.arg.outputs, results))
        return with_lines_of(node, src, [by_output[i] for i in node.arg.outputs])
    return fn.with_operands(tuple(replace_results(fn.src, replace))) if ends or merged else fn


def _merged(sorts: Sequence[UOp], ends: Mapping[UOp, Interval]) -> dict[UOp, tuple[int, ...]]:
    """Return for each SORT that has another one of the same rows the outputs of both."""
    groups: dict[object, list[UOp]] = {}
    for node in sorts:
        arg = node.arg.replace(name="", outputs=())
        groups.setdefault((node.src, arg, ends.get(node)), []).append(node)
    outputs = {tuple(group): sorted({i for node in group for i in node.arg.outputs})
               for group in groups.values() if len(group) > 1}
    return {node: tuple(union) for group, union in outputs.items() for node in group}


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
        elif node.op in ops.ELEMENTWISE or node.op is ops.GATHER:
            rows = {axes[x] for x in node.src[node.op is ops.GATHER:] if x in axes}
            if len(rows) == 1:
                axes[node] = rows.pop()
    parts: dict[UOp, Interval] = {}

    def through(node: UOp, user: UOp, axis: int, n: int) -> Interval:
        if user.op is ops.SHRINK:
            bounds: Interval = user.arg[axis]
            return bounds
        if user.op is ops.SCATTER and node is not user.src[0]:
            return _elements_added(user, axis, n)
        is_data = user.op is ops.GATHER and node is user.src[0]
        low, high = (0, n) if is_data else parts.get(user, (0, n))
        is_flipped = user.op is ops.FLIP and user in axes and axis in user.arg
        return (n - high, n - low) if is_flipped else (low, high)
    for node, axis in reversed(axes.items()):
        n = node.shape[axis]
        parts[node] = (0, n) if node in results else \
            _union([through(node, user, axis, n) for user in users[node]])
    return {node: _union([parts[result] for result in users[node]])
            for node in nodes if _is_candidate(node)}


def _elements_added(scatter: UOp, axis: int, n: int) -> Interval:
    """Return the part of the indices of a SCATTER whose updates are not zeros of a PAD."""
    return _nonzero_part(scatter.src[-1], axis, n) if scatter.arg.monoid is ops.ADD else (0, n)


_KEEPS_ZEROS = frozenset({ops.CAST, ops.NEG, ops.ADD, ops.SUB, ops.WHERE, ops.FLIP})


def _nonzero_part(updates: UOp, axis: int, n: int) -> Interval:
    """Return the part of an axis outside of which a value is zero, as PADs below sums say."""
    parts: dict[UOp, Interval] = {}
    for node in toposort([updates], stop=lambda n: n.op not in _KEEPS_ZEROS):
        if node.op is ops.PAD and underlying_const(node.src[1]) is build.const(0, node.dtype):
            before, after = node.arg[axis]
            parts[node] = before, n - after
        elif node.op in _KEEPS_ZEROS:
            low, high = _union([parts[s] for s in node.src[node.op is ops.WHERE:]])
            is_flipped = node.op is ops.FLIP and axis in node.arg
            parts[node] = (n - high, n - low) if is_flipped else (low, high)
        else:
            value = underlying_const(node)
            is_zero = value is not None and value is build.const(0, node.dtype)
            parts[node] = (0, 0) if is_zero else (0, n)
    return parts[updates]


def _is_candidate(node: UOp) -> bool:
    return node.op is ops.SORT and node.arg.n_keys == 1 and not node.arg.selects


def _union(parts: Sequence[Interval]) -> Interval:
    parts = [part for part in parts if part[0] < part[1]]
    return (min([low for low, _ in parts]), max([high for _, high in parts])) if parts else (0, 0)


def _pays(sort: UOp, k: int, target: Target, is_remote: bool) -> bool:
    """Return whether a selection of k elements takes less time than the sort."""
    shape, dtype = sort.arg.ins[0]
    n: int = shape[-1]
    if not 0 < k <= n // 2 or dtype.kind == "key" or dtype.is_complex:
        return False
    if is_remote:
        steps = sort_steps(n, max(4, dtype.itemsize))
        return k <= steps and math.prod(shape) <= dtypes.int32.limits[1]
    if n < lanes_of(sort):
        return False
    lanes = target.vector_lanes(max(4, dtype.itemsize))
    digits, comparisons = (1, n / lanes) if n <= MAX_RANKED else (dtype.itemsize, 0)
    sorting = digits * tuning.DIGIT_INSTRUCTIONS + comparisons * tuning.RANK_INSTRUCTIONS
    searched = (n + k * 2 * math.sqrt(n * lanes_of(sort))) / lanes  # vectors, in both searches
    selecting = searched * tuning.SELECT_INSTRUCTIONS + k * tuning.SELECT_STEP_INSTRUCTIONS
    pays: bool = selecting <= n * sorting
    return pays


def _selected(node: UOp, operands: Sequence[UOp], low: int, high: int) -> list[UOp]:
    """Return the results of a SORT, of which only the elements from ``low`` to ``high`` are
    right.

    The last ones are the first of the reversed rows, where later ones of equal elements come first.
    """
    arg = node.arg
    n, from_end = arg.ins[0][0][-1], low > 0
    last = len(arg.ins[0][0]) - 1
    src = [build.flip(x, [last]) if from_end else x for x in operands]
    selection = arg.replace(selects="largest" if from_end else "least", count=high - low)
    results = list(build.results(node.replace(src=tuple(src), arg=selection)))
    if from_end:
        results = [build.flip(build.sub(build.const_like(x, n - 1), x) if i < 0 else x, [last])
                   for i, x in zip(arg.outputs, results)]
    widths = [*[(0, 0)] * last, (low, n - high)]
    return [build.pad(x, widths) for x in results]
