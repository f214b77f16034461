"""Programs that run in several processes, under JAX's names, over MPI.

    mpiexec -n 4 python train.py        # fnx.distributed.initialize() is its first line

    start.py   MPI with a time limit for processes that never start; how a program ends
    mpi.py     the communicator: collectives of NumPy arrays by non-blocking MPI

All processes run the same program. What they compute together is in docs/distributed.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fnx.core.array.placement import set_localization
from fnx.core.scope import communicator
from fnx.core.support.errors import ArgumentError, DistributedError, lazy_module
from fnx.core.support.process import lazy_import
from fnx.sharding import device_registry
from fnx.sharding.propagation import commit_each

__all__ = ["initialize", "is_initialized", "shutdown"]

_local_program = lazy_import("fnx.sharding.process_programs", "local_program")
_connect = lazy_import("fnx.distributed.start", "connect")
_leave = lazy_import("fnx.distributed.start", "leave")
_is_initialized = False


def initialize(coordinator_address: str | None = None, num_processes: int | None = None,
               process_id: int | None = None, local_device_ids: Any = None,
               cluster_detection_method: str | None = None, initialization_timeout: float = 300,
               heartbeat_timeout_seconds: float = 600, shutdown_timeout_seconds: float = 300,
               coordinator_bind_address: str | None = None) -> None:
    """Join the processes that a launcher of MPI has started: call it first.

    Without a launcher the process is alone. An error that nobody catches in one process ends all.

    Args:
        coordinator_address: accepted for compatibility with JAX: MPI's launcher knows it.
        num_processes: if given, how many processes are expected.
        process_id: if given, the expected index of this process.
        local_device_ids: accepted for compatibility with JAX.
        cluster_detection_method: accepted for compatibility with JAX.
        initialization_timeout: seconds that all processes may take to come here.
        heartbeat_timeout_seconds: seconds that a process waits for the others in a collective.
        shutdown_timeout_seconds: seconds that a process waits at its end for the others' end.
        coordinator_bind_address: accepted for compatibility with JAX.

    Raises:
        RequirementError: mpi4py is not installed.
        ArgumentError: it was called before, or devices were used before.
        DistributedError: processes are missing, or there is another number of them.

    >>> is_initialized()
    False
    """
    global _is_initialized
    if _is_initialized:
        raise ArgumentError("distributed.initialize: expected to be called once, it was before",
                            hint="remove one of the calls, or ask fnx.distributed.is_initialized()")
    if device_registry.were_listed():
        raise ArgumentError("distributed.initialize: expected to be called first, devices were "
                            "used before", hint="move the call above all other calls of fnx")
    joined = _connect(initialization_timeout, heartbeat_timeout_seconds,
                     shutdown_timeout_seconds)
    for what, wanted, got in (("processes", num_processes, joined.size),
                              ("process", process_id, joined.rank)):
        if wanted is not None and wanted != got:
            raise DistributedError(f"distributed.initialize: expected {what} {wanted}, got {got}",
                                   hint=f"start it with mpiexec -n {num_processes or joined.size} "
                                        "python ..., or leave the argument out")
    device_registry.check_equal_counts(joined)
    communicator.set_for_process(joined)
    if joined.size > 1:
        set_localization(_local_program, commit_each)
    _is_initialized = True


def shutdown() -> None:
    """Wait until all processes come here, and leave them: at the end of a process it is called.

    >>> shutdown()
    """
    global _is_initialized
    if _is_initialized:
        _is_initialized = False
        _leave()
        communicator.set_for_process(None)


def is_initialized() -> bool:
    """Return whether ``initialize`` was called.

    Returns:
        A bool.

    >>> is_initialized()
    False
    """
    return _is_initialized


if not TYPE_CHECKING:  # type checkers would accept any name
    __getattr__, __dir__ = lazy_module(__name__, __all__)
