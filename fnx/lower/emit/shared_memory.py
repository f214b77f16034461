"""Memory that the threads of a group share: launch parameters, barriers and double buffers.

    loop ko                                     SYNC        all reads of A are done
      A = STAGE(x[...], t THREAD, SHARED)       fill A      each thread its part
      REDUCE(A[kk] * ..., kk)                   SYNC        A is full
                                                read A

A SYNC separates the fill of SHARED memory from its readers, and these from the next fill, including
that of the next iteration of the loop.

A double buffer is filled for the next iteration while this one is computed:

    for ko:                      fetch block 0 -> A[0]
      fill A  (block ko)         for ko:
      SYNC                         ASYNC_WAIT; SYNC        A[ko % 2] is full, the other one is free
      products of A                fetch block ko + 1 -> A[(ko + 1) % 2]          if there is one
      SYNC                         products of A[ko % 2]

``fetch`` is an asynchronous copy (a STORE "ASYNC" of a LOAD, which ``async_copies`` turns into
ASYNC_COPY) if the target has them and the stage is a copy. Otherwise the loads are here, and the
stores after the products. At kernel level this is invisible: both buffers hold the value of the
STAGE.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core.ir import build, dtypes, kernel_args, ops
from fnx.core.ir.accessors import bound_ranges, count_slots, extent, value
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp, rebuild, substitute, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.errors import KernelError
from fnx.core.support.range_kinds import ID_KINDS
from fnx.core.support.target import Target
from fnx.lower.analysis.canonicalize import simplify_indices
from fnx.lower.emit import stores
from fnx.lower.emit.addresses import scratch_layout
from fnx.lower.emit.builder import ProgramBuilder
from fnx.lower.emit.loop_nest import LoopNest, Statement
from fnx.lower.emit.values import Values


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


def thread_group(kernel: UOp) -> kernel_args.ThreadGroup | None:
    """Return the launch parameters of a GPU kernel; None if no range is mapped to threads."""
    nodes = toposort(kernel.src)
    if not any(n.op is ops.RANGE and n.arg.kind in ID_KINDS for n in nodes):
        return None
    buffers, scalars = (count_slots(nodes, op) for op in (ops.REF, ops.VAR))
    shared, private = [_constant(scratch_layout(kernel, s)[1]) for s in ("SHARED", "PRIV")]
    return kernel_args.ThreadGroup(buffers, scalars, thread_count(kernel), shared, private,
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
                      if _is_shared(s.node) and s.outer_depth >= inner.depth
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


def threads_cooperate(kernel: UOp) -> bool:
    """Whether the threads of a group exchange values."""
    return any(n.op is ops.SHUFFLE_XOR or _is_shared(n) for n in toposort(kernel.src))


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


# ---- double buffers -----------------------------------------------------------------------------


ASYNC = "ASYNC"  # the arg of a STORE that is to become an ASYNC_COPY


def is_prefetch(s: Statement, depth: int) -> bool:
    """Return whether a statement prefetches a double buffer in the loop at a depth."""
    return s.node.op is ops.STAGE and s.node.arg.double and s.outer_depth == depth


def is_async_copy(stage: UOp, target: Target) -> bool:
    """Return whether a stage is a plain copy that the target can do asynchronously."""
    return target.async_copies and value(stage).op is ops.LOAD and stage.dtype.itemsize in (4, 8)


class DoubleBuffers:
    """The double buffers of one loop.

    Attributes:
        items: the items of the loop's body that fill them, which are not emitted there.
    """

    def __init__(self, inner: LoopNest, values: Values, lines: ProgramBuilder,
                 target: Target) -> None:
        self.inner, self.values, self.lines, self.target = inner, values, lines, target
        self.items = [item for item in inner.body if isinstance(item, LoopNest)
                      and all(is_prefetch(s, inner.depth) for s in item.statements)]
        self.stages = [s.node for item in self.items for s in item.statements]
        self.waiting: list[stores.Write] = []
        self.next: UOp | None = None

    def first(self) -> None:
        """Emit the fill for the first iteration, before the loop."""
        for r in {r for stage in self.stages
                  for r in bound_ranges(stage) if r.arg.kind == "THREAD"}:
            self.values.bind(r, UOp(ops.ID, dtypes.index, (), "THREAD"))
        start = build.index_const(0)
        is_nonempty = symbolic.bounds(extent(self._loop()))[0] > 0
        for stage in self.stages:
            self._write(stage, self._writes(stage, start, not is_nonempty))

    def start(self, counter: UOp) -> None:
        """Begin an iteration: bind the range of the next one."""
        if self.stages:
            r = self._loop()
            n = symbolic.simplify((Expr(extent(r)) + 1).node)
            self.next = build.range_(n, 1 + max(
                [x.arg.id for stage in self.stages for x in toposort([stage])
                 if x.op is ops.RANGE]), "SEQ")
            self.values.bind(self.next, self.lines.plus(counter, 1))

    def load(self) -> None:
        """Emit the fetch, or the loads, of the next block, before the products."""
        assert self.next is not None
        for stage in self.stages:
            writes = self._writes(stage, self.next, True)
            if is_async_copy(stage, self.target):
                self._write(stage, writes)
            else:
                self.waiting += writes

    def store(self) -> None:
        """Emit the stores of what was loaded, after the products."""
        stores.emit(self.lines, self.waiting)
        self.waiting = []

    def end(self) -> None:
        """End an iteration: unbind the range of the next one."""
        if self.next is not None:
            self.values.unbind(self.next)

    def _loop(self) -> UOp:
        r = self.inner.range
        assert r is not None
        return r

    def _writes(self, stage: UOp, turn: UOp, tested: bool) -> list[stores.Write]:
        """Return the writes that fill a stage for iteration ``turn``; ``tested``: if it exists."""
        fill_value, = substitute([value(stage)], {self._loop(): turn})
        exists = build.lt(turn, extent(self._loop()))

        def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
            if node.op is ops.LOAD and tested and (
                    turn.op is ops.CONST or turn in node.ranges):
                valid = src[1:]
                return build.load(src[0], build.and_(valid[0], exists) if valid else exists)
            return simplify_indices(node, src)

        fill_value, = rebuild([fill_value], visit)
        buffer_index = symbolic.simplify((Expr(turn) % 2).node)
        destination = build.index_into(stage, buffer_index, *bound_ranges(stage)[1:])
        return stores.collect(self.values, build.store(destination, fill_value))

    def _write(self, stage: UOp, writes: Sequence[stores.Write]) -> None:
        if not is_async_copy(stage, self.target):
            stores.emit(self.lines, writes)
            return
        for w in writes:
            self.lines.put(ops.STORE, dtypes.void, (w.address, w.value), ASYNC)
