"""``FNX_VIZ=1``: one page with every function that jit links in this process.

The address is printed once, on stderr. The page lists the functions so far; at the end of the
process it is served until Ctrl-C if stderr is a terminal.
"""

from __future__ import annotations

import sys

from fnx.core.support.process import fork_safe_lock
from fnx.transforms.page.server import Page, PageEntry, keep_at_exit

MAX_FUNCTIONS = 100  # each retains its graph, so later functions are not added

_lock = fork_safe_lock()
_pages: list[Page] = []


def add_function(entry: PageEntry) -> None:
    """Add a function to the page."""
    with _lock:
        if not _pages:
            _pages.append(Page([], 0))
            keep_at_exit(_pages[0])
            print(f"fnx: what jit makes is shown at {_pages[0].url}", file=sys.stderr)
        if _pages[0].size < MAX_FUNCTIONS:
            _pages[0].add(entry)
