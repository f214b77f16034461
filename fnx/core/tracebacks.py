"""Tracebacks show the user's frames: those of fnx are left out of an error that leaves it.

What fnx does between a user's call and a user's function, or the place where an error is made, says
nothing to who made a mistake. ``config.tracebacks = "all"``, or ``FNX_TRACEBACKS=all``, shows it.
"""

from __future__ import annotations

from types import FrameType, TracebackType

from fnx.core.config import config
from fnx.core.errors import PACKAGE


def shorten(error: BaseException) -> None:
    """Before a function at the border raises an error again: of fnx's frames only that one stays.

    >>> def inside():
    ...     raise ValueError("no")
    >>> inside.__code__ = inside.__code__.replace(co_filename=PACKAGE + "a.py")
    >>> def border():
    ...     try:
    ...         inside()
    ...     except ValueError as error:
    ...         shorten(error)
    ...         raise
    >>> try:
    ...     border()
    ... except ValueError as error:
    ...     print(_names(error.__traceback__))
    ['<module>', 'border']
    """
    if config.tracebacks == "all":
        return
    kept, tb = [], error.__traceback__
    while tb is not None:
        if not _own(tb.tb_frame):
            kept.append(tb)
        tb = tb.tb_next
    found: TracebackType | None = None
    for tb in reversed(kept):
        found = TracebackType(found, tb.tb_frame, tb.tb_lasti, tb.tb_lineno)
    error.__traceback__ = found


def _own(frame: FrameType) -> bool:
    """Whether a frame is one of fnx, or of code that fnx wrote."""
    return frame.f_code.co_filename.startswith((PACKAGE, "<fnx"))


def _names(tb: TracebackType | None) -> list[str]:
    out = []
    while tb is not None:
        out.append(tb.tb_frame.f_code.co_name)
        tb = tb.tb_next
    return out
