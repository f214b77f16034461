"""LLVM may take lanes that are not read from memory for zero; a quotient of two is NaN."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from tests.lower.steps import AVX512, after_pass


@pytest.mark.parametrize("f", [
    lambda x: jnp.concatenate([x / x, jnp.zeros(1)]),
    lambda x: jnp.pad(x / jnp.ones(1), (0, 1)),
    lambda x: jnp.pad(x / (x * x), (0, 3)),
    lambda x: jnp.where(jnp.arange(2) < 1, jnp.arange(2, dtype="f4") / jnp.pad(x, (0, 1)), 0),
])
def test_a_lane_of_nothing_divided_by_nothing_is_left_out(f: Callable[[Any], Any]) -> None:
    x = jnp.ones(1)
    with fnx.core.support.config.override(device="interp"):
        want = f(jnp.ones(1))
    np.testing.assert_array_equal(fnx.jit(f)(x), np.asarray(want))
    np.testing.assert_array_equal(f(x), np.asarray(want))


def test_the_integral_of_a_number() -> None:
    np.testing.assert_array_equal(jnp.polyint(1.0), [1, 0])


@pytest.mark.parametrize("width", [9, 10, 12, 14])
def test_lanes_beyond_a_row_are_a_masked_load(width: int) -> None:
    """Of a SELECT by constant lanes, LLVM makes a VEXPAND, which takes five times as long."""
    f, x = fnx.jit(lambda x: jnp.tanh((x * x).sum(-1))), jnp.ones((800, width))
    text, = after_pass("render", f.lower(x).simplified, AVX512)
    assert "@llvm.masked.load" in text and "select <16 x i1> <" not in text
    np.testing.assert_allclose(f(x), np.tanh(np.full(800, width, "f4")))


def test_of_a_maximum_what_waits_for_the_step_before_is_second() -> None:
    """LLVM tests whether the first operand is NaN: that need not wait."""
    f, x = fnx.jit(lambda x: x.max(0)), jnp.ones((128, 133))
    text, = after_pass("render", f.lower(x).simplified, AVX512)
    phis = {line.split()[0] for line in text.splitlines() if " = phi <" in line}
    calls = [line for line in text.splitlines() if "@llvm.maximum" in line]
    seconds = [line.rstrip(")").split()[-1] for line in calls]
    assert calls and phis.issuperset(seconds)
