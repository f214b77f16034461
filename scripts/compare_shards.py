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

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.sharding import programs  # noqa: E402

GOLDEN = ROOT / "tests" / "golden" / "shards.json"


def answer_as_jax(seeds: range, path: str) -> None:
    """Write the outcomes of JAX, with its check of replication and without."""
    import jax
    out = {}
    for seed in seeds:
        program = programs.draw(seed)
        checked = programs.run(jax, program)
        unchecked = programs.run(jax, program, False) if "value" in checked.errors else None
        out[seed] = tuple(checked), None if unchecked is None else tuple(unchecked)
    Path(path).write_bytes(pickle.dumps(out))


def answers_of_jax(seeds: range) -> dict[int, tuple[programs.Outcome, programs.Outcome | None]]:
    """Return the outcomes of JAX from a child process."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "answers")
        flags = "--xla_force_host_platform_device_count=8"
        subprocess.run([sys.executable, __file__, str(len(seeds)), "--from", str(seeds.start),
                        "--jax", path], env={**os.environ, "XLA_FLAGS": flags}, check=True)
        found = pickle.loads(Path(path).read_bytes())
    return {seed: (programs.Outcome(*checked),
                   None if unchecked is None else programs.Outcome(*unchecked))
            for seed, (checked, unchecked) in found.items()}


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
    answers = answers_of_jax(seeds)
    if options.record:
        lines = [f'"{seed}": {json.dumps(programs.summary(*pair))}'
                 for seed, pair in answers.items()]
        GOLDEN.write_text("{" + ",\n".join(lines) + "}\n")
        return 0
    import fnx
    fnx.config.cpu_devices = 8
    wrong = values = errors = proved = 0
    for seed, (checked, unchecked) in answers.items():
        ours = programs.run(fnx, programs.draw(seed))
        values += "value" not in ours.errors
        errors += "value" in ours.errors
        proved += "value" in checked.errors and "value" not in ours.errors
        for line in programs.differences(ours, checked, unchecked):
            wrong += 1
            print(f"seed {seed}: {line}\n    {programs.draw(seed)}")
    print(f"{len(answers)} programs: {values} have values, of which JAX's check of replication "
          f"refuses {proved}; {errors} are refused by both; {wrong} differences")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
