"""Compare the density of functions, in tokens per line, between two versions.

``python scripts/density.py REVISION [--ratio 1.15]`` compares the bodies of functions that have the
same file and name in a git revision and in the working tree, without docstrings, comments and empty
lines. It prints the mean of all, then the functions of three lines and more that grew by more than
the ratio.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

from count_tokens import LAYOUT

Sizes = tuple[int, int]  # tokens, lines


def bodies(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, int, int]]:
    """Yield the functions of a module or class: name, first line after the docstring, last line."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.ClassDef):
            continue
        body = child.body[ast.get_docstring(child, clean=False) is not None:]
        if isinstance(child, ast.FunctionDef) and body:
            yield prefix + child.name, body[0].lineno, child.end_lineno or 0
        yield from bodies(child, f"{prefix}{child.name}.")


def sizes(text: str) -> dict[str, Sizes]:
    """Return tokens and lines of each function of a file, except for names that occur twice."""
    places = [t.start[0] for t in tokenize.generate_tokens(io.StringIO(text).readline)
              if t.type not in LAYOUT]
    found: dict[str, list[Sizes]] = {}
    for name, first, last in bodies(ast.parse(text)):
        inside = [line for line in places if first <= line <= last]
        found.setdefault(name, []).append((len(inside), len(set(inside))))
    return {name: of[0] for name, of in found.items() if len(of) == 1}


def git(*arguments: str) -> str:
    """Return the output of git."""
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Print the means, and the functions that are denser."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision")
    parser.add_argument("--ratio", type=float, default=1.15)
    options = parser.parse_args()
    pairs: list[tuple[str, Sizes, Sizes]] = []
    for name in git("ls-tree", "-r", "--name-only", options.revision, "fnx").split():
        if name.endswith(".py") and Path(name).exists():
            then = sizes(git("show", f"{options.revision}:{name}"))
            today = sizes(Path(name).read_text())
            pairs += [(f"{name} {f}", then[f], today[f]) for f in then.keys() & today.keys()]
    for label, at in (("then", 1), ("today", 2)):
        mean = sum(p[at][0] for p in pairs) / sum(p[at][1] for p in pairs)
        print(f"{mean:.2f} tokens a line {label}, in {len(pairs)} functions")
    for name, (before, lines), (after, rows) in sorted(pairs):
        if min(lines, rows) >= 3 and after / rows > options.ratio * before / lines:
            print(f"{before / lines:5.1f} -> {after / rows:.1f} in {rows} lines  {name}")


if __name__ == "__main__":
    main()
