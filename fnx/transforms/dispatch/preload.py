"""Preloading of the compiler on a thread, while the process waits for something else.

The compiler is half of fnx's code, and takes longer to load than most kernels to compile. A thread
loads it while a device is created (LLVM is loaded and compiles the loops of the queue) and while
the program reads its data. This is done only if no earlier process with these sources left its
digests on disk: otherwise its programs are probably cached, too, and need no compiler.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from fnx.core.support.process import load
from fnx.core.support.source_digests import package_digests

_COMPILER_MODULES = ("fnx.lower.pipeline", "fnx.lower.emit.privatize_stages",
                     "fnx.transforms.dispatch.program_cache",
                     "fnx.tree", "fnx.transforms.grad", "fnx.transforms.autodiff.reverse")
_threads: list[threading.Thread] = []


def preload_compiler(on_loaded: Callable[[], None]) -> None:
    """Start loading on a thread, once for each process, which then calls ``on_loaded``."""
    if not _threads:
        thread = threading.Thread(target=_load, args=(on_loaded,), name="fnx-ahead", daemon=True)
        _threads.append(thread)
        try:
            thread.start()
        except RuntimeError:  # out of threads, or the process is exiting
            return


def _load(on_loaded: Callable[[], None]) -> None:
    if not package_digests()[1]:
        for name in _COMPILER_MODULES:
            load(name)
        on_loaded()
