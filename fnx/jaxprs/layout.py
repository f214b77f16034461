"""Line breaks for nested text: what fits on a line stays on it (Wadler, "A prettier printer").

>>> print(layout(group(concat([text("f("), nest(2, concat([brk(""), text("x, y")])), text(")")])),
...              width=5))
f(
  x, y)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# ("text", s), ("comment", s), ("break", s), ("concat", docs), ("nest", n, doc), ("group", d)
Doc = tuple[Any, ...]

WIDTH = 80


def text(s: str) -> Doc:
    """Text without line breaks of its own."""
    return "text", s


def comment(s: str) -> Doc:
    """Text up to the end of a line: the line breaks around it are taken."""
    return "comment", s


def brk(s: str = " ") -> Doc:
    """A line break, or ``s`` if the group around it fits on the line."""
    return "break", s


def concat(docs: Sequence[Doc]) -> Doc:
    """One after the other."""
    return "concat", docs


def nest(n: int, doc: Doc) -> Doc:
    """Indent the line breaks in ``doc`` by n more."""
    return "nest", n, doc


def group(doc: Doc) -> Doc:
    """Break all of its own line breaks, or none."""
    return "group", doc


def join(separator: Doc, docs: Sequence[Doc]) -> Doc:
    """Put ``separator`` between."""
    out: list[Doc] = []
    for i, doc in enumerate(docs):
        out += [separator, doc] if i else [doc]
    return concat(out)


def layout(doc: Doc, width: int = WIDTH) -> str:
    """Return the text."""
    out: list[str] = []
    column = 0
    stack: list[tuple[int, bool, Doc]] = [(0, True, doc)]  # indentation, breaks, doc
    while stack:
        indent, breaks, (kind, *parts) = stack.pop()
        if kind in ("text", "comment"):
            out.append(parts[0])
            newline = parts[0].rfind("\n")
            column = column + len(parts[0]) if newline < 0 else len(parts[0]) - newline - 1
        elif kind == "break":
            out.append("\n" + " " * indent if breaks else parts[0])
            column = indent if breaks else column + len(parts[0])
        elif kind == "concat":
            stack += [(indent, breaks, d) for d in reversed(parts[0])]
        elif kind == "nest":
            stack.append((indent + parts[0], breaks, parts[1]))
        else:
            stack.append((indent, not _fits(width - column, parts[0]), parts[0]))
    return "\n".join(line.rstrip() if not line.strip() else line
                     for line in "".join(out).split("\n"))


def _fits(room: int, doc: Doc) -> bool:
    """Whether a group fits without its line breaks; what follows it does not count."""
    stack = [doc]
    while stack and room >= 0:
        kind, *parts = stack.pop()
        if kind == "comment":
            return False
        if kind == "concat":
            stack += reversed(parts[0])
        elif kind in ("text", "break"):
            line, newline, _ = parts[0].partition("\n")
            room -= len(line)
            if newline:
                return room >= 0
        else:
            stack.append(parts[-1])
    return room >= 0
