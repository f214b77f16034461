"""The roles of the axes in ``gather`` and ``scatter``, and what happens out of bounds.

They are params of JAX's primitives, so jaxprs have them, too.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

from fnx.core.array import arguments


class GatherScatterMode(enum.Enum):
    """How to treat windows that are out of bounds.

    CLIP moves them into the array. FILL_OR_DROP fills reads and drops writes.
    PROMISE_IN_BOUNDS asserts that there are none (reads move them into the array, writes drop
    them). ONE_HOT is the same as FILL_OR_DROP.

    Args:
        value: the value of a member.

    Raises:
        ValueError: no member has this value.

    >>> import fnx.lax as lax
    >>> lax.GatherScatterMode.from_any("clip")
    <GatherScatterMode.CLIP: 1>
    """

    CLIP = 1
    FILL_OR_DROP = 2
    PROMISE_IN_BOUNDS = 3
    ONE_HOT = 4

    @staticmethod
    def from_any(s: str | GatherScatterMode | None) -> GatherScatterMode:
        """Return the mode of this JAX name; None means FILL_OR_DROP."""
        if isinstance(s, GatherScatterMode):
            return s
        arguments.check_choice("mode", s, (*_MODE_NAMES, None))
        return GatherScatterMode.FILL_OR_DROP if s is None else _MODE_NAMES[s]


_MODE_NAMES = {"clip": GatherScatterMode.CLIP, "fill": GatherScatterMode.FILL_OR_DROP,
               "drop": GatherScatterMode.FILL_OR_DROP,
               "promise_in_bounds": GatherScatterMode.PROMISE_IN_BOUNDS,
               "one_hot": GatherScatterMode.ONE_HOT}


class GatherDimensionNumbers(NamedTuple):
    """The roles of the axes of the operands and of the result of ``gather``.

    Args:
        offset_dims: the window axes of the result.
        collapsed_slice_dims: axes of the operand along which windows have size 1; they are
            removed.
        start_index_map: the axis of the operand for each component of an index vector.
        operand_batching_dims: batch axes of the operand, paired with those of the indices.
        start_indices_batching_dims: the batch axes of the indices.

    >>> import fnx.lax as lax
    >>> lax.GatherDimensionNumbers((1,), (0,), (0,)).start_index_map
    (0,)
    """

    offset_dims: Sequence[int]
    collapsed_slice_dims: Sequence[int]
    start_index_map: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    start_indices_batching_dims: Sequence[int] = ()


class ScatterDimensionNumbers(NamedTuple):
    """The roles of the axes of the operands of ``scatter``.

    Args:
        update_window_dims: the window axes of the updates.
        inserted_window_dims: axes of the operand along which windows have size 1.
        scatter_dims_to_operand_dims: the axis of the operand for each component of an index
            vector.
        operand_batching_dims: batch axes of the operand, paired with those of the indices.
        scatter_indices_batching_dims: the batch axes of the indices.

    >>> import fnx.lax as lax
    >>> lax.ScatterDimensionNumbers((), (0,), (0,)).inserted_window_dims
    (0,)
    """

    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()
