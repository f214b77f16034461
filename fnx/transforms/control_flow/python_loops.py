"""Loops and branches under ``config.disable_jit``: Python loops over concrete values.

They apply only outside of all traces; within an open trace, loops are traced as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.array.api_boundary import asarray, evaluate_pending
from fnx.core.array.array import Array
from fnx.core.ir import build
from fnx.core.ir.uop import UOp, current_loc
from fnx.transforms.control_flow.bodies import flatten_arrays
from fnx.transforms.control_flow.scan import scan_length


def _call_eagerly(f: Callable[..., Any], *args: Any) -> Any:
    """Call a user's function eagerly, with its own source locations."""
    evaluate_pending(args)
    loc, current_loc.loc = current_loc.loc, None
    try:
        return f(*args)
    finally:
        current_loc.loc = loc


def _evaluate(x: Any) -> Any:
    out = tree.map(asarray, x)
    evaluate_pending(out)
    return out


def scan(f: Callable[..., Any], init: Any, xs: Any, length: int | None, reverse: bool
         ) -> tuple[Any, Any]:
    """Run ``f(carry, x) -> (carry, y)``; return (final carry, stacked results)."""
    rows, structure = flatten_arrays(xs, "xs")
    n = scan_length(rows, structure, length)
    carry, results = _evaluate(init), []
    for i in range(n)[::-1] if reverse else range(n):
        carry, y = _call_eagerly(f, carry, structure.unflatten([_row(x, i) for x in rows]))
        carry = _evaluate(carry)
        results.append(y)
    return carry, _stack(results[::-1] if reverse else results)


def map_(f: Callable[..., Any], xs: Any) -> Any:
    """Apply ``f`` to each row and stack the results."""
    return scan(lambda _, x: ((), f(x)), (), xs, None, False)[1]


def fori_loop(f: Callable[..., Any], lower: int, upper: int, init: Any) -> Any:
    """Run ``f(i, carry) -> carry`` for i from lower to upper - 1; return the final carry."""
    carry = _evaluate(init)
    for i in range(lower, upper):
        carry = _evaluate(_call_eagerly(f, i, carry))
    return carry


def while_loop(condition: Callable[..., Any], f: Callable[..., Any], init: Any) -> Any:
    """Run ``f(carry) -> carry`` while ``condition(carry)`` holds; return the final carry."""
    carry = _evaluate(init)
    while _call_eagerly(condition, carry):
        carry = _evaluate(_call_eagerly(f, carry))
    return carry


def branch(which: UOp, branches: Sequence[Callable[..., Any]], operands: Sequence[Any]) -> Any:
    """Call branch ``which``, an index that is clamped."""
    chosen = branches[min(max(int(Array(which)), 0), len(branches) - 1)]
    return _evaluate(_call_eagerly(chosen, *map(_evaluate, operands)))


def _row(x: Array, i: int) -> Array:
    bounds = [(i, i + 1), *[(0, n) for n in x._shape[1:]]]
    return Array(build.reshape(build.shrink(x._node, bounds), x._shape[1:]), x.weak)


def _stack(results: Sequence[Any]) -> Any:
    def stack(*ys: Any) -> Array:
        xs = [asarray(y) for y in ys]
        return Array(build.concat([build.reshape(x._node, (1, *x._shape)) for x in xs], 0),
                     xs[0].weak)
    return tree.map(stack, *results)
