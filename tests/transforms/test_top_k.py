"""top_k: the answer is that of a stable sort, in every bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx
import fnx.lax as lax
import fnx.numpy as jnp

SPECIAL = {"few": [0.0, 1.0, -0.0], "special": [np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0]}


def drawn(values: str, dtype: str, shape: tuple[int, ...], seed: int) -> Any:
    rng = np.random.default_rng(seed)
    if dtype.startswith("float"):
        x = rng.choice(SPECIAL[values], shape) if values in SPECIAL else rng.standard_normal(shape)
        return x.astype(dtype)
    bounds = np.iinfo(dtype)
    low, high = (bounds.min, bounds.min + 3) if values in SPECIAL else (bounds.min, bounds.max)
    return rng.integers(low, high, shape, dtype, endpoint=True)


def largest(x: Any, k: int) -> Any:
    """Return the indices by a stable sort of the reversed row: NaNs are larger than numbers."""
    keys = np.where(x == 0, np.zeros_like(x), x)
    order = np.argsort(keys[..., ::-1], -1, kind="stable")[..., ::-1][..., :k]
    return x.shape[-1] - 1 - order


@settings(max_examples=60, deadline=None)
@given(values=st.sampled_from(["many", "few", "special"]), n=st.integers(30, 700),
       k=st.integers(1, 20), dtype=st.sampled_from(["float32", "float16", "int32", "uint8"]),
       seed=st.integers(0, 999))
def test_a_selection_gives_what_a_stable_sort_gives(values: str, n: int, k: int, dtype: str,
                                                    seed: int) -> None:
    x = drawn(values, dtype, (3, n), seed)
    got, index = lax.top_k(x, k)
    np.testing.assert_array_equal(index, largest(x, k))
    want = np.take_along_axis(x, largest(x, k), -1)
    assert np.asarray(got).tobytes() == want.tobytes()


@pytest.mark.parametrize("n, k", [(5000, 7), (4999, 2), (8192, 40)])
def test_long_rows(n: int, k: int) -> None:
    x = drawn("few", "float32", (4, n), n)
    for f in (lax.top_k, fnx.jit(lax.top_k, static_argnums=1)):
        np.testing.assert_array_equal(f(x, k)[1], largest(x, k))


def test_axes_and_batches() -> None:
    x = drawn("many", "float32", (2, 300, 3), 0)
    values, index = out = lax.top_k(x, 4, axis=1)
    assert type(out) is list  # as in JAX
    np.testing.assert_array_equal(np.moveaxis(index, 1, -1), largest(np.moveaxis(x, 1, -1), 4))
    np.testing.assert_array_equal(values, np.take_along_axis(x, np.asarray(index), 1))
    mapped = fnx.vmap(lambda v: lax.top_k(v, 4)[1], in_axes=2)(x)
    np.testing.assert_array_equal(mapped, [largest(x[..., i], 4) for i in range(3)])


def test_derivatives_go_to_the_elements_that_are_taken() -> None:
    x = drawn("many", "float32", (2, 300), 1)
    slope = fnx.jit(fnx.grad(lambda x: (lax.top_k(x, 3)[0] * jnp.arange(1.0, 4)).sum()))(x)
    want = np.zeros_like(x)
    np.put_along_axis(want, largest(x, 3), np.arange(1, 4, dtype="f4"), -1)
    np.testing.assert_array_equal(slope, want)
    _, tangent = fnx.jvp(lambda x: lax.top_k(x, 3)[0], (x,), (x * 2,))
    np.testing.assert_array_equal(tangent, np.take_along_axis(x * 2, largest(x, 3), -1))


def test_rows_of_any_shape_are_selected_from_by_one_kernel() -> None:
    selections = set()
    for shape, k in (((2, 8000), 8), ((500, 64), 3), ((40, 700), 60)):
        kernel, = fnx.jit(lambda x: lax.top_k(x, k)).lower(jnp.ones(shape)).kernels
        selections.add(kernel.node)
    selection, = selections
    assert selection.arg.selects == "largest"
