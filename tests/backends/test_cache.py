"""The cache on disk: damage, other processes, full and read-only disks, bounded size."""

import os
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.backends import cache
from fnx.backends.cache import DiskCache
from fnx.core.config import override


@pytest.fixture
def disk(tmp_path):
    return DiskCache(str(tmp_path / "cache"))


@given(st.dictionaries(st.binary(max_size=40), st.binary(max_size=300), max_size=8))
@settings(max_examples=25)
def test_what_was_put_is_got(tmp_path_factory, entries):
    disk = DiskCache(str(tmp_path_factory.mktemp("cache")))
    for key, value in entries.items():
        assert disk.get(key) is None
        disk.put(key, value)
    assert {key: disk.get(key) for key in entries} == entries


def test_the_last_put_wins(disk):
    disk.put(b"k", b"old")
    disk.put(b"k", b"new")
    assert disk.get(b"k") == b"new"


@pytest.mark.parametrize("damage", [
    lambda d: d[:-1], lambda d: d[:10], lambda d: b"", lambda d: d + b"x",
    lambda d: d[:-3] + bytes([d[-3] ^ 1]) + d[-2:], lambda d: b"F" + d[1:],
    lambda d: d[:20] + bytes([d[20] ^ 128]) + d[21:]])
def test_a_damaged_entry_is_a_miss_and_is_replaced(disk, damage):
    disk.put(b"k", b"some object code")
    with open(disk.path(b"k"), "rb") as f:
        data = f.read()
    with open(disk.path(b"k"), "wb") as f:
        f.write(damage(data))
    assert disk.get(b"k") is None
    disk.put(b"k", b"some object code")
    assert disk.get(b"k") == b"some object code"


def test_an_entry_under_another_name_is_a_miss(disk):
    disk.put(b"a", b"code of a")
    os.makedirs(os.path.dirname(disk.path(b"b")), exist_ok=True)
    os.rename(disk.path(b"a"), disk.path(b"b"))
    assert disk.get(b"b") is None


def test_an_empty_directory_name_turns_it_off(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    disk = DiskCache("")
    disk.put(b"k", b"v")
    assert disk.get(b"k") is None and os.listdir(tmp_path) == []


def test_a_full_disk_is_silent_and_leaves_nothing_behind(disk, monkeypatch):
    disk.put(b"k", b"v")
    real = os.replace

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", full)
    disk.put(b"k", b"w")
    disk.put(b"other", b"w")
    monkeypatch.setattr(cache.os, "replace", real)
    assert disk.get(b"k") == b"v" and disk.get(b"other") is None
    assert [n for _, _, names in os.walk(disk.directory) for n in names] == [
        os.path.basename(disk.path(b"k"))]


def test_a_directory_that_cannot_be_made_is_silent(tmp_path):
    (tmp_path / "file").write_text("in the way")
    disk = DiskCache(str(tmp_path / "file" / "cache"))
    disk.put(b"k", b"v")
    assert disk.get(b"k") is None


def test_old_entries_go_when_the_size_passes_its_limit(tmp_path):
    disk = DiskCache(str(tmp_path), limit=256 * 10_000)
    folder = os.path.dirname(disk.path(b"k"))
    os.makedirs(folder)
    for i in range(20):
        path = os.path.join(folder, f"entry{i:02}")
        with open(path, "wb") as f:
            f.write(bytes(1000))
        os.utime(path, (i, i))
    disk.evict(folder)
    assert sorted(os.listdir(folder)) == [f"entry{i:02}" for i in range(13, 20)]


def test_puts_evict_now_and_then(tmp_path):
    disk = DiskCache(str(tmp_path), limit=256 * 3000)
    for i in range(1500):
        disk.put(b"%d" % i, bytes(1000))
    nbytes = sum(os.path.getsize(os.path.join(d, n)) for d, _, ns in os.walk(tmp_path)
                 for n in ns)
    assert nbytes < 1500 * 1000 and disk.get(b"1499") is not None


def test_an_entry_larger_than_its_folders_share_stays(tmp_path):
    disk = DiskCache(str(tmp_path), limit=256)
    disk.put(b"k", bytes(5000))
    disk.evict(os.path.dirname(disk.path(b"k")))
    assert disk.get(b"k") == bytes(5000)


def test_threads_and_processes_write_at_once(disk):
    """Readers see whole entries, whoever writes."""
    code = f"""
from fnx.backends.cache import DiskCache
disk = DiskCache({disk.directory!r})
for i in range(300):
    disk.put(b"%d" % (i % 5), bytes([i % 5]) * 5000)
    got = disk.get(b"%d" % (i * 7 % 5))
    assert got is None or got == bytes([i * 7 % 5]) * 5000
"""
    processes = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2)]
    threads = [threading.Thread(target=exec, args=(code, {})) for _ in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [p.wait() for p in processes] == [0, 0]
    assert all(disk.get(b"%d" % i) == bytes([i]) * 5000 for i in range(5))


def test_where_it_is(monkeypatch, tmp_path):
    with override(cache_dir="/somewhere"):
        assert cache.directory() == "/somewhere"
    with override(cache_dir=None):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        assert cache.directory().startswith(str(tmp_path))
        monkeypatch.setenv("HOME", "/no/such/home")
        assert cache.directory() == ""
