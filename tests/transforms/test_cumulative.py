"""Cumulative reductions: along any axis, in both directions, of all dtypes, with derivatives of
both modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.ir import ops
from fnx.core.ir.uop import toposort
from fnx.test_util import check_grads

FOLDS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "cumsum": (lax.cumsum, np.cumsum), "cumprod": (lax.cumprod, np.cumprod),
    "cummax": (lax.cummax, np.maximum.accumulate), "cummin": (lax.cummin, np.minimum.accumulate)}
SHAPES = [((1,), 0), ((16,), 0), ((17,), 0), ((300,), 0), ((3, 40), 1), ((40, 3), 0),
          ((33, 20), 0), ((2, 20), 0), ((12, 20), 0), ((20, 8), 1), ((33, 20), 1), ((2, 21, 5), 1),
          ((0,), 0), ((0, 30), 1), ((30, 0), 0)]


@pytest.mark.cases(26)
@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize(("shape", "axis"), SHAPES, ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_they_are_numpys(name: str, shape: tuple[int, ...], axis: int, reverse: bool) -> None:
    ours, numpys = FOLDS[name]
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(np.int32)
    want = np.flip(numpys(np.flip(x, axis), axis), axis) if reverse else numpys(x, axis)
    np.testing.assert_array_equal(ours(jnp.asarray(x), axis, reverse), want)


@pytest.mark.cases(2)
@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize(("shape", "axis"), [((20,), 0), ((3, 18), 1), ((18, 2), 0), ((9,), 0)])
def test_derivatives_of_both_modes(name: str, shape: tuple[int, ...], axis: int) -> None:
    x = np.random.default_rng(1).uniform(0.5, 1.5, shape)
    check_grads(lambda x: FOLDS[name][0](x, axis), (x,), order=2)


def test_each_is_one_kernel() -> None:
    for name, (f, _) in FOLDS.items():
        lowered = fnx.jit(f).lower(jnp.ones((5000, 4)))
        loops = [n for n in toposort(lowered.simplified.src) if n.op is ops.SCAN]
        assert not loops and len(lowered.kernels) == 1, name


@pytest.mark.parametrize("shape", [(300, 200), (4, 6, 50), (3, 700), (40, 1, 33)])
def test_rows_are_walked_where_they_lie(shape: tuple[int, ...]) -> None:
    """No transposition before or after; other producers and consumers fuse as usual."""
    x = np.random.default_rng(3).integers(-3, 4, shape).astype(np.float32)
    programs: dict[str, tuple[Callable[..., Any], int]] = {
        "forward": (lambda m, x: m.cumsum(x, -1), 1),
        "of what is computed": (lambda m, x: m.cumsum(x * 2 + 1, -1) * x, 3),
        "of what is read again": (lambda m, x: (m.cumsum(x.T, 0), x.T + 1), 4),
        "of two": (lambda m, x: m.cumsum(m.cumsum(x, -1)[..., ::-1], -1), 3)}
    for name, (f, count) in programs.items():
        mine = fnx.jit(lambda x, f=f: f(jnp, x))
        for got, want in zip(fnx.tree.leaves(mine(x)), fnx.tree.leaves(f(np, x))):
            np.testing.assert_array_equal(got, want, err_msg=name)
        assert len(mine.lower(x).kernels) <= count, name
    got = fnx.jit(fnx.grad(lambda x: (jnp.cumsum(x, -1) ** 2).sum()))(x)
    np.testing.assert_array_equal(got, np.cumsum(2 * np.cumsum(x, -1)[..., ::-1], -1)[..., ::-1])


def test_lanes_of_vmap_and_scan() -> None:
    x = np.random.default_rng(2).standard_normal((4, 30)).astype(np.float32)
    np.testing.assert_allclose(fnx.vmap(jnp.cumsum)(x), np.cumsum(x, 1), rtol=1e-5, atol=1e-5)
    _, ys = lax.scan(lambda c, v: (c + 1, jnp.cumsum(v) + c), 0.0, x)
    np.testing.assert_allclose(ys, np.cumsum(x, 1) + np.arange(4)[:, None], rtol=1e-5, atol=1e-5)


def test_what_is_no_number_stays() -> None:
    x = np.ones(40, np.float32)
    x[20] = np.nan
    for name, (f, numpys) in FOLDS.items():
        np.testing.assert_array_equal(f(jnp.asarray(x)), numpys(x), err_msg=name)


@pytest.mark.parametrize("length", [3, 5, 12, 16])
def test_short_axes_before_others_are_walked_once(length: int) -> None:
    """Adding shifted rows would read ``length`` elements for each result."""
    lanes = 96  # padded to whole vectors
    for name, (fold, _) in FOLDS.items():
        lowered = fnx.jit(lambda x, fold=fold: fold(x, 0)).lower(jnp.ones((length, 90)))
        (kernel,) = lowered.kernels
        converted = 2 if name in ("cumsum", "cumprod") else 0  # to float64 and back
        assert kernel.flops <= (1 + converted) * length * lanes, kernel


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
@pytest.mark.parametrize(("shape", "axis"), [((17,), 0), ((300,), 0), ((3, 9), 1), ((5, 12), 0)])
def test_float32_is_rounded_once(name: str, shape: tuple[int, ...], axis: int) -> None:
    fold, numpys = FOLDS[name]
    x = np.random.default_rng(4).uniform(0.5, 1.5, shape).astype(np.float32)
    want = numpys(x.astype(np.float64), axis).astype(np.float32)
    np.testing.assert_array_equal(fold(jnp.asarray(x), axis), want)
