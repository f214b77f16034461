"""Files that only this user can have written: how the object cache accesses the disk.

What is read here is run as machine code. So a directory or a file is trusted only if this user owns
it and nobody else may write it. Links are never followed, and only regular files are opened for
reading. All names are relative to an open directory descriptor that was checked, so the directory
can't be replaced in between.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from fnx.core.support.record import Record

_DIRECTORY_FLAGS = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_WRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class UntrustedError(PermissionError):
    """A file or directory that another user owns or may write, or that is of the wrong kind."""


class FileEntry(Record):
    """A regular file in a directory: time of last use, bytes, name."""

    used: float
    nbytes: int
    name: str


def _check(info: os.stat_result, what: str, is_kind: bool) -> None:
    if not is_kind:
        raise UntrustedError(f"{what} is a link or a device, or of another kind than it should be")
    if info.st_uid != os.geteuid():
        raise UntrustedError(f"{what} belongs to user {info.st_uid}, not to {os.geteuid()}")
    if info.st_mode & _OTHERS_WRITE:
        raise UntrustedError(f"others may write {what} (mode {stat.S_IMODE(info.st_mode):o})")


def make_directories(path: str) -> None:
    """Create a directory and its missing parents, accessible to this user only."""
    if os.path.lexists(path):
        return
    parent = os.path.dirname(path)
    if parent and parent != path:
        make_directories(parent)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
        if stat.S_IMODE(os.lstat(path).st_mode) != 0o700:  # whatever the umask is
            os.chmod(path, 0o700)


@contextlib.contextmanager
def open_directory(path: str, parent_fd: int | None = None) -> Iterator[int]:
    """Open a directory that only this user may write, and yield its descriptor.

    Raises:
        OSError: it does not exist, or is not to be trusted (UntrustedError).
    """
    info = os.lstat(path) if parent_fd is None else os.stat(path, dir_fd=parent_fd,
                                                            follow_symlinks=False)
    _check(info, f"directory {path}", stat.S_ISDIR(info.st_mode))
    descriptor = os.open(path, os.O_RDONLY | _DIRECTORY_FLAGS, dir_fd=parent_fd)
    try:
        info = os.fstat(descriptor)  # of the open one: the path may have been replaced
        _check(info, f"directory {path}", stat.S_ISDIR(info.st_mode))
        yield descriptor
    finally:
        os.close(descriptor)


def read(name: str, directory_fd: int, limit: int) -> tuple[bytes, float]:
    """Return content and time of last use of a file; no content if it exceeds ``limit`` bytes."""
    info = os.stat(name, dir_fd=directory_fd, follow_symlinks=False)
    _check(info, f"cache entry {name}", stat.S_ISREG(info.st_mode))
    with open(os.open(name, _READ_FLAGS, dir_fd=directory_fd), "rb") as f:
        info = os.fstat(f.fileno())
        _check(info, f"cache entry {name}", stat.S_ISREG(info.st_mode))
        return (f.read(info.st_size) if info.st_size <= limit else b""), info.st_mtime


def write(name: str, directory_fd: int, data: bytes) -> None:
    """Write a file atomically."""
    temporary = f"{os.urandom(12).hex()}.part"
    try:
        with open(os.open(temporary, _WRITE_FLAGS, 0o600, dir_fd=directory_fd), "wb") as f:
            os.fchmod(f.fileno(), 0o600)
            f.write(data)
        os.replace(temporary, name, src_dir_fd=directory_fd, dst_dir_fd=directory_fd)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=directory_fd)
        raise


def entries(directory_fd: int) -> list[FileEntry]:
    """Return the regular files of a directory."""
    files = []
    with os.scandir(directory_fd) as listing:
        for item in listing:
            with contextlib.suppress(OSError):
                info = item.stat(follow_symlinks=False)
                if stat.S_ISREG(info.st_mode):
                    files.append(FileEntry(info.st_mtime, info.st_size, item.name))
    return files
