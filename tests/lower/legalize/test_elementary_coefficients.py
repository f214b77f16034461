"""The constants of the elementary functions are what their comments say."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from types import SimpleNamespace
from typing import Any

import mpmath
import pytest
from mpmath import mp, mpf

_SCRIPT = pathlib.Path(__file__).parents[3] / "scripts" / "fit_polynomials.py"


def _script() -> Any:
    spec = importlib.util.spec_from_file_location("fit_polynomials", _SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


FIT = _script()
k = SimpleNamespace(**FIT.held())


@pytest.mark.cases(5)
@pytest.mark.parametrize("fit", FIT.FITS, ids=lambda fit: fit.name)
def test_polynomials_have_their_error_bounds(fit: Any) -> None:
    c = getattr(k, fit.name)
    assert len(c) == fit.degree + 1
    assert FIT.error_bits(fit, c, 1000) <= fit.bound  # the script checks all 3,000 points
    assert all(float(fit.dtype(v)) == v for v in c)


def test_a_changed_coefficient_is_noticed() -> None:
    fit = FIT.FITS[0]
    c = list(getattr(k, fit.name))
    c[2] *= 1.0001
    assert FIT.error_bits(fit, c) > fit.bound


def test_split_constants_add_up() -> None:
    with mp.workprec(1400):
        assert int(mpmath.floor(mpf(2) ** k.INVERSE_TWO_PI_BITS / (2 * mp.pi))) == k.INVERSE_TWO_PI
        exact = {k.LOG2_E_PARTS: 1 / mpmath.log(2), k.THIRD_PARTS: mpf(1) / 3,
                 k.TWO_PI_PARTS: 2 * mp.pi, k.HALF_PI_64: mp.pi / 2, k.LN2_64: mpmath.log(2)}
        for (high, low), value in exact.items():
            assert abs(mpf(high) + mpf(low) - value) < value * mpf(2) ** -83
        assert abs(mpf(k.LN2_32[0]) + mpf(k.LN2_32[1]) - mpmath.log(2)) < mpf(2) ** -35
    # Few enough bits that the product with any exponent is exact.
    assert (k.LN2_32[0] * 2 ** 9).is_integer()
    assert (k.LN2_64[0] * 2 ** 33).is_integer()
