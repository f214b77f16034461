"""KernelCode: what lowering hands to a device that compiles kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fnx.core.cache import cached
from fnx.core.errors import Site
from fnx.core.record import Record
from fnx.core.uop import UOp


class KernelCode:
    """A kernel as code of its target, printed only where its object is in no cache.

    Attributes:
        key: digest of all that the object depends on: kernel, target and versions.
        symbol: name of the function in the module.
        program: makes the PROGRAM that is printed (the KERNEL of a target that takes those).
        extents: what the device must know to start it, index expressions over VARs. On the
            host "parallel", iterations of the PAR range (1 without one), and "scratch", bytes
            of memory that each worker needs for itself.
    """

    def __init__(self, key: Callable[[], bytes], program: Callable[[], UOp],
                 text: Callable[[str], str], extents: Mapping[str, UOp]) -> None:
        self._key, self._text = key, text
        self.program, self.extents = program, extents

    @cached
    def key(self) -> bytes:
        return self._key()

    @cached
    def symbol(self) -> str:
        return f"fnx_{self.key.hex()[:24]}"

    def text(self) -> str:
        """The text that defines the function, the same bytes in every process."""
        return self._text(self.symbol)

    def __repr__(self) -> str:
        return f"<KernelCode {self.symbol}>"


class Chunk(Record):
    """A part of a kernel: the number of the worker that ran it, when it began and ended."""

    worker: int
    start: int
    stop: int


class KernelRun(Record):
    """A kernel that ran: its name and the user's lines, bytes of its buffers and arithmetic of
    floats, when it began and ended (nanoseconds of ``time.monotonic_ns``), the number of the
    submission that it was part of, what each worker did of it (nothing where one ran it whole),
    the type of most of its arithmetic, and the name of the device."""

    name: str
    sites: tuple[Site, ...]
    nbytes: int
    flops: int
    start: int = 0
    stop: int = 0
    submission: int = 0
    chunks: tuple[Chunk, ...] = ()
    arithmetic: str = "float32"
    device: str = "cpu"


class Recorded(Record):
    """What a device did in a time: ``lost`` kernels, or parts of them, ran besides and were too
    many to note; ``workers`` threads were there."""

    runs: list[KernelRun]
    lost: int = 0
    workers: int = 1


class MissingObjectError(LookupError):
    """The object of a kernel of which nothing else is known is in no cache."""


def known_by_key(key: bytes) -> KernelCode:
    """The code of a LINKED: it is in a cache, or nowhere."""
    def nowhere(*_: Any) -> Any:
        raise MissingObjectError(key.hex())

    return KernelCode(lambda: key, nowhere, nowhere, {})
