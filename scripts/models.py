"""Thirty models of torchvision, transformers and our own on fnx: values, gradients, times.

    python scripts/models.py                        all, and print the table, worst first
    python scripts/models.py resnet18 bert          some
    python scripts/models.py --resume               without what build/models has already
    python scripts/models.py --only values onnx     some parts: values, times, onnx
    python scripts/models.py --table                run nothing, print what has run

Each part of a model runs in a process of its own with limits of time and memory. `make models`
makes the environment. Parts:

values: outputs (float32, float64) and gradients by all parameters (float64) against eager PyTorch,
    the largest difference relative to the largest number of a tensor; graph breaks, ops that fnx
    left to PyTorch.
times: inference at batch 1 and 8 and a training step at batch 8 against eager and inductor, in
    turns; the seconds of the first call.
onnx: the exported model against onnxruntime, values and times at batch 1 and 8, and gradients by
    the initializers against PyTorch.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from model_table import MODELS

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "build" / "models"
PARTS = ("values", "times", "onnx")
SECONDS, GIGABYTES = 900, 16  # of a part of a model


def run(name: str, part: str) -> dict[str, Any]:
    """Run a part of a model in a process of its own, and return what it found."""
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_DATA, (GIGABYTES << 30, GIGABYTES << 30))

    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "FNX_CACHE_DIR": cache, "PYTHONPATH": str(ROOT),
                       "TORCHINDUCTOR_CACHE_DIR": cache}
        command = [sys.executable, str(ROOT / "scripts" / "model_parts.py"), name, part]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS,
                                  env=environment, preexec_fn=limit)
            out, error = done.stdout, "" if done.returncode == 0 else _last_line(done.stderr) or \
                f"exit {done.returncode}"
        except subprocess.TimeoutExpired as late:
            out = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
            error = f"more than {SECONDS} s"
    lines = [line for line in out.splitlines() if line.startswith("{")]
    found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
    return found | ({"error": error} if error else {})


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line and not line.startswith(" ")]
    return next((line for line in reversed(lines) if "Error" in line), lines[-1] if lines else "")


def file_of(name: str, part: str) -> Path:
    return RESULTS / f"{name}.{part}.json"


def ratio(found: Mapping[str, float] | None, others: Sequence[str]) -> float:
    """Return the time of fnx over that of the better of the others."""
    known = [found[k] for k in others if k in found] if found and "fnx" in found else []
    return found["fnx"] / min(known) if found and known else math.nan


ROWS = [
    *[(f"times.{w}", f"{w} / torch", lambda x, w=w: ratio(x.get(w), ("eager", "inductor")))
      for w in ("b1", "b8", "step")],
    ("times.first", "first / inductor",
     lambda x: ratio(x.get("b1 first"), ("inductor",))),
    *[(f"onnx.{w}", f"{w} / ort", lambda x, w=w: ratio(x.get(w), ("onnxruntime",)))
      for w in ("b1", "b8")]]


def table(names: Sequence[str]) -> None:
    """Print a line for each model, worst first, and the means."""
    lines, columns = [], [[] for _ in ROWS]
    for name in names:
        found = {p: json.loads(file_of(name, p).read_text()) if file_of(name, p).exists() else {}
                 for p in PARTS}
        ratios = [of(found[key.partition(".")[0]]) for key, _, of in ROWS]
        for column, r in zip(columns, ratios):
            if r == r:
                column.append(r)
        v, o = found["values"], found["onnx"]
        cells = [*[f"{r:.2f}" if r == r else "" for r in ratios],
                 *[f"{v[k]:.0e}" if k in v else "" for k in ("float32", "float64", "gradients")],
                 *[f"{o[k]:.0e}" if k in o else "" for k in ("values b1", "gradients")],
                 str(sum(v["breaks"].values())) if "breaks" in v else "",
                 "; ".join([*v.get("left", []),
                            *[f"{p}: {x['error']}" for p, x in found.items() if "error" in x]])]
        known = [r for r in (*ratios[:3], *ratios[4:]) if r == r]
        lines.append((-max(known, default=0.0), f"| {name} | {' | '.join(cells)} |"))
    heads = ["model", *[head for _, head, _ in ROWS], "float32", "float64", "gradients", "onnx",
             "its gradients", "breaks", "errors"]
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    print(*[line for _, line in sorted(lines)], sep="\n")
    for (_, head, _), column in zip(ROWS, columns):
        if column:
            mean = math.exp(statistics.fmean(map(math.log, column)))
            print(f"{head}: {len(column)} models, geometric mean {mean:.2f}, "
                  f"worst {max(column):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    names = options.names or list(MODELS)
    RESULTS.mkdir(parents=True, exist_ok=True)
    for part in () if options.table else options.only:
        for name in names:
            if not (options.resume and file_of(name, part).exists()):
                found = run(name, part)
                file_of(name, part).write_text(json.dumps(found, indent=1))
                print(name, part, json.dumps(found)[:400], flush=True)
    table(names)


if __name__ == "__main__":
    main()
