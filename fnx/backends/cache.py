"""A disk cache of byte strings, keyed by content digests.

An entry is a file: a magic number, a checksum, a description, the bytes. Entries are written to a
temporary file that is then renamed, so readers and other processes only see complete entries; a
damaged entry is a miss and is rewritten. No failure here fails a run: a full disk, a directory that
can't be written or one that another process clears only cause misses. If others may have written
the directory (private_files.py), it is not used, with one warning. Each write first evicts entries
as needed to stay below ``config.cache_bytes``. A folder is listed only if another process has
changed it since this one last did, and holds a bounded number of entries: a write costs the same in
a full cache.

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
_FOLDERS = 16  # each holds its share of the bytes: a write checks only one of them
_MOST_ENTRIES = 1024  # in each folder
_TRUSTED_WRITES = 64  # by this process to a folder before it is listed again
_MOST_KNOWN = 1024  # folders whose content this process remembers
_MOST_WORDS = 200  # bytes
_LARGEST = 64 << 20  # bytes of an entry
_USED_AGAIN = 3600.0  # seconds after which a read refreshes the time of last use
_untrusted: set[str] = set()  # directories that this process has warned about


class OnDisk(Record):
    """An entry: time of last use, description, bytes on disk, file name."""

    used: float
    about: str
    nbytes: int
    file: str


def directory() -> str:
    """Return the directory of entries, from ``config.cache_dir``. Empty: there is no cache."""
    if config.cache_dir is not None:
        return config.cache_dir
    home = os.path.expanduser("~")
    if home == "~" or not os.path.isdir(home):
        return ""
    if sys.platform == "darwin":
        return os.path.join(home, "Library", "Caches", "fnx")
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"), "fnx")


class DiskCache:
    """Byte strings under ``directory``, at most ``limit`` bytes (by default
    ``config.cache_bytes``).

    Methods that read all entries first wait for pending background writes.
    """

    def __init__(self, directory: str, limit: int | None = None) -> None:
        self.directory = directory
        self.limit = config.cache_bytes if limit is None else limit

    def path(self, key: bytes) -> str:
        """Return the file of a key."""
        return os.path.join(self.directory, *_names(key))

    def get(self, key: bytes) -> bytes | None:
        """Return the value, or None if there is no intact entry."""
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
        """Write an entry, or replace it; ``about`` is a description for people.

        Does nothing if writing is impossible, or if no other process could use the entry because
        the sources of fnx were edited.
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
        """Return all entries, the most recently used last."""
        return sorted([held for _, place in self._folders() for held, _ in _held(place)],
                      key=values)

    def clear(self) -> None:
        """Delete all entries."""
        for _, place in self._folders():
            _delete(place, private_files.entries(place), 0, 0)

    def copy(self, to: str) -> int:
        """Copy all entries to another cache directory. Return their number.

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
        """Yield the existing, trusted folders of entries with their descriptors."""
        write_behind.wait()
        for number in range(_FOLDERS if self._is_used() else 0):
            folder = f"{number:x}"
            with contextlib.suppress(OSError), self._opened(folder) as place:
                yield folder, place

    def _is_used(self) -> bool:
        return bool(self.directory) and self.directory not in _untrusted

    @contextlib.contextmanager
    def _opened(self, folder: str) -> Iterator[int]:
        """Open a folder of entries and yield its descriptor."""
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
    """Return the value of an entry, or None if it is damaged."""
    value = entry[_START:]
    if entry[:_START] != _MARK + _checksum(key, value):
        return None
    return value[2 + int.from_bytes(value[:2], "little"):]


class _Holding:
    """Size of a folder as this process left it: exact while no other process changes it."""

    def __init__(self, nbytes: int, entries: int) -> None:
        self.nbytes, self.entries, self.writes = nbytes, entries, 0
        self.changed = -1  # modification time after the last write by this process


_known: dict[tuple[int, int], _Holding] = {}  # by device and inode of the folder


def _make_room(place: int, share: int, nbytes: int) -> None:
    """Evict entries of a folder until one more fits: in ``share`` bytes and the number of entries.

    The least recently used go first, and an eighth more than needed, so that eviction is rare.
    """
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
    """Account for an entry that was written."""
    info = os.fstat(place)
    known = _known.get((info.st_dev, info.st_ino))
    if known is not None:
        known.nbytes, known.entries = known.nbytes + nbytes, known.entries + 1
        known.writes, known.changed = known.writes + 1, info.st_mtime_ns


def _delete(place: int, found: list[private_files.Entry], nbytes: int, entries: int
            ) -> tuple[int, int]:
    """Delete the least recently used entries down to these limits. Return the remaining size and
    count.
    """
    total, count = sum(entry.nbytes for entry in found), len(found)
    for entry in sorted(found, key=values):
        if total <= nbytes and count <= entries:
            break
        with contextlib.suppress(FileNotFoundError):
            os.unlink(entry.name, dir_fd=place)
        total, count = total - entry.nbytes, count - 1
    return total, count


def _held(place: int) -> Iterator[tuple[OnDisk, bytes]]:
    """Yield the entries of an open folder with their bytes; skip files that are not entries."""
    for entry in private_files.entries(place):
        data = b""
        with contextlib.suppress(OSError):
            data, _ = private_files.read(entry.name, place, _LARGEST)
        if data.startswith(_MARK):
            end = _START + 2 + int.from_bytes(data[_START:_START + 2], "little")
            about = data[_START + 2:end].decode(errors="replace")
            yield OnDisk(entry.used, about, entry.nbytes, entry.name), data


def _checksum(key: bytes, value: bytes) -> bytes:
    """Return the checksum of key and value: an entry that was renamed counts as damaged, too."""
    salt = hashlib.sha256(key).digest()
    return hashlib.blake2b(value, digest_size=_CHECKSUM_BYTES, key=salt).digest()
