"""Progress reports of a loop: about a hundred times, or at each step of a short loop.

    cell(c, x)   ->   told(c, (x, t)): cond(t % every == 0, tell(t)), then cell(c, x)

    scan of cell: 300/1000 steps
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from fnx.core.array.array import Array
from fnx.core.ir.expr import Expr
from fnx.core.tracing import host_callbacks
from fnx.core.tracing.trace import function_name
from fnx.transforms.control_flow.branches import branch, predicate

REPORTS = 100  # reports for one loop


def report_progress(f: Callable[..., Any], length: int, reverse: bool) -> Callable[..., Any]:
    """Wrap a step to also take its number and report progress at some steps."""
    period, name = max(1, length // REPORTS), function_name(f)

    def step(carry: Any, x_and_number: tuple[Any, Array]) -> Any:
        x, number = x_and_number
        t = Expr(number._node)
        done = length - t if reverse else t + 1
        due = (done % period).eq(0) | done.eq(length)
        branch(predicate(Array(due.node)), [_no_report, report], [Array(done.node)], "scan")
        return f(carry, x)

    def report(done: Array) -> None:
        host_callbacks.call_python(_print_line, (done,), {}, None, "progress", effect=True,
                                   bound=(name, length))

    step.__name__ = name
    return step


def _no_report(done: Array) -> None:
    pass


def _print_line(name: str, length: int, done: Array) -> None:
    end = "\n" if int(done) == length else ""
    print(f"\rscan of {name}: {int(done)}/{length} steps", end=end, file=sys.stderr, flush=True)
