"""Thread groups: launch parameters, and where their threads need barriers.

    loop ko                                     SYNC        all reads of A are done
      A = STAGE(x[...], t THREAD, SHARED)       fill A      each thread its part
      REDUCE(A[kk] * ..., kk)                   SYNC        A is full
                                                read A

A SYNC separates the fill of SHARED memory from its readers, and these from the next fill, including
that of the next iteration of the loop.
"""

from __future__ import annotations

from fnx.core import build, op_args, ops
from fnx.core.errors import KernelError
from fnx.core.parts import extent
from fnx.core.range_kinds import NUMBERED
from fnx.core.rewriting import symbolic
from fnx.core.uop import UOp, toposort
from fnx.lower.program import scratch
from fnx.lower.program.double_buffers import is_ahead
from fnx.lower.program.loop_nest import Nest, Statement


def threads_of(kernel: UOp) -> int:
    """Return the threads per group: the longest of the THREAD ranges.

    >>> from fnx.core import dtypes
    >>> r = build.range_(64, 0, "THREAD")
    >>> o = build.at(build.ref(0, dtypes.float32, (64,)), r)
    >>> threads_of(build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones", (0,)))
    64
    """
    return max([_number(extent(n)) for n in toposort(kernel.src)
                if n.op is ops.RANGE and n.arg.kind == "THREAD"], default=1)


def groups_of(kernel: UOp) -> UOp:
    """Return the number of groups to launch: the extent of the GRID range, over VARs."""
    found = [extent(r) for r in kernel.src[0].ranges if r.arg.kind == "GRID"]
    return found[0] if found else build.index_const(1)


def group_of(kernel: UOp) -> op_args.ThreadGroup | None:
    """Return the launch parameters of a GPU kernel; None if no range is mapped to threads."""
    nodes = toposort(kernel.src)
    if not any(n.op is ops.RANGE and n.arg.kind in NUMBERED for n in nodes):
        return None
    buffers = max([n.arg.slot + 1 for n in nodes if n.op is ops.REF], default=0)
    scalars = max([n.arg.slot + 1 for n in nodes if n.op is ops.VAR], default=0)
    shared, private = [_number(scratch.layout(kernel, s)[1]) for s in ("SHARED", "PRIV")]
    return op_args.ThreadGroup(buffers, scalars, threads_of(kernel), shared, private,
                               symbolic.bounds(groups_of(kernel))[1], kernel.arg.near)


def _number(node: UOp) -> int:
    low, high = symbolic.bounds(node)
    if low != high:
        raise KernelError("expected threads, and memory that they share, of known size, got "
                          f"{low} to {high}", hint="jit the function: its shapes are known then")
    return low


class SyncPlan:
    """Placement of barriers in a kernel."""

    def __init__(self, kernel: UOp) -> None:
        self.threads = threads_of(kernel)

    def all_have(self, r: UOp) -> bool:
        """Return whether every thread runs an iteration of a range."""
        return r.arg.kind == "GRID" or symbolic.bounds(extent(r))[0] == self.threads

    def syncs(self, inner: Nest) -> list[Nest | Statement]:
        """Return the items of a loop's body that need a SYNC before them."""
        touched = [(_filled(item, inner), _read(item, inner)) for item in inner.body]
        filled: set[UOp] = set()  # since the last SYNC
        read: set[UOp] = set()
        if inner.range is not None and inner.range.arg.kind not in NUMBERED:  # of the last one
            filled = {s.node for item in inner.body for s in _statements(item)
                      if _is_shared(s.node) and s.own >= inner.depth
                      and not is_ahead(s, inner.depth)}
            read = filled & set().union(*[reads for _, reads in touched])
        found = []
        for item, (fills, reads) in zip(inner.body, touched):
            if fills & (filled | read) or reads & filled:
                found.append(item)
                filled, read = set(), set()
            filled |= fills
            read |= reads
        return found


def _statements(item: Nest | Statement) -> list[Statement]:
    return item.statements if isinstance(item, Nest) else [item]


def _is_shared(node: UOp) -> bool:
    return node.op is ops.STAGE and node.arg.space == "SHARED"


def _filled(item: Nest | Statement, inner: Nest) -> set[UOp]:
    return {s.node for s in _statements(item) if _is_shared(s.node)
            and not is_ahead(s, inner.depth)}


def _read(item: Nest | Statement, inner: Nest) -> set[UOp]:
    """Return the stages an item reads; double buffers of this loop have their own barrier."""
    return {read.node for s in _statements(item) for read, _ in s.depends if _is_shared(read.node)
            and not is_ahead(read, inner.depth)}
