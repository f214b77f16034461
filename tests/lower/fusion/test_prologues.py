"""Factors of contractions that take several strided loads an element get kernels of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp

Factor = Callable[[Any, Any], Any]


def _kernels(factor: Factor, columns: int, transposed: bool = False, rows: int = 400
             ) -> list[str]:
    """Return the kernels of a product whose values are right."""
    numbers = np.random.default_rng(0)
    x, y = (numbers.standard_normal((rows, 32)).astype("float32") for _ in range(2))
    w = numbers.standard_normal((columns, 32) if transposed else (32, columns)).astype("float32")

    def f(x: Any, y: Any, w: Any) -> Any:
        return factor(x, y) @ (w.T if transposed else w)
    np.testing.assert_allclose(fnx.jit(f)(x, y, w), f(*map(jnp.asarray, (x, y, w))), 2e-5, 2e-4)
    return [k.name for k in fnx.jit(f).lower(x, y, w).kernels]


def _stencil(x: Any, y: Any) -> Any:
    return jnp.roll(x, 1, 0) - 2 * x + jnp.roll(x, -1, 0)


@pytest.mark.parametrize("factor", [lambda x, y: x * y, _stencil], ids=["two", "rolled"])
def test_of_several_arrays(factor: Factor) -> None:
    """One kernel of elements, which reads the parts of concatenations, and the product."""
    names = _kernels(factor, 48)
    assert len(names) == 2 and names[0].startswith("map_") and names[1].startswith("contract_mul")


def test_what_takes_no_more_loads_stays_a_prologue() -> None:
    """Of one array and values of rows or columns; of columns, with lanes along them; of few
    columns, with lanes along the sum; of so few elements that a kernel costs more."""
    assert len(_kernels(lambda x, y: jnp.maximum(x, 0) * 0.5, 48)) == 1
    assert len(_kernels(lambda x, y: x * y[:1] + y[:, :1], 48)) == 1
    assert len(_kernels(lambda x, y: (x * y).T[:, :32], 48, rows=32)) == 1
    assert len(_kernels(lambda x, y: x * y, 4, transposed=True)) == 1
    assert len(_kernels(lambda x, y: x * y, 48, rows=8)) == 1


def test_rows_are_divided_by_their_norms_where_a_panel_is_packed() -> None:
    """The norms are in memory, the quotients are not. Left of a product, quotients would be read
    one by one, for each block of columns again."""
    def of_cosines(q: Any, x: Any) -> Any:
        return q @ (x / jnp.linalg.norm(x, axis=-1, keepdims=True)).T
    rng = np.random.default_rng(0)
    q, x = (rng.standard_normal((n, 64)).astype("float32") for n in (32, 3000))
    assert fnx.jit(of_cosines).lower(q, x).arena < x.nbytes // 16
    np.testing.assert_allclose(fnx.jit(of_cosines)(q, x),
                               q @ (x / np.linalg.norm(x, axis=1, keepdims=True)).T, 1e-4, 1e-5)
    left = fnx.jit(lambda q, x: (x / jnp.linalg.norm(x, axis=-1, keepdims=True)) @ q.T)
    assert left.lower(q, x).arena >= x.nbytes


def test_a_covariance_of_columns_reads_the_centered_array_along_its_rows() -> None:
    """It is written once, as the array lies in memory: nothing is transposed or packed."""
    x = np.random.default_rng(0).standard_normal((5000, 200)).astype("float32")
    f = fnx.jit(lambda x: jnp.cov(x, rowvar=False))
    assert f.lower(x).arena < 1.5 * x.nbytes
    np.testing.assert_allclose(f(x), np.cov(x, rowvar=False), rtol=1e-3, atol=1e-4)
