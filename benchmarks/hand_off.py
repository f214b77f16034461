"""Measure the latency of dispatching a kernel to workers: from the call to all workers and back.

    python benchmarks/hand_off.py

``hand-off`` is the time of a call on two workers minus half of the kernel's time on one, for a
kernel on data in the L1 caches, in rounds in which both take turns: back to back, and after pauses
in which the caller does something else. Then it times a sum of a million values, next to the rate
at which all workers read the cache that holds them; and results on reused pages (the previous
result was dropped) and on fresh ones, for fnx, JAX and PyTorch.
"""

from __future__ import annotations

import gc
import importlib
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

PAUSES = 0.0, 1e-5, 1e-4, 1e-3, 1e-2
ROUNDS, CALLS, SECONDS = 12, 100, 0.08
SMALL, TERMS, MILLION = 1 << 14, 30, 1 << 20
KEPT = 24
TOUCHED = 1 << 29  # bytes: the host of a virtual machine maps memory at its first access

Call = Callable[[], Any]


def waits(seconds: float) -> None:
    """Pause: compute if the pause is short, else sleep."""
    if seconds >= 1e-3:
        time.sleep(seconds)
        return
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def samples(f: Call, pause: float) -> list[float]:
    """Return the microseconds of calls, each after a pause."""
    f(), f()
    found = []
    for _ in range(min(CALLS, max(3, int(SECONDS / max(pause, 1e-9))))):
        waits(pause)
        start = time.perf_counter()
        f()
        found.append((time.perf_counter() - start) * 1e6)
    return found


def of_workers(fnx: Any, counts: tuple[int, ...], f: Call, pause: float) -> list[list[float]]:
    """Return the microseconds of calls with each number of workers, which take turns in rounds."""
    found: list[list[float]] = [[] for _ in counts]
    before = fnx.config.workers
    for _ in range(ROUNDS):
        for times, fnx.config.workers in zip(found, counts):
            times += samples(f, pause)
    fnx.config.workers = before
    return found


def ninth(values: list[float]) -> float:
    """Return the 90th percentile."""
    return sorted(values)[len(values) * 9 // 10]


def hand_off(fnx: Any, jnp: Any) -> None:
    """Print times of a call on one and on two workers after pauses."""
    x = jnp.linspace(-1, 1, SMALL)
    empty = fnx.jit(lambda x: x + 1)
    tiny, one = jnp.ones(8), statistics.median
    f = fnx.jit(lambda x: sum((x * k + 1) ** 8 for k in range(TERMS)))
    print("| pause us | call us | kernel, one worker | two workers | 90 % | hand-off |\n" +
          "| --- " * 6 + "|")
    for pause in PAUSES:
        call = one(samples(lambda: empty(tiny).block_until_ready(), pause))
        alone, both = of_workers(fnx, (1, 2), lambda: f(x).block_until_ready(), pause)
        kernel = one(alone) - call
        print(f"| {pause * 1e6:.0f} | {call:.1f} | {kernel:.1f} | {one(both):.1f} | "
              f"{ninth(both):.1f} | {one(both) - call - kernel / 2:.1f} |", flush=True)


def pages(f: Call) -> tuple[float, float]:
    """Return the microseconds of a call whose result is dropped, and of one whose result is
    retained."""
    used, kept = statistics.median(samples(f, 0.0)), []
    fresh = []
    for _ in range(KEPT):
        start = time.perf_counter()
        kept.append(f())
        fresh.append((time.perf_counter() - start) * 1e6)
    return used, statistics.median(fresh[KEPT // 2:])


def beside_others(fnx: Any, jnp: Any) -> None:
    """Print the times of a sum, and of results on used and fresh pages, for all installed
    targets."""
    data = np.random.default_rng(0).standard_normal(MILLION).astype(np.float32)
    calls: dict[str, tuple[Call, Call]] = {}
    x, add, fold = jnp.asarray(data), fnx.jit(lambda x: x + 1), fnx.jit(lambda x: x.sum())
    calls["fnx"] = (lambda: fold(x).block_until_ready(), lambda: add(x).block_until_ready())
    try:
        jax = importlib.import_module("jax")
        y, j = jax.numpy.asarray(data), jax.jit(lambda x: x + 1)
        k = jax.jit(lambda x: x.sum())
        calls["JAX"] = (lambda: k(y).block_until_ready(), lambda: j(y).block_until_ready())
        torch = importlib.import_module("torch")
        z = torch.from_numpy(data)
        calls["PyTorch"] = (lambda: z.sum(), lambda: z + 1)
    except ImportError as error:
        print(f"not here: {error}")
    np.ones(TOUCHED // 8).sum()
    print("\n| a million numbers | sum us | GB/s | x + 1, used pages | fresh pages |\n" +
          "| --- " * 5 + "|")
    for name, (summed, added) in calls.items():
        time.sleep(0.02)
        total = statistics.median(samples(summed, 0.0) + samples(summed, 0.0))
        used, fresh = pages(added)
        gc.collect()
        print(f"| {name} | {total:.1f} | {data.nbytes / total / 1e3:.0f} | {used:.1f} | "
              f"{fresh:.1f} |", flush=True)
    print(f"\n{fold.lower(x).roofline()}")


if __name__ == "__main__":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    hand_off(importlib.import_module("fnx"), importlib.import_module("fnx.numpy"))
    beside_others(importlib.import_module("fnx"), importlib.import_module("fnx.numpy"))
