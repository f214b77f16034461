"""The disk cache: damage, other processes, full and read-only disks, bounded size."""

import contextlib
import os
import stat
import subprocess
import sys
import threading
import warnings

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.backends.disk import cache, private_files
from fnx.backends.disk.cache import DiskCache
from fnx.core.support.config import override


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
    os.makedirs(os.path.dirname(disk.path(b"b")), mode=0o700, exist_ok=True)
    os.rename(disk.path(b"a"), disk.path(b"b"))
    assert disk.get(b"b") is None


def test_an_empty_directory_name_turns_it_off(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    disk = DiskCache("")
    disk.put(b"k", b"v")
    assert disk.get(b"k") is None and os.listdir(tmp_path) == []


@pytest.mark.parametrize("call", ["replace", "fchmod", "mkdir"])
def test_a_full_or_read_only_disk_is_silent_and_leaves_nothing_behind(disk, monkeypatch, call):
    disk.put(b"k", b"v")

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, call, full)
        disk.put(b"other", b"w")
        if call != "mkdir":
            disk.put(b"k", b"w")
    assert disk.get(b"k") == b"v" and disk.get(b"other") is None
    assert [n for _, _, names in os.walk(disk.directory) for n in names] == [
        os.path.basename(disk.path(b"k"))]


def test_a_directory_that_cannot_be_made_is_silent(tmp_path):
    (tmp_path / "file").write_text("in the way")
    disk = DiskCache(str(tmp_path / "file" / "cache"))
    disk.put(b"k", b"v")
    assert disk.get(b"k") is None


# ---- size ---------------------------------------------------------------------------------------


def size_of(directory):
    return sum(os.path.getsize(os.path.join(d, n)) for d, _, ns in os.walk(directory) for n in ns)


def test_the_limit_is_kept_at_each_write(tmp_path):
    limit = 400_000
    disk = DiskCache(str(tmp_path), limit)
    for i in range(1500):
        disk.put(b"%d" % i, bytes(i % 3000))
        if i % 50 == 0:
            assert size_of(tmp_path) <= limit
    assert limit / 2 < size_of(tmp_path) <= limit and disk.get(b"1499") is not None


def test_a_folder_is_listed_at_times_only_and_bounded(disk, monkeypatch):
    listed = []
    entries = private_files.entries
    monkeypatch.setattr(private_files, "entries", lambda place: listed.append(1) or entries(place))
    for i in range(640):
        disk.put(b"%d" % i, bytes(100))
    assert len(listed) < 60  # 16 folders, each at its first write and rarely afterwards
    monkeypatch.setattr("fnx.backends.disk.cache._MAX_FOLDER_ENTRIES", 8)
    for i in range(640):
        disk.put(b"again %d" % i, bytes(100))
        assert disk.get(b"again %d" % i) == bytes(100)
    assert len(disk.entries()) <= 16 * 8


def test_what_another_process_writes_counts(tmp_path):
    mine, limit = DiskCache(str(tmp_path), 16 * 4000), 16 * 4000
    writer = """if True:
        import sys
        from fnx.backends.disk.cache import DiskCache
        cache = DiskCache(sys.argv[1], int(sys.argv[2]))
        for i in range(400):
            cache.put(b"other %d" % i, bytes(300))
        """
    for turn in range(2):
        for i in range(100):
            mine.put(b"%d %d" % (turn, i), bytes(300))
        subprocess.run([sys.executable, "-c", writer, str(tmp_path), str(limit)], check=True)
    for i in range(100):
        mine.put(b"last %d" % i, bytes(300))
    assert size_of(tmp_path) <= limit


def test_the_limit_is_configured(tmp_path):
    with override(cache_bytes=160_000):
        disk = DiskCache(str(tmp_path))
        disk.put(b"small", bytes(9_000))
        disk.put(b"larger than its share", bytes(10_001))
        assert disk.get(b"small") and not disk.get(b"larger than its share")
    with override(cache_bytes=0):
        DiskCache(str(tmp_path)).put(b"k", b"v")
        assert DiskCache(str(tmp_path)).get(b"k") is None


def test_what_was_used_longest_ago_goes_first(tmp_path):
    disk = DiskCache(str(tmp_path), 16 * 10_000)
    mine = [k for k in (b"%d" % i for i in range(2000))
            if disk.path(k)[:-39] == disk.path(b"0")[:-39]][:20]
    for age, key in enumerate(mine):
        disk.put(key, bytes(900))  # ten of them fit
        os.utime(disk.path(key), (1000 + age,) * 2)
    assert [k for k in mine if os.path.exists(disk.path(k))] == mine[10:]
    assert disk.get(mine[10])  # counts as used now
    disk.put(mine[0], bytes(5000))
    assert [k for k in mine if os.path.exists(disk.path(k))] == [mine[0], mine[10], *mine[16:]]


# ---- others -------------------------------------------------------------------------------------


def refused(disk, match):
    """Check that the cache is disabled, with one warning for two uses."""
    cache._untrusted.clear()
    with pytest.warns(UserWarning, match=match) as caught:
        assert disk.get(b"k") is None
        disk.put(b"other", b"w")
        assert disk.get(b"other") is None
    assert len(caught) == 1 and disk.directory in str(caught[0].message)
    cache._untrusted.clear()
    return True


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o720, 0o702])
@pytest.mark.parametrize("what", ["directory", "folder", "entry"])
def test_what_others_may_write_is_not_read(disk, what, mode):
    disk.put(b"k", b"v")
    path = disk.path(b"k")
    os.chmod({"directory": disk.directory, "folder": os.path.dirname(path), "entry": path}[what],
             mode)
    assert refused(disk, "others may write")


