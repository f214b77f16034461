"""Softmax and norms over any axes are one kernel, as over the last; their gradients are few."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import fnx
import fnx.numpy as jnp
from fnx.core.array.array import Array
from fnx.core.support.config import override
from fnx.lower.tensor.split_reduction import MIN_WORK

COMPILED = True  # SIMD lanes along columns, and their stages

Axes = tuple[int, ...]
f32 = np.float32


def layer_norm(x: Array, axes: Axes) -> Array:
    d = x - jnp.mean(x, axis=axes, keepdims=True)
    return d / jnp.sqrt(jnp.mean(d * d, axis=axes, keepdims=True) + 1e-5)


def masked(x: Array, axes: Axes) -> Array:
    where = jnp.arange(x.size).reshape(x.shape) % 5 != 2
    return fnx.nn.softmax(x, axis=axes, where=where)


ROWS: dict[str, Callable[[Array, Axes], Array]] = {
    "softmax": lambda x, axes: fnx.nn.softmax(x, axis=axes),
    "log_softmax": lambda x, axes: fnx.nn.log_softmax(x, axis=axes),
    "logsumexp": lambda x, axes: fnx.nn.logsumexp(x, axis=axes),
    "layer norm": layer_norm,
    "masked softmax": masked,
}


def gradient(f: Callable[[Array, Axes], Array]) -> Callable[[Array, Axes], Array]:
    return lambda x, axes: fnx.grad(lambda x: jnp.sum(jnp.sin(f(x, axes))))(x)


@st.composite
def shapes_and_axes(draw: st.DrawFn) -> tuple[Axes, Axes]:
    shape = tuple(draw(st.lists(st.sampled_from([2, 3, 5, 7, 16, 19, 40]), min_size=2,
                                max_size=4)))
    axes = draw(st.sets(st.sampled_from(range(len(shape))), min_size=1, max_size=len(shape) - 1))
    assume(math.prod(shape) < MIN_WORK)  # otherwise long sums with few results are split
    return shape, tuple(sorted(axes))


def most_kernels(shape: Axes, axes: Axes, name: str, grad: bool = False) -> int:
    """Return how many kernels it may take. The sums of fewer columns than lanes have kernels of
    their own, as lanes would be columns apart; so have expensive scalars of short rows, which are
    computed in all lanes, and masks made of positions and what they mask, where that is cheaper."""
    last = next((i for i in reversed(range(len(shape))) if i in axes), -1)
    if 1 < math.prod(shape[last + 1:]) < 16:
        return 8
    if name == "masked softmax":
        return 6
    return 3 if grad else 2 if last == len(shape) - 1 and shape[last] < 16 else 1


def whole(f: Callable[[Array, Axes], Array], x: np.ndarray[Any, Any], axes: Axes
          ) -> tuple[np.ndarray[Any, Any], int]:
    """Return the value, and how many kernels computed it."""
    jitted = fnx.jit(lambda x: f(x, axes))
    return np.asarray(jitted(jnp.asarray(x))), len(list(jitted.lower(jnp.asarray(x)).kernels))


@settings(max_examples=40)
@given(shapes_and_axes(), st.sampled_from(sorted(ROWS)), st.booleans(), st.integers(0, 99))
def test_over_any_axes_is_few_kernels(case: tuple[Axes, Axes], name: str, grad: bool, seed: int
                                     ) -> None:
    shape, axes = case
    x = np.random.default_rng(seed).standard_normal(shape).astype(f32)
    f = gradient(ROWS[name]) if grad else ROWS[name]
    got, kernels = whole(f, x, axes)
    with override(device="interp"):
        want = np.asarray(f(jnp.asarray(x.astype("float64")), axes))
    assert kernels <= most_kernels(shape, axes, name, grad)
    # A deviation near 0 is amplified by up to 1 / sqrt(1e-5).
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-3 if grad else 1e-4)


@settings(max_examples=15)
@given(shapes_and_axes(), st.sampled_from(sorted(ROWS)), st.sampled_from(
    ["float16", "bfloat16", "float64"]))
@example(((7, 40, 40, 2), (0, 1, 2)), "layer norm", "float16")  # a chain of 11,200 across rows
@example(((7, 19, 16), (0, 1)), "masked softmax", "float16")  # lanes across rows of 133
def test_of_any_float(case: tuple[Axes, Axes], name: str, dtype: str) -> None:
    shape, axes = case
    x = np.random.default_rng(7).standard_normal(shape).astype(f32)

    def f(x: Array, axes: Axes) -> Array:
        return ROWS[name](x.astype(dtype), axes).astype("float64")

    got, kernels = whole(f, x, axes)
    with override(device="interp"):
        want = np.asarray(f(jnp.asarray(x), axes))
    assert kernels <= most_kernels(shape, axes, name)
    near = {"float16": 4e-3, "bfloat16": 3e-2, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(got, want, rtol=near, atol=near)


@settings(max_examples=10)
@given(shapes_and_axes(), st.sampled_from(sorted(ROWS)))
def test_of_lengths_that_are_arguments(case: tuple[Axes, Axes], name: str) -> None:
    """Eager calls share kernels between shapes."""
    shape, axes = case
    x = np.random.default_rng(3).standard_normal(shape).astype(f32)
    got = np.asarray(ROWS[name](jnp.asarray(x), axes))
    np.testing.assert_allclose(got, whole(ROWS[name], x, axes)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("shape", "axis"), [((300, 200), 0), ((40, 90, 70), 1), ((200, 3), 0),
                                             ((6000, 80), 0), ((50, 70, 5), 1)])
def test_columns_that_workers_share(shape: Axes, axis: int) -> None:
    """Long columns, blocks of columns, and columns narrower than a vector."""
    x = np.random.default_rng(2).standard_normal(shape).astype(f32)
    got, _ = whole(ROWS["softmax"], x, (axis,))
    e = np.exp(x.astype("float64") - x.max(axis, keepdims=True))
    np.testing.assert_allclose(got, e / e.sum(axis, keepdims=True), rtol=3e-6)


def test_two_statistics_of_which_none_is_inside_the_other_are_two_kernels() -> None:
    def both(x: Array, axes: Axes) -> Array:
        return x - jnp.mean(x, axis=0, keepdims=True) - jnp.mean(x, axis=1, keepdims=True)

    x = np.random.default_rng(1).standard_normal((30, 40)).astype(f32)
    got, kernels = whole(both, x, ())
    assert kernels == 2
    np.testing.assert_allclose(got, x - x.mean(0) - x.mean(1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("name", [n for n in ROWS if n != "logsumexp"])
@pytest.mark.parametrize("n", [1, 5, 700, 8192])
def test_a_small_array_is_one_row(name: str, n: int) -> None:
    x = np.random.default_rng(n).standard_normal(n).astype(f32)
    got, kernels = whole(ROWS[name], x, (0,))
    with override(device="interp"):
        want = np.asarray(ROWS[name](jnp.asarray(x.astype("float64")), (0,)))
    assert kernels == 1
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6)


def test_statistics_are_results_too() -> None:
    def norm(x: Array) -> tuple[Array, Array]:
        mean = jnp.mean(x, axis=1, keepdims=True)
        return x - mean, mean

    x = np.random.default_rng(1).standard_normal((6, 30, 40)).astype(f32)
    jitted = fnx.jit(norm)
    centered, mean = map(np.asarray, jitted(jnp.asarray(x)))
    assert len(list(jitted.lower(jnp.asarray(x)).kernels)) == 1
    np.testing.assert_allclose(mean, x.mean(1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(centered, x - mean, atol=1e-6)
