"""Slices: turn a slice of an operand along its leading axes into a buffer offset.

    before  o[i, j] = x[3, i, j] + x[5, i, j]            x: (100, 8, 16)      operands x, o
    after   o[i, j] = x0[i, j] + x1[i, j]                x0, x1: (8, 16)      x[3], x[5], o

So the steps of an unrolled loop over xs[t] share one kernel, compiled once. The kernel only relies
on alignment to whole rows (their byte count divides the address); the offset is no part of it.

>>> from fnx.core.ir import dtypes
>>> r, x = build.range_(8, 0), build.param(0, dtypes.float32, (100, 8))
>>> o = build.index_into(build.ref(1, dtypes.float32, (8,)), r)
>>> read = build.load(build.index_into(build.ref(0, dtypes.float32, (100, 8)),
...                                    build.index_const(3), r))
>>> step = KernelStep(build.kernel([build.store(o, read)], "row", (0,)), (x, x), (), None, (), True)
>>> made, = fold_slices([step])
>>> made.operands[0].start, made.operands[0].nbytes
(96, 32)
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.ir import accessors, build, ops
from fnx.core.ir.uop import UOp, rebuild, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.record import Record
from fnx.lower.analysis.memory import LaunchOperand, View
from fnx.lower.fusion.kernel_steps import ControlFlowStep, KernelStep


class _RowSlice(Record):
    """Rows of a REF: the first element, their extents, and the number of indices dropped."""

    start: int
    dims: tuple[UOp, ...]
    dropped: int


def fold_slices(
        steps: Sequence[KernelStep | ControlFlowStep]) -> list[KernelStep | ControlFlowStep]:
    """Replace operands of the steps by slices of them, where a kernel only reads a slice."""
    return [_fold_step_slices(step) if isinstance(step, KernelStep) and step.reads_slices else step
            for step in steps]


def _fold_step_slices(step: KernelStep) -> KernelStep:
    accesses: dict[int, list[UOp]] = {}
    for node in toposort([step.kernel]):
        if node.op is ops.INDEX and accessors.buffer(node).op is ops.REF:
            accesses.setdefault(accessors.buffer(node).arg.slot, []).append(node)
    parts_of: dict[UOp, _RowSlice] = {}
    written = accessors.written_slots(step.kernel)
    for slot, index_nodes in accesses.items():
        row_slices = [_row_slice(index) for index in index_nodes]
        if slot not in written and None not in row_slices and _has_slice(index_nodes, row_slices):
            parts_of.update((index, part) for index, part in zip(index_nodes, row_slices) if part)
    return _with_slices(step, accesses, parts_of) if parts_of else step


def _has_slice(index_nodes: Sequence[UOp], row_slices: Sequence[_RowSlice | None]) -> bool:
    """Whether any access reads a proper slice."""
    return any(part is not None and part.dims != accessors.buffer(index).src
               for index, part in zip(index_nodes, row_slices))


def _row_slice(index_node: UOp) -> _RowSlice | None:
    """Return the rows that an INDEX accesses; None if that depends on data, or on several
    ranges."""
    ref, *index = index_node.src
    if any(d.op is not ops.CONST for d in ref.src):
        return None
    start = dropped = 0
    dims = [build.const_of(d) for d in ref.src]
    while dropped < len(index):
        first, offset = _range_and_number(index[dropped])
        if first is not None or not 0 <= offset < dims[dropped]:
            break
        start += offset * math.prod(dims[dropped + 1:])
        dropped += 1
    remaining_dims = list(ref.src[dropped:])
    if remaining_dims:
        first, offset = _range_and_number(index[dropped])
        if first is not None and accessors.extent(first).op is ops.CONST and \
                0 <= offset <= dims[dropped] - build.const_of(accessors.extent(first)):
            start += offset * math.prod(dims[dropped + 1:])
            remaining_dims[0] = accessors.extent(first)
    return _RowSlice(start, tuple(remaining_dims), dropped)


def _range_and_number(index: UOp) -> tuple[UOp | None, int]:
    """Return (r, 3) for r + 3, (None, 3) for 3, and (None, -1) for anything else."""
    if index.op is ops.RANGE:
        return index, 0
    if index.op in (ops.CONST, ops.ADD, ops.SUB):
        terms, number = symbolic.linear_terms(index)
        if not terms:
            return None, number
        (monomial, factor), *more = terms.items()
        if not more and factor == 1 and len(monomial) == 1 and monomial[0].op is ops.RANGE:
            return monomial[0], number
    return None, -1


def _with_slices(step: KernelStep, accesses: dict[int, list[UOp]], parts_of: dict[UOp, _RowSlice]
                 ) -> KernelStep:
    """Return the step with an operand for each slice; slots are renumbered."""
    operands: list[LaunchOperand] = []
    slots: dict[UOp, int] = {}  # of INDEX nodes
    for slot, operand in enumerate(step.operands):
        index_nodes = accesses.get(slot, [])
        if not any(index in parts_of for index in index_nodes):
            slots.update(dict.fromkeys(index_nodes, len(operands)))
            operands.append(operand)
            continue
        operand_of: dict[_RowSlice, int] = {}
        for index_node in index_nodes:
            part = parts_of[index_node]
            if part not in operand_of:
                operand_of[part] = len(operands)
                operands.append(_slice_view(operand, part))
            slots[index_node] = operand_of[part]

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node not in slots:
            return None
        ref, *index = src
        part = parts_of.get(node)
        dims = ref.src if part is None else part.dims
        sliced_ref = build.ref(slots[node], ref.dtype, dims, ref.arg.name)
        if part is None:
            return build.index_into(sliced_ref, *index)
        inner_index = index[part.dropped:]
        if inner_index and part.dims[0] is not ref.src[part.dropped]:
            range_node, _ = _range_and_number(inner_index[0])
            assert range_node is not None
            inner_index[0] = range_node
        return build.index_into(sliced_ref, *inner_index)

    kernel, = rebuild([step.kernel], visit)
    return step.replace(kernel=kernel, operands=tuple(operands), reads_slices=False)


def _slice_view(operand: LaunchOperand, part: _RowSlice) -> View:
    """Return a slice of a buffer, or of a part of one that is the same in each iteration."""
    base_view = operand if isinstance(operand, View) else View(operand, 0)
    size = base_view.node.dtype.itemsize
    row = math.prod([build.const_of(d) for d in part.dims[not part.dropped:]]) * size
    count = math.prod([build.const_of(d) for d in part.dims])
    return View(base_view.node, count * size, base_view.start + part.start * size,
                alignment_limit=math.gcd(row, base_view.alignment_limit))
