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

from fnx.backends.disk import background_writer, private_files
from fnx.core.support.config import config
from fnx.core.support.record import Record, values
from fnx.core.support.source_digests import set_digest_cache, sources_edited

_MAGIC = b"fnx object 2\n"
_CHECKSUM_BYTES = 16
_HEADER_BYTES = len(_MAGIC) + _CHECKSUM_BYTES
_FOLDERS = 16  # each holds its share of the bytes: a write checks only one of them
_MAX_FOLDER_ENTRIES = 1024  # in each folder
_WRITES_PER_LISTING = 64  # by this process to a folder before it is listed again
_MAX_KNOWN_FOLDERS = 1024  # folders whose content this process remembers
_MAX_DESCRIPTION = 200  # bytes
_MAX_ENTRY_BYTES = 64 << 20  # bytes of an entry
_TOUCH_SECONDS = 3600.0  # seconds after which a read refreshes the time of last use
_untrusted: set[str] = set()  # directories that this process has warned about


class DiskEntry(Record):
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
        return os.path.join(self.directory, *_file_name(key))

    def get(self, key: bytes) -> bytes | None:
        """Return the value, or None if there is no intact entry."""
        if not self._is_enabled():
            return None
        folder, name = _file_name(key)
        data = b""
        with self._ignore_errors(), self._open_folder(folder) as folder_fd:
            data, last_used = private_files.read(name, folder_fd, _MAX_ENTRY_BYTES)
            if time.time() - last_used > _TOUCH_SECONDS:
                os.utime(name, dir_fd=folder_fd, follow_symlinks=False)
        return _decode_entry(key, data)

    def put(self, key: bytes, value: bytes, about: str = "") -> None:
        """Write an entry, or replace it; ``about`` is a description for people.

        Does nothing if writing is impossible, or if no other process could use the entry because
        the sources of fnx were edited.
        """
        share = min(_MAX_ENTRY_BYTES, self.limit // _FOLDERS)
        encoded = about.encode()[:_MAX_DESCRIPTION]
        value = len(encoded).to_bytes(2, "little") + encoded + value
        nbytes = _HEADER_BYTES + len(value)
        if nbytes > share or sources_edited() or not self._is_enabled():
            return
        folder, name = _file_name(key)
        with self._ignore_errors():
            private_files.make_directories(os.path.join(self.directory, folder))
            with self._open_folder(folder) as folder_fd:
                _evict(folder_fd, share, nbytes)
                private_files.write(name, folder_fd, _MAGIC + _checksum(key, value) + value)
                _count_write(folder_fd, nbytes)

    def entries(self) -> list[DiskEntry]:
        """Return all entries, the most recently used last."""
        return sorted([held for _, place in self._folders() for held, _ in _read_entries(place)],
                      key=values)

    def clear(self) -> None:
        """Delete all entries."""
        for _, folder_fd in self._folders():
            _delete_oldest(folder_fd, private_files.entries(folder_fd), 0, 0)

    def copy(self, to: str) -> int:
        """Copy all entries to another cache directory. Return their number.

        Raises:
            OSError: it can't be written, or others may write it.
        """
        count = 0
        private_files.make_directories(to)
        with private_files.open_directory(to) as top:
            for folder, folder_fd in self._folders():
                private_files.make_directories(os.path.join(to, folder))
                with private_files.open_directory(folder, top) as target:
                    for entry, data in _read_entries(folder_fd):
                        private_files.write(entry.file, target, data)
                        count += 1
        return count

    def _folders(self) -> Iterator[tuple[str, int]]:
        """Yield the existing, trusted folders of entries with their descriptors."""
        background_writer.wait()
        for number in range(_FOLDERS if self._is_enabled() else 0):
            folder = f"{number:x}"
            with contextlib.suppress(OSError), self._open_folder(folder) as folder_fd:
                yield folder, folder_fd

    def _is_enabled(self) -> bool:
        return bool(self.directory) and self.directory not in _untrusted

    @contextlib.contextmanager
    def _open_folder(self, folder: str) -> Iterator[int]:
        """Open a folder of entries and yield its descriptor."""
        with private_files.open_directory(self.directory) as top, \
                private_files.open_directory(folder, top) as folder_fd:
            yield folder_fd

    @contextlib.contextmanager
    def _ignore_errors(self) -> Iterator[None]:
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


set_digest_cache(lambda: DiskCache(directory()))


def _file_name(key: bytes) -> tuple[str, str]:
    digest = hashlib.blake2b(key, digest_size=20).hexdigest()
    return digest[0], digest[1:]


def _decode_entry(key: bytes, entry: bytes) -> bytes | None:
    """Return the value of an entry, or None if it is damaged."""
    value = entry[_HEADER_BYTES:]
    if entry[:_HEADER_BYTES] != _MAGIC + _checksum(key, value):
        return None
    return value[2 + int.from_bytes(value[:2], "little"):]


class _FolderUsage:
    """Size of a folder as this process left it: exact while no other process changes it."""

    def __init__(self, nbytes: int, entries: int) -> None:
        self.nbytes, self.entries, self.writes = nbytes, entries, 0
        self.mtime_ns = -1  # modification time after the last write by this process


_folder_usage: dict[tuple[int, int], _FolderUsage] = {}  # by device and inode of the folder


def _evict(folder_fd: int, share: int, nbytes: int) -> None:
    """Evict entries of a folder until one more fits: in ``share`` bytes and the number of entries.

    The least recently used go first, and an eighth more than needed, so that eviction is rare.
    """
    info = os.fstat(folder_fd)
    usage = _folder_usage.get((info.st_dev, info.st_ino))
    if usage is None or usage.mtime_ns != info.st_mtime_ns or usage.writes >= _WRITES_PER_LISTING \
            or usage.nbytes + nbytes > share or usage.entries >= _MAX_FOLDER_ENTRIES:
        files = private_files.entries(folder_fd)
        total, count = sum(entry.nbytes for entry in files), len(files)
        if total + nbytes > share or count >= _MAX_FOLDER_ENTRIES:
            total, count = _delete_oldest(folder_fd, files, min(share - nbytes, share * 7 // 8),
                                          _MAX_FOLDER_ENTRIES * 7 // 8)
        if len(_folder_usage) >= _MAX_KNOWN_FOLDERS:
            _folder_usage.clear()
        _folder_usage[info.st_dev, info.st_ino] = _FolderUsage(total, count)


def _count_write(folder_fd: int, nbytes: int) -> None:
    """Account for an entry that was written."""
    info = os.fstat(folder_fd)
    usage = _folder_usage.get((info.st_dev, info.st_ino))
    if usage is not None:
        usage.nbytes, usage.entries = usage.nbytes + nbytes, usage.entries + 1
        usage.writes, usage.mtime_ns = usage.writes + 1, info.st_mtime_ns


def _delete_oldest(folder_fd: int, files: list[private_files.FileEntry], nbytes: int, entries: int
                   ) -> tuple[int, int]:
    """Delete the least recently used entries down to these limits. Return the remaining size and
    count.
    """
    total, count = sum(entry.nbytes for entry in files), len(files)
    for entry in sorted(files, key=values):
        if total <= nbytes and count <= entries:
            break
        with contextlib.suppress(FileNotFoundError):
            os.unlink(entry.name, dir_fd=folder_fd)
        total, count = total - entry.nbytes, count - 1
    return total, count


def _read_entries(folder_fd: int) -> Iterator[tuple[DiskEntry, bytes]]:
    """Yield the entries of an open folder with their bytes; skip files that are not entries."""
    for entry in private_files.entries(folder_fd):
        data = b""
        with contextlib.suppress(OSError):
            data, _ = private_files.read(entry.name, folder_fd, _MAX_ENTRY_BYTES)
        if data.startswith(_MAGIC):
            end = _HEADER_BYTES + 2 + int.from_bytes(data[_HEADER_BYTES:_HEADER_BYTES + 2],
                                                     "little")
            about = data[_HEADER_BYTES + 2:end].decode(errors="replace")
            yield DiskEntry(entry.used, about, entry.nbytes, entry.name), data


def _checksum(key: bytes, value: bytes) -> bytes:
    """Return the checksum of key and value: an entry that was renamed counts as damaged, too."""
    salt = hashlib.sha256(key).digest()
    return hashlib.blake2b(value, digest_size=_CHECKSUM_BYTES, key=salt).digest()
