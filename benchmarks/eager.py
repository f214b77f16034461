"""Measure eager calls on one target: microseconds, medians of rounds.

    python benchmarks/eager.py jax
    python benchmarks/eager.py fnx

The arrays are small, so that the call itself is measured. ``x[new i]`` and ``.at[new i].set`` use a
new index in each call; the others repeat one call.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from run import load

ROUNDS = 9


def cases(m: SimpleNamespace) -> dict[str, tuple[int, Callable[[], Any]]]:
    """Return calls to time, and how many of each make a round."""
    jnp, new = m.jnp, itertools.count()
    x, square, key = jnp.ones(8), jnp.ones((64, 64)), m.random.PRNGKey(0)
    long = jnp.ones(100_000)
    parts = {f"p{i}": jnp.ones(8) for i in range(40)}
    weights, batch = {"a": jnp.ones((8, 8)), "b": jnp.ones((8, 8))}, jnp.ones((4, 8))

    def chain() -> Any:
        y = x
        for _ in range(5):
            y = y * 2.0 + 1.0
        return y

    def loss(w: Any, x: Any) -> Any:
        return ((jnp.tanh(x @ w["a"]) @ w["b"]) ** 2).mean()

    return {
        "x + 1": (300, lambda: x + 1), "x + x": (300, lambda: x + x),
        "sin": (300, lambda: jnp.sin(x)), "sum": (300, lambda: x.sum()),
        "mean": (300, lambda: jnp.mean(x)), "x[3]": (300, lambda: x[3]),
        "x[new i]": (100, lambda: long[next(new)]),
        ".at[new i].set": (100, lambda: long.at[next(new)].set(1.0)),
        "chain of 10": (100, chain), "matmul 64": (100, lambda: square @ square),
        "random.normal": (100, lambda: m.random.normal(key, (8,))),
        "tree of 40, p - 0.1 * g": (10, lambda: m.jax.tree.map(lambda p, g: p - 0.1 * g,
                                                              parts, parts)),
        "grad of an MLP": (10, lambda: m.jax.grad(loss)(weights, batch)["a"]),
    }


def microseconds(count: int, f: Callable[[], Any]) -> float:
    """Return the time per call in the median round."""
    f(), f()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(count):
            f()
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times) * 1e6


def report(doc: str | None, cases: Callable[[SimpleNamespace], Any]) -> None:
    """Print the microseconds of each case for the target that the command line names."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("target", choices=("fnx", "jax"))
    target = parser.parse_args().target
    for name, (count, f) in cases(load(target)[0]).items():
        print(f"{target}  {name:26}{microseconds(count, f):10.1f} us", flush=True)


if __name__ == "__main__":
    report(__doc__, cases)
