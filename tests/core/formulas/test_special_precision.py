"""Special functions against mpmath, near poles and zeros and far out; scripts/ulp_table.py checks
many more values."""

from __future__ import annotations

import math
from typing import Any

import mpmath
import numpy as np
import pytest

import fnx
import fnx.numpy as jnp
from fnx.scipy import special

NEAR = [1 + s * 2.0 ** -k for k in range(1, 24, 3) for s in (-1, 1)]
CASES: dict[str, tuple[list[float], float]] = {
    "gamma": ([1e-300, 1e-30, -1e-30, 1e-5, -1e-5, 0.3, 2.5, 7.9, 8.1, 30.5, 33.9, -0.5, -1.5,
               -2.0001, -4.9999, -7.3, -19.25, *NEAR], 6),
    "gammaln": ([1e-300, 1e-30, -1e-30, 1e-5, 0.3, 2.5, 3.5, 7.9, 8.1, 40.5, 1e10, 1e30, *NEAR,
                 *[2 * v for v in NEAR]], 5),
    "digamma": ([1e-30, -1e-30, 0.3, 0.8, 2.0, 7.9, 8.1, 40.5, 1e30, -0.75, -3.25], 8),
    "erf": ([1e-30, 1e-5, -0.3, 0.4705, 0.75, *[s * (7 / 8 + d * 2.0 ** -24) for s in (-1, 1)
             for d in (-2, -1, 0, 1)], 1.1, -1.9, 2.7, 3.9, 4.0, 4.1, -6.0, 1e30, *NEAR], 1.5),
    "erfinv": ([1e-30, 0.1, 0.5, -0.84, 0.99, *[1 - 2.0 ** -k for k in range(4, 24, 2)]], 4),
}
TRUE = {"gammaln": lambda x: mpmath.log(abs(mpmath.gamma(x))) if x < 1e5 else mpmath.loggamma(x)}


@pytest.mark.cases(5)
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


def test_slopes_at_zero_and_at_whole_numbers() -> None:
    slopes: dict[str, tuple[Any, list[float], list[float]]] = {
        "modf": (lambda x: jnp.modf(x)[0], [-2, -0.0, 0, 3, -1.5], [1, 1, 1, 1, 1]),
        "erf": (special.erf, [0, 1, -20, np.inf], [1.1283792, 0.41510749, 0, 0]),
        "slope of erf": (fnx.grad(special.erf), [1, 20, np.inf], [-0.83021497, 0, 0]),
        "dawsn": (special.dawsn, [0, -0.0], [1, 1]),
        "fresnel": (lambda x: special.fresnel(x)[1], [0, -0.0], [1, 1]),
        "sine": (lambda x: special.sici(x)[0], [0, -0.0], [1, 1]),
        "cosine": (lambda x: special.sici(x)[1], [0], [np.inf]),
        "i0e": (special.i0e, [0, 1e-30], [0, -1]),
        "factorial": (special.factorial, [0], [-0.5772157]),
    }
    for name, (f, places, want) in slopes.items():
        got = fnx.vmap(fnx.grad(f))(jnp.asarray(places, "float32"))
        np.testing.assert_allclose(got, want, rtol=1e-6, err_msg=name)
    whole, left = jnp.asarray([-2.0, -0.0, 2.5, -np.inf]), [-0.0, -0.0, 0.5, -0.0]
    assert np.asarray(jnp.modf(whole)[0]).tobytes() == np.asarray(left, np.float32).tobytes()


@pytest.mark.cases(2)
@pytest.mark.parametrize("order", range(1, 5))
def test_derivatives_of_gammaln_are_polygammas(order: int) -> None:
    x = [1e-5, 0.3, 1.0, 2.0, 2.5, 7.9, 8.1, 40.5, 1e10, -1e-3, -0.5, -0.75, -3.25, -20.5]
    f = special.gammaln
    for _ in range(order):
        f = fnx.grad(f)
    want = [float(mpmath.polygamma(order - 1, mpmath.mpf(v))) for v in x]
    with fnx.enable_x64(True):
        np.testing.assert_allclose(fnx.vmap(f)(np.array(x)), want, 2e-14)
    np.testing.assert_allclose(fnx.vmap(f)(np.array(x, np.float32)), [
        float(mpmath.polygamma(order - 1, mpmath.mpf(float(np.float32(v))))) for v in x], 4e-6)


