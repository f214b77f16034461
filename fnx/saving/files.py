"""Atomic file writes, and defensive reads of untrusted files.

A file is written under a temporary name in its folder (``.model.npz.1f2e3d4c.part``), flushed to
the disk, and only then renamed: a reader sees the content before or after, at any time, even across
a power failure. A writer holds a lock on its file, so that the leftovers of a killed one are
recognized, and removed by the next.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
from collections.abc import Callable
from typing import Any, BinaryIO, NoReturn

import numpy as np

from fnx.core.ir.dtypes import NDArray
from fnx.core.support.errors import CheckpointError, MissingPathError, check_folder
from fnx.core.support.file_map import FileMap
from fnx.core.support.name_hints import suggestion

_CREATE_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
_OPEN_FLAGS = os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0)


def write(path: str, fill: Callable[[BinaryIO], None]) -> None:
    """Write a file atomically; ``fill`` writes its content.

    If the path is a link, the link is replaced, and its target is unchanged.
    """
    check_folder(path)
    folder, name = os.path.split(os.path.abspath(path))
    folder_fd = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            raise IsADirectoryError(f"expected the path of a file, got the folder {path}")
        _remove_stale(name, folder_fd)
        while not _write_and_rename(name, folder_fd, fill):
            pass
        os.fsync(folder_fd)
    finally:
        os.close(folder_fd)


def _write_and_rename(name: str, folder_fd: int, fill: Callable[[BinaryIO], None]) -> bool:
    """Write a file and rename it while it is locked; return False if another writer removed it
    before the lock was taken."""
    temporary = f".{name[:64]}.{os.urandom(8).hex()}.part"
    try:
        with open(os.open(temporary, _CREATE_FLAGS, 0o666, dir_fd=folder_fd), "w+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not os.fstat(file.fileno()).st_nlink:
                return False
            _copy_mode(file, name, folder_fd)
            fill(file)
            file.flush()
            os.fsync(file.fileno())
            os.replace(temporary, name, src_dir_fd=folder_fd, dst_dir_fd=folder_fd)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder_fd)
        raise
    return True


def _copy_mode(file: BinaryIO, name: str, folder_fd: int) -> None:
    """Give a file the permissions of the file that it will replace."""
    with contextlib.suppress(OSError):
        info = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
        if stat.S_ISREG(info.st_mode):
            os.fchmod(file.fileno(), stat.S_IMODE(info.st_mode))


def remove_stale(folder: str, name: str) -> None:
    """Remove the temporary files that killed writers of a file left in a folder."""
    folder_fd = os.open(folder, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0))
    try:
        _remove_stale(name, folder_fd)
    finally:
        os.close(folder_fd)


def _remove_stale(name: str, folder_fd: int) -> None:
    """Remove the temporary files that killed writers of this file left."""
    pattern = re.compile(re.escape(f".{name[:64]}.") + r"[0-9a-f]{16}\.part")
    for entry in os.listdir(folder_fd):
        if pattern.fullmatch(entry):
            with contextlib.suppress(OSError), \
                    open(os.open(entry, _OPEN_FLAGS, dir_fd=folder_fd), "rb") as file:
                if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails if a writer holds it
                    os.unlink(entry, dir_fd=folder_fd)


def _missing_file(path: str) -> MissingPathError:
    folder, name = os.path.split(os.path.abspath(path))
    others = sorted(os.listdir(folder)) if os.path.isdir(folder) else None
    no_folder = f", nor a folder {os.path.dirname(path)}" if others is None else ""
    return MissingPathError(f"expected a file {path}, got none{no_folder}",
                            hint=suggestion(name, others or ()) or "check the path; a relative "
                            "one begins at the working directory, os.getcwd()")


class MappedFile:
    """A file as read-only memory-mapped bytes; pages are read from the disk on access."""

    def __init__(self, path: str) -> None:
        self.path = path
        if not os.path.exists(path):
            raise _missing_file(path)
        if os.path.isdir(path):
            self.fail(0, "a regular file", "a folder")
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # no wait on a pipe
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                self.fail(0, "a regular file", "a folder, pipe or device")
            self.size = info.st_size
            self.memory: NDArray = np.frombuffer(
                FileMap.of(file, path) if self.size else b"", np.uint8)

    def bytes(self, start: int, stop: int, what: str) -> Any:
        """Return bytes of the file."""
        if stop > self.size:
            self.fail(start, f"{stop - start:,} bytes of {what}",
                      f"the end of the file at byte {self.size:,}")
        return self.memory[start:stop].tobytes()

    def fail(self, byte: int, expected: str, got: str, hint: str = "") -> NoReturn:
        """Raise an error that says what is wrong with the file, and where."""
        raise CheckpointError(
            f"{self.path}, byte {byte:,}: expected {expected}, got {got}",
            hint=hint or "the file is damaged, truncated or of another format: use an earlier one")
