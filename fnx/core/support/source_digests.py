"""Digests of fnx's own sources, so that disk cache entries are tied to the code that made them.

Reading all sources takes longer than a small program runs. So the digests are themselves cached
on disk, with the files' metadata as key: an edit changes at least the time of the last change.
Sources may also be in one archive (a zip on ``sys.path``), which then stands for all packages.

If a source was edited after fnx was imported, it is not the code that runs. Then nothing that the
process compiles is written to disk (``sources_edited``), and a warning is issued once.

>>> source_digest(("core",)) == source_digest(("core",)) != source_digest(("core", "lower"))
True
"""

from __future__ import annotations

import functools
import os
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Protocol

from fnx.core.support.process import IMPORT_TIME, lazy_import

hashlib = lazy_import("hashlib")

PACKAGES = ("core", "transforms", "lower", "backends")  # what programs and kernels can depend on
_DIGEST = 32  # bytes


class BytesStore(Protocol):
    """A store of bytes that the processes of a user share."""

    def get(self, key: bytes) -> bytes | None: ...
    def put(self, key: bytes, value: bytes, about: str = ...) -> None: ...


_digest_cache: list[Callable[[], BytesStore]] = []


def set_digest_cache(store: Callable[[], BytesStore]) -> None:
    """Set the store in which digests are cached."""
    _digest_cache[:] = [store]


def source_digest(packages: tuple[str, ...]) -> bytes:
    """Return a digest of the sources of some packages of fnx."""
    digests, _ = package_digests()
    return b"".join([digests[room] for room in packages])


@functools.cache
def package_digests() -> tuple[dict[str, bytes], bool]:
    """Return the digest of each package, and whether the digests came from the cache."""
    package = os.path.abspath(__file__).rpartition(os.path.join("", "core", ""))[0]
    digests, from_cache, file = digest_packages(package, PACKAGES, IMPORT_TIME)
    if file:
        _edited_files.append(file)
        warnings.warn(f"{file} was edited after fnx was imported: what this process compiles is "
                      "not cached on disk; restart it to run the new source", stacklevel=2)
    return digests, from_cache


_edited_files: list[str] = []


def sources_edited() -> bool:
    """Return whether ``package_digests`` found a source that is newer than the running code."""
    return bool(_edited_files)


def digest_packages(package: str, packages: tuple[str, ...], loaded: float
                    ) -> tuple[dict[str, bytes], bool, str]:
    """Return the ``digest_package`` of some folders, whether they came from the cache, and a
    file that was edited since it was loaded, or ""."""
    folders = [os.path.join(package, room) for room in packages]
    files = [file for folder in folders for file in _python_files(folder)]
    changed = next((path for path, s in files if _is_edited(s, loaded)), "")
    store = _digest_cache[0]() if _digest_cache and not changed else None
    states = [(path, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns) for path, s in files]
    key = b"sources" + hashlib.sha256(repr((packages, states)).encode()).digest()
    cached = None if store is None else store.get(key)
    if cached is not None and len(cached) == _DIGEST * len(packages):
        return {room: cached[i * _DIGEST:(i + 1) * _DIGEST]
                for i, room in enumerate(packages)}, True, ""
    digests = [digest_package(folder, loaded) for folder in folders]
    if store is not None:
        store.put(key, b"".join(digests), "digest of fnx's sources")
    return dict(zip(packages, digests)), False, changed


def _is_edited(file: os.stat_result, loaded: float) -> bool:
    """Return whether a file was changed since a time, by ``st_ctime``.

    ``st_mtime`` can be set by archives and copies, even to a future time.
    """
    return loaded < file.st_ctime <= time.time()


def _python_files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the Python files below a folder, in order; for a folder in an archive, the archive."""
    if not os.path.isdir(folder):
        archive = folder
        while not os.path.isfile(archive):
            archive = os.path.dirname(archive)
        yield archive, os.stat(archive)
        return
    with os.scandir(folder) as listing:
        entries = sorted(listing, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.endswith(".py"):
            yield entry.path, entry.stat()
        elif entry.is_dir() and entry.name != "__pycache__":
            yield from _python_files(entry.path)


def digest_package(package: str, loaded: float) -> bytes:
    """Return a digest of the Python files of a package that was imported at a given time.

    If a file was edited since, the digest is random, so that code from this process is not taken
    for code from the new sources.
    """
    content = hashlib.sha256()
    for path, _ in _python_files(package):
        with open(path, "rb") as f:
            content.update(f.read())
            if _is_edited(os.fstat(f.fileno()), loaded):
                content.update(os.urandom(16))
    digest: bytes = content.digest()
    return digest
