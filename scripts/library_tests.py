"""The tests that JAX's libraries carry, on fnx and on JAX.

    python scripts/library_tests.py                 those of all libraries
    python scripts/library_tests.py chex optax      those of some libraries
    python scripts/library_tests.py --part 1/10     a tenth of the tests, of a fixed shuffle
    python scripts/library_tests.py --resume        files of tests that have already run not again
    python scripts/library_tests.py --on fnx rlax   on one of both only
    python scripts/library_tests.py --match alias   files whose path contains alias

[tests] of scripts/libraries.toml says where the tests of a library are: in a package that is
installed, or in a folder of the sdist, which pip downloads. A test that passes on JAX and fails on
fnx is listed by the first line of its error, the most frequent first. `make libraries`
runs this before scripts/libraries.py, which writes the counts to docs/libraries.md.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLE = tomllib.loads((ROOT / "scripts" / "libraries.toml").read_text())
RESULTS = ROOT / "build" / "libraries" / "tests"
SDISTS = ROOT / "build" / "libraries" / "sdists"
TEST_SECONDS, PROCESS_SECONDS = 120, 3600
FILES = 8  # in one process, as imports take longer than most files


def plain_name(test: str) -> str:
    """Return the name of a test with the dtypes that parametrize it as fnx prints them.

    >>> plain_name("test_of(dtype=<class 'jax.numpy.float32'>)")
    'test_of(dtype=float32)'
    """
    return re.sub(r"<class 'jax\.numpy\.(\w+)'>", r"\1", test)


class Part(NamedTuple):
    """A part of a fixed shuffle of all tests: the index-th of count."""

    index: int
    count: int

    @staticmethod
    def parse(text: str) -> Part:
        """Read "1/10"."""
        index, _, count = text.partition("/")
        return Part(int(index) - 1, int(count))

    def has(self, test: str) -> bool:
        """Say whether a test is in this part, by a digest of its name."""
        digest = hashlib.md5(plain_name(test).encode()).hexdigest()
        return int(digest, 16) % self.count == self.index


class Recorder:
    """A plugin of pytest: it writes each test's outcome as a line of JSON when the test ends."""

    def __init__(self, outs: dict[str, str], part: Part) -> None:
        self.outs, self.part = outs, part

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if self.part.has(item.nodeid.partition("::")[2])]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.write(report.nodeid, "", "error", str(report.longrepr))

    def pytest_runtest_setup(self) -> None:
        signal.signal(signal.SIGALRM, _raise_timeout)
        signal.alarm(TEST_SECONDS)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call":
            signal.alarm(0)
        if report.when == "call" or report.outcome != "passed":
            file, _, test = report.nodeid.partition("::")
            self.write(file, test, report.outcome,
                       str(report.longrepr) if report.outcome == "failed" else "")

    def pytest_sessionfinish(self) -> None:
        for out in self.outs.values():
            Path(out).touch()

    def write(self, name: str, test: str, outcome: str, trace: str) -> None:
        """Write one line."""
        said = [line[1:].strip() for line in trace.splitlines() if line.startswith("E ")]
        error = next((line for line in said if line), trace.strip().rpartition("\n")[2])
        out = next(out for file, out in self.outs.items() if file.endswith(name))
        with Path(out).open("a") as stream:
            print(json.dumps({"test": test, "outcome": outcome, "error": error[:300],
                              "trace": trace[-6000:]}), file=stream)


def _raise_timeout(number: int, frame: object) -> None:
    raise TimeoutError(f"a test that takes longer than {TEST_SECONDS} seconds")


def run_inside(outs: dict[str, str], part: Part) -> None:
    """Run the tests of files in this process, where `import jax` is one of both."""
    import pytest
    root = os.path.commonpath([os.path.dirname(file) for file in outs])
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-c", os.devnull, "--rootdir",
               root, "-W", "ignore", "--tb", "short", "--continue-on-collection-errors", *outs]
    pytest.main(options, plugins=[Recorder(outs, part)])


class Suite(NamedTuple):
    """The tests of a library: the folder of its results, and its files."""

    library: str
    files: list[Path]

    def out(self, file: Path, on: str) -> Path:
        """Return where the outcomes of a file are."""
        parts = file.parts[-4:-1]
        return RESULTS / self.library / f"{'.'.join((*parts, file.stem))}.{on}.jsonl"


def download(library: str) -> Path:
    """Return the folder of a library's sdist, downloaded once."""
    version = TABLE["programs"][library]
    name = f"{library.replace('-', '_')}-{version}"
    if not (SDISTS / name).exists():
        SDISTS.mkdir(parents=True, exist_ok=True)
        archive = SDISTS / f"{name}.tar.gz"
        if not archive.exists():
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                            "--no-binary", library, "--dest", str(SDISTS),
                            f"{library}=={version}"], check=True)
        with tarfile.open(archive) as tar:
            tar.extractall(SDISTS, filter="data")
    return SDISTS / name


