"""Time first calls of the workloads, each in a process of its own, against JAX's.

    python benchmarks/first_calls.py                  # a table of all workloads
    python benchmarks/first_calls.py mlp_step --rounds 5

Four cases: fnx with an empty cache and in the next process, JAX without a cache and in a process
that finds everything in its persistent cache. Rounds take turns; the table has medians in ms, fnx's
times relative to JAX's, and how many kernels the next process compiled.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence

CASES = "fnx", "fnx again", "jax", "jax again"
NAMES = ("matmul1024", "matmul2048", "saxpy16M", "elementwise16M", "sum16M", "softmax4096",
         "layernorm_grad", "mlp_step", "cnn_step", "gpt_step", "rnn_grad", "scan_scalar100k",
         "hessian_logreg", "nbody_grad", "dispatch", "dispatch100")


def child(target: str, name: str) -> None:
    """Print the seconds of one first call, its CPU time, and the number of kernels compiled."""
    import time  # the parent does not load what a child loads

    from new_shapes import compiled
    from run import block, load
    from workloads import WORKLOADS

    f, args = WORKLOADS[name](load(target)[0])
    block(args)
    cpu, start = time.process_time(), time.perf_counter()
    block(f(*args))
    found = {"wall": time.perf_counter() - start, "cpu": time.process_time() - cpu}
    found["compiled"] = compiled(target)
    print(json.dumps(found))


def measured(case: str, name: str, folder: str) -> dict[str, float]:
    """Return a child's measurements, with the caches of this folder."""
    target = case.split()[0]
    env = {**os.environ, "FNX_CACHE_DIR": os.path.join(folder, "fnx")}
    for key in [k for k in env if k.startswith("JAX_")]:
        del env[key]
    if case == "jax again":
        env |= {"JAX_COMPILATION_CACHE_DIR": os.path.join(folder, "jax"),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    ran = subprocess.run([sys.executable, __file__, "--child", target, name], env=env,
                         capture_output=True, text=True, check=False)
    if ran.returncode:
        raise SystemExit(f"{case} {name}: {ran.stderr.strip()[-400:]}")
    found: dict[str, float] = json.loads(ran.stdout.splitlines()[-1])
    return found


def round_of(name: str) -> dict[str, dict[str, float]]:
    """Run all four cases once; an earlier process filled the caches."""
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for case in CASES:
            if case == "jax again":
                measured(case, name, folder)  # fills the cache
            found[case] = measured(case, name, folder)
        return found


def line(name: str, ms: Mapping[str, float], compiled: object) -> str:
    """Return a row of the table."""
    jax, again = max(ms["jax"], 1e-9), max(ms["jax again"], 1e-9)
    cells = "".join(f"{ms[case]:11.1f}" for case in CASES)
    return (f"{name:16s}{cells}{ms['fnx'] / jax:10.2f}{ms['fnx again'] / jax:10.2f}"
            f"{ms['fnx again'] / again:12.2f}   {compiled}")


def table(names: Sequence[str], rounds: int, clock: str) -> None:
    """Measure and print."""
    print(f"{'':16s}" + "".join(f"{case:>11s}" for case in CASES) +
          "      first    second  of cached   compiled")
    sums = dict.fromkeys(CASES, 0.0)
    for name in names:
        found = [round_of(name) for _ in range(rounds)]
        ms = {case: statistics.median(r[case][clock] for r in found) * 1e3 for case in CASES}
        compiled = max(int(r["fnx again"]["compiled"]) for r in found)
        print(line(name, ms, compiled), flush=True)
        for case in CASES:
            sums[case] += ms[case]
    print(line("sum", sums, ""))


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("names", nargs="*", default=[],
                        help="workloads; those of the table when none is named")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall",
                        help="cpu: seconds of all threads, for a machine that is not quiet")
    options = parser.parse_args()
    table(options.names or NAMES, options.rounds, options.clock)


if __name__ == "__main__":
    main()
