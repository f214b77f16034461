"""Digests of fnx's own sources: what is kept on disk is of the code that made it.

To read all sources takes longer than a small program. So what they digest to is itself on disk,
by what the system says of the files: an edit changes at least when the file was last changed.

>>> versions(("core",)) == versions(("core",)) != versions(("core", "lower"))
True
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Protocol

from fnx.core.process import LOADED, load

ROOMS = ("core", "transforms", "lower", "backends")  # what programs and kernels can depend on
_DIGEST = 32  # bytes


class KeptBytes(Protocol):
    """Bytes that other processes of this user left."""

    def get(self, key: bytes) -> bytes | None: ...
    def put(self, key: bytes, value: bytes, about: str = ...) -> None: ...


_kept: list[Callable[[], KeptBytes]] = []


def keep_in(kept: Callable[[], KeptBytes]) -> None:
    """Where digests are kept from now on."""
    _kept[:] = [kept]


def versions(rooms: tuple[str, ...]) -> bytes:
    """A digest of the sources of some rooms of fnx."""
    digests, _ = known()
    return b"".join([digests[room] for room in rooms])


@functools.cache
def known() -> tuple[dict[str, bytes], bool]:
    """The digest of each room, and whether a process with these very sources kept it before."""
    package = os.path.abspath(__file__).rpartition(os.path.join("", "core", ""))[0]
    return digests_of_rooms(package, ROOMS, LOADED)


def digests_of_rooms(package: str, rooms: tuple[str, ...], loaded: float
                     ) -> tuple[dict[str, bytes], bool]:
    """``digest_of_sources`` of folders of a package, and whether it was read from where it is
    kept."""
    folders = [os.path.join(package, room) for room in rooms]
    states = [(path, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
              for folder in folders for path, s in _files(folder)]
    edited = any(state[3] > loaded * 1e9 for state in states)
    kept = _kept[0]() if _kept and not edited else None
    key = b"sources" + load("hashlib").sha256(repr((rooms, states)).encode()).digest()
    found = None if kept is None else kept.get(key)
    if found is not None and len(found) == _DIGEST * len(rooms):
        return {room: found[i * _DIGEST:(i + 1) * _DIGEST] for i, room in enumerate(rooms)}, True
    made = [digest_of_sources(folder, loaded) for folder in folders]
    if kept is not None:
        kept.put(key, b"".join(made), "digest of fnx's sources")
    return dict(zip(rooms, made)), False


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """The Python files below a folder, in order."""
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.endswith(".py"):
            yield entry.path, entry.stat()
        elif entry.is_dir() and entry.name != "__pycache__":
            yield from _files(entry.path)


def digest_of_sources(package: str, loaded: float) -> bytes:
    """A digest of the Python files of a package that was imported at a time.

    What was edited since is not what runs: then the digest is this process's own, so that the
    code it makes is not taken for that of the new sources.
    """
    content = load("hashlib").sha256()
    for path, _ in _files(package):
        with open(path, "rb") as f:
            content.update(f.read())
            if os.fstat(f.fileno()).st_mtime > loaded:
                content.update(os.urandom(16))
    digest: bytes = content.digest()
    return digest
