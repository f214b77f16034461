"""The compilation cache on disk: list, measure, export and clear it.

The cache holds what fnx compiles: the machine code of each kernel, and each jitted program (which
kernels run in which order on which memory). A process that jits an equal graph then runs no
compiler pass. It is on by default. ``fnx.config.cache_dir`` is its directory (None: the system's
default cache directory, "": no cache), ``fnx.config.cache_bytes`` its maximal size; the least
recently used entries are evicted first. An entry is valid for one version of fnx and LLVM, one
processor and one configuration; others neither read nor remove it.

>>> import fnx, tempfile
>>> with tempfile.TemporaryDirectory() as folder, fnx.cache.at(folder):
...     fnx.cache.entries(), fnx.cache.nbytes()
([], 0)
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from fnx.core.array.call_validation import validate_call
from fnx.core.support.config import override
from fnx.core.support.errors import ArgumentError
from fnx.core.support.record import Record
from fnx.transforms.link import disk_cache

__all__ = ["CacheEntry", "at", "clear", "directory", "entries", "export", "nbytes"]


class CacheEntry(Record):
    """An entry of the cache.

    Attributes:
        about: a description.
        nbytes: its size on disk, in bytes.
        age: approximate seconds since its last use; reads are recorded at most once an hour.
    """

    about: str
    nbytes: int
    age: float


def directory() -> str:
    """Return the directory of the cache.

    Returns:
        Its path; empty if there is no cache.

    >>> with at("/tmp/models"):
    ...     directory()
    '/tmp/models'
    """
    path: str = disk_cache().directory
    return path


@contextlib.contextmanager
@validate_call
def at(folder: str) -> Iterator[None]:
    """Use another cache directory in a ``with`` block.

    Args:
        folder: its path; "" for no cache.

    Returns:
        A context manager.

    >>> with at(""):
    ...     directory()
    ''
    """
    with override(cache_dir=folder):
        yield


def entries() -> list[CacheEntry]:
    """List the entries of the cache.

    Returns:
        The entries, the most recently used last.

    >>> with at(""):
    ...     entries()
    []
    """
    now = time.time()
    return [CacheEntry(e.about, e.nbytes, now - e.used) for e in disk_cache().entries()]


def nbytes() -> int:
    """Return the size of the cache.

    Returns:
        The size of all entries, in bytes.

    >>> with at(""):
    ...     nbytes()
    0
    """
    return sum([e.nbytes for e in disk_cache().entries()])


@validate_call
def export(folder: str) -> int:
    """Copy all entries to another directory.

    With ``FNX_CACHE_DIR`` set to it, or to a copy of it on a machine with the same kind of
    processor, programs start as fast as here.

    Args:
        folder: its path; it is created if it does not exist.

    Returns:
        The number of copied entries.

    Raises:
        ArgumentError: the directory cannot be written, or other users can write it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as here, at(""):
    ...     export(here)
    0
    """
    path = os.path.abspath(os.path.expanduser(folder))
    try:
        count: int = disk_cache().copy(path)
        return count
    except OSError as e:
        raise ArgumentError(f"fnx.cache.export: expected a directory that can be written, got "
                            f"{folder!r}: {e}", hint="it must be yours, and writable by nobody "
                            "else; and the disk must have room") from None


def clear() -> None:
    """Delete all entries. Programs loaded in this process remain usable.

    >>> with at(""):
    ...     clear()
    """
    disk_cache().clear()
