"""The user-written kernels of the examples: one source, several schedules and devices."""

from __future__ import annotations

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from examples.kernels import (
    flash_attention,
    gemm_schedule,
    histogram,
    mandelbrot,
    matmul,
    pair_counts,
    prefix_sum,
    saxpy,
    softmax,
    stencil,
)

RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


SCHEDULES = {"choice": None, "14x32": gemm_schedule(), "8x32": gemm_schedule(rows=8),
             "4x8": gemm_schedule(rows=4, columns=8, lanes=8, block=2)}


@pytest.mark.cases(13)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("m,k,n", [(1, 1, 1), (14, 16, 32), (100, 99, 101), (57, 130, 33)])
def test_matmul(device: str, schedule: str, m: int, k: int, n: int) -> None:
    x, w = normal(m, k), normal(k, n)
    product = fnx.jit(matmul(SCHEDULES[schedule]))
    np.testing.assert_allclose(product(x, w), x.astype("f8") @ w, rtol=1e-4, atol=1e-5)


def test_ragged_matmul_under_two_schedules() -> None:
    x, w = normal(1000, 999), normal(999, 1001)
    a = np.asarray(matmul(gemm_schedule())(x, w))
    b = np.asarray(matmul(gemm_schedule(rows=8))(x, w))
    np.testing.assert_array_equal(a, b)  # the sum over k is the same chain in both
    np.testing.assert_allclose(a, x.astype("f8") @ w, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("rows,columns", [(1, 1), (3, 16), (5, 67), (17, 300)])
def test_softmax(device: str, rows: int, columns: int) -> None:
    x = normal(rows, columns) * 10
    e = np.exp(x - x.max(1, keepdims=True), dtype="f8")
    np.testing.assert_allclose(softmax(x), e / e.sum(1, keepdims=True), rtol=2e-6)


@pytest.mark.parametrize("n", [0, 1, 15, 16, 17, 63, 64, 65, 1000])
def test_saxpy(device: str, n: int) -> None:
    x, y = normal(n), normal(n)
    np.testing.assert_array_equal(saxpy(2.0, x, y), np.float32(2) * x + y)


def test_kernels_under_jit_with_other_work() -> None:
    """A user-written kernel next to generated ones, in one command buffer."""
    x, w = normal(30, 40), normal(40, 50)
    f = fnx.jit(lambda x, w: softmax(jnp.tanh(matmul(gemm_schedule())(x * 2, w))).sum(0))
    z = np.tanh((x * 2) @ w)
    e = np.exp(z - z.max(1, keepdims=True))
    np.testing.assert_allclose(f(x, w), (e / e.sum(1, keepdims=True)).sum(0), rtol=1e-4)


@pytest.mark.parametrize("rows,columns", [(1, 1), (3, 16), (20, 33)])
def test_prefix_sum(device: str, rows: int, columns: int) -> None:
    x = normal(rows, columns)
    np.testing.assert_array_equal(prefix_sum(x), np.cumsum(x, 1, dtype="float32"))


@pytest.mark.parametrize("n", [1, 100, 1000])
def test_histogram(device: str, n: int) -> None:
    x, edges = normal(n), np.linspace(-1, 1, 11, dtype="float32")
    np.testing.assert_array_equal(histogram(x, edges), np.histogram(x, edges)[0])


@pytest.mark.parametrize("n", [1, 17, 130])
def test_pair_counts(device: str, n: int) -> None:
    p = normal(3, n)
    far = ((p[:, :, None] - p[:, None, :]) ** 2)
    want = (far[0] + far[1] + far[2] <= np.float32(1)).sum(1)
    np.testing.assert_array_equal(pair_counts(p, np.float32(1)), want)


@pytest.mark.parametrize("rows,columns", [(1, 1), (2, 3), (17, 40)])
def test_stencil(device: str, rows: int, columns: int) -> None:
    x = normal(rows, columns)
    c = np.pad(x, 1)
    around = c[:-2, 1:-1] + c[2:, 1:-1] + c[1:-1, :-2] + c[1:-1, 2:]
    np.testing.assert_array_equal(stencil(x), x + np.float32(0.2) * (around - 4 * x))


@pytest.mark.parametrize("height,width", [(1, 1), (5, 16), (9, 37)])
def test_mandelbrot(device: str, height: int, width: int) -> None:
    re, im = (np.linspace(-2, 1, n, dtype="float32") for n in (width, height))
    u = v = np.zeros((height, width), "float32")
    want, alive = np.zeros((height, width), int), np.ones((height, width), bool)
    for _ in range(50):
        alive &= ~(u * u + v * v > 4)
        want += alive
        u, v = (np.where(alive, new, old) for new, old in (
            (u * u - v * v + re, u), (2 * u * v + im[:, None], v)))
    np.testing.assert_array_equal(mandelbrot(50)(re, im), want)


@pytest.mark.cases(7)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads,n,m,keys,rows", [(1, 1, 16, 16, 1), (2, 10, 64, 16, 4),
                                                 (1, 64, 64, 32, 6)])
def test_flash_attention(device: str, causal: bool, heads: int, n: int, m: int, keys: int,
                         rows: int) -> None:
    q, key, v = normal(heads, n, 32), normal(heads, m, 32), normal(heads, m, 32)
    scores = q.astype("f8") @ key.transpose(0, 2, 1)
    if causal:
        scores[:, np.arange(m) > np.arange(n)[:, None]] = -np.inf
    e = np.exp(scores - scores.max(-1, keepdims=True))
    got = flash_attention(causal, keys, rows)(q, key, v)
    np.testing.assert_allclose(got, e / e.sum(-1, keepdims=True) @ v, rtol=2e-4, atol=1e-5)
