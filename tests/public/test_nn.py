"""fnx.nn and fnx.numpy.linalg: values at special points, and derivatives where they are a
choice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fnx
import fnx.nn as nn
import fnx.numpy as jnp
from fnx.core.array.array_operators import apply
from fnx.core.formulas import error_functions

INF, NAN = float("inf"), float("nan")


def slope(f: Callable[[Any], Any], x: float) -> float:
    return float(fnx.grad(f)(x))


@pytest.mark.parametrize(("f", "x", "want"), [
    (nn.relu, 0.0, 0.0), (nn.relu, 1.0, 1.0), (nn.relu6, 6.0, 0.0), (nn.elu, 0.0, 1.0),
    (nn.sigmoid, 0.0, 0.25), (nn.sigmoid, -200.0, 0.0), (nn.sigmoid, 200.0, 0.0),
    (nn.softplus, 0.0, 0.5), (nn.softplus, 200.0, 1.0), (nn.softplus, -200.0, 0.0),
    (nn.silu, 0.0, 0.5), (nn.gelu, 0.0, 0.5), (nn.elu, 200.0, 1.0), (nn.leaky_relu, -1.0, 0.01),
    (jnp.sinh, 0.0, 1.0), (jnp.abs, 0.0, 0.0), (lambda x: jnp.linalg.norm(x[None]), 0.0, 0.0),
    (lambda x: jnp.linalg.norm(jnp.stack([x, 0 * x])), 0.0, 0.0),
    (lambda x: nn.logsumexp(jnp.stack([x, x])), -INF, 0.0), (lambda x: x**2, 0.0, 0.0),
    (lambda x: x**0, 0.0, 0.0), (lambda x: x**3, 0.0, 0.0), (lambda x: fnx.lax.erf(x), 0.0,
                                                             2 / np.sqrt(np.pi)),
])
def test_chosen_slopes(f: Callable[[Any], Any], x: float, want: float) -> None:
    assert slope(f, x) == pytest.approx(want, abs=1e-6)


def test_stop_gradient() -> None:
    assert slope(lambda x: x * fnx.lax.stop_gradient(x), 3.0) == 3.0


@pytest.mark.parametrize("f", [nn.relu, nn.relu6, nn.elu, nn.silu, nn.gelu, nn.softplus,
                               nn.sigmoid, nn.selu])
def test_nan_goes_through(f: Callable[[Any], Any]) -> None:
    assert np.isnan(float(f(NAN)))


def test_relu_keeps_integers() -> None:
    assert nn.relu(jnp.asarray([-1, 2])).dtype == np.int32


ROWS = hnp.arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(1, 5)),
                  elements=st.floats(-50, 50, width=32))


@settings(max_examples=60, deadline=None)
@given(ROWS, st.sampled_from([0, 1, -1, (0, 1)]))
def test_softmax_and_its_logarithm(x: Any, axis: Any) -> None:
    wide = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    total = wide.sum(axis, keepdims=True)
    np.testing.assert_allclose(np.asarray(nn.softmax(x, axis)), wide / total, rtol=3e-6, atol=1e-30)
    want = x - x.max(axis, keepdims=True) - np.log(total)
    np.testing.assert_allclose(np.asarray(nn.log_softmax(x, axis)), want, rtol=1e-5, atol=2e-5)
    np.testing.assert_allclose(np.asarray(nn.logsumexp(x, axis, keepdims=True)),
                               np.log(total) + x.max(axis, keepdims=True), rtol=1e-5, atol=2e-5)


def test_logsumexp_of_infinities() -> None:
    assert float(nn.logsumexp(jnp.asarray([-INF, -INF]))) == -INF
    assert float(nn.logsumexp(jnp.asarray([INF, 0.0]))) == INF
    assert np.isnan(float(nn.logsumexp(jnp.asarray([NAN, 0.0]))))


@settings(max_examples=40, deadline=None)
@given(hnp.arrays(np.int32, hnp.array_shapes(max_dims=2, max_side=4),
                  elements=st.integers(-2, 6)), st.integers(0, 5))
def test_one_hot(labels: Any, n: int) -> None:
    want = (labels[..., None] == np.arange(n)).astype(np.float32)
    np.testing.assert_array_equal(np.asarray(nn.one_hot(labels, n)), want)


@pytest.mark.parametrize(("name", "deviation"), [
    ("glorot_normal", (2 / 300) ** 0.5), ("glorot_uniform", (2 / 300) ** 0.5),
    ("he_normal", (2 / 100) ** 0.5), ("he_uniform", (2 / 100) ** 0.5),
    ("lecun_normal", 0.1), ("lecun_uniform", 0.1)])
def test_initializers_have_their_variance(name: str, deviation: float) -> None:
    w = np.asarray(getattr(nn.initializers, name)()(fnx.random.key(1), (100, 200)))
    assert w.shape == (100, 200) and w.dtype == np.float32
    assert w.std() == pytest.approx(deviation, rel=0.02)
    assert abs(w.mean()) < 3 * deviation / w.size**0.5 * 2


# ---- the error function -------------------------------------------------------------------------


@pytest.mark.parametrize(("function", "name", "points", "ulps"), [
    (error_functions.ERF, "erf", np.linspace(-4, 4, 161), 3), (error_functions.ERFC, "erfc",
                                                               np.linspace(-3, 3, 121), 12),
    (error_functions.ERF_INV, "erfinv", np.linspace(-0.9, 0.9, 61), 6)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_error_functions(function: Any, name: str, points: Any, ulps: float, dtype: Any) -> None:
    import mpmath

    x = np.concatenate([points, [1e-5, -1e-3]]).astype(dtype)
    want = np.array([float(getattr(mpmath, name)(float(v))) for v in x])
    got = np.asarray(apply(function, jnp.asarray(x, dtype)))
    assert got.dtype == dtype
    np.testing.assert_allclose(got, want, rtol=ulps * np.finfo(dtype).eps, atol=1e-300)


def test_derivatives_of_erfc_are_those_of_erf() -> None:
    """Of every order: they are closed forms, not derivatives of the polynomials of its parts."""
    x = jnp.linspace(-9, 40, 99)
    erf: Callable[..., Any] = fnx.lax.erf
    erfc: Callable[..., Any] = fnx.lax.erfc
    for _ in range(3):
        erf, erfc = fnx.grad(erf), fnx.grad(erfc)
        np.testing.assert_array_equal(fnx.vmap(erfc)(x), -fnx.vmap(erf)(x))


def test_ends_of_the_inverse_error_function() -> None:
    got = np.asarray(fnx.lax.erf_inv(jnp.asarray([-1.0, 1.0, 2.0])))
    np.testing.assert_array_equal(got, [-INF, INF, NAN])


def test_activations_of_whole_numbers_have_the_types_of_jax() -> None:
    names = ("relu6", "hard_sigmoid", "hard_silu", "selu", "sparse_plus", "sparse_sigmoid")
    whole = np.arange(-3, 4, dtype=np.int8)
    for x64, wide in ((False, "float32"), (True, "float64")):
        with fnx.enable_x64(x64):
            for name in names:
                f = getattr(fnx.nn, name)
                got = f(jnp.asarray(whole))
                assert (got.dtype, got.weak_type) == (wide, True), name
                np.testing.assert_allclose(got, f(whole.astype(wide)), rtol=1e-6)
            assert fnx.nn.hard_tanh(jnp.asarray(whole)).tolist() == [-1, -1, -1, 0, 1, 1, 1]
            assert fnx.nn.hard_tanh(jnp.asarray(whole)).dtype == np.int8
            assert fnx.nn.hard_tanh(jnp.asarray([0, 3], np.uint8)).tolist() == [0, 1]
            got = fnx.nn.squareplus(jnp.asarray(whole))
            assert (got.dtype, got.weak_type) == (np.float32, False)


def test_standardize_of_numbers_far_from_0() -> None:
    x = np.array([0.25, 1.0, 2.5], np.float32)
    np.testing.assert_allclose(nn.standardize(x + 1e4), nn.standardize(x), rtol=2e-3)


def test_attention_in_float64_has_its_precision() -> None:
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 6, 2, 4))
    scores = np.einsum("bthd,bshd->bhts", q, k) / 2
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    with fnx.enable_x64():
        got = nn.dot_product_attention(q, k, v)
    np.testing.assert_allclose(got, np.einsum("bhts,bshd->bthd", weights, v), rtol=1e-12)
