"""Operators take arrays of JAX and PyTorch, as functions do."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp

COMPILED = True
NUMBERS = np.arange(1, 5, dtype=np.float32)


@pytest.mark.cases(1)
@pytest.mark.parametrize("library", ["jax.numpy", "torch"])
@pytest.mark.parametrize("op", [operator.add, operator.mul, operator.matmul, operator.pow,
                                operator.lt])
def test_operators_with_arrays_of_other_libraries(library: str, op: Callable[..., Any]) -> None:
    module = pytest.importorskip(library)
    theirs, x = module.asarray(NUMBERS), jnp.asarray(NUMBERS[::-1].copy())
    expected, swapped = op(x, jnp.asarray(NUMBERS)), op(jnp.asarray(NUMBERS), x)
    for left, right, want in ((x, theirs, expected), (theirs, x, swapped)):
        got = op(left, right)
        assert isinstance(got, fnx.Array) and np.array_equal(got, want)
        assert np.array_equal(fnx.jit(lambda x: op(x, theirs))(x), expected)
