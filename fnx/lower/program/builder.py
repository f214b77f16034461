"""The lines of a PROGRAM as they are written: one list per open loop, so that work is hoisted.

A line goes to the innermost open loop among those its operands come from, which may be outside
the loop that is being written; the same line is written once as long as that loop is open:

    lines.open(...)                        n4 = n * 4         <- hoisted: depends on no loop
    lines.add(MUL, n, 4)                   FOR i
    lines.add(MUL, i, 4)                     i4 = i * 4
    lines.close(...)                       ENDFOR
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import build, dtypes, op_args, ops
from fnx.core.dtypes import DType
from fnx.core.formulas import FORMULAS
from fnx.core.levels.spec_program import UNLINED
from fnx.core.ops import Op
from fnx.core.uop import UOp, toposort
from fnx.lower.program.decompose import expanded

_EFFECTS = frozenset({ops.STORE, ops.FOR, ops.PHI, ops.ENDFOR, ops.BREAK, ops.IF, ops.ENDIF,
                      ops.SYNC, ops.AWAIT})


ANY_ZERO = "ANY_ZERO"  # what a MAX or MIN has that may take either of +0 and -0
_OF_EXTREMES = frozenset({ops.MAX, ops.MIN})


class Lines:
    """A program that is being written: a stack of open loops, outermost first.

    Args:
        fma: whether the target multiplies and adds with one rounding.
        rounds: whether it has an instruction that rounds to a whole number.
        permuted: bytes of the smallest elements that one instruction puts in any order.
    """

    def __init__(self, fma: bool = True, rounds: bool = True, permuted: int = 1) -> None:
        self.fma, self.rounds, self.permuted = fma, rounds, permuted
        self.stack: list[list[UOp]] = [[]]
        self._depth: dict[UOp, int] = {}
        self._numbers = 0
        self._loops: list[UOp] = []

    def depth(self, node: UOp) -> int:
        """How many loops are open around the line that defines ``node``."""
        return 0 if node.op in UNLINED else self._depth[node]

    def add(self, op: Op, dtype: DType, src: tuple[UOp, ...], arg: Any = None,
            at_least: int = 0) -> UOp:
        """A line without effect, as far out as its operands allow (``at_least`` loops deep).

        One that is there already moves out, if it has to live longer: a load under a condition
        that holds in this part of a loop is the line of the load that always takes place.
        """
        node = UOp(op, dtype, src, arg)
        if op in UNLINED:
            return node
        depth = at_least
        for s in src:
            if s.op not in UNLINED:
                depth = max(depth, self._depth[s])
        there = self._depth.get(node)
        if there is not None and there <= depth:
            return node
        if there is not None:
            self.stack[there].remove(node)
        self._depth[node] = depth
        self.stack[depth].append(node)
        return node

    def put(self, op: Op, dtype: DType, src: tuple[UOp, ...], arg: Any = None) -> UOp:
        """A line that stays here, whether or not there is an equal one already."""
        node = UOp(op, dtype, src, arg)
        self._depth[node] = len(self.stack) - 1
        self.stack[-1].append(node)
        return node

    # ---- loops ----

    def number(self) -> int:
        """A number that no other loop or branch of this program has."""
        self._numbers += 1
        return self._numbers

    def open(self, start: UOp, stop: UOp) -> UOp:
        """Begin a loop start <= i < stop; what is returned stands for i."""
        self.stack.append([])
        loop = self.put(ops.FOR, dtypes.index, (start, stop), self.number())
        self._loops.append(loop)
        return loop

    def open_scope(self) -> None:
        """Begin lines that are one level further in, in no loop."""
        self.stack.append([])

    def close_scope(self) -> None:
        """End them; what they define is not to be used after."""
        inner = self.stack.pop()
        for node in inner:
            self._depth.pop(node, None)
        self.stack[-1].extend(inner)

    def phi(self, init: UOp) -> UOp:
        """A value that each iteration of the loop just begun hands to the next."""
        loop = self._loops[-1]
        return self.put(ops.PHI, init.dtype, (loop, init), len(self.stack[-1]) - 1)

    def close(self, nexts: Sequence[UOp]) -> list[UOp]:
        """End the innermost loop; the last values of its phis, in their order."""
        end = self.put(ops.ENDFOR, dtypes.void, (self._loops.pop(), *nexts))
        inner = self.stack.pop()
        for node in inner:
            self._depth.pop(node, None)
        self.stack[-1].extend(inner)
        self._depth[end] = len(self.stack) - 1
        return [self.put(ops.LAST, n.dtype, (end,), i) for i, n in enumerate(nexts)]

    def branch(self, condition: UOp) -> UOp:
        """Begin lines that are run only where ``condition`` holds."""
        return self.put(ops.IF, dtypes.void, (condition,), self.number())

    def end_branch(self, branch: UOp) -> None:
        """End them; what they define is not to be used after."""
        here = self.stack[-1]
        for node in here[here.index(branch):]:
            self._depth.pop(node, None)  # two updates of one place load it twice
        self.put(ops.ENDIF, dtypes.void, (branch,))

    # ---- integers, computed where they are constant ----

    def integer(self, op: Op, a: UOp, b: UOp | int) -> UOp:
        """ADD, MUL, MIN or MAX of two indices."""
        b = build.index_const(b) if isinstance(b, int) else b
        if a.op is ops.CONST and b.op is ops.CONST:
            return build.index_const(_OF_NUMBERS[op](build.const_of(a), build.const_of(b)))
        if a is _NEUTRAL.get(op, b):
            return b
        return a if b is _NEUTRAL.get(op) else self.add(op, a.dtype, (a, b))

    def plus(self, a: UOp, b: UOp | int) -> UOp:
        return self.integer(ops.ADD, a, b)

    def times(self, a: UOp, b: UOp | int) -> UOp:
        return self.integer(ops.MUL, a, b)

    def divided(self, a: UOp, divisor: int) -> UOp:
        """a // divisor for a >= 0."""
        if divisor == 1:
            return a
        if a.op is ops.CONST:
            return build.index_const(build.const_of(a) // divisor)
        if divisor & (divisor - 1) == 0:
            return self.add(ops.SHR, a.dtype, (a, build.index_const(divisor.bit_length() - 1)))
        return self.add(ops.IDIV, a.dtype, (a, build.index_const(divisor)))

    # ---- vectors ----

    def widen(self, x: UOp, lanes: int) -> UOp:
        """A scalar in all lanes; a vector as it is.

        A choice between constants is made in each lane: where LLVM (14 to 22) finds the condition
        constant only while it selects instructions, a scalar constant in all lanes ends the
        process (llvm-project issue 213251).
        """
        if lanes == 1 or x.dtype.lanes == lanes:
            return x
        if x.op is ops.WHERE and x.src[1].op is ops.CONST and x.src[2].op is ops.CONST:
            return self.across(ops.WHERE, x.dtype, [self.widen(s, lanes) for s in x.src])
        return self.add(ops.SPLAT, x.dtype.vectors[lanes], (x,))

    def across(self, op: Op, dtype: DType, src: Sequence[UOp], arg: Any = None) -> UOp:
        """A line over scalars and vectors: in as many lanes as one of them has."""
        lanes = max([s.dtype.lanes for s in src])
        if lanes == 1:
            return self.add(op, dtype, tuple(src), arg)
        wide = [s if s.dtype.lanes == lanes else self.widen(s, lanes) for s in src]
        return self.add(op, dtype.vectors[lanes], tuple(wide), arg)

    def both(self, a: UOp | None, b: UOp | None) -> UOp | None:
        """The conjunction of two masks, where None is true."""
        if a is None or b is None:
            return a if b is None else b
        return self.across(ops.AND, dtypes.bool_, (a, b))

    def reverse(self, x: UOp) -> UOp:
        """The lanes in reverse."""
        return self.add(ops.SHUFFLE, x.dtype, (x, x), tuple(range(x.dtype.lanes))[::-1])

    def lanes(self, x: UOp, first: int, count: int) -> UOp:
        """Some neighbouring lanes."""
        if count == 1:
            return self.add(ops.EXTRACT, x.dtype.scalar, (x,), first)
        return self.add(ops.SHUFFLE, x.dtype.scalar.vec(count), (x, x),
                        tuple(range(first, first + count)))

    # ---- folds ----

    def combined(self, monoid: Op, a: UOp, b: UOp, stays: bool = False) -> UOp:
        """Two values by a monoid: a line, or those of its formula, which stay here if asked."""
        line = self.put if stays else self.add
        if monoid not in FORMULAS:
            anyhow = monoid in _OF_EXTREMES and a.dtype.is_float
            return line(monoid, a.dtype, (a, b), ANY_ZERO if anyhow else None)
        whole = expanded(monoid, a.dtype.scalar, self.fma, self.rounds)
        lanes = a.dtype.lanes
        found = {build.var(0, a.dtype.scalar): a, build.var(1, a.dtype.scalar): b}
        for node in toposort([whole]):
            if node.op in UNLINED:
                found.setdefault(node, node)
            else:
                src = tuple([self.widen(found[s], lanes) for s in node.src])
                found[node] = line(node.op, node.dtype.vec(lanes), src, node.arg)
        return found[whole]

    def total(self, monoid: Op, parts: Sequence[UOp]) -> UOp:
        """All parts combined, in a tree of neighbours."""
        while len(parts) > 1:
            pairs = [self.combined(monoid, a, b) for a, b in zip(parts[::2], parts[1::2])]
            parts = [*pairs, *parts[len(pairs) * 2:]]
        return parts[0]

    def total_of_lanes(self, monoid: Op, x: UOp) -> UOp:
        """All lanes combined: in a tree of halves, an odd number that is left in order."""
        while (half := x.dtype.lanes // 2) * 2 == x.dtype.lanes:
            low, high = self.lanes(x, 0, half), self.lanes(x, half, half)
            x = self.combined(monoid, low, high)
        if x.dtype.lanes == 1:
            return x
        total = self.lanes(x, 0, 1)
        for i in range(1, x.dtype.lanes):
            total = self.combined(monoid, total, self.lanes(x, i, 1))
        return total

    def place_of(self, monoid: Op, keys: Sequence[UOp], places: Sequence[UOp], across: bool
                 ) -> UOp:
        """The least place of an extreme key, of all parts, and of all lanes if asked."""
        extreme = self.total(monoid, keys)
        if across:
            extreme = self.total_of_lanes(monoid, extreme)
        most = build.const(places[0].dtype.scalar.limits[1], places[0].dtype.scalar)
        found = []
        for key, place in zip(keys, places):
            hit = self.across(ops.CMPEQ, dtypes.bool_, (key, extreme))
            if key.dtype.is_float:
                hit = self.across(ops.OR, dtypes.bool_, (hit, self.is_nan(key)))
            found.append(self.across(ops.WHERE, place.dtype.scalar, (hit, place, most)))
        least = self.total(ops.MIN, found)
        return self.total_of_lanes(ops.MIN, least) if across else least

    def is_nan(self, x: UOp) -> UOp:
        return self.across(ops.CMPNE, dtypes.bool_, (x, x))

    def is_better(self, monoid: Op, key: UOp, than: UOp) -> UOp:
        """Whether a key is more extreme than another: NaN is, of what is none."""
        if not key.dtype.is_float:
            sides = (than, key) if monoid is ops.MAX else (key, than)
            return self.across(ops.CMPLT, dtypes.bool_, sides)
        sides = (key, than) if monoid is ops.MAX else (than, key)
        above = self.across(ops.NOT, dtypes.bool_,
                            (self.across(ops.CMPLE, dtypes.bool_, sides),))
        number = self.across(ops.CMPEQ, dtypes.bool_, (than, than))
        return self.across(ops.AND, dtypes.bool_, (above, number))

    # ---- the result ----

    def program(self, group: op_args.ThreadGroup | None = None) -> UOp:
        """The PROGRAM: all lines but those that nothing with an effect needs; an ENDFOR names the
        next value of each PHI, so these stay."""
        used: set[UOp] = set()
        kept: list[UOp] = []
        for node in reversed(self.stack[0]):
            if node.op in _EFFECTS or node in used:
                kept.append(node)
                used.update(node.src)
        return UOp(ops.PROGRAM, dtypes.void, tuple(reversed(kept)), group)


_OF_NUMBERS: dict[Op, Callable[[int, int], int]] = {
    ops.ADD: operator.add, ops.MUL: operator.mul, ops.MIN: min, ops.MAX: max}
_NEUTRAL = {ops.ADD: build.index_const(0), ops.MUL: build.index_const(1)}
