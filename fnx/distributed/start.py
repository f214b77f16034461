"""How MPI starts, with a time limit, and how a process ends.

MPI's own start blocks until all processes call it, and mpi4py holds the interpreter's lock
meanwhile: here another thread calls it, so that Ctrl-C and the time limit work.

    an error that nobody catches    is printed, then MPI ends all processes
    a process that is killed        the launcher ends the others
    a process that ends early       says so: others that wait for it raise DistributedError
"""

from __future__ import annotations

import ctypes
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from fnx.core.scope import storage
from fnx.core.support.errors import DistributedError, RequirementError
from fnx.core.support.process import before_exit, load
from fnx.distributed.mpi import MpiCommunicator

_RANKS, _SIZES = ("PMI_RANK", "PMIX_RANK", "SLURM_PROCID"), ("PMI_SIZE", "SLURM_NTASKS")
_TIME_TO_READ = 0.2  # seconds: a launcher that is told to end all drops what it has not read
_connected: list[MpiCommunicator] = []
Hook = Callable[[type[BaseException], BaseException, TracebackType | None], Any]


def connect(start_limit: float, wait_limit: float, end_limit: float) -> MpiCommunicator:
    """Start MPI, and return the communicator of all its processes.

    Raises:
        RequirementError: mpi4py is not installed.
        DistributedError: not all processes came within the time limit: names them.
    """
    mpi = _import_mpi()
    if not mpi.Is_initialized():
        with _marked_as_started() as folder:
            _run_with_limit(mpi, start_limit, folder)
    joined = MpiCommunicator(mpi, wait_limit, end_limit)
    _connected[:] = [joined]
    if joined.size > 1:
        sys.excepthook = _ends_all_after(sys.excepthook, joined)
    before_exit(leave)
    return joined


def leave() -> None:
    """Finish the work of this process, wait until the others have come here, and end MPI."""
    if _connected:
        joined = _connected.pop()
        with suppress(Exception):  # whoever reads a result that failed gets the error
            storage.finish()
        joined.leave()


def _import_mpi() -> Any:
    try:
        package = load("mpi4py")
    except RequirementError:
        raise RequirementError("distributed.initialize: expected mpi4py, which is not installed",
                               hint="run: pip install 'fnx[distributed]'") from None
    package.rc.initialize = package.rc.finalize = False
    return load("mpi4py.MPI")


def _run_with_limit(mpi: Any, limit: float, folder: Path) -> None:
    """Call MPI's start on another thread, which does not hold the interpreter's lock."""
    done = threading.Event()
    level = ctypes.c_int()

    def begin() -> None:
        ctypes.CDLL(mpi.__file__).MPI_Init_thread(None, None, mpi.THREAD_MULTIPLE,
                                                  ctypes.byref(level))
        done.set()

    threading.Thread(target=begin, daemon=True).start()
    deadline = time.monotonic() + limit
    while not done.wait(0.05 if limit > 0.05 else limit):
        if time.monotonic() > deadline:
            raise DistributedError(
                f"distributed.initialize: expected all processes within {limit:g} s, "
                f"{_missing(folder)}",
                hint="look at the output of that process, or pass a longer "
                     "initialization_timeout=")
    if level.value < mpi.THREAD_MULTIPLE:
        raise DistributedError("distributed.initialize: expected an MPI whose functions several "
                               "threads may call (MPI_THREAD_MULTIPLE), this one does not allow it",
                               hint="load another MPI, such as the package mpich")


def _number(variables: tuple[str, ...]) -> int | None:
    return next((int(os.environ[name]) for name in variables if name in os.environ), None)


@contextmanager
def _marked_as_started() -> Iterator[Path]:
    """Leave a file with the number of this process where those of the same launcher see it."""
    folder = Path(tempfile.gettempdir()) / f"fnx-start-{os.getuid()}-{os.getppid()}"
    mark = folder / str(_number(_RANKS))
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        mark.touch()
    try:
        yield folder
    finally:
        with suppress(OSError):
            mark.unlink()
            folder.rmdir()


def _missing(folder: Path) -> str:
    """Say which processes of this machine have not started."""
    size = _number(_SIZES)
    came = {int(mark.name) for mark in folder.glob("[0-9]*")}
    missing = [rank for rank in range(size or 0) if rank not in came]
    return f"process {', '.join(map(str, missing))} of {size} has not come (as seen from this " \
        "machine)" if missing else "some have not come"


def _ends_all_after(print_error: Hook, joined: MpiCommunicator) -> Hook:
    """Return a hook that prints an error that nobody caught, then ends all processes."""
    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            print_error(kind, error, trace)
            print(f"process {joined.rank} of {joined.size} ended with this {kind.__name__}; it "
                  "ends the others", file=sys.stderr)
            sys.stdout.flush()
            sys.stderr.flush()
            time.sleep(_TIME_TO_READ)
        finally:
            if _connected:
                joined.abort()
    return hook