def suite(library: str) -> Suite:
    """Find the tests of a library."""
    kind, _, place = TABLE["tests"][library].partition(":")
    if kind == "sdist":
        folder = download(library) / place
    else:
        spec = importlib.util.find_spec(place)
        assert spec is not None and spec.submodule_search_locations, place
        folder = Path(spec.submodule_search_locations[0])
    return Suite(library, sorted({*folder.rglob("test_*.py"), *folder.rglob("*_test.py")}))


def run_files(outs: dict[Path, Path], on: str, part: str) -> None:
    """Run the tests of files in one process, and in another those after a file that ended it."""
    left = dict(outs)
    while left:
        for out in left.values():
            out.parent.mkdir(parents=True, exist_ok=True)
            out.unlink(missing_ok=True)
        command = [sys.executable, *(["-m", "fnx.as_jax"] if on == "fnx" else []), __file__,
                   "--inside", json.dumps({str(f): str(out) for f, out in left.items()}),
                   "--part", part]
        log = out.with_suffix(".log")
        with log.open("w") as stream:
            try:
                subprocess.run(command, cwd=out.parent, stdout=stream, stderr=stream,
                               timeout=PROCESS_SECONDS,
                               env={**os.environ, "PYTHONPATH": str(ROOT)})
            except subprocess.TimeoutExpired:
                print(f"longer than {PROCESS_SECONDS} seconds", file=stream)
        before = len(left)
        left = {file: out for file, out in left.items() if not out.exists()}
        if len(left) == before:
            file, out = left.popitem()
            error = log.read_text().strip().rpartition("\n")[2]
            out.write_text(json.dumps({"test": "", "outcome": "error", "error": error,
                                       "trace": ""}) + "\n")


def outcomes(path: Path) -> dict[str, dict[str, str]]:
    """Read what a file's tests did, by test; "" is the whole file."""
    if not path.exists():
        return {}
    read = [json.loads(line) for line in path.read_text().splitlines()]
    return {plain_name(row["test"]): row for row in reversed(read)}


class Count(NamedTuple):
    """How many tests pass on fnx of those that pass on JAX, and the errors of the others."""

    passed: int
    of: int
    errors: list[tuple[str, str]]  # of each test that fails: its name, its error

    @staticmethod
    def of_suite(tests: Suite) -> Count:
        """Count what is recorded of a library."""
        passed, of, errors = 0, 0, []
        for file in tests.files:
            ours, theirs = (outcomes(tests.out(file, on)) for on in ("fnx", "jax"))
            whole = ours.get("", {"error": "the process ended before this test"})
            for test, row in theirs.items():
                if row["outcome"] != "passed" or not ours:
                    continue
                mine = ours.get(test, {"outcome": "error", **whole})
                of += 1
                passed += mine["outcome"] == "passed"
                if mine["outcome"] != "passed":
                    errors.append((f"{file.stem}::{test}", mine["error"] or mine["outcome"]))
        return Count(passed, of, errors)


def causes(errors: list[tuple[str, str]]) -> list[tuple[int, str, str]]:
    """Group errors by what they say without numbers: how many, the first error, its test."""
    groups: dict[str, list[tuple[str, str]]] = collections.defaultdict(list)
    for test, error in errors:
        groups[re.sub(r"0x\w+|\d+", "#", error)[:120]].append((test, error))
    return sorted(((len(g), g[0][1], g[0][0]) for g in groups.values()), reverse=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("libraries", nargs="*", help="by default all")
    parser.add_argument("--part", default="1/1")
    parser.add_argument("--on", choices=["fnx", "jax"])
    parser.add_argument("--match", default="", help="only files whose path contains this")
    parser.add_argument("--resume", action="store_true", help="leave out files that have run")
    parser.add_argument("--report", action="store_true", help="count what is recorded, run nothing")
    parser.add_argument("--inside", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.inside:
        run_inside(options.inside, Part.parse(options.part))
        return
    errors = []
    for library in options.libraries or TABLE["tests"]:
        tests = suite(library)
        chosen = [f for f in tests.files if options.match in str(f) and not options.report]
        for on in [options.on] if options.on else ["jax", "fnx"]:
            outs = {file: tests.out(file, on) for file in chosen
                    if not (options.resume and tests.out(file, on).exists())}
            for start in range(0, len(outs), FILES):
                run_files(dict(list(outs.items())[start:start + FILES]), on, options.part)
        count = Count.of_suite(tests)
        errors += count.errors
        print(f"{library}: {count.passed} of {count.of}", flush=True)
    for number, error, test in causes(errors):
        print(f"{number:4}  {error}\n      {test}")


if __name__ == "__main__":
    main()
