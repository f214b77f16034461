"""Eager transforms know the values they run on: everything that reads one gets it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.core.support.errors import TracedValueError

X = np.array([3.0, 0.5, 2.0, 1.0], np.float32)
LARGE = X > 1

# name: (function of x, derivatives of its sum at X)
READ: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "x[mask]": (lambda x: x[x > 1] ** 2, 2 * X * LARGE),
    "x[mask] of a mask computed of masks": (lambda x: x[~(x > 1) & (x < 1)], [0, 1, 0, 0]),
    "x[mask] of a mean": (lambda x: x[x > x.mean()], [1, 0, 1, 0]),
    "at[mask].set": (lambda x: x.at[x > 1].set(0.0), ~LARGE),
    "at[mask].get": (lambda x: x.at[x > 1].get(), LARGE),
    "at[mask].multiply of as many": (
        lambda x: x.at[x > 1].multiply(jnp.asarray([2.0, 5.0])), [2, 1, 5, 1]),
    "mask among entries": (lambda x: jnp.stack([x, x])[[0], x > 2], [1, 0, 0, 0]),
    "0-d mask": (lambda x: x[(x > 1).any(), :2], [1, 1, 0, 0]),
    "nonzero": (lambda x: x[jnp.nonzero(x > 1)], LARGE),
    "where of one argument": (lambda x: x[jnp.where(x > 1)], LARGE),
    "argwhere": (lambda x: x[jnp.argwhere(x > 1)[:, 0]], LARGE),
    "extract": (lambda x: jnp.extract(x > 1, x), LARGE),
    "compress": (lambda x: jnp.compress(x > 1, x), LARGE),
    "delete": (lambda x: jnp.delete(x, x > 1), ~LARGE),
    "unique": (jnp.unique, [1, 1, 1, 1]),
    "if": (lambda x: x if x.sum() > 0 else -x, [1, 1, 1, 1]),
    "while": (lambda x: _halved(x), [0.25] * 4),
    "int() as a bound": (lambda x: x[:int(x[2])], [1, 1, 0, 0]),
    "range": (lambda x: sum(x[i] for i in range(int(x[0]))), [1, 1, 1, 0]),
    "sorted by value": (lambda x: sum(sorted(x, key=float)[:2]), [0, 1, 0, 1]),
    "a dict by value": (lambda x: {1: x, 2: -x}[int(x[2])], [-1] * 4),
    "assert": (lambda x: _asserted(x), [1] * 4)}


def _halved(x: Any) -> Any:
    while x.max() > 1:
        x = x / 2
    return x


def _asserted(x: Any) -> Any:
    assert (x > 0).all()
    return x


def _total(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: jnp.sum(f(x))


@pytest.mark.cases(3)
@pytest.mark.parametrize("name", READ)
def test_eager_transforms_give_values(name: str) -> None:
    f, slopes = READ[name]
    total, x = _total(f), jnp.asarray(X)
    np.testing.assert_allclose(fnx.grad(total)(x), slopes, rtol=1e-6)
    np.testing.assert_allclose(fnx.value_and_grad(total)(x)[1], slopes, rtol=1e-6)
    np.testing.assert_allclose(fnx.vjp(total, x)[1](1.0)[0], slopes, rtol=1e-6)
    along = jnp.asarray([1.0, 2.0, 3.0, 4.0])
    value, tangent = fnx.jvp(total, (x,), (along,))
    np.testing.assert_allclose(value, total(x), rtol=1e-6)
    np.testing.assert_allclose(tangent, np.dot(slopes, along), rtol=1e-6)
    np.testing.assert_allclose(fnx.linearize(total, x)[1](along), tangent, rtol=1e-6)
    twice = fnx.grad(lambda x: fnx.grad(_total(lambda x: f(x) ** 2))(x).sum())
    assert np.isfinite(twice(x)).all()


@pytest.mark.parametrize("name", ["x[mask]", "at[mask].set", "mask among entries", "0-d mask"])
@pytest.mark.parametrize("around", [
    lambda f: fnx.jit(f), lambda f: fnx.jit(fnx.grad(_total(f))), fnx.checkpoint,
    lambda f: lambda x: fnx.vmap(fnx.grad(_total(f)))(jnp.stack([x, x])),
    lambda f: lambda x: fnx.grad(_total(fnx.jit(f)))(x)],
    ids=["jit", "grad in jit", "checkpoint", "grad in vmap", "jit in grad"])
def test_where_no_value_is_known_masks_say_so(name: str, around: Any) -> None:
    with pytest.raises(TracedValueError, match="a bool mask with a concrete value"):
        around(READ[name][0])(jnp.asarray(X))


@pytest.mark.parametrize("entry", [[0, 2], (0, 2), [True, False, True]], ids=str)
def test_lists_in_an_index_are_constants(entry: Any) -> None:
    x = jnp.arange(12.0).reshape(3, 4)
    rows = jnp.asarray([0, 2])
    for f in (fnx.jit, lambda f: f):
        got = f(lambda x: x.at[:, 1].set(0)[entry, 1:])(x)
        np.testing.assert_array_equal(got, x.at[:, 1].set(0)[rows, 1:])
        slopes = f(fnx.grad(lambda x: (x[entry, ...] ** 2).sum()))(x)
        np.testing.assert_array_equal(slopes, jnp.zeros((3, 4)).at[rows].set(2 * x[rows]))


def test_masks_differ_from_call_to_call() -> None:
    slope = fnx.grad(lambda x: x[x > 1].sum())
    for x in (X, X[::-1], X - 1, X + 1):
        np.testing.assert_array_equal(slope(jnp.asarray(x)), x > 1)
