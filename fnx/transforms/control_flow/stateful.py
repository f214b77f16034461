"""Loops and branches whose bodies use references: the values become carries and results.

    r[...] += x in each step of a scan    ->    (carry, value of r) is carried
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.array import tree
from fnx.core.array.array import Array
from fnx.core.ir import build
from fnx.core.ir.uop import UOp
from fnx.core.tracing.references import Ref, RowRef
from fnx.core.tracing.state import Lift, StateUsedError, lift
from fnx.transforms.control_flow import branches as branch_module
from fnx.transforms.control_flow import scan as scans
from fnx.transforms.control_flow import while_loop as while_loops


def scan(used: StateUsedError, f: Callable[..., Any], init: Any, xs: Any, *options: Any) -> Any:
    """Run a scan again whose steps use references; ``options`` are those of ``scan.scan``."""
    def call(lifted: Lift) -> tuple[Any, Any]:
        def step(carried: Any, x: Any) -> Any:
            (carry, y), values = lifted.run(f, carried[1], carried[0], x)
            return (carry, values), y
        (carry, values), ys = scans.scan(step, (init, lifted.values), xs, *options)
        return (carry, ys), values
    return lift(used, call)


def over_rows_of_references(f: Callable[..., Any], xs: Any) -> tuple[Callable[..., Any], Any]:
    """Return a step and arrays to scan over, for ``xs`` with references.

    A step has a reference to its row.
    """
    leaves, structure = tree.flatten(xs)
    positions = [i for i, x in enumerate(leaves) if isinstance(x, Ref)]
    references = [leaves[i] for i in positions]
    for i in positions:
        leaves[i] = Array(build.iota(leaves[i].shape[0]))

    def step(carry: Any, rows: Any) -> Any:
        row = tree.leaves(rows)
        numbers = [row[i] for i in positions]
        for i, number, reference in zip(positions, numbers, references):
            row[i] = RowRef(reference, number)
        return f(carry, structure.unflatten(row))
    return step, structure.unflatten(leaves)


def map_(used: StateUsedError, f: Callable[..., Any], xs: Any) -> Any:
    """Apply a function that uses references to each row, one after the other."""
    return scan(used, lambda _, x: (None, f(x)), None, xs, None, False, 1, 0, False)[1]


def fori_loop(used: StateUsedError, f: Callable[..., Any], lower: Array, upper: Array, init: Any
              ) -> Any:
    """Run a counted loop again whose steps use references."""
    def call(lifted: Lift) -> tuple[Any, Any]:
        def step(i: Any, carried: Any) -> Any:
            return lifted.run(f, carried[1], i, carried[0])
        out: tuple[Any, Any] = while_loops.fori_loop_dynamic(
            step, lower, upper, (init, lifted.values))
        return out
    return lift(used, call)


def counted_loop(used: StateUsedError, f: Callable[..., Any], lower: int, upper: int, init: Any,
                 unroll: int) -> Any:
    """Run a loop of a known length again whose steps use references."""
    def call(lifted: Lift) -> tuple[Any, Any]:
        def step(i: Any, carried: Any) -> Any:
            return lifted.run(f, carried[1], i, carried[0])
        out: tuple[Any, Any] = scans.fori_loop(step, lower, upper, (init, lifted.values), unroll)
        return out
    return lift(used, call)


def while_loop(used: StateUsedError, condition: Callable[..., Any], f: Callable[..., Any], init: Any
               ) -> Any:
    """Run a while loop again whose condition or steps use references.

    The condition may write, too: so what it says of the next step is carried.
    """
    def call(lifted: Lift) -> tuple[Any, Any]:
        def step(carried: Any) -> Any:
            _, carry, values = carried
            carry, values = lifted.run(f, values, carry)
            holds, values = lifted.run(condition, values, carry)
            return holds, carry, values
        holds, values = lifted.run(condition, lifted.values, init)
        _, carry, values = while_loops.while_loop(lambda carried: carried[0], step,
                                                  (holds, init, values))
        return carry, values
    return lift(used, call)


def branch(used: StateUsedError, which: UOp, functions: Sequence[Callable[..., Any]],
           operands: Sequence[Any], caller: str) -> Any:
    """Apply a branch again that uses references: all branches return their next values."""
    def call(lifted: Lift) -> tuple[Any, Any]:
        out: tuple[Any, Any] = branch_module.branch(
            which, [lifted.closed(f) for f in functions], operands, caller)
        return out
    return lift(used, call)
