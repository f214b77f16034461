"""Count the numeric constants of the compiler that are not in fnx/lower/analysis/tuning.py.

``python scripts/count_numbers.py [--at-most N]`` prints the number for each package of fnx/lower,
and its files. A constant is a name in capitals that is assigned at module level, one of several in
an assignment each, from an expression with a number other than 0 and 1. Polynomials
(legalize/elementary) do not count.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from pathlib import Path

LOWER = Path(__file__).resolve().parent.parent / "fnx" / "lower"
LEFT_OUT = "analysis/tuning.py", "legalize/elementary"


def constants(path: Path) -> list[str]:
    """Return the names of the numeric constants of a module."""
    names: list[str] = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and any(
                isinstance(n, ast.Constant) and type(n.value) in (int, float) and
                n.value not in (0, 1) for n in ast.walk(node.value)):
            names += [n.id for target in node.targets for n in ast.walk(target)
                      if isinstance(n, ast.Name) and n.id.isupper()]
    return names


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--at-most", type=int, default=sys.maxsize)
    options = parser.parse_args()
    packages: dict[str, Counter[str]] = {}
    for path in sorted(LOWER.rglob("*.py")):
        name = path.relative_to(LOWER).as_posix()
        if not name.startswith(LEFT_OUT) and (count := len(constants(path))):
            packages.setdefault(name.rpartition("/")[0] or ".", Counter())[path.name] = count
    for package, files in packages.items():
        print(f"{files.total():4} {package}: " + ", ".join(
            f"{name} {count}" for name, count in files.most_common()))
    total = sum(files.total() for files in packages.values())
    print(f"{total} numeric constants outside of tuning.py")
    return int(total > options.at_most)


if __name__ == "__main__":
    sys.exit(main())
