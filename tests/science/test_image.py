"""Resized images: windows of elements are the matrix of weights without its zeros."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.ir import ops
from fnx.core.ir.uop import UOp, toposort
from fnx.image import ResizeMethod, _weight_matrix, _windows
from fnx.numpy.weighted_windows import Windows

WEIGHTED = [m for m in ResizeMethod if m is not ResizeMethod.NEAREST]


def matrix(windows: Windows) -> np.ndarray:
    out = np.zeros((windows.n, len(windows.start)))
    for i, (start, weights) in enumerate(zip(windows.start, windows.weights)):
        out[start:start + len(weights), i] = weights
    return out


@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from(WEIGHTED), st.booleans())
def test_windows_hold_the_weights_of_the_matrix(n: int, m: int, method: ResizeMethod,
                                                antialias: bool) -> None:
    windows = _windows(n, m, method, antialias)
    expected = _weight_matrix(n, m, jnp.asarray(m / n), jnp.asarray(0.0), method, antialias)
    np.testing.assert_allclose(matrix(windows), expected, atol=3e-5)
    np.testing.assert_array_equal(matrix(windows.transpose()), matrix(windows).T)


@pytest.mark.parametrize("method", ["nearest", "cubic"])
def test_the_derivative_is_the_transpose_and_scatters_nothing(method: str) -> None:
    x = jnp.asarray(np.random.default_rng(0).standard_normal((6, 9, 2)), "float32")
    g = jnp.asarray(np.random.default_rng(1).standard_normal((13, 4, 2)), "float32")

    def loss(x: fnx.Array) -> fnx.Array:
        return (fnx.image.resize(x, g.shape, method) * g).sum()
    gradient = fnx.jit(fnx.grad(loss))
    simplified = next(run for run in gradient.lower(x).passes if run.name == "simplify").after
    assert isinstance(simplified, UOp)
    assert ops.SCATTER not in {n.op for n in toposort(simplified.src)}
    kind = ResizeMethod.from_string(method)
    rows, columns = (matrix(_windows(n, m, kind, True)) for n, m in ((6, 13), (9, 4)))
    expected = np.einsum("ni,mj,ijc->nmc", rows, columns, g)
    np.testing.assert_allclose(gradient(x), expected, atol=1e-5)


@given(st.integers(1, 700), st.integers(1, 700))
def test_the_nearest_element_is_exact(n: int, m: int) -> None:
    positions = [math.floor(Fraction((2 * i + 1) * n, 2 * m)) for i in range(m)]
    assert _windows(n, m, ResizeMethod.NEAREST, True).start.tolist() == positions
