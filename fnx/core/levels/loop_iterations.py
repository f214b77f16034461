"""The iterations around a line, numbered as in the user's loop, also inside of its derivative.

    for i in range(20): body        the derivative of step 19 runs first: it is "iteration 19"

The derivative of a SCAN is a SCAN in the other direction, over the same rows. That of a WHILE
consists of loops over blocks of steps and over the steps of a block (autodiff/while_rules.py): the
step is counted in a carry. Names of loops say what they are: "body.backward".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fnx.core.ir import accessors, ops
from fnx.core.ir.dtypes import NDArray
from fnx.core.ir.uop import UOp
from fnx.core.support.record import Record

Values = Sequence[NDArray]
_BLOCKS = "chunk", "backward"  # WHILEs over blocks of steps
_REVERSED = "backward", "pullback"


class Iteration(Record):
    """An iteration of a loop.

    Attributes:
        number: of the step in the user's loop; None: the examples of a batch differ.
        length: the number of steps, if known.
        loop: "scan", "while_loop" or "fori_loop".
        name: the name of the function that is its body.
        is_backward: whether it belongs to the derivative, which begins with the last step.
        loc: the user's line of the loop.
    """

    number: int | None
    length: int | None
    loop: str
    name: str
    is_backward: bool
    loc: tuple[str, int] | None

    def describe(self) -> str:
        """Return the number, and that of all if the order may surprise.

        >>> Iteration(3, 20, "scan", "cell", True, None).describe()
        'iteration 3 of 20'
        """
        if self.number is None:
            return "an iteration"
        return f"iteration {self.number}" + (
            f" of {self.length}" if self.length is not None else "")


class Running(Record):
    """A step of a loop that runs: the op, its consts and initial carries, the carries before the
    step, and the number of the step: the row of a SCAN."""

    node: UOp
    consts: Values
    inits: Values
    carries: Values
    step: int


def iterations(running: Sequence[Running]) -> list[tuple[Running, Iteration]]:
    """Return the iterations of the user's loops among nested loops, the outermost first."""
    users: list[tuple[Running, Iteration]] = []
    outer: Running | None = None
    for loop in running:
        if not is_over_blocks(loop.node):
            users.append((loop, _iteration(loop, outer)))
        outer = loop
    return users


def _suffixes(node: UOp) -> list[str]:
    return str(node.arg.name).split(".")[1:]


def is_over_blocks(node: UOp) -> bool:
    """Whether each step of a loop runs several steps of the user's loop."""
    last = [s for s in _suffixes(node) if s != "jvp"][-1:]
    return node.op is ops.WHILE and any(s in last for s in _BLOCKS)


def _iteration(loop: Running, outer: Running | None) -> Iteration:
    node, arg = loop.node, loop.node.arg
    suffixes, number, length = _suffixes(node), None, None
    if node.op is ops.SCAN:
        number, length = loop.step, arg.length
    else:
        blocks = outer if outer is not None and is_over_blocks(outer.node) and _name(
            outer.node) == _name(node) else None
        number, length = _while_step(loop, blocks)
    return Iteration(number, length, accessors.loop_kind(node), _name(node),
                     any(s in _REVERSED for s in suffixes), node.loc)


def _name(node: UOp) -> str:
    return str(node.arg.name).split(".")[0]


def _while_step(loop: Running, blocks: Running | None) -> tuple[int | None, int | None]:
    """Return the number of a step of a WHILE, and how many there are, if known."""
    is_pullback = "pullback" in _suffixes(loop.node)
    in_block = _count(loop.carries[0], -1) if is_pullback else loop.step
    if blocks is None:
        return in_block, _count(loop.inits[0]) if is_pullback else None
    if "chunk" in _suffixes(blocks.node):
        is_last = "jvp" not in _suffixes(loop.node)  # else tangents follow the count
        return _count(loop.carries[-1]) if is_last else None, None
    length, left = _count(blocks.consts[-1]), _count(blocks.carries[0], -1)
    block = loop.node.arg.max_trips  # the steps of a block
    if in_block is None or left is None:
        return None, length
    if block:
        return left * block + in_block, length
    return None, length  # steps that run again, up to the block


def _count(value: Any, add: int = 0) -> int | None:
    """Return a count; None if the examples of a batch differ, or end at their own steps."""
    counts = np.unique(np.asarray(value))
    return int(counts[0]) + add if counts.size == 1 and counts.dtype == np.float64 else None
