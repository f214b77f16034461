"""Intervals of integers, as (smallest, largest).

>>> times((-1, 2), (3, 4)), hull((0, 1), (5, 9))
((-4, 8), (0, 9))
"""

from __future__ import annotations

Bounds = tuple[int, int]


def times(a: Bounds, b: Bounds) -> Bounds:
    """What a product may be."""
    corners = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return min(corners), max(corners)


def hull(*parts: Bounds) -> Bounds:
    """All that one of several may be."""
    return min(p[0] for p in parts), max(p[1] for p in parts)
