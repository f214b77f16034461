"""Measure how the time of a first call grows with the size of the program.

    python benchmarks/long_programs.py fnx
    python benchmarks/long_programs.py jax --nodes 5000 10000 20000

The program is straight-line code of so many vector operations. Each step reads the previous value,
one from halfway back, and the argument, which all steps read: so values have distant readers. The
disk cache is off. For fnx, ``trace`` is the time to run the function, ``passes`` of everything that
turns it into text, ``all`` of the call; ``processor`` is the processor time over all threads, and
``a node`` that time per node. Each size has a process of its own, since kernels are cached in
memory.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

from run import block, load

SIZES = (1_000, 5_000, 10_000, 20_000, 50_000)


def program(m: SimpleNamespace, nodes: int) -> Any:
    """A function of so many operations, three a step."""
    def f(x: Any) -> Any:
        values = [x, x * 0.5]
        for i in range(nodes // 3):
            values.append(values[-1] * 0.5 + values[i // 2] - x)
        return values[-1]
    return f


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", choices=("fnx", "jax"))
    parser.add_argument("--nodes", type=int, nargs="*", default=SIZES)
    options = parser.parse_args()
    if len(options.nodes) > 1:
        print(f"{'nodes':>8} {'trace':>9} {'passes':>9} {'all':>9} {'processor':>9}   a node")
        for nodes in options.nodes:
            subprocess.run([sys.executable, __file__, options.target, "--nodes", str(nodes)],
                           check=True, env={**os.environ, "FNX_CACHE_DIR": ""})
        return
    nodes, = options.nodes
    modules = load(options.target)[0]
    x = modules.jnp.ones(1000)
    block(modules.jax.jit(program(modules, 30))(x))
    f = modules.jax.jit(program(modules, nodes))
    start, begun = time.perf_counter(), time.process_time()
    block(f(x))
    whole, work = (time.perf_counter() - start) * 1e3, (time.process_time() - begun) * 1e3
    trace, passes = stages(f, x) if options.target == "fnx" else (0.0, 0.0)
    print(f"{nodes:8} {trace:9.0f} {passes:9.0f} {whole:9.0f} {work:9.0f} ms "
          f"{work / nodes * 1e3:7.1f} us", flush=True)


def stages(f: Any, x: Any) -> tuple[float, float]:
    """Return the milliseconds of tracing and of the passes in the last call."""
    spent = dict(f.lower(x).milliseconds)
    for stage in ("llvm", "link"):
        spent.pop(stage, None)
    return spent.pop("trace"), sum(spent.values())


if __name__ == "__main__":
    main()
