"""Run JAX's machinery on fnx and on JAX: jaxprs, primitives, AOT, export, checkify ...

    python scripts/compare_machinery.py                    all cases: what differs
    python scripts/compare_machinery.py checkify export    those whose names begin so, in full
    python scripts/compare_machinery.py --record           tests/golden/machinery.json, from JAX
                                                           (which exports with flatbuffers)

Each case is a program in tests/machinery/*.txt that prints what it sees; jaxpr_pages and
primitive_pages have the cells of JAX's pages on jaxprs, interpreters and primitives. All run in one
process of each library, where ``jax`` is JAX or, under fnx.as_jax, fnx. Numbers are compared to
four digits.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs" / "differences.md"
HEADING = "## JAX's machinery"
GOLDEN = ROOT / "tests" / "golden" / "machinery.json"
RUNNER = "from tests.machinery import runner; runner.main()"
sys.path.insert(0, str(ROOT))

from tests.machinery.runner import CASES, DIFFERENCES, equal, reasons  # noqa: E402


def printed(command: str, names: list[str]) -> dict[str, str]:
    """Return what each case prints in a process in which ``command`` was run first."""
    done = subprocess.run([sys.executable, "-c", f"{command}{RUNNER}", *names], cwd=ROOT, text=True,
                          capture_output=True)
    if done.returncode:
        sys.exit(done.stderr)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def write_table() -> None:
    """Write the table of differences at the end of the page of the docs."""
    rows = [f"| {reason} | {', '.join(names)} |" for reason, names in reasons().items()]
    text = DOCS.read_text().partition(HEADING)[0].rstrip()
    DOCS.write_text("\n".join([
        text, "", HEADING, "",
        f"`python scripts/compare_machinery.py` runs {len(CASES)} programs, written from JAX's",
        "documentation, under both libraries and compares what they print:",
        f"{len(CASES) - len(DIFFERENCES)} are equal to four digits. The others, by their names in",
        "`tests/machinery`:", "", "| reason | programs |", "|---|---|", *rows, ""]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the golden file from JAX")
    parser.add_argument("--docs", action="store_true", help="write the table of differences")
    parser.add_argument("prefixes", nargs="*", help="by default all cases")
    given = parser.parse_args()
    if given.docs:
        write_table()
        return
    names = [n for n in CASES if not given.prefixes or n.startswith(tuple(given.prefixes))]
    want = printed("", names)
    if given.record:
        GOLDEN.write_text(json.dumps(want, indent=0) + "\n")
        return
    got = printed("import fnx.as_jax; fnx.as_jax.install(); ", names)
    other = {n for n in names if not equal(got[n], want[n])}
    wrong = [n for n in names if (n in other) != (n in DIFFERENCES)]
    for name in names if given.prefixes else wrong:
        state = f" DIFFERS{', as it is meant to' * (name in DIFFERENCES)}" * (name in other)
        print(f"---- {name}{state}\nJAX: {want[name]}\nfnx: {got[name]}")
    print(f"{len(names) - len(other)} of {len(names)} cases are equal, {len(wrong)} are not as "
          "differences.toml says")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
