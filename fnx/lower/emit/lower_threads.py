"""Express cooperation of the threads of a group as stages in SHARED memory.

    before  REDUCE(x[r, 64*k + t], k, t, ADD)               r GRID, t THREAD 64, k SEQ
            STORE(o[r], that)
    after   S = STAGE(REDUCE(x[r, 64*k + t], k), t, SHARED)                 64 partial sums
            T = STAGE(S[8*u] + S[8*u + 1] + ... + S[8*u + 7], u THREAD 8, SHARED)
            STORE(o[r], T[0] + T[1] + ... + T[7], valid = w < 1)            w THREAD 1
    or      a = REDUCE(x[r, 64*k + t], k)                                   with subgroups of 32
            b = a + SHUFFLE_XOR(a, t, 1), c = b + SHUFFLE_XOR(b, t, 2), ... up to f
            S = STAGE(f, t, SHARED)
            STORE(o[r], S[0] + S[32], valid = w < 1)

A reduction over a THREAD range is a tree of neighbors. Its order is the same for any number of
groups, and whether threads exchange values by stages or by subgroup shuffles. A stage filled over a
THREAD range is SHARED; a SHARED stage filled over no THREAD range is filled by all threads
cooperatively. A stage that fits neither in SHARED nor in private memory, or that would have one
copy per thread of a group in SHARED memory, is recomputed at its uses. A store that depends on no
thread is done by the first. Several GRID ranges, or several THREAD ranges around the whole kernel,
are merged into one range, of which they are digits.

>>> from fnx.core.ir import dtypes
>>> r, k = build.range_(9, 0, "GRID"), build.range_(64, 1, "THREAD")
>>> x = build.load(build.index_into(build.ref(0, dtypes.float32, (9, 64)), r, k))
>>> o = build.index_into(build.ref(1, dtypes.float32, (9,)), r)
>>> total = build.store(o, build.reduce_ranges(x, ops.ADD, [k]))
>>> made = lower_threads(build.kernel([total], "sum", (0, 1)),
...                      Target("gpu", threads=64, shared=1024))
>>> [extent(n.src[1]).arg for n in toposort([made]) if n.op is ops.STAGE]
[64, 8]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fnx.core.ir import build, build_kernel_loops, dtypes, kernel_args, ops
from fnx.core.ir.accessors import (
    LoopOrder,
    bound_ranges,
    buffer,
    dims,
    extent,
    indices,
    validity,
    value,
)
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr, minimum
from fnx.core.ir.uop import UOp, rebuild, substitute, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.target import Target
from fnx.lower.analysis.canonicalize import canonicalize, simplify_indices, with_stores
from fnx.lower.analysis.workload import stride
from fnx.lower.emit.assign_fragments import assign_fragments
from fnx.lower.emit.loop_nest import is_statement
from fnx.lower.emit.mma import is_warp_mma
from fnx.lower.emit.shared_memory import is_async_copy, thread_count

_TREE_RADIX = 8   # terms that a thread reduces at each level of a tree
_REGS_AHEAD, _REGS_AHEAD_MMA = 16, 48  # prefetch registers, besides a product's tile


def lower_threads(kernel: UOp, target: Target) -> UOp:
    """Return the KERNEL in which threads exchange values only by stages or shuffles.

    Each store has a THREAD range, and there is at most one GRID range.
    """
    kernel = assign_fragments(kernel)
    for step in (_merge_ranges, _place_stages, _tree_reduce, _coalesce, _share_fills, _store_once):
        kernel = step(kernel, target)
    return canonicalize(kernel)


class _IdPool:
    """Allocates ranges and stages with ids that are new in a kernel."""

    def __init__(self, kernel: UOp) -> None:
        nodes = toposort(kernel.src)
        self.range = 1 + max([n.arg.id for n in nodes if n.op is ops.RANGE], default=-1)
        self.stage = 1 + max([n.arg.id for n in nodes if n.op is ops.STAGE], default=-1)
        self.range_ids: list[int] = []

    def new_range(self, extent: UOp | int, kind: str, name: str = "") -> UOp:
        self.range += 1
        self.range_ids.append(self.range - 1)
        return build.range_(extent, self.range - 1, kind, name)

    def shared(self, value: UOp, ranges: Sequence[UOp]) -> UOp:
        self.stage += 1
        return build.stage(value, ranges, self.stage - 1, "SHARED")


def _rewrite(kernel: UOp, visit: Callable[[UOp, tuple[UOp, ...]], UOp | None],
             ids: _IdPool | None = None) -> UOp:
    """Rewrite the KERNEL; new ranges are innermost."""
    stores = rebuild(kernel.src, visit)
    return with_stores(kernel, stores, (*kernel.arg.order, *(ids.range_ids if ids else ())))


# ---- one GRID range, one THREAD range --------------------------------------------------------


def _merge_ranges(kernel: UOp, target: Target) -> UOp:
    """Merge the GRID ranges of all stores into one, and the THREAD ranges into one.

    THREAD ranges that are not free in every reduction over threads are not merged: along them
    threads store what others helped to reduce.
    """
    position = {id: i for i, id in enumerate(kernel.arg.order)}
    trees = [n.ranges for n in toposort(kernel.src) if n.op is ops.REDUCE
             and any(r.arg.kind == "THREAD" for r in bound_ranges(n))]
    common = frozenset([r for r in frozenset.intersection(*[s.ranges for s in kernel.src])
                        if r.arg.kind == "GRID" or all(r in ranges for ranges in trees)])
    ids, digits, outer = _IdPool(kernel), {}, []
    for kind in ("GRID", "THREAD"):
        mergeable = sorted([r for r in common if r.arg.kind == kind],
                           key=lambda r: position[r.arg.id])
        if len(mergeable) < 2:
            outer += [r.arg.id for r in mergeable]
            continue
        total = math.prod([Expr(extent(r)) for r in mergeable], start=Expr(build.index_const(1)))
        merged = ids.new_range(symbolic.simplify(total.node), kind, kind.lower())
        outer.append(merged.arg.id)
        quotient = Expr(merged)
        for r in reversed(mergeable):
            digit = quotient if r is mergeable[0] else quotient % Expr(extent(r))
            digits[r], quotient = symbolic.simplify(digit.node), quotient // Expr(extent(r))
    if not digits:
        return kernel

    stores = rebuild(kernel.src, simplify_indices, digits)
    return with_stores(kernel, stores, (*outer, *[i for i in kernel.arg.order if i not in outer]))


def _coalesce(kernel: UOp, target: Target) -> UOp:
    """Merge the THREAD ranges of each store into one, so that accesses are coalesced.

    Sequential loops are inside, so that thread-dependent values are computed before them.
    """
    ids = _IdPool(kernel)
    stores: list[UOp] = []
    for store in kernel.src:
        ranges = [r for r in store.ranges if r.arg.kind == "THREAD"]
        if len(ranges) > 1:
            ranges.sort(key=lambda r: (-abs(stride(store, r)), r.arg.id))
            merged = ids.new_range(math.prod([int(build.const_of(extent(r))) for r in ranges]),
                                   "THREAD")
            store, = rebuild([store], simplify_indices, _digits(merged, ranges))
        stores.append(store)
    grid = [r.arg.id for r in toposort(kernel.src) if r.op is ops.RANGE and r.arg.kind == "GRID"]
    other_order = [i for i in kernel.arg.order if i not in grid]
    return with_stores(kernel, stores, (*grid, *ids.range_ids, *other_order)) if ids.range_ids \
        else kernel


def _digits(merged: UOp, ranges: Sequence[UOp]) -> dict[UOp, UOp]:
    """Return ranges as digits of one range; the last range is the fastest."""
    digits, quotient = {}, Expr(merged)
    for r in reversed(ranges):
        digits[r] = symbolic.simplify((quotient % Expr(extent(r))).node)
        quotient = quotient // Expr(extent(r))
    return digits


# ---- stages -----------------------------------------------------------------------------------


def _place_stages(kernel: UOp, target: Target) -> UOp:
    """Assign stages to memory spaces that have room; recompute the others at their uses."""
    room = {"SHARED": target.shared, "PRIV": target.private}
    space: dict[UOp, str] = {}
    for node in toposort(kernel.src):
        if node.op is ops.STAGE and node.arg.space in room:
            dest = "SHARED" if any(r.arg.kind == "THREAD"
                                   for r in bound_ranges(node)) else node.arg.space
            is_static = all(d.op is ops.CONST for d in dims(node))
            size = _bytes(node, kernel, target) if is_static else 0
            fits = is_static and size <= room[dest] and not (
                dest == "SHARED" and node.arg.space == "PRIV" and _has_thread_copies(node))
            space[node] = dest if fits else ""
            room[dest] -= size if space[node] else 0
    double = {n for n in space if n.arg.double and _can_prefetch(n, kernel)}
    if sum([_bytes(n, kernel, target) for n in double]) > room["SHARED"] or \
            sum([_prefetch_registers(n, kernel, target) for n in double]) > (
                _REGS_AHEAD_MMA if any(is_warp_mma(n) for n in toposort(kernel.src))
                else _REGS_AHEAD):
        double = set()
    if all(of == n.arg.space and n.arg.double == (n in double) for n, of in space.items()):
        return kernel

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in space and space[node]:
            return node.replace(src=src, arg=kernel_args.Stage(
                node.arg.id, space[node], node.arg.name, node in double))
        if node.op is ops.LOAD and space.get(buffer(node)) == "":
            return _recompute(buffer(src[0]), src)
        return None

    return _rewrite(kernel, visit)


def _has_thread_copies(stage: UOp) -> bool:
    """Return whether a stage has a copy for each of several threads."""
    return any(r.arg.kind == "THREAD" for r in stage.ranges)


def _bytes(stage: UOp, kernel: UOp, target: Target) -> int:
    """Return the bytes of a stage in its final layout."""
    if not _is_cooperative(stage):
        return math.prod([int(build.const_of(d)) for d in dims(stage)]) * stage.dtype.itemsize
    lanes = _lanes(stage, target)
    chunk = thread_count(kernel) * lanes
    return -(-math.prod(_padded(stage, lanes)) // chunk) * chunk * stage.dtype.itemsize


def _is_cooperative(stage: UOp) -> bool:
    """Return whether all threads fill a stage cooperatively."""
    return stage.arg.space == "SHARED" and all(r.arg.kind != "THREAD" for r in bound_ranges(stage))


def _can_prefetch(stage: UOp, kernel: UOp) -> bool:
    """Return whether a stage can be prefetched for the next iteration of its loop.

    All threads must run that loop, and the stage's value must not depend on other statements in it.
    """
    if not _is_cooperative(stage):
        return False
    loops = _loops(stage, kernel)
    store_ranges = frozenset.intersection(*[s.ranges for s in kernel.src])
    outer = [r for r in store_ranges if r.arg.kind == "THREAD"]
    return bool(loops and outer) and build.const_of(extent(outer[0])) == thread_count(kernel) and \
        not any(is_statement(n) and loops[-1] in n.ranges for n in toposort([value(stage)]))


def _loops(stage: UOp, kernel: UOp) -> tuple[UOp, ...]:
    """Return the loops around the fill of a stage."""
    return LoopOrder(kernel.arg.order).select_kinds(stage.ranges, ("SEQ",))


def _prefetch_registers(stage: UOp, kernel: UOp, target: Target) -> int:
    """Return the registers per thread to prefetch a stage: addresses, and values unless copied."""
    lanes = _lanes(stage, target)
    elements = _bytes(stage, kernel, target) // stage.dtype.itemsize
    registers = 0 if is_async_copy(stage, target) else lanes * -(-stage.dtype.itemsize // 4)
    return -(-elements // (thread_count(kernel) * lanes)) * (2 + registers)


def _recompute(stage: UOp, src: tuple[UOp, ...]) -> UOp:
    """Return the value of a STAGE at an index, to replace a LOAD with operands ``src``."""
    computed, = substitute([value(stage)], dict(zip(bound_ranges(stage), indices(src[0]))))
    if len(src) == 1:
        return computed
    return build.where(src[1], computed, build.const(0, computed.dtype))


def _tree_reduce(kernel: UOp, target: Target) -> UOp:
    """Rewrite reductions over THREAD ranges as trees."""
    ids = _IdPool(kernel)

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.REDUCE:
            return None
        thread_ranges = [r for r in bound_ranges(node) if r.arg.kind == "THREAD"]
        if not thread_ranges:
            return None
        others = [r for r in bound_ranges(node) if r not in thread_ranges]
        partial = node.with_operands((src[0], *others)) if others else src[0]
        return _ReductionTree(node, thread_ranges, target, ids).total(partial)

    return _rewrite(kernel, visit, ids)


class _ReductionTree:
    """A reduction over threads: neighbors first, by shuffles or stages.

    Threads are ``across * i + f``: i is the term, f the THREAD ranges that are not reduced. Threads
    of a subgroup exchange values by shuffles; the rest is reduced in stages.
    """

    def __init__(self, reduce: UOp, reduced: Sequence[UOp], target: Target, ids: _IdPool) -> None:
        self.fold, self.shared, self.ids = reduce, reduced, ids
        self.free = [r for r in reduce.ranges if r.arg.kind == "THREAD"]
        self.free.sort(key=lambda r: r.arg.id)
        self.across = math.prod([int(build.const_of(extent(r))) for r in self.free])
        self.terms = math.prod([int(build.const_of(extent(r))) for r in reduced])
        fills_subgroups = self.across * self.terms % max(1, target.subgroup) == 0
        self.subgroup = target.subgroup if fills_subgroups and _can_shuffle(reduce.dtype) else 1

    def total(self, partial: UOp) -> UOp:
        """Reduce the partial results of all threads; all threads get the result."""
        partial, t = self._merge_threads(partial)
        step = 1
        while 2 * step * self.across <= self.subgroup and self.terms % (2 * step) == 0:
            other = build_kernel_loops.shuffle_xor(partial, t, step * self.across)
            partial = build.elementwise(self.fold.arg.monoid, partial, other)
            step *= 2
        stage, remaining = self.ids.shared(partial, [t]), self.terms // step
        while remaining > _TREE_RADIX:
            count = -(-remaining // _TREE_RADIX)
            u, w = self.ids.new_range(count * self.across, "THREAD"), \
                self.ids.new_range(_TREE_RADIX, "UNROLL")
            i = Expr(u) // self.across * _TREE_RADIX + Expr(w)
            term = self._term(stage, i, step, Expr(u) % self.across,
                              remaining if count * _TREE_RADIX > remaining else None)
            stage, remaining, step = self.ids.shared(self._terms(term, w), [u]), count, 1
        free_index = Expr(build.index_const(0))
        for r in self.free:
            free_index = free_index * Expr(extent(r)) + Expr(r)
        if remaining == 1:
            return self._term(stage, Expr(build.index_const(0)), step, free_index)
        w = self.ids.new_range(remaining, "UNROLL")
        return self._terms(self._term(stage, Expr(w), step, free_index), w)

    def _merge_threads(self, partial: UOp) -> tuple[UOp, UOp]:
        """Return the partial result of a thread over one merged range, and that range."""
        if len(self.shared) == 1 and not self.free:
            return partial, self.shared[0]
        merged = self.ids.new_range(self.across * self.terms, "THREAD")
        substituted, = substitute([partial], _digits(merged, [*self.shared, *self.free]))
        substituted, = rebuild([substituted], simplify_indices)
        return substituted, merged

    def _term(self, stage: UOp, i: Expr, step: int, f: Expr, below: int | None = None) -> UOp:
        """Load term i of a stage; the identity if i is not ``below`` a bound."""
        at = build.index_into(stage, symbolic.simplify((i * (step * self.across) + f).node))
        if below is None:
            return build.load(at)
        valid = build.lt(i.node, build.index_const(below))
        monoid, dtype = self.fold.arg.monoid, self.fold.dtype
        return build.where(valid, build.load(at, valid), build.const(monoid.identity(dtype), dtype))

    def _terms(self, term: UOp, w: UOp) -> UOp:
        return UOp(ops.REDUCE, self.fold.dtype, (term, w), self.fold.arg)


def _can_shuffle(dtype: DType) -> bool:
    """Return whether a shuffle supports a type: 32 or 64 bits, or bool."""
    return dtype.is_bool or dtype.itemsize in (4, 8) and dtype is not dtypes.index


def _share_fills(kernel: UOp, target: Target) -> UOp:
    """Distribute the fill of SHARED stages without THREAD ranges over all threads.

    Each thread fills elements with a stride of the number of threads, or vectors of neighbors if
    the source is contiguous.
    """
    shared_stages = [n for n in toposort(kernel.src) if n.op is ops.STAGE and _is_cooperative(n)]
    if not shared_stages:
        return kernel
    ids, count = _IdPool(kernel), thread_count(kernel)
    lanes_of = {stage: _lanes(stage, target) for stage in shared_stages}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in shared_stages:
            lanes = lanes_of[node]
            lengths = [int(build.const_of(d)) for d in dims(node)]
            padded = _padded(node, lanes)
            lengths[-1], padded[-1] = lengths[-1] // lanes, padded[-1] // lanes
            size = math.prod(padded)
            turns = ids.new_range(-(-size // count), "UNROLL" if node.arg.double else "SEQ")
            thread = ids.new_range(count, "THREAD")
            lane = [ids.new_range(lanes, "UNROLL")] if lanes > 1 else []
            flat_index = symbolic.simplify((Expr(turns) * count + Expr(thread)).node)
            if size % count:  # the last ones fill padding
                flat_index = symbolic.simplify((Expr(flat_index) % size).node)
            digits: dict[UOp, UOp] = {}
            for r, n, length in zip(*map(reversed, (bound_ranges(node), padded, lengths))):
                digit = Expr(flat_index) % n
                if n > length:
                    digit = minimum(digit, length - 1)
                if lane and not digits:
                    digit = digit * lanes + Expr(lane[0])
                digits[r] = symbolic.simplify(digit.node)
                flat_index = symbolic.simplify((Expr(flat_index) // n).node)
            fill_value, = substitute(src[:1], digits)
            fill_value, = rebuild([fill_value], simplify_indices)
            buffers = [ids.new_range(2, "UNROLL")] if node.arg.double else []
            return build.stage(fill_value, [*buffers, turns, thread, *lane], node.arg.id, "SHARED",
                               node.arg.name, node.arg.double)
        if node.op is ops.INDEX and buffer(node) in shared_stages:
            lanes = lanes_of[buffer(node)]
            flat = Expr(build.index_const(0))
            for i, d in zip(src[1:], _padded(buffer(node), lanes)):
                flat = flat * d + Expr(i)
            vector, trip = flat // lanes, flat // (count * lanes)  # remainders are differences:
            index = [trip, vector - trip * count]                  # so the element is ``flat``
            index += [flat - vector * lanes] if lanes > 1 else []
            if buffer(node).arg.double:
                index.insert(0, Expr(_loops(buffer(node), kernel)[-1]) % 2)
            return build.index_into(src[0], *[symbolic.simplify(i.node) for i in index])
        return None

    return _rewrite(kernel, visit, ids)


def _padded(stage: UOp, lanes: int) -> list[int]:
    """Return the padded lengths of a stage.

    An odd last dimension (in vectors) avoids bank conflicts of threads along the first dimensions.
    """
    lengths = [int(build.const_of(d)) for d in dims(stage)]
    if len(lengths) > 1 and lengths[-1] // lanes % 2 == 0:
        lengths[-1] += lanes
    return lengths


def _lanes(stage: UOp, target: Target) -> int:
    """Return the vector length for filling a stage: its one unconditional LOAD must be contiguous.
    """
    last, loads = bound_ranges(stage)[-1], [n for n in toposort([value(stage)]) if n.op is ops.LOAD]
    lanes = target.vector_lanes(max([stage.dtype.itemsize, *[n.dtype.itemsize for n in loads]]))
    steps = [symbolic.coefficient(symbolic.element_offset(n), last) for n in loads]
    if len(loads) != 1 or steps != [1] or validity(loads[0]) is not None:
        return 1
    while build.const_of(extent(last)) % lanes:
        lanes //= 2
    return lanes


def _store_once(kernel: UOp, target: Target) -> UOp:
    """Let the first thread do the stores that depend on no thread."""
    if all(any(r.arg.kind == "THREAD" for r in store.ranges) for store in kernel.src):
        return kernel
    ids = _IdPool(kernel)
    is_first = build.lt(ids.new_range(1, "THREAD"), build.index_const(1))
    stores = []
    for store in kernel.src:
        if any(r.arg.kind == "THREAD" for r in store.ranges):
            stores.append(store)
            continue
        valid = validity(store)
        index, stored_value = store.src[:2]
        stores.append(build.store(index, stored_value, is_first if valid is None else
                                  build.and_(is_first, valid), store.arg))
    return with_stores(kernel, stores, (*kernel.arg.order, *ids.range_ids))
