"""Run a program of programs/ and print what it found, as one line of JSON.

    python -m fnx.as_jax tests/as_jax/run.py diffrax_solve             on fnx
    python tests/as_jax/run.py diffrax_solve --times 2                 on JAX, and again

``seconds`` are those of each run in the process; after the first there are more than ``--times`` if
they are short. ``library`` is fnx or jax.
"""

import argparse
import io
import json
import runpy
import sys
import time
from contextlib import redirect_stdout
from pathlib import Path

SHORT, MOST = 1.0, 20  # seconds of all runs but the first, and runs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("arguments", nargs="*", help="those of the program")
    options = parser.parse_args()
    path = Path(__file__).with_name("programs") / f"{options.program}.py"
    sys.argv = [str(path), *options.arguments]
    start, seconds = time.perf_counter(), []
    run = runpy.run_path(str(path), run_name=options.program)["main"]
    while len(seconds) < options.times or (
            options.times > 1 and sum(seconds[1:]) < SHORT and len(seconds) < MOST):
        found = io.StringIO()
        with redirect_stdout(found):
            run()
        seconds.append(time.perf_counter() - start)
        start = time.perf_counter()
    jax = sys.modules["jax"].Array.__module__
    print(json.dumps({"found": json.loads(found.getvalue()), "seconds": seconds,
                      "library": jax.partition(".")[0]}))


if __name__ == "__main__":
    main()
