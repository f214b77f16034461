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

>>> from fnx.core import dtypes
>>> r, k = build.range_(9, 0, "GRID"), build.range_(64, 1, "THREAD")
>>> x = build.load(build.at(build.ref(0, dtypes.float32, (9, 64)), r, k))
>>> o = build.at(build.ref(1, dtypes.float32, (9,)), r)
>>> total = build.store(o, build.reduce_ranges(x, ops.ADD, [k]))
>>> made = threads(build.kernel([total], "sum", (0, 1)), Target("gpu", threads=64, shared=1024))
>>> [extent(n.src[1]).arg for n in toposort([made]) if n.op is ops.STAGE]
[64, 8]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from fnx.core import build, dtypes, op_args, ops
from fnx.core.dtypes import DType
from fnx.core.expr import Expr, minimum
from fnx.core.parts import LoopOrder, buffer, closed, dims, extent, indices, validity, value
from fnx.core.rewriting import symbolic
from fnx.core.target import Target
from fnx.core.uop import UOp, rebuild, substitute, toposort
from fnx.lower.kernel.canonical import canonical, over_stores
from fnx.lower.program.double_buffers import is_copy
from fnx.lower.program.fragments import fragments
from fnx.lower.program.loop_nest import is_statement
from fnx.lower.program.warps import is_of_warp
from fnx.lower.schedule.workload import stride

_RADIX = 8   # terms that a thread reduces at each level of a tree
_AHEAD, _AHEAD_OF_WARP = 16, 48  # prefetch registers, besides a product's tile


def threads(kernel: UOp, target: Target) -> UOp:
    """Return the KERNEL in which threads exchange values only by stages or shuffles.

    Each store has a THREAD range, and there is at most one GRID range.
    """
    kernel = fragments(kernel)
    for step in (_single, _placed, _folded, _stored_beside, _filled_together, _stored_once):
        kernel = step(kernel, target)
    return canonical(kernel)


class _Ids:
    """Allocates ranges and stages with ids that are new in a kernel."""

    def __init__(self, kernel: UOp) -> None:
        nodes = toposort(kernel.src)
        self.range = 1 + max([n.arg.id for n in nodes if n.op is ops.RANGE], default=-1)
        self.stage = 1 + max([n.arg.id for n in nodes if n.op is ops.STAGE], default=-1)
        self.made: list[int] = []

    def new_range(self, extent: UOp | int, kind: str, name: str = "") -> UOp:
        self.range += 1
        self.made.append(self.range - 1)
        return build.range_(extent, self.range - 1, kind, name)

    def shared(self, value: UOp, ranges: Sequence[UOp]) -> UOp:
        self.stage += 1
        return build.stage(value, ranges, self.stage - 1, "SHARED")


def _rewritten(kernel: UOp, visit: Callable[[UOp, tuple[UOp, ...]], UOp | None],
               ids: _Ids | None = None) -> UOp:
    """Rewrite the KERNEL; new ranges are innermost."""
    stores = rebuild(kernel.src, visit)
    return over_stores(kernel, stores, (*kernel.arg.order, *(ids.made if ids else ())))


# ---- one GRID range, one THREAD range --------------------------------------------------------


def _single(kernel: UOp, target: Target) -> UOp:
    """Merge the GRID ranges of all stores into one, and the THREAD ranges into one.

    THREAD ranges that are not free in every reduction over threads are not merged: along them
    threads store what others helped to reduce.
    """
    position = {id: i for i, id in enumerate(kernel.arg.order)}
    trees = [n.ranges for n in toposort(kernel.src) if n.op is ops.REDUCE
             and any(r.arg.kind == "THREAD" for r in closed(n))]
    common = frozenset([r for r in frozenset.intersection(*[s.ranges for s in kernel.src])
                        if r.arg.kind == "GRID" or all(r in ranges for ranges in trees)])
    ids, to, front = _Ids(kernel), {}, []
    for kind in ("GRID", "THREAD"):
        several = sorted([r for r in common if r.arg.kind == kind],
                         key=lambda r: position[r.arg.id])
        if len(several) < 2:
            front += [r.arg.id for r in several]
            continue
        total = math.prod([Expr(extent(r)) for r in several], start=Expr(build.index_const(1)))
        one = ids.new_range(symbolic.simplify(total.node), kind, kind.lower())
        front.append(one.arg.id)
        rest = Expr(one)
        for r in reversed(several):
            digit = rest if r is several[0] else rest % Expr(extent(r))
            to[r], rest = symbolic.simplify(digit.node), rest // Expr(extent(r))
    if not to:
        return kernel

    stores = rebuild(kernel.src, _simplified, to)
    return over_stores(kernel, stores, (*front, *[i for i in kernel.arg.order if i not in front]))