@pytest.mark.cases(1)
@pytest.mark.parametrize("s", [2.0, 7.0])
def test_zeta_below_zero_is_its_sum(s: float) -> None:
    """The terms below 0 are added one by one, and the zeta function of the end point is added to
    them."""
    q = np.array([-0.25, -0.5, -1.5, -3.25, -7.75, -9.3125, -20.625, -100.375, -2.0**-10, 0.375, 7])

    def true(s: float, q: float) -> tuple[float, float]:
        terms = [(mpmath.mpf(q) + k) ** -int(s) for k in range(max(0, math.floor(-q) + 1))]
        with mpmath.workdps(40):
            value = sum(terms) + mpmath.zeta(int(s), mpmath.mpf(q) + len(terms))
        return float(value), float(max(map(abs, [value, *terms])))

    want, size = np.array([true(s, v) for v in q]).T
    slope, steep = np.array([true(s + 1, v) for v in q]).T
    for dtype, allowed in ((np.float64, 4e-15), (np.float32, 2e-6)):
        x = jnp.asarray(q, dtype)
        assert (np.abs(np.asarray(special.zeta(s, x)) - want) <= allowed * size).all()
        found = fnx.vmap(fnx.grad(lambda q: special.zeta(jnp.asarray(s, q.dtype), q)))(x)
        assert (np.abs(np.asarray(found) + s * slope) <= 2 * allowed * s * steep).all()
    poles = np.array([0.0, -1.0, -7.0, -20.0])
    assert np.isposinf(special.zeta(s, poles)).all()
    assert np.isnan(special.zeta(s + 0.5, q[:4])).all() and np.isnan(special.zeta(0.5, 2.0))


def test_polygammas_below_zero() -> None:
    x, orders = np.array([-0.5, -1.5, -7.75, -8.5, -20.6, -100.4]), [1, 2, 3, 5]
    with fnx.enable_x64(True):
        values = np.asarray(special.polygamma(np.array(orders)[:, None], x))
    for n, got in zip(orders, values):
        want = np.array([float(mpmath.polygamma(n, mpmath.mpf(v))) for v in x])
        near = math.factorial(n) * np.abs(x - np.rint(x)) ** (-n - 1)  # its largest term
        assert (np.abs(got - want) <= 4e-15 * np.maximum(near, np.abs(want))).all()


def test_gammaln_of_float32_below_zero() -> None:
    x = np.array([-2.45, -2.75, -3.14, -0.9, -1e30, -3e38], np.float32)
    want = [float(mpmath.log(abs(mpmath.gamma(mpmath.mpf(float(v)))))) for v in x[:4]]
    np.testing.assert_allclose(special.gammaln(x), [*want, np.inf, np.inf], 2e-7)


@pytest.mark.cases(1)
@pytest.mark.parametrize("whole", [1.0, 2.0, 5.0])
@pytest.mark.parametrize("name", ["gammainc", "betainc"])
def test_slopes_of_incomplete_functions_at_whole_parameters(name: str, whole: float) -> None:
    """There the continued fractions terminate, and those of the derivatives do not."""
    with fnx.enable_x64(True):
        if name == "gammainc":
            xs = np.array([0.4, 2.1, 4.0, 9.0])
            found = fnx.vmap(fnx.grad(special.gammainc), (None, 0))(whole, xs)
            for x, slope in zip(xs, found):
                exact = mpmath.diff(lambda p: mpmath.gammainc(p, 0, x, regularized=True), whole)
                np.testing.assert_allclose(slope, float(exact), 1e-7)
            return
        slopes = fnx.jit(fnx.vmap(fnx.grad(special.betainc, (0, 1)), (None, None, 0)))
        xs = np.array([0.05, 0.3, 0.6, 0.95])
        for p, q in ((whole, 2.0), (2.0, whole), (0.5, whole)):
            for i, found in enumerate(slopes(p, q, xs)):
                for x, slope in zip(xs, found):
                    exact = mpmath.diff(lambda v: mpmath.betainc(
                        *((v, q) if i == 0 else (p, v)), 0, x, regularized=True), (p, q)[i])
                    np.testing.assert_allclose(slope, float(exact), 1e-7)


