"""``runtime_extents``: which lengths of a kernel become arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import fnx
import fnx.lax as lax
import fnx.numpy as jnp
from fnx.core.ir import build, ops
from fnx.core.ir.accessors import extent
from fnx.core.ir.uop import toposort
from fnx.lower.kernel.coalesce import coalesce
from fnx.lower.kernel.runtime_extents import generalize
from tests.lower.steps import steps_of


def pairs(x: Any) -> Any:
    return jnp.repeat(x, 2, 1)


def windows(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (2, 2), (2, 2), "VALID")


def constant_lengths(f: Callable[[Any], Any], rows: int) -> set[int]:
    """Return the lengths of loops that are constants of the kernel of f on so many rows of 512."""
    step, = steps_of(fnx.jit(f).lower(jnp.ones((rows, 512))).simplified)
    kernel, _ = generalize(coalesce(step.kernel))
    return {int(build.const_of(extent(r))) for r in toposort([kernel])
            if r.op is ops.RANGE and extent(r).op is ops.CONST}


@pytest.mark.parametrize("f", [pairs, windows])
def test_short_lengths_are_constants_of_large_kernels(f: Callable[[Any], Any]) -> None:
    """A loop of two that is not unrolled, and lanes two elements apart, take ten times as long."""
    assert constant_lengths(f, 400) == constant_lengths(f, 300) == {2}
    assert constant_lengths(f, 6) == set()
