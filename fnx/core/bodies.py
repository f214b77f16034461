"""Build the bodies of loops from Python functions of their PARAMs.

    (total, last), sums = scan_over(step, 8, [w], [zero, x0], [xs])

calls ``step([w], [total, last], [x])`` once, on PARAMs of the operands' types, and closes the
result. The step may read nothing but its operands.

>>> from fnx.core import build, dtypes
>>> xs = build.param(0, dtypes.float32, (8,))
>>> (total,), () = scan_over(lambda consts, carries, x: ([build.add(carries[0], x[0])], []),
...                          8, [], [build.const(0, dtypes.float32)], [xs], name="sum")
>>> total
<GET float32[] of 1, 0>
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from fnx.core import build, build_calls
from fnx.core.uop import UOp

Nodes = Sequence[UOp]
StepOf = Callable[[Nodes, Nodes, Nodes], tuple[Nodes, Nodes]]  # consts, carries, x -> carries, y


def function_over(f: Callable[[Nodes], Iterable[UOp]], like: Nodes, name: str) -> UOp:
    """Return the FUNCTION of ``f`` for operands of the types of ``like``."""
    return build.function(f(params_like(like)), len(like), name)


def params_like(nodes: Nodes) -> list[UOp]:
    """Return PARAM 0, 1, ... with the types of some nodes."""
    return [build.param(i, x.dtype, x.shape) for i, x in enumerate(nodes)]


def scan_over(step: StepOf, length: int, consts: Nodes, carries: Nodes, xs: Nodes, *,
              reverse: bool = False, checkpoint: int = 0, name: str = "step"
              ) -> tuple[tuple[UOp, ...], tuple[UOp, ...]]:
    """Return the final carries and the stacked ys of a SCAN."""
    first, second = len(consts), len(consts) + len(carries)
    rows = [build.param(0, x.dtype, x.shape[1:]) for x in xs]
    given = params_like([*consts, *carries, *rows])
    states, ys = step(given[:first], given[first:second], given[second:])
    body = build.function([*states, *ys], len(given), name)
    found = build_calls.scan(body, length, consts, carries, xs, reverse, name, checkpoint)
    return found[:len(carries)], found[len(carries):]


def while_over(condition: Callable[[Nodes, Nodes], UOp],
               step: Callable[[Nodes, Nodes], Nodes], consts: Nodes, carries: Nodes, *,
               name: str = "step", most: int = 0) -> tuple[UOp, ...]:
    """Return the final carries of a WHILE; both functions take consts and carries.

    ``most`` is an upper bound of the trip count (0: unknown).
    """
    n, given = len(consts), params_like([*consts, *carries])
    stop = build.function([condition(given[:n], given[n:])], len(given), f"{name}.goes_on")
    body = build.function(step(given[:n], given[n:]), len(given), name)
    return build_calls.while_(stop, body, consts, carries, name, most)

