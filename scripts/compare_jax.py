"""Compare public functions with JAX: values, dtypes, weak types, shapes and gradients.

    python scripts/compare_jax.py [family...]      all calls, on both
    python scripts/compare_jax.py --x64            with 64-bit types
    python scripts/compare_jax.py --part 3-5/40 wide   three of forty parts, of the named families
    python scripts/compare_jax.py --state FILE --jobs 2 wide   parts that FILE lacks, one by one,
                                                   and calls that differed when it was written
    python scripts/compare_jax.py --seed 7 --part 1/40   parts of another shuffle
    python scripts/compare_jax.py --answers FILE   cache JAX's answers in a file
    python scripts/compare_jax.py --record [family...]   write tests/golden/names.json (a sample)
    python scripts/compare_jax.py --record --part 1/40 [--x64] wide     and tests/golden/wide.json
    python scripts/compare_jax.py --record --part 1/40 [--x64] degenerate lists      and edges.json

The calls are those of tests/golden/name_cases.py, of wide_cases.py (every function over every dtype
and shape), of degenerate_cases.py (empty arrays and the like), and of list_cases.py (lists of
numbers of several kinds). Deliberate differences are listed in tests/golden/differences.py and
docs/differences.md. JAX compiles quickly here (jax_answers.py); a call that differs is run again in
JAX with default options, in another process. Counts are printed; the exit status says whether
something else differs.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jax_answers import GOLDEN, Answers, answer, golden, names

SAMPLE = 3           # one call in so many is recorded
PARTS = 40           # parts of a run with --state
# families recorded in each file
SAMPLED = {"wide.json": {"wide"}, "edges.json": {"degenerate", "lists"}}
INPUTS = ["f", "m", "v", "x", "s", "w", "z", "unit", "pos", "wide", "mixed", "sorted", "nans"]


def gradients(expression: str, result: Any) -> Iterator[str]:
    """The gradient of each float input that an expression names, if its result has floats."""
    if "grad(" in expression or not any(r[0] in golden("differences").LEAST for r in result):
        return
    for name in (*INPUTS, *golden("wide_cases").differentiable(expression)):
        if re.search(rf"(?<![\w.'=]){name}\b(?!\()", expression):
            yield f"grad(lambda {name}: probe({expression}))({name})"


def compare(expression: str, fnx: dict[str, Any], theirs: Answers, rtol: float) -> str:
    """Describe how the two answers to an expression differ."""
    if theirs.refuses(expression):
        if any(text in theirs[expression] for text in golden("differences").STRICTER):
            return ""
        try:
            answer(expression, fnx)
        except Exception:
            return ""
        return f"answers; JAX refuses: {theirs[expression]}"
    try:
        got = answer(expression, fnx)
    except Exception as error:
        return f"refuses: {type(error).__name__} {str(error)[:200]}"
    least = 1.0 if expression.startswith("grad(") else 1e-30
    found = golden("differences").difference(got, theirs[expression], rtol,
                                             theirs.weak(expression), least)
    return str(found)


def only_at_edges(expression: str, fnx: dict[str, Any], theirs: Answers, rtol: float) -> bool:
    """Whether gradients differ only where JAX's gradient or the value itself is NaN or infinite:
    outside a domain, at its ends and at poles (docs/differences.md)."""
    if not expression.startswith("grad(") or theirs.refuses(expression):
        return False
    (t, w, shape, want), = theirs[expression]
    values = theirs[re.sub(r"^grad\(lambda \w+: probe\((.*)\)\)\(\w+\)$", r"\1", expression)]
    try:
        got = answer(expression, fnx)[0][3]
    except Exception:
        return False
    edge = ~np.isfinite(want)
    for _, _, size, value in [] if isinstance(values, str) else values:
        edge |= ~np.isfinite(value) if size == shape else False
    return not golden("differences").difference(
        [(t, w, shape, np.where(edge, 0, got))], [(t, w, shape, np.where(edge, 0, want))],
        rtol, False, 1.0)


def record(cases: Any, theirs: Answers, families: list[str]) -> None:
    """Rewrite the sample of some families; the rest of names.json stays."""
    path = GOLDEN / "names.json"
    known = json.loads(path.read_text())
    rows = {}
    for family, calls in cases.FAMILIES.items():
        for e in calls[::cases.SAMPLES.get(family, SAMPLE)]:
            if family not in families:
                rows |= {e: known[e]} if e in known else {}
            elif not theirs.refuses(e):
                rows[e] = _plain(theirs[e])
    text = ",\n".join(f"{json.dumps(e)}: {json.dumps(a)}" for e, a in rows.items())
    path.write_text("{\n" + text + "\n}\n")
    print(len(rows), "calls recorded")


def record_wide(path: Path, agreed: dict[str, Any], x64: bool) -> None:
    """Rewrite both answers for one mode; the other mode stays."""
    known = json.loads(path.read_text()) if path.exists() else {}
    known["x64" if x64 else "x32"] = agreed
    rows = [f"{json.dumps(mode)}: {{\n" + ",\n".join(
        f"{json.dumps(e)}: {json.dumps(a)}" for e, a in found.items()) + "\n}"
        for mode, found in known.items()]
    path.write_text("{" + ",\n".join(rows) + "}\n")
    print(len(agreed), "calls recorded")


class Counts(NamedTuple):
    """The outcome of some calls, with a description of each difference."""

    total: int
    on_purpose: int
    wrong: list[tuple[str, str]]


class Comparison:
    """Run calls on both, in one of the two modes."""

    def __init__(self, given: argparse.Namespace) -> None:
        for package in ("jax", "fnx"):
            importlib.import_module(package).config.update("jax_enable_x64", given.x64)
        warnings.simplefilter("ignore")
        self.given, self.theirs, self.ours = given, Answers(given.answers), names("fnx")
        self.agreed: dict[str, Any] = {}

    def calls(self, part: int, parts: int) -> list[str]:
        """Return the calls of a part: equally many of each family."""
        found = []
        families = golden("name_cases").FAMILIES | golden("wide_cases").families(self.given.x64) \
            | golden("degenerate_cases").FAMILIES | golden("list_cases").FAMILIES \
            | golden("science_cases").families(self.given.x64)
        for family, expressions in families.items():
            if not self.given.families or {family, family.partition(" ")[0]} & {
                    *self.given.families}:
                mixed = random.Random(self.given.seed).sample(expressions, len(expressions))
                found += mixed[part - 1::parts]
        endless = golden("wide_cases").ENDLESS_GAMMA
        return [e for e in found if not endless.match(e)]

    def with_gradients(self, expressions: list[str]) -> list[str]:
        self.theirs.prepare(expressions)
        found = [g for e in expressions if not self.theirs.refuses(e)
                 for g in gradients(e, self.theirs[e])]
        self.theirs.prepare(found)
        return [*expressions, *(g for g in found if not self.theirs.refuses(g))]

    def of(self, expressions: list[str]) -> Counts:
        """Return the calls, and their gradients if requested."""
        return self.of_these(expressions if self.given.no_gradients
                             else self.with_gradients(expressions))

    def of_these(self, every: list[str]) -> Counts:
        theirs, on_purpose, wrong = self.theirs, 0, []
        for e in every:
            if self.given.verbose:
                print(time.perf_counter(), e, flush=True)
            rtol = golden("name_cases").tolerance(e) * (10 if e.startswith("grad(") else 1)
            found = compare(e, self.ours, theirs, rtol)
            if self.given.record and not found and not theirs.refuses(e):
                self.agreed[e] = _plain(theirs[e])
            if found and (golden("differences").on_purpose(e, found)
                          or only_at_edges(e, self.ours, theirs, rtol)):
                on_purpose += 1
            elif found:
                wrong.append((e, found))
        theirs.forget()
        return Counts(len(every), on_purpose, self.again(wrong))

    def again(self, wrong: list[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return the calls that still differ when JAX has default options."""
        if not wrong or not os.environ["XLA_FLAGS"]:
            return wrong
        with tempfile.TemporaryDirectory() as folder:
            calls, reports = Path(folder, "calls"), Path(folder, "reports")
            calls.write_text(json.dumps([e for e, _ in wrong]))
            subprocess.run([sys.executable, __file__, "--calls", calls, "--reports", reports,
                            "--no-gradients", *["--x64"] * self.given.x64],
                           env={**os.environ, "XLA_FLAGS": ""}, stdout=subprocess.DEVNULL)
            return [(e, found) for e, found in json.loads(reports.read_text())]


