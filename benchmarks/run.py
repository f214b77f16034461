"""Time the workloads on one target: first call (trace and compile) and steady time per call.

    python benchmarks/run.py jax mlp_step dispatch
    python benchmarks/run.py fnx --times fnx.json --values fnx.npz

A steady time is the median of nine rounds of about 50 ms each. ``--times`` and ``--values`` store
the measurements and the results, for compare.py.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

ROUNDS = 9
ROUND_SECONDS = 0.05


def load(target: str) -> tuple[SimpleNamespace, float]:
    """Return the target's modules under JAX's usual names, and the seconds it took to import
    them."""
    start = time.perf_counter()
    modules = {short: importlib.import_module(target + suffix) for short, suffix in
               (("jax", ""), ("jnp", ".numpy"), ("lax", ".lax"), ("random", ".random"))}
    return SimpleNamespace(**modules), time.perf_counter() - start


def leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        tree = [tree[key] for key in sorted(tree)]
    if isinstance(tree, list | tuple):
        for child in tree:
            yield from leaves(child)
    else:
        yield tree


def block(tree: Any) -> Any:
    """Wait until every array of the tree has its value."""
    for leaf in leaves(tree):
        if hasattr(leaf, "block_until_ready"):
            leaf.block_until_ready()
    return tree


def seconds(f: Callable[[], Any]) -> float:
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


def measure(f: Callable[..., Any], args: tuple[Any, ...]) -> tuple[float, float, Any]:
    """Return the seconds of the first call, median seconds of a later one, and the first result."""
    block(args)
    result: list[Any] = []
    first = seconds(lambda: result.append(block(f(*args))))
    for _ in range(3):
        block(f(*args))
    once = seconds(lambda: block(f(*args)))
    repeats = max(1, min(2000, int(ROUND_SECONDS / max(once, 1e-7))))

    def many() -> None:
        for _ in range(repeats):
            last = f(*args)
        block(last)

    steady = statistics.median(seconds(many) / repeats for _ in range(ROUNDS))
    return first, steady, result[0]


def main() -> int:
    from workloads import WORKLOADS  # next to this file, found when it runs as a script

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("target", help="a module with JAX's API: jax or fnx")
    parser.add_argument("names", nargs="*", default=[], help="workloads; all when none is named")
    parser.add_argument("--times", help="JSON file to write: name -> [first, steady] seconds")
    parser.add_argument("--values", help="NumPy archive to write: the results of each workload")
    options = parser.parse_args()

    ns, import_seconds = load(options.target)
    print(f"{'import':16s} {import_seconds * 1e3:9.1f} ms")
    times: dict[str, Any] = {"import": [import_seconds, import_seconds]}
    values: dict[str, np.ndarray[Any, Any]] = {}
    for name in options.names or WORKLOADS:
        try:
            first, steady, result = measure(*WORKLOADS[name](ns))
        except Exception as error:  # a workload that a target cannot run must not hide the rest
            print(f"{name:16s} failed: {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        times[name] = [first, steady]
        for i, leaf in enumerate(leaves(result)):
            values[f"{name}/{i}"] = np.asarray(leaf)
        print(f"{name:16s} first {first * 1e3:9.1f} ms   steady {steady * 1e6:12.1f} us",
              flush=True)
    if options.times:
        with open(options.times, "w") as file:
            json.dump(times, file)
    if options.values:
        np.savez(options.values, **values)  # type: ignore[arg-type]
    wanted = set(options.names or WORKLOADS)
    return 0 if wanted <= set(times) else 1


if __name__ == "__main__":
    sys.exit(main())
