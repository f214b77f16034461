"""Out-of-bounds static indices: what they read and write, and the warning they give.

As in JAX they behave like traced indices: a read takes the nearest element, a write does nothing.
Most likely it is a mistake, so each source line that has one warns once.
"""

from __future__ import annotations

from typing import Any

from fnx.core.ir import build
from fnx.core.ir.index_arrays import index_dtype
from fnx.core.ir.ops import Shape
from fnx.core.ir.uop import UOp, current_loc
from fnx.core.scope import scope, storage
from fnx.core.support.config import config
from fnx.core.support.errors import OutOfBoundsError, OutOfBoundsWarning, warn

_warning_registry: dict[Any, Any] = {}  # the registry of the module warnings: lines that warned


class OutOfBoundsPolicy:
    """How an out-of-bounds static index is handled.

    Args:
        clamp: clamp it to the nearest index; else pass it on as data, for the mode to handle.
        warning_text: what the warning says happens; empty (no warning) if the user named a mode.
        only_without_arrays: clamp only if the index has no index arrays. With index arrays it
            becomes one of them, and out-of-bounds elements are read as constants.
    """

    __slots__ = ("_clamp", "_warning_text", "_only_without_arrays")

    def __init__(self, clamp: bool, warning_text: str, only_without_arrays: bool = False) -> None:
        self._clamp, self._warning_text = clamp, warning_text
        self._only_without_arrays = only_without_arrays

    def index(self, i: int, axis: int, shape: Shape, has_arrays: bool) -> int | UOp:
        """Return the index to use in place of i."""
        n = shape[axis]
        message = f"expected {-n} <= index < {n} on axis {axis} of shape {shape}, got {i}"
        if config.check_index or not n:
            raise OutOfBoundsError(message, hint="use an index inside the axis" if n else
                                   "check x.size first")
        for watcher in scope.thread_state.watchers[::-1]:
            watcher.on_static_index(i, axis, shape)
        if self._warning_text:
            text = f"{message}: {self._warning_text}, as in JAX. Use an index inside the axis, " \
                "or say what you mean with x.at[...].get(mode=...) or .set(mode=...); " \
                "fnx.config.check_index = True makes it an error"
            storage.mark_impure()
            warn(text, OutOfBoundsWarning, current_loc.loc, _warning_registry)
        if self._clamp and not (self._only_without_arrays and has_arrays):
            return 0 if i < 0 else n - 1
        t = index_dtype(n)
        return build.const(max(min(i, t.limits[1]), -t.limits[1]), t)


READ_DEFAULT = OutOfBoundsPolicy(True, "the nearest element is read", only_without_arrays=True)
READ_PROMISE = OutOfBoundsPolicy(True, "", only_without_arrays=True)
READ_CLIP = OutOfBoundsPolicy(True, "")
READ_FILL = OutOfBoundsPolicy(False, "")
WRITE_DEFAULT = OutOfBoundsPolicy(False, "nothing is written there")
WRITE_CLIP = OutOfBoundsPolicy(True, "")
WRITE_DROP = OutOfBoundsPolicy(False, "")
