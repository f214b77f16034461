"""Exact equality of values that a trace may depend on.

In Python 1 == 1.0 == True and 0.0 == -0.0, but a program traced with one of them is wrong for
another: 2 * 1.0 is a float, x / -0.0 is negative. So signatures compare with ``exactly_equal``,
which also compares the items of tuples, frozen sets and dataclasses. Values that are the same have
equal hashes if they are hashable.

>>> exactly_equal((1, "a"), (1, "a")), exactly_equal((1,), (1.0,)), exactly_equal(0.0, -0.0)
(True, False, False)
"""

from __future__ import annotations

from typing import Any

import numpy as np


def exactly_equal(a: Any, b: Any) -> bool:
    """Whether two values are indistinguishable to a program. Unknown types compare by ==."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, float | complex):
        return repr(a) == repr(b)
    if isinstance(a, np.generic):
        return bool(a.dtype == b.dtype) and a.tobytes() == b.tobytes()
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(exactly_equal, a, b))
    fields = getattr(type(a), "__dataclass_fields__", {})  # before ==, which may raise on arrays
    if not all(exactly_equal(getattr(a, n), getattr(b, n)) for n, f in fields.items() if f.compare):
        return False
    if isinstance(a, frozenset) and a == b:
        matches = {y: y for y in b}
        return all(exactly_equal(x, matches[x]) for x in a)
    return bool(a == b)


class StaticValue:
    """A hashable value in a cache key, compared with ``exactly_equal``."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return hash(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StaticValue) and exactly_equal(self.value, other.value)
