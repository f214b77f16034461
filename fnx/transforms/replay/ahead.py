"""Preloading of the compiler on a thread, while the process waits for something else.

The compiler is half of fnx's code, and takes longer to load than most kernels to compile. A thread
loads it while a device is created (LLVM is loaded and compiles the loops of the queue) and while
the program reads its data. This is done only if no earlier process with these sources left its
digests on disk: otherwise its programs are probably cached, too, and need no compiler.
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
    """Start loading on a thread, once for each process, which then calls ``then``."""
    if not _begun:
        thread = threading.Thread(target=_load, args=(then,), name="fnx-ahead", daemon=True)
        _begun.append(thread)
        try:
            thread.start()
        except RuntimeError:  # out of threads, or the process is exiting
            return


def _load(then: Callable[[], None]) -> None:
    if not known()[1]:
        for name in _COMPILER:
            load(name)
        then()
