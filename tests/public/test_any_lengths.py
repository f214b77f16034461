"""Eager calls with many shapes in one process share kernels, and each result matches its shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx.numpy as jnp
from fnx import lax
from fnx.core.ir import dtypes
from fnx.core.ir.cache import clear_caches
from tests.helpers import new_kernels

COMPILED = True  # lengths are arguments of compiled kernels
LENGTHS = (0, 1, 1, 2, 3, 4, 5, 5, 8, 8, 16, 17, 33)


class Draw:
    """Random shapes, arrays and indices."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def number(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high))

    def array(self, *shape: int) -> Any:
        t = self.rng.choice(["f4", "i4", "u1", "f2"])
        return (10 * self.rng.standard_normal(shape)).astype("i2").astype(t)

    def shape(self, least: int = 1) -> tuple[int, ...]:
        return tuple(int(n) for n in self.rng.choice(LENGTHS, self.number(least, 4)))


def parts(draw: Draw) -> tuple[Any, list[Any]]:
    """Arrays that agree in all axes but one; often with as many rows as columns, so that lengths
    coincide."""
    shape = draw.shape()
    axis = draw.number(0, len(shape))
    lengths = draw.rng.choice([*shape, *LENGTHS], draw.number(1, 4))
    kind = draw.array(1).dtype
    return axis, [draw.array(*shape[:axis], int(n), *shape[axis + 1:]).astype(kind)
                  for n in lengths]


def concatenate(np_: Any, draw: Draw) -> Any:
    axis, xs = parts(draw)
    return np_.concatenate([np_.asarray(x) for x in xs], axis)


def stack(np_: Any, draw: Draw) -> Any:
    x = draw.array(*draw.shape())
    return np_.stack([np_.asarray(x), np_.asarray(x)[..., ::-1]], draw.number(0, x.ndim + 1))


def cut(np_: Any, draw: Draw) -> Any:
    x = draw.array(*draw.shape())
    where = tuple([slice(draw.number(-n, n + 1), draw.number(-n, n + 1),
                         int(draw.rng.choice([1, 1, 2, 3, -1, -2]))) for n in x.shape])
    return np_.asarray(x)[where]


def pad(np_: Any, draw: Draw) -> Any:
    x = draw.array(*draw.shape())
    widths = [(draw.number(0, 9), draw.number(0, 9)) for _ in x.shape]
    modes = ["constant", "edge", "wrap", "reflect", "symmetric"]
    mode = str(draw.rng.choice(modes)) if x.size else "constant"
    return np_.pad(np_.asarray(x), widths, mode=mode)


def rotate(np_: Any, draw: Draw) -> Any:
    x = draw.array(*draw.shape())
    return np_.roll(np_.asarray(x), draw.number(-9, 9), draw.number(0, x.ndim))


def choose(np_: Any, draw: Draw) -> Any:
    x = draw.array(*draw.shape())
    return np_.where(np_.asarray(x) > draw.number(0, 9), np_.asarray(x), np_.asarray(x[..., :1]))


def turn(np_: Any, draw: Draw) -> Any:
    x = draw.array(*draw.shape())
    order = tuple(int(i) for i in draw.rng.permutation(x.ndim))
    return np_.transpose(np_.asarray(x), order) + np_.asarray(x.dtype.type(draw.number(0, 9)))


def repeat(np_: Any, draw: Draw) -> Any:
    x = draw.array(*draw.shape())
    return np_.tile(np_.asarray(x), tuple([draw.number(0, 4) for _ in x.shape]))


def accumulate(np_: Any, draw: Draw) -> Any:
    x = draw.array(*draw.shape()).astype("i4")
    return np_.cumsum(np_.asarray(x), draw.number(0, x.ndim)).astype("i4")


@pytest.mark.cases(1)
@pytest.mark.parametrize("f", [concatenate, stack, cut, pad, rotate, choose, turn, repeat,
                               accumulate])
