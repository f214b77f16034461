"""Derive the polynomials of fnx/lower/legalize/elementary, or check the ones in use.

    python scripts/fit_polynomials.py            # print the table
    python scripts/fit_polynomials.py --check    # exit 1 unless the table still has its bounds

Each row names a function g that a polynomial P approximates, the interval, and a weight w: P
minimizes max |w(t) (P(t) - g(t))|, found by the Remez exchange in 60 digits. w is chosen so that
this is the relative error of the whole function. The bound is checked again after rounding the
coefficients to the element type.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
from mpmath import mp, mpf

mp.dps = 60
Real = Any
Function = Callable[[Real], Real]


@dataclass(frozen=True)
class Fit:
    """One polynomial: name, element type, degree, interval, the function and its weight.

    ``bound`` is the largest weighted error, in bits, that the rounded coefficients may have.
    """

    name: str
    dtype: type
    degree: int
    interval: tuple[float, float]
    g: Function
    weight: Function
    bound: float


def _log1p_tail(f: Real) -> Real:
    """Return (log(1 + f) - f + f**2 / 2) / f**3, by its series near 0."""
    if abs(f) < mpf(2) ** -20:
        return sum((-1) ** k * f ** k / (k + 3) for k in range(8))
    return (mpmath.log1p(f) - f + f * f / 2) / f ** 3


def _expm1_tail(r: Real) -> Real:
    """(exp(r) - 1 - r) / r**2"""
    if abs(r) < mpf(2) ** -20:
        return sum(r ** k / mpmath.factorial(k + 2) for k in range(8))
    return (mpmath.expm1(r) - r) / r ** 2


def _atanh_tail(z: Real, terms: int) -> Real:
    """Return atanh(s) = s + s**3/3 + ... without the first ``terms`` terms, over s**(2 terms +
    1)."""
    if z < mpf(2) ** -20:
        return sum(z ** k / (2 * (k + terms) + 1) for k in range(10))
    s = mpmath.sqrt(z)
    known = sum(s ** (2 * k + 1) / (2 * k + 1) for k in range(terms))
    return (mpmath.atanh(s) - known) / s ** (2 * terms + 1)


def _sin_tail(z: Real) -> Real:
    """(sin(r) - r) / r**3 with z = r**2"""
    return sum((-1) ** (k + 1) * z ** k / mpmath.factorial(2 * k + 3) for k in range(18))


def _cos_tail(z: Real) -> Real:
    """(cos(r) - 1 + r**2 / 2) / r**4 with z = r**2"""
    return sum((-1) ** k * z ** k / mpmath.factorial(2 * k + 4) for k in range(18))


def _atan_tail(z: Real) -> Real:
    """(atan(t) - t) / t**3 with z = t**2"""
    if z < mpf(2) ** -20:
        return sum((-1) ** (k + 1) * z ** k / (2 * k + 3) for k in range(10))
    t = mpmath.sqrt(z)
    return (mpmath.atan(t) - t) / t ** 3


def _tan_tail(z: Real) -> Real:
    """(tan(r) - r) / r**3 with z = r**2"""
    if z < mpf(2) ** -20:
        return mpf(1) / 3 + 2 * z / 15 + 17 * z ** 2 / 315 + 62 * z ** 3 / 2835
    r = mpmath.sqrt(z)
    return (mpmath.tan(r) - r) / r ** 3


def _asin_tail(z: Real) -> Real:
    """(asin(t) - t) / t**3 with z = t**2"""
    if z < mpf(2) ** -20:
        return mpf(1) / 6 + 3 * z / 40 + 15 * z ** 2 / 336 + 105 * z ** 3 / 3456
    t = mpmath.sqrt(z)
    return (mpmath.asin(t) - t) / t ** 3


def _tanh_tail(z: Real) -> Real:
    """(tanh(x) - x) / x**3 with z = x**2"""
    if z < mpf(2) ** -24:
        return mpf(-1) / 3 + 2 * z / 15 - 17 * z ** 2 / 315 + 62 * z ** 3 / 2835
    x = mpmath.sqrt(z)
    return (mpmath.tanh(x) - x) / x ** 3


def _erf_tail(z: Real) -> Real:
    """erf(x) / x - 1 with z = x**2"""
    x = mpmath.sqrt(z)
    return (mpmath.erf(x) / x if z else 2 / mpmath.sqrt(mpmath.pi)) - 1


def _erfc_log(t: Real) -> Real:
    """log(erfc(t)) / t + 1"""
    return mpmath.log(mpmath.erfc(t)) / t + 1


def _exp2_tail(f: Real) -> Real:
    """(2**f - 1) / f"""
    if abs(f) < mpf(2) ** -20:
        c = mpmath.log(2)
        return sum(c ** (k + 1) * f ** k / mpmath.factorial(k + 1) for k in range(8))
    return mpmath.expm1(f * mpmath.log(2)) / f


_HALF_LN2 = 0.3475      # half of log(2), and a margin for the rounding of the quotient
_LOG = (2 ** -0.5 - 1 - 1e-6, 2 ** 0.5 - 1 + 1e-6)
_ATANH = (0.0, 0.02945)  # ((sqrt(2) - 1) / (sqrt(2) + 1))**2
_OCTANT = (0.0, 0.6170)  # (pi / 4)**2
_TANH = (0.0, 0.3025)    # 0.55**2

FITS = (
    Fit("EXP_32", np.float32, 4, (-_HALF_LN2, _HALF_LN2), _expm1_tail,
        lambda r: r ** 2 + mpf(2) ** -9, -27),
    Fit("EXPM1_32", np.float32, 5, (-_HALF_LN2, _HALF_LN2), _expm1_tail,
        lambda r: abs(r) + mpf(2) ** -9, -28),
    Fit("EXPM1_64", np.float64, 10, (-_HALF_LN2, _HALF_LN2), _expm1_tail,
        lambda r: abs(r) + mpf(2) ** -20, -56),
    Fit("EXP2_32", np.float32, 6, (-0.5, 0.5), _exp2_tail, lambda f: abs(f) + mpf(2) ** -9, -28),
    Fit("LOG_32", np.float32, 7, _LOG, _log1p_tail, lambda f: f ** 2 + mpf(2) ** -9, -26.5),
    Fit("ATANH_64", np.float64, 6, _ATANH, lambda z: _atanh_tail(z, 1),
        lambda z: z + mpf(2) ** -20, -58),
    Fit("SIN_32", np.float32, 2, _OCTANT, _sin_tail, lambda z: z + mpf(2) ** -9, -26),
    Fit("COS_32", np.float32, 2, _OCTANT, _cos_tail, lambda z: z ** 2 + mpf(2) ** -9, -26),
    Fit("SIN_64", np.float64, 5, _OCTANT, _sin_tail, lambda z: z + mpf(2) ** -20, -57),
    Fit("COS_64", np.float64, 5, _OCTANT, _cos_tail, lambda z: z ** 2 + mpf(2) ** -20, -57),
    Fit("TAN_32", np.float32, 6, _OCTANT, _tan_tail, lambda z: z + mpf(2) ** -9, -26.5),
    Fit("TAN_64", np.float64, 14, _OCTANT, _tan_tail, lambda z: z + mpf(2) ** -20, -55),
    Fit("ATAN_32", np.float32, 5, (0.0, 0.25), _atan_tail, lambda z: z + mpf(2) ** -9, -29),
    Fit("ATAN_64", np.float64, 11, (0.0, 0.25), _atan_tail, lambda z: z + mpf(2) ** -20, -57),
    Fit("ASIN_32", np.float32, 4, (0.0, 0.25), _asin_tail, lambda z: z + mpf(2) ** -9, -27),
    Fit("ASIN_64", np.float64, 12, (0.0, 0.25), _asin_tail, lambda z: z + mpf(2) ** -20, -57),
    Fit("TANH_32", np.float32, 4, _TANH, _tanh_tail, lambda z: z + mpf(2) ** -9, -26.5),
    Fit("TANH_64", np.float64, 10, _TANH, _tanh_tail, lambda z: z + mpf(2) ** -20, -57),
    Fit("ERF_32", np.float32, 5, (0.0, 0.7657), _erf_tail, lambda z: mpf(1), -25.5),
    Fit("ERFC_LOG_32", np.float32, 6, (0.875, 4.0), _erfc_log,
        lambda t: t * mpmath.erfc(t) / mpmath.erf(t) + mpf(2) ** -24, -26.5),
    Fit("POW_LOG_32", np.float64, 3, _ATANH, lambda z: _atanh_tail(z, 1),
        lambda z: z + mpf(2) ** -20, -36),
    Fit("POW_EXP2_32", np.float64, 6, (-0.5001, 0.5001), _exp2_tail,
        lambda f: abs(f) + mpf(2) ** -20, -34),
    Fit("POW_LOG_64", np.float64, 8, _ATANH, lambda z: _atanh_tail(z, 2),
        lambda z: z ** 2 + mpf(2) ** -30, -66),
    Fit("POW_EXP2_64", np.float64, 11, (-0.5001, 0.5001), _exp2_tail,
        lambda f: abs(f) + mpf(2) ** -20, -56),
)


def remez(fit: Fit) -> list[Real]:
    """Return the coefficients, the constant first, that minimize the weighted error."""
    a, b = (mpf(x) for x in fit.interval)
    n = fit.degree + 1
    nodes = [(a + b) / 2 - (b - a) / 2 * mpmath.cos(mpmath.pi * i / n) for i in range(n + 1)]
    grid = [a + (b - a) * i / 1500 for i in range(1501)]
    values = [fit.g(t) for t in grid]
    weights = [fit.weight(t) for t in grid]
    coefficients: list[Real] = []
    for _ in range(12):
        rows = [[t ** k for k in range(n)] + [(-1) ** i / fit.weight(t)]
                for i, t in enumerate(nodes)]
        solved = mpmath.lu_solve(mpmath.matrix(rows), mpmath.matrix([fit.g(t) for t in nodes]))
        coefficients = list(solved[:n])
        errors = [w * (horner(coefficients, t) - v) for t, v, w in zip(grid, values, weights)]
        nodes = _alternating_extremes(grid, errors, n + 1)
        if max(abs(e) for e in errors) < abs(solved[n]) * mpf("1.001"):
            break
    return coefficients


def _alternating_extremes(grid: list[Real], errors: list[Real], count: int) -> list[Real]:
    """Return the ``count`` largest errors of alternating sign, one for each run of equal sign."""
    runs: list[tuple[Real, Real]] = []
    for t, e in zip(grid, errors):
        if e == 0:
            continue
        if runs and (runs[-1][1] > 0) == (e > 0):
            if abs(e) > abs(runs[-1][1]):
                runs[-1] = (t, e)
        else:
            runs.append((t, e))
    while len(runs) > count:
        runs.pop(0 if abs(runs[0][1]) < abs(runs[-1][1]) else -1)
    if len(runs) < count:
        raise ArithmeticError(f"expected {count} alternations, got {len(runs)}")
    return [t for t, _ in runs]


def horner(coefficients: Sequence[Real], t: Real) -> Real:
    """Return the value of sum c[k] t**k."""
    out = mpf(0)
    for c in reversed(coefficients):
        out = out * t + c
    return out


def rounded(fit: Fit) -> list[float]:
    """Return the fit with coefficients of its element type, c[0] first."""
    return [float(fit.dtype(float(c))) for c in remez(fit)]


def error_bits(fit: Fit, coefficients: Sequence[float], count: int = 3000) -> float:
    """Return log2 of the largest weighted error at so many points."""
    a, b = (mpf(x) for x in fit.interval)
    exact = [mpf(c) for c in coefficients]
    points = (a + (b - a) * i / count for i in range(count + 1))
    worst = max(fit.weight(t) * abs(horner(exact, t) - fit.g(t)) for t in points)
    return float(mpmath.log(worst, 2))


def held() -> dict[str, Any]:
    """Return the constants in the package."""
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
    from fnx.core.formulas import error_functions
    from fnx.lower.legalize.elementary import exponential, floats, logarithm, power, trigonometric
    return {name: value
            for room in (error_functions, exponential, floats, logarithm, power, trigonometric)
            for name, value in vars(room).items() if name.isupper()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="verify the table in the package")
    parser.add_argument("only", nargs="*", help="names of rows")
    args = parser.parse_args()
    table = held() if args.check else {}
    bad = 0
    for fit in FITS:
        if args.only and fit.name not in args.only:
            continue
        c = list(table[fit.name]) if args.check else rounded(fit)
        bits = error_bits(fit, c)
        bad += bits > fit.bound
        if args.check:
            print(f"{fit.name:14} 2**{bits:.2f} (bound 2**{fit.bound})")
        else:
            body = "\n".join(f"    {x!r}," for x in c)
            print(f"# max weighted error 2**{bits:.2f}\n{fit.name} = (\n{body}\n)")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
