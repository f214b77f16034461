"""The object cache with processes that write, die and corrupt it: a value is right or missing.

    python -m tests.attack.cache --count 20000 --seed 1
    python -m tests.attack.cache --seconds 600

Processes put and get entries in one directory and are killed at random instants, while this one
damages files and plants links, pipes, directories and modes. Files that others may have written are
never read, and the directory stays within its limit.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
import warnings
from typing import NamedTuple

from fnx.backends.disk import cache
from fnx.backends.disk.cache import DiskCache
from tests.attack.seeds import parse_limits

LIMIT = 16 * 30_000
KEYS = 200
WRITERS = 2

_WRITER = """
import random, sys, warnings
from fnx.backends.disk import cache
from fnx.backends.disk.cache import DiskCache
from tests.attack.cache import KEYS, LIMIT, value
warnings.simplefilter("ignore")
disk, rng = DiskCache(sys.argv[1], LIMIT), random.Random(int(sys.argv[2]))
while True:
    cache._untrusted.clear()
    i = rng.randrange(KEYS)
    disk.put(b"%d" % i, value(i))
    j = rng.randrange(KEYS)
    if disk.get(b"%d" % j) not in (None, value(j)):
        sys.exit(3)
"""


class Counts(NamedTuple):
    """The findings; ``wrong`` has a line for each fault."""

    operations: int
    read: int
    wrong: list[str]
    largest: int

    def __str__(self) -> str:
        return "\n".join([
            f"{self.operations} operations ({self.read} values read), {len(self.wrong)} wrong, "
            f"0 hangs, at most {self.largest:,} bytes under a limit of {LIMIT:,}",
            *[f"  {text}" for text in self.wrong[:20]]])


def value(i: int) -> bytes:
    """Return the value of a key."""
    return b"value of %d " % i * (i * 7 % 600)


def _plant(rng: random.Random, disk: DiskCache, elsewhere: str) -> bool:
    """Damage an entry or its directory; return whether it must not be read any more."""
    path, other = (disk.path(b"%d" % rng.randrange(KEYS)) for _ in range(2))
    what = rng.choice(("truncate", "garbage", "move", "remove", "link", "pipe", "mode", "folder"))
    with contextlib.suppress(OSError):
        if what == "truncate":
            os.truncate(path, rng.randrange(100))
        elif what == "garbage":
            with open(path, "r+b") as f:
                f.seek(rng.randrange(60))
                f.write(os.urandom(5))
        elif what == "move":
            os.replace(path, other)
        elif what == "mode":
            os.chmod(path, rng.choice((0o602, 0o620, 0o666)))
        elif what == "folder":
            os.chmod(os.path.dirname(path), 0o777)
        else:
            os.remove(path)
            if what == "link":
                os.symlink(elsewhere, path)
            elif what == "pipe":
                os.mkfifo(path, 0o600)
    return what in ("link", "pipe", "mode", "folder")


def _clean(disk: DiskCache) -> None:
    """Repair what only a user can."""
    for folder, _, names in os.walk(disk.directory):
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o700)
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(OSError):
                os.remove(path) if os.path.islink(path) or not os.path.isfile(path) else \
                    os.chmod(path, 0o600)


def _size(disk: DiskCache) -> int:
    total = 0
    for folder, _, names in os.walk(disk.directory):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(folder, name)).st_size
    return total


def _writer(disk: DiskCache, seed: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", _WRITER, disk.directory, str(seed)])


def attack(seed: int, count: int | None, seconds: float | None) -> Counts:
    """Read, write and damage until ``count`` or the time is reached."""
    rng = random.Random(seed)
    done = read = largest = 0
    wrong: list[str] = []
    until = time.monotonic() + (float("inf") if seconds is None else seconds)
    with tempfile.TemporaryDirectory() as base, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        disk = DiskCache(os.path.join(base, "cache"), LIMIT)
        elsewhere = os.path.join(base, "planted")
        with open(elsewhere, "wb") as f:  # an intact entry in the wrong directory
            f.write(b"fnx object 1\n" + bytes(16) + b"planted")
        writers = [_writer(disk, seed + i) for i in range(WRITERS)]
        while done != count and time.monotonic() < until:
            done += 1
            cache._untrusted.clear()
            i = rng.randrange(KEYS)
            disk.put(b"%d" % i, value(i))
            got = disk.get(b"%d" % rng.choice((i, j := rng.randrange(KEYS))))
            read += got is not None
            if got not in (None, value(i), value(j)):
                wrong.append(f"operation {done}: a value that nobody put: {got[:40]!r}")
            if done % 10 == 0 and _plant(rng, disk, elsewhere) and done % 50 == 0:
                _clean(disk)
            if done % 100 == 0:
                largest = max(largest, _size(disk))
            if done % 300 == 0:
                _clean(disk)
                writer = writers.pop(0)
                writer.kill()
                if writer.wait() == 3:
                    wrong.append("a writer read a value that nobody put")
                writers.append(_writer(disk, seed + done))
        for writer in writers:
            writer.kill()
            if writer.wait() == 3:
                wrong.append("a writer read a value that nobody put")
    if largest > LIMIT + (WRITERS + 1) * 2 * max(len(value(i)) for i in range(KEYS)):
        wrong.append(f"{largest:,} bytes, under a limit of {LIMIT:,}")
    return Counts(done, read, wrong, largest)


def main() -> None:
    counts = attack(*parse_limits(__doc__))
    print(counts)
    sys.exit(bool(counts.wrong))


if __name__ == "__main__":
    main()
