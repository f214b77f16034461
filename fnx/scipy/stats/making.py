"""Shared by the modules of distributions: argument conversion and docstring templates."""

from __future__ import annotations

from typing import Any

from fnx.core.array.array import Array
from fnx.core.array.documented import Family
from fnx.core.array.promotion import promoted
from fnx.core.array.rounded import rounded_once

__all__ = ["family", "floats"]

_SHARED: dict[str, Any] = {
    "x": "where: of any shape.", "k": "how many: of any shape.",
    "q": "a probability, from 0 to 1.", "p": "a probability, from 0 to 1.",
    "loc": "moves the distribution.", "scale": "stretches the distribution; above 0."}


def family(name: str, **texts: str) -> Family:
    """Return the docstring template for the functions of a distribution's module."""
    return Family(
        returns="An Array of the shape that they broadcast to, of a float dtype.",
        raises=("ShapeError: the shapes do not broadcast.",),
        at=f"fnx.scipy.stats.{name} as {name}", wrap=rounded_once, **(_SHARED | texts))


def floats(*xs: Any) -> list[Array]:
    """Convert arguments to Arrays of one float dtype.

    >>> [x.dtype.name for x in floats(1, 2.5)]
    ['float32', 'float32']
    """
    nodes, weak = promoted("inexact", "", xs, broadcast=False)
    return [Array(node, weak) for node in nodes]
