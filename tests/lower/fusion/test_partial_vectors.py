"""Groups are cut where lanes would be idle, or far from each other, if that costs more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.config import override


def kernels(f: Callable[..., Any], *shapes: tuple[int, ...]) -> int:
    """Return how many kernels a program has, whose values are those of the interpreter."""
    draw = np.random.default_rng(0)
    xs = [draw.standard_normal(shape).astype(np.float32) for shape in shapes]
    got = fnx.jit(f)(*xs)
    with override(device="interp"):
        np.testing.assert_allclose(np.asarray(got), np.asarray(fnx.jit(f)(*xs)), 1e-4, 1e-4)
    return len(list(fnx.jit(f).lower(*xs).kernels))


@pytest.mark.parametrize("shape", [(2000, 4), (7, 40, 40, 2), (64, 64, 3)])
def test_sums_of_few_long_columns_have_a_kernel(shape: tuple[int, ...]) -> None:
    """Beside them, lanes of the results would be columns apart."""
    axes = tuple(range(len(shape) - 1))
    assert kernels(lambda x: x - x.mean(axes, keepdims=True), shape) == 2


@pytest.mark.parametrize("shape", [(100, 4), (4000, 16), (500, 64)])
def test_short_or_many_columns_have_none(shape: tuple[int, ...]) -> None:
    assert kernels(lambda x: x - x.mean(0), shape) == 1


@pytest.mark.parametrize("columns", [10, 17])
def test_expensive_work_is_one_row_without_the_scale_of_each_row(columns: int) -> None:
    assert kernels(lambda x, s: jnp.tanh(x * s[:, None]), (4000, columns), (4000,)) == 2
    assert kernels(lambda x, s: jnp.tanh(x) * s[:, None], (4000, columns), (4000,)) == 2
    assert kernels(lambda x, s: abs(x * s[:, None]), (4000, columns), (4000,)) == 1
    assert kernels(lambda x, s: jnp.tanh(x * s[:, None]), (40, columns), (40,)) == 1
    assert kernels(lambda x, b: jnp.tanh(x + b), (4000, columns), (columns,)) == 1


def test_expensive_work_beside_a_product_of_few_columns_has_a_kernel() -> None:
    def head(x: Any, w: Any, y: Any) -> Any:
        return x @ w + jnp.log1p(jnp.exp(y))

    def plain(x: Any, w: Any, y: Any) -> Any:
        return x @ w + y

    for columns, more in ((4, 1), (64, 0)):
        shapes = (512, 50), (50, columns), (512, columns)
        assert kernels(head, *shapes) == kernels(plain, *shapes) + more


def test_expensive_work_is_not_computed_beside_sums_of_columns_that_leave_lanes_idle() -> None:
    """50 columns are 4 vectors of 16 lanes, of which 14 are idle; all elements are 3,200 full ones.
    64 columns leave none idle; the sums of other axes keep the rows apart all the same."""
    for columns, count in ((50, 2), (64, 1)):
        assert kernels(lambda x: jnp.sin(x / (x.max(0) + 1)), (500, columns)) == count
    assert kernels(lambda x: jnp.sin(x / (x.max(1, keepdims=True) + 1)), (17, 256, 4, 5)) == 1


def test_a_value_of_each_column_is_not_written_by_a_map() -> None:
    def f(x: Any, s: Any) -> Any:
        t = s[None] * 3 + 1
        y = jnp.sin(x / t)
        return y, t, jnp.cos(y.sum(0)) * t[0]

    for width in (50, 100):
        x, s = (np.ones(shape, np.float32) for shape in ((1024, width), (width,)))
        for kernel in fnx.jit(f).lower(x, s).kernels:
            assert len({n.shape for n in kernel.node.src}) == 1


@pytest.mark.parametrize("columns", [17, 50])
def test_expensive_work_is_not_computed_in_rows_that_leave_lanes_idle(columns: int) -> None:
    def centered(x: Any, axis: int) -> Any:
        return jnp.sin(x - x.mean(axis, keepdims=True))

    assert kernels(lambda x: centered(x, 1), (2000, columns)) == 2
    assert kernels(lambda x: abs(centered(x, 1)), (20, columns)) == 1
    assert kernels(lambda x: abs(x - x.mean(1, keepdims=True)), (2000, columns)) == 1
    assert kernels(lambda x: centered(x, 1), (2000, 64)) == 1
    assert kernels(lambda x: jnp.sin(x.sum() - x[0, 0]), (20, columns)) == 1, "of one element"
