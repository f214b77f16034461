"""Progress reports of a loop: about a hundred times, or at each step of a short loop.

    cell(c, x)   ->   told(c, (x, t)): cond(t % every == 0, tell(t)), then cell(c, x)

    scan of cell: 300/1000 steps
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from fnx.core.array import effects
from fnx.core.array.array import Array
from fnx.core.array.trace import name_of
from fnx.core.expr import Expr
from fnx.transforms.loops.branches import branch, predicate

TOLD = 100  # reports for one loop


def telling(f: Callable[..., Any], length: int, reverse: bool) -> Callable[..., Any]:
    """Wrap a step to also take its number and report progress at some steps."""
    every, name = max(1, length // TOLD), name_of(f)

    def step(carry: Any, given: tuple[Any, Array]) -> Any:
        x, number = given
        t = Expr(number._node)
        done = length - t if reverse else t + 1
        due = (done % every).eq(0) | done.eq(length)
        branch(predicate(Array(due.node)), [_nothing, tell], [Array(done.node)], "scan")
        return f(carry, x)

    def tell(done: Array) -> None:
        effects.call(_tell, (done,), {}, None, "progress", effect=True, bound=(name, length))

    step.__name__ = name
    return step


def _nothing(done: Array) -> None:
    pass


def _tell(name: str, length: int, done: Array) -> None:
    end = "\n" if int(done) == length else ""
    print(f"\rscan of {name}: {int(done)}/{length} steps", end=end, file=sys.stderr, flush=True)
