"""Shared by the modules of distributions: argument conversion and docstring templates."""

from __future__ import annotations

from typing import Any

from fnx.core.array.array import Array
from fnx.core.array.docstring_templates import DocTemplate
from fnx.core.array.float32_compute import compute_in_float32
from fnx.core.array.promotion import promote_operands

__all__ = ["docstring_for", "promote_floats"]

_COMMON_PARAMS: dict[str, Any] = {
    "x": "the points.", "k": "the counts.",
    "q": "a probability, from 0 to 1.", "p": "a probability, from 0 to 1.",
    "loc": "the location.", "scale": "the scale; above 0."}


def docstring_for(name: str, **texts: str) -> DocTemplate:
    """Return the docstring template for the functions of a distribution's module."""
    return DocTemplate(
        returns="An Array of the broadcast shape, of a float dtype.",
        raises=("ShapeError: the shapes do not broadcast.",),
        imports=f"fnx.scipy.stats.{name} as {name}", wrap=compute_in_float32,
        **(_COMMON_PARAMS | texts))


def promote_floats(*xs: Any) -> list[Array]:
    """Convert arguments to Arrays of one float dtype.

    >>> [x.dtype.name for x in promote_floats(1, 2.5)]
    ['float32', 'float32']
    """
    nodes, weak = promote_operands("inexact", "", xs, broadcast=False)
    return [Array(node, weak) for node in nodes]
