"""Shapes of reshapes that only insert axes."""

from __future__ import annotations

from collections.abc import Sequence


def inserted_axes(shape: Sequence[int], wide: Sequence[int]) -> list[int] | None:
    """Return the axes of length 1 to insert into ``shape`` to get ``wide``, or None.

    >>> inserted_axes((3,), (1, 3)), inserted_axes((3,), (3, 1)), inserted_axes((4,), (2, 2))
    ([0], [1], None)
    """
    axes, k = [], 0
    for i, n in enumerate(wide):
        if k < len(shape) and shape[k] == n and len(wide) - i > 0 and \
                (n != 1 or len(wide) - i <= len(shape) - k):
            k += 1
        elif n == 1:
            axes.append(i)
        else:
            return None
    return axes if k == len(shape) and axes else None