def test_each_shape_is_computed_as_its_own(f: Callable[[Any, Draw], Any]) -> None:
    for seed in range(60):
        got, want = np.asarray(f(jnp, Draw(seed))), f(np, Draw(seed))
        assert got.shape == want.shape, seed
        np.testing.assert_array_equal(got, want, str(seed))


def _sorted(x: Any) -> Any:
    return jnp.sort(x.ravel())


SHARED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "x.T": (lambda x: x.T, lambda x: x.T),
    "x @ x.T": (lambda x: (x @ x.T).astype("int32"), lambda x: x.astype("i4") @ x.T.astype("i4")),
    "cumsum, axis 0": (lambda x: jnp.cumsum(x, 0), lambda x: np.cumsum(x, 0, "f4")),
    "cumsum, axis 1": (lambda x: jnp.cumsum(x, 1), lambda x: np.cumsum(x, 1, "f4")),
    "cummax": (lambda x: lax.cummax(x, 1, reverse=True),
               lambda x: np.maximum.accumulate(x[:, ::-1], 1)[:, ::-1]),
    "sort": (jnp.sort, np.sort),
    "sort, axis 0": (lambda x: jnp.sort(x, 0), lambda x: np.sort(x, 0)),
    "argsort": (jnp.argsort, lambda x: np.argsort(x, kind="stable")),
    "median": (lambda x: jnp.median(x, 1), lambda x: np.median(x, 1)),
    "diagonal": (jnp.diagonal, np.diagonal),
    "diag above": (lambda x: jnp.diag(x, 1), lambda x: np.diag(x, 1)),
    "trace": (jnp.trace, np.trace),
    "searchsorted": (lambda x: jnp.searchsorted(_sorted(x), x[0]),
                     lambda x: np.searchsorted(np.sort(x.ravel()), x[0])),
    "scan": (lambda x: lax.scan(lambda c, row: (c + row, None), x[0] * 0, x)[0],
             lambda x: x.sum(0)),
    "fori_loop": (lambda x: lax.fori_loop(0, len(x), lambda i, c: c + 2, x),
                  lambda x: x + 2 * len(x)),
}


@pytest.mark.cases(1)
@pytest.mark.parametrize("name", SHARED)
def test_shapes_share_kernels(name: str) -> None:
    """Forty shapes of one function need at most a few kernels (products: a few tiles)."""
    f, want = SHARED[name]
    rng = np.random.default_rng(1)
    clear_caches()
    before = new_kernels()
    for _ in range(40):
        x = rng.integers(-99, 99, rng.integers(2, 200, 2)).astype("f4")
        np.testing.assert_array_equal(np.asarray(f(jnp.asarray(x))), want(x), str(x.shape))
    assert new_kernels() - before <= (20 if "@" in name else 8)


@pytest.mark.cases(12)
@pytest.mark.parametrize("kind", [t.name for t in dtypes.USER if t.bits < 64])
def test_numbers_of_any_dtype_are_arguments(kind: str) -> None:
    x = jnp.asarray([0, 1, 1, 0]).astype(kind)
    for number in (1, 2, 3, 5):  # eager calls share one kernel: the number is its argument
        got = jnp.where(jnp.asarray([True, False, True, False]), x, jnp.asarray(number, kind))
        assert [int(v) for v in got.astype("int32")] == [0, number if kind != "bool" else 1, 1,
                                                         number if kind != "bool" else 1]


def test_running_folds_of_floats_of_any_length() -> None:
    draw = Draw(0)
    for _ in range(8):
        x = draw.rng.standard_normal([draw.number(1, 9) for _ in range(draw.number(1, 4))])
        axis = draw.number(0, x.ndim)
        np.testing.assert_allclose(lax.cumlogsumexp(jnp.asarray(x, "float32"), axis),
                                   np.logaddexp.accumulate(x, axis), rtol=1e-5, atol=1e-5)