def _stored_beside(kernel: UOp, target: Target) -> UOp:
    """Merge the THREAD ranges of each store into one, so that accesses are coalesced.

    Sequential loops are inside, so that thread-dependent values are computed before them.
    """
    ids = _Ids(kernel)
    stores: list[UOp] = []
    for store in kernel.src:
        several = [r for r in store.ranges if r.arg.kind == "THREAD"]
        if len(several) > 1:
            several.sort(key=lambda r: (-abs(stride(store, r)), r.arg.id))
            one = ids.new_range(math.prod([int(build.const_of(extent(r))) for r in several]),
                                "THREAD")
            store, = rebuild([store], _simplified, _digits(one, several))
        stores.append(store)
    grid = [r.arg.id for r in toposort(kernel.src) if r.op is ops.RANGE and r.arg.kind == "GRID"]
    rest = [i for i in kernel.arg.order if i not in grid]
    return over_stores(kernel, stores, (*grid, *ids.made, *rest)) if ids.made else kernel


def _digits(one: UOp, ranges: Sequence[UOp]) -> dict[UOp, UOp]:
    """Return ranges as digits of one range; the last range is the fastest."""
    digits, rest = {}, Expr(one)
    for r in reversed(ranges):
        digits[r] = symbolic.simplify((rest % Expr(extent(r))).node)
        rest = rest // Expr(extent(r))
    return digits


# ---- stages -----------------------------------------------------------------------------------


def _placed(kernel: UOp, target: Target) -> UOp:
    """Assign stages to memory spaces that have room; recompute the others at their uses."""
    room = {"SHARED": target.shared, "PRIV": target.private}
    space: dict[UOp, str] = {}
    for node in toposort(kernel.src):
        if node.op is ops.STAGE and node.arg.space in room:
            of = "SHARED" if any(r.arg.kind == "THREAD" for r in closed(node)) else node.arg.space
            known = all(d.op is ops.CONST for d in dims(node))
            size = _bytes(node, kernel, target) if known else 0
            fits = known and size <= room[of] and not (
                of == "SHARED" and node.arg.space == "PRIV" and _is_of_threads(node))
            space[node] = of if fits else ""
            room[of] -= size if space[node] else 0
    double = {n for n in space if n.arg.double and _is_ahead(n, kernel)}
    if sum([_bytes(n, kernel, target) for n in double]) > room["SHARED"] or \
            sum([_held(n, kernel, target) for n in double]) > (
                _AHEAD_OF_WARP if any(is_of_warp(n) for n in toposort(kernel.src)) else _AHEAD):
        double = set()
    if all(of == n.arg.space and n.arg.double == (n in double) for n, of in space.items()):
        return kernel

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in space and space[node]:
            return node.replace(src=src, arg=op_args.Stage(
                node.arg.id, space[node], node.arg.name, node in double))
        if node.op is ops.LOAD and space.get(buffer(node)) == "":
            return _computed(buffer(src[0]), src)
        return None

    return _rewritten(kernel, visit)


def _is_of_threads(stage: UOp) -> bool:
    """Return whether a stage has a copy for each of several threads."""
    return any(r.arg.kind == "THREAD" for r in stage.ranges)


