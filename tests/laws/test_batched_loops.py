"""A batched program with loops and branches equals the loop over its batch elements; so do its
derivatives.

Programs (of test_loops.py) and the choice of batched operands are random. The branch index and the
trip count may differ between batch elements. Both modes are checked to second order: derivatives of
the batched program against those of the elements one by one, and batched derivatives against those
of each element.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.ir import build, build_calls, dtypes
from fnx.core.ir.uop import UOp
from fnx.core.levels import interp, spec
from fnx.core.tracing.trace import inline_function
from fnx.transforms.batching.batch import batch
from tests.helpers import assert_near
from tests.laws.test_loops import (
    Made,
    Program,
    body,
    check,
    chosen,
    derived,
    drawn,
    fill,
    scanned,
)

LANES = 3


def branches_of_lanes(rng: random.Random, depth: int) -> Program:
    """Draw a COND whose branch index is its first operand."""
    program = chosen(rng, depth)

    def looped(ins: Sequence[UOp]) -> list[UOp]:
        made, = {x.src[0] for x in program.looped(ins[1:])}
        n = made.arg.n_branches
        return list(build_calls.cond(made.src[:n], ins[0], made.src[n + 1:], "choice"))

    return Program(looped, looped, [np.int32(rng.randint(-1, 3)), *program.values])


def trips_of_lanes(rng: random.Random, depth: int) -> Program:
    """Draw a WHILE whose trip count is its first operand."""
    step = body(rng, depth, rows=False)
    n, m = len(step.consts) + 1, len(step.carries)
    slots = [build.param(0, dtypes.int32, ()), *[
        build.param(i + 1, p.dtype, p.shape) for i, p in enumerate([*step.consts, *step.carries])]]
    counter = build.param(len(slots), dtypes.int32, ())
    more = build.add(counter, build.const_like(counter, 1))
    turn = build.function([*inline_function(step.fn, slots[1:])[:m], more], len(slots) + 1, "turn")
    goes_on = build.function([build.lt(counter, slots[0])], len(slots) + 1, "goes_on")

    def looped(ins: Sequence[UOp]) -> list[UOp]:
        zero = build.const(0, dtypes.int32)
        return list(build_calls.while_(goes_on, turn, ins[:n], [*ins[n:], zero], "loop"))

    return Program(looped, looped, [np.int32(rng.randint(0, 4)), *fill(rng, step.consts),
                                    *fill(rng, step.carries)])


KINDS = {"scan": lambda rng: scanned(rng, 0), "nested": lambda rng: drawn(rng, 2),
         "checkpoint": lambda rng: scanned(rng, 1, checkpoint=rng.randint(1, 4)),
         "cond": lambda rng: branches_of_lanes(rng, rng.randint(0, 1)),
         "while": lambda rng: trips_of_lanes(rng, 0)}


def in_lanes(program: Program, rng: random.Random) -> tuple[list[Any], tuple[bool, ...]]:
    """Return values with a random choice of them batched, and flags for which."""
    flags = [rng.random() < 0.5 for _ in program.values]
    flags[0] = flags[0] or not any(flags)
    draw = np.random.default_rng(rng.randint(0, 2**32))
    values = [v if not b else
              np.stack([v if i == 0 else draw.uniform(-0.9, 0.9, v.shape) for i in range(LANES)])
              if v.dtype.kind == "f" else draw.integers(0, 4, (LANES, *v.shape)).astype(v.dtype)
              for v, b in zip(program.values, flags)]
    return values, tuple(flags)


def function_of(make: Made, values: Sequence[Any]) -> UOp:
    return build.function(make([build.param(i, dtypes.as_dtype(v.dtype), v.shape)
                                for i, v in enumerate(values)]), len(values))


def lane(x: UOp, i: int) -> UOp:
    part = build.shrink(x, [(i, i + 1), *[(0, n) for n in x.shape[1:]]])
    return build.reshape(part, x.shape[1:])


@pytest.mark.cases(6)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_derivatives_of_a_batch_are_those_of_each_element(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    program = KINDS[kind](rng)
    values, flags = in_lanes(program, rng)
    function, outs = batch(function_of(program.looped, program.values), LANES, flags)
    spec.check([function], "tensor")

    def together(ins: Sequence[UOp]) -> list[UOp]:
        return [x if b else build.expand(x, (LANES, *x.shape))
                for x, b in zip(inline_function(function, ins), outs)]

    def each(ins: Sequence[UOp]) -> list[UOp]:
        rows = [program.looped([lane(x, i) if b else x for x, b in zip(ins, flags)])
                for i in range(LANES)]
        return [build.concat([build.reshape(x, (1, *x.shape)) for x in column], 0)
                for column in zip(*rows)]

    if any(v.dtype == np.float64 for v in values):
        check(Program(together, each, values), seed)


@pytest.mark.cases(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_batched_derivatives_are_those_of_each_lane(kind: str, seed: int) -> None:
    rng = random.Random(seed)
    program = KINDS[kind](rng)
    floats = [i for i, v in enumerate(program.values) if v.dtype == np.float64]
    wrt = sorted(rng.sample(floats, rng.randint(1, len(floats))))
    values, flags = in_lanes(program, rng)
    fn = build.function(derived(program.looped, program.values, wrt, seed), len(values))
    function, outs = batch(fn, LANES, flags)
    spec.check([function], "tensor")
    got = interp.apply(function, values)
    for i in range(LANES):
        want = interp.apply(fn, [v[i] if b else v for v, b in zip(values, flags)])
        for g, w, b in zip(got, want, outs):
            np.testing.assert_allclose(g[i] if b else g, w, rtol=1e-9, atol=1e-11)


# ---- batch elements do not affect each other ----------------------------------------------------


SINGULAR = {
    "sqrt": (jnp.sqrt, 0.0), "log": (jnp.log, -1.0), "divide": (lambda x: 1 / x, 0.0),
    "power": (lambda x: x ** 0.3, 0.0), "norm": (lambda x: jnp.sqrt(x * x * x), 0.0),
    "loop": (lambda x: lax.fori_loop(0, 3, lambda i, c: jnp.log(c + x), x), -5.0),
}


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", SINGULAR)
def test_a_branch_that_is_singular_for_other_lanes(name: str) -> None:
    f, bad = SINGULAR[name]

    def chosen_by(x: Any, w: Any) -> Any:
        return lax.cond(x > 1, lambda x: f(x) * w, lambda x: 2 * x + w, x)

    xs, w = jnp.asarray([bad, 2.0, bad, 3.0]), jnp.asarray(1.5)
    for derive in (lambda f: f, fnx.grad, lambda f: fnx.grad(f, 1),
                   lambda f: fnx.grad(fnx.grad(f)),
                   lambda f: lambda x, w: fnx.jvp(f, (x, w), (x + 1, w))[1]):
        g = derive(chosen_by)
        want = jnp.asarray([g(x, w) for x in xs])
        assert np.isfinite(want).all()
        assert_near(fnx.vmap(g, (0, None))(xs, w), want)
        assert_near(fnx.jit(fnx.vmap(g, (0, None)))(xs, w), want)
    both = fnx.grad(lambda xs, w: fnx.vmap(chosen_by, (0, None))(xs, w).sum(), (0, 1))
    assert_near(both(xs, w)[0], jnp.asarray([fnx.grad(chosen_by)(x, w) for x in xs]))
    assert_near(both(xs, w)[1], sum(fnx.grad(chosen_by, 1)(x, w) for x in xs))


def newton(a: Any) -> Any:
    """Return the square root; one step too many would be NaN for elements at 0."""
    def goes_on(s: Any) -> Any:
        return jnp.abs(s[0] * s[0] - a) > 1e-4

    return lax.while_loop(goes_on, lambda s: ((s[0] + a / s[0]) / 2, s[1] + 1),
                          (jnp.where(a == 0, 0.0, a), 0))


def test_lanes_that_have_ended_stay_as_they_are() -> None:
    a = jnp.asarray([4.0, 0.0, 100.0, 1.0, 1e-3])
    root, trips = fnx.vmap(newton)(a)
    want = [newton(x) for x in a]
    assert_near(root, jnp.asarray([w[0] for w in want]))
    np.testing.assert_array_equal(trips, [int(w[1]) for w in want])
    slopes = jnp.asarray([fnx.grad(lambda a: newton(a)[0])(x) for x in a])
    assert np.isfinite(slopes).all()
    assert_near(fnx.vmap(fnx.grad(lambda a: newton(a)[0]))(a), slopes)
    assert_near(fnx.grad(lambda a: fnx.vmap(newton)(a)[0].sum())(a), slopes)
    assert_near(fnx.jvp(lambda a: fnx.vmap(newton)(a)[0], (a,), (jnp.ones(5),))[1], slopes)


def test_nested_lanes_that_choose() -> None:
    def f(x: Any, y: Any) -> Any:
        inner = lax.while_loop(lambda c: c < y, lambda c: c + x, 0.0)
        return lax.switch((3 * x).astype("int32"), [jnp.sin, jnp.log, lambda c: c * y], inner + y)

    xs, ys = jnp.asarray([0.1, 0.4, 0.9]), jnp.asarray([0.5, 2.0])
    got = fnx.vmap(fnx.vmap(f, (None, 0)), (0, None))(xs, ys)
    assert_near(got, jnp.asarray([[f(x, y) for y in ys] for x in xs]))
    g = fnx.grad(f)
    assert_near(fnx.vmap(fnx.vmap(g, (None, 0)), (0, None))(xs, ys),
                jnp.asarray([[g(x, y) for y in ys] for x in xs]))
