"""Run smaller versions of the benchmark workloads on a device, and compare with the cpu.

    python scripts/device_workloads.py opencl                 all of them
    python scripts/device_workloads.py webgpu gpt_step        some of them

Each line has the seconds including compilation, and the largest difference relative to the largest
value.
"""

from __future__ import annotations

import argparse
import sys
import time
import types
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from workloads import SMALLER, WORKLOADS

import fnx
from fnx.core.support.config import GPUS, override

BOUND = 1e-4  # for float32 sums of some thousand terms and a few training steps
LARGE = 1 << 21  # argument elements above which a workload is skipped


def numbers(name: str, device: str) -> list[Any]:
    """Return the results of a workload on a device, from the same arguments."""
    with override(device=device):
        f, args = SMALLER.get(name, WORKLOADS[name])(types.SimpleNamespace(
            jax=fnx, jnp=fnx.numpy, lax=fnx.lax, random=fnx.random))
        size = sum([np.size(x) for x in fnx.tree.leaves(args)])
        if size > LARGE:
            raise OverflowError(f"{size:,} numbers")
        return [np.asarray(x, np.float64) for x in fnx.tree.leaves(f(*args))]


def difference(got: list[Any], want: list[Any]) -> float:
    """Return the largest difference relative to the largest value of its array; infinite for a
    NaN."""
    found = [float(np.abs(g - w).max(initial=0) / (np.abs(w).max(initial=0) or 1))
             for g, w in zip(got, want, strict=True)]
    return max([d if d == d else float("inf") for d in found], default=0.0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("device", choices=GPUS)
    parser.add_argument("names", nargs="*", default=list(WORKLOADS))
    options = parser.parse_args()
    wrong, left_out = 0, 0
    for name in options.names:
        start = time.monotonic()
        try:
            found = difference(numbers(name, options.device), numbers(name, "cpu"))
            said = f"{found:.1e}"
        except OverflowError as large:
            left_out += 1
            print(f"{name:<24} left out: {large}", flush=True)
            continue
        except fnx.FnxError as error:
            found, said = float("inf"), f"{type(error).__name__}: {error}"
        wrong += found > BOUND
        print(f"{name:<24} {time.monotonic() - start:6.1f} s  {said}"
              f"{'  WRONG' if found > BOUND else ''}", flush=True)
    print(f"{len(options.names) - left_out} workloads on {options.device}: {wrong} wrong, "
          f"{left_out} left out")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
