"""Special functions against mpmath, near poles and zeros and far out; scripts/ulp_table.py has the
same for many more numbers."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import fnx
from fnx.scipy import special

NEAR = [1 + s * 2.0 ** -k for k in range(1, 24, 3) for s in (-1, 1)]
CASES: dict[str, tuple[list[float], float]] = {
    "gamma": ([1e-300, 1e-30, -1e-30, 1e-5, -1e-5, 0.3, 2.5, 7.9, 8.1, 30.5, 33.9, -0.5, -1.5,
               -2.0001, -4.9999, -7.3, -19.25, *NEAR], 6),
    "gammaln": ([1e-300, 1e-30, -1e-30, 1e-5, 0.3, 2.5, 3.5, 7.9, 8.1, 40.5, 1e10, 1e30, *NEAR,
                 *[2 * v for v in NEAR]], 5),
    "digamma": ([1e-30, -1e-30, 0.3, 0.8, 2.0, 7.9, 8.1, 40.5, 1e30, -0.75, -3.25], 8),
    "erfinv": ([1e-30, 0.1, 0.5, -0.84, 0.99, *[1 - 2.0 ** -k for k in range(4, 24, 2)]], 4),
}
TRUE = {"gammaln": lambda x: mpmath.log(abs(mpmath.gamma(x))) if x < 1e5 else mpmath.loggamma(x)}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_within_a_few_units_of_the_last_place(name: str, dtype: str) -> None:
    numbers, most = CASES[name]
    with np.errstate(all="ignore"):
        x = np.asarray(numbers).astype(dtype)
    x = x[(x != 0) & np.isfinite(x)]
    with fnx.enable_x64(True):
        got: Any = np.asarray(fnx.jit(getattr(special, name))(x))
    true = TRUE.get(name) or getattr(mpmath, name)
    for v, g in zip(x, got):
        with mpmath.workdps(60):
            exact = true(mpmath.mpf(float(v)))
            rounded = np.dtype(dtype).type(float(exact))
            if np.isinf(rounded):
                assert g == rounded
                continue
            off = abs(mpmath.mpf(float(g)) - exact) / mpmath.mpf(float(np.spacing(abs(rounded))))
        assert off <= most, (v, g, float(exact), float(off))


def test_gamma_where_it_has_no_value_or_is_infinite() -> None:
    x = np.array([0.0, -0.0, -1, -2, -171.5, 180, np.inf, -np.inf, np.nan])
    with fnx.enable_x64(True):
        got = np.asarray(special.gamma(x))
        logs = np.asarray(special.gammaln(x))
    np.testing.assert_array_equal(got[:4], [np.inf, -np.inf, np.nan, np.nan])
    assert abs(got[4]) < 1e-308 and list(got[5:7]) == [np.inf, np.inf] and np.isnan(got[7:]).all()
    np.testing.assert_array_equal(logs[[0, 1, 2, 3, 6, 7]], [np.inf] * 6)
