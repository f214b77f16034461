"""Progress bar of long work: one updating line on a terminal or in a notebook, else nothing.

>>> with ProgressBar("searching", 2.0) as progress:  # what doctests read is no terminal
...     progress.update_bar(0.5, "kernel 1 of 3")
"""

from __future__ import annotations

import sys
import time
from types import TracebackType

_WIDTH, _MIN_INTERVAL = 24, 0.1  # characters of the bar; seconds between lines


class ProgressBar:
    """A progress bar for work limited to ``seconds``; it is erased when its block exits.

    Args:
        title: the name of the work.
        seconds: the time limit of the work.
    """

    def __init__(self, title: str, seconds: float) -> None:
        self.title, self.seconds = title, seconds
        self._enabled = _is_interactive()
        self._length, self._last = 0, 0.0

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 traceback: TracebackType | None) -> None:
        if self._length:
            self._write("")

    def update_bar(self, spent: float, text: str) -> None:
        """Show how many seconds are spent, and the current step."""
        now = time.perf_counter()
        if self._enabled and now - self._last >= _MIN_INTERVAL:
            self._last = now
            done = min(_WIDTH, int(_WIDTH * spent / self.seconds)) if self.seconds else _WIDTH
            self._write(f"{self.title} [{'#' * done}{'.' * (_WIDTH - done)}] "
                        f"{spent:.1f} of {self.seconds:g} s: {text}")

    def _write(self, line: str) -> None:
        """Overwrite the previous line."""
        try:
            sys.stderr.write("\r" + line.ljust(self._length) + ("" if line else "\r"))
            sys.stderr.flush()
        except (OSError, ValueError):  # the reader is gone
            self._enabled = False
        self._length = len(line)


def _is_interactive() -> bool:
    """Whether stderr is a terminal, or that of a notebook."""
    try:
        return "ipykernel" in sys.modules or sys.stderr is not None and sys.stderr.isatty()
    except ValueError:  # it is closed
        return False
