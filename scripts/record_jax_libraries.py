"""Write tests/golden/libraries.json: what programs using JAX's libraries print under JAX itself.

    python scripts/record_jax_libraries.py              all of tests/as_jax/programs
    python scripts/record_jax_libraries.py --compare    run them on fnx and print the differences
    python scripts/record_jax_libraries.py --wider 8    models so much wider over 20 steps, on both

Each program runs in a process of its own, from the same file both times.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden" / "libraries.json"
PROGRAMS = sorted(p.stem for p in (ROOT / "tests" / "as_jax" / "programs").glob("*.py"))


def printed(program: str, *command: str) -> dict[str, Any]:
    """Return what a program prints; check that it ran on the requested library."""
    done = subprocess.run([sys.executable, *command, "tests/as_jax/run.py", *program.split()],
                          cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    *_, found, compiler = done.stdout.splitlines()
    assert compiler == str(not command), compiler
    return dict(json.loads(found))


def numbers(tree: Any) -> list[float]:
    if isinstance(tree, list):
        return [x for item in tree for x in numbers(item)]
    return [float(tree)]


def rounded(tree: Any) -> Any:
    """Round to seven digits, the precision of float32."""
    if isinstance(tree, list):
        return [rounded(x) for x in tree]
    return float(f"{tree:.7g}")


def compare(program: str, golden: dict[str, Any]) -> None:
    """Print the largest relative difference in each part of a program."""
    found = printed(program, "-m", "fnx.as_jax")
    for name, want in golden.items():
        pairs = zip(numbers(found[name]), numbers(want), strict=True)
        worst = max(abs(a - b) / max(abs(b), 1e-3) for a, b in pairs)
        print(f"{program:20} {name:30} {worst:.1e}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compare", action="store_true", help="fnx against what is recorded")
    parser.add_argument("programs", nargs="*", help="by default all")
    parser.add_argument("--wider", type=int, help="so many times, of models, on both")
    options = parser.parse_args()
    if options.wider:
        for program in options.programs or [p for p in PROGRAMS if p.endswith("_models")]:
            wide = f"{program} {options.wider}"
            compare(wide, printed(wide))
        return
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    for program in options.programs or PROGRAMS:
        if options.compare:
            compare(program, golden[program])
        else:
            golden[program] = {name: rounded(x) for name, x in printed(program).items()}
    if not options.compare:
        lines = [f'"{p}": {{\n' + ",\n".join(f'"{n}": {json.dumps(x)}' for n, x in found.items())
                 + "}" for p, found in sorted(golden.items())]
        GOLDEN.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
