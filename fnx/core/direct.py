"""What a device must know of a call to run it without a line of Python: its arguments are Arrays.

>>> from fnx.core import dtypes
>>> kind = (2,), dtypes.float32, False
>>> call = DirectCall((kind,), (), (), (kind,), (8,), True, None, None)
>>> len(call.arguments), call.alone
(1, True)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.core.record import Record

Kind = Sequence[Any]  # shape, element type, whether that is weak


class DirectCall(Record):
    """A signature whose program is known.

    ``watched`` are variables: a cell, or a dict and a name in it, with the object that must be
    there; ``weakly``: with a weak reference to it. ``UNBOUND`` stands for none.
    """

    arguments: tuple[Kind, ...]
    watched: tuple[tuple[Any, str, Any, bool], ...]
    captured: tuple[Any, ...]  # storages behind those of the arguments
    results: tuple[Kind, ...]
    sizes: tuple[int, ...]     # bytes of each result
    alone: bool                # the result is an Array, not a tuple of Arrays
    mode: Any                  # ``config.mode`` that it holds for
    hits: Any                  # an array of one word, which counts calls


UNBOUND = object()
