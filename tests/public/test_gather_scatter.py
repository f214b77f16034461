"""gather and scatter with dimension numbers: what is refused, and how often a function is
applied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, AxisError, DTypeError, ShapeError

X = np.arange(6, dtype=np.float32).reshape(3, 2)
ROWS = lax.GatherDimensionNumbers((1,), (0,), (0,))
PLACES = lax.ScatterDimensionNumbers((1,), (0,), (0,))
AT = np.array([[2], [0]])
ONES = np.ones((2, 2), np.float32)


@pytest.mark.parametrize(("call", "error", "said"), [
    (lambda: lax.gather(X, AT, ((1,), (0,)), (1, 2)), ArgumentError, "GatherDimension"),
    (lambda: lax.gather(X, AT, ROWS, (1, 3)), ShapeError, "within shape"),
    (lambda: lax.gather(X, AT, ROWS, (1,)), ShapeError, "2 slice_sizes"),
    (lambda: lax.gather(X, AT * 1.0, ROWS, (1, 2)), DTypeError, "integer indices"),
    (lambda: lax.gather(X, np.zeros((2, 2), int), ROWS, (1, 2)), ShapeError, "vectors of 1"),
    (lambda: lax.gather(X, AT, ROWS._replace(start_index_map=(5,)), (1, 2)), AxisError, "axis"),
    (lambda: lax.gather(X, AT, ROWS, (1, 2), mode="wrap"), ArgumentError, "mode"),
    (lambda: lax.scatter(X, AT, ONES[:1], PLACES), ShapeError, "updates with batch"),
    (lambda: lax.scatter(X, AT, ONES.astype(int), PLACES), DTypeError, "updates of float32"),
    (lambda: lax.scatter_add(X, AT, np.ones((2, 3), np.float32), PLACES), ShapeError, "within"),
])
def test_what_is_refused(call: Any, error: Any, said: str) -> None:
    with pytest.raises(error, match=said):
        call()


def test_a_function_applies_once_for_each_window() -> None:
    numbers = lax.ScatterDimensionNumbers((), (0,), (0,))
    at = np.array([[1], [1], [0], [9]])
    got = lax.scatter_apply(jnp.asarray([1.0, 2.0, 3.0]), at, lambda x: x * 10, numbers,
                            update_shape=(4,))
    np.testing.assert_array_equal(got, [10.0, 200.0, 3.0])
    once = lax.scatter_apply(jnp.asarray([1.0, 2.0, 3.0]), at[1:], lambda x: x * 10, numbers,
                             update_shape=(3,), unique_indices=True)
    np.testing.assert_array_equal(once, [10.0, 20.0, 3.0])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "uint32", "int32"])
def test_indices_of_any_type_count_over_an_axis_longer_than_it_has_numbers(dtype: str) -> None:
    x, at = np.arange(70000), np.array([0, 3, 100]).astype(dtype)
    np.testing.assert_array_equal(jnp.asarray(x)[jnp.asarray(at)], x[at])
    if dtype.startswith("int"):
        np.testing.assert_array_equal(jnp.asarray(x)[jnp.asarray(-at - 1)], x[-at - 1])
    written = jnp.asarray(x).at[jnp.asarray(at)].set(-7)
    np.testing.assert_array_equal(np.flatnonzero(np.asarray(written) == -7), at)
