"""The digest of fnx's own sources: of what runs, not of edits since it was imported."""

import os
import time
import zipfile
from pathlib import Path

import pytest

from fnx.backends.disk.cache import DiskCache
from fnx.core.support import source_digests
from fnx.core.support.source_digests import digest_package, digest_packages


def test_sources_decide_the_digest_unless_they_are_newer_than_the_process(tmp_path: Path) -> None:
    source, note = tmp_path / "a.py", tmp_path / "note.txt"
    source.write_text("x = 1")
    os.utime(source, (1e9, 1e9))
    now = time.time()
    first = digest_package(str(tmp_path), now)
    note.write_text("not a source")
    assert digest_package(str(tmp_path), now) == first
    source.write_text("x = 2")
    os.utime(source, (1e9, 1e9))
    assert digest_package(str(tmp_path), time.time()) != first
    edited = [digest_package(str(tmp_path), now - 100) for _ in range(2)]
    assert edited[0] != edited[1]


def test_a_source_dated_in_the_future_is_not_an_edited_one(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    monkeypatch.setattr(source_digests, "_digest_cache", [lambda: memory])
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "m.py").write_text("x = 1")
    os.utime(tmp_path / "a" / "m.py", (4e9, 4e9))
    loaded = time.time()
    first = digest_packages(str(tmp_path), ("a",), loaded)
    assert first[1:] == (False, "") and len(memory.held) == 1
    assert digest_packages(str(tmp_path), ("a",), loaded) == (first[0], True, "")


def test_what_edited_sources_compile_is_not_written(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = DiskCache(str(tmp_path / "cache"), 1 << 20)
    disk.put(b"before", b"value")
    monkeypatch.setattr(source_digests, "_edited_files", [])
    monkeypatch.setattr(source_digests, "IMPORT_TIME", 0.0)  # all files count as edited
    with pytest.warns(UserWarning, match="was edited after fnx was imported"):
        source_digests.package_digests.__wrapped__()
    disk.put(b"key", b"value")
    assert disk.get(b"before") == b"value" and disk.get(b"key") is None


def test_an_archive_stands_for_all_rooms_in_it(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "p.zip", "w") as archive:
        archive.writestr("p/a/m.py", "x = 1")
    package = str(tmp_path / "p.zip" / "p")
    digests, _, edited = digest_packages(package, ("a", "b"), time.time())
    assert not edited and digests["a"] == digests["b"]
    with zipfile.ZipFile(tmp_path / "p.zip", "a") as archive:
        archive.writestr("p/b/m.py", "x = 2")
    assert digest_packages(package, ("a",), time.time())[0]["a"] != digests["a"]


class Memory:
    """A cache of bytes."""

    def __init__(self) -> None:
        self.held: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.held.get(key)

    def put(self, key: bytes, value: bytes, about: str = "") -> None:
        self.held[key] = value


def test_digests_are_kept_until_a_file_changes(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    monkeypatch.setattr(source_digests, "_digest_cache", [lambda: memory])
    for room in ("a", "b"):
        (tmp_path / room / "inner").mkdir(parents=True)
        (tmp_path / room / "inner" / "m.py").write_text("x = 1")
    later = time.time() + 10
    first, kept, _ = digest_packages(str(tmp_path), ("a", "b"), later)
    assert not kept and len(memory.held) == 1
    assert digest_packages(str(tmp_path), ("a", "b"), later) == (first, True, "")
    assert first["a"] == digest_package(str(tmp_path / "a"), later)
    edited = tmp_path / "b" / "inner" / "m.py"
    stat = edited.stat()
    edited.write_text("x = 2")
    os.utime(edited, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # an edit that hides its time stamp
    second, kept, _ = digest_packages(str(tmp_path), ("a", "b"), later)
    assert not kept and second["a"] == first["a"] and second["b"] != first["b"]


def test_digests_of_what_was_edited_since_are_not_kept(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    monkeypatch.setattr(source_digests, "_digest_cache", [lambda: memory])
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "m.py").write_text("x = 1")
    made = [digest_packages(str(tmp_path), ("a",), time.time() - 100) for _ in range(2)]
    assert made[0][0] != made[1][0] and not memory.held
