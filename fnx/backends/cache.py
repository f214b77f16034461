"""A cache of byte strings on disk, keyed by content digests.

An entry is a file: a mark, a checksum, what it is in words, the bytes. Writing is a temporary
file and a rename, so readers and other processes see whole entries only; an entry that is damaged
is a miss and is written anew. Nothing here fails a run: a full disk, a directory that can't be
written or one that another process clears makes misses. Where others may have written
(private_files.py) there is no cache, and one warning. Each write first makes room:
``config.cache_bytes`` is kept. A folder is listed only where another process has changed it since
this one last did, and holds a bounded number of entries: a write costs the same in a full cache.

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
import time
import warnings
from collections.abc import Iterator

from fnx.backends import private_files, write_behind
from fnx.core.config import config
from fnx.core.record import Record, values
from fnx.core.sources import edited, keep_in

_MARK = b"fnx object 2\n"
_CHECKSUM_BYTES = 16
_START = len(_MARK) + _CHECKSUM_BYTES
_FOLDERS = 16  # each holds its share: a write looks at one of them only
_MOST_ENTRIES = 1024  # in each
_TRUSTED_WRITES = 64  # of this process to a folder until it is listed again
_MOST_KNOWN = 1024  # folders of which this process remembers what they hold
_MOST_WORDS = 200  # bytes
_LARGEST = 64 << 20  # bytes of an entry
_USED_AGAIN = 3600.0  # seconds after which a read marks its entry as used
_untrusted: set[str] = set()  # directories that this process has warned of


class OnDisk(Record):
    """An entry: the time of its last use, what it is, its bytes on disk, the name of its file."""

    used: float
    about: str
    nbytes: int
    file: str


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
    """Byte strings under ``directory``, at most ``limit`` bytes of them (the configured).

    Who asks for all of them waits until those are there that are written behind.
    """

    def __init__(self, directory: str, limit: int | None = None) -> None:
        self.directory = directory
        self.limit = config.cache_bytes if limit is None else limit

    def path(self, key: bytes) -> str:
        """The file of a key."""
        return os.path.join(self.directory, *_names(key))

    def get(self, key: bytes) -> bytes | None:
        """The value, or None where there is none that is whole."""
        if not self._is_used():
            return None
        folder, name = _names(key)
        data = b""
        with self._failing_silently(), self._opened(folder) as place:
            data, used = private_files.read(name, place, _LARGEST)
            if time.time() - used > _USED_AGAIN:
                os.utime(name, dir_fd=place, follow_symlinks=False)
        return _value(key, data)

    def put(self, key: bytes, value: bytes, about: str = "") -> None:
        """Write an entry, or replace it; silently not where that is impossible, or where no other
        process could use it, as fnx's sources were edited. ``about`` says to readers what it is.
        """
        share = min(_LARGEST, self.limit // _FOLDERS)
        words = about.encode()[:_MOST_WORDS]
        value = len(words).to_bytes(2, "little") + words + value
        nbytes = _START + len(value)
        if nbytes > share or edited() or not self._is_used():
            return
        folder, name = _names(key)
        with self._failing_silently():
            private_files.make_directories(os.path.join(self.directory, folder))
            with self._opened(folder) as place:
                _make_room(place, share, nbytes)
                private_files.write(name, place, _MARK + _checksum(key, value) + value)
                _note(place, nbytes)

    def entries(self) -> list[OnDisk]:
        """What is there, the most recently used last."""
        return sorted([held for _, place in self._folders() for held, _ in _held(place)],
                      key=values)

    def clear(self) -> None:
        """Delete all entries."""
        for _, place in self._folders():
            _delete(place, private_files.entries(place), 0, 0)

    def copy(self, to: str) -> int:
        """Write all entries to another directory, which then is such a cache; how many.

        Raises:
            OSError: it can't be written, or others may write it.
        """
        count = 0
        private_files.make_directories(to)
        with private_files.opened(to) as top:
            for folder, place in self._folders():
                private_files.make_directories(os.path.join(to, folder))
                with private_files.opened(folder, top) as target:
                    for held, data in _held(place):
                        private_files.write(held.file, target, data)
                        count += 1
        return count

    def _folders(self) -> Iterator[tuple[str, int]]:
        """The folders of entries that are there and to be trusted, and descriptors of them."""
        write_behind.wait()
        for number in range(_FOLDERS if self._is_used() else 0):
            folder = f"{number:x}"
            with contextlib.suppress(OSError), self._opened(folder) as place:
                yield folder, place

    def _is_used(self) -> bool:
        return bool(self.directory) and self.directory not in _untrusted

    @contextlib.contextmanager
    def _opened(self, folder: str) -> Iterator[int]:
        """One of the folders of entries, by its descriptor."""
        with private_files.opened(self.directory) as top, \
                private_files.opened(folder, top) as place:
            yield place

    @contextlib.contextmanager
    def _failing_silently(self) -> Iterator[None]:
        try:
            yield
        except private_files.UntrustedError as e:
            if self.directory not in _untrusted:
                _untrusted.add(self.directory)
                warnings.warn(f"compiled kernels are not cached in {self.directory}: {e}; "
                              "it must be yours and writable by nobody else (chmod -R go-w), or "
                              "FNX_CACHE_DIR must name another directory", stacklevel=2)
        except OSError:
            pass


keep_in(lambda: DiskCache(directory()))


def _names(key: bytes) -> tuple[str, str]:
    digest = hashlib.blake2b(key, digest_size=20).hexdigest()
    return digest[0], digest[1:]


def _value(key: bytes, entry: bytes) -> bytes | None:
    """What an entry holds, if it is whole."""
    value = entry[_START:]
    if entry[:_START] != _MARK + _checksum(key, value):
        return None
    return value[2 + int.from_bytes(value[:2], "little"):]


class _Holding:
    """What a folder holds, as this process left it: exact while nobody else changes it."""

    def __init__(self, nbytes: int, entries: int) -> None:
        self.nbytes, self.entries, self.writes = nbytes, entries, 0
        self.changed = -1  # when the folder was, at the last write of this process


_known: dict[tuple[int, int], _Holding] = {}  # by device and number of the folder


def _make_room(place: int, share: int, nbytes: int) -> None:
    """Room in a folder for an entry: at most ``share`` bytes, and entries, are then in it. What
    was used longest ago goes, with an eighth more than must, so that this is rare."""
    info = os.fstat(place)
    known = _known.get((info.st_dev, info.st_ino))
    if known is None or known.changed != info.st_mtime_ns or known.writes >= _TRUSTED_WRITES \
            or known.nbytes + nbytes > share or known.entries >= _MOST_ENTRIES:
        found = private_files.entries(place)
        total, count = sum(entry.nbytes for entry in found), len(found)
        if total + nbytes > share or count >= _MOST_ENTRIES:
            total, count = _delete(place, found, min(share - nbytes, share * 7 // 8),
                                   _MOST_ENTRIES * 7 // 8)
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        _known[info.st_dev, info.st_ino] = _Holding(total, count)


def _note(place: int, nbytes: int) -> None:
    """An entry was written."""
    info = os.fstat(place)
    known = _known.get((info.st_dev, info.st_ino))
    if known is not None:
        known.nbytes, known.entries = known.nbytes + nbytes, known.entries + 1
        known.writes, known.changed = known.writes + 1, info.st_mtime_ns


def _delete(place: int, found: list[private_files.Entry], nbytes: int, entries: int
            ) -> tuple[int, int]:
    """Delete what was used longest ago until no more bytes and entries are left; how many are."""
    total, count = sum(entry.nbytes for entry in found), len(found)
    for entry in sorted(found, key=values):
        if total <= nbytes and count <= entries:
            break
        with contextlib.suppress(FileNotFoundError):
            os.unlink(entry.name, dir_fd=place)
        total, count = total - entry.nbytes, count - 1
    return total, count


def _held(place: int) -> Iterator[tuple[OnDisk, bytes]]:
    """The entries of an open folder, and their bytes; what is no entry is left out."""
    for entry in private_files.entries(place):
        data = b""
        with contextlib.suppress(OSError):
            data, _ = private_files.read(entry.name, place, _LARGEST)
        if data.startswith(_MARK):
            end = _START + 2 + int.from_bytes(data[_START:_START + 2], "little")
            about = data[_START + 2:end].decode(errors="replace")
            yield OnDisk(entry.used, about, entry.nbytes, entry.name), data


def _checksum(key: bytes, value: bytes) -> bytes:
    """Of key and value: an entry that was moved to another name is damaged, too."""
    salt = hashlib.sha256(key).digest()
    return hashlib.blake2b(value, digest_size=_CHECKSUM_BYTES, key=salt).digest()
