"""A cache of byte strings on disk, keyed by content digests.

An entry is a file: a mark, a checksum, the bytes. Writing is a temporary file and a rename, so
readers and other processes see whole entries only; an entry that is damaged is a miss and is
written anew. Nothing here fails a run: a full disk, a directory that can't be written or one
that another process clears makes misses. The oldest entries go when the size passes its limit.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as directory:
...     cache = DiskCache(directory)
...     cache.put(b"key", b"value")
...     cache.get(b"key"), cache.get(b"other")
(b'value', None)
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import threading
import time

from fnx.core.config import config

LIMIT = 1 << 30
_MARK = b"fnx object 1\n"
_CHECKSUM_BYTES = 16
_FOLDERS = 256
_CHECKED = 32  # one put in so many looks at the size of its folder
_USED_AGAIN = 3600.0  # seconds after which a read marks its entry as used


def directory() -> str:
    """Where entries live, from ``config.cache_dir``; empty: there is no cache."""
    if config.cache_dir is not None:
        return config.cache_dir
    home = os.path.expanduser("~")
    if home == "~" or not os.path.isdir(home):
        return ""
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Caches", "fnx")
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"), "fnx")


class DiskCache:
    """Byte strings under ``directory``, about ``limit`` bytes of them."""

    def __init__(self, directory: str, limit: int = LIMIT) -> None:
        self.directory, self.limit = directory, limit

    def path(self, key: bytes) -> str:
        """The file of a key."""
        name = hashlib.blake2b(key, digest_size=20).hexdigest()
        return os.path.join(self.directory, name[:2], name[2:])

    def get(self, key: bytes) -> bytes | None:
        """The value, or None where there is none that is whole."""
        if not self.directory:
            return None
        path = self.path(key)
        try:
            with open(path, "rb") as f:
                data = f.read()
                age = time.time() - os.fstat(f.fileno()).st_mtime
        except OSError:
            return None
        start = len(_MARK) + _CHECKSUM_BYTES
        value = data[start:]
        if data[:start] != _MARK + _checksum(key, value):
            return None
        if age > _USED_AGAIN:
            with contextlib.suppress(OSError):
                os.utime(path)
        return value

    def put(self, key: bytes, value: bytes) -> None:
        """Write an entry, or replace it; silently not where that is impossible."""
        if not self.directory:
            return
        path, checksum = self.path(key), _checksum(key, value)
        with contextlib.suppress(OSError):
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            _write(path, _MARK + checksum + value)
            if checksum[0] % _CHECKED == 0:
                self.evict(os.path.dirname(path))

    def evict(self, folder: str) -> None:
        """Delete what was used longest ago where a folder holds more than its share."""
        entries = []
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                info = os.stat(path)
                entries.append((info.st_mtime, info.st_size, path))
        share = self.limit // _FOLDERS
        total = sum(size for _, size, _ in entries)
        if total <= share:
            return
        for _, size, path in sorted(entries)[:-1]:
            if total <= share * 3 // 4:
                break
            with contextlib.suppress(OSError):
                os.unlink(path)
            total -= size


def _checksum(key: bytes, value: bytes) -> bytes:
    """Of key and value: an entry that was moved to another name is damaged, too."""
    salt = hashlib.sha256(key).digest()
    return hashlib.blake2b(value, digest_size=_CHECKSUM_BYTES, key=salt).digest()


def _write(path: str, data: bytes) -> None:
    temporary = f"{path}.{os.getpid()}.{threading.get_ident()}"
    try:
        with open(temporary, "wb") as f:
            f.write(data)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
