"""Eager calls with new shapes run existing kernels and give the results of jit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from tests.attack import shapes
from tests.helpers import new_kernels

DRAW = np.random.default_rng(10)
SHAPES = [tuple(map(int, DRAW.integers(20, 60, 3))) for _ in range(10)]


def array(*shape: int) -> Any:
    return jnp.asarray(np.ones(shape, np.float32))


CALLS: dict[str, tuple[int, Callable[..., Any]]] = {  # most kernels
    "x + 1": (1, lambda a, b, c: array(a, b) + 1),
    "x + row": (1, lambda a, b, c: array(a, b) + array(b)),
    "n // k": (3, lambda a, b, c: jnp.arange(c) // a),
    "mean": (1, lambda a, b, c: jnp.mean(array(a, b), axis=0)),
    "x @ y": (8, lambda a, b, c: array(a, b) @ array(b, c)),
    "concatenate": (3, lambda a, b, c: jnp.concatenate([array(a, b), array(c, b)])),
    "pad": (2, lambda a, b, c: jnp.pad(array(a, b), c)),
    "x[::k]": (1, lambda a, b, c: array(a, b)[::b // 10]),
    "x[rows]": (2, lambda a, b, c: array(a, b)[jnp.zeros(c, int)]),
    "add at": (4, lambda a, b, c: array(a, b).at[jnp.zeros(c, int)].add(1.0)),
}


@pytest.mark.cases(4)
@pytest.mark.parametrize("name", CALLS)
def test_kernels_of_new_shapes(name: str) -> None:
    most, call = CALLS[name]
    before = new_kernels()
    for shape in SHAPES:
        call(*shape)
    assert new_kernels() - before <= most + 3  # plus kernels that make the operands


@pytest.mark.cases(1)
@pytest.mark.parametrize("first", range(0, 60, 12))
def test_results_are_those_of_jit(first: int) -> None:
    for seed in range(first, first + 12):
        shapes.check(seed)


def test_a_product_of_much_work_has_a_kernel_of_its_own() -> None:
    x = array(600, 500)
    y = array(500, 512)
    np.testing.assert_array_equal(x @ y, fnx.jit(jnp.matmul)(x, y))


def _moved(draw: np.random.Generator) -> tuple[Callable[..., Any], list[Any]]:
    """Return a NumPy function that moves elements, and operands whose lengths often coincide."""
    top = int(draw.choice((4, 9, 9, 140)))
    m, n, k = map(int, draw.integers(1, top, 3))
    axis, start, step = int(draw.integers(2)), int(draw.integers(m)), int(draw.integers(1, 4))
    x = draw.standard_normal((m, n)).astype(np.float32)
    others = [draw.standard_normal((int(draw.integers(0, top)), n)).astype(np.float32)
              for _ in range(int(draw.integers(1, 4)))]
    transposed = [y if axis == 0 else y.T for y in [x, *others]]
    some: list[tuple[Callable[..., Any], list[Any]]] = [
        (lambda m, *parts: m.concatenate(parts, axis), transposed),
        (lambda m, *parts: m.concatenate(parts, axis), transposed[::-1]),
        (lambda m, x: m.pad(x, ((k, start), (step, 0)), constant_values=k), [x]),
        (lambda m, x: m.roll(x, start, axis), [x]), (lambda m, x: x[start::step], [x]),
        (lambda m, x: x[start:, ::-1], [x]), (lambda m, x: m.tile(x, (step, k)), [x]),
        (lambda m, x: m.stack([x, x[::-1]], axis), [x]), (lambda m, x: m.tril(x, start), [x]),
        (lambda m, x: m.repeat(x, k, axis), [x]),
        (lambda m, x: m.swapaxes(x, 0, 1)[start % n:], [x])]
    return some[int(draw.integers(len(some)))]


def test_kernels_of_numbers_that_coincide() -> None:
    """A kernel made when two lengths are equal also serves unequal ones, and vice versa."""
    draw = np.random.default_rng(5)
    for _ in range(60):
        f, operands = _moved(draw)
        np.testing.assert_array_equal(f(jnp, *map(jnp.asarray, operands)), f(np, *operands))


def test_single_rows_among_parts() -> None:
    """Single rows share a loop; the parts of several rows between them have their own."""
    for rows in ([1, 1, 5, 1, 3], [2, 1, 1, 4, 1], [1, 7, 1, 7, 1]):
        parts = [np.full((6, n, 16), n + i, np.float32) for i, n in enumerate(rows)]
        np.testing.assert_array_equal(jnp.concatenate(parts, 1), np.concatenate(parts, 1))


def test_what_is_masked_in_one_part_of_a_loop_and_needed_in_all_of_it() -> None:
    """geomspace overwrites the ends of its range; a part of the loop knows that it contains
    neither."""
    for a, b in ((0.25, 0.5), (1.0, 8.0)):
        np.testing.assert_allclose(jnp.geomspace(jnp.float32(a), jnp.float32(b), 40),
                                   np.geomspace(a, b, 40), rtol=1e-5)