@pytest.mark.parametrize("what", ["directory", "folder", "entry"])
def test_what_another_user_owns_is_not_read(disk, what, monkeypatch):
    disk.put(b"k", b"v")
    path = disk.path(b"k")
    theirs = os.stat({"directory": disk.directory, "folder": os.path.dirname(path),
                      "entry": path}[what]).st_ino
    check = private_files._check

    def simulated(info, name, is_kind):
        values = list(info)
        values[4] += info.st_ino == theirs  # st_uid
        check(os.stat_result(values), name, is_kind)

    monkeypatch.setattr(private_files, "_check", simulated)
    assert refused(disk, "belongs to user")


def test_links_are_not_followed(disk, tmp_path):
    disk.put(b"k", b"v")
    path, elsewhere = disk.path(b"k"), tmp_path / "elsewhere"
    os.rename(path, elsewhere)
    os.symlink(elsewhere, path)
    assert refused(disk, "is a link")
    os.remove(path)
    os.rename(elsewhere, path)
    for place in (os.path.dirname(path), disk.directory):
        os.rename(place, elsewhere)
        os.symlink(elsewhere, place)
        assert refused(disk, "is a link")
        os.remove(place)
        os.rename(elsewhere, place)
    assert disk.get(b"k") == b"v"


def test_a_link_exchanged_after_the_look_is_not_followed(disk, tmp_path, monkeypatch):
    """The system refuses it at opening, too."""
    disk.put(b"k", b"v")
    path, elsewhere = disk.path(b"k"), tmp_path / "elsewhere"
    os.rename(path, elsewhere)
    os.symlink(elsewhere, path)
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda name, **how: real(name, **how | (
        {"follow_symlinks": True} if name == os.path.basename(path) else {})))
    assert disk.get(b"k") is None


def test_pipes_and_devices_are_not_opened(disk):
    """Opening a FIFO would block."""
    disk.put(b"k", b"v")
    os.remove(disk.path(b"k"))
    os.mkfifo(disk.path(b"k"), 0o600)
    assert refused(disk, "is a link or a device")


def test_a_planted_entry_of_any_kind_is_a_miss_at_most(disk):
    disk.put(b"k", b"v")
    os.remove(disk.path(b"k"))
    os.mkdir(disk.path(b"k"), 0o700)
    assert refused(disk, "is a link or a device")
    disk.put(b"k", b"v")  # can't replace a directory
    os.rmdir(disk.path(b"k"))
    disk.put(b"k", b"v")
    assert disk.get(b"k") == b"v"


def test_an_entry_without_end_is_not_read(disk, monkeypatch):
    disk.put(b"k", b"v")
    with open(disk.path(b"k"), "r+b") as f:
        f.truncate(1 << 40)
    assert disk.get(b"k") is None
    disk.put(b"k", b"v")
    assert disk.get(b"k") == b"v"


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o177, 0o777])
def test_directories_and_entries_are_private_whatever_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        disk = DiskCache(str(tmp_path / "some" / "where" / "cache"))
        disk.put(b"k", b"v")
    finally:
        os.umask(before)
    path = disk.path(b"k")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    while (path := os.path.dirname(path)) != str(tmp_path):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    assert disk.get(b"k") == b"v"


def test_temporary_names_cannot_be_guessed(disk, monkeypatch):
    seen = []
    real = os.replace
    monkeypatch.setattr(os, "replace", lambda a, b, **how: (seen.append(a), real(a, b, **how)))
    for _ in range(20):
        disk.put(b"k", b"v")
    assert len(set(seen)) == 20 and all(len(name) >= 24 for name in seen)


@given(st.lists(st.tuples(st.sampled_from(["chmod", "link", "truncate", "garbage", "fifo"]),
                          st.integers(0, 5), st.integers(0, 0o777)), max_size=8))
@settings(max_examples=30)
def test_whatever_happens_to_the_files_a_value_is_right_or_missing(tmp_path_factory, harm):
    disk = DiskCache(str(tmp_path_factory.mktemp("cache") / "in"))
    cache._untrusted.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(6):
            disk.put(b"%d" % i, b"value %d" % i)
        for what, i, number in harm:
            path, other = disk.path(b"%d" % i), disk.path(b"%d" % (number % 6))
            with contextlib.suppress(OSError):
                if what == "chmod":
                    os.chmod(path, number | 0o600)
                elif what == "truncate":
                    os.truncate(path, number % 60)
                elif what == "garbage":
                    with open(path, "r+b") as f:
                        f.seek(number % 40)
                        f.write(b"garbage")
                else:
                    os.remove(path)
                    os.symlink(other, path) if what == "link" else os.mkfifo(path, 0o600)
        for i in range(6):
            cache._untrusted.clear()
            assert disk.get(b"%d" % i) in (None, b"value %d" % i)


def test_threads_and_processes_write_at_once(disk):
    """Readers see whole entries, whoever writes."""
    code = f"""
from fnx.backends.disk.cache import DiskCache
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
