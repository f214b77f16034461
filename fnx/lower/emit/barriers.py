"""Thread groups: launch parameters, and where their threads need barriers.

    loop ko                                     SYNC        all reads of A are done
      A = STAGE(x[...], t THREAD, SHARED)       fill A      each thread its part
      REDUCE(A[kk] * ..., kk)                   SYNC        A is full
                                                read A

A SYNC separates the fill of SHARED memory from its readers, and these from the next fill, including
that of the next iteration of the loop.
"""

from __future__ import annotations

from fnx.core.ir import build, op_args, ops
from fnx.core.ir.accessors import count_slots, extent
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.errors import KernelError
from fnx.core.support.range_kinds import ID_KINDS
from fnx.lower.emit import scratch
from fnx.lower.emit.double_buffers import is_prefetch
from fnx.lower.emit.loop_nest import LoopNest, Statement


def thread_count(kernel: UOp) -> int:
    """Return the threads per group: the longest of the THREAD ranges.

    >>> from fnx.core.ir import dtypes
    >>> r = build.range_(64, 0, "THREAD")
    >>> o = build.index_into(build.ref(0, dtypes.float32, (64,)), r)
    >>> thread_count(build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones", (0,)))
    64
    """
    return max([_constant(extent(n)) for n in toposort(kernel.src)
                if n.op is ops.RANGE and n.arg.kind == "THREAD"], default=1)


def group_count(kernel: UOp) -> UOp:
    """Return the number of groups to launch: the extent of the GRID range, over VARs."""
    extents = [extent(r) for r in kernel.src[0].ranges if r.arg.kind == "GRID"]
    return extents[0] if extents else build.index_const(1)


def thread_group(kernel: UOp) -> op_args.ThreadGroup | None:
    """Return the launch parameters of a GPU kernel; None if no range is mapped to threads."""
    nodes = toposort(kernel.src)
    if not any(n.op is ops.RANGE and n.arg.kind in ID_KINDS for n in nodes):
        return None
    buffers, scalars = (count_slots(nodes, op) for op in (ops.REF, ops.VAR))
    shared, private = [_constant(scratch.layout(kernel, s)[1]) for s in ("SHARED", "PRIV")]
    return op_args.ThreadGroup(buffers, scalars, thread_count(kernel), shared, private,
                               symbolic.bounds(group_count(kernel))[1], kernel.arg.index_fits_int32)


def _constant(node: UOp) -> int:
    low, high = symbolic.bounds(node)
    if low != high:
        raise KernelError("expected threads, and memory that they share, of known size, got "
                          f"{low} to {high}", hint="jit the function: its shapes are known then")
    return low


class BarrierPlan:
    """Placement of barriers in a kernel."""

    def __init__(self, kernel: UOp) -> None:
        self.threads = thread_count(kernel)

    def all_run(self, r: UOp) -> bool:
        """Return whether every thread runs an iteration of a range."""
        return r.arg.kind == "GRID" or symbolic.bounds(extent(r))[0] == self.threads

    def needs_barrier(self, inner: LoopNest) -> list[LoopNest | Statement]:
        """Return the items of a loop's body that need a SYNC before them."""
        accesses = [(_filled_stages(item, inner), _read_stages(item, inner)) for item in inner.body]
        filled: set[UOp] = set()  # since the last SYNC
        read: set[UOp] = set()
        if inner.range is not None and inner.range.arg.kind not in ID_KINDS:  # of the last one
            filled = {s.node for item in inner.body for s in _statements(item)
                      if _is_shared(s.node) and s.own >= inner.depth
                      and not is_prefetch(s, inner.depth)}
            read = filled & set().union(*[reads for _, reads in accesses])
        items = []
        for item, (fills, reads) in zip(inner.body, accesses):
            if fills & (filled | read) or reads & filled:
                items.append(item)
                filled, read = set(), set()
            filled |= fills
            read |= reads
        return items


def _statements(item: LoopNest | Statement) -> list[Statement]:
    return item.statements if isinstance(item, LoopNest) else [item]


def _is_shared(node: UOp) -> bool:
    return node.op is ops.STAGE and node.arg.space == "SHARED"


def _filled_stages(item: LoopNest | Statement, inner: LoopNest) -> set[UOp]:
    return {s.node for s in _statements(item) if _is_shared(s.node)
            and not is_prefetch(s, inner.depth)}


def _read_stages(item: LoopNest | Statement, inner: LoopNest) -> set[UOp]:
    """Return the stages an item reads; double buffers of this loop have their own barrier."""
    return {read.node for s in _statements(item) for read, _ in s.depends if _is_shared(read.node)
            and not is_prefetch(read, inner.depth)}
