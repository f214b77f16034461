"""Reductions along columns visit each row for all of a short row, or for many vectors of a long one
whose lines share places in a cache."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.ir import ops
from fnx.core.ir.uop import toposort
from fnx.core.support.target import Target
from fnx.lower.analysis.workload import extent
from tests.lower.steps import AVX512, tiled_kernels

AVX2 = AVX512.replace(vector_bits=256, vector_registers=16)


def vectors_at_once(f: Any, shape: tuple[int, int], target: Target = AVX512) -> int:
    """Return how many vectors of columns the last kernel of f computes together."""
    *_, kernel = tiled_kernels(fnx.jit(f).lower(np.ones(shape, np.float32)).simplified, target)
    return max([extent(n) for n in toposort(kernel.src)
                if n.op is ops.RANGE and n.arg.kind == "UNROLL"], default=1)


@pytest.mark.parametrize("shape, vectors", [
    ((5000, 250), 16), ((1000, 96), 6), ((2000, 1000), 4), ((784, 1024), 8), ((100, 300), 4)])
def test_sums(shape: tuple[int, int], vectors: int) -> None:
    assert vectors_at_once(lambda x: x.sum(0), shape) == vectors


def test_long_code_and_few_registers_are_limits() -> None:
    assert vectors_at_once(lambda x: jnp.exp(x).sum(0), (5000, 250)) <= 4
    assert vectors_at_once(lambda x: x.sum(0), (5000, 250), AVX2) <= 8
    assert vectors_at_once(lambda x: x.max(0) - x.min(0), (784, 1024), AVX2) <= 4


def sigmoid(x: Any) -> Any:
    return 1 / (1 + jnp.exp(-x))


def cell(w: Any) -> Any:
    """A step of a recurrent net: long code after sums along columns."""
    return jnp.tanh((w[0, :, None] * w[1:]).sum(0) * 2 + w[0]) * (1 - sigmoid(w[1]))


@pytest.mark.parametrize("n, vectors", [(133, 9), (100, 7), (256, 16)])
def test_what_follows_the_sums_is_a_loop_over_their_vectors(n: int, vectors: int) -> None:
    """Before: fewer vectors, a copy of the epilogue for each. Expected: all vectors at once."""
    assert vectors_at_once(cell, (n + 1, n)) == vectors
    x = np.random.default_rng(0).standard_normal((n + 1, n)).astype(np.float32)
    with fnx.disable_jit():
        want = cell(jnp.asarray(x))
    np.testing.assert_allclose(fnx.jit(cell)(x), want, rtol=1e-4, atol=1e-5)


def recurrence(x: Any) -> Any:
    return fnx.lax.scan(lambda c, a: (jnp.tanh(c * 0.5 + a), c), x[0], x)[1]


@pytest.mark.parametrize("n, vectors", [(68, 5), (64, 4), (4096, 4), (20, 2)])
def test_chains_of_a_recurrence_run_together(n: int, vectors: int) -> None:
    """Before: one vector of lanes after the other, each waiting at every step. Expected: several in
    each step, as far as they fill blocks of as many."""
    assert vectors_at_once(recurrence, (50, n)) == vectors
    x = np.random.default_rng(0).standard_normal((50, n)).astype(np.float32)
    with fnx.disable_jit():
        want = recurrence(jnp.asarray(x))
    np.testing.assert_allclose(fnx.jit(recurrence)(x), want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shape", [(300, 96), (300, 250), (33, 1024)])
def test_values(shape: tuple[int, int]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for name in ("sum", "max", "argmin"):
        got = np.asarray(fnx.jit(lambda x, name=name: getattr(x, name)(0))(x))
        np.testing.assert_allclose(got, getattr(x, name)(0), rtol=1e-4, atol=1e-5)
