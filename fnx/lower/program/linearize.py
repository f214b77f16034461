"""linearize: a tiled KERNEL -> a PROGRAM, a linear list of lines with explicit vectors.

    i = SEQ range n // 16, l = VEC range 16         FOR i = 0 .. n // 16
    STORE(o[16*i + l], x[16*i + l] * 2)               v = LOAD ADDRESS(x, 16*i)
                                                      w = MUL v SPLAT(2)
                                                      STORE ADDRESS(o, 16*i) w
                                                    ENDFOR

Each node is computed in the innermost loop among its free ranges; UNROLL ranges become one
instance per value, a VEC range becomes lanes (nodes without it stay scalars, splatted where a
vector needs them). A REDUCE keeps one accumulator for each instance and lane, carried by its
loops, and folds those it closes in a fixed tree at the end. REDUCE(ADD, MUL) of floats is
MULACC. Conditions that hold in all but the last iteration of a streaming loop are tested only
there: the loop is run in two parts.

What a PROGRAM may hold (level "p"); all integers that address or count are ``index``:

| line | src | arg | means |
|---|---|---|---|
| FOR | (start, stop) | number | begins a loop; stands for the counter, which steps by 1 |
| PHI | (FOR, init) | position | follows its FOR; this iteration's value |
| ENDFOR | (FOR, next of each PHI...) | | ends the innermost open FOR |
| LAST | (ENDFOR,) | position | the PHI's value after the loop |
| IF / ENDIF | (bool,) / (IF,) | number / | the lines between are run where it holds |
| REF | () | Ref(slot) | pointer to a buffer |
| SCRATCH | (byte offset,) | Stage | pointer into scratch |
| ADDRESS | (pointer, offset) | alignment | pointer + elements, for lanes of its dtype; a \
vector of offsets: one for each lane |
| LOAD | (ADDRESS, mask?) | | the lanes there; 0 where the mask is false |
| STORE | (ADDRESS, value, mask?) | | alike |
| SPLAT | (scalar,) | | the scalar in all lanes |
| LANES | () | | 0, 1, 2 ... |
| LANESBELOW | (count,) | | lanes below count (any integer) |
| SHUFFLE | (a, b) | lanes | lanes of a, then of b |
| EXTRACT | (vector,) | lane | one lane |
| PART | () | 0 or 1 | bounds lo and hi of the PAR range |

CONST, VAR and elementwise ops are as at kernel level, lane by lane; operands have equal lanes.
A line may use lines before it in the same or an enclosing loop, and CONST, VAR, REF, PART, LANES.
"""

from __future__ import annotations

from collections.abc import Sequence

from fnx.core import build, dtypes, ops
from fnx.core.errors import KernelError
from fnx.core.target import Target
from fnx.core.uop import UOp
from fnx.lower.program import loop_peeling, stores
from fnx.lower.program.access import Env
from fnx.lower.program.loop_nest import Nest, Statement, nest
from fnx.lower.program.values import NOTHING, Values


def linearize(kernel: UOp, target: Target) -> UOp:
    """The PROGRAM of a tiled KERNEL whose elementwise ops the target has.

    Raises:
        KernelError: the kernel's schedule asks for what can't be done.

    >>> r = build.range_(8, 0)
    >>> o = build.at(build.ref(0, dtypes.float32, (8,)), r)
    >>> k = build.kernel([build.store(o, build.const(1, dtypes.float32))], "ones", [0])
    >>> [line.op for line in linearize(k, Target("cpu")).src]
    [FOR, ADDRESS, ADDRESS, STORE, ENDFOR]
    """
    return _Linearizer(kernel, target).run()


class _Linearizer(Values):
    def __init__(self, kernel: UOp, target: Target) -> None:
        super().__init__(kernel)
        self.target = target
        self.root = nest(kernel)
        self.accumulators: dict[Statement, list[UOp]] = {}

    def run(self) -> UOp:
        self.body(self.root)
        return self.lines.program()

    # ---- loops ------------------------------------------------------------------------------

    def body(self, inner: Nest) -> None:
        """Lines of a loop's body. Stores wait for the loads of the statements beside them, so
        that a buffer may be updated in place."""
        waiting: list[stores.Store] = []
        for item in inner.body:
            if isinstance(item, Nest):
                stores.write(self.lines, waiting)
                waiting = []
                self.loop(item)
            elif item.node.op is ops.REDUCE:
                self.accumulate(item)
            elif item.node.op is ops.STAGE:
                stores.write(self.lines, stores.collect(self, self.fill(item.node)))
            else:
                waiting += stores.collect(self, item.node)
        stores.write(self.lines, waiting)

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
        start, stop = build.index_const(0), self.value(r.src[0], NOTHING)
        if r.arg.kind == "PAR":
            start, stop = (UOp(ops.PART, dtypes.index, (), i) for i in (0, 1))
        limits = loop_peeling.limits(inner, r, self.proved)
        if not limits:
            return [(start, stop, [])]
        lines = self.lines
        for condition, limit in limits.items():
            if loop_peeling.governs(condition, inner):
                stop = lines.either(ops.MIN, stop, self.iterations(limit, limit.slack))
        full = stop
        for limit in limits.values():
            full = lines.either(ops.MIN, full, self.iterations(limit, 0))
        middle = lines.either(ops.MAX, full, start) if r.arg.kind == "PAR" else full
        parts = [(start, full, list(limits)), (middle, stop, [])]
        return [p for p in parts if not (p[0].op is ops.CONST and p[0] is p[1])]

    def iterations(self, limit: loop_peeling.Limit, slack: int) -> UOp:
        """In how many iterations, from the first on, step*i < terms + constant + slack."""
        lines = self.lines
        total = self.addresses.total(limit.terms, limit.constant + slack, NOTHING)
        room = lines.either(ops.MAX, total, build.index_const(0))
        return lines.divided(lines.plus(room, build.index_const(limit.step - 1)), limit.step)

    def iterate(self, inner: Nest, r: UOp, folds: Sequence[Statement], start: UOp,
                stop: UOp) -> None:
        self.enter(r, self.lines.open(start, stop))
        for s in folds:
            self.accumulators[s] = [self.lines.carry(a) for a in self.accumulators[s]]
        self.body(inner)
        last = iter(self.lines.close([a for s in folds for a in self.accumulators[s]]))
        for s in folds:
            self.accumulators[s] = [next(last) for _ in self.accumulators[s]]
        self.leave(r)

    # ---- reductions -------------------------------------------------------------------------

    def free_instances(self, s: Statement) -> list[Env]:
        return self.instances(self.shape(s.node.ranges).unrolled, NOTHING)

    def identities(self, s: Statement) -> list[UOp]:
        monoid = s.node.arg.monoid
        start = build.const(monoid.identity(s.node.dtype), s.node.dtype)
        one = self.lines.widen(start, self.shape(s.node.src[0].ranges.union(s.closed)).lanes)
        count = len(self.free_instances(s)) * len(self.instances(s.closed, NOTHING))
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


def _is_identity(node: UOp, monoid: ops.Op) -> bool:
    return node.op is ops.CONST and monoid.identity is not None and \
        node is build.const(monoid.identity(node.dtype), node.dtype)
