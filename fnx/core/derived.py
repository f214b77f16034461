"""What is made of FUNCTIONs: once for each body and key, however deeply bodies nest.

A derivation is a generator. It yields (body, key) where it needs what is made of a body inside
its own, is sent that, and returns what it made. So nested bodies take no Python stack.

>>> from fnx.core import build, dtypes
>>> def depth(body, key):
...     deepest = 0
...     for node in toposort(body.src):
...         if node.op is ops.FUNCTION:
...             deepest = max(deepest, (yield node, key))
...     return 1 + deepest
>>> depths = Derived("depths", 4, depth)
>>> x = build.param(0, dtypes.float32, ())
>>> body = build.function([build.neg(x)], 1)
>>> for _ in range(3000):
...     body = build.function(build.call(body, [x]), 1)
>>> depths.of(body, None)
3001
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from typing import Generic, TypeVar

from fnx.core import ops as ops
from fnx.core.cache import CacheOf
from fnx.core.uop import UOp, current_site
from fnx.core.uop import toposort as toposort

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Steps = Generator[tuple[UOp, K], V, V]


class Derived(Generic[K, V]):
    """Values of FUNCTIONs by key, at most ``limit`` for each; they die with it.

    ``make(body, key)`` derives one (see above); what it returns may not hold the body.
    """

    def __init__(self, name: str, limit: int, make: Callable[[UOp, K], Steps[K, V]]) -> None:
        self._make = make
        self._made: CacheOf[UOp, K, V] = CacheOf(name, limit)

    def of(self, body: UOp, key: K) -> V:
        """The value for a body and a key, found or made."""
        found = self._made.of(body).get(key)
        if found is not None:
            return found
        site = current_site.site
        waiting = [(body, key, self._make(body, key))]
        answer: V | None = None
        try:
            while waiting:
                body, key, steps = waiting[-1]
                try:
                    inner, wanted = next(steps) if answer is None else steps.send(answer)
                except StopIteration as done:
                    waiting.pop()
                    answer = self._made.of(body).keep(key, done.value)
                else:
                    answer = self._made.of(inner).get(wanted)
                    if answer is None:
                        waiting.append((inner, wanted, self._make(inner, wanted)))
        finally:
            current_site.site = site
        assert answer is not None
        return answer
