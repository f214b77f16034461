"""The cache on disk: what it holds, how large it is; taking it along, and emptying it.

fnx keeps there what it compiles: each kernel's machine code, and each jitted program (which
kernels run in which order on which memory). A process that jits an equal graph runs no pass of
the compiler then. Nothing has to be asked for: ``fnx.config.cache_dir`` says where it is (None:
the usual place of the system, "": there is none), ``fnx.config.cache_bytes`` how large it may
grow; what was used least recently goes first. An entry is of one version of fnx and of LLVM, one
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

from fnx.core.array.refusal import checked
from fnx.core.config import override
from fnx.core.errors import ArgumentError
from fnx.core.record import Record
from fnx.transforms.link import disk

__all__ = ["CacheEntry", "at", "clear", "directory", "entries", "export", "nbytes"]


class CacheEntry(Record):
    """Something that is kept.

    Attributes:
        about: what it is.
        nbytes: its size on disk.
        age: seconds since it was last used, about: reading counts once an hour.
    """

    about: str
    nbytes: int
    age: float


def directory() -> str:
    """The directory of the cache; empty where there is none.

    Returns:
        Its path.

    >>> with at("/tmp/models"):
    ...     directory()
    '/tmp/models'
    """
    path: str = disk().directory
    return path


@contextlib.contextmanager
@checked
def at(folder: str) -> Iterator[None]:
    """Keep the cache in another directory for the length of a ``with`` block.

    Args:
        folder: its path; "" for none.

    Returns:
        A context manager.

    >>> with at(""):
    ...     directory()
    ''
    """
    with override(cache_dir=folder):
        yield


def entries() -> list[CacheEntry]:
    """What the cache holds.

    Returns:
        The entries, the most recently used last.

    >>> with at(""):
    ...     entries()
    []
    """
    now = time.time()
    return [CacheEntry(e.about, e.nbytes, now - e.used) for e in disk().entries()]


def nbytes() -> int:
    """The size of the cache.

    Returns:
        Bytes of all entries.

    >>> with at(""):
    ...     nbytes()
    0
    """
    return sum([e.nbytes for e in disk().entries()])


@checked
def export(folder: str) -> int:
    """Copy all entries to another directory: with ``FNX_CACHE_DIR`` set to it, or to a copy of it
    on a machine with such a processor, programs start there as fast as here.

    Args:
        folder: its path; it is made where it is missing.

    Returns:
        How many entries were copied.

    Raises:
        ArgumentError: it can't be written, or others may write it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as here, at(""):
    ...     export(here)
    0
    """
    path = os.path.abspath(os.path.expanduser(folder))
    try:
        count: int = disk().copy(path)
        return count
    except OSError as e:
        raise ArgumentError(f"fnx.cache.export: expected a directory that can be written, got "
                            f"{folder!r}: {e}", hint="it must be yours, and writable by nobody "
                            "else; and the disk must have room") from None


def clear() -> None:
    """Delete all entries; what is linked in this process goes on.

    >>> with at(""):
    ...     clear()
    """
    disk().clear()
