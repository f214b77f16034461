"""linearize: a tiled KERNEL -> a PROGRAM, a linear list of lines with explicit vectors.

    i = SEQ range n // 16, l = VEC range 16         LOOP i = 0 .. n // 16
    STORE(o[16*i + l], x[16*i + l] * 2)               v = LOAD ADDRESS(x, 16*i)
                                                      w = MUL v SPLAT(2)
                                                      STORE ADDRESS(o, 16*i) w
                                                    END

Each node is computed in the innermost loop among its free ranges; UNROLL ranges become one
instance per value, a VEC range becomes lanes (nodes without it stay scalars, splatted where a
vector needs them). A REDUCE keeps one accumulator for each instance and lane, carried by its
loops, and folds those it closes in a fixed tree at the end. REDUCE(ADD, MUL) of floats is
MULACC. Conditions that hold in all but the last iteration of a streaming loop are tested only
there: the loop is run in two parts.

What a PROGRAM may hold (level "p"); all integers that address or count are ``index``:

| line | src | arg | means |
|---|---|---|---|
| LOOP | (start, stop) | number | begins a loop; stands for the counter, which steps by 1 |
| CARRY | (LOOP, init) | position | follows its LOOP; this iteration's value |
| END | (LOOP, next of each CARRY...) | | ends the innermost open LOOP |
| LAST | (END,) | position | the CARRY's value after the loop |
| IF / ENDIF | (bool,) / (IF,) | number / | the lines between are run where it holds |
| REF | () | Ref(slot) | pointer to a buffer |
| SCRATCH | (byte offset,) | Stage | pointer into scratch |
| ADDRESS | (pointer, offset) | alignment | pointer + elements; its dtype is what is there: \
contiguous lanes, or with a vector of offsets one by one |
| LOAD | (ADDRESS, mask?) | | the lanes there; 0 where the mask is false |
| STORE | (ADDRESS, value, mask?) | | alike |
| SPLAT | (scalar,) | | the scalar in all lanes |
| LANES | () | | 0, 1, 2 ... |
| PREFIX | (count,) | | lanes below count (any integer) |
| SHUFFLE | (a, b) | lanes | lanes of a, then of b |
| EXTRACT | (vector,) | lane | one lane |
| PART | () | 0 or 1 | bounds lo and hi of the PAR range |

CONST, VAR and elementwise ops are as at kernel level, lane by lane; operands have equal lanes.
A line may use lines before it in the same or an enclosing loop, and CONST, VAR, REF, PART, LANES.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from fnx.core import build, dtypes, ops, symbolic
from fnx.core.dtypes import DType
from fnx.core.errors import KernelError
from fnx.core.target import Target
from fnx.core.uop import UOp
from fnx.lower import peel, scratch
from fnx.lower.access import Access, Addresses, Env, conjuncts, split_lanes
from fnx.lower.lines import Lines
from fnx.lower.nest import Nest, Order, Statement, nest

_NOTHING: Env = {}


def linearize(kernel: UOp, target: Target) -> UOp:
    """The PROGRAM of a tiled KERNEL whose elementwise ops the target has.

    Raises:
        KernelError: the kernel's schedule asks for what can't be done.

    >>> r = build.range_(8, 0)
    >>> o = build.at(build.ref(0, dtypes.float32, (8,)), r)
    >>> k = build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones", [0])
    >>> [line.op for line in linearize(k, Target("cpu")).src]
    [LOOP, ADDRESS, ADDRESS, STORE, END]
    """
    return _Linearizer(kernel, target).run()


class _Shape:
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


def extent_of(r: UOp) -> int:
    """The extent of an UNROLL or VEC range, which is a constant."""
    if r.src[0].op is not ops.CONST:
        raise KernelError(f"expected a constant extent of an {r.arg.kind} range",
                          hint="split the range by a constant first")
    return int(build.const_of(r.src[0]))


class _Linearizer:
    def __init__(self, kernel: UOp, target: Target) -> None:
        self.target = target
        self.root = nest(kernel)
        self.order = Order(kernel)
        self.lines = Lines()
        self.addresses = Addresses(self.lines, self.value)
        self.stages = scratch.layout(kernel)
        self.counter: dict[UOp, UOp] = {}  # the LOOP of each RANGE that is open
        self.level: dict[UOp, int] = {}  # and how deep it is
        self.memo: dict[Any, UOp] = {}
        self.keys: list[list[Any]] = [[]]  # of ``memo``, by the loop that ends their life
        self.known: dict[UOp, bool | None] = {}
        self.accumulators: dict[Statement, list[UOp]] = {}
        self._shapes: dict[frozenset[UOp], _Shape] = {}

    def run(self) -> UOp:
        self.body(self.root)
        return self.lines.program()

    def shape(self, ranges: frozenset[UOp]) -> _Shape:
        found = self._shapes.get(ranges)
        if found is None:
            found = self._shapes[ranges] = _Shape(ranges, self.order)
        return found

    # ---- loops ------------------------------------------------------------------------------

    def body(self, inner: Nest) -> None:
        """Lines of a loop's body. Stores wait for the loads of the statements beside them, so
        that a buffer may be updated in place."""
        stores: list[_Store] = []
        for item in inner.body:
            if isinstance(item, Nest):
                self.write(stores)
                stores = []
                self.loop(item)
            elif item.node.op is ops.REDUCE:
                self.accumulate(item)
            elif item.node.op is ops.STAGE:
                self.write(self.stores(self.fill(item.node), item.node.arg))
            else:
                stores += self.stores(item.node, None)
        self.write(stores)

    def fill(self, stage: UOp) -> UOp:
        """The filling of a STAGE as a STORE."""
        shape = self.shape(stage.ranges)
        if shape.unrolled or shape.lane is not None:
            raise KernelError("expected a stage whose free ranges are loops",
                              hint="stage at a range outside the unrolled ones")
        return build.store(build.at(stage, *stage.src[1:]), stage.src[0])

    def loop(self, inner: Nest) -> None:
        r = inner.range
        assert r is not None
        folds = [s for s in inner.statements
                 if s.node.op is ops.REDUCE and s.own < inner.depth]
        for s in folds:
            if s.own == inner.depth - 1:
                self.accumulators[s] = self.identities(s)
        for start, stop, assumed in self.spans(inner, r):
            outside = dict(self.known)
            self.known.update(dict.fromkeys(assumed, True))
            self.iterate(inner, r, folds, start, stop)
            self.known = outside
        for s in folds:
            if s.own == inner.depth - 1:
                self.finish(s)

    def spans(self, inner: Nest, r: UOp) -> list[tuple[UOp, UOp, list[UOp]]]:
        """(start, stop, conditions that hold throughout) of each part a loop is run in."""
        start, stop = build.index_const(0), self.value(r.src[0], _NOTHING)
        if r.arg.kind == "PAR":
            start, stop = (UOp(ops.PART, dtypes.index, (), i) for i in (0, 1))
        limits = peel.limits(inner, r, self.proved)
        if not limits:
            return [(start, stop, [])]
        lines = self.lines
        full = stop
        for terms, constant, step in limits.values():
            room = lines.either(ops.MAX, self.addresses.total(terms, constant, _NOTHING),
                                build.index_const(0))
            room = lines.plus(room, build.index_const(step - 1))
            full = lines.either(ops.MIN, full, lines.divided(room, step))
        middle = lines.either(ops.MAX, full, start) if r.arg.kind == "PAR" else full
        parts = [(start, full, list(limits)), (middle, stop, [])]
        return [p for p in parts if not (p[0].op is ops.CONST and p[0] is p[1])]

    def iterate(self, inner: Nest, r: UOp, folds: Sequence[Statement], start: UOp,
                stop: UOp) -> None:
        self.counter[r] = self.lines.open(start, stop)
        self.level[r] = inner.depth
        self.keys.append([])
        for s in folds:
            self.accumulators[s] = [self.lines.carry(a) for a in self.accumulators[s]]
        self.body(inner)
        last = iter(self.lines.close([a for s in folds for a in self.accumulators[s]]))
        for s in folds:
            self.accumulators[s] = [next(last) for _ in self.accumulators[s]]
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
            offset = self.value(self.stages[buffer], _NOTHING)
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

    def stores(self, store: UOp, stage: Any) -> list[_Store]:
        """All instances of a STORE, values and addresses computed, nothing written."""
        place, value = store.src[:2]
        shape, out = self.shape(store.ranges), []
        for env in self.instances(shape.unrolled, _NOTHING):
            v = self.value(value, env)
            at, stride = self.access(place, env, shape.lane)
            scalar, vector = self.masks(store.src[2:], env)
            if shape.lane is not None:
                if stride == 0:
                    raise KernelError("a store's lanes all write one place",
                                      hint="vectorize a range that the store's index uses")
                v = self.lines.widen(v, shape.lanes)
                if stride == -1:
                    v = self.reversed_(v)
                    vector = None if vector is None else self.reversed_(vector)
                if stride is None and store.arg is not None:
                    raise KernelError("expected a combining store's lanes side by side",
                                      hint="do not vectorize the range it scatters over")
            out.append(_Store(at, v, scalar, vector, store.arg))
        return out

    def write(self, stores: Sequence[_Store]) -> None:
        """The lines of stores; neighbours under one condition share a branch."""
        lines = self.lines
        for condition, group in itertools.groupby(stores, key=lambda s: s.condition):
            branch = None if condition is None else lines.branch(condition)
            for s in group:
                mask = () if s.mask is None else (s.mask,)
                value = s.value
                if s.combine not in (None, ops.STORE):
                    assert s.combine is not None
                    old = lines.put(ops.LOAD, value.dtype, (s.place, *mask))
                    value = lines.put(s.combine, value.dtype, (old, value))
                lines.put(ops.STORE, dtypes.void, (s.place, value, *mask))
            if branch is not None:
                lines.end_branch(branch)

    # ---- reductions -------------------------------------------------------------------------

    def instances(self, ranges: Sequence[UOp], env: Env) -> list[Env]:
        """``env`` with every combination of values of the UNROLL ranges, outermost first."""
        unrolled = self.order.instances(ranges)
        if not unrolled:
            return [env]
        spaces = [range(extent_of(r)) for r in unrolled]
        return [{**env, **dict(zip(unrolled, values))} for values in itertools.product(*spaces)]

    def free_instances(self, s: Statement) -> list[Env]:
        return self.instances(self.shape(s.node.ranges).unrolled, _NOTHING)

    def identities(self, s: Statement) -> list[UOp]:
        monoid = s.node.arg.monoid
        start = build.const(monoid.identity(s.node.dtype), s.node.dtype)
        one = self.lines.widen(start, self.shape(s.node.src[0].ranges.union(s.closed)).lanes)
        count = len(self.free_instances(s)) * len(self.instances(s.closed, _NOTHING))
        return [one] * count

    def accumulate(self, s: Statement) -> None:
        """One step of a REDUCE: each accumulator takes in its instance's value."""
        accumulators = self.accumulators[s]
        envs = [e for free in self.free_instances(s) for e in self.instances(s.closed, free)]
        self.accumulators[s] = [self.step(s.node, acc, env)
                                for acc, env in zip(accumulators, envs)]

    def step(self, node: UOp, acc: UOp, env: Env) -> UOp:
        lines, value, monoid = self.lines, node.src[0], node.arg.monoid
        condition = None
        if value.op is ops.WHERE and _is_identity(value.src[2], monoid):
            truth = self.proved(value.src[0])
            condition = None if truth else value.src[0]
            value = value.src[1]
        lanes = acc.dtype.lanes
        if monoid is ops.ADD and value.op is ops.MUL and value.dtype.is_float \
                and self.target.fma:
            a, b = (lines.widen(self.value(s, env), lanes) for s in value.src)
            out = lines.add(ops.MULACC, acc.dtype, (a, b, acc))
        else:
            v = lines.widen(self.value(value, env), lanes)
            out = lines.add(monoid, acc.dtype, (acc, v))
        if condition is None:
            return out
        mask = lines.widen(self.value(condition, env), lanes)
        return lines.add(ops.WHERE, acc.dtype, (mask, out, acc))

    def finish(self, s: Statement) -> None:
        """Fold the accumulators of each free instance and remember the results."""
        accumulators = self.accumulators.pop(s)
        free = self.free_instances(s)
        each = len(accumulators) // len(free)
        for i, env in enumerate(free):
            total = self.folded(s.node, accumulators[i * each:(i + 1) * each])
            self.memo[key := self.key(s.node, env)] = total
            self.keys[s.own].append(key)

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


class _Store:
    """A write that is ready: where, what, and under which condition and mask."""

    __slots__ = ("place", "value", "condition", "mask", "combine")

    def __init__(self, place: UOp, value: UOp, condition: UOp | None, mask: UOp | None,
                 combine: ops.Op | None) -> None:
        self.place, self.value, self.combine = place, value, combine
        self.condition, self.mask = condition, mask


_INTEGER = frozenset({ops.ADD, ops.MUL})


def _is_identity(node: UOp, monoid: ops.Op) -> bool:
    return node.op is ops.CONST and monoid.identity is not None and \
        node is build.const(monoid.identity(node.dtype), node.dtype)
