"""Derivatives of loops and branches against those of the unrolled program.

Bodies are random: smooth programs over consts, carries and rows, with loops and branches inside.
Both modes are checked to second order, for any choice of differentiated operands, and against
finite differences.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.cache import clear_caches
from fnx.core.ir.expr import Expr, tanh
from fnx.core.ir.uop import UOp
from fnx.core.levels import interp, spec
from fnx.core.tracing.trace import inline_function
from fnx.transforms.autodiff import revolve
from fnx.transforms.autodiff.forward import pushforward
from fnx.transforms.autodiff.reverse import pullback
from fnx.transforms.autodiff.rules import Cotangent
from tests.graphs import ALL_OPS, Builder, values

F8 = dtypes.float64
SHAPES = ((), (), (2,), (3,), (2, 3))
# Ops that are smooth for operands of magnitude below 1.
SMOOTH = (ALL_OPS & {ops.ADD, ops.SUB, ops.MUL, ops.SIN, ops.COS, ops.TANH, ops.EXP, ops.NEG,
                     ops.RESHAPE, ops.PERMUTE, ops.EXPAND, ops.SHRINK, ops.FLIP, ops.CONCAT,
                     ops.REDUCE, ops.GATHER, ops.SCATTER, ops.CALL, ops.IOTA, ops.STOP_GRADIENT,
                     ops.PAD, ops.FLOOR})
Made = Callable[[Sequence[UOp]], list[UOp]]


class Program(NamedTuple):
    """A program with a loop, the same program unrolled, and values of its operands."""

    looped: Made
    unrolled: Made
    values: list[Any]


class Drawn(NamedTuple):
    """A loop body, whose PARAMs are consts, carries and rows, in this order."""

    fn: UOp
    consts: list[UOp]
    carries: list[UOp]
    rows: list[UOp]


def body(rng: random.Random, depth: int = 0, rows: bool = True) -> Drawn:
    """Draw a step whose results are between -1 and 1, so that many steps stay smooth."""
    b = Builder(rng, [F8], SMOOTH, 1, smooth=True)
    carries = [b.param(F8, rng.choice(SHAPES)) for _ in range(rng.randint(1, 3))]
    counter = None
    if rng.random() < 0.4:
        counter = build.param(len(b.params), dtypes.int32, ())
        b.params.append(counter)
        carries.append(counter)
        b.pool.append(build.cast(counter, F8))
    xs = [b.param(F8, rng.choice(SHAPES)) for _ in range(rng.randint(0, 2) if rows else 0)]
    for _ in range(rng.randint(2, 8)):
        b.step()
    if depth and rng.random() < 0.8:
        inner = drawn(rng, depth - 1)
        b.pool += [n for n in inner.looped([like(b, v) for v in inner.values])
                   if n.dtype.is_float]
    floats = [n for n in b.pool if n.dtype is F8 and 0 not in n.shape]
    outs = []
    for c in carries:
        outs.append(_next(rng, floats, c) if c is not counter else
                    build.add(c, build.const_like(c, 1)))
    ys = [calm(n) for n in rng.sample(floats, min(len(floats), rng.randint(0, 2)))]
    if rng.random() < 0.3:
        ys.append(outs[0])
    if rng.random() < 0.2:
        ys.append(carries[0])
    consts = [p for p in b.params if p not in carries and p not in xs]
    order = [*consts, *carries, *xs]
    known = {p: build.param(i, p.dtype, p.shape) for i, p in enumerate(order)}
    plain = build.function([*outs, *ys], len(order))
    fn = build.function(inline_function(plain, [known[p] for p in b.params]), len(order), "drawn")
    return Drawn(fn, consts, carries, xs)


def like(b: Builder, value: Any) -> UOp:
    """Return a value of the pool as an operand of this type, or a new PARAM."""
    dtype = dtypes.as_dtype(value.dtype)
    return b.operand(dtype, value.shape) if dtype is F8 else build.const(0, dtype, value.shape)


def calm(x: UOp) -> UOp:
    return tanh(0.5 * Expr(x)).node


def _next(rng: random.Random, pool: Sequence[UOp], carry: UOp) -> UOp:
    kind, x = rng.random(), rng.choice(pool)
    if kind < 0.1:
        return carry
    if kind < 0.2:
        return build.const_like(carry, 0.5)
    if x.shape != carry.shape:
        n = float(np.prod(x.shape)) or 1.0
        mean = (Expr(build.reduce(x, ops.ADD, range(len(x.shape)))) / n).node
        x = build.expand(mean, carry.shape)
    return calm(x) if kind < 0.4 else (0.3 * Expr(carry) + 0.7 * Expr(calm(x))).node


def drawn(rng: random.Random, depth: int) -> Program:
    return rng.choice((scanned, scanned, chosen))(rng, depth)


def fill(rng: random.Random, nodes: Sequence[UOp], length: int | None = None) -> list[Any]:
    g = np.random.default_rng(rng.randint(0, 2**32))
    front = () if length is None else (length,)
    return [values(g, n.dtype, (*front, *n.shape), smooth=True) for n in nodes]


def scanned(rng: random.Random, depth: int, checkpoint: int = 0) -> Program:
    step = body(rng, depth)
    length = rng.choice((0, 1, 2, 3, 4)) if not checkpoint else rng.randint(0, 7)
    reverse = rng.random() < 0.5
    n, m = len(step.consts), len(step.carries)

    def looped(ins: Sequence[UOp]) -> list[UOp]:
        return list(build_calls.scan(step.fn, length, ins[:n], ins[n:n + m], ins[n + m:], reverse,
                                     "loop", checkpoint))

    def unrolled(ins: Sequence[UOp]) -> list[UOp]:
        consts, carries, xs = ins[:n], ins[n:n + m], ins[n + m:]
        ys: list[list[UOp]] = [[] for _ in step.fn.src[m:]]
        for t in range(length)[::-1 if reverse else 1]:
            rows = [build.reshape(build.shrink(x, [(t, t + 1), *[(0, k) for k in x.shape[1:]]]),
                                  x.shape[1:]) for x in xs]
            outs = inline_function(step.fn, [*consts, *carries, *rows])
            carries = outs[:m]
            for y, out in zip(ys, outs[m:]):
                y.append(build.reshape(out, (1, *out.shape)))
        stacks = [build.concat(y[::-1] if reverse else y, 0) if y else
                  build.const(0, out.dtype, (0, *out.shape))
                  for y, out in zip(ys, step.fn.src[m:])]
        return [*carries, *stacks]

    return Program(looped, unrolled, fill(rng, step.consts) + fill(rng, step.carries)
                   + fill(rng, step.rows, length))


def chosen(rng: random.Random, depth: int) -> Program:
    """Draw a COND of two or three branches."""
    first = body(rng, depth)
    n = first.fn.arg.n_params
    like = [*first.consts, *first.carries, *first.rows]
    given = [build.param(i, p.dtype, p.shape) for i, p in enumerate(like)]
    branches = [first.fn]
    for _ in range(rng.randint(1, 2)):
        pool = [p for p in given if p.dtype is F8]
        other = [_next(rng, pool, o) if o.dtype is F8 else o for o in first.fn.src]
        other = [build.const(7, o.dtype, o.shape) if o.dtype is not F8 else
                 calm(build.reshape(o, o.shape)) if rng.random() < 0.5 else x
                 for o, x in zip(first.fn.src, other)]
        branches.append(build.function(other, n, "other"))
    which = rng.randint(-1, len(branches))

    def looped(ins: Sequence[UOp]) -> list[UOp]:
        return list(build_calls.cond(branches, build.const(which, dtypes.int32), ins, "choice"))

    def unrolled(ins: Sequence[UOp]) -> list[UOp]:
        return inline_function(branches[min(max(which, 0), len(branches) - 1)], ins)

    return Program(looped, unrolled, fill(rng, like))


def repeated(rng: random.Random, trips: int) -> Program:
    """Draw a WHILE with a counter, and the SCAN of as many steps."""
    step = body(rng, rows=False)
    n = len(step.consts)
    slots = [build.param(i, p.dtype, p.shape) for i, p in enumerate([*step.consts, *step.carries])]
    counter = build.param(len(slots), dtypes.int32, ())
    more = build.add(counter, build.const_like(counter, 1))
    turn = build.function([*step.fn.src[:len(step.carries)], more], len(slots) + 1, "turn")
    goes_on = build.function([build.lt(counter, build.const_like(counter, trips))], len(slots) + 1)

    def looped(ins: Sequence[UOp]) -> list[UOp]:
        zero = build.const(0, dtypes.int32)
        return list(build_calls.while_(goes_on, turn, ins[:n], [*ins[n:], zero], "loop"))

    def unrolled(ins: Sequence[UOp]) -> list[UOp]:
        carries = [*ins[n:], build.const(0, dtypes.int32)]
        return list(build_calls.scan(turn, trips, ins[:n], carries, []))

    return Program(looped, unrolled, fill(rng, step.consts) + fill(rng, step.carries))


# ---- the laws -------------------------------------------------------------------------------


def derived(make: Made, args: Sequence[Any], wrt: Sequence[int], seed: int) -> list[UOp]:
    """Return values, gradients, tangents, and both of each again: forward over reverse, reverse
    over both."""
    rng = np.random.default_rng(seed)
    params = [build.param(i, dtypes.as_dtype(v.dtype), v.shape) for i, v in enumerate(args)]
    xs = [params[i] for i in wrt]
    given = {x: build.const(float(rng.uniform(0.5, 1)), F8, x.shape) for x in xs}
    outs = make(params)
    loss = projected([o for o in outs if o.dtype is F8], np.random.default_rng(1))
    found = [*outs, loss]
    for source in (gradient(loss, xs), [jvp_of(loss, given)]):
        again = projected(source, np.random.default_rng(2))
        found += [*source, *gradient(again, xs), jvp_of(again, given)]
    return found


def projected(outs: Sequence[UOp], rng: np.random.Generator) -> UOp:
    """Return a random linear function of all results."""
    total = build.const(0.0, F8)
    for out in outs:
        n = int(np.prod(out.shape))
        place = build.add(build.iota(n, F8), build.const(rng.uniform(1, 9), F8, (n,)))
        weights = build.elementwise(ops.SIN, build.mul(place, build.const(1.7, F8, (n,))))
        product = build.mul(build.reshape(out, (n,)), weights)
        total = build.add(total, build.reduce(product, ops.ADD, (0,)))
    return total


def gradient(loss: UOp, wrt: Sequence[UOp]) -> list[UOp]:
    _, cts = pullback([loss], [Cotangent(build.const_like(loss, 1))], wrt)
    return [build.const_like(w, 0) if ct is None else ct.value for w, ct in zip(wrt, cts)]


def jvp_of(loss: UOp, given: dict[UOp, UOp]) -> UOp:
    _, (tangent,) = pushforward([loss], given)
    return build.const_like(loss, 0) if tangent is None else tangent


def check(program: Program, seed: int) -> None:
    rng = random.Random(seed)
    floats = [i for i, v in enumerate(program.values) if v.dtype == np.float64]
    wrt = sorted(rng.sample(floats, rng.randint(1, len(floats))))
    env = {build.param(i, dtypes.as_dtype(v.dtype), v.shape): v
           for i, v in enumerate(program.values)}
    looped = derived(program.looped, program.values, wrt, seed)
    spec.check(looped, "tensor")
    unrolled = derived(program.unrolled, program.values, wrt, seed)
    for a, b in zip(interp.evaluate(looped, env), interp.evaluate(unrolled, env)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@pytest.mark.cases(6)
@pytest.mark.parametrize("seed", range(40))
def test_scan(seed: int) -> None:
    rng = random.Random(seed)
    check(scanned(rng, 0), seed)


def test_a_carry_that_becomes_what_all_steps_share() -> None:
    """A carry equal in all steps from the second one on, which is also a per-step result, is not
    stacked."""
    w, c = (build.param(i, F8, ()) for i in (0, 1))
    one = Expr(w) * Expr(w)
    step = build.function([one.node, one.node, (Expr(c) * Expr(c) * Expr(w)).node], 2)

    def looped(ins: Sequence[UOp]) -> list[UOp]:
        return list(build_calls.scan(step, 3, ins[:1], ins[1:], []))

    def unrolled(ins: Sequence[UOp]) -> list[UOp]:
        w, c = map(Expr, ins)
        rows = [x.node for x in (w * w, w * w, w * w, c * c * w, w**4 * w, w**4 * w)]
        stack = [build.reshape(x, (1,)) for x in rows]
        return [rows[0], build.concat(stack[:3], 0), build.concat(stack[3:], 0)]

    check(Program(looped, unrolled, [np.float64(0.7), np.float64(0.4)]), 3)


@pytest.mark.cases(9)
@pytest.mark.parametrize("seed", range(15))
def test_nested_loops(seed: int) -> None:
    rng = random.Random(seed)
    check(scanned(rng, 2), seed)


@pytest.mark.cases(5)
@pytest.mark.parametrize("seed", range(25))
def test_checkpointed_scan(seed: int) -> None:
    rng = random.Random(seed)
    check(scanned(rng, seed % 2, checkpoint=rng.randint(1, 4)), seed)


@pytest.mark.cases(8)
@pytest.mark.parametrize("seed", range(25))
def test_cond(seed: int) -> None:
    rng = random.Random(seed)
    check(chosen(rng, seed % 2), seed)


@pytest.mark.cases(10)
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("leaf, places, first", [(1, 4, 2), (2, 5, 4), (32, 32, 24)])
def test_while(seed: int, leaf: int, places: int, first: int, monkeypatch: pytest.MonkeyPatch
               ) -> None:
    for name, n in (("BLOCK", leaf), ("MAX_SNAPSHOTS", places), ("FORWARD_SNAPSHOTS", first)):
        monkeypatch.setattr(revolve, name, n)
    clear_caches()  # cached for other block sizes
    rng = random.Random(seed)
    check(repeated(rng, rng.choice((0, 1, 2, 3, 5, 9))), seed)
    clear_caches()


@pytest.mark.cases(23)
@pytest.mark.parametrize("seed", range(100, 112))
@pytest.mark.parametrize("draw", [lambda rng: scanned(rng, 1), lambda rng: chosen(rng, 1),
                                  lambda rng: repeated(rng, rng.randint(0, 9))],
                         ids=["scan", "cond", "while"])
def test_differences(draw: Callable[[random.Random], Program], seed: int,
                     monkeypatch: pytest.MonkeyPatch) -> None:
    """Both modes along a direction against finite differences, extrapolated once."""
    # Finite differences would see through these.
    monkeypatch.setitem(globals(), "SMOOTH", SMOOTH - {ops.STOP_GRADIENT, ops.FLOOR})
    program = draw(random.Random(seed))
    rng = np.random.default_rng(seed)
    params = [build.param(i, dtypes.as_dtype(v.dtype), v.shape)
              for i, v in enumerate(program.values)]
    env = dict(zip(params, program.values))
    direction = {x: rng.normal(size=x.shape) for x in params if x.dtype is F8}
    outs = [o for o in program.looped(params) if o.dtype is F8]
    loss = projected(outs, np.random.default_rng(1))

    def at(h: float) -> float:
        moved = {x: v + h * direction[x] if x in direction else v for x, v in env.items()}
        return float(interp.evaluate([loss], moved)[0])

    far, near = ((at(h) - at(-h)) / (2 * h) for h in (1e-3, 5e-4))
    want, doubt = (4 * near - far) / 3, abs(near - far)
    grads = interp.evaluate(gradient(loss, list(direction)), env)
    reverse = sum((g * d).sum() for g, d in zip(grads, direction.values()))
    tangents = {x: build.param(len(params) + i, F8, x.shape) for i, x in enumerate(direction)}
    forward, = interp.evaluate([jvp_of(loss, tangents)], env | {
        t: direction[x] for x, t in tangents.items()})
    assert reverse == pytest.approx(want, rel=1e-6, abs=1e-6 + doubt)
    assert forward == pytest.approx(reverse, rel=1e-9, abs=1e-11)
