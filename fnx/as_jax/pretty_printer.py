"""``jax._src.pretty_printer``: documents with line breaks, laid out by fnx.jaxprs.layout.

>>> group(text("f(") + nest(2, brk("") + text("x")) + text(")")).format(width=3)
'f(\\n  x)'
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.jaxprs import layout


class Doc:
    """A document, which ``format`` lays out; ``+`` puts one after another."""

    def __init__(self, parts: layout.Doc) -> None:
        self.parts = parts

    def __add__(self, other: Doc) -> Doc:
        return concat([self, other])

    def __str__(self) -> str:
        return self.format()

    def format(self, width: int = layout.WIDTH, **options: Any) -> str:
        """Return the text; ``options``, such as ``use_color``, are accepted."""
        return layout.layout(self.parts, width)


def nil() -> Doc:
    """Return an empty document."""
    return text("")


def text(text: str, annotation: str | None = None, **options: Any) -> Doc:
    """Return a text; an annotation is not printed."""
    return Doc(layout.text(text))


def brk(text: str = " ") -> Doc:
    """Return a line break, or a text if the group around it fits on the line."""
    return Doc(layout.brk(text))


def concat(children: Sequence[Doc]) -> Doc:
    """Return documents one after the other."""
    return Doc(layout.concat([child.parts for child in children]))


def group(doc: Doc) -> Doc:
    """Return a document of whose own line breaks all are taken, or none."""
    return Doc(layout.group(doc.parts))


def nest(n: int, doc: Doc) -> Doc:
    """Return a document whose lines are indented by n more."""
    return Doc(layout.nest(n, doc.parts))


def join(sep: Doc, docs: Sequence[Doc]) -> Doc:
    """Return documents with another one between them."""
    return Doc(layout.join(sep.parts, [doc.parts for doc in docs]))


def color(child: Doc, **options: Any) -> Doc:
    """Return a document without its color."""
    return child


def source_map(doc: Doc, source: Any) -> Doc:
    """Return a document without the program that it stands for."""
    return doc


NAMES = {f.__name__: f for f in (Doc, brk, color, concat, group, join, nest, nil, source_map, text)}
