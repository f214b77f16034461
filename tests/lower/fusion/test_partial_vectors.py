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
