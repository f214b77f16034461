"""Steps of loops that read a carry before, between and after updates of it: values and gradients.

The reference is the graph, node by node: launches of any device share the plan of memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.levels import interp

N = 5
READS = {
    "column": lambda a, k: a[:, k], "row": lambda a, k: a[k], "first": lambda a, k: a[0],
    "sum": lambda a, k: a.sum(1), "diagonal": lambda a, k: jnp.diagonal(a)}
UPDATES = {
    "set column": lambda a, k, v: a.at[:, k].set(v), "set row": lambda a, k, v: a.at[k].set(v),
    "add column": lambda a, k, v: a.at[:, k].add(v), "add row": lambda a, k, v: a.at[k].add(v),
    "outer": lambda a, k, v: a - 0.1 * v[:, None] * v, "scale": lambda a, k, v: a * v[:, None]}


@st.composite
def steps(draw: Any) -> list[tuple[str, str, int]]:
    """Updates, each by what was read of the carry at one of the earlier versions of it."""
    return [(draw(st.sampled_from([*UPDATES])), draw(st.sampled_from([*READS])),
             draw(st.integers(0, i))) for i in range(draw(st.integers(1, 4)))]


def step_of(drawn: list[tuple[str, str, int]]) -> Any:
    def step(k: Any, a: Any) -> Any:
        versions = [a]
        for update, read, version in drawn:
            value = 0.5 * READS[read](versions[version], k)
            versions.append(UPDATES[update](versions[-1], k, value))
        return versions[-1]
    return step


def by_nodes(f: Any, x: Any) -> Any:
    fn = fnx.make_jaxpr(f)(x).function
    return interp.apply(fn, [np.asarray(x)])


@pytest.mark.cases(4)
@settings(max_examples=25, deadline=None)
@given(drawn=steps(), length=st.integers(1, 3), seed=st.integers(0, 99))
def test_values_and_gradients(drawn: list[tuple[str, str, int]], length: int, seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((N, N)).astype(np.float32)
    step = step_of(drawn)

    def run(a: Any) -> Any:
        return lax.fori_loop(0, length, step, a)

    def loss(a: Any) -> Any:
        return jnp.sin(run(a)).sum()
    for f in (run, fnx.grad(loss), lambda a: fnx.jvp(run, (a,), (a * 0.5,))[1]):
        want, = by_nodes(f, jnp.asarray(x))
        np.testing.assert_allclose(fnx.jit(f)(x), want, rtol=1e-4, atol=1e-4)


def test_a_carry_that_is_read_after_its_copy_is_updated() -> None:
    """LU without pivots: the cotangent's column is read after it was set to 0 in the copy."""
    x = np.random.default_rng(0).random((N, N), np.float32) + 3 * np.eye(N, dtype=np.float32)

    def step(k: Any, a: Any) -> Any:
        column = a[:, k]
        return (a - 0.1 * column[:, None] * a[k]).at[:, k].set(column * 2)
    f = fnx.grad(lambda a: jnp.sin(lax.fori_loop(0, 3, step, a)).sum())
    want, = by_nodes(f, jnp.asarray(x))
    np.testing.assert_allclose(fnx.jit(f)(x), want, rtol=1e-5, atol=1e-5)
