"""What batching asks for and what it makes."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple, TypeVar

from fnx.core.record import Record
from fnx.core.uop import UOp

T = TypeVar("T")


class Pattern(Record):
    """What of a body is batched: the key of its batched forms.

    ``outs`` are results that get a batch axis even if they are the same for all lanes; of those
    behind its end none is.
    """

    size: int
    batched: tuple[bool, ...]
    outs: tuple[bool, ...] = ()


class Batched(NamedTuple):
    """A FUNCTION over a batch, and which of its results have a batch axis in front."""

    function: UOp
    outs: tuple[bool, ...]


class Value(NamedTuple):
    """A node, and whether it has a batch axis in front."""

    node: UOp
    batched: bool


# What needs batched bodies: it yields (body, Pattern) and is sent what was made of it.
Asking = Generator[tuple[UOp, Pattern], Batched, T]
