"""Static indices outside of their axis: what they read and write, and how users hear of it.

As in JAX they mean what indices that are data mean: one of a read is the nearest inside, one of a
write writes nothing. It is most likely a mistake, so each line that has one warns, once.
"""

from __future__ import annotations

import warnings
from typing import Any

from fnx.core import build, dtypes
from fnx.core.array import storage
from fnx.core.config import config
from fnx.core.errors import OutOfBoundsError, OutOfBoundsWarning, user_site
from fnx.core.ops import Shape
from fnx.core.uop import UOp, current_site

_warned: dict[Any, Any] = {}  # what the module warnings remembers of lines


class OutsidePolicy:
    """What becomes of a static index outside of its axis.

    Args:
        clamp: it becomes the nearest inside; else it is data, which the mode decides about.
        happens: what happens then, for the warning; empty where the user named a mode.
    """

    __slots__ = ("_clamp", "_happens")

    def __init__(self, clamp: bool, happens: str) -> None:
        self._clamp, self._happens = clamp, happens

    def index(self, i: int, axis: int, shape: Shape) -> int | UOp:
        """The index that is used in place of i."""
        n = shape[axis]
        what = f"expected {-n} <= index < {n} on axis {axis} of shape {shape}, got {i}"
        if config.check_index or not n:
            raise OutOfBoundsError(what, hint="use an index inside the axis" if n else
                                   "test x.size first")
        if self._happens:
            site = current_site.site or user_site() or ("<unknown>", 0)
            text = f"{what}: {self._happens}, as in JAX. Use an index inside the axis, or say " \
                "what you mean with x.at[...].get(mode=...) or .set(mode=...); " \
                "fnx.config.check_index = True makes it an error"
            storage.note()
            warnings.warn_explicit(text, OutOfBoundsWarning, *site, registry=_warned)
        if self._clamp:
            return 0 if i < 0 else n - 1
        return build.const(max(min(i, 0x7FFFFFFF), -0x7FFFFFFF), dtypes.int32)


READ = OutsidePolicy(True, "the nearest element is read")
READ_CLIPPED = OutsidePolicy(True, "")
READ_FILLED = OutsidePolicy(False, "")
WRITTEN = OutsidePolicy(False, "nothing is written there")
WRITTEN_CLIPPED = OutsidePolicy(True, "")
WRITTEN_DROPPED = OutsidePolicy(False, "")
