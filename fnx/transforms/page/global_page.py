"""``FNX_VIZ=1``: one page with every function that jit links in this process.

The address is printed once, on stderr. The page lists the functions so far; at the end of the
process it is served until Ctrl-C if stderr is a terminal.
"""

from __future__ import annotations

import atexit
import contextlib
import sys

from fnx.core.support.process import fork_safe_lock
from fnx.transforms.page.server import Page, PageEntry

MAX_FUNCTIONS = 100  # each retains its graph, so later functions are not added

_lock = fork_safe_lock()
_pages: list[Page] = []


def add_function(entry: PageEntry) -> None:
    """Add a function to the page."""
    with _lock:
        if not _pages:
            _pages.append(Page([], 0))
            atexit.register(_serve_until_interrupt, _pages[0])
            print(f"fnx: what jit makes is shown at {_pages[0].url}", file=sys.stderr)
        if _pages[0].size < MAX_FUNCTIONS:
            _pages[0].add(entry)


def _serve_until_interrupt(page: Page) -> None:
    if sys.stderr.isatty() and page.is_served:
        print(f"fnx: {page.url} stays until Ctrl-C", file=sys.stderr)
        with contextlib.suppress(KeyboardInterrupt):
            page.wait()
