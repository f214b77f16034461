"""Minimization: known minima, bounded work on what has none, and the laws of jit and vmap."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, ShapeError
from fnx.scipy.optimize import minimize

METHODS = ["BFGS", "l-bfgs-experimental-do-not-rely-on-this"]


def rosenbrock(x: Any) -> Any:
    return jnp.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def himmelblau(x: Any) -> Any:
    return (x[0] ** 2 + x[1] - 11) ** 2 + (x[0] + x[1] ** 2 - 7) ** 2


def booth(x: Any) -> Any:
    return (x[0] + 2 * x[1] - 7) ** 2 + (2 * x[0] + x[1] - 5) ** 2


@pytest.mark.cases(2)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("f, start, minimum", [
    (rosenbrock, [0.0, 0.0], [1.0, 1.0]), (rosenbrock, [-1.2, 1.0], [1.0, 1.0]),
    (himmelblau, [0.0, 0.0], [3.0, 2.0]), (booth, [5.0, -3.0], [1.0, 3.0])])
def test_known_minima(f: Callable[[Any], Any], start: list[float], minimum: list[float],
                      method: str, float64: None) -> None:
    options = {"gtol": 1e-7} if method == "BFGS" else {"gtol": 1e-7, "ftol": 0.0}
    found = minimize(f, jnp.asarray(start), method=method, options=options)
    assert bool(found.success) and int(found.status) == 0
    np.testing.assert_allclose(found.x, minimum, atol=1e-5)
    assert float(jnp.abs(found.jac).max()) < 1e-7 and found.x.dtype == np.float64
    assert found.nfev.item() == found.njev.item() >= found.nit.item() > 0


@settings(max_examples=4)
@given(st.integers(1, 6), st.integers(0, 99))
def test_quadratics_of_any_size(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(n, n)).astype(np.float32)
    A, b = root @ root.T + np.eye(n, dtype=np.float32), rng.normal(size=n).astype(np.float32)
    found = minimize(lambda x, A, b: x @ A @ x / 2 - b @ x, np.zeros(n), (A, b), method="BFGS",
                     tol=1e-3)
    assert float(jnp.abs(found.jac).max()) < 1e-3 or int(found.status) >= 3
    np.testing.assert_allclose(A @ np.asarray(found.x), b, atol=2e-2)


@pytest.mark.cases(1)
@pytest.mark.parametrize("method", METHODS)
def test_jit_and_vmap(method: str) -> None:
    def solve(start: Any) -> Any:
        return minimize(himmelblau, start, method=method)._replace(hess_inv=None)
    starts = jnp.asarray([[5.0, 5.0], [4.0, 1.0], [-3.0, 3.0]])
    every = fnx.jit(fnx.vmap(solve))(starts)
    for i, start in enumerate(starts):
        alone = solve(start)
        np.testing.assert_allclose(every.x[i], alone.x, atol=1e-4)
        np.testing.assert_allclose(himmelblau(every.x[i]), 0, atol=1e-5)


@pytest.mark.cases(1)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("f", [lambda x: jnp.sum(x), lambda x: jnp.sum(x) * jnp.nan,
                               lambda x: -jnp.sum(x * x), lambda x: jnp.sum(jnp.log(x))])
def test_it_ends_where_there_is_no_minimum(f: Callable[[Any], Any], method: str) -> None:
    found = minimize(f, jnp.ones(2), method=method)
    assert not bool(found.success) and int(found.status) != 0 and int(found.nfev) < 10_000


def test_a_start_at_the_minimum() -> None:
    found = minimize(booth, jnp.asarray([1.0, 3.0]), method="BFGS")
    assert bool(found.success) and int(found.nit) == 0


def test_derivatives_of_a_minimum_by_custom_root() -> None:
    def center(a: Any) -> Any:
        def solve(g: Any, x: Any) -> Any:
            return minimize(lambda x: jnp.sum((x - a) ** 4 + (x - a) ** 2), x, method="BFGS").x
        return lax.custom_root(lambda x: 2 * (x - a) + 4 * (x - a) ** 3, jnp.zeros(1), solve,
                               lambda g, y: y / g(jnp.ones(1)))[0]
    assert abs(float(fnx.grad(center)(2.0)) - 1) < 1e-3


def test_bad_input() -> None:
    for act, kind, part in (
            (lambda: minimize(booth, np.ones(2), method="newton"), ArgumentError, "'BFGS'"),
            (lambda: minimize(booth, np.ones((2, 1)), method="BFGS"), ShapeError, "ravel_pytree"),
            (lambda: minimize(booth, np.ones(2), 3, method="BFGS"),  # type: ignore
             ArgumentError, r"args=\(a,\)"),
            (lambda: minimize(booth, np.ones(2), method="BFGS", options={"maxitr": 3}),
             ArgumentError, "maxiter"),
            (lambda: minimize(lambda x: x, np.ones(2), method="BFGS"), TypeError, "scalar")):
        with pytest.raises(kind, match=part):
            act()
