"""Programs of tests/as_jax/programs, which use JAX's libraries, on fnx and on JAX.

    python scripts/libraries.py                      compare all, and write docs/libraries.md
    python scripts/libraries.py diffrax_solve        compare some
    python scripts/libraries.py --resume             all, without those that have already run
    python scripts/libraries.py --page               run nothing, write the page of what has run
    python scripts/libraries.py --record             write tests/golden/libraries.json, by JAX
    python scripts/libraries.py --wider 8            models so much wider over 20 steps

Each program runs twice in a process of its own, from the same file on both. `make libraries` makes
the environment with the versions in scripts/libraries.toml.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from library_tests import Count, suite

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "libraries.json"
RESULTS = ROOT / "build" / "libraries"  # what each program found, for --resume
PAGE = ROOT / "docs" / "libraries.md"
PROGRAMS = sorted(p.stem for p in (ROOT / "tests" / "as_jax" / "programs").glob("*.py"))
TABLE = tomllib.loads((ROOT / "scripts" / "libraries.toml").read_text())
SECONDS = 900  # for one program
CLOSE = 1e-6  # a larger difference is measured in float64, too


class Outcome(NamedTuple):
    """What a program found, the seconds of each of its runs, or the line it failed with."""

    found: dict[str, Any]
    seconds: list[float]
    error: str = ""

    @property
    def again(self) -> float:
        """The seconds of a run after the first: the least, as other processes only add to it."""
        return min(self.seconds[1:])


def run(program: str, *, on_fnx: bool, times: int = 2, in_double: bool = False) -> Outcome:
    """Run a program, with its arguments behind its name, on one of both; once if in float64."""
    name, *arguments = program.split()
    variables = {"PYTHONPATH": str(ROOT), **({"JAX_ENABLE_X64": "1"} if in_double else {})}
    command = [sys.executable, *(["-m", "fnx.as_jax"] if on_fnx else []), "tests/as_jax/run.py",
               name, "--times", "1" if in_double else str(times), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS,
                          env={**os.environ, **variables})
    if done.returncode:
        return Outcome({}, [], next((line for line in reversed(done.stderr.splitlines())
                                     if line and not line.startswith(" ")), "?"))
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["library"] == ("fnx" if on_fnx else "jax"), answer["library"]
    return Outcome(answer["found"], answer["seconds"])


def results(program: str, *, on_fnx: bool, in_double: bool = False) -> Path:
    """Return where what a program finds is kept."""
    library = "fnx" if on_fnx else "jax"
    return RESULTS / f"{program}.{'float64.' if in_double else ''}{library}.json"


def resume(program: str, *, on_fnx: bool, is_resumed: bool, in_double: bool = False) -> Outcome:
    """Run a program, or read what it found when it last ran."""
    path = results(program, on_fnx=on_fnx, in_double=in_double)
    if not is_resumed or not path.exists():
        outcome = run(program, on_fnx=on_fnx, in_double=in_double)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(outcome._asdict()))
    return Outcome(**json.loads(path.read_text()))


def library(program: str) -> str:
    """Return the library of a program, which its name begins with."""
    return max((name for name in TABLE["programs"]
                if program.startswith(name.replace("-", "_"))), key=len)


def numbers(tree: Any) -> list[float]:
    if isinstance(tree, list):
        return [x for item in tree for x in numbers(item)]
    return [float(tree)]


def difference(found: Any, wanted: Any) -> float:
    """Return the largest difference, relative to the largest number of the same result."""
    pairs = list(zip(numbers(found), numbers(wanted), strict=True))
    scale = max((abs(b) for _, b in pairs if abs(b) < float("inf")), default=1.0)
    return max((abs(a - b) / max(scale, 1e-6) for a, b in pairs if a != b and (a == a or b == b)),
               default=0.0)


def rounded(tree: Any) -> Any:
    """Round to seven digits, the precision of float32."""
    if isinstance(tree, list):
        return [rounded(x) for x in tree]
    return float(f"{tree:.7g}")


def record(programs: list[str]) -> None:
    """Write what JAX says to the programs that are in the golden file."""
    golden = json.loads(GOLDEN.read_text())
    for program in programs or list(golden):
        golden[program] = {name: rounded(x)
                           for name, x in run(program, on_fnx=False, times=1).found.items()}
    lines = [f'"{p}": {{\n' + ",\n".join(f'"{n}": {json.dumps(x)}' for n, x in found.items())
             + "}" for p, found in sorted(golden.items())]
    GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


class Row(NamedTuple):
    """A program on both: the differences of what it found, except draws, and of its draws."""

    program: str
    ours: Outcome
    theirs: Outcome
    in_double: float | None = None  # the difference in float64, if it was measured

    @staticmethod
    def measure(program: str, *, is_resumed: bool, is_run: bool) -> Row:
        """Run a program on both, or read what it found; ``is_run``: float64, too, if it is
        needed."""
        row = Row(program, *(resume(program, on_fnx=on_fnx, is_resumed=is_resumed)
                             for on_fnx in (True, False)))
        files = [results(program, on_fnx=on_fnx, in_double=True) for on_fnx in (True, False)]
        if row.error or row.worst(False) < CLOSE or not (is_run or all(f.exists() for f in files)):
            return row
        double = Row(program, *(resume(program, on_fnx=on_fnx, is_resumed=is_resumed,
                                       in_double=True) for on_fnx in (True, False)))
        return row if double.error else row._replace(in_double=double.worst(False))

    def worst(self, sampled: bool) -> float:
        """Return the largest difference of the results whose name begins with "sampled", or
        else."""
        return max((difference(self.ours.found[name], wanted)
                    for name, wanted in self.theirs.found.items()
                    if name.startswith("sampled") == sampled), default=0.0)

    @property
    def error(self) -> str:
        """What failed, or ""."""
        return self.theirs.error and f"JAX: {self.theirs.error}" or self.ours.error

    @property
    def ratio(self) -> float:
        """A later run on fnx over one on JAX."""
        return self.ours.again / self.theirs.again

    def cells(self) -> list[str]:
        """Return the cells of the page."""
        name = library(self.program)
        path = ROOT / "tests" / "as_jax" / "programs" / f"{self.program}.py"
        what = path.read_text().partition('"""')[2].partition('"""')[0].split("\n\n")[0]
        cells = [f"{name} {TABLE['programs'][name]}",
                 " ".join((what.partition(": ")[2] or what).split()).rstrip(".")]
        if self.error:
            return [*cells, self.error.replace("|", "\\|")[:160], *[""] * 4]
        sampled = self.worst(True)
        double = "" if self.in_double is None else f" (float64: {self.in_double:.0e})"
        return [*cells, f"{self.worst(False):.0e}{double}" +
                (f"; draws {sampled:.0e}" if sampled else ""),
                *(f"{s:.2g}" for s in (self.ours.seconds[0], self.theirs.seconds[0])),
                f"{self.ours.again:.2g}", f"{self.ratio:.2f}"]


def own_tests() -> str:
    """Return the section on the tests of the libraries, as far as they have run."""
    counts = {name: Count.of_suite(suite(name)) for name in TABLE["tests"]}
    ran = {name: c for name, c in counts.items() if c.of}
    passed, of = (sum(getattr(c, field) for c in ran.values()) for field in ("passed", "of"))
    table = "\n".join(f"| {name} {TABLE['programs'][name]} | {c.of} | {c.passed} |"
                      for name, c in ran.items())
    return f"""## Their own tests

