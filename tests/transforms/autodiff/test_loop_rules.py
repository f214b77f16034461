"""Derivatives of public loops: known values, what is saved, what runs, effects."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.ir import accessors, build, ops
from fnx.core.ir.uop import UOp, toposort
from fnx.transforms.autodiff import carry_fixpoints as carries_of
from fnx.transforms.autodiff import revolve

pytestmark = pytest.mark.usefixtures("float64")


def graph(f: Callable[..., Any], *args: Any) -> UOp:
    fn: UOp = fnx.make_jaxpr(f)(*args).function
    return fn


def nodes(fn: UOp, op: ops.Op) -> list[UOp]:
    return [n for n in toposort([fn], into_functions=True) if n.op is op]


# ---- while ------------------------------------------------------------------------------------


def newton(a: fnx.Array) -> fnx.Array:
    """The square root, to the last bit."""
    def goes_on(state: tuple[fnx.Array, fnx.Array]) -> fnx.Array:
        x, before = state
        return jnp.abs(x - before) > 1e-15 * x

    def step(state: tuple[fnx.Array, fnx.Array]) -> tuple[fnx.Array, fnx.Array]:
        x, _ = state
        return 0.5 * (x + a / x), x

    return lax.while_loop(goes_on, step, (a, jnp.zeros_like(a)))[0]


def reverse(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return fnx.grad(f)


def forward(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda a: fnx.jvp(f, (a,), (1.0,))[1]


@pytest.mark.cases(2)
@pytest.mark.parametrize("a", [0.5, 2.0, 100.0])
@pytest.mark.parametrize("modes", [
    (reverse,), (forward,), (reverse, reverse), (forward, reverse), (reverse, forward),
    (forward, reverse, forward)])
def test_orders_1_to_3_of_newtons_square_root(modes: tuple[Callable[..., Any], ...],
                                              a: float) -> None:
    derivative: Callable[[Any], Any] = newton
    for mode in modes:
        derivative = mode(derivative)
    first = 0.5 / math.sqrt(a)
    want = (first, -first / (2 * a), 3 * first / (4 * a * a))[len(modes) - 1]
    np.testing.assert_allclose(derivative(a), want, rtol=(1e-12, 1e-11, 1e-9)[len(modes) - 1])


@pytest.mark.cases(3, of="long")
def test_a_fixed_point_has_the_derivative_of_its_equation() -> None:
    """x = cos(a x): dx/da = -x sin(a x) / (1 + a sin(a x))."""
    def fixed(a: fnx.Array) -> fnx.Array:
        return lax.while_loop(lambda s: jnp.abs(s[0] - s[1]) > 1e-15,
                              lambda s: (jnp.cos(a * s[0]), s[0]), (a, a + 1))[0]

    a = 0.8
    x = float(fixed(a))
    sine = math.sin(a * x)
    np.testing.assert_allclose(fnx.grad(fixed)(a), -x * sine / (1 + a * sine), rtol=1e-10)


def test_no_step_hands_the_cotangent_on() -> None:
    def f(x: fnx.Array, w: fnx.Array) -> fnx.Array:
        return jnp.sum(3 * lax.while_loop(lambda s: s[0] < 0, lambda s: s * w, x))
    gx, gw = fnx.grad(f, (0, 1))(jnp.asarray([1.0, 2.0]), 5.0)
    assert gx.tolist() == [3.0, 3.0] and float(gw) == 0.0


def counted(n: int, rate: float) -> Callable[..., Any]:
    """x' = x + rate * sin(a x), n times."""
    def f(a: fnx.Array) -> fnx.Array:
        return lax.while_loop(lambda s: s[1] < n,
                              lambda s: (s[0] + rate * jnp.sin(s[0] * a), s[1] + 1), (a, 0))[0]
    return f


def slope_by_hand(a: float, n: int, rate: float) -> float:
    x, dx = a, 1.0
    for _ in range(n):
        x, dx = x + rate * math.sin(x * a), dx + rate * math.cos(x * a) * (dx * a + x)
    return dx


@pytest.mark.cases(2)
@pytest.mark.parametrize("n", [1, 31, 32, 33, 64, 767, 768, 769, 800, 5000])
def test_any_number_of_steps(n: int) -> None:
    rate = 1 / n
    np.testing.assert_allclose(fnx.jit(fnx.grad(counted(n, rate)))(1.3),
                               slope_by_hand(1.3, n, rate), rtol=1e-10)