class State:
    """The outcome of each part, in a file that several processes share."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.path, self.given = given.state, given
        self.mode = " ".join([f"x{64 if given.x64 else 32}", f"seed {given.seed}",
                              *given.families])

    def kept(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}
        return found

    def key(self, part: int) -> str:
        return f"{self.mode} {part}/{PARTS}"

    def missing(self) -> list[int]:
        """Yield the parts that no process has done, each to one process."""
        kept = self.kept()
        return [part for part in range(1, PARTS + 1) if self.key(part) not in kept
                and part % self.given.jobs == self.given.job]

    def add(self, part: int, counts: Counts) -> None:
        with open(f"{self.path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            kept = self.kept() | {self.key(part): counts}
            whole = Path(f"{self.path}.whole")
            whole.write_text(json.dumps(kept, indent=1))
            whole.replace(self.path)

    def look_again(self, comparison: Comparison) -> None:
        """Run again the calls that differed when the file was written."""
        for part in range(1, PARTS + 1):
            total, on_purpose, wrong = self.kept().get(self.key(part), (0, 0, []))
            if wrong:
                found = comparison.of_these([e for e, _ in wrong])
                self.add(part, Counts(total, on_purpose + len(wrong) - len(found.wrong),
                                      found.wrong))

    def all(self) -> Counts:
        """Return the sum over all parts of this mode."""
        rows = [row for key, row in self.kept().items() if key.startswith(f"{self.mode} ")]
        return Counts(sum(r[0] for r in rows), sum(r[1] for r in rows),
                      [(e, found) for r in rows for e, found in r[2]])


def run_state(given: argparse.Namespace) -> Counts:
    """Run the parts that a file lacks, in several processes, until the time is over."""
    state, begun = State(given), time.monotonic()
    others = [] if given.job else [
        subprocess.Popen([sys.executable, __file__, *sys.argv[1:], "--job", str(job)])
        for job in range(1, given.jobs)]
    missing = state.missing()
    comparison = Comparison(given) if missing or state.all().wrong else None
    if comparison is not None and not given.job:
        state.look_again(comparison)
    for part in missing:
        if comparison is None or time.monotonic() - begun > given.seconds:
            break
        counts = comparison.of(comparison.calls(part, PARTS))
        state.add(part, counts)
        show(f"{state.key(part)} after {time.monotonic() - begun:.0f} s", counts)
    for other in others:
        other.wait()
    return state.all()


def show(what: str, counts: Counts) -> None:
    for e, found in counts.wrong:
        print(f"{e}: {found}")
    print(f"{what}: {counts.total} calls, {counts.on_purpose} differ on purpose, "
          f"{len(counts.wrong)} otherwise", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--no-gradients", action="store_true")
    parser.add_argument("--answers", type=Path)
    parser.add_argument("--x64", action="store_true", help="with types of 64 bits")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--part", default="1/1",
                        help="I/N or I-J/N: the I-th of N parts of each family, or several")
    parser.add_argument("--seed", type=int, default=0, help="of the shuffle before the parts")
    parser.add_argument("--state", type=Path, help=f"where it is kept which of {PARTS} parts are "
                        "done; goes on where the file ends")
    parser.add_argument("--seconds", type=float, default=1e9, help="no part begins later")
    parser.add_argument("--jobs", type=int, default=1, help="processes that share the state")
    parser.add_argument("--job", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--calls", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--reports", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.state:
        counts = run_state(given)
    else:
        comparison = Comparison(given)
        first_words = {name.partition(" ")[0] for name in given.families}
        sampled = next((path for path, words in SAMPLED.items() if first_words & words), None)
        if given.record and sampled is None:
            cases = golden("name_cases")
            record(cases, comparison.theirs, given.families or list(cases.FAMILIES))
            return
        if given.calls:
            calls = json.loads(given.calls.read_text())
        else:
            chosen, _, parts = given.part.partition("/")
            first, _, last = chosen.partition("-")
            calls = [e for part in range(int(first), int(last or first) + 1)
                     for e in comparison.calls(part, int(parts))]
        counts = comparison.of(calls)
        if given.reports:
            given.reports.write_text(json.dumps(counts.wrong))
        if given.record:
            record_wide(GOLDEN / str(sampled), comparison.agreed, given.x64)
    if not given.job:
        show(f"x64 {given.x64}", counts)
    sys.exit(bool(counts.wrong))


def _plain(found: Any) -> list[Any]:
    return [[t, w, list(shape), np.asarray(x).ravel().tolist()] for t, w, shape, x in found]


if __name__ == "__main__":
    main()
