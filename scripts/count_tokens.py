"""How much code there is, by Python's tokenizer: names, operators, numbers and strings.

``python scripts/count_tokens.py [folder]`` prints a line a room. Comments and layout do not
count, and a docstring counts as one token; so what is counted is what a reader must think about.
"""

from __future__ import annotations

import collections
import sys
import tokenize
from pathlib import Path

LAYOUT = frozenset({tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT,
                    tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER})


def tokens(path: Path) -> int:
    """Tokens of one file."""
    with path.open("rb") as file:
        return sum(t.type not in LAYOUT for t in tokenize.tokenize(file.readline))


def main(folder: str = "fnx") -> None:
    """Print the tokens of each room below ``folder``, then of all."""
    rooms: collections.Counter[str] = collections.Counter()
    for path in Path(folder).rglob("*.py"):
        rooms[path.parent.as_posix()] += tokens(path)
    for room, count in sorted(rooms.items()):
        print(f"{count:>8,}  {room}")
    print(f"{rooms.total():>8,}  all")


if __name__ == "__main__":
    main(*sys.argv[1:])
