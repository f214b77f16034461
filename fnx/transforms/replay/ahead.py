"""What the first program will need, loaded while the process waits for something else.

The compiler is half of fnx's code, and takes longer to load than most kernels to compile. While a
device is made (LLVM is loaded and compiles the loops of its queue) and while a program reads its
data, another thread has time for that. Only where no process with these sources has left its
digests on disk: else programs are likely to be there, too, and need no compiler.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from fnx.core.process import load
from fnx.core.sources import known

_COMPILER = ("fnx.lower.pipeline", "fnx.lower.program.stage_instances",
             "fnx.transforms.replay.stored", "fnx.transforms.replay.twins", "fnx.tree",
             "fnx.transforms.grad", "fnx.transforms.ad.reverse")
_begun: list[threading.Thread] = []


def begin(then: Callable[[], None]) -> None:
    """Load on a thread, once in a process; afterwards ``then`` is called there."""
    if not _begun:
        thread = threading.Thread(target=_load, args=(then,), name="fnx-ahead", daemon=True)
        _begun.append(thread)
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the process ends
            return


def _load(then: Callable[[], None]) -> None:
    if not known()[1]:
        for name in _COMPILER:
            load(name)
        then()
