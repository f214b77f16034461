"""Equations come after what they read, also if a view made an operand later than its reader."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.jaxprs.check import check_jaxpr
from fnx.jaxprs.evaluate import eval_jaxpr
from fnx.scipy import stats


@pytest.mark.cases(2)
@pytest.mark.parametrize("f", [stats.rankdata, lambda x: stats.mode(x).mode, jnp.median,
                               lambda x: jnp.cumsum(x[None], 0)])
def test_equations_follow_what_they_read(f: Any) -> None:
    x = np.array([3, 1, 2, 2], np.float32)
    closed = fnx.make_jaxpr(f)(x)
    check_jaxpr(closed.jaxpr)
    np.testing.assert_array_equal(eval_jaxpr(closed.jaxpr, closed.consts, x)[0], f(x))
