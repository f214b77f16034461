"""Break down the time of a first call, next to JAX's: trace, each pass, LLVM and link.

    python benchmarks/stages.py                  mlp_step
    python benchmarks/stages.py softmax4096
    python benchmarks/stages.py --write          mlp_step, into docs/benchmarks.md

Both libraries run in processes of their own, fnx with an empty object cache.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compare import write
from run import load
from workloads import WORKLOADS

HERE = Path(__file__).resolve().parent


def timed(f: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result and the milliseconds it took."""
    start = time.perf_counter()
    result = f()
    return result, (time.perf_counter() - start) * 1e3


def jax_stages(f: Any, args: tuple[Any, ...]) -> dict[str, float]:
    traced, trace = timed(lambda: f.trace(*args))
    lowered, lower = timed(traced.lower)
    _, compiled = timed(lowered.compile)
    return {"trace": trace, "lower": lower, "compile": compiled}


def fnx_stages(f: Any, args: tuple[Any, ...]) -> dict[str, float]:
    milliseconds: dict[str, float] = f.lower(*args).milliseconds
    return milliseconds


def one(target: str, name: str) -> None:
    """Print the stages of one workload on one target; runs in a process of its own."""
    ns, _ = load(target)
    f, args = WORKLOADS[name](ns)
    measure = {"jax": jax_stages, "fnx": fnx_stages}[target]
    stages, whole = timed(lambda: measure(f, args))
    for stage, milliseconds in [*stages.items(), ("all", whole)]:
        print(f"| {target} | {stage} | {milliseconds:.2f} |")


def both(name: str) -> str:
    """Print the table of one workload on both targets."""
    lines = ["| | stage | ms |", "| --- | --- | --- |"]
    for target in ("jax", "fnx"):
        with tempfile.TemporaryDirectory(prefix="fnx-bench-") as cache:
            environment = os.environ | {"FNX_CACHE_DIR": cache, "JAX_PLATFORMS": "cpu",
                                        "PYTHONPATH": str(HERE.parent)}
            done = subprocess.run([sys.executable, __file__, name, "--target", target], text=True,
                                  env=environment, check=True, stdout=subprocess.PIPE)
        lines += done.stdout.splitlines()
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="stages of a first call")
    parser.add_argument("name", nargs="?", default="mlp_step", help="a workload")
    parser.add_argument("--target", choices=("jax", "fnx"), help="only this one, in this process")
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.md")
    options = parser.parse_args()
    if options.target:
        one(options.target, options.name)
        return
    table = both(options.name)
    print(table)
    if options.write:
        write(table, "stages.py")


if __name__ == "__main__":
    main()
