"""Compare random shard_map programs with JAX on 8 devices of the processor.

    python scripts/compare_shards.py 200            200 programs, values and derivatives
    python scripts/compare_shards.py 200 --from 1000
    python scripts/compare_shards.py 30 --record    JAX's answers for the suite

JAX runs in a child process. What differs is printed with the seed of the program.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.sharding import inner_derivatives, programs  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "shards.json"
GOLDEN_DERIVATIVES = GOLDEN.with_name("shard_derivatives.json")


def answer_as_jax(seeds: range, path: str) -> None:
    """Write the outcomes of JAX, with its check of replication and without."""
    import jax
    out = {}
    for seed in seeds:
        program = programs.draw(seed)
        checked = programs.run(jax, program)
        unchecked = programs.run(jax, program, False) if "value" in checked.errors else None
        out[seed] = tuple(checked), None if unchecked is None else tuple(unchecked)
    inner = {name: inner_derivatives.run(jax, name) for name in inner_derivatives.PROGRAMS}
    Path(path).write_bytes(pickle.dumps((out, inner)))


def answers_of_jax(seeds: range) -> tuple[
        dict[int, tuple[programs.Outcome, programs.Outcome | None]], dict[str, np.ndarray]]:
    """Return the outcomes of JAX from a child process, and those of the inner derivatives."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "answers")
        flags = "--xla_force_host_platform_device_count=8"
        subprocess.run([sys.executable, __file__, str(len(seeds)), "--from", str(seeds.start),
                        "--jax", path], env={**os.environ, "XLA_FLAGS": flags}, check=True)
        found, inner = pickle.loads(Path(path).read_bytes())
    return {seed: (programs.Outcome(*checked),
                   None if unchecked is None else programs.Outcome(*unchecked))
            for seed, (checked, unchecked) in found.items()}, inner


def main() -> int:
    """Return 1 if a program differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--from", type=int, default=0, dest="start")
    parser.add_argument("--jax", default="")
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    seeds = range(options.start, options.start + options.count)
    if options.jax:
        answer_as_jax(seeds, options.jax)
        return 0
    answers, inner = answers_of_jax(seeds)
    if options.record:
        lines = [f'"{seed}": {json.dumps(programs.summary(*pair))}'
                 for seed, pair in answers.items()]
        GOLDEN.write_text("{" + ",\n".join(lines) + "}\n")
        lines = [f'"{name}": {json.dumps(x.round(6).tolist())}' for name, x in inner.items()]
        GOLDEN_DERIVATIVES.write_text("{" + ",\n".join(lines) + "}\n")
        return 0
    import fnx
    fnx.config.cpu_devices = 8
    wrong = values = errors = proved = 0
    for seed, (checked, unchecked) in answers.items():
        ours = programs.run(fnx, programs.draw(seed))
        values += "value" not in ours.errors
        errors += "value" in ours.errors
        proved += "value" in checked.errors and "value" not in ours.errors
        differences = programs.differences(ours, checked, unchecked)
        if differences:  # beside the largest value on the way, which may have cancelled out
            peak = programs.peak(fnx, programs.draw(seed))
            differences = programs.differences(ours, checked, unchecked, peak)
        for line in differences:
            wrong += 1
            print(f"seed {seed}: {line}\n    {programs.draw(seed)}")
    for name, theirs in inner.items():
        ours = inner_derivatives.run(fnx, name)
        if ours.shape != theirs.shape or not np.allclose(ours, theirs, rtol=2e-4, atol=2e-5):
            wrong += 1
            print(f"derivative inside, {name}: {ours}, JAX: {theirs}")
    print(f"{len(inner)} derivatives inside; {len(answers)} programs: {values} have values, of "
          f"which JAX's check of replication refuses {proved}; {errors} are refused by both; "
          f"{wrong} differences")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
