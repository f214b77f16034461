"""The values of a kernel's nodes while its program is written: what, where, and in which lanes.

A node is computed once for each loop it is free in and each value of its free UNROLL ranges,
and remembered until that loop ends. Nodes with a free VEC range are vectors. Conditions that
can be decided now, by the bounds of their ranges or because the loop was peeled, cost nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from fnx.core import build, dtypes, ops
from fnx.core.dtypes import DType
from fnx.core.errors import KernelError
from fnx.core.rewriting import symbolic
from fnx.core.uop import UOp
from fnx.lower.program import scratch
from fnx.lower.program.access import Access, Addresses, Env, conjuncts, split_lanes
from fnx.lower.program.builder import Lines
from fnx.lower.program.loop_nest import Order, extent_of

NOTHING: Env = {}


class Shape:
    """What a set of free ranges means for the nodes that have it."""

    __slots__ = ("loops", "unrolled", "lane", "lanes")

    def __init__(self, ranges: frozenset[UOp], order: Order) -> None:
        self.loops = order.loops(ranges)
        self.unrolled = order.instances(ranges)
        vectors = [r for r in ranges if r.arg.kind == "VEC" and extent_of(r) > 1]
        if len(vectors) > 1:
            raise KernelError("expected at most one VEC range in one value, got "
                              f"{len(vectors)}", hint="make the others UNROLL or SEQ")
        self.lane = vectors[0] if vectors else None
        self.lanes = extent_of(vectors[0]) if vectors else 1


class Values:
    """All values of one kernel; ``lines`` is the program that computes them."""

    def __init__(self, kernel: UOp) -> None:
        self.order = Order(kernel)
        self.lines = Lines()
        self.addresses = Addresses(self.lines, self.value)
        self.stages = scratch.layout(kernel)
        self.counter: dict[UOp, UOp] = {}  # the FOR of each RANGE that is open
        self.level: dict[UOp, int] = {}  # and how deep it is
        self.memo: dict[Any, UOp] = {}
        self.keys: list[list[Any]] = [[]]  # of ``memo``, by the loop that ends their life
        self.known: dict[UOp, bool | None] = {}  # truth of conditions
        self._shapes: dict[frozenset[UOp], Shape] = {}

    def shape(self, ranges: frozenset[UOp]) -> Shape:
        found = self._shapes.get(ranges)
        if found is None:
            found = self._shapes[ranges] = Shape(ranges, self.order)
        return found

    def enter(self, r: UOp, counter: UOp) -> None:
        """A loop over a range begins."""
        self.counter[r] = counter
        self.level[r] = len(self.keys)
        self.keys.append([])

    def leave(self, r: UOp) -> None:
        """It ends, and with it the values computed inside."""
        for key in self.keys.pop():
            del self.memo[key]
        del self.counter[r], self.level[r]

    # ---- values -----------------------------------------------------------------------------

    def key(self, node: UOp, env: Env) -> Any:
        unrolled = self.shape(node.ranges).unrolled if node.ranges else ()
        return (node, *[env[r] for r in unrolled]) if unrolled else node

    def value(self, root: UOp, env: Env) -> UOp:
        """The scalar or vector that a node is for one instance of the UNROLL ranges."""
        found = self.memo.get(self.key(root, env))
        if found is not None:
            return found
        stack = [(root, env)]
        while stack:
            node, at = stack[-1]
            key = self.key(node, at)
            if key in self.memo:
                stack.pop()
                continue
            needs = self.operands(node, at)
            missing = [n for n in needs if self.key(*n) not in self.memo]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            self.remember(key, node, self.make(node, at, [self.memo[self.key(*n)]
                                                          for n in needs]))
        return self.memo[self.key(root, env)]

    def depth(self, node: UOp) -> int:
        level = self.level
        return max([level[r] for r in node.ranges if r in level], default=0)

    def remember(self, key: Any, node: UOp, value: UOp) -> None:
        self.memo[key] = value
        self.keys[self.depth(node)].append(key)

    def operands(self, node: UOp, env: Env) -> list[tuple[UOp, Env]]:
        """The nodes whose values ``make`` needs."""
        op = node.op
        if op is ops.RANGE:
            return []
        if op is ops.WHERE:
            truth = self.proved(node.src[0])
            return [(s, env) for s in (node.src if truth is None else
                                       node.src[1:2] if truth else node.src[2:])]
        if op is ops.LOAD:
            offset = self.addresses.offset(node.src[0], self.shape(node.ranges).lane)
            atoms = {a for terms in (offset.common, offset.lane) for m in terms for a in m}
            found = [a for a in atoms if a not in env]
            found.sort(key=lambda a: a.number)
            return [(n, env) for n in (*found, *self.open_conditions(node.src[1:]))]
        if op is ops.REDUCE:
            return [(node.src[0], e) for e in self.instances(node.src[1:], env)]
        if node.dtype is dtypes.bool_ and self.proved(node) is not None:
            return []
        return [(s, env) for s in node.src]

    def make(self, node: UOp, env: Env, src: list[UOp]) -> UOp:
        op = node.op
        if op is ops.CONST or op is ops.VAR:
            return node
        if op is ops.RANGE:
            return self.range_value(node, env)
        if op is ops.LOAD:
            return self.load(node, env)
        if op is ops.REDUCE:
            return self.folded(node, src)
        if op is ops.WHERE and len(src) == 1:
            return src[0]
        if op not in ops.ELEMENTWISE:
            raise KernelError(f"expected a value, got {node}")
        if node.dtype is dtypes.bool_ and (truth := self.proved(node)) is not None:
            return build.const(truth, dtypes.bool_)
        return self.elementwise(node, env, src)

    def range_value(self, r: UOp, env: Env) -> UOp:
        if r.arg.kind == "UNROLL":
            return build.index_const(env[r])
        if r.arg.kind == "VEC":
            lanes = extent_of(r)
            return UOp(ops.LANES, dtypes.index.vec(lanes)) if lanes > 1 else build.index_const(0)
        if r not in self.counter:
            raise KernelError(f"a value is used outside the loop over {r}")
        return self.counter[r]

    def elementwise(self, node: UOp, env: Env, src: list[UOp]) -> UOp:
        lines = self.lines
        lane = self.shape(node.ranges).lane
        if lane is not None and node.src[0].dtype is dtypes.index:
            for special in (self.addresses.lane_condition, self.narrow_lanes):
                found = special(node, lane, env)
                if found is not None:
                    return found
        lanes = max(s.dtype.lanes for s in src)
        if lanes > 1:
            src = [lines.widen(s, lanes) for s in src]
        elif node.dtype is dtypes.index and node.op in _INTEGER:
            return lines.plus(*src) if node.op is ops.ADD else lines.times(*src)
        return lines.add(node.op, node.dtype.vec(lanes), tuple(src), node.arg)

    def narrow_lanes(self, node: UOp, lane: UOp, env: Env) -> UOp | None:
        """A 32-bit CAST of an index that is linear in the lane, in 32 bits (both wrap)."""
        if node.op is not ops.CAST or not node.dtype.is_integer:
            return None
        terms, constant = symbolic.linear(node.src[0])
        rest, own = split_lanes(terms, lane)
        if len(own) != 1 or (lane,) not in own:
            return None
        lines, vector = self.lines, node.dtype.vec(extent_of(lane))
        total = self.addresses.total(rest, constant, env)
        first = lines.add(ops.CAST, node.dtype, (total,))
        steps = UOp(ops.LANES, vector)
        step = own[(lane,)] % (1 << node.dtype.bits)
        if step != 1:
            factor = lines.widen(UOp(ops.CONST, node.dtype, (), step), vector.lanes)
            steps = lines.add(ops.MUL, vector, (steps, factor))
        return lines.add(ops.ADD, vector, (lines.widen(first, vector.lanes), steps))

    def instances(self, ranges: Sequence[UOp], env: Env) -> list[Env]:
        """``env`` with every combination of values of the UNROLL ranges, outermost first."""
        unrolled = self.order.instances(ranges)
        if not unrolled:
            return [env]
        spaces = [range(extent_of(r)) for r in unrolled]
        return [{**env, **dict(zip(unrolled, values))} for values in itertools.product(*spaces)]

    # ---- conditions -------------------------------------------------------------------------

    def proved(self, condition: UOp) -> bool | None:
        """Whether a condition is known to hold, or not to; None where neither is."""
        if condition in self.known:
            return self.known[condition]
        if condition.op is ops.CONST:
            return bool(condition.arg)
        if condition.op is ops.AND:
            parts = [self.proved(c) for c in conjuncts(condition)]
            return False if False in parts else None if None in parts else True
        if condition.op not in ops.COMPARISONS or condition.src[0].dtype is not dtypes.index:
            return None
        found = self.known[condition] = symbolic.proves(condition)
        return found

    def open_conditions(self, valid: Sequence[UOp]) -> list[UOp]:
        """The conditions of an optional validity that have to be tested."""
        found = [c for v in valid for c in conjuncts(v)]
        return [c for c in found if self.proved(c) is not True]

    def masks(self, valid: Sequence[UOp], env: Env) -> tuple[UOp | None, UOp | None]:
        """What has to hold for all lanes, and what lane by lane; None: nothing."""
        scalar = vector = None
        for c in self.open_conditions(valid):
            v = self.value(c, env)
            if v.dtype.lanes == 1:
                scalar = self.lines.both(scalar, v)
            else:
                vector = self.lines.both(vector, v)
        return scalar, vector

    # ---- memory -----------------------------------------------------------------------------

    def access(self, place: UOp, env: Env, lane: UOp | None) -> Access:
        buffer = place.src[0]
        if buffer.op is ops.STAGE:
            offset = self.value(self.stages[buffer], NOTHING)
            base = self.lines.add(ops.SCRATCH, buffer.dtype, (offset,), buffer.arg)
        else:
            base = UOp(ops.REF, buffer.dtype, (), ops.Ref(buffer.arg.slot))
        return self.addresses.access(place, base, lane, env)

    def load(self, node: UOp, env: Env) -> UOp:
        shape, lines, dtype = self.shape(node.ranges), self.lines, node.dtype
        at, stride = self.access(node.src[0], env, shape.lane)
        scalar, vector = self.masks(node.src[1:], env)
        depth = self.depth(node)
        if stride == 0 and vector is None:
            return lines.add(ops.LOAD, dtype, (at,) if scalar is None else (at, scalar),
                             at_least=depth)
        lanes = shape.lanes
        mask = lines.both(scalar, vector)
        mask = None if mask is None else lines.widen(mask, lanes)
        if stride == -1 and mask is not None:
            mask = self.reversed_(mask)
        if stride == 0:  # the lanes are valid one by one, and may all be invalid
            at = self.addresses.each_lane(at, lines.widen(build.index_const(0), lanes))
        out = lines.add(ops.LOAD, dtype.vec(lanes), (at,) if mask is None else (at, mask),
                        at_least=depth)
        return self.reversed_(out) if stride == -1 else out

    def reversed_(self, x: UOp) -> UOp:
        return self.lines.add(ops.SHUFFLE, x.dtype, (x, x), tuple(range(x.dtype.lanes))[::-1])

    # ---- folds over instances and lanes ---------------------------------------------------------

    def folded(self, node: UOp, values: Sequence[UOp]) -> UOp:
        """Fold instances, then the lanes of a closed VEC range, in a tree of halves."""
        lines, monoid = self.lines, node.arg.monoid
        lane = self.shape(frozenset(node.src[1:])).lane
        parts = [v if lane is None else lines.widen(v, extent_of(lane)) for v in values]
        while len(parts) > 1:
            pairs = [lines.add(monoid, a.dtype, (a, b))
                     for a, b in zip(parts[::2], parts[1::2])]
            parts = pairs + parts[len(pairs) * 2:]
        return parts[0] if lane is None else self.fold_lanes(parts[0], monoid)

    def fold_lanes(self, x: UOp, monoid: ops.Op) -> UOp:
        lines, dtype = self.lines, x.dtype.scalar
        lanes = x.dtype.lanes
        while lanes > 1 and lanes % 2 == 0:
            lanes //= 2
            half: DType = dtype.vec(lanes)
            low = tuple(range(lanes))
            parts = [lines.add(ops.SHUFFLE, half, (x, x), tuple(i + o for i in low))
                     for o in (0, lanes)] if lanes > 1 else \
                [lines.add(ops.EXTRACT, dtype, (x,), i) for i in (0, 1)]
            x = lines.add(monoid, half, (parts[0], parts[1]))
        if lanes == 1:
            return x
        total = lines.add(ops.EXTRACT, dtype, (x,), 0)
        for i in range(1, lanes):
            total = lines.add(monoid, dtype, (total, lines.add(ops.EXTRACT, dtype, (x,), i)))
        return total


_INTEGER = frozenset({ops.ADD, ops.MUL})
