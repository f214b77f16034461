"""tile: a KERNEL and a schedule -> the KERNEL with those loops. Legality first, then rewrite.

    before  STORE(o[m, n], REDUCE(x[m, k] * w[k, n], k, ADD))               order m n k
            split("m", 14, "io", "i"), split("n", 16, "jr", "l"), order("io", "jr", "k", "i", "l"),
            parallel("io"), unroll("i"), vectorize("l"), stage("w", at="jr")
    after   W = STAGE(w[k', 16*jr + l'], k', l')                    filled in loop jr: a panel
            a = x[min(14*io + i, M - 1), k]
            STORE(o[14*io + i, 16*jr + l], REDUCE(a * W[k, l], k, ADD),
                  valid = 14*io + i < M and 16*jr + l < N)          order io jr k i l k' l'

Splits round up. Where a value of a range is outside, STOREs do not write, LOADs do not read
(they give 0), and a REDUCE over it takes the monoid's identity. A range of the result that is
no lane needs no condition on loads: they read the last place again, and nobody sees what comes
of it (above: x[min(14*io + i, M - 1), k]). Loops of extent 1 go away.
Stages are placed when all loops are known, wherever they stand in the schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fnx.core import build, dtypes, ops
from fnx.core.rewriting import symbolic
from fnx.core.tiling import Stage, Transform
from fnx.core.uop import UOp, inherit, substitute, toposort
from fnx.lower.kernel.canonical import canonical
from fnx.lower.schedule.legality import check
from fnx.lower.schedule.loops import Loops
from fnx.lower.schedule.staging import Part, place_stages, split_global

__all__ = ["Part", "canonical", "split_global", "tile"]


def tile(kernel: UOp, schedule: Sequence[Transform]) -> UOp:
    """Apply a schedule to an untiled KERNEL.

    Raises:
        KernelError: the schedule names what is not there, or would change the meaning.

    >>> from fnx.core import tiling
    >>> r = build.range_(100, 0, name="i")
    >>> x, o = (build.at(build.ref(s, dtypes.float32, (100,)), r) for s in (0, 1))
    >>> copy = build.kernel([build.store(o, build.load(x))], "copy")
    >>> tiled = tile(copy, [tiling.split("i", 16), tiling.vectorize("ii")])
    >>> sorted((r.arg.name, r.arg.kind) for r in tiled.src[0].ranges)
    [('ii', 'VEC'), ('io', 'SEQ')]
    """
    loops = Loops(kernel)
    loops.apply(schedule)
    order = loops.finish()
    stores = _Rewriter(loops, kernel.src).rewrite(kernel.src)
    check(kernel, loops, stores, order)
    tiled = inherit(build.kernel(stores, kernel.arg.name, order), kernel)
    stages = [step for step in schedule if isinstance(step, Stage)]
    return canonical(place_stages(tiled, stages, list(loops.leaves)))


class _Rewriter:
    """One walk: ranges become what stands for them, and validity goes where it belongs."""

    def __init__(self, loops: Loops, stores: Sequence[UOp]) -> None:
        self.loops = loops
        self.new: dict[UOp, UOp] = {}
        self.guard: dict[UOp, UOp] = {}
        self.exact: dict[UOp, UOp] = {}  # the value of a range that is clamped in ``new``
        clamped = _clampable(stores)
        for r, loop in loops.of.items():
            self.new[r] = loop.value()
            conditions = list(loop.guards())
            if conditions:
                self.guard[r] = _all(conditions)
                if r in clamped and all(leaf.kind != "VEC" for leaf in loop.leaves()):
                    last = build.sub(loop.extent, build.index_const(1))
                    self.exact[r] = self.new[r]
                    self.new[r] = symbolic.simplify(build.minimum(self.new[r], last))

    def rewrite(self, stores: Sequence[UOp]) -> list[UOp]:
        for node in toposort(stores):
            if node not in self.new:
                row = _ROWS.get(node.op, _Rewriter.other)
                self.new[node] = inherit(row(self, node), node)
        return [self.new[s] for s in stores]

    def conditions(self, ranges: Sequence[UOp] | frozenset[UOp]) -> list[UOp]:
        if not self.guard:
            return []
        found = [self.guard[r] for r in ranges if r in self.guard]
        return sorted(found, key=lambda c: c.rank)

    def valid(self, node: UOp, conditions: list[UOp]) -> tuple[UOp, ...]:
        """The valid operand (none or one) of a LOAD or STORE under further conditions."""
        own = node.src[node.op is ops.STORE:][1:]
        parts = [*conditions, *[self.new[v] for v in own]]
        if not parts:
            return ()
        together = symbolic.simplify(_all(parts))
        return () if together.op is ops.CONST and together.arg else (together,)

    def other(self, node: UOp) -> UOp:
        src = tuple([self.new[s] for s in node.src])
        return node if src == node.src else node.replace(src=src)

    def simplified(self, node: UOp) -> UOp:
        """A comparison: its index operands were rebuilt as they came."""
        found = self.other(node)
        return symbolic.simplify(found) if node.src[0].dtype is dtypes.index else found

    def index(self, node: UOp) -> UOp:
        buffer, *indices = node.src
        simple = [symbolic.simplify(self.new[i]) for i in indices]
        if buffer.op is ops.STAGE:
            simple = [digit for r, i in zip(buffer.src[1:], simple)
                      for digit in self.loops.of[r].digits(i)]
        src = (self.new[buffer], *simple)
        return node if src == node.src else UOp(ops.INDEX, node.dtype, src)

    def load(self, node: UOp) -> UOp:
        place = self.new[node.src[0]]
        buffer = place.src[0]
        if buffer.op not in (ops.REF, ops.STAGE):
            return buffer  # a stage of one element is that element
        conditions = self.conditions(node.src[0].ranges.difference(self.exact))
        if conditions and _is_inside(place):
            conditions = []
        return UOp(ops.LOAD, node.dtype, (place, *self.valid(node, conditions)))

    def store(self, node: UOp) -> UOp:
        place, value = self.new[node.src[0]], self.new[node.src[1]]
        if self.exact:
            exact = substitute(node.src[0].src[1:], {**self.new, **self.exact})
            place = build.at(place.src[0], *map(symbolic.simplify, exact))
        valid = self.valid(node, self.conditions(node.ranges))
        return UOp(ops.STORE, node.dtype, (place, value, *valid), node.arg)

    def reduce(self, node: UOp) -> UOp:
        value = self.new[node.src[0]]
        conditions = self.conditions(node.src[1:])
        identity = node.arg.monoid.identity(node.dtype)
        if conditions and not (identity == 0 and vanishes(value, conditions)):
            value = build.where(_all(conditions), value, build.const(identity, value.dtype))
        ranges = self.closed(node)
        return UOp(ops.REDUCE, node.dtype, (value, *ranges), node.arg) if ranges else value

    def stage(self, node: UOp) -> UOp:
        ranges = self.closed(node)
        value = self.new[node.src[0]]
        return UOp(ops.STAGE, node.dtype, (value, *ranges), node.arg) if ranges else value

    def closed(self, node: UOp) -> list[UOp]:
        return [leaf for r in node.src[1:] for leaf in self.loops.of[r].ranges()]


_ROWS: dict[ops.Op, Callable[[_Rewriter, UOp], UOp]] = {
    ops.INDEX: _Rewriter.index, ops.LOAD: _Rewriter.load, ops.STORE: _Rewriter.store,
    ops.REDUCE: _Rewriter.reduce, ops.STAGE: _Rewriter.stage,
    **dict.fromkeys(ops.COMPARISONS, _Rewriter.simplified),
}


def _clampable(stores: Sequence[UOp]) -> frozenset[UOp]:
    """Ranges of the result that nothing folds; none where a buffer is read and written, or
    where places are data."""
    nodes = toposort(stores)
    written = {s.src[0].src[0] for s in stores}
    closed = {r for n in nodes if n.op in (ops.REDUCE, ops.STAGE) for r in n.src[1:]}
    data = any(n.op is ops.LOAD for s in stores for n in toposort(s.src[0].src[1:]))
    if data or any(n.op is ops.LOAD and n.src[0].src[0] in written for n in nodes):
        return frozenset()
    return frozenset(r for s in stores for r in s.ranges) - closed


def _all(conditions: Sequence[UOp]) -> UOp:
    total = conditions[0]
    for c in conditions[1:]:
        total = build.and_(total, c)
    return total


def _is_inside(place: UOp) -> bool:
    """Whether every index is inside its dimension without any condition."""
    buffer, *indices = place.src
    dims = buffer.src if buffer.op is ops.REF else [r.src[0] for r in buffer.src[1:]]
    return all(symbolic.bounds(i)[0] >= 0 and symbolic.proves(build.lt(i, d)) is True
               for i, d in zip(indices, dims))


def vanishes(value: UOp, conditions: Sequence[UOp]) -> bool:
    """Whether a value is 0 wherever one of the conditions fails, from how it is made."""
    zero: dict[UOp, bool] = {}
    for node in toposort([value], stop=lambda n: n.op in (ops.LOAD, ops.REDUCE)):
        src = [zero[s] for s in node.src if s in zero]
        if node.op is ops.LOAD:
            zero[node] = len(node.src) > 1 and _implies(node.src[1], conditions)
        elif node.op is ops.WHERE:
            zero[node] = _is_zero(node.src[2]) and _implies(node.src[0], conditions)
        else:
            zero[node] = _is_zero(node) or (node.op in _KEEP_ZERO and all(src))
    return zero[value]


_KEEP_ZERO = frozenset({ops.MUL, ops.ADD, ops.SUB, ops.NEG, ops.ABS, ops.CAST, ops.AND, ops.OR,
                        ops.MAX, ops.MIN, ops.MULACC, ops.SQRT})


def _is_zero(node: UOp) -> bool:
    return node.op is ops.CONST and build.const_of(node) == 0


def _implies(condition: UOp, parts: Sequence[UOp]) -> bool:
    """Whether ``condition`` has all of ``parts`` as conjuncts."""
    conjuncts: set[UOp] = set()
    stack = [condition]
    while stack:
        node = stack.pop()
        conjuncts.add(node)
        if node.op is ops.AND:
            stack += node.src
    wanted = list(parts)
    while wanted:
        part = wanted.pop()
        if part in conjuncts:
            continue
        if part.op is not ops.AND:
            return False
        wanted += part.src
    return True

