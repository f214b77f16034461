"""Linear functions with a transpose of the user's, series of derivatives, saved residuals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, GradError
from fnx.custom_derivatives import linear_call
from fnx.experimental.jet import jet, zero_series
from fnx.transforms.saved_residuals import saved_residuals
from fnx.vjp_passes import fwd_and_bwd


def scaled(r: Any, x: Any) -> Any:
    return linear_call(lambda r, x: r * x, lambda r, ct: 5 * r * ct, r, x)


def test_the_transpose_is_the_users_and_its_transpose_the_function() -> None:
    def f(x: Any) -> Any:
        return scaled(jnp.float32(3), x)
    assert fnx.jvp(f, (1.0,), (1.0,))[1] == 3
    assert fnx.grad(f)(1.0) == fnx.jit(fnx.grad(f))(1.0) == 15
    transposed = fnx.linear_transpose(f, 1.0)
    assert transposed(1.0)[0] == 15
    assert fnx.linear_transpose(lambda ct: transposed(ct)[0], 1.0)(1.0)[0] == 3
    assert fnx.vmap(fnx.grad(f))(jnp.ones(2)).tolist() == [15, 15]
    with pytest.raises(GradError):
        fnx.grad(lambda r: scaled(r, 1.0))(2.0)


@given(st.integers(1, 4), st.booleans())
def test_series_of_an_exponential(order: int, scaled_terms: bool) -> None:
    terms = (1.0, *[0.0] * (order - 1))
    value, series = jet(lambda x: jnp.exp(2 * x), (0.5,), (terms,), factorial_scaled=scaled_terms)
    want = [2 ** k * np.exp(1) / (1 if scaled_terms else math.factorial(k))
            for k in range(1, order + 1)]
    np.testing.assert_allclose([value, *series], [np.exp(1), *want], rtol=1e-5)


def test_series_of_several_arguments_and_results() -> None:
    value, series = jet(lambda x, y: {"p": x * y, "n": 3}, (2.0, 5.0), ((1.0, 0.0), zero_series))
    assert value["p"] == 10 and [float(t) for t in series["p"]] == [5, 0]
    with pytest.raises(ArgumentError):
        jet(jnp.add, (1.0, 1.0), ((1.0,), (1.0, 2.0)))


def test_the_two_passes() -> None:
    fwd, bwd = fwd_and_bwd(lambda x, y: (x @ y, x), argnums=(0, 1), has_aux=True)
    x, y = jnp.arange(4.0).reshape(2, 2), jnp.ones((2, 2))
    out, residuals, aux = fwd(x, y)
    assert out.tolist() == (x @ y).tolist() and aux.tolist() == x.tolist()
    assert bwd(residuals, y)[1].tolist() == (x.T @ y).tolist()
    kinds = [(aval.shape, text) for aval, text in saved_residuals(lambda w: w @ w.T, x)]
    assert kinds == [((2, 2), "from the argument w")]
