"""Traceback filtering: frames of fnx are removed from an error that leaves it.

Internal frames do not help to find a mistake in user code. ``config.tracebacks = "all"``, or
``FNX_TRACEBACKS=all``, shows them.
"""

from __future__ import annotations

from types import FrameType, TracebackType

from fnx.core.support.config import config
from fnx.core.support.errors import PACKAGE


def filter_traceback(error: BaseException) -> None:
    """Remove fnx's frames from a traceback, before a public function re-raises the error.

    The frame of that function is added by the raise, and so remains.

    >>> def inside():
    ...     raise ValueError("no")
    >>> inside.__code__ = inside.__code__.replace(co_filename=PACKAGE + "a.py")
    >>> def border():
    ...     try:
    ...         inside()
    ...     except ValueError as error:
    ...         filter_traceback(error)
    ...         raise
    >>> try:
    ...     border()
    ... except ValueError as error:
    ...     print(_frame_names(error.__traceback__))
    ['<module>', 'border']
    """
    if config.tracebacks == "all":
        return
    frames, tb = [], error.__traceback__
    while tb is not None:
        if not _is_internal(tb.tb_frame):
            frames.append(tb)
        tb = tb.tb_next
    chained: TracebackType | None = None
    for tb in reversed(frames):
        chained = TracebackType(chained, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
    error.__traceback__ = chained


def _is_internal(frame: FrameType) -> bool:
    """Return whether a frame belongs to fnx, or to code that fnx generated."""
    return frame.f_code.co_filename.startswith((PACKAGE, "<fnx"))


def _frame_names(tb: TracebackType | None) -> list[str]:
    out = []
    while tb is not None:
        out.append(tb.tb_frame.f_code.co_name)
        tb = tb.tb_next
    return out