def test_betaln_where_large_terms_cancel() -> None:
    far = [(1.0, 1e10), (1.0, 3e38), (300.0, 3e38), (1e-3, 1e38), (1e37, 1e37), (-2.5, 1e30),
           (7.9, 8.1), (8.0, 8.0), (100.0, 2e4), (9.0, 9e5), (0.5, 3.0)]
    a, b = (np.array(v) for v in zip(*far))
    with mpmath.workdps(80):
        true = [float((mpmath.log(abs(mpmath.gamma(p))) if p < 0 else mpmath.loggamma(p))
                      + mpmath.loggamma(q) - mpmath.loggamma(mpmath.mpf(p) + mpmath.mpf(q)))
                for p, q in far]
    np.testing.assert_allclose(special.betaln(a.astype("f4"), b.astype("f4")), true, 1e-6)
    np.testing.assert_allclose(special.betaln(b.astype("f4"), a.astype("f4")), true, 1e-6)
    with fnx.enable_x64(True):
        np.testing.assert_allclose(special.betaln(a, b), true, 1e-10)
        slope = fnx.grad(special.betaln)(2.0, 1e6)
        np.testing.assert_allclose(slope, float(mpmath.digamma(2) - mpmath.digamma(1000002)), 1e-9)
    assert special.beta(1.0, 3e38) < 1e-38


@pytest.mark.cases(4)
@pytest.mark.parametrize("name", """dawsn digamma entr erf erfc erfcx erfinv exp1 expi expit
    factorial fresnel gamma gammaln i0 i0e i1 i1e log_ndtr loggamma logit ndtr ndtri sici
    spence""".split())
def test_nan_stays(name: str) -> None:
    found = getattr(special, name)(np.array([np.nan, 0.5], "f4"))
    for x in found if isinstance(found, tuple) else (found,):
        assert np.isnan(np.asarray(x)).tolist() == [True, False]


def test_slopes_in_the_middle_and_fresnel_far_out() -> None:
    np.testing.assert_allclose(fnx.grad(special.erfcx)(0.0), -2 / np.pi ** 0.5, 1e-6)
    np.testing.assert_allclose(fnx.grad(special.erfcx)(-0.0), -2 / np.pi ** 0.5, 1e-6)
    np.testing.assert_allclose(fnx.grad(special.ndtri)(0.5), (2 * np.pi) ** 0.5, 1e-6)
    np.testing.assert_allclose(special.fresnel(np.array([3e38, -3e38], "f4")),
                               [[0.5, -0.5]] * 2, 1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_inverse_of_ndtr_in_the_middle_and_in_the_tails(dtype: str) -> None:
    p = np.array([1e-30, 1e-6, 0.02, 0.09999, 0.1, 0.3, 0.45, 0.4999, 0.499999, 0.500001, 0.62,
                  0.9, 0.97, 0.99999]).astype(dtype)
    with fnx.enable_x64(True), mpmath.workdps(40):
        got = np.asarray(fnx.jit(special.ndtri)(p))
        def tail_at(q: float, near: float) -> float:
            return float(-mpmath.sqrt(2) * mpmath.findroot(
                lambda z: mpmath.erfc(z) - 2 * mpmath.mpf(q), -near / 2 ** 0.5))
        true = [tail_at(float(q), float(g)) for q, g in zip(p, got)]
    np.testing.assert_allclose(got, true, 4 * float(np.finfo(dtype).eps))


@pytest.mark.parametrize("name", ["gammainc", "gammaincc", "betainc"])
def test_each_element_of_an_incomplete_form_ends_its_own_loop(name: str) -> None:
    """The slowest of all elements does not hold up the others: lanes of one kernel loop by
    themselves."""
    a, x = np.full(1000, 2.5, "f4"), np.linspace(0.01, 0.99, 1000, dtype="f4")
    args = (a, a[::-1] + 1, x) if name == "betainc" else (a, 3 * x)
    kernels = fnx.jit(getattr(special, name)).lower(*args).kernels
    assert {k.name.split()[0] for k in kernels if k.loop} == {"map", "while_loop_body", "reduce"}
