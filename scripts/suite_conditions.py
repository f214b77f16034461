"""Run the whole test suite under the conditions of other machines, as far as one can simulate them.

    python scripts/suite_conditions.py                         each condition once
    python scripts/suite_conditions.py busy bare --times 2     those, twice
    python scripts/suite_conditions.py --list                  the conditions

Each run uses a fresh clone of the last commit, its own random seed and an empty cache. ``--state``
gets a line for each run: the condition, the commit, seconds, the last line of pytest, and the seed;
the output is stored next to it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parent.parent
COMPILERS = ("cc", "c++", "c89", "c99", "gcc", "g++", "cpp", "clang", "clang++", "ld", "lld", "as",
             "gold", "tcc", "ptxas", "nvcc", "x86_64-linux-gnu-*", "*-gcc*", "*-ld*", "ld.*")
NO_DRIVERS = {"OCL_ICD_VENDORS": os.devnull, "VK_ICD_FILENAMES": os.devnull,
              "VK_DRIVER_FILES": os.devnull}


@dataclass(frozen=True)
class Condition:
    """What another machine has, lacks, or runs at the same time."""

    says: str
    workers: int = 2
    busy: int = 0  # busy processes next to it
    processors: int = 0  # that it may use; 0: all
    variables: dict[str, str] = field(default_factory=dict)
    without: tuple[str, ...] = ()  # environment variables to unset
    compilers: bool = True


CONDITIONS = {
    "idle": Condition("nothing else runs"),
    "all-devices": Condition("devices that have to be looked for, too", variables={"CI": "1"}),
    "busy": Condition("four processes compute beside it", busy=4),
    "one": Condition("one processor", workers=1, processors=1),
    "eight": Condition("eight workers, eight threads", workers=8, variables={"FNX_THREADS": "8"}),
    "bare": Condition("no drivers, no compilers, no HOME", variables=NO_DRIVERS,
                      without=("HOME", "XDG_CACHE_HOME"), compilers=False),
    "no-compilers": Condition("drivers, but no compiler and no linker", compilers=False),
    "no-bytecode": Condition("Python writes no bytecode",
                             variables={"PYTHONDONTWRITEBYTECODE": "1"}),
}


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Start so many processes that never wait."""
    spin = [sys.executable, "-c", "while True: pass"]
    running = [subprocess.Popen(spin) for _ in range(count)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def path_without_compilers(folder: Path) -> str:
    """Make a PATH of one folder, with links to all programs on PATH except compilers and
    linkers."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for program in Path(place).glob("*") if place else ():
            name = Path(program.name)
            link = folder / program.name
            if not link.exists() and not any(name.match(pattern) for pattern in COMPILERS):
                link.symlink_to(program)
    return str(folder)


def run(name: str, state: Path) -> bool:
    """Run the suite under one condition; return whether it passed."""
    condition = CONDITIONS[name]
    work = Path(tempfile.mkdtemp(prefix="conditions-"))
    clone, begun = work / "clone", time.strftime("%H%M%S")
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=clone, check=True,
                            capture_output=True, text=True).stdout.strip()
    variables = {k: v for k, v in os.environ.items() if k not in condition.without}
    variables |= {"PYTHONPATH": str(clone), **condition.variables}
    if not condition.compilers:
        variables["PATH"] = path_without_compilers(work / "bin")
    allowed = sorted(os.sched_getaffinity(0))
    here = set(allowed[:condition.processors or None])
    log = state / f"{name}-{commit}-{begun}.log"
    start = time.monotonic()
    with busy_processes(condition.busy), log.open("w") as out:
        code = subprocess.run([sys.executable, "-m", "pytest", "-n", str(condition.workers), "-vv"],
                              cwd=clone, env=variables, stdout=out, stderr=subprocess.STDOUT,
                              preexec_fn=lambda: os.sched_setaffinity(0, here)).returncode
    seconds = time.monotonic() - start
    lines = log.read_text(errors="replace").splitlines()
    seed = next((s.split("=")[-1] for s in lines if "--hypothesis-seed=" in s), "?")
    failed = sorted({s.split(" - ")[0] for s in lines if s.startswith(("FAILED", "ERROR "))})
    row = "\t".join([name, commit, f"{seconds:.0f} s", lines[-1].strip("= "), f"seed {seed}"])
    with (state / "done.tsv").open("a") as done:
        done.write(row + "\n")
    print(row, *failed, sep="\n    ", flush=True)
    shutil.rmtree(work, ignore_errors=True)
    return code == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="condition", help="all where none is named")
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--state", type=Path, default=ROOT / "build" / "conditions")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    unknown = set(options.names) - set(CONDITIONS)
    if unknown:
        parser.error(f"expected some of {', '.join(CONDITIONS)}, got {', '.join(sorted(unknown))}")
    if options.list:
        for name, condition in CONDITIONS.items():
            print(f"{name:<14}{condition.says}")
        return 0
    state = options.state.resolve()
    state.mkdir(parents=True, exist_ok=True)
    names = (options.names or list(CONDITIONS)) * options.times
    passed = [run(name, state) for name in names]
    print(f"{sum(passed)} of {len(passed)} runs passed")
    return int(not all(passed))


if __name__ == "__main__":
    sys.exit(main())