@pytest.mark.cases(1)
@pytest.mark.parametrize("n", [0, 33])
def test_the_loops_of_a_derivative_are_differentiated_again(n: int) -> None:
    """The loop ends within a block, where each state is saved, so a second derivative costs no more
    than some ten times the first."""
    def steps(x: Any) -> Any:
        return lax.while_loop(lambda s: s[1] < n,
                              lambda s: (jnp.sin(s[0]) * x + s[0] / 2, s[1] + 1), (x, 0))[0]
    first, second = fnx.jit(fnx.grad(steps)), fnx.jit(fnx.grad(fnx.grad(steps)))
    x, h = np.float64(0.8), 1e-5
    np.testing.assert_allclose(second(x), (first(x + h) - first(x - h)) / (2 * h), rtol=1e-7,
                               atol=1e-9)
    assert len(second.lower(x).kernels) < 1000


@pytest.mark.cases(3, of="long")
def test_a_million_steps_save_64_states() -> None:
    n = 1_000_000
    found = fnx.jit(fnx.grad(counted(n, 1 / n)))(1.3)
    np.testing.assert_allclose(found, slope_by_hand(1.3, n, 1 / n), rtol=1e-9)
    cost = revolve.reverse_cost(n)
    print(f"{n} steps: {cost.saved} states saved, {cost.factor} times the loop is run")
    assert cost.saved <= 64 and cost.factor < 5
    fn = graph(fnx.grad(counted(n, 1 / n)), 1.3)
    states = [c.shape[0] for node in nodes(fn, ops.WHILE) for c in node.src[2:] if c.shape]
    assert max(states) <= revolve.MAX_SNAPSHOTS and revolve.MAX_SNAPSHOTS + revolve.BLOCK <= 64


@pytest.mark.cases(1)
@pytest.mark.parametrize("n", [20, 2000])
def test_the_plan_of_a_while_holds_64_states(n: int) -> None:
    """Plus the one being computed, and its cotangent."""
    def f(x: fnx.Array) -> fnx.Array:
        return jnp.sum(lax.while_loop(lambda s: s[1] < n, lambda s: (jnp.sin(s[0]), s[1] + 1),
                                      (x, 0))[0])
    x = np.linspace(0, 1, 1000)
    assert fnx.jit(fnx.grad(f)).lower(x).arena <= 70 * x.nbytes


@pytest.mark.parametrize("free", [1, 2, 5, 17, 31])
def test_the_graph_goes_ahead_as_far_as_the_cost_says(free: int) -> None:
    from fnx.core.ir import dtypes
    from fnx.core.ir.expr import Expr
    from fnx.core.levels import interp

    blocks = [n for n in (*range(1, 60), 1000, 31250) if math.comb(
        free + 1 + revolve.MAX_RUNS, revolve.MAX_RUNS) >= n]
    params = [build.param(i, dtypes.float64, (len(blocks),)) for i in (0, 1)]
    found, = interp.evaluate([revolve.advance(*map(Expr, params)).node], {
        params[0]: np.array(blocks, float), params[1]: np.full(len(blocks), float(free))})
    assert found.tolist() == [revolve._advance(n, free) for n in blocks]


# ---- scan -------------------------------------------------------------------------------------


@pytest.mark.cases(3, of="long")
def test_checkpoints_bound_the_memory_of_10_000_steps() -> None:
    w = jnp.asarray(np.random.default_rng(0).normal(size=(8, 8)) / 3)

    def loss(w: fnx.Array, every: int | None) -> fnx.Array:
        last, _ = lax.scan(lambda h, _: (jnp.tanh(w @ h + 0.1), None), jnp.ones(8), None,
                           length=10_000, checkpoint=every)
        return jnp.sum(last ** 2)

    grad = fnx.jit(fnx.grad(loss), static_argnums=1)
    whole, bounded = grad.lower(w, None).arena, grad.lower(w, 100).arena
    print(f"10000 steps of 64 bytes: peak {whole} bytes, with checkpoint=100 {bounded}")
    assert whole >= 10_000 * 64 and bounded <= 4 * 200 * 64
    np.testing.assert_allclose(grad(w, 100), grad(w, None), rtol=1e-9)


def test_what_is_saved_of_an_rnn() -> None:
    """Only the carry after each step, which is a result anyway."""
    def loss(w: fnx.Array, xs: fnx.Array) -> fnx.Array:
        def cell(h: fnx.Array, x: fnx.Array) -> tuple[fnx.Array, fnx.Array]:
            h = jnp.tanh(h @ w + x)
            return h, h
        return jnp.sum(lax.scan(cell, jnp.zeros(4), xs)[1])

    fn = graph(fnx.grad(loss), np.ones((4, 4)), np.ones((5, 4)))
    forward, backward = sorted(nodes(fn, ops.SCAN), key=lambda n: n.arg.reverse)
    assert [shape for shape, _ in forward.arg.outs] == [(4,), (5, 4)]
    assert backward.arg.n_consts == 1  # w is not stacked


