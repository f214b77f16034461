"""Endlessly new functions, shapes, derivatives and loops: memory stays flat.

    python -m tests.attack.memory --count 20000
    python -m tests.attack.memory --seconds 600
    python -m tests.attack.memory --count 2000 --small

Everything compiles: each round has a new constant or a new shape. When caches are full (with
``--small`` they hold a twentieth) and again at the end, live nodes, objects, mapped code and
resident memory are counted.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import fnx
import fnx.numpy as jnp
from fnx import lax
from fnx.backends.device.base import get_device
from fnx.core.ir import cache
from fnx.core.ir.uop import live_nodes
from fnx.core.support.config import override

FULL = 5000            # rounds until caches are full of entries of this test
SOON = 1000            # ... of small caches
SMALL = 20             # divisor of the size of small caches
TOLERANCE = {"nodes": 500, "objects": 4000, "KB of code": 512, "KB resident": 4096}
ROUND = {"KB resident": 0.25}  # per round: the allocator's own holes; an entry is 15 to 60


class Counts(NamedTuple):
    """The findings: what each work held when caches were full, and at the end."""

    rounds: int
    held: dict[str, tuple[dict[str, int], dict[str, int]]]

    @property
    def leaks(self) -> list[str]:
        """Return what has grown."""
        return [f"{name}: {what} {before[what]:,} -> {after[what]:,}"
                for name, (before, after) in self.held.items() for what in before
                if after[what] - before[what] > TOLERANCE[what]
                + self.rounds * ROUND.get(what, 0)]

    def __str__(self) -> str:
        lines = [f"  {name}: " + ", ".join(f"{before[what]:,} -> {after[what]:,} {what}"
                                           for what in before)
                 for name, (before, after) in self.held.items()]
        return "\n".join([f"{self.rounds} rounds of each, 0 wrong, 0 hangs, "
                          f"{len(self.leaks)} leaks", *lines, *self.leaks])


def redefine(i: int) -> Any:
    """A function with another constant."""
    return fnx.jit(lambda x: x * (i + 0.5))(jnp.ones(4))


_one = fnx.jit(lambda x: x + x)


def another_shape(i: int) -> Any:
    """One function with a new shape."""
    return _one(jnp.ones(i + 1))


def another_eager_shape(i: int) -> Any:
    """An eager call with a new shape and a new constant that is not an operand."""
    return jnp.pad(jnp.ones(i % 97 + 1), (0, i + 1))


def differentiate(i: int) -> Any:
    """A gradient under jit, of a function with another constant."""
    return fnx.jit(fnx.grad(lambda x: (x * x * (i + 0.5)).sum()))(jnp.ones(4))


def loop(i: int) -> Any:
    """A loop whose body has another constant."""
    return fnx.jit(lambda x: lax.fori_loop(0, 3, lambda _, c: c * (i + 0.5), x))(jnp.ones(4))


WORKS: dict[str, Callable[[int], Any]] = {
    f.__name__: f for f in (redefine, another_shape, another_eager_shape, differentiate, loop)}


def counted() -> dict[str, int]:
    """Count what is held now."""
    get_device("cpu").synchronize()
    gc.collect()
    return {"nodes": live_nodes(), "objects": len(gc.get_objects()),
            "KB of code": _mapped_code() >> 10, "KB resident": _resident() >> 10}


def _mapped_code() -> int:
    """Return the executable bytes that do not belong to a file."""
    total = 0
    with open("/proc/self/maps") as maps:
        for line in maps:
            fields = line.split()
            if "x" in fields[1] and len(fields) < 6:
                low, _, high = fields[0].partition("-")
                total += int(high, 16) - int(low, 16)
    return total


def _resident() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def shrink() -> None:
    """Reduce the limits of existing caches, so that they are full soon."""
    for kept in cache._names.live_keys():
        kept.limit = max(4, kept.limit // SMALL)
        kept.max_bytes //= SMALL


def attack(names: list[str], count: int | None, seconds: float | None, small: bool) -> Counts:
    """Repeat new work until ``count`` or the time is reached."""
    full = FULL if count is None else min(FULL, count // 2)
    if small:
        full = min(full, SOON)
    for name in names:
        WORKS[name](0)
    if small:
        shrink()
    held = {}
    done = 0
    with override(cache_dir=""):
        for name in names:
            until = time.monotonic() + (float("inf") if seconds is None else seconds / len(names))
            before = {}
            done = 0
            while done != count and (time.monotonic() < until or done < 2 * full):
                WORKS[name](done)
                done += 1
                if done == full:
                    before = counted()
            held[name] = before, counted()
    return Counts(done, held)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("works", nargs="*", default=[*WORKS])
    parser.add_argument("--count", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=0, help="as other attacks; nothing is random")
    parser.add_argument("--small", action="store_true")
    given = parser.parse_args()
    seconds = 60.0 if given.count is None and given.seconds is None else given.seconds
    counts = attack(given.works, given.count, seconds, given.small)
    print(counts)
    sys.exit(bool(counts.leaks))


if __name__ == "__main__":
    main()
