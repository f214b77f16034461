"""``odeint``: exact solutions, derivatives, and an end in every case."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, DTypeError, ShapeError
from fnx.experimental.ode import odeint

TIMES = np.asarray([0.0, 0.3, 1.0, 1.7])


@pytest.mark.cases(2, of="slow")
@settings(max_examples=10)
@given(st.integers(1, 4), st.integers(0, 99))
def test_linear_equations(n: int, seed: int) -> None:
    with fnx.enable_x64():
        rng = np.random.default_rng(seed)
        A, y0 = rng.normal(size=(n, n)), rng.normal(size=n)
        found = odeint(lambda y, t, A: A @ y, y0, TIMES, A, rtol=1e-9, atol=1e-10)
        want = solve_ivp(lambda t, y: A @ y, (0, 1.7), y0, t_eval=TIMES, rtol=1e-10,
                         atol=1e-11).y.T
        np.testing.assert_allclose(found, want, rtol=1e-6, atol=1e-7)


@pytest.mark.cases(2, of="slow")
def test_pytrees_jit_and_vmap() -> None:
    def pendulum(state: Any, t: Any, length: Any) -> Any:
        return {"angle": state["speed"], "speed": -9.81 / length * jnp.sin(state["angle"])}

    def solve(angle: Any) -> Any:
        return odeint(pendulum, {"angle": angle, "speed": 0.0}, TIMES.astype("float32"), 2.0,
                      rtol=1e-6, atol=1e-6)["angle"]
    angles = jnp.asarray([0.1, 1.0, 3.0])
    rows = fnx.jit(fnx.vmap(solve))(angles)
    for angle, row in zip(angles, rows):
        np.testing.assert_allclose(row, solve(angle), rtol=1e-4, atol=1e-4)


@pytest.mark.cases(2, of="slow")
def test_derivatives_by_all_arguments(float64: None) -> None:
    weights = np.random.default_rng(0).normal(size=(4, 2))

    def f(y0: Any, times: Any, rates: Any, count: Any = 2) -> Any:
        ys = odeint(lambda y, t, r, n: jnp.sin(t * n) * y * r["a"] - y[::-1] * r["b"], y0, times,
                    rates, count, rtol=1e-10, atol=1e-10)
        return jnp.sum(weights * ys)
    point = (jnp.asarray([1.0, -0.5]), jnp.asarray(TIMES + 0.1),
             {"a": jnp.asarray(0.7), "b": jnp.asarray([0.2, 1.1])})
    gradients = fnx.grad(f, (0, 1, 2))(*point)
    leaves, structure = fnx.tree.flatten(point)
    for i, (x, gradient) in enumerate(zip(leaves, fnx.tree.leaves(gradients))):
        for at in np.ndindex(x.shape):
            values = [float(f(*structure.unflatten([
                *leaves[:i], x.at[at].add(step), *leaves[i + 1:]]))) for step in (1e-5, -1e-5)]
            np.testing.assert_allclose(gradient[at], (values[0] - values[1]) / 2e-5, atol=1e-6)


def test_derivatives_by_what_the_equation_closes_over(float64: None) -> None:
    def f(a: Any) -> Any:
        return odeint(lambda y, t: -a * y, jnp.ones(2), jnp.asarray([0.0, 1.0]))[1, 0]
    assert abs(float(fnx.grad(f)(0.5)) + np.exp(-0.5)) < 1e-7


@pytest.mark.cases(2, of="slow")
def test_derivatives_by_complex_arguments() -> None:
    H = jnp.asarray([[0, 1], [1, 0]], "complex64")

    def population(h: Any) -> Any:
        ys = odeint(lambda y, t, H: -1j * (H @ y), jnp.asarray([1, 0j]), jnp.asarray([0.0, 1.0]),
                    h * H, rtol=1e-6, atol=1e-6)
        return abs(ys[1, 0])**2
    assert abs(float(fnx.grad(population)(0.7)) + np.sin(1.4)) < 1e-4


def test_it_ends_and_says_so() -> None:
    pole = odeint(lambda y, t: y * y, 1.0, jnp.asarray([0.0, 0.5, 0.9, 2.0]))
    np.testing.assert_allclose(pole[:3], [1, 2, 10], rtol=1e-4)
    assert np.isnan(pole[3])
    assert np.isnan(odeint(lambda y, t: y * jnp.nan, 1.0, jnp.asarray([0.0, 1.0]))[1])
    assert np.isnan(odeint(lambda y, t: -y, 1.0, jnp.asarray([0.0, 1.0]), mxstep=2)[1])


def test_times_that_are_equal_and_a_single_one() -> None:
    found = odeint(lambda y, t: -y, 1.0, jnp.asarray([0.0, 0.0, 1.0, 1.0]))
    np.testing.assert_allclose(found, np.exp([0, 0, -1, -1]), rtol=1e-5)
    assert odeint(lambda y, t: -y, jnp.ones(3), jnp.zeros(1)).shape == (1, 3)


def test_bad_input() -> None:
    def f(y: Any, t: Any) -> Any:
        return -y
    for act, kind, part in (
            (lambda: odeint(f, 1.0, jnp.arange(3)), DTypeError, "astype"),
            (lambda: odeint(f, 1.0, jnp.asarray(1.0)), ShapeError, "vector"),
            (lambda: odeint(f, 1.0, jnp.asarray([1.0, 0.0])), ArgumentError, "backwards"),
            (lambda: odeint(lambda y, t: jnp.ones(3), jnp.ones(2), jnp.asarray([0.0, 1.0])),
             ShapeError, "2 elements"),
            (lambda: odeint(f, 1.0, jnp.asarray([0.0, 1.0]), rtol="x"),  # type: ignore
             ArgumentError, "number")):
        with pytest.raises(kind, match=part):
            act()
