"""The command lines of attacks: their arguments; of those by seed also output and exit status."""

from __future__ import annotations

import argparse
import resource
import time
import traceback
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple


class Limits(NamedTuple):
    """The first seed, and how many of them or how long."""

    seed: int
    count: int | None
    seconds: float | None


def parse_limits(doc: str | None, gigabytes: int = 0) -> Limits:
    """Parse the arguments of an attack; without a limit it takes a minute.

    Args:
        doc: the module's docstring.
        gigabytes: the default limit on addresses, of this process; 0: no option for it.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=0)
    if gigabytes:
        parser.add_argument("--gigabytes", type=int, default=gigabytes,
                            help="of addresses; above: an error")
    args = parser.parse_args()
    if gigabytes:
        resource.setrlimit(resource.RLIMIT_AS, (args.gigabytes << 30,) * 2)
    return Limits(args.seed, args.count,
                  60.0 if args.count is None and args.seconds is None else args.seconds)


def attack(doc: str, what: str, check: Callable[[int], str],
           describe: Callable[[int], Any] = lambda seed: "") -> int:
    """Check seeds as the command line says; return 1 if any was wrong.

    Args:
        doc: the module's docstring, whose first line is the help.
        what: the name of what is counted.
        check: returns the kind under which a seed is counted; raises if it is wrong.
        describe: describes a wrong seed.
    """
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    args = parser.parse_args()
    wrong: list[int] = []
    counts: Counter[str] = Counter()
    end = time.monotonic() + args.seconds
    for seed in range(args.seed, args.seed + args.count):
        try:
            counts[check(seed)] += 1
        except Exception:
            wrong.append(seed)
            print(f"seed {seed}: {describe(seed)}", traceback.format_exc(limit=-3), flush=True)
        if time.monotonic() > end:
            break
    print(f"{counts.total() + len(wrong)} {what}, {dict(counts)}, {len(wrong)} wrong: {wrong[:20]}")
    return int(bool(wrong))
