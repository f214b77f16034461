"""Static indices outside of their axis: what they read and write, and how users hear of it.

As in JAX they mean what indices that are data mean: one of a read is the nearest inside, one of a
write writes nothing. It is most likely a mistake, so each line that has one warns, once.
"""

from __future__ import annotations

import warnings
from typing import Any

from fnx.core import build
from fnx.core.array import storage
from fnx.core.config import config
from fnx.core.errors import OutOfBoundsError, OutOfBoundsWarning, user_site
from fnx.core.index_arrays import index_type
from fnx.core.ops import Shape
from fnx.core.uop import UOp, current_site

_warned: dict[Any, Any] = {}  # what the module warnings remembers of lines


class OutsidePolicy:
    """What becomes of a static index outside of its axis.

    Args:
        clamp: it becomes the nearest inside; else it is data, which the mode decides about.
        happens: what happens then, for the warning; empty where the user named a mode.
        alone: it only does so where no array is beside it: with one it is among arrays, of which
            what is outside is read as a constant.
    """

    __slots__ = ("_clamp", "_happens", "_alone")

    def __init__(self, clamp: bool, happens: str, alone: bool = False) -> None:
        self._clamp, self._happens, self._alone = clamp, happens, alone

    def index(self, i: int, axis: int, shape: Shape, beside_arrays: bool) -> int | UOp:
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
        if self._clamp and not (self._alone and beside_arrays):
            return 0 if i < 0 else n - 1
        t = index_type(n)
        return build.const(max(min(i, t.limits[1]), -t.limits[1]), t)


READ = OutsidePolicy(True, "the nearest element is read", alone=True)
READ_PROMISED = OutsidePolicy(True, "", alone=True)
READ_CLIPPED = OutsidePolicy(True, "")
READ_FILLED = OutsidePolicy(False, "")
WRITTEN = OutsidePolicy(False, "nothing is written there")
WRITTEN_CLIPPED = OutsidePolicy(True, "")
WRITTEN_DROPPED = OutsidePolicy(False, "")
