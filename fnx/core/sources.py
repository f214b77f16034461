"""Digests of fnx's own sources, so that disk cache entries are tied to the code that made them.

Reading all sources takes longer than a small program runs. So the digests are themselves cached
on disk, with the files' metadata as key: an edit changes at least the time of the last change.
Sources may also be in one archive (a zip on ``sys.path``), which then stands for all packages.

If a source was edited after fnx was imported, it is not the code that runs. Then nothing that the
process compiles is written to disk (``edited``), and a warning is issued once.

>>> versions(("core",)) == versions(("core",)) != versions(("core", "lower"))
True
"""

from __future__ import annotations

import functools
import os
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Protocol

from fnx.core.process import LOADED, load

ROOMS = ("core", "transforms", "lower", "backends")  # what programs and kernels can depend on
_DIGEST = 32  # bytes


class KeptBytes(Protocol):
    """A store of bytes that the processes of a user share."""

    def get(self, key: bytes) -> bytes | None: ...
    def put(self, key: bytes, value: bytes, about: str = ...) -> None: ...


_kept: list[Callable[[], KeptBytes]] = []


def keep_in(kept: Callable[[], KeptBytes]) -> None:
    """Set the store in which digests are cached."""
    _kept[:] = [kept]


def versions(rooms: tuple[str, ...]) -> bytes:
    """Return a digest of the sources of some packages of fnx."""
    digests, _ = known()
    return b"".join([digests[room] for room in rooms])


@functools.cache
def known() -> tuple[dict[str, bytes], bool]:
    """Return the digest of each package, and whether the digests came from the cache."""
    package = os.path.abspath(__file__).rpartition(os.path.join("", "core", ""))[0]
    digests, kept, file = digests_of_rooms(package, ROOMS, LOADED)
    if file:
        _edited.append(file)
        warnings.warn(f"{file} was edited after fnx was imported: what this process compiles is "
                      "not cached on disk; restart it to run the new source", stacklevel=2)
    return digests, kept


_edited: list[str] = []


def edited() -> bool:
    """Return whether ``known`` found a source that is newer than the running code."""
    return bool(_edited)


def digests_of_rooms(package: str, rooms: tuple[str, ...], loaded: float
                     ) -> tuple[dict[str, bytes], bool, str]:
    """Return the ``digest_of_sources`` of some folders, whether they came from the cache, and a
    file that was edited since it was loaded, or ""."""
    folders = [os.path.join(package, room) for room in rooms]
    files = [file for folder in folders for file in _files(folder)]
    changed = next((path for path, s in files if _is_edited(s, loaded)), "")
    kept = _kept[0]() if _kept and not changed else None
    states = [(path, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for path, s in files]
    key = b"sources" + load("hashlib").sha256(repr((rooms, states)).encode()).digest()
    found = None if kept is None else kept.get(key)
    if found is not None and len(found) == _DIGEST * len(rooms):
        return {room: found[i * _DIGEST:(i + 1) * _DIGEST]
                for i, room in enumerate(rooms)}, True, ""
    made = [digest_of_sources(folder, loaded) for folder in folders]
    if kept is not None:
        kept.put(key, b"".join(made), "digest of fnx's sources")
    return dict(zip(rooms, made)), False, changed


def _is_edited(file: os.stat_result, loaded: float) -> bool:
    """Return whether a file was changed since a time, by ``st_ctime``.

    ``st_mtime`` can be set by archives and copies, even to a future time.
    """
    return loaded < file.st_ctime <= time.time()


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the Python files below a folder, in order; for a folder in an archive, the archive."""
    if not os.path.isdir(folder):
        archive = folder
        while not os.path.isfile(archive):
            archive = os.path.dirname(archive)
        yield archive, os.stat(archive)
        return
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.endswith(".py"):
            yield entry.path, entry.stat()
        elif entry.is_dir() and entry.name != "__pycache__":
            yield from _files(entry.path)


def digest_of_sources(package: str, loaded: float) -> bytes:
    """Return a digest of the Python files of a package that was imported at a given time.

    If a file was edited since, the digest is random, so that code from this process is not taken
    for code from the new sources.
    """
    content = load("hashlib").sha256()
    for path, _ in _files(package):
        with open(path, "rb") as f:
            content.update(f.read())
            if _is_edited(os.fstat(f.fileno()), loaded):
                content.update(os.urandom(16))
    digest: bytes = content.digest()
    return digest