def _bytes(stage: UOp, kernel: UOp, target: Target) -> int:
    """Return the bytes of a stage in its final layout."""
    if not _is_together(stage):
        return math.prod([int(build.const_of(d)) for d in dims(stage)]) * stage.dtype.itemsize
    lanes = _lanes(stage, target)
    turn = _threads(kernel) * lanes
    return -(-math.prod(_padded(stage, lanes)) // turn) * turn * stage.dtype.itemsize


def _is_together(stage: UOp) -> bool:
    """Return whether all threads fill a stage cooperatively."""
    return stage.arg.space == "SHARED" and all(r.arg.kind != "THREAD" for r in closed(stage))


def _is_ahead(stage: UOp, kernel: UOp) -> bool:
    """Return whether a stage can be prefetched for the next iteration of its loop.

    All threads must run that loop, and the stage's value must not depend on other statements in it.
    """
    if not _is_together(stage):
        return False
    loops = _loops(stage, kernel)
    common = frozenset.intersection(*[s.ranges for s in kernel.src])
    whole = [r for r in common if r.arg.kind == "THREAD"]
    return bool(loops and whole) and build.const_of(extent(whole[0])) == _threads(kernel) and \
        not any(is_statement(n) and loops[-1] in n.ranges for n in toposort([value(stage)]))


def _loops(stage: UOp, kernel: UOp) -> tuple[UOp, ...]:
    """Return the loops around the fill of a stage."""
    return LoopOrder(kernel.arg.order).of_kind(stage.ranges, ("SEQ",))


def _held(stage: UOp, kernel: UOp, target: Target) -> int:
    """Return the registers per thread to prefetch a stage: addresses, and values unless copied."""
    lanes = _lanes(stage, target)
    elements = _bytes(stage, kernel, target) // stage.dtype.itemsize
    words = 0 if is_copy(stage, target) else lanes * -(-stage.dtype.itemsize // 4)
    return -(-elements // (_threads(kernel) * lanes)) * (2 + words)


def _computed(stage: UOp, src: tuple[UOp, ...]) -> UOp:
    """Return the value of a STAGE at an index, to replace a LOAD with operands ``src``."""
    found, = substitute([value(stage)], dict(zip(closed(stage), indices(src[0]))))
    if len(src) == 1:
        return found
    return build.where(src[1], found, build.const(0, found.dtype))


def _folded(kernel: UOp, target: Target) -> UOp:
    """Rewrite reductions over THREAD ranges as trees."""
    ids = _Ids(kernel)

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is not ops.REDUCE:
            return None
        shared = [r for r in closed(node) if r.arg.kind == "THREAD"]
        if not shared:
            return None
        others = [r for r in closed(node) if r not in shared]
        part = node.over((src[0], *others)) if others else src[0]
        return _Tree(node, shared, target, ids).total(part)

    return _rewritten(kernel, visit, ids)


class _Tree:
    """A reduction over threads: neighbors first, by shuffles or stages.

    Threads are ``across * i + f``: i is the term, f the THREAD ranges that are not reduced. Threads
    of a subgroup exchange values by shuffles; the rest is reduced in stages.
    """

    def __init__(self, fold: UOp, shared: Sequence[UOp], target: Target, ids: _Ids) -> None:
        self.fold, self.shared, self.ids = fold, shared, ids
        self.free = [r for r in fold.ranges if r.arg.kind == "THREAD"]
        self.free.sort(key=lambda r: r.arg.id)
        self.across = math.prod([int(build.const_of(extent(r))) for r in self.free])
        self.terms = math.prod([int(build.const_of(extent(r))) for r in shared])
        whole = self.across * self.terms % max(1, target.subgroup) == 0
        self.subgroup = target.subgroup if whole and _is_shuffled(fold.dtype) else 1

    def total(self, part: UOp) -> UOp:
        """Reduce the partial results of all threads; all threads get the result."""
        part, t = self._of_one_range(part)
        step = 1
        while 2 * step * self.across <= self.subgroup and self.terms % (2 * step) == 0:
            other = build.shuffle_xor(part, t, step * self.across)
            part = build.elementwise(self.fold.arg.monoid, part, other)
            step *= 2
        stage, left = self.ids.shared(part, [t]), self.terms // step
        while left > _RADIX:
            count = -(-left // _RADIX)
            u, w = self.ids.new_range(count * self.across, "THREAD"), \
                self.ids.new_range(_RADIX, "UNROLL")
            i = Expr(u) // self.across * _RADIX + Expr(w)
            term = self._term(stage, i, step, Expr(u) % self.across,
                              left if count * _RADIX > left else None)
            stage, left, step = self.ids.shared(self._terms(term, w), [u]), count, 1
        place = Expr(build.index_const(0))
        for r in self.free:
            place = place * Expr(extent(r)) + Expr(r)
        if left == 1:
            return self._term(stage, Expr(build.index_const(0)), step, place)
        w = self.ids.new_range(left, "UNROLL")
        return self._terms(self._term(stage, Expr(w), step, place), w)

    def _of_one_range(self, part: UOp) -> tuple[UOp, UOp]:
        """Return the partial result of a thread over one merged range, and that range."""
        if len(self.shared) == 1 and not self.free:
            return part, self.shared[0]
        t = self.ids.new_range(self.across * self.terms, "THREAD")
        made, = substitute([part], _digits(t, [*self.shared, *self.free]))
        made, = rebuild([made], _simplified)
        return made, t

    def _term(self, stage: UOp, i: Expr, step: int, f: Expr, below: int | None = None) -> UOp:
        """Load term i of a stage; the identity if i is not ``below`` a bound."""
        at = build.at(stage, symbolic.simplify((i * (step * self.across) + f).node))
        if below is None:
            return build.load(at)
        there = build.lt(i.node, build.index_const(below))
        monoid, dtype = self.fold.arg.monoid, self.fold.dtype
        return build.where(there, build.load(at, there), build.const(monoid.identity(dtype), dtype))

    def _terms(self, term: UOp, w: UOp) -> UOp:
        return UOp(ops.REDUCE, self.fold.dtype, (term, w), self.fold.arg)


def _is_shuffled(dtype: DType) -> bool:
    """Return whether a shuffle supports a type: 32 or 64 bits, or bool."""
    return dtype.is_bool or dtype.itemsize in (4, 8) and dtype is not dtypes.index


def _filled_together(kernel: UOp, target: Target) -> UOp:
    """Distribute the fill of SHARED stages without THREAD ranges over all threads.

    Each thread fills elements with a stride of the number of threads, or vectors of neighbors if
    the source is contiguous.
    """
    found = [n for n in toposort(kernel.src) if n.op is ops.STAGE and _is_together(n)]
    if not found:
        return kernel
    ids, count = _Ids(kernel), _threads(kernel)
    lanes_of = {stage: _lanes(stage, target) for stage in found}

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node in found:
            lanes = lanes_of[node]
            lengths = [int(build.const_of(d)) for d in dims(node)]
            padded = _padded(node, lanes)
            lengths[-1], padded[-1] = lengths[-1] // lanes, padded[-1] // lanes
            size = math.prod(padded)
            turns = ids.new_range(-(-size // count), "UNROLL" if node.arg.double else "SEQ")
            thread = ids.new_range(count, "THREAD")
            lane = [ids.new_range(lanes, "UNROLL")] if lanes > 1 else []
            rest = symbolic.simplify((Expr(turns) * count + Expr(thread)).node)
            if size % count:  # the last ones fill padding
                rest = symbolic.simplify((Expr(rest) % size).node)
            digits: dict[UOp, UOp] = {}
            for r, n, length in zip(*map(reversed, (closed(node), padded, lengths))):
                digit = Expr(rest) % n
                if n > length:
                    digit = minimum(digit, length - 1)
                if lane and not digits:
                    digit = digit * lanes + Expr(lane[0])
                digits[r] = symbolic.simplify(digit.node)
                rest = symbolic.simplify((Expr(rest) // n).node)
            filled, = substitute(src[:1], digits)
            filled, = rebuild([filled], _simplified)
            both = [ids.new_range(2, "UNROLL")] if node.arg.double else []
            return build.stage(filled, [*both, turns, thread, *lane], node.arg.id, "SHARED",
                               node.arg.name, node.arg.double)
        if node.op is ops.INDEX and buffer(node) in found:
            lanes = lanes_of[buffer(node)]
            flat = Expr(build.index_const(0))
            for i, d in zip(src[1:], _padded(buffer(node), lanes)):
                flat = flat * d + Expr(i)
            vector, turn = flat // lanes, flat // (count * lanes)  # remainders are differences:
            place = [turn, vector - turn * count]                  # so the element is ``flat``
            place += [flat - vector * lanes] if lanes > 1 else []
            if buffer(node).arg.double:
                place.insert(0, Expr(_loops(buffer(node), kernel)[-1]) % 2)
            return build.at(src[0], *[symbolic.simplify(i.node) for i in place])
        return None

    return _rewritten(kernel, visit, ids)


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
    last, loads = closed(stage)[-1], [n for n in toposort([value(stage)]) if n.op is ops.LOAD]
    lanes = target.lanes(max([stage.dtype.itemsize, *[n.dtype.itemsize for n in loads]]))
    steps = [symbolic.coefficient(symbolic.element(n), last) for n in loads]
    if len(loads) != 1 or steps != [1] or validity(loads[0]) is not None:
        return 1
    while build.const_of(extent(last)) % lanes:
        lanes //= 2
    return lanes


def _simplified(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    if node.op is ops.INDEX:
        return build.at(src[0], *map(symbolic.simplify, src[1:]))
    return None


def _threads(kernel: UOp) -> int:
    return max([int(build.const_of(extent(n))) for n in toposort(kernel.src)
                if n.op is ops.RANGE and n.arg.kind == "THREAD"], default=1)


def _stored_once(kernel: UOp, target: Target) -> UOp:
    """Let the first thread do the stores that depend on no thread."""
    if all(any(r.arg.kind == "THREAD" for r in store.ranges) for store in kernel.src):
        return kernel
    ids = _Ids(kernel)
    first = build.lt(ids.new_range(1, "THREAD"), build.index_const(1))
    stores = []
    for store in kernel.src:
        if any(r.arg.kind == "THREAD" for r in store.ranges):
            stores.append(store)
            continue
        valid = validity(store)
        place, stored = store.src[:2]
        stores.append(build.store(place, stored, first if valid is None else
                                  build.and_(first, valid), store.arg))
    return over_stores(kernel, stores, (*kernel.arg.order, *ids.made))


