"""Methods of universal functions against NumPy's, on the same data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import ArgumentError, AxisError, ShapeError

NAMES = ("add", "multiply", "subtract", "maximum", "minimum", "bitwise_and", "bitwise_or",
         "bitwise_xor", "logical_and", "logical_or", "logical_xor", "logaddexp", "logaddexp2")


def data(name: str) -> Any:
    rng = np.random.default_rng(3)
    whole = rng.integers(-4, 5, (3, 4, 2)).astype(np.int32)
    return rng.normal(size=(3, 4, 2)).astype(np.float32) if name.startswith("loga") else whole


@pytest.mark.parametrize("name", NAMES)
def test_methods_agree_with_numpys(name: str) -> None:
    ours, theirs, x = getattr(jnp, name), getattr(np, name), data(name)
    starts = np.array([0, 2, 1], np.int32)

    def same(got: Any, want: Any) -> None:
        assert got.shape == np.shape(want)
        np.testing.assert_allclose(np.asarray(got).astype(float), np.asarray(want).astype(float),
                                   rtol=1e-5, atol=1e-5)

    for axis in (0, 1, -1):
        same(ours.reduce(x, axis), theirs.reduce(x, axis))
        same(ours.reduce(x, axis=axis, keepdims=True), theirs.reduce(x, axis, keepdims=True))
        same(ours.accumulate(x, axis), theirs.accumulate(x, axis))
        same(ours.reduceat(x, starts, axis % 2), theirs.reduceat(x, starts, axis % 2).astype(
            x.dtype))
    same(ours.outer(x[0], x[1, 0]), theirs.outer(x[0], x[1, 0]))
    assert (ours.nin, ours.nout) == (theirs.nin, theirs.nout)
    want = x[0].copy()
    index = (np.array([1, 1, 3]), np.array([0, 0, 1]))
    theirs.at(want, index, 2)
    got = ours.at(x[0], index, 2, inplace=False)  # the function's result dtype, as in JAX
    same(got, want.astype(got.dtype))


def test_initial_values_and_masks() -> None:
    x = data("add")
    mask = x > 0
    for name in ("add", "subtract", "bitwise_or", "maximum"):
        np.testing.assert_array_equal(
            getattr(jnp, name).reduce(x, 1, initial=7, where=mask),
            getattr(np, name).reduce(x, 1, initial=7, where=mask))
    assert jnp.bitwise_xor.reduce(x, None) == np.bitwise_xor.reduce(x.ravel())


def test_functions_of_users_are_folded_from_the_first_to_the_last() -> None:
    halved = jnp.frompyfunc(lambda a, b: a / 2 + b, 2, 1)
    x = jnp.asarray([4.0, 2.0, 1.0])
    assert halved.reduce(x) == 3.0 and isinstance(halved, jnp.ufunc)
    np.testing.assert_array_equal(halved.accumulate(x), [4.0, 4.0, 3.0])
    np.testing.assert_array_equal(halved(x[:, None], x), np.asarray(x)[:, None] / 2 + x)
    np.testing.assert_array_equal(halved.at(x, np.array([0, 0]), 1.0, inplace=False),
                                  [2.5, 2.0, 1.0])
    np.testing.assert_array_equal(fnx.grad(lambda y: halved.reduce(y))(x), [0.25, 0.5, 1.0])
    np.testing.assert_array_equal(jnp.negative.at(x, 1, inplace=False), [4.0, -2.0, 1.0])


def test_what_makes_no_sense_is_refused() -> None:
    x = jnp.ones((2, 3))
    for wrong, error in (
            (lambda: jnp.add.at(x, 0, 1.0), ArgumentError),
            (lambda: jnp.negative.reduce(x), ArgumentError),
            (lambda: jnp.subtract.reduce(x, where=x > 0), ArgumentError),
            (lambda: jnp.subtract.reduce(x[:0]), ShapeError),
            (lambda: jnp.add.accumulate(x, 2), AxisError),
            (lambda: jnp.bitwise_or.accumulate(x, None), ArgumentError),
            (lambda: jnp.add.reduceat(x, x), ShapeError),
            (lambda: jnp.add.reduce(x, out=x), ArgumentError),
            (lambda: jnp.frompyfunc(3, 1, 1), ArgumentError),
            (lambda: jnp.frompyfunc(abs, 1, 1)(x, x), ArgumentError)):
        with pytest.raises(error):
            wrong()
