"""Files mapped into memory, read-only: pages are read from the disk when they are used."""

from __future__ import annotations

import mmap
import os
from typing import BinaryIO, Self

from fnx.core.support.errors import CheckpointError


class FileMap(mmap.mmap):
    """The bytes of a file. NumPy arrays over it keep it alive; nobody can write through it.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.write(b"abc")
    ...     file.flush()
    ...     bytes(FileMap.of(file, "x.bin"))
    b'abc'
    """

    path: str
    _descriptor: BinaryIO
    _version: tuple[int, int]

    @classmethod
    def of(cls, file: BinaryIO, path: str) -> Self:
        """Map an open file that is not empty. It may be closed afterwards."""
        map_ = cls(file.fileno(), 0, access=mmap.ACCESS_READ)
        map_.path, map_._descriptor = path, os.fdopen(os.dup(file.fileno()), "rb")
        map_._version = map_._current_version()
        return map_

    def _current_version(self) -> tuple[int, int]:
        info = os.fstat(self._descriptor.fileno())
        return info.st_size, info.st_mtime_ns

    def check_unchanged(self) -> None:
        """Check that the file is what it was when it was mapped.

        Raises:
            CheckpointError: somebody wrote to it, or cut it. Reading its pages would give other
                values, or end the process.
        """
        size, _ = now = self._current_version()
        if now != self._version:
            raise CheckpointError(
                f"{self.path}: expected the file as it was when it was loaded, got one that was "
                f"written to since ({self._version[0]:,} bytes then, {size:,} now)",
                hint="load it again; replace a file that is in use by renaming another one, as "
                     "fnx.save does")
