"""Run the workloads on JAX and on fnx in turn, in separate processes, and compare.

    python benchmarks/compare.py                 prints the table
    python benchmarks/compare.py --write         also renews the table in docs/benchmarks.md

Each round runs JAX, then fnx with an empty object cache, then fnx again with the cache that the
previous run filled. A ratio is fnx / JAX within one round; the table shows the median over the
rounds, so that temporary load on the machine affects both sides. The results of the first round
must agree.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- written by {} -->", "<!-- end of {} -->"
NAMES = ("mlp_step", "matmul1024", "saxpy16M", "softmax4096", "dispatch", "dispatch100")
RTOL, ATOL = 1e-4, 1e-5
# In chaotic workloads a rounding error grows until the results are unrelated: there the results of
# fewer steps must agree instead.
FEWER = {"scan_scalar100k": "scan_scalar2k"}

Times = dict[str, list[float]]  # name -> seconds of the first call, of a steady one


def run(target: str, names: list[str], folder: Path, label: str, cache: Path) -> Times:
    """Run one process of run.py; its values are in folder/label.npz."""
    times = folder / f"{label}.json"
    command = [sys.executable, str(HERE / "run.py"), target, *names, "--times", str(times),
               "--values", str(folder / f"{label}.npz")]
    environment = os.environ | {"FNX_CACHE_DIR": str(cache), "JAX_PLATFORMS": "cpu",
                                "PYTHONPATH": str(HERE.parent)}
    print(f"-- {label}", flush=True)
    subprocess.run(command, env=environment, check=False)
    return json.loads(times.read_text()) if times.exists() else {}


def tolerance(expected: np.ndarray[Any, Any]) -> float:
    """Return ATOL times the result's root mean square, if that is above 1.

    A sum with cancellation keeps the rounding errors of its large terms: about a hundred of the
    million results of matmul1024 are so close to 0 that JAX's own are off by more than ATOL + RTOL
    * |x|.
    """
    return ATOL * max(1.0, float(np.sqrt(np.mean(np.square(expected.astype("float64"))))))


def disagreements(folder: Path, names: list[str]) -> dict[str, str]:
    """Return name -> what differs, for the workloads whose results disagree."""
    found: dict[str, str] = {}
    if not all((folder / f"{side}.npz").exists() for side in ("jax", "fnx")):
        return dict.fromkeys(names, "no result")
    with np.load(folder / "jax.npz") as expected, np.load(folder / "fnx.npz") as got:
        for key in expected.files:
            name = key.partition("/")[0]
            if name not in names or name in FEWER:
                continue
            if key not in got.files:
                found[name] = "no result"
                continue
            wrong = ~np.isclose(got[key], expected[key], rtol=RTOL, atol=tolerance(expected[key]))
            if wrong.any():
                worst = np.max(np.abs(got[key] - expected[key])[wrong])
                found[name] = f"{wrong.sum()} of {wrong.size} differ, by {worst:.2g} at most"
    return found


def rounds(names: list[str], count: int) -> tuple[dict[str, list[Times]], dict[str, str]]:
    """Return label -> times of each round, and the disagreements of the first round."""
    measured: dict[str, list[Times]] = {"jax": [], "fnx": [], "fnx warm": []}
    wrong: dict[str, str] = {}
    for i in range(count):
        with tempfile.TemporaryDirectory(prefix="fnx-bench-") as name:
            folder, cache = Path(name), Path(name) / "cache"
            for label in measured:
                measured[label].append(run(label[:3], names, folder, label, cache))
            if i == 0:
                wrong = disagreements(folder, names)
    return measured, wrong


def cpu_model() -> str:
    """Return the processor's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if "model name" in line),
                platform.machine())


def machine() -> str:
    """Describe the machine, the versions and the date."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}"
                         for name in ("jax", "numpy", "llvmlite"))
    day = datetime.date.today().isoformat()
    return (f"{cpu_model()}, {os.cpu_count()} cores, {platform.system()}, "
            f"Python {platform.python_version()}, {versions}; {day}")


def duration(seconds: float) -> str:
    scale, unit = (1.0, "s") if seconds >= 1 else (1e3, "ms") if seconds >= 1e-3 else (1e6, "us")
    value = seconds * scale
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def row(name: str, measured: dict[str, list[Times]], wrong: dict[str, str]) -> list[str]:
    """Return the cells of a table row: medians over the rounds in which both sides ran."""
    both = [times for times in zip(*measured.values()) if all(name in t for t in times)]
    if not both:
        return [name, *["-"] * 7, "does not run"]

    def median(side: int, column: int) -> str:
        return duration(statistics.median(times[side][name][column] for times in both))

    def ratio(column: int) -> str:
        values = [fnx[name][column] / jax[name][column] for jax, fnx, _ in both]
        return f"{statistics.median(values):.2f}"

    return [name, median(0, 0), median(1, 0), ratio(0), median(2, 0), median(0, 1), median(1, 1),
            ratio(1), wrong.get(FEWER.get(name, name), "yes")]


def table(names: list[str], measured: dict[str, list[Times]], wrong: dict[str, str]) -> str:
    head = ["workload", "JAX first", "fnx first", "ratio", "fnx first, cached", "JAX steady",
            "fnx steady", "ratio", "agrees"]
    lines = [head, ["---"] * len(head)]
    lines += [row(name, measured, wrong) for name in ["import", *names]]
    lines[2][-1] = ""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def write(text: str, tool: str) -> None:
    """Put ``text`` between a tool's two marks in docs/benchmarks.md."""
    begin, end = BEGIN.format(tool), END.format(tool)
    before, found_begin, rest = PAGE.read_text().partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found_begin and found_end):
        raise SystemExit(f"expected the marks {begin!r} and {end!r} in {PAGE.name}")
    PAGE.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}")


def main() -> int:
    parser = argparse.ArgumentParser(description="compare fnx with JAX")
    parser.add_argument("names", nargs="*", help=f"workloads; by default {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.md")
    options = parser.parse_args()
    names: list[Any] = options.names or list(NAMES)
    names += [FEWER[n] for n in names if n in FEWER and FEWER[n] not in names]
    measured, wrong = rounds(names, options.rounds)
    head = textwrap.fill(f"{machine()}; medians of {options.rounds} rounds.", 100)
    text = f"{head}\n\n{table(names, measured, wrong)}"
    print(f"\n{text}")
    if options.write:
        write(text, "compare.py")
    for name, what in wrong.items():
        print(f"{name}: {what}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
