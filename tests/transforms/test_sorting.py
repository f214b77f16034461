"""SORT: every dtype and length against NumPy, its derivatives, batching and loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, AxisError, ShapeError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 7)).astype(np.float32)


def drawn(dtype: str, n: int) -> Any:
    x = RNG.standard_normal((3, n)) * 100
    if dtype == "bool":
        return x > 0
    x = np.abs(x) if dtype[0] == "u" else x
    if dtype.startswith("float"):
        x[0, ::3], x[1, ::2], x[1, ::5] = np.nan, -0.0, 0.0
        x[2, ::4], x[0, 1::7] = np.inf, -np.nan
    return x.astype(dtype)


@pytest.mark.cases(22)
@pytest.mark.parametrize("n", [1, 5, 32, 33, 300])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "int8", "uint8", "uint32"])
def test_order_is_numpys_stable_one_in_every_bit(dtype: str, n: int) -> None:
    x = drawn(dtype, n)
    keys = np.where(x == 0, 0, x) if dtype.startswith("float") else x
    order = np.argsort(keys, axis=-1, kind="stable")
    want = np.take_along_axis(x, order, -1)
    alone, places, (first, carried) = fnx.jit(lambda x: (
        lax.sort(x), jnp.argsort(x), lax.sort((x, x), num_keys=1)))(x)
    np.testing.assert_array_equal(places, order)
    for got in (alone, first, carried):
        assert np.asarray(got).tobytes() == want.tobytes()


def test_derivatives_follow_the_order() -> None:
    def f(x: Any, y: Any) -> Any:
        return (jnp.sin(lax.sort((x, y, x * y), dimension=0)[2]) * lax.sort(y)).sum()
    y = RNG.standard_normal(X.shape).astype(np.float32)
    order, inner = np.argsort(X, 0), np.argsort(y, -1)
    product = np.take_along_axis(X * y, order, 0)
    weight = np.take_along_axis(y, inner, -1)
    d_product, d_weight = np.empty_like(X), np.empty_like(X)
    np.put_along_axis(d_product, order, np.cos(product) * weight, 0)
    np.put_along_axis(d_weight, inner, np.sin(product), -1)
    by_x, by_y = fnx.grad(f, (0, 1))(X, y)
    np.testing.assert_allclose(by_x, d_product * y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(by_y, d_product * X + d_weight, rtol=1e-5, atol=1e-6)
    hessian = fnx.hessian(lambda x: jnp.sin(lax.sort(x)).sum())(X[0])
    np.testing.assert_allclose(hessian, np.diag(-np.sin(X[0])), atol=1e-6)
    _, tangent = fnx.jvp(lambda x: lax.sort((x, x * 2))[1], (X,), (y,))
    np.testing.assert_allclose(tangent, 2 * np.take_along_axis(y, np.argsort(X, -1), -1))


def test_lanes_and_loops() -> None:
    np.testing.assert_array_equal(fnx.vmap(lax.sort)(X), np.sort(X))
    last, tops = lax.scan(lambda c, v: (lax.sort(c + v), lax.top_k(v, 2)[0]), X[0], X)
    want = X[0]
    for row in X:
        want = np.sort(want + row)
    np.testing.assert_allclose(last, want, rtol=1e-6)
    np.testing.assert_array_equal(tops, np.sort(X)[:, :-3:-1])
    gradient = fnx.grad(lambda x: lax.scan(
        lambda c, v: (lax.sort(c + v), c[0]), x[0], x)[1].sum())(X)
    assert np.asarray(gradient).sum() == pytest.approx(6.0)  # c[0] sums 1, 2 and 3 terms


def test_empty_arrays_and_one_element() -> None:
    assert lax.sort(jnp.zeros((2, 0))).shape == (2, 0)
    assert jnp.argsort(jnp.zeros((0, 3))).shape == (0, 3)
    np.testing.assert_array_equal(jnp.argsort(jnp.ones((2, 1))), [[0], [0]])


@pytest.mark.parametrize(("call", "error", "said"), [
    (lambda: lax.sort((X, X[0])), ShapeError, "equal shape"),
    (lambda: lax.sort((X,), num_keys=2), ArgumentError, "num_keys from 1 to 1"),
    (lambda: lax.sort(()), ArgumentError, "operands, got none"),
    (lambda: lax.sort(X, dimension=2), AxisError, "axis < 2"),
    (lambda: lax.sort(np.float32(1)), AxisError, "no axis"),
    (lambda: lax.top_k(X, 8), ArgumentError, "k from 0 to 7"),
    (lambda: jnp.sort(X, kind="quicksort"), ArgumentError, "kind=None"),
])
def test_what_is_refused(call: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        call()
