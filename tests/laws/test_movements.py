"""Chains of movement ops read no element out of bounds and equal NumPy's.

The interpreter rejects out-of-bounds reads even if the value is discarded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fnx.numpy as jnp
from fnx import jit
from fnx.core.support.config import override
from tests.laws.device import MACHINE

Move = Callable[[Any, Any], Any]  # (module, array) -> array


@st.composite
def moves(draw: st.DrawFn) -> tuple[list[Move], tuple[int, ...]]:
    """Draw a chain of movements and the shape of the array it starts from."""
    first = shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=3)))
    out: list[Move] = []
    for _ in range(draw(st.integers(1, 6))):
        move = draw(st.sampled_from([_reshape, _pad, _slice, _flip, _transpose, _concat]))
        made = move(draw, shape)
        shape = made(np, np.zeros(shape)).shape
        if math.prod(shape) > 500:
            break
        out.append(made)
    return out, first


def _reshape(draw: st.DrawFn, shape: tuple[int, ...]) -> Move:
    size = math.prod(shape)
    rows = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0] or [0]))
    return lambda m, x: x.reshape((rows, -1) if rows else shape)


def _pad(draw: st.DrawFn, shape: tuple[int, ...]) -> Move:
    widths = [(draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in shape]
    return lambda m, x: m.pad(x, widths)


def _slice(draw: st.DrawFn, shape: tuple[int, ...]) -> Move:
    start = [draw(st.integers(0, n - 1)) for n in shape]
    cut = tuple([slice(i, draw(st.integers(i + 1, n))) for i, n in zip(start, shape)])
    return lambda m, x: x[cut]


def _flip(draw: st.DrawFn, shape: tuple[int, ...]) -> Move:
    axis = draw(st.integers(0, len(shape) - 1))
    return lambda m, x: m.flip(x, axis)


def _transpose(draw: st.DrawFn, shape: tuple[int, ...]) -> Move:
    order = draw(st.permutations(range(len(shape))))
    return lambda m, x: x.transpose(order)


def _concat(draw: st.DrawFn, shape: tuple[int, ...]) -> Move:
    axis = draw(st.integers(0, len(shape) - 1))
    return lambda m, x: m.concatenate([x, m.flip(x, axis)], axis)


@pytest.mark.parametrize("device", ["interp", MACHINE])
@settings(deadline=None, max_examples=60)
@given(moves())
def test_chains_of_movements(device: str, given_moves: tuple[list[Move], tuple[int, ...]]) -> None:
    steps, shape = given_moves

    def chain(module: Any, x: Any) -> Any:
        for step in steps:
            x = step(module, x)
        return x

    x = np.arange(1, math.prod(shape) + 1, dtype=np.float32).reshape(shape)
    with override(device=device):
        got = jit(lambda a: chain(jnp, a))(jnp.asarray(x))
        np.testing.assert_array_equal(np.asarray(got), chain(np, x))


@pytest.mark.parametrize("device", ["interp", MACHINE])
def test_an_element_of_padding_alone(device: str) -> None:
    with override(device=device):
        f = jit(lambda x: jnp.pad(x, (0, 1)).reshape(1, 3)[:, 2:])
        assert f(jnp.ones(2)).tolist() == [[0]]
