"""KernelCode: what lowering hands to a device that compiles kernels."""

from __future__ import annotations

import time
from collections.abc import Callable

from fnx.core.uop import UOp

LOADED = time.time()  # when fnx was imported: sources that are newer are not those that run


class KernelCode:
    """A kernel as code, printed only where its object is in no cache.

    Attributes:
        symbol: name of the function in the module.
        key: digest of all that the object depends on: kernel, target and versions.
        program: makes the PROGRAM that is printed, for reading.
        text: prints the LLVM IR; the same bytes in every process.
        parallel: iterations of the PAR range (1 without one), an index expression over VARs.
        scratch: bytes of memory that each worker needs for itself, likewise.
    """

    __slots__ = ("key", "parallel", "program", "scratch", "symbol", "text")

    def __init__(self, symbol: str, key: bytes, program: Callable[[], UOp],
                 text: Callable[[], str], parallel: UOp, scratch: UOp) -> None:
        self.symbol, self.key, self.program, self.text = symbol, key, program, text
        self.parallel, self.scratch = parallel, scratch

    def __repr__(self) -> str:
        return f"<KernelCode {self.symbol}>"
