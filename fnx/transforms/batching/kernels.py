"""Batch a user-written kernel: add a range over a leading dimension of its buffers.

    STORE(o[i], a[()] * x[i])      a not batched   ->   STORE(o[lane, i], a[()] * x[lane, i])

The buffers of operands without a batch axis stay as they are. A schedule keeps its meaning: the
batch loop is put outside of all loops, or just inside of the parallel one.
"""

from __future__ import annotations

from collections.abc import Container

from fnx.core.ir import build, ops
from fnx.core.ir.op_args import Call
from fnx.core.ir.tiling import Order, Parallel, Schedule
from fnx.core.ir.uop import UOp, rebuild, toposort
from fnx.transforms.batching.patterns import BatchedValue
from fnx.transforms.kernel_lang.carried_values import complete_carries


def call_kernel(node: UOp, src: tuple[UOp, ...], batched: tuple[bool, ...], size: int
                ) -> list[BatchedValue]:
    """Return the results of a CALL of a KERNEL over a batch; they all have a batch axis.

    >>> from fnx.core.ir import dtypes
    >>> i = build.range_(4, 0)
    >>> x, o = (build.index_into(build.ref(s, dtypes.float32, (4,)), i) for s in (0, 1))
    >>> copy = build.kernel([build.store(o, build.load(x))], "copy", (0,))
    >>> p = build.param(0, dtypes.float32, (4,))
    >>> call = UOp(ops.CALL, dtypes.void, (copy, p), Call("copy", (((4,), dtypes.float32),)))
    >>> lanes = build.param(0, dtypes.float32, (8, 4))
    >>> [x.node.shape for x in call_kernel(call, (copy, lanes), (False, True), 8)]
    [(8, 4)]
    """
    kernel, *args = src
    shared = {slot for slot, b in enumerate(batched[1:]) if not b}
    name = _fresh_name(kernel)
    outer = _is_outermost(node.arg.schedule)
    mapped = add_batch_range(kernel, size, shared, name, outer)
    arg = Call(node.arg.name, tuple([((size, *shape), t) for shape, t in node.arg.outs]),
               tuple([_add_to_order(step, name, node.arg.schedule) for step in node.arg.schedule]))
    return [BatchedValue(x, True)
            for x in build.results(UOp(ops.CALL, node.dtype, (mapped, *args), arg))]


def add_batch_range(kernel: UOp, size: int, shared: Container[int], name: str, outer: bool) -> UOp:
    """Add a range over a leading dimension of all buffers except those of slots ``shared``.

    Args:
        kernel: a KERNEL that is not yet tiled.
        size: the batch size.
        shared: slots of the buffers without a batch axis.
        name: the name of the range.
        outer: put the range outside of all others; else just inside of the first.
    """
    ids = [n.arg.id for n in toposort(kernel.src) if n.op is ops.RANGE]
    batch_range = build.range_(size, 1 + max(ids, default=-1), "SEQ", name)

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.REF and node.arg.slot not in shared:
            return node.with_operands((build.index_const(size), *src))
        if node.op is ops.INDEX and node.src[0] is not src[0] and src[0].op is ops.REF:
            return node.with_operands((src[0], batch_range, *src[1:]))
        return node.with_operands((*src, batch_range)) if node.op is ops.CARRY else None

    position = 0 if outer else 1
    order = kernel.arg.order[:position] + (batch_range.arg.id,) + kernel.arg.order[position:]
    stores = complete_carries(rebuild(kernel.src, visit))  # loops carry one value per batch element
    return build.kernel(stores, kernel.arg.name, order)


def _fresh_name(kernel: UOp) -> str:
    names = {n.arg.name for n in toposort(kernel.src) if n.op is ops.RANGE}
    return next(n for n in ("lane", *[f"lane{i}" for i in range(2, len(names) + 3)])
                if n not in names)


def _is_outermost(schedule: Schedule) -> bool:
    return not any(isinstance(step, Parallel) for step in schedule)


def _add_to_order(step: object, name: str, schedule: Schedule) -> object:
    """Add the batch loop to an ``order`` transform."""
    if not isinstance(step, Order):
        return step
    position = 0 if _is_outermost(schedule) else 1
    return Order(step.names[:position] + (name,) + step.names[position:])
