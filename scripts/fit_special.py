"""Print the Chebyshev coefficients of core/formulas/gamma.py, core/formulas/bessel.py and
lax/special_integrals.py.

    python scripts/fit_special.py

Each is the expansion of a smooth factor of a function over an interval, highest order first, as
``chebyshev`` in core/formulas/gamma.py sums it: lgamma(x) / ((x - 1)(x - 2)) over 1..3, and exp(-x)
I(x), in its own variable up to 8, and beyond in 1 / x, times sqrt(x); E1(x) over 1/2..7/4.
"""

from __future__ import annotations

from collections.abc import Callable

import mpmath

NODES = 80


def coefficients(f: Callable[[mpmath.mpf], mpmath.mpf], terms: int) -> list[mpmath.mpf]:
    """Return c[k] with f(y) = c[0] / 2 + sum of c[k] T_k(y / 2), |y| <= 2; highest order first."""
    angles = [mpmath.pi * (k + mpmath.mpf(1) / 2) / NODES for k in range(NODES)]
    values = [f(2 * mpmath.cos(a)) for a in angles]
    found = [2 * sum(v * mpmath.cos(j * a) for v, a in zip(values, angles)) / NODES
             for j in range(terms)]
    return found[::-1]


def lgamma_factor(y: mpmath.mpf) -> mpmath.mpf:
    x = 2 + y / 2
    return mpmath.loggamma(x) / ((x - 1) * (x - 2))


def bessel_near(order: int) -> Callable[[mpmath.mpf], mpmath.mpf]:
    """As a function of y = x / 2 - 2; order 1 without its factor x."""
    def f(y: mpmath.mpf) -> mpmath.mpf:
        x = 2 * y + 4
        value = mpmath.exp(-x) * mpmath.besseli(order, x)
        if order and not x:
            return mpmath.mpf(1) / 2
        return value / x if order else value
    return f


def bessel_far(order: int) -> Callable[[mpmath.mpf], mpmath.mpf]:
    """As a function of y = 32 / x - 2."""
    def f(y: mpmath.mpf) -> mpmath.mpf:
        if y <= -2:
            return 1 / mpmath.sqrt(2 * mpmath.pi)
        x = 32 / (y + 2)
        return mpmath.exp(-x) * mpmath.besseli(order, x) * mpmath.sqrt(x)
    return f


def e1_middle(y: mpmath.mpf) -> mpmath.mpf:
    return mpmath.e1(mpmath.mpf(9) / 8 + 5 * y / 16)


TABLES = {
    "LGAMMA": (lgamma_factor, 30), "I0_NEAR": (bessel_near(0), 30), "I0_FAR": (bessel_far(0), 26),
    "I1_NEAR": (bessel_near(1), 30), "I1_FAR": (bessel_far(1), 26),
    "E1_MIDDLE": (e1_middle, 33)}

if __name__ == "__main__":
    mpmath.mp.dps = 40
    for name, (f, terms) in TABLES.items():
        print(f"_{name} = (")
        for c in coefficients(f, terms):
            print(f"    {mpmath.nstr(c, 18)},")
        print(")")
