"""Which devices hold which part of an array, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.core.support.errors import ShapeError
from fnx.sharding.named_sharding import Sharding

__all__ = ["sharding_picture"]


def sharding_picture(shape: Sequence[int], sharding: Sharding, min_width: int = 0) -> str:
    """Return a table with a cell for each part of an array of one or two axes.

    Args:
        shape: the shape of the array.
        sharding: its sharding.
        min_width: the least number of characters in a cell.

    Raises:
        ShapeError: an array of another number of axes.

    >>> import fnx
    >>> print(sharding_picture((4,), fnx.numpy.ones(4).sharding))
    +-----+
    |CPU 0|
    +-----+
    """
    if len(shape) not in (1, 2):
        raise ShapeError(f"expected an array of 1 or 2 axes, got shape {tuple(shape)}",
                         hint="reshape it, or print x.sharding")
    cells: dict[tuple[int, ...], list[Any]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        starts = tuple([s.start or 0 for s in index])
        cells.setdefault((0, *starts)[-2:], []).append(device)
    rows, columns = [sorted({start[axis] for start in cells}) for axis in (0, 1)]
    texts = [[f"{holders[0].platform.upper()} {','.join([str(d.id) for d in holders])}"
              for column in columns if (holders := cells[row, column])] for row in rows]
    width = max(min_width, *[len(text) for line in texts for text in line])
    border = "+".join(["", *["-" * width] * len(columns), ""])
    lines = ["|".join(["", *[text.center(width) for text in line], ""]) for line in texts]
    return "\n".join([border, f"\n{border}\n".join(lines), border])
