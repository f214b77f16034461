"""A sum of a few terms has the same bits in whatever kernel it is computed: its terms are added in
order, products by multiply-add where the machine has it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.support.config import override
from fnx.lower.analysis.workload import ORDERED_TERMS
from fnx.scipy.special import digamma


def sums(x: Any, w: Any) -> Any:
    return (x * w).sum(1)


def in_scan(x: Any, w: Any) -> Any:
    return lax.scan(lambda c, row: (c, (row[0] * row[1]).sum()), 0, (x, w))[1]


def in_carry(x: Any, w: Any) -> Any:
    """The rows as the carry of a loop, so that they are values of one kernel."""
    return lax.fori_loop(0, 1, lambda i, c: (c[0], c[1], sums(c[0], c[1])),
                         (x, w, jnp.zeros_like(x[:, 0])))[2]


def with_neighbors(x: Any, w: Any) -> Any:
    return jnp.stack([sums(x, w), sums(x, w) * 2, x.max(1)])[0]


def with_derivative(x: Any, w: Any) -> Any:
    value, pullback = fnx.vjp(sums, x, w)
    return value + 0 * pullback(value)[0].sum()


def columns(x: Any, w: Any) -> Any:
    return (x.T.copy() * w.T.copy()).sum(0)


def product(x: Any, w: Any) -> Any:
    return jnp.einsum("nk,nk->n", x, w)


def masked(x: Any, w: Any) -> Any:
    return jnp.where(jnp.arange(x.shape[1] + 1) > 0, padded(x) * padded(w), 0).sum(1)


def masked_in_carry(x: Any, w: Any) -> Any:
    return lax.fori_loop(0, 1, lambda i, c: (c[0], c[1], masked(c[0], c[1])),
                         (x, w, jnp.zeros_like(x[:, 0])))[2]


def padded(x: Any) -> Any:
    return jnp.pad(x, ((0, 0), (1, 0)), constant_values=1)


def exact_chain(x: Any, w: Any) -> list[float]:
    """Return the sums of products of float64, each step rounded once."""
    totals = []
    for row, weights in zip(x.tolist(), w.tolist()):
        total = 0.0
        for a, b in zip(row, weights):
            total = float(Fraction(a) * Fraction(b) + Fraction(total))
        totals.append(total)
    return totals


@given(st.integers(1, ORDERED_TERMS), st.sampled_from([1, 2, 3, 4, 7, 16, 33]), st.integers(0, 99))
def test_short_sums_have_the_bits_of_a_chain(terms: int, n: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    x, w = random.normal(size=(2, n, terms))
    operands, want = (jnp.asarray(x, jnp.float64), jnp.asarray(w, jnp.float64)), exact_chain(x, w)
    for f in (sums, in_scan, in_carry, with_neighbors, with_derivative, columns, product,
              *(() if terms == ORDERED_TERMS else (masked, masked_in_carry))):
        assert fnx.jit(f)(*operands).tolist() == want, f.__name__


@pytest.mark.cases(4)
@pytest.mark.parametrize("disabled", ["", "fuse_loop_into_kernel", "all"])
def test_a_step_has_the_bits_of_its_linearization(disabled: str) -> None:
    """A Runge-Kutta step whose stages are weighed by data, as solvers with tables compute it."""
    table = jnp.asarray(np.tril(np.random.default_rng(1).normal(size=(7, 7)), -1), jnp.float32)

    def step(y: Any, scale: Any) -> Any:
        def stage(i: Any, slopes: Any) -> Any:
            z = y + jnp.tensordot(table[i], slopes, axes=1)
            return slopes.at[i].set(jnp.stack([z[0] - z[0] * z[1], z[0] * z[1] - z[1]]) * scale)
        return lax.fori_loop(0, 7, stage, jnp.zeros((7, 2), jnp.float32))

    def linearized(y: Any, scale: Any) -> Any:
        value, pullback = fnx.vjp(step, y, scale)
        return value, pullback(value)

    with override(unfused=disabled):
        plain, both = fnx.jit(step), fnx.jit(linearized)
        random = np.random.default_rng(0)
        for _ in range(20):
            y = jnp.asarray(random.uniform(1, 12, 2), jnp.float32)
            assert (plain(y, 0.1) == both(y, 0.1)[0]).all()


def test_long_terms_are_a_loop() -> None:
    x = np.ones((8, 64), np.float32)
    texts = [fnx.jit(lambda x, f=f: jnp.sum(f(x), 0)).lower(x).text("schedules")
             for f in (jnp.square, digamma)]
    assert ["unroll" in text for text in texts] == [True, False]