def test_the_states_before_steps_are_saved_and_not_shifted_afterwards() -> None:
    def loss(u: fnx.Array) -> fnx.Array:
        u, _ = lax.scan(lambda u, _: (u + jnp.sin(jnp.roll(u, 1)), None), u, None, 20)
        return jnp.sum(u * u)

    u = jnp.linspace(0., 1., 512)
    concats = nodes(graph(fnx.grad(loss), u), ops.CONCAT)
    assert concats and all(n.shape == u.shape for n in concats)  # those of roll


def test_what_all_steps_share_is_saved_once() -> None:
    def loss(w: fnx.Array, x: fnx.Array) -> fnx.Array:
        return lax.scan(lambda c, _: (c * jnp.exp(jnp.sum(w * w)), None), x, None, length=5)[0]

    fn = graph(fnx.grad(loss), np.full(3, 0.1), 2.0)
    forward = [n for n in nodes(fn, ops.SCAN) if not n.arg.reverse]
    assert all(shape in ((), (5,)) for n in forward for shape, _ in n.arg.outs)
    np.testing.assert_allclose(fnx.grad(loss)(np.full(3, 0.1), 2.0),
                               2.0 * math.exp(5 * 0.03) * 5 * 2 * np.full(3, 0.1), rtol=1e-12)


def test_zero_cotangents_stay_zero_through_loops() -> None:
    """What the result does not depend on is inactive, whatever else the loop computes."""
    def f(x: fnx.Array, y: fnx.Array) -> fnx.Array:
        (a, _), _ = lax.scan(lambda c, _: ((jnp.sin(c[0]), c[1] * y), None), (x, y), None,
                             length=3)
        return a

    fn = graph(fnx.grad(f), 0.5, 2.0)
    backward = [n for n in nodes(fn, ops.SCAN) if n.arg.reverse]
    assert [n.arg.n_carries for n in backward] == [1]
    assert float(fnx.grad(f, 1)(0.5, 2.0)) == 0.0


SINGULAR: dict[str, Callable[[Any], Any]] = {
    "scan": lambda x: lax.scan(lambda c, u: (
        jnp.sqrt(jnp.maximum(c * c + u, 0)) * x.sum(), None), 1.0, x)[0],
    "fori_loop": lambda x: lax.fori_loop(0, 4, lambda i, c: jnp.sqrt(jnp.maximum(c, 0)) * x,
                                         x).sum(),
    "while_loop": lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (
        c[0] + 1, jnp.sqrt(c[1]) * x), (0, x))[1].sum(),
    "cond": lambda x: lax.cond(x[0] > 0, lambda v: jnp.sqrt(v).sum(),
                               lambda v: jnp.sqrt(-v).max(), x)}


@pytest.mark.cases(1)
@pytest.mark.parametrize("loop", SINGULAR)
def test_no_mask_of_zeros_goes_over_a_loops_border(loop: str) -> None:
    """Roots inside and outside of loops have masks, each within its own body."""
    f = SINGULAR[loop]
    first = fnx.grad(lambda x: jnp.sqrt(f(x)))
    found = graph(fnx.grad(lambda x: jnp.sqrt(first(x).sum())), np.ones(3))
    loops = [n for op in (ops.SCAN, ops.WHILE, ops.COND) for n in nodes(found, op)]
    assert loops and any(n.dtype.is_bool for n in toposort([found], into_functions=True))
    for n in loops:
        assert not any(s.dtype.is_bool for s in accessors.operands(n))
        assert not any(dtype.is_bool for _, dtype in n.arg.outs)


@pytest.mark.cases(3, of="long")
def test_orders_1_to_4_of_an_ode() -> None:
    """x' = -x, ten steps of Runge-Kutta: a known power of the start and of the step."""
    def solve(h: fnx.Array) -> fnx.Array:
        def step(x: fnx.Array, _: None) -> tuple[fnx.Array, None]:
            k1 = -x
            k2 = -(x + h / 2 * k1)
            k3 = -(x + h / 2 * k2)
            k4 = -(x + h * k3)
            return x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4), None
        return lax.scan(step, 1.0, None, length=10)[0]

    one = np.polynomial.Polynomial([1, -1, 1 / 2, -1 / 6, 1 / 24])
    f: Callable[..., Any] = solve
    for order in range(5):
        want = (one ** 10).deriv(order)(0.1) if order else (one ** 10)(0.1)
        np.testing.assert_allclose(f(0.1), want, rtol=1e-9)
        f = fnx.grad(f)


