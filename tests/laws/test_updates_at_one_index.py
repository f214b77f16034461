"""Updates that all hit one index are all applied, however the compiler proves that it is one
index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.config import override

PLACES: dict[str, Callable[[Any], Any]] = {
    "data": lambda i: i,
    "clipped": lambda i: jnp.clip(i, 0, 0),
    "below": lambda i: jnp.minimum(jnp.abs(i), 0),
    "times": lambda i: i * 0,
    "masked": lambda i: i & 0,
    "remainder": lambda i: i % 1,
    "divided": lambda i: jnp.abs(i) // 100,
}
VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "number": lambda x, j: 3.0,
    "scalar": lambda x, j: x.sum() * 0 + 3.0,
    "read": lambda x, j: x[j] * 0 + 3.0,
    "rows": lambda x, j: j.astype("float32") * 0 + 3.0,
}
MODES = [None, "clip", "drop", "promise_in_bounds"]


@pytest.mark.cases(6)
@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("where", PLACES)
def test_each_counts(where: str, value: str, size: int) -> None:
    x, i = np.full(size, 2.0, np.float32), np.zeros(5, np.int32)

    def updated(x: Any, i: Any) -> Any:
        at, v = PLACES[where](i), VALUES[value](x, i)
        return [r for mode in MODES
                for r in (x.at[at].add(v, mode=mode), x.at[at].multiply(v, mode=mode))]

    want = [np.r_[n, x[1:]] for n in (17.0, 486.0)] * len(MODES)
    for device in ("cpu", "interp"):
        with override(device=device):
            for run in (fnx.jit(updated), updated):
                for got, expected in zip(run(jnp.asarray(x), jnp.asarray(i)), want, strict=True):
                    np.testing.assert_array_equal(got, expected)


def test_in_several_axes_of_one_element() -> None:
    """Rows of a matrix with an axis of length 1, and a histogram with one bin."""
    x, i, j = jnp.zeros((1, 3)), jnp.zeros(4, "int32"), jnp.array([0, 2, 2, 1])
    np.testing.assert_array_equal(fnx.jit(lambda x, i: x.at[i].add(1.0, mode="clip"))(x, i),
                                  np.full((1, 3), 4))
    np.testing.assert_array_equal(
        fnx.jit(lambda x, i, j: x.at[i, j].add(1.0, mode="clip"))(x, i, j), [[1, 1, 2]])
    np.testing.assert_array_equal(
        fnx.jit(lambda x, i: x.at[i, i].add(1.0, mode="clip"))(jnp.zeros((1, 1)), i), [[4]])
    np.testing.assert_array_equal(fnx.jit(lambda i: jnp.bincount(i, length=1))(i), [4])
    np.testing.assert_array_equal(
        fnx.jit(lambda i: fnx.ops.segment_sum(jnp.ones(4), i, 1))(i), [4])
