"""Interval arithmetic of integers, as (smallest, largest).

>>> interval_product((-1, 2), (3, 4)), hull((0, 1), (5, 9))
((-4, 8), (0, 9))
>>> quotient((-5, 9), (2, 3)), remainder((-5, 9), (2, 3))
((-2, 4), (-2, 2))
"""

from __future__ import annotations

from fnx.core.rewriting.evaluate import trunc

Bounds = tuple[int, int]


def interval_product(a: Bounds, b: Bounds) -> Bounds:
    """Return the interval of a product."""
    corners = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return min(corners), max(corners)


def hull(*parts: Bounds) -> Bounds:
    """Return the smallest interval that contains several."""
    return min(p[0] for p in parts), max(p[1] for p in parts)


def quotient(a: Bounds, b: Bounds) -> Bounds:
    """Return the interval of a quotient, rounded toward zero."""
    if b[0] < 0:
        biggest = max(abs(a[0]), abs(a[1]), 1)
        return -biggest, biggest
    corners = [trunc(n, d) for n in a for d in (max(b[0], 1), max(b[1], 1))]
    return min(corners), max(corners)


def remainder(a: Bounds, b: Bounds) -> Bounds:
    """Return the interval of the remainder of such a division."""
    largest = max(abs(b[0]), abs(b[1]), 1) - 1
    return max(min(a[0], 0), -largest), min(max(a[1], 0), largest)
