"""How much code there is, by Python's tokenizer: names, operators, numbers and strings.

``python scripts/count_tokens.py [folder]`` prints a line a room: tokens of signatures (from
``def`` to the colon) and of all the rest. Comments and layout do not count, and a docstring
counts as one token; so what is counted is what a reader must think about.
"""

from __future__ import annotations

import ast
import collections
import sys
import tokenize
from pathlib import Path

LAYOUT = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT,
                    tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER})


def tokens(path: Path) -> tuple[int, int]:
    """Tokens of one file: (in signatures, elsewhere)."""
    headers = [((f.lineno, f.col_offset), (f.body[0].lineno, f.body[0].col_offset))
               for f in ast.walk(ast.parse(path.read_text()))
               if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)]
    places = set[tuple[int, int]]()
    with path.open("rb") as file:
        every = [t.start for t in tokenize.tokenize(file.readline) if t.type not in LAYOUT]
    starts = iter(sorted(headers))
    header = next(starts, None)
    for place in every:
        while header is not None and place >= header[1]:
            header = next(starts, None)
        if header is not None and header[0] <= place:
            places.add(place)
    return len(places), len(every) - len(places)


def main(folder: str = "fnx") -> None:
    """Print the tokens of each room below ``folder``, then of all."""
    signatures, rest = collections.Counter[str](), collections.Counter[str]()
    for path in Path(folder).rglob("*.py"):
        room = path.parent.relative_to(folder).as_posix()
        inside, outside = tokens(path)
        signatures[room] += inside
        rest[room] += outside
    print(f"{'signatures':>10}{'the rest':>10}")
    for room in sorted(rest):
        print(f"{signatures[room]:>10,}{rest[room]:>10,}  {room}")
    print(f"{signatures.total():>10,}{rest.total():>10,}  all")


if __name__ == "__main__":
    main(*sys.argv[1:])
