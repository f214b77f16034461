"""Time eager calls with new shapes in seconds, and count the kernels compiled for them.

    python benchmarks/new_shapes.py jax
    python benchmarks/new_shapes.py fnx

Ten functions, 200 shapes each, drawn with a fixed seed: rows and columns of 2 to 300. Each call
waits for its result, so nothing is hidden in a queue. The operands are made before the clock
starts. The disk cache is off (``FNX_CACHE_DIR=``), so kernels are compiled here.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

SHAPES = 200
Case = tuple[Callable[..., Any], list[tuple[Any, ...]]]


def cases(m: SimpleNamespace, shapes: int, seed: int) -> dict[str, Case]:
    """Return the functions and their operands."""
    jnp, draw = m.jnp, np.random.default_rng(seed)
    sizes = draw.choice(np.arange(2, 301), size=(3, 10, shapes), replace=True).tolist()

    def array(*shape: int) -> Any:
        return jnp.asarray(draw.standard_normal(shape).astype(np.float32))

    def each(at: int, operands: Callable[[int, int, int], tuple[Any, ...]]
             ) -> list[tuple[Any, ...]]:
        return [operands(*abc) for abc in zip(*(part[at] for part in sizes))]

    matrix = [lambda a, b, _: (array(a, b),)]
    return {
        "x + 1": (lambda x: x + 1, each(0, matrix[0])),
        "x * y": (lambda x, y: x * y, each(1, lambda a, b, _: (array(a, b), array(a, b)))),
        "sin": (jnp.sin, each(2, matrix[0])),
        "x + row": (lambda x, y: x + y, each(3, lambda a, b, _: (array(a, b), array(b)))),
        "sum": (jnp.sum, each(4, matrix[0])),
        "mean, axis 0": (lambda x: jnp.mean(x, axis=0), each(5, matrix[0])),
        "x @ y": (lambda x, y: x @ y, each(6, lambda a, b, c: (array(a, b), array(b, c)))),
        "concatenate": (lambda x, y: jnp.concatenate([x, y]),
                        each(7, lambda a, b, c: (array(a, b), array(c, b)))),
        "argmax, axis 1": (lambda x: jnp.argmax(x, axis=1), each(8, matrix[0])),
        "x[rows]": (lambda x, i: x[i], each(9, lambda a, b, c: (
            array(a, b), jnp.asarray(draw.integers(0, a, c).astype(np.int32))))),
    }


def compiled(target: str) -> int:
    """Return the number of kernels that this process has compiled; 0 if it is not counted."""
    if target != "fnx":
        return 0
    from fnx.backends.device.base import get_device
    from fnx.core.support.config import config
    return int(get_device(config.device).stats().get("compiled", 0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=("fnx", "jax"))
    parser.add_argument("--shapes", type=int, default=SHAPES)
    parser.add_argument("--seed", type=int, default=10)
    parser.add_argument("--only", default="", help="a function")
    options = parser.parse_args()
    os.environ["FNX_CACHE_DIR"] = ""
    from run import block, load
    target = options.target
    total, begun = 0.0, 0
    for name, (f, calls) in cases(load(target)[0], options.shapes, options.seed).items():
        if options.only not in name:
            continue
        before, spent = compiled(target), []
        for args in calls:
            start = time.perf_counter()
            block(f(*args))
            spent.append(time.perf_counter() - start)
        seconds = sum(spent)
        total, begun = total + seconds, begun + compiled(target) - before
        print(f"{target}  {name:16}{seconds * 1e3:10.1f} ms, a call {np.median(spent) * 1e3:7.3f},"
              f" kernels {compiled(target) - before}", flush=True)
    print(f"{target}  {'all':16}{total * 1e3:10.1f} ms, kernels {begun}")


if __name__ == "__main__":
    main()
