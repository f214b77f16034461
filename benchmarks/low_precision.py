"""Training steps in bfloat16 and float16 beside those in float32: losses and time of a step.

    python benchmarks/low_precision.py [fnx|jax] [steps]

Exits with 1 where the last loss is more than 2 % from that of float32.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from run import load
from workloads import gpt_step, mlp_step

Step = Callable[..., Any]
WORKLOADS = {"mlp_step": mlp_step, "gpt_step": gpt_step}
DTYPES = ("float32", "bfloat16", "float16")
TOLERANCE = 0.02


def losses(step: Step, args: tuple[Any, ...], steps: int) -> tuple[list[float], float]:
    """The loss of each step, and the least seconds that one took."""
    params, x, y = args
    out, least = [], float("inf")
    for _ in range(steps):
        start = time.perf_counter()
        loss, params = step(params, x, y)
        out.append(float(loss))
        least = min(least, time.perf_counter() - start)
    return out, least


def compared(ns: Any, build: Callable[..., Any], steps: int, **sizes: int
             ) -> dict[str, tuple[float, float, float]]:
    """Of each dtype the first and the last loss, and milliseconds of a step."""
    found = {}
    for dtype in DTYPES:
        trained, seconds = losses(*build(ns, dtype=dtype, **sizes), steps)
        found[dtype] = trained[0], trained[-1], seconds * 1e3
    return found


def far(found: dict[str, tuple[float, float, float]]) -> list[str]:
    """The dtypes whose last loss is not that of float32."""
    want = found["float32"][1]
    return [t for t, (_, last, _) in found.items()
            if not np.isfinite(last) or abs(last - want) > TOLERANCE * abs(want)]


def main() -> int:
    target, steps = [*sys.argv[1:], "fnx", "50"][:2] if len(sys.argv) < 3 else sys.argv[1:3]
    ns, wrong = load(target)[0], []
    for name, build in WORKLOADS.items():
        found = compared(ns, build, int(steps))
        for dtype, (first, last, ms) in found.items():
            print(f"{name} {dtype:9} loss {first:.5f} -> {last:.5f} in {steps} steps, {ms:.2f} ms")
        wrong += [f"{name} {t}" for t in far(found)]
    print("all within 2 % of float32" if not wrong else f"more than 2 % off: {', '.join(wrong)}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
