"""Build the bodies of loops from Python functions of their PARAMs.

    (total, last), sums = scan_over(step, 8, [w], [zero, x0], [xs])

calls ``step([w], [total, last], [x])`` once, on PARAMs of the operands' types, and closes the
result. The step may read nothing but its operands.

>>> from fnx.core.ir import build, dtypes
>>> xs = build.param(0, dtypes.float32, (8,))
>>> (total,), () = build_scan(lambda consts, carries, x: ([build.add(carries[0], x[0])], []),
...                          8, [], [build.const(0, dtypes.float32)], [xs], name="sum")
>>> total
<GETTUPLE float32[] of 1, 0>
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fnx.core.ir import build, build_calls
from fnx.core.ir.uop import UOp

Nodes = Sequence[UOp]
StepFn = Callable[[Nodes, Nodes, Nodes], tuple[Nodes, Nodes]]  # consts, carries, x -> carries, y


def build_function(f: Callable[[Nodes], Iterable[UOp]], like: Nodes, name: str) -> UOp:
    """Return the FUNCTION of ``f`` for operands of the types of ``like``."""
    return build.function(f(params_like(like)), len(like), name)


def params_like(nodes: Nodes) -> list[UOp]:
    """Return PARAM 0, 1, ... with the types of some nodes."""
    return [build.param(i, x.dtype, x.shape) for i, x in enumerate(nodes)]


def build_scan(step: StepFn, length: int, consts: Nodes, carries: Nodes, xs: Nodes, *,
               reverse: bool = False, checkpoint: int = 0, name: str = "step"
               ) -> tuple[tuple[UOp, ...], tuple[UOp, ...]]:
    """Return the final carries and the stacked ys of a SCAN."""
    carry_start, x_start = len(consts), len(consts) + len(carries)
    elements = [build.param(0, x.dtype, x.shape[1:]) for x in xs]
    params = params_like([*consts, *carries, *elements])
    states, ys = step(params[:carry_start], params[carry_start:x_start], params[x_start:])
    body = build.function([*states, *ys], len(params), name)
    results = build_calls.scan(body, length, consts, carries, xs, reverse, name, checkpoint)
    return results[:len(carries)], results[len(carries):]


def build_while(condition: Callable[[Nodes, Nodes], UOp],
                step: Callable[[Nodes, Nodes], Nodes], consts: Nodes, carries: Nodes, *,
                name: str = "step", max_trips: int = 0) -> tuple[UOp, ...]:
    """Return the final carries of a WHILE; both functions take consts and carries.

    ``max_trips`` is an upper bound of the trip count (0: unknown).
    """
    n, params = len(consts), params_like([*consts, *carries])
    stop = build.function([condition(params[:n], params[n:])], len(params), f"{name}.goes_on")
    body = build.function(step(params[:n], params[n:]), len(params), name)
    return build_calls.while_(stop, body, consts, carries, name, max_trips)