`scripts/library_tests.py` runs the tests that wheels and sdists of these libraries carry, on both.
Of {of} that have run and pass on JAX, {passed} pass on fnx: {100 * passed / max(of, 1):.1f} %.

| library | pass on JAX | of these on fnx |
|---|---|---|
{table}
"""


def page(rows: list[Row]) -> str:
    """Return docs/libraries.md."""
    done = [row for row in rows if not row.error]
    mean = statistics.mean(row.ratio for row in done)
    table = "\n".join("| " + " | ".join(row.cells()) + " |" for row in rows)
    finished = {row.program for row in done}
    others = [program.partition("_")[0] for program in PROGRAMS if program not in finished]
    missing = f" Without a result so far: {', '.join(others)}." if others else ""
    return f"""# Libraries written for JAX

`make libraries` writes this page: it runs each program of `tests/as_jax/programs` unchanged on fnx
(`python -m fnx.as_jax`) and on JAX, in an environment of its own. A difference is that of the
largest disagreement to the largest number of a result; draws of samplers are compared by their
means. One larger than 1e-6 is also given of a run in float64: steps that are chosen by an error
estimate, and sums of small differences, magnify the rounding of float32. Times are seconds: a
first run includes imports, tracing and compilation; the later run is the shortest of up to 19.

{len(done)} of {len(PROGRAMS)} programs run; a later run in the process takes {mean:.2f} of JAX's
time on average, {max(row.ratio for row in done):.2f} at most.{missing}

| library | what runs | difference | first run | JAX | later run | of JAX's |
|---|---|---|---|---|---|---|
{table}

{own_tests()}
## Names inside JAX

Libraries also use names that JAX does not document (`jax._src`, `jax.interpreters`, `jaxlib`).
`scripts/record_private_names.py` harvests them from the wheels of these libraries and of
{len(TABLE["names"])} more into `fnx/as_jax/private_names.json`, with the public name of the same
thing if JAX has one. Such a name is fnx's thing of that public name, or an entry of
`fnx/as_jax/internal_names.py`; else it can be imported, and raises when it is used, with the name
of the module that uses it. Any other name is an ImportError or an AttributeError, as in JAX, since
libraries detect features so. [Differences](differences.md) lists what is not supported.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", help="by default all")
    parser.add_argument("--record", action="store_true", help="write the golden file")
    parser.add_argument("--wider", type=int, help="so many times, of models")
    parser.add_argument("--resume", action="store_true", help="leave out those that have run")
    parser.add_argument("--page", action="store_true", help="only of what has run")
    parser.add_argument("--requirements", action="store_true", help="print them for pip")
    options = parser.parse_args()
    if options.requirements:
        print(*(f"{name}=={version}" for name, version in
                {**TABLE["environment"], **TABLE["programs"]}.items()), sep="\n")
        return
    if options.record:
        record(options.programs)
        return
    chosen = options.programs or PROGRAMS
    if options.page:
        chosen = [p for p in chosen
                  if all(results(p, on_fnx=on_fnx).exists() for on_fnx in (True, False))]
    if options.wider:
        chosen = [f"{p} {options.wider}" for p in chosen if p.endswith("_models")]
    rows = []
    for program in chosen:
        rows.append(Row.measure(program, is_resumed=options.resume or options.page,
                                is_run=not options.page))
        print(program, *rows[-1].cells()[2:], sep="  ", flush=True)
    if not options.programs and not options.wider:
        PAGE.write_text(page(rows))


if __name__ == "__main__":
    main()
