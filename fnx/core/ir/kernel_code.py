"""What crosses to devices: the code of kernels, records of their runs, calls without Python code.

>>> from fnx.core.ir import dtypes
>>> kind = (2,), dtypes.float32, False
>>> call = NativeCall((kind,), (), (), (kind,), (8,), True, None, None)
>>> len(call.arguments), call.single_result
(1, True)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fnx.core.ir.cache import cached_property
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import Location
from fnx.core.support.record import Record


class KernelCode:
    """A kernel as target code, rendered only if no cache has its object.

    Attributes:
        key: digest of everything that the object depends on: kernel, target and versions.
        symbol: name of the function in the module.
        program: makes the PROGRAM to render (or the KERNEL, for a target that takes kernels).
        extents: launch parameters by name, index expressions over VARs. On the host "parallel",
            the iterations of the PAR range (1 without one), and "scratch", the bytes of scratch
            memory per worker.
        is_library_call: whether most of its time is that of a library's routines, so that its own
            lines are compiled quickly rather than well.
    """

    def __init__(self, key: Callable[[], bytes], program: Callable[[], UOp],
                 text: Callable[[str], str], extents: Mapping[str, UOp],
                 is_library_call: bool = False) -> None:
        self._key, self._text = key, text
        self.program, self.extents = program, extents
        self.is_library_call = is_library_call

    @cached_property
    def key(self) -> bytes:
        return self._key()

    @cached_property
    def symbol(self) -> str:
        return f"fnx_{self.key.hex()[:24]}"

    def text(self) -> str:
        """Return the source text of the function, the same bytes in every process."""
        return self._text(self.symbol)

    def __repr__(self) -> str:
        return f"<KernelCode {self.symbol}>"


class Chunk(Record):
    """A part of a kernel run: the index of the worker, and the start and end times."""

    worker: int
    start: int
    stop: int


class KernelRun(Record):
    """A kernel run, for profiles.

    Name and user's lines, bytes of its buffers, float operations, start and end (nanoseconds of
    ``time.monotonic_ns``), the number of its submission, the chunks of the workers (none if one
    worker ran it all), the type of most of its arithmetic (empty if it is not counted), and the
    name of the device.
    """

    name: str
    locs: tuple[Location, ...]
    nbytes: int
    flops: int
    start: int = 0
    stop: int = 0
    submission: int = 0
    chunks: tuple[Chunk, ...] = ()
    arithmetic: str = "float32"
    device: str = "cpu"


class RunTrace(Record):
    """The kernel runs of a device during a profile.

    ``lost`` counts kernels or chunks that were not recorded because there were too many;
    ``workers`` is the number of threads.
    """

    runs: list[KernelRun]
    lost: int = 0
    workers: int = 1


class MissingObjectError(LookupError):
    """No cache has the object of a kernel that is known only by its key."""


def linked_code(key: bytes) -> KernelCode:
    """Return the code of a LINKED, whose object must be in a cache."""
    def nowhere(*_: Any) -> Any:
        raise MissingObjectError(key.hex())

    return KernelCode(lambda: key, nowhere, nowhere, {})


# ---- calls without Python code ------------------------------------------------------------------


ArrayKind = Sequence[Any]  # shape, dtype, whether it is weak


class NativeCall(Record):
    """A signature whose executable is known, called with Arrays.

    ``guards`` are variables that guard the call: a cell, or a dict and a name in it, with the
    object that must be its value, and whether that is held by a weak reference. ``UNBOUND``
    stands for an unbound variable.
    """

    arguments: tuple[ArrayKind, ...]
    guards: tuple[tuple[Any, str, Any, bool], ...]
    captured: tuple[Any, ...]  # storages that follow those of the arguments
    results: tuple[ArrayKind, ...]
    sizes: tuple[int, ...]     # bytes of each result
    single_result: bool                # the result is an Array, not a tuple of Arrays
    mode: Any                  # the ``config.mode`` in which the call is valid
    hits: Any                  # an array of one word that counts calls


UNBOUND = object()
