"""Count the tokens of the code with Python's tokenizer: names, operators, numbers and strings.

``python scripts/count_tokens.py [folder]`` prints a line per package: tokens of signatures (from
``def`` to the colon) and of everything else. Comments and layout do not count, and a docstring is
one token, so the count approximates what a reader must understand.

``python scripts/count_tokens.py --ran kernel_code.py`` runs a program and counts only the functions
of the imported fnx that ran, each by itself. This compares two versions on the work they share: run
the same program with each of them on the path. Features that the program does not use (such as a
``show`` that is never called) and module-level tables do not count.
"""

from __future__ import annotations

import argparse
import ast
import collections
import runpy
import sys
import threading
import tokenize
from collections.abc import Collection
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

LAYOUT = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT,
                    tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER})
Function = ast.FunctionDef | ast.AsyncFunctionDef
Place = tuple[int, int]


def places(path: Path) -> list[Place]:
    """Return where the tokens of a file begin."""
    with path.open("rb") as file:
        return [t.start for t in tokenize.tokenize(file.readline) if t.type not in LAYOUT]


def functions(path: Path) -> list[Function]:
    """Return all functions of a file, including nested ones."""
    return [f for f in ast.walk(ast.parse(path.read_text()))
            if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)]


def within(place: Place, nodes: Collection[ast.stmt]) -> bool:
    """Whether a token is inside one of some statements."""
    return any((n.lineno, n.col_offset) <= place < (n.end_lineno or 0, n.end_col_offset or 0)
               for n in nodes)


def tokens(path: Path) -> tuple[int, int]:
    """Return the tokens of one file: (in signatures, elsewhere)."""
    headers = sorted(((f.lineno, f.col_offset), (f.body[0].lineno, f.body[0].col_offset))
                     for f in functions(path))
    found = set[Place]()
    starts = iter(headers)
    header = next(starts, None)
    every = places(path)
    for place in every:
        while header is not None and place >= header[1]:
            header = next(starts, None)
        if header is not None and header[0] <= place:
            found.add(place)
    return len(found), len(every) - len(found)


def ran_tokens(path: Path, ran: Collection[tuple[str, int]]) -> tuple[int, int]:
    """Return the tokens of the functions (name, first line) of a file: (in signatures, in
    bodies)."""
    every, signatures, bodies = places(path), 0, 0
    for f in functions(path):
        if (f.name, min([f.lineno, *[d.lineno for d in f.decorator_list]])) not in ran:
            continue
        inner = [g for g in ast.walk(f) if isinstance(g, Function) and g is not f]
        own = [p for p in every if within(p, [f]) and not within(p, inner)]
        inside = sum(within(p, f.body) for p in own)
        signatures, bodies = signatures + len(own) - inside, bodies + inside
    return signatures, bodies


def run(program: str) -> tuple[Path, dict[Path, set[tuple[str, int]]]]:
    """Return the folder of the fnx that a program imports, and the functions of it that ran."""
    codes = set[CodeType]()

    def seen(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    threading.setprofile(seen)
    sys.setprofile(seen)
    try:
        runpy.run_path(program)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    folder = Path(str(sys.modules["fnx"].__file__)).parent
    by_file: dict[Path, set[tuple[str, int]]] = collections.defaultdict(set)
    for code in codes:
        if Path(code.co_filename).is_relative_to(folder):
            by_file[Path(code.co_filename)].add((code.co_name, code.co_firstlineno))
    return folder, by_file


def main() -> None:
    """Print the tokens of each package, then the total."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", default="fnx")
    parser.add_argument("--ran", metavar="PROGRAM", help="count the functions that it runs")
    options = parser.parse_args()
    folder, counts = Path(options.folder), dict[Path, tuple[int, int]]()
    if options.ran:
        folder, ran = run(options.ran)
        counts = {path: ran_tokens(path, found) for path, found in ran.items()}
    else:
        counts = {path: tokens(path) for path in folder.rglob("*.py")}
    signatures, rest = collections.Counter[str](), collections.Counter[str]()
    for path, (inside, outside) in counts.items():
        room = path.parent.relative_to(folder).as_posix()
        signatures[room] += inside
        rest[room] += outside
    print(f"{'signatures':>10}{'the rest':>10}")
    for room in sorted(rest):
        print(f"{signatures[room]:>10,}{rest[room]:>10,}  {room}")
    print(f"{signatures.total():>10,}{rest.total():>10,}  all, in {len(counts)} files")


if __name__ == "__main__":
    main()
