"""Random kernels and command lists for tests: legal by construction."""

from __future__ import annotations

import math
import random

from fnx.core.ir import build, build_calls, build_kernel_loops, dtypes, kernel_args, ops
from fnx.core.ir.uop import UOp, toposort

F = dtypes.float32
_UNARY = (ops.NEG, ops.ABS, ops.SQRT, ops.FLOOR)
_BINARY = (ops.ADD, ops.SUB, ops.MUL, ops.MAX)


class KernelMaker:
    """Stores to o[m, n] of values that load, reduce and stage inputs of extents m, n, k."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        kinds = ("PAR", "SEQ")
        self.m = build.range_(rng.choice((0, 1, 3, 17)), 0, rng.choice(kinds), "m")
        self.n = build.range_(rng.choice((1, 4, 16)), 1, rng.choice(("SEQ", "UNROLL", "VEC")), "n")
        self.next_range, self.next_stage, self.next_loop = 2, 0, 0
        self.refs: list[UOp] = []
        self.order = [0, 1]

    def range(self, extent: int) -> UOp:
        r = build.range_(extent, self.next_range)
        self.order.append(self.next_range)
        self.next_range += 1
        return r

    def input(self, *index: UOp) -> UOp:
        dims = [i.src[0].arg for i in index]
        ref = build.ref(len(self.refs), F, dims, f"x{len(self.refs)}")
        self.refs.append(ref)
        valid = build.lt(index[0], build.index_const(2)) if self.rng.random() < 0.3 else None
        return build.load(build.index_into(ref, *index), valid)

    def value(self, depth: int, *free: UOp) -> UOp:
        rng = self.rng
        if depth == 0 or rng.random() < 0.15:
            some = [r for r in free if rng.random() < 0.7] or [free[0]]
            return self.input(*some)
        kind = rng.randrange(6)
        if kind == 5:
            return self.loop(depth, *free)
        if kind == 0:
            return build.elementwise(rng.choice(_UNARY), self.value(depth - 1, *free))
        if kind == 1:
            k = self.range(rng.choice((1, 2, 9)))
            return build.reduce_ranges(self.value(depth - 1, *free, k), rng.choice(
                (ops.ADD, ops.MAX, ops.MIN)), [k])
        if kind == 2:
            c, read = self.range(5), self.range(5)
            held = build.stage(self.value(depth - 1, free[0], c), [c], self.next_stage)
            self.next_stage += 1
            return build.reduce_ranges(build.load(build.index_into(held, read)), ops.ADD, [read])
        if kind == 3:
            x = self.value(depth - 1, *free)
            return build.where(build.lt(x, build.const(0.5, F)), x, build.const(2.0, F))
        return build.elementwise(rng.choice(_BINARY), self.value(depth - 1, *free),
                                 self.value(depth - 1, *free))

    def loop(self, depth: int, *free: UOp) -> UOp:
        """A value carried through a few iterations, perhaps with an early exit."""
        first, t, id = self.value(depth - 1, *free), self.range(self.rng.choice((1, 2, 5))), \
            self.next_loop
        self.next_loop += 1
        carried = build_kernel_loops.carry(id, 0, F, (t, *free))
        step = build.elementwise(self.rng.choice(_BINARY), carried, self.value(depth - 1, *free, t))
        stop = build.lt(build.const(2, F), carried) if self.rng.random() < 0.4 else None
        return build.results(build_kernel_loops.loop(id, t, [first], [step], stop))[0]

    def kernel(self) -> UOp:
        value = self.value(3, self.m, self.n)
        extents = [r.src[0].arg for r in (self.m, self.n)]
        out = build.ref(len(self.refs), F, extents, "o")
        self.refs.append(out)
        valid = build.lt(self.n, build.index_const(3)) if self.rng.random() < 0.3 else None
        return build.kernel([build.store(build.index_into(out, self.m, self.n), value, valid)],
                            "made", self.order)


def kernel_of(seed: int) -> UOp:
    """Return the kernel of a seed; its order has only ranges that it uses."""
    node = KernelMaker(random.Random(seed)).kernel()
    used = {n.arg.id for n in toposort([node]) if n.op is ops.RANGE}
    return node.replace(arg=kernel_args.Kernel("made", tuple([
        i for i in node.arg.order if i in used])))


def sizes(kernel: UOp) -> list[int]:
    """Return the number of elements of each REF, by slot."""
    refs = {n.arg.slot: n for n in toposort([kernel]) if n.op is ops.REF}
    return [math.prod(d.arg for d in refs[i].src) for i in range(len(refs))]


def scaled(n: int = 8) -> UOp:
    """o[i] = x[i] * c for a run-time extent and a lifted constant."""
    extent = build.var(0, dtypes.index, 1, n, "n")
    factor = build.var(1, F, name="c")
    i = build.range_(extent, 0)
    x, o = build.ref(0, F, [extent], "x"), build.ref(1, F, [extent], "o")
    value = build.mul(build.load(build.index_into(x, i)), factor)
    return build.kernel([build.store(build.index_into(o, i), value)], "scaled", [0])


def commands_of(seed: int) -> UOp:
    """Return a few EXECs over an arena without overlapping slots; some in loops and branches."""
    rng = random.Random(seed)
    execs = []
    for step in range(rng.randint(1, 3)):
        if rng.random() < 0.5:
            n = rng.randint(1, 8)
            kernel, scalars = scaled(), (build.index_const(n), build.const(2.5, F))
            lengths = [n, n]
        else:
            kernel, scalars = kernel_of(seed + step), ()
            lengths = sizes(kernel)
        offset, slots = 0, []
        for i, length in enumerate(lengths):
            nbytes = 4 * length
            kind = rng.choice(("in", "arena")) if i + 1 < len(lengths) else \
                rng.choice(("out", "arena"))
            slots.append(UOp(ops.SLOT, dtypes.void, (), kernel_args.Slot(
                kind, i, offset if kind == "arena" else 0, nbytes)))
            offset += -(-nbytes // 64) * 64
        execs.append(UOp(ops.EXEC, dtypes.void, (kernel, *slots, *scalars),
                         kernel_args.Exec("step")))
    return build_calls.commands([*execs, *[around(rng, e) for e in execs if rng.random() < 0.5]])


def around(rng: random.Random, execution: UOp) -> UOp:
    """Wrap an EXEC, whose arguments may depend on the iteration, in a loop or branch."""
    kind = rng.choice(("for", "while", "branch"))
    src = list(execution.src)
    for i, s in enumerate(src):
        if kind != "branch" and s.op is ops.SLOT and s.arg.kind != "arena":
            a = s.arg
            rows = [build_calls.slot(a.kind, j, 0, a.nbytes, (a.nbytes,)) for j in (a.index, 9)]
            src[i] = build_calls.swap(*rows, 0) if rng.random() < 0.5 else rows[0]
    body = build_calls.commands([execution.replace(src=tuple(src))])
    flag = build_calls.slot("arena", 0, 1 << 20, 64)
    if kind == "for":
        return build_calls.cmd_loop(body, rng.randint(0, 3), "step")
    if kind == "while":
        return build_calls.cmd_while(body, flag, body, "step")
    return build_calls.branch(flag, [body] * rng.randint(1, 2), "choice")
