"""Compare user-written kernels with the machine's limits and with JAX.

    python -m benchmarks.handwritten            all rows
    python -m benchmarks.handwritten 1024       GEMM of one size, no JAX

The limit of a GEMM is the register tile alone on panels in the L1 cache, on the same cores in the
same run: rounds of the limit, the user-written and the generated product in turn; medians of 7
rounds. One core means one worker (a process of its own).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp
from benchmarks.kernels import Compiled, aligned, tile_limit
from examples.kernels import gemm_schedule, matmul, softmax

ROUNDS = 7


def seconds(f: Callable[[], Any]) -> float:
    start = time.perf_counter()
    f()
    return time.perf_counter() - start


class Limit:
    """The register tile on L1-resident panels, on some threads at once."""

    def __init__(self, threads: int) -> None:
        self.threads, self.repeats = threads, 4000
        kernel = Compiled(tile_limit(repeats=self.repeats))
        self.runs = [kernel.prepare([aligned((256, 14)), aligned((256, 32)), aligned((14, 32)),
                                     aligned((self.repeats,), np.int32)], [], 1, aligned((1,)))
                     for _ in range(threads)]

    def gflops(self) -> float:
        workers = [threading.Thread(target=run) for run in self.runs]
        start = time.perf_counter()
        for w in workers:
            w.start()
        for w in workers:
            w.join()
        each = 2 * 256 * 14 * 32 * self.repeats
        return self.threads * each / (time.perf_counter() - start) / 1e9


def gemm(n: int, threads: int) -> str:
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.standard_normal((n, n)).astype("float32")) for _ in range(2))
    limit = Limit(threads)
    written = fnx.jit(matmul(gemm_schedule()))
    generated = fnx.jit(lambda a, b: a @ b)
    rounds: dict[str, list[float]] = {"limit": [], "hand": [], "generated": []}
    for f in (written, generated):
        for _ in range(3):
            f(a, b).block_until_ready()
    repeat = max(1, (2048 // n) ** 3 // 2)
    for _ in range(ROUNDS):
        rounds["limit"].append(limit.gflops())
        for name, f in (("hand", written), ("generated", generated)):
            times = [seconds(lambda f=f: f(a, b).block_until_ready()) for _ in range(repeat)]
            rounds[name].append(2 * n**3 / statistics.median(times) / 1e9)
    best, hand, own = (statistics.median(rounds[k]) for k in ("limit", "hand", "generated"))
    return (f"GEMM {n}, {threads} core{'s' * (threads > 1)}: limit {best:.0f} GFLOP/s, "
            f"by hand {hand:.0f} ({100 * hand / best:.0f} %), generated {own:.0f} "
            f"({hand / own:.2f}x the time)")


def softmax_beside_jax(n: int = 4096) -> str:
    import jax

    x = np.random.default_rng(0).standard_normal((n, n)).astype("float32")
    ours, theirs = fnx.jit(softmax), jax.jit(lambda x: jax.nn.softmax(x, axis=-1))
    x_fnx, x_jax = jnp.asarray(x), jax.numpy.asarray(x)
    np.testing.assert_allclose(ours(x_fnx), np.asarray(theirs(x_jax)), rtol=1e-4, atol=1e-7)
    ratios, times = [], []
    for _ in range(ROUNDS):
        t = [min(seconds(lambda f=f, v=v: f(v).block_until_ready()) for _ in range(3))
             for f, v in ((ours, x_fnx), (theirs, x_jax))]
        ratios.append(t[0] / t[1])
        times.append(t[0])
    return (f"softmax {n}x{n} by hand: {statistics.median(times) * 1e3:.1f} ms, "
            f"{statistics.median(ratios):.2f}x of JAX's time")


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(gemm(int(sys.argv[2]), int(sys.argv[3])), flush=True)
        return
    sizes = [int(a) for a in sys.argv[1:]] or [1024, 2048]
    cores = len(os.sched_getaffinity(0))
    for n in sizes:
        for threads in dict.fromkeys((1, cores)):
            subprocess.run([sys.executable, "-m", "benchmarks.handwritten", "--one", str(n),
                            str(threads)], check=True,
                           env={**os.environ, "FNX_WORKERS": str(threads)})
    if not sys.argv[1:]:
        print(softmax_beside_jax())


if __name__ == "__main__":
    main()
