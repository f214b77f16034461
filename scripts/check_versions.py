"""Does fnx run with each Python and llvmlite that it supports?

    make versions               the smoke test with the oldest llvmlite, as on each change
    make versions ARGS=--all    the laws on each Python of this machine, the tests of the compiler
                                with the oldest and the newest llvmlite

Another llvmlite is installed in a folder of its own below ``build/versions``, another Python gets
an environment there. A free-threaded Python runs the smoke test with its global lock. One that this
machine lacks is named, and left out. The last lines are a table; the output of each run is stored
beside it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from fnx.core.support.record import Record
from fnx.core.support.requirements import LLVMLITE

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "versions"
OLDEST, (MAJOR, BEYOND) = ".".join(map(str, LLVMLITE[0])), LLVMLITE[1]
NEWEST = f"{MAJOR}.{BEYOND - 1}"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
FREE_THREADED = ("3.13t", "3.14t")
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"


class Run(Record):
    """Tests, and where they run."""

    python: str
    llvmlite: str
    tests: tuple[str, ...]


QUICK = (Run(HERE, OLDEST, ("tests/tiny",)),)
ALL = (*[Run(python, NEWEST, ("tests/tiny", "tests/laws")) for python in PYTHONS],
       *[Run(HERE, llvmlite, ("tests/tiny", "tests/lower")) for llvmlite in (OLDEST, NEWEST)],
       *[Run(python, NEWEST, ("tests/tiny",)) for python in FREE_THREADED])


def interpreter(python: str) -> str:
    """Return the path of an interpreter of this version; "" if there is none."""
    path = sys.executable if python == HERE else shutil.which(f"python{python}")
    works = path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0
    return path if path and works else ""


def prepare(run: Run, path: str) -> tuple[str, str]:
    """Install what a run needs; return its interpreter, and its first folder of modules."""
    pip = ("-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    wanted = f"llvmlite=={run.llvmlite}.*"
    if run.python == HERE:
        folder = BUILD / f"llvmlite-{run.llvmlite}"
        subprocess.run([path, *pip, "--target", str(folder), "--no-deps", "--upgrade", wanted],
                       check=True)
        return path, str(folder)
    place = BUILD / f"python-{run.python}"
    if not place.exists():
        subprocess.run([path, "-m", "venv", str(place)], check=True)
    own = str(place / "bin" / "python")
    subprocess.run([own, *pip, "--editable", f"{ROOT}[checks,examples]", wanted], check=True)
    return own, str(ROOT)


def outcome(run: Run, workers: int) -> tuple[bool, str]:
    """Run the tests; return whether they passed, and the last line of pytest."""
    path = interpreter(run.python)
    if not path:
        return True, "this machine has no such Python"
    try:
        own, first = prepare(run, path)
    except subprocess.CalledProcessError as error:
        return False, f"cannot be installed: {error}"
    cache = str(BUILD / "cache") if len(run.tests) > 1 else ""  # "": the smoke test compiles all
    variables = os.environ | {"PYTHONPATH": os.pathsep.join([first, str(ROOT)]),
                              "FNX_CACHE_DIR": cache, "PYTHON_GIL": "1"}
    log = BUILD / f"{run.python}-{run.llvmlite}-{Path(run.tests[-1]).name}.log"
    with log.open("w") as out:
        done = subprocess.run([own, "-m", "pytest", "-n", str(workers), *run.tests], cwd=ROOT,
                              env=variables, stdout=out, stderr=subprocess.STDOUT)
    lines = log.read_text(errors="replace").splitlines()
    counts = [line for line in lines if " passed" in line or " failed" in line]
    return done.returncode == 0, (counts or lines or ["no output"])[-1].strip("= ")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--all", action="store_true", help="each Python, the laws, the compiler")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    good = True
    for run in ALL if options.all else QUICK:
        start = time.monotonic()
        passed, line = outcome(run, options.workers)
        good &= passed
        print(f"Python {run.python:<6} llvmlite {run.llvmlite:<6} {' '.join(run.tests):<24} "
              f"{time.monotonic() - start:4.0f} s  {line}", flush=True)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