# ---- cond -------------------------------------------------------------------------------------


@pytest.mark.parametrize("x, value, slope", [(4.0, 2.0, 0.25), (-4.0, 4.0, -1.0), (0.0, 0.0, -1.0)])
def test_a_branch_that_is_not_taken_has_no_part(x: float, value: float, slope: float) -> None:
    def f(x: fnx.Array) -> fnx.Array:
        return lax.cond(x > 0, jnp.sqrt, jnp.negative, x)
    got = fnx.value_and_grad(f)(x)
    assert (float(got[0]), float(got[1])) == (value, slope)
    assert float(fnx.jvp(f, (x,), (1.0,))[1]) == slope


def test_residuals_of_branches_share_places() -> None:
    def f(x: fnx.Array, n: fnx.Array) -> fnx.Array:
        return lax.switch(n, [lambda x: jnp.exp(jnp.sum(x * x)), lambda x: jnp.log(jnp.sum(x)),
                              lambda x: x[0]], x)
    fn = graph(fnx.grad(f), np.ones(3), 1)
    forward = min(nodes(fn, ops.COND), key=lambda n: len(n.src))
    assert len(forward.arg.outs) <= 2
    x = np.array([1.0, 2.0, 3.0])
    for n, want in enumerate([2 * x * math.exp(14), np.full(3, 1 / 6), np.array([1.0, 0, 0])]):
        np.testing.assert_allclose(fnx.grad(f)(x, n), want, rtol=1e-12)


# ---- effects ----------------------------------------------------------------------------------


@pytest.mark.cases(2)
@pytest.mark.parametrize("loop", ["while", "scan", "segments", "cond"])
def test_effects_are_silent_where_steps_are_run_again(loop: str) -> None:
    seen: list[float] = []

    def step(x: fnx.Array) -> fnx.Array:
        fnx.debug.callback(lambda x: seen.append(float(x)), x)
        return x * x

    def f(x: fnx.Array) -> fnx.Array:
        if loop == "while":
            return lax.while_loop(lambda s: s[1] < 3, lambda s: (step(s[0]), s[1] + 1), (x, 0))[0]
        if loop == "cond":
            return lax.cond(x > 0, lambda x: step(step(step(x))), jnp.sin, x)
        return lax.scan(lambda c, _: (step(c), None), x, None, length=3,
                        checkpoint=2 if loop == "segments" else None)[0]

    for grad in (fnx.grad(f), fnx.jit(fnx.grad(f))):
        seen.clear()
        np.testing.assert_allclose(grad(1.5), 8 * 1.5 ** 7, rtol=1e-12)
        assert seen == [1.5, 1.5 ** 2, 1.5 ** 4]


@pytest.mark.parametrize("seed", range(20))
def test_what_a_loop_depends_on_is_a_transitive_closure(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, n, rows, outs = rng.integers(0, 4), rng.integers(0, 6), rng.integers(0, 3), 3
    carries, end = carries_of.Carries(int(first), int(n)), int(first + n + rows)
    depends = [frozenset(np.flatnonzero(rng.random(end) < 0.25).tolist()) for _ in range(n + outs)]
    for zero_steps in (False, True):
        found = carries_of.transitive_deps(depends, carries, zero_steps)
        for p in range(end):
            moved = carries_of.active_params(depends, carries, {p})
            want = {o for o, d in enumerate(depends) if d & moved}
            want |= carries.of({p}) if zero_steps else set()
            assert {o for o, d in enumerate(found) if p in d} == want


@pytest.mark.cases(3, of="long")
def test_what_a_loop_depends_on_is_asked_once_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops of derivatives of loops have hundreds of results."""
    asked = []

    def counted(*args: Any, **options: Any) -> Any:
        asked.append(args)
        return closed(*args, **options)

    closed = carries_of.transitive_deps
    monkeypatch.setattr(carries_of, "transitive_deps", counted)

    def loop(x: Any) -> Any:
        return lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, jnp.sin(s[1] * x)),
                              (0, x))[1]
    push = fnx.linearize(loop, jnp.ones(3))[1]
    fnx.make_jaxpr(fnx.hessian(lambda x: fnx.linear_transpose(push, x)(x)[0].sum()))(jnp.ones(3))
    assert max([len(depends) for depends, *_ in asked]) > 50
    assert len(asked) < 100
