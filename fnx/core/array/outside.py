"""Out-of-bounds static indices: what they read and write, and the warning they give.

As in JAX they behave like traced indices: a read takes the nearest element, a write does nothing.
Most likely it is a mistake, so each source line that has one warns once.
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

_warned: dict[Any, Any] = {}  # the registry of the module warnings: lines that warned


class OutsidePolicy:
    """How an out-of-bounds static index is handled.

    Args:
        clamp: clamp it to the nearest index; else pass it on as data, for the mode to handle.
        happens: what the warning says happens; empty (no warning) if the user named a mode.
        alone: clamp only if the index has no index arrays. With index arrays it becomes one of
            them, and out-of-bounds elements are read as constants.
    """

    __slots__ = ("_clamp", "_happens", "_alone")

    def __init__(self, clamp: bool, happens: str, alone: bool = False) -> None:
        self._clamp, self._happens, self._alone = clamp, happens, alone

    def index(self, i: int, axis: int, shape: Shape, beside_arrays: bool) -> int | UOp:
        """Return the index to use in place of i."""
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
