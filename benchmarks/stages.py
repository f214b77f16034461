"""Where the time of a first call goes, beside JAX's: trace, each pass, LLVM and link.

    python benchmarks/stages.py                  mlp_step
    python benchmarks/stages.py softmax4096

Both libraries run in processes of their own, fnx with an empty object cache.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def timed(f: Callable[[], Any]) -> tuple[Any, float]:
    """The result and the milliseconds it took."""
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
    from run import load
    from workloads import WORKLOADS

    ns, _ = load(target)
    f, args = WORKLOADS[name](ns)
    measure = {"jax": jax_stages, "fnx": fnx_stages}[target]
    stages, whole = timed(lambda: measure(f, args))
    for stage, milliseconds in stages.items():
        print(f"{target}  {stage:16s} {milliseconds:9.2f} ms")
    print(f"{target}  {'all':16s} {whole:9.2f} ms")


def main() -> None:
    arguments = sys.argv[1:]
    if len(arguments) == 2:
        one(*arguments)
        return
    name = arguments[0] if arguments else "mlp_step"
    for target in ("jax", "fnx"):
        with tempfile.TemporaryDirectory(prefix="fnx-bench-") as cache:
            environment = os.environ | {"FNX_CACHE_DIR": cache, "JAX_PLATFORMS": "cpu",
                                        "PYTHONPATH": str(HERE.parent)}
            subprocess.run([sys.executable, __file__, target, name], env=environment, check=True)


if __name__ == "__main__":
    main()
