"""Arrays in the bytes of a file: the checks common to all formats before an array is made."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fnx.core.ir import dtypes
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.ir.ops import Shape
from fnx.core.support.record import Record
from fnx.saving.files import MappedFile

MAX_DIMENSIONS = 64  # as many as NumPy supports


class FileSegment(Record):
    """An array in a file: its elements are bytes start..stop."""

    name: str
    dtype: DType
    shape: Shape
    start: int
    stop: int
    column_major: bool = False  # column-major: the last axis varies slowest

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


def flat_bytes(value: NDArray) -> Any:
    """Return the bytes of a row-major array."""
    data: Any = value.reshape(-1).view(np.uint8)
    return memoryview(data) if value.size else b""


def check_layout(file: MappedFile, segments: list[FileSegment], start: int, stop: int,
                 without_gaps: bool
                 ) -> None:
    """Check that arrays have the bytes that shape and dtype require, inside start..stop and without
    overlap; with ``without_gaps`` also without gaps."""
    end = start
    for a in sorted(segments, key=lambda a: (a.start, a.stop)):
        if len(a.shape) > MAX_DIMENSIONS:
            file.fail(a.start, f"at most {MAX_DIMENSIONS} axes of {a.name!r}", f"{len(a.shape)}")
        if any(n < 0 or n >= 1 << 62 for n in a.shape):
            file.fail(a.start, f"a shape of {a.name!r}", f"{a.shape}")
        if not start <= a.start <= a.stop:
            file.fail(start, f"{a.name!r} to begin at byte {start:,} or later, and end after it",
                      f"bytes {a.start:,} to {a.stop:,}")
        if a.stop - a.start != a.nbytes:
            file.fail(a.start, f"{a.nbytes:,} bytes of {a.name!r}, {a.dtype}{list(a.shape)}",
                      f"{a.stop - a.start:,}")
        if a.stop > stop:
            file.fail(a.start, f"{a.nbytes:,} bytes of {a.name!r}", f"the end of the data at byte "
                      f"{stop:,}")
        if a.start < end or without_gaps and a.start > end:
            file.fail(a.start, f"{a.name!r} to begin at byte {end:,}, where the previous array "
                               "ends",
                      f"byte {a.start:,}")
        end = max(end, a.stop)
    if without_gaps and end != stop:
        file.fail(end, "the end of the file after the last array", f"{stop - end:,} more bytes")


def find_invalid_byte(t: DType, data: NDArray) -> int | None:
    """Return the position of the first byte that the type does not allow, or None."""
    max_value = {dtypes.bool_: 1, dtypes.int4: 15, dtypes.uint4: 15}.get(t)
    return int(data.argmax()) if max_value is not None and data.size and \
        int(data.max()) > max_value else None


def array_from_bytes(file: MappedFile, a: FileSegment, data: NDArray) -> NDArray:
    """Return some bytes as an array, without a copy."""
    invalid_byte = find_invalid_byte(a.dtype, data)
    if invalid_byte is not None:
        file.fail(a.start + invalid_byte, f"the bits of a {a.dtype} of {a.name!r}",
                  f"{data[invalid_byte]}")
    value = data.view(a.dtype.np)
    try:
        return value.reshape(a.shape[::-1]).T if a.column_major else value.reshape(a.shape)
    except ValueError as error:
        file.fail(a.start, f"a shape of {a.name!r} that NumPy can hold", f"{a.shape}: {error}")
