"""``FNX_VIZ=1``: one page with every function that jit links in this process.

The address is printed once, on stderr. The page lists the functions so far; at the end of the
process it is served until Ctrl-C if stderr is a terminal.
"""

from __future__ import annotations

import atexit
import contextlib
import sys

from fnx.core.process import fork_safe_lock
from fnx.transforms.view.server import Offer, Page

MAX_FUNCTIONS = 100  # each retains its graph, so later functions are not added

_lock = fork_safe_lock()
_views: list[Page] = []


def offer(found: Offer) -> None:
    """Add a function to the page."""
    with _lock:
        if not _views:
            _views.append(Page([], 0))
            atexit.register(_stay, _views[0])
            print(f"fnx: what jit makes is shown at {_views[0].url}", file=sys.stderr)
        if _views[0].size < MAX_FUNCTIONS:
            _views[0].add(found)


def _stay(view: Page) -> None:
    if sys.stderr.isatty() and view.is_served:
        print(f"fnx: {view.url} stays until Ctrl-C", file=sys.stderr)
        with contextlib.suppress(KeyboardInterrupt):
            view.wait()
