"""SORT on the machine equals NumPy's stable sort, for rows sorted by rank and for longer ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.core.support.config import override
from fnx.lower.emit.sorting import MAX_RANKED

COMPILED = True
LENGTHS = st.one_of(st.integers(1, 40), st.integers(MAX_RANKED - 2, MAX_RANKED + 2))
SPECIAL = np.array([np.nan, -np.nan, 0.0, -0.0, np.inf, -np.inf, 1.0, 2.0**-149])


def values(data, rows, n, dtype):
    seed = np.random.default_rng(data.draw(st.integers(0, 1000)))
    x = seed.integers(-9, 9, (rows, n)).astype(dtype)
    if x.dtype.kind == "f":
        special = seed.choice(SPECIAL, x.shape).astype(dtype)
        x = np.where(seed.random(x.shape) < data.draw(st.sampled_from([0, 0.3, 1])), special, x)
    return x


@settings(deadline=None, max_examples=40)
@given(st.data(), st.integers(1, 5), LENGTHS,
       st.sampled_from(["f4", "f8", "i4", "i8", "u1", "i2", "f2", "?"]))
def test_rows_are_sorted_as_by_a_stable_sort(data, rows, n, dtype):
    x = values(data, rows, n, dtype)
    order = np.argsort(x, axis=-1, kind="stable")
    with fnx.enable_x64(True):
        ours, places = jnp.sort(jnp.asarray(x)), jnp.argsort(jnp.asarray(x))
    assert np.array_equal(np.asarray(places), order)
    assert np.asarray(ours).tobytes() == np.take_along_axis(x, order, -1).tobytes()


@settings(deadline=None, max_examples=20)
@given(st.data(), LENGTHS)
def test_later_keys_decide_among_equals(data, n):
    first, second = (values(data, 3, n, "i4") // 4 for _ in range(2))
    numbers = np.arange(3 * n, dtype="i4").reshape(3, n)
    _, _, ours = lax.sort(tuple(map(jnp.asarray, (first, second, numbers))), num_keys=2)
    for a, b, before, after in zip(first, second, numbers, np.asarray(ours)):
        assert np.array_equal(after, before[np.lexsort((b, a))])


@pytest.mark.parametrize("n", [7, MAX_RANKED, MAX_RANKED + 1])
def test_any_number_of_workers_gives_the_same_bits(n):
    x = np.random.default_rng(n).normal(size=(3000, n)).astype("f4")
    found = set()
    for workers in (1, 2, 3):
        with override(workers=workers):
            found.add(np.asarray(jnp.sort(jnp.asarray(x))).tobytes())
    assert found == {np.sort(x).tobytes()}


@pytest.mark.parametrize(("dtype", "n", "in_place"), [
    ("f4", 9, True), ("f8", 40, True), ("u1", 40, True), ("f4", MAX_RANKED, True),
    ("i4", MAX_RANKED + 1, True), ("i2", MAX_RANKED + 1, True), ("f4", MAX_RANKED + 1, False),
    ("u1", MAX_RANKED + 1, False)])
def test_rows_are_sorted_over_their_operand(dtype: str, n: int, in_place: bool) -> None:
    """Where a row is read before the first element of the result is written, one array is enough:
    the operand, or the result."""
    rng = np.random.default_rng(n)
    x = (rng.integers(-9, 9, (500, n)) / 2).astype(dtype)
    if x.dtype.kind == "f":
        x = np.where(rng.random(x.shape) < 0.3, rng.choice(SPECIAL, x.shape).astype(dtype), x)
    with fnx.enable_x64(True):
        f = fnx.jit(lambda x: jnp.sort(jnp.flip(x, 0)))
        arena = f.lower(x).arena
        ours = np.asarray(f(x))
    flipped = x[::-1]
    order = np.argsort(flipped, axis=-1, kind="stable")
    assert ours.tobytes() == np.take_along_axis(flipped, order, -1).tobytes()
    assert (arena < x.nbytes) == in_place
