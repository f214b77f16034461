"""Digests of fnx's own sources: what is kept on disk is of the code that made it.

>>> versions(("core",)) == versions(("core",)) != versions(("core", "lower"))
True
"""

from __future__ import annotations

import functools
import os

from fnx.core.process import LOADED, load


def versions(rooms: tuple[str, ...]) -> bytes:
    """A digest of the sources of some rooms of fnx."""
    return b"".join(map(_room, rooms))


@functools.cache
def _room(name: str) -> bytes:
    package = os.path.abspath(__file__).rpartition(os.path.join("", "core", ""))[0]
    return digest_of_sources(os.path.join(package, name), LOADED)


def digest_of_sources(package: str, loaded: float) -> bytes:
    """A digest of the Python files of a package that was imported at a time.

    What was edited since is not what runs: then the digest is this process's own, so that the
    code it makes is not taken for that of the new sources.
    """
    content = load("hashlib").sha256()
    for folder, folders, files in os.walk(package):
        folders.sort()
        for name in sorted(files):
            if name.endswith(".py"):
                with open(os.path.join(folder, name), "rb") as f:
                    content.update(f.read())
                    if os.fstat(f.fileno()).st_mtime > loaded:
                        content.update(os.urandom(16))
    digest: bytes = content.digest()
    return digest
