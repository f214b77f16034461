"""Count identifiers of the vocabulary that fnx has given up.

    python scripts/old_names.py                 # each with file:line, and the total
    python scripts/old_names.py fnx/lower       # below these folders only

``scripts/old_names.tsv`` has a row for each: the old identifier, where it has its old sense, and
the term that replaces it. Where: globs of files, with spaces between them; ``*`` is everywhere. A
glob after ``module:``, ``function:``, ``class:``, ``name:``, ``argument:`` or ``attribute:`` means
identifiers of that kind only. Standard words (``rest``, ``plan``, ``given``) have the files in
which they had a private sense: ``lanes`` of vectors and NumPy's function ``place`` are not old.

Identifiers are compared whole: names, attributes, parameters, keywords, functions, classes, and
names of modules (of tests without ``test_``). Leading underscores do not count.
"""

from __future__ import annotations

import argparse
import ast
import csv
import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("fnx", "tests", "scripts", "benchmarks")
TABLE = Path(__file__).with_suffix(".tsv")


class Identifier(NamedTuple):
    """An identifier, its kind and its line."""

    name: str
    kind: str
    line: int


class OldName(NamedTuple):
    """A row of the table."""

    name: str
    scope: tuple[str, ...]
    new: str

    def covers(self, path: str, kind: str) -> bool:
        for entry in self.scope:
            wanted, _, glob = entry.rpartition(":")
            if wanted in ("", kind) and fnmatch(path, glob):
                return True
        return False


def old_names() -> dict[str, list[OldName]]:
    """Read the table: rows by identifier."""
    rows: dict[str, list[OldName]] = {}
    with TABLE.open(newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            entry = OldName(row["old"], tuple(row["where"].split()), row["new"])
            rows.setdefault(entry.name, []).append(entry)
    return rows


def identifiers(path: Path) -> Iterator[Identifier]:
    """Yield the identifiers of a file, each once a line."""
    stem = path.parent.name if path.name == "__init__.py" else path.stem
    yield Identifier(stem.removeprefix("test_"), "module", 1)
    seen = {found for node in ast.walk(ast.parse(path.read_text())) for found in _names_of(node)}
    yield from sorted(seen, key=lambda found: (found.line, found.name))


def _names_of(node: ast.AST) -> Iterator[Identifier]:
    match node:
        case ast.Name(id=name):
            yield Identifier(name, "name", node.lineno)
        case ast.Attribute(attr=name):
            yield Identifier(name, "attribute", node.end_lineno or node.lineno)
        case ast.arg(arg=name):
            yield Identifier(name, "argument", node.lineno)
        case ast.keyword(arg=str(name)):
            yield Identifier(name, "keyword", node.lineno)
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            yield Identifier(name, "function", node.lineno)
        case ast.ClassDef(name=name):
            yield Identifier(name, "class", node.lineno)
        case ast.alias(asname=str(name)):
            yield Identifier(name, "name", node.lineno)


def occurrences(folders: Sequence[str]) -> Iterator[tuple[str, int, OldName]]:
    """Yield file, line and row of each old identifier."""
    table = old_names()
    for folder in folders:
        start = ROOT / folder
        for path in [start] if start.is_file() else sorted(start.rglob("*.py")):
            relative = path.relative_to(ROOT).as_posix()
            for found in identifiers(path):
                for entry in table.get(found.name.lstrip("_"), ()):
                    if entry.covers(relative, found.kind):
                        yield relative, found.line, entry
                        break


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="*", default=FOLDERS)
    count = 0
    for path, line, entry in occurrences(parser.parse_args().folders):
        print(f"{path}:{line}: {entry.name} -> {entry.new}")
        count += 1
    print(f"{count} old names")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
