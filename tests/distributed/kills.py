"""Kill a process of two that save again and again, and look at what is left.

    python -m tests.distributed.kills 100 --from 0     a line for each kill that went wrong
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from pathlib import Path

from tests.distributed.launch import launch

PROGRAM = """
import os, pathlib, signal, sys, threading, time, fnx, fnx.numpy as jnp, numpy as np
path, victim, seconds, first = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])
fnx.distributed.initialize()
rows = fnx.NamedSharding(fnx.make_mesh((2,), ("d",)), fnx.P("d"))
def kill():
    pathlib.Path(path + ".killed").write_text(str(time.time()))
    os.kill(os.getpid(), signal.SIGKILL)
for step in range(1, 10_000):
    if step == first and fnx.process_index() == victim:
        threading.Timer(seconds, kill).start()
    block = np.full((1, 20_000), step, np.float32)
    fnx.save(path, {"w": fnx.make_array_from_process_local_data(rows, block), "step": step})
"""
LOOK = """
import sys, fnx, numpy as np
state = fnx.load(sys.argv[1])
assert state["w"].shape == (2, 20_000) and (state["w"] == state["step"]).all(), state
print("step", int(state["step"]))
"""
LIMIT = 30.0  # seconds after the kill in which the others must have ended


def kill(seed: int) -> tuple[int, str]:
    """Return the last step that was saved, 0 if none was, and what was wrong."""
    draw = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "run.shards")
        done = launch(2, PROGRAM, path, str(draw.randrange(2)), str(draw.uniform(0, 1)),
                      str(draw.choice([1, 2])), folder=Path(folder))
        end, killed = time.time(), Path(path + ".killed")
        if done.returncode == 0 or not killed.exists() or \
                end - float(killed.read_text()) > LIMIT:
            return 0, f"the others did not end: {done.stdout}{done.stderr}"
        if not os.path.exists(os.path.join(path, "index.json")):
            return 0, ""
        seen = launch(1, LOOK, path, folder=Path(folder))
        return int(seen.stdout.split()[-1]) if seen.returncode == 0 else 0, seen.stderr


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    parser.add_argument("--from", type=int, default=0, dest="first")
    arguments = parser.parse_args()
    steps, wrong = [], 0
    for seed in range(arguments.first, arguments.first + arguments.count):
        step, why = kill(seed)
        steps.append(step)
        wrong += bool(why)
        if why:
            print(f"seed {seed}: {why}", flush=True)
    print(f"{arguments.count} kills, {sum(s > 0 for s in steps)} after a save, the last at step "
          f"{max(steps)}; wrong: {wrong}")


if __name__ == "__main__":
    main()
