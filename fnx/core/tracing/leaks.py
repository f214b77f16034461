"""Arrays of a trace that outlive it (``fnx.checking_leaks``)."""

from __future__ import annotations

import gc
from types import FrameType
from typing import Protocol

from fnx.core.array.array import Array
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import LeakedTracerError


class Traced(Protocol):
    """A trace that has ended: its leaves, and its results."""

    name: str
    leaves: list[UOp]
    outs: list[Array]


def check_leaks(traced: Traced) -> None:
    """Raise if an array that depends on the leaves of a trace is held by more than its results.

    Slow: it looks at all objects of the process.

    Raises:
        LeakedTracerError: there is one.
    """
    gc.collect()
    leaves = frozenset(traced.leaves)
    returned = {id(x) for x in traced.outs if all(
        r is traced.outs or isinstance(r, FrameType) for r in gc.get_referrers(x))}
    leaked = [x for x in gc.get_objects() if type(x) is Array and id(x) not in returned and
              not x.is_deleted() and not leaves.isdisjoint(toposort([x._node]))]
    if leaked:
        raise LeakedTracerError(
            f"Leaked trace: {traced.name} has returned, but {len(leaked)} of its traced arrays are "
            f"held, such as {leaked[0]}",
            hint="return them, and keep none in lists, attributes or globals")
