"""Compare a profile's times with the clock, and measure the overhead of profiling.

    python benchmarks/profiles.py gpt_step mlp_step dispatch

For each workload, medians over rounds in turn, in milliseconds: ``plain`` is a call before the
first profile of the process, ``off`` one later, with none open; ``profiled`` is a call in a
profile, by the clock; ``kernels``, ``gaps`` and ``outside`` are the profile's numbers for it;
``share`` is the kernels' share of their own call.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

from run import block, load, seconds
from workloads import WORKLOADS

import fnx

ROUNDS = 15
BATCH_SECONDS = 0.01


def timed(f: Any, args: tuple[Any, ...]) -> list[float]:
    """Return the milliseconds of a call in each round."""
    count = max(1, int(BATCH_SECONDS / seconds(lambda: block(f(*args)))))
    return [seconds(lambda: [block(f(*args)) for _ in range(count)]) / count * 1e3
            for _ in range(ROUNDS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=["gpt_step", "mlp_step", "dispatch"])
    modules = load("fnx")[0]
    made = {name: WORKLOADS[name](modules) for name in parser.parse_args().workloads}
    for f, args in made.values():
        for _ in range(3):
            block(f(*args))
    plain = {name: timed(f, args) for name, (f, args) in made.items()}
    columns = ("plain", "off", "profiled", "kernels", "gaps", "outside", "share")
    print(f"{'workload':16}" + "".join(f"{name:>10}" for name in columns))
    for name, (f, args) in made.items():
        seen = [fnx.profile(f)(*args) for _ in range(ROUNDS)]
        off = timed(f, args)
        rows = [statistics.median(row) for row in (
            plain[name], off, [p.seconds * 1e3 for p in seen],
            [p.nanoseconds / 1e6 for p in seen], [p.gaps / 1e6 for p in seen],
            [p.outside / 1e6 for p in seen], [p.nanoseconds / p.seconds / 1e9 for p in seen])]
        print(f"{name:16}" + "".join(f"{value:10.4f}" for value in rows), flush=True)


if __name__ == "__main__":
    main()
