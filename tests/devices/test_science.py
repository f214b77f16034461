"""Factorizations, solutions and Fourier transforms in float32 on devices that are not the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from tests.devices.conftest import on_device

EPS = float(np.finfo("float32").eps)
N = 9
A = np.random.default_rng(0).normal(size=(2, N, N)).astype("float32")
P = A @ A.swapaxes(-1, -2) + np.eye(N, dtype="float32")
B = A[..., :2].copy()
Z = (A[0] + 1j * A[1]).astype("complex64")


def solve(a: Any, b: Any) -> Any:
    return a @ jnp.linalg.solve(a, b), b


def cholesky(p: Any) -> Any:
    factor = jnp.linalg.cholesky(p)
    return factor @ jnp.matrix_transpose(jnp.tril(factor)), p


def qr(a: Any) -> Any:
    q, r = jnp.linalg.qr(a)
    return q @ jnp.triu(r), a


def eigh(p: Any) -> Any:
    values, vectors = jnp.linalg.eigh(p)
    return (vectors * values[..., None, :]) @ jnp.matrix_transpose(vectors), p


def svd(a: Any) -> Any:
    u, s, vh = jnp.linalg.svd(a)
    return (u * s[..., None, :]) @ vh, a


CASES = [(solve, (A, B)), (cholesky, (P,)), (qr, (A,)), (eigh, (P,)), (svd, (A,))]


@pytest.mark.cases(4)
@pytest.mark.parametrize("device", ["opencl", "webgpu"])
@pytest.mark.parametrize(("f", "args"), CASES, ids=[f.__name__ for f, _ in CASES])
def test_factors_give_the_matrices_back(f: Any, args: Any, device: str) -> None:
    with on_device(device):
        found, given = map(np.asarray, fnx.jit(f)(*map(jnp.asarray, args)))
    size = np.linalg.norm(given, axis=(-2, -1)).max()
    condition = np.linalg.cond(args[0]).max() if f is solve else 1.0
    assert found.dtype == np.float32
    assert np.abs(found - given).max() <= 4 * N * EPS * size * condition


@pytest.mark.cases(1)
@pytest.mark.parametrize("device", ["opencl", "webgpu"])
@pytest.mark.parametrize("n", [8, 9, 12, 97, 120])
def test_fft(n: int, device: str) -> None:
    z = np.resize(Z, (3, n))
    with on_device(device):
        y = jnp.asarray(z)
        out = fnx.jit(lambda y: (jnp.fft.fft(y), jnp.fft.ifft(y), jnp.fft.rfft(y.real)))(y)
        found = [np.asarray(x) for x in out]
    for mine, exact in zip(found, (np.fft.fft(z), np.fft.ifft(z), np.fft.rfft(z.real))):
        assert mine.dtype == np.complex64
        assert np.linalg.norm(mine - exact) <= 8 * EPS * np.linalg.norm(exact)
