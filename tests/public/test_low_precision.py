"""Composite functions on 16-bit floats give the float32 result, rounded once; none crashes."""

from __future__ import annotations

import inspect
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx import ops, random
from fnx.scipy import special, stats

ONE = ("dawsn", "erfcx", "exp1", "expi", "i0", "i1e", "log_ndtr", "ndtr", "ndtri", "spence")
STATS = ("norm.logpdf", "norm.cdf", "beta.pdf", "cauchy.isf", "gamma.logcdf", "gumbel_l.sf",
         "laplace.pdf", "t.logpdf", "truncnorm.pdf", "poisson.pmf", "gennorm.cdf")
SHAPES = {"beta": (1.5, 2.5), "gamma": (2.5,), "t": (3.5,), "truncnorm": (-1.0, 2.0),
          "poisson": (2.5,), "gennorm": (1.5,)}
TWO = ("beta", "betaln", "gammainc", "poch", "xlogy", "zeta")


@pytest.mark.cases(1)
@pytest.mark.parametrize("t", [np.float16, ml_dtypes.bfloat16])
def test_they_are_rounded_once(t: Any) -> None:
    x = np.array([0.25, 0.875, 1.5, 3.0], t)
    wide = x.astype(np.float32)

    def same(got: Any, want: Any) -> None:
        assert got.dtype == t
        np.testing.assert_array_equal(*[np.asarray(x).astype(t).astype(np.float32)
                                        for x in (got, want)])
    for name in ONE:
        same(getattr(special, name)(x), getattr(special, name)(wide))
    for name in TWO:
        same(getattr(special, name)(x, 2.5), getattr(special, name)(wide, 2.5))
        assert getattr(special, name)(x, wide).dtype == np.float32
    for name in STATS:
        family, _, kind = name.partition(".")
        f, more = getattr(getattr(stats, family), kind), SHAPES.get(family, ())
        near = x[:2] if kind == "isf" else x
        same(f(near, *more), f(near.astype(np.float32), *more))
        if "scale" in inspect.signature(f).parameters:
            same(f(near, *more, t(0.5), t(2)), f(near.astype(np.float32), *more, 0.5, 2.0))
    with fnx.enable_x64(True):
        assert special.beta(x, 2).dtype == t and special.beta(2, wide).dtype == np.float32
    same(stats.sem(x), stats.sem(wide))
    same(jnp.interp(x, x, x), x)
    same(ops.segment_max(x, np.array([0, 1, 0, 3]), 5),
         np.array([1.5, 0.875, -np.inf, 3, -np.inf]))
    assert random.cauchy(random.key(0), (3,), t).dtype == t
