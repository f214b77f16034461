"""Compare training steps in bfloat16 and float16 with those in float32: losses and time per step.

    python benchmarks/low_precision.py [fnx|jax] [steps]

A small 16-bit loss is only accurate to a few percent, since its logits are rounded. So the trained
parameters are judged by their float32 loss, as a mean over the last steps, because with a large
rate the loss fluctuates. Exits with 1 if that differs by more than 2 % from float32's. For
comparison, the effect of changing the initial parameters by one ulp is shown as well.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from run import load
from workloads import gpt_step, mlp_step

Step = Callable[..., Any]
WORKLOADS = {"mlp_step": mlp_step, "gpt_step": gpt_step}
DTYPES = ("float32", "bfloat16", "float16")
TOLERANCE = 0.02
LAST = 10  # steps over which the training is judged
OFF = "one ulp"  # float32 again, from parameters that are off by one ulp


class Trained(NamedTuple):
    """Losses of the first and the last step, the mean of the float32 losses before the last steps,
    and milliseconds per step."""

    first: float
    last: float
    exact: float
    ms: float


def losses(step: Step, exact: Step, args: tuple[Any, ...], steps: int) -> Trained:
    """Train; ``exact`` is the step in float32."""
    params, x, y = args
    out, least, judged = [], float("inf"), []
    for i in range(steps):
        if i >= steps - LAST:
            judged.append(float(exact(params, x, y)[0]))
        start = time.perf_counter()
        loss, params = step(params, x, y)
        out.append(float(loss))
        least = min(least, time.perf_counter() - start)
    return Trained(out[0], out[-1], float(np.mean(judged)), least * 1e3)


def nudged(ns: Any, params: Any) -> Any:
    """Move each parameter by one ulp, up or down."""
    rng = np.random.default_rng(0)

    def off(p: Any) -> Any:
        x = np.asarray(p)
        up = rng.choice([-np.inf, np.inf], x.shape).astype(x.dtype)
        return ns.jnp.asarray(np.nextafter(x, up))
    return ns.jax.tree.map(off, params)


def compared(ns: Any, build: Callable[..., Any], steps: int, **sizes: int
             ) -> dict[str, Trained]:
    """Train with each dtype."""
    exact, _ = build(ns, **sizes)
    found = {}
    for dtype in DTYPES:
        step, args = build(ns, dtype=dtype, **sizes)
        found[dtype] = losses(step, exact, args, steps)
    _, (params, x, y) = build(ns, **sizes)
    found[OFF] = losses(exact, exact, (nudged(ns, params), x, y), steps)
    return found


def far(found: dict[str, Trained]) -> list[str]:
    """Return the dtypes whose loss differs from float32's."""
    want = found["float32"].exact
    return [t for t, trained in found.items() if t != OFF and not (
        np.isfinite(trained.last) and abs(trained.exact - want) <= TOLERANCE * abs(want))]


def main() -> int:
    target, steps = [*sys.argv[1:], "fnx", "50"][:2] if len(sys.argv) < 3 else sys.argv[1:3]
    ns, wrong = load(target)[0], []
    for name, build in WORKLOADS.items():
        found = compared(ns, build, int(steps))
        for dtype, (first, last, exact, ms) in found.items():
            print(f"{name} {dtype:9} loss {first:.5f} -> {last:.5f} ({exact:.5f} in float32) in "
                  f"{steps} steps, {ms:.2f} ms")
        wrong += [f"{name} {t}" for t in far(found)]
    print("all within 2 % of float32" if not wrong else f"more than 2 % off: {', '.join(wrong)}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
