"""The description of a call that a device needs to run it without Python code.

The arguments of such a call are Arrays.

>>> from fnx.core.ir import dtypes
>>> kind = (2,), dtypes.float32, False
>>> call = NativeCall((kind,), (), (), (kind,), (8,), True, None, None)
>>> len(call.arguments), call.single_result
(1, True)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.core.support.record import Record

ArrayKind = Sequence[Any]  # shape, dtype, whether it is weak


class NativeCall(Record):
    """A signature whose executable is known.

    ``guards`` are variables that guard the call: a cell, or a dict and a name in it, with the
    object that must be its value, and whether that is held by a weak reference. ``UNBOUND``
    stands for an unbound variable.
    """

    arguments: tuple[ArrayKind, ...]
    guards: tuple[tuple[Any, str, Any, bool], ...]
    captured: tuple[Any, ...]  # storages that follow those of the arguments
    results: tuple[ArrayKind, ...]
    sizes: tuple[int, ...]     # bytes of each result
    single_result: bool                # the result is an Array, not a tuple of Arrays
    mode: Any                  # the ``config.mode`` in which the call is valid
    hits: Any                  # an array of one word that counts calls


UNBOUND = object()
