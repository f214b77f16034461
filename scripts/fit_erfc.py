"""Print the Chebyshev coefficients of erfc in core/formulas/error_functions.py.

erfc(x) = t exp(-x**2 + p(y)) for x >= 0, with t = 2 / (2 + x) and y = 4t - 2 (the substitution of
Numerical Recipes, third edition, section 6.2.2). Here p is replaced by the plain ratio g(y) =
erfc(x) exp(x**2) / t, which needs no second exponential.

    python scripts/fit_erfc.py
"""

from __future__ import annotations

import mpmath

TERMS = 30


def ratio(y: mpmath.mpf) -> mpmath.mpf:
    """Return erfc(x) exp(x**2) / t at y = 4t - 2, for -2 < y <= 2."""
    t = (y + 2) / 4
    if t == 0:
        return 1 / (2 * mpmath.sqrt(mpmath.pi))
    x = 2 / t - 2
    return mpmath.erfc(x) * mpmath.exp(x * x) / t


def coefficients(n: int) -> list[mpmath.mpf]:
    """Return c[j] with ratio(y) = sum of c[j] T_j(y / 2), from the values at Chebyshev's nodes."""
    nodes = [mpmath.pi * (k + mpmath.mpf(1) / 2) / n for k in range(n)]
    values = [ratio(2 * mpmath.cos(a)) for a in nodes]
    sums = [2 * sum(v * mpmath.cos(j * a) for v, a in zip(values, nodes)) / n for j in range(n)]
    return [sums[0] / 2, *sums[1:]]


if __name__ == "__main__":
    mpmath.mp.dps = 40
    for c in coefficients(TERMS + 20)[:TERMS]:
        print(f"    {mpmath.nstr(c, 18)},")
