"""The digest of fnx's own sources: what runs, not what was edited since it was imported."""

import os
import time
from pathlib import Path

import pytest

from fnx.core import sources
from fnx.core.sources import digest_of_sources, digests_of_rooms


def test_sources_decide_the_digest_unless_they_are_newer_than_the_process(tmp_path: Path) -> None:
    source, note = tmp_path / "a.py", tmp_path / "note.txt"
    source.write_text("x = 1")
    os.utime(source, (1e9, 1e9))
    now = time.time()
    first = digest_of_sources(str(tmp_path), now)
    note.write_text("not a source")
    assert digest_of_sources(str(tmp_path), now) == first
    source.write_text("x = 2")
    os.utime(source, (1e9, 1e9))
    assert digest_of_sources(str(tmp_path), now) != first
    edited = [digest_of_sources(str(tmp_path), 1e9 - 1) for _ in range(2)]
    assert edited[0] != edited[1]


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
    monkeypatch.setattr(sources, "_kept", [lambda: memory])
    for room in ("a", "b"):
        (tmp_path / room / "inner").mkdir(parents=True)
        (tmp_path / room / "inner" / "m.py").write_text("x = 1")
    later = time.time() + 10
    first, kept = digests_of_rooms(str(tmp_path), ("a", "b"), later)
    assert not kept and len(memory.held) == 1
    assert digests_of_rooms(str(tmp_path), ("a", "b"), later) == (first, True)
    assert first["a"] == digest_of_sources(str(tmp_path / "a"), later)
    edited = tmp_path / "b" / "inner" / "m.py"
    stat = edited.stat()
    edited.write_text("x = 2")
    os.utime(edited, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # as nobody should do
    second, kept = digests_of_rooms(str(tmp_path), ("a", "b"), later)
    assert not kept and second["a"] == first["a"] and second["b"] != first["b"]


def test_digests_of_what_was_edited_since_are_not_kept(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = Memory()
    monkeypatch.setattr(sources, "_kept", [lambda: memory])
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "m.py").write_text("x = 1")
    made = [digests_of_rooms(str(tmp_path), ("a",), time.time() - 100) for _ in range(2)]
    assert made[0][0] != made[1][0] and not memory.held
