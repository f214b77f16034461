"""threads: what the threads of a group do together, as stages in memory that they share.

    before  REDUCE(x[r, 64*k + t], k, t, ADD)               r GRID, t THREAD 64, k SEQ
            STORE(o[r], that)
    after   S = STAGE(REDUCE(x[r, 64*k + t], k), t, SHARED)                 64 partial sums
            T = STAGE(S[8*u] + S[8*u + 1] + ... + S[8*u + 7], u THREAD 8, SHARED)
            STORE(o[r], T[0] + T[1] + ... + T[7], valid = w < 1)            w THREAD 1
    or      a = REDUCE(x[r, 64*k + t], k)                                   with subgroups of 32
            b = a + SHUFFLE_XOR(a, t, 1), c = b + SHUFFLE_XOR(b, t, 2), ... up to f
            S = STAGE(f, t, SHARED)
            STORE(o[r], S[0] + S[32], valid = w < 1)

A fold over a THREAD range is a tree of neighbours: the same for each number of groups, and whether
threads meet in stages or, where the target has subgroups, read values of one another. A stage
that is filled over a THREAD range is SHARED; one in SHARED memory that is not is filled by all
threads together. One that has no place there, or in a thread's own memory, or would be one for
each of other threads, is computed where it is read. A store that depends on no thread is done by
the first. Several ranges that are given to groups, or to threads that go through all of the kernel,
are one range, of which they are digits.

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

_RADIX = 8   # terms that a thread folds at each step of a tree
_AHEAD, _AHEAD_OF_WARP = 16, 48  # registers for what is filled ahead, beside a product's tile


def threads(kernel: UOp, target: Target) -> UOp:
    """The KERNEL in which threads meet in stages only, each store has a THREAD range, and GRID
    ranges are one."""
    kernel = fragments(kernel)
    for step in (_single, _placed, _folded, _stored_beside, _filled_together, _stored_once):
        kernel = step(kernel, target)
    return canonical(kernel)


class _Ids:
    """Ranges and stages with numbers that a kernel does not have."""

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
    """The KERNEL after a walk; new ranges are inside of the others."""
    stores = rebuild(kernel.src, visit)
    return over_stores(kernel, stores, (*kernel.arg.order, *(ids.made if ids else ())))


# ---- one range of groups, one of threads -----------------------------------------------------


def _single(kernel: UOp, target: Target) -> UOp:
    """Ranges of all stores that are given to groups, or to threads, as digits of one; but not
    those along which threads store what others folded with them."""
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
    """The THREAD ranges of a store as digits of one: neighbours store neighbours. Its loops are
    inside, so what only a thread depends on is computed before them."""
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
    """Ranges as digits of one, the last one of which changes first."""
    digits, rest = {}, Expr(one)
    for r in reversed(ranges):
        digits[r] = symbolic.simplify((rest % Expr(extent(r))).node)
        rest = rest // Expr(extent(r))
    return digits


# ---- stages -----------------------------------------------------------------------------------


def _placed(kernel: UOp, target: Target) -> UOp:
    """Stages in the memory that has room for them; the others are computed where they are read."""
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
    """Whether threads that do not fill it together each have one of their own."""
    return any(r.arg.kind == "THREAD" for r in stage.ranges)


def _bytes(stage: UOp, kernel: UOp, target: Target) -> int:
    """What a stage takes, as it will be laid out."""
    if not _is_together(stage):
        return math.prod([int(build.const_of(d)) for d in dims(stage)]) * stage.dtype.itemsize
    lanes = _lanes(stage, target)
    turn = _threads(kernel) * lanes
    return -(-math.prod(_padded(stage, lanes)) // turn) * turn * stage.dtype.itemsize


def _is_together(stage: UOp) -> bool:
    """Whether a stage is filled by all threads together."""
    return stage.arg.space == "SHARED" and all(r.arg.kind != "THREAD" for r in closed(stage))


def _is_ahead(stage: UOp, kernel: UOp) -> bool:
    """Whether a stage can be filled for the next iteration of its loop: all threads go through
    that loop, and nothing else that its value needs changes in it."""
    if not _is_together(stage):
        return False
    loops = _loops(stage, kernel)
    common = frozenset.intersection(*[s.ranges for s in kernel.src])
    whole = [r for r in common if r.arg.kind == "THREAD"]
    return bool(loops and whole) and build.const_of(extent(whole[0])) == _threads(kernel) and \
        not any(is_statement(n) and loops[-1] in n.ranges for n in toposort([value(stage)]))


def _loops(stage: UOp, kernel: UOp) -> tuple[UOp, ...]:
    """The loops in which a stage is filled."""
    return LoopOrder(kernel.arg.order).of_kind(stage.ranges, ("SEQ",))


def _held(stage: UOp, kernel: UOp, target: Target) -> int:
    """Registers of a thread for what it fills ahead: addresses, and values that it loads itself."""
    lanes = _lanes(stage, target)
    elements = _bytes(stage, kernel, target) // stage.dtype.itemsize
    words = 0 if is_copy(stage, target) else lanes * -(-stage.dtype.itemsize // 4)
    return -(-elements // (_threads(kernel) * lanes)) * (2 + words)


def _computed(stage: UOp, src: tuple[UOp, ...]) -> UOp:
    """The value of a STAGE at a place, in the place of a LOAD with these operands."""
    found, = substitute([value(stage)], dict(zip(closed(stage), indices(src[0]))))
    if len(src) == 1:
        return found
    return build.where(src[1], found, build.const(0, found.dtype))


def _folded(kernel: UOp, target: Target) -> UOp:
    """Folds over THREAD ranges as trees."""
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
    """A fold over threads: neighbours first, whatever they meet by.

    Threads are ``across * i + f``: i are the terms, f the THREAD ranges that are not folded. Those
    of a subgroup read values of one another; what is left is folded in stages.
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
        """The fold of what the threads have, in all of them."""
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
        """What a thread has, over one range of which the others are digits."""
        if len(self.shared) == 1 and not self.free:
            return part, self.shared[0]
        t = self.ids.new_range(self.across * self.terms, "THREAD")
        made, = substitute([part], _digits(t, [*self.shared, *self.free]))
        made, = rebuild([made], _simplified)
        return made, t

    def _term(self, stage: UOp, i: Expr, step: int, f: Expr, below: int | None = None) -> UOp:
        """The i-th of the terms of a stage; with a bound, nothing beyond it."""
        at = build.at(stage, symbolic.simplify((i * (step * self.across) + f).node))
        if below is None:
            return build.load(at)
        there = build.lt(i.node, build.index_const(below))
        monoid, dtype = self.fold.arg.monoid, self.fold.dtype
        return build.where(there, build.load(at, there), build.const(monoid.identity(dtype), dtype))

    def _terms(self, term: UOp, w: UOp) -> UOp:
        return UOp(ops.REDUCE, self.fold.dtype, (term, w), self.fold.arg)


def _is_shuffled(dtype: DType) -> bool:
    """Whether values of a type are read from other threads: words, two, or a bool."""
    return dtype.is_bool or dtype.itemsize in (4, 8) and dtype is not dtypes.index


def _filled_together(kernel: UOp, target: Target) -> UOp:
    """SHARED stages over ranges of no thread: each thread fills every so manieth element, or as
    many neighbours as a vector has where they are neighbours in memory."""
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
            if size % count:  # the last ones fill what nobody reads
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
    """The lengths in which a stage is laid out: threads that walk along its first dimensions
    read from different banks of the memory where its last one is odd, in vectors."""
    lengths = [int(build.const_of(d)) for d in dims(stage)]
    if len(lengths) > 1 and lengths[-1] // lanes % 2 == 0:
        lengths[-1] += lanes
    return lengths


def _lanes(stage: UOp, target: Target) -> int:
    """How many neighbours along the last dimension of a stage are so in all that it is filled
    with, as many as a vector has at most."""
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
    """Stores that depend on no thread are the first one's."""
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


