"""Convolutions of any configuration and both gradients, against explicit sums over kernel
positions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import fnx
import fnx.lax as lax
import fnx.numpy as jnp

COMPILED = True
Pairs = list[tuple[int, int]]


class Drawn(NamedTuple):
    """Shapes and parameters of a convolution."""

    x: tuple[int, ...]
    w: tuple[int, ...]
    strides: list[int]
    padding: Pairs
    input_dilation: list[int]
    dilation: list[int]
    groups: int


@st.composite
def convolutions(draw: st.DrawFn) -> Drawn:
    n = draw(st.sampled_from([1, 2, 2, 3]))

    def numbers(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=n, max_size=n))

    groups, inside, outside = (draw(st.integers(1, m)) for m in (3, 5, 9))
    places, kernel = numbers(1, {1: 40, 2: 20, 3: 6}[n]), numbers(1, 5)
    strides, dilation, input_dilation = numbers(1, 4), numbers(1, 3), numbers(1, 3)
    padding = [(draw(st.integers(0, 3)), draw(st.integers(0, 3))) for _ in range(n)]
    for i in range(n):  # at least one window
        reach = (kernel[i] - 1) * dilation[i] + 1
        there = (places[i] - 1) * input_dilation[i] + 1 + sum(padding[i])
        padding[i] = (padding[i][0], padding[i][1] + max(0, reach - there))
    batch = draw(st.integers(1, 3))
    return Drawn((batch, groups * inside, *places), (groups * outside, inside, *kernel),
                 strides, padding, input_dilation, dilation, groups)


def summed(x: Any, w: Any, g: Any, of: Drawn) -> tuple[Any, Any, Any]:
    """Return the result, and the gradients of x and w for a cotangent g (None: none)."""
    n, (batch, features), outs = len(of.strides), of.x[:2], of.w[0]
    wide = [(m - 1) * d + 1 for m, d in zip(of.x[2:], of.input_dilation)]
    padded = np.zeros((batch, features, *[m + sum(p) for m, p in zip(wide, of.padding)]))
    inner = (..., *[slice(lo, lo + m, d) for (lo, _), m, d in
                    zip(of.padding, wide, of.input_dilation)])
    padded[inner] = x
    out = [(m - (k - 1) * d - 1) // s + 1 for m, k, d, s in zip(
        padded.shape[2:], of.w[2:], of.dilation, of.strides)]
    y, gx, gw = np.zeros((batch, outs, *out)), np.zeros_like(padded), np.zeros(of.w)
    at = "pqr"[:n]

    def grouped(a: Any, axis: int) -> Any:
        return a.reshape(*a.shape[:axis], of.groups, -1, *a.shape[axis + 1:])

    for k in itertools.product(*map(range, of.w[2:])):
        place = (..., *[slice(i * d, i * d + (m - 1) * s + 1, s)
                        for i, d, m, s in zip(k, of.dilation, out, of.strides)])
        seen, kernel = grouped(padded[place], 1), grouped(w[(..., *k)], 0)
        y += np.einsum(f"bgc{at},goc->bgo{at}", seen, kernel).reshape(y.shape)
        if g is not None:
            back = grouped(g, 1)
            gw[(..., *k)] = np.einsum(f"bgo{at},bgc{at}->goc", back, seen).reshape(of.w[:2])
            gx[place] += np.einsum(f"bgo{at},goc->bgc{at}", back, kernel).reshape(
                (batch, features, *out))
    return y, gx[inner], gw


def integers(shape: Sequence[int], seed: int) -> Any:
    """Return integers small enough that sums of their products are exact."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.cases(1, of="drawn")
@settings(max_examples=30, deadline=None)
@example(Drawn((2, 6, 6, 4, 6), (2, 3, 1, 5, 1), [1, 3, 1], [(0, 0), (0, 2), (0, 0)], [1, 3, 2],
               [1, 2, 2], 2))  # columns whose offsets depend on an unrolled range within a MIN
@given(convolutions())
def test_convolutions_and_their_gradients(of: Drawn) -> None:
    x, w = integers(of.x, 0), integers(of.w, 1)
    g = integers(summed(x, w, None, of)[0].shape, 2)

    def convolved(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, of.strides, of.padding,
                                        of.input_dilation, of.dilation,
                                        feature_group_count=of.groups)

    def both(x: Any, w: Any, g: Any) -> Any:
        out, back = fnx.vjp(convolved, x, w)
        return out, *back(g)

    for got, expected in zip(fnx.jit(both)(*map(jnp.asarray, (x, w, g))), summed(x, w, g, of)):
        assert np.array_equal(np.asarray(got), expected)


@st.composite
def spread_inputs(draw: st.DrawFn) -> tuple[Any, ...]:
    """Draw shapes, padding and dilations of dilated inputs, and the order of axes."""
    n = draw(st.integers(1, 2))

    def numbers(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=n, max_size=n))

    places, kernel, input_dilation = numbers(1, 6), numbers(1, 5), numbers(1, 4)
    padding = []
    for m, k, d in zip(places, kernel, input_dilation):  # at least one window
        low = draw(st.integers(-3, 4))
        padding.append((low, k - (m - 1) * d - 1 - low + draw(st.integers(0, 6))))
    order = draw(st.sampled_from([("NC" + "HW"[:n], "OI" + "HW"[:n], "NC" + "HW"[:n]),
                                  ("N" + "HW"[:n] + "C", "HW"[:n] + "IO", "N" + "HW"[:n] + "C")]))
    groups = draw(st.sampled_from([(1, 1), (2, 1), (1, 2)]))
    return places, kernel, input_dilation, padding, order, groups, draw(st.sampled_from([1, 3]))


@pytest.mark.cases(1, of="drawn")
@settings(max_examples=20, deadline=None)
@given(spread_inputs())
def test_dilated_inputs_are_inputs_with_zeros_between(drawn: tuple[Any, ...]) -> None:
    places, kernel, input_dilation, padding, order, (groups, batches), outs = drawn
    lengths = dict(zip("HW", places)) | {"N": 2 * batches, "C": 2 * groups}
    sizes = dict(zip("HW", kernel)) | {"O": outs * groups * batches, "I": 2}
    x = integers([lengths[letter] for letter in order[0]], 0)
    w = integers([sizes[letter] for letter in order[1]], 1)
    step = dict(zip("HW", input_dilation))
    zeros = [(0, 0, step.get(letter, 1) - 1) for letter in order[0]]
    of_groups = {"dimension_numbers": order, "feature_group_count": groups,
                 "batch_group_count": batches}
    ones = [1] * len(places)

    def spread(x: Any, w: Any) -> Any:
        return lax.conv_general_dilated(x, w, ones, padding, input_dilation, **of_groups)

    def with_zeros(x: Any, w: Any) -> Any:
        x = lax.pad(x, jnp.float32(0), zeros)
        return lax.conv_general_dilated(x, w, ones, padding, **of_groups)

    def both(f: Any) -> Any:
        out, back = fnx.vjp(f, x, w)
        return out, *back(jnp.cos(jnp.arange(out.size)).reshape(out.shape).round(1))
    for a, b in zip(fnx.jit(lambda: both(spread))(), fnx.jit(lambda: both(with_zeros))()):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-4)


def test_an_infinite_weight_meets_no_zero_between_elements() -> None:
    x, w = jnp.ones((1, 1, 4)), jnp.asarray([[[jnp.inf, 1.0]]])
    out = lax.conv_general_dilated(x, w, (1,), [(0, 0)], (2,))
    assert np.asarray(out).tolist() == [[[np.inf, 1.0, np.inf, 1.0, np.inf, 1.0]]]
