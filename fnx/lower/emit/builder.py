"""Builder of PROGRAM lines: one list per open loop, so that loop-invariant work is hoisted.

A line goes to the innermost open loop that defines one of its operands, which may be outside the
current loop. An equal line is emitted only once while that loop is open:

    lines.open(...)                        n4 = n * 4         <- hoisted: depends on no loop
    lines.add(MUL, n, 4)                   FOR i
    lines.add(MUL, i, 4)                     i4 = i * 4
    lines.close(...)                       ENDFOR
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from fnx.core.formulas.formulas import FORMULAS
from fnx.core.ir import build, dtypes, kernel_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.spec_program import NON_INSTRUCTIONS
from fnx.lower.legalize.decompose import expand_formula_op

_SIDE_EFFECTS = frozenset({ops.STORE, ops.FOR, ops.PHI, ops.ENDFOR, ops.BREAK, ops.IF, ops.ENDIF,
                           ops.SYNC, ops.ASYNC_WAIT, ops.EXTERN_CALL})


ANY_ZERO = "ANY_ZERO"  # the arg of a MAX or MIN that may return either of +0 and -0
_MIN_MAX = frozenset({ops.MAX, ops.MIN})


class ProgramBuilder:
    """A program under construction: a stack of open loops, outermost first.

    Args:
        fma: whether the target has fused multiply-add.
        rounds: whether it has instructions that round to an integer.
        permuted: the size in bytes of the smallest elements that one instruction can permute
            arbitrarily.
    """

    def __init__(self, fma: bool = True, rounds: bool = True, permuted: int = 1) -> None:
        self.fma, self.rounds, self.permuted = fma, rounds, permuted
        self.stack: list[list[UOp]] = [[]]
        self._depth: dict[UOp, int] = {}
        # at each depth the lines of loops, scopes and branches that are closed
        self._closed: list[set[UOp]] = [set()]
        self._numbers = 0
        self._loops: list[UOp] = []

    def depth(self, node: UOp) -> int:
        """Return the loop depth of the line that defines ``node``."""
        return 0 if node.op in NON_INSTRUCTIONS else self._depth[node]

    def has(self, node: UOp) -> bool:
        """Return whether ``node`` is a line of an open loop."""
        return node in self._depth

    def add(self, op: Op, dtype: DType, src: tuple[UOp, ...], arg: Any = None,
            min_depth: int = 0) -> UOp:
        """Emit a line without side effects, hoisted as far as its operands allow.

        The line stays at least ``min_depth`` loops deep. If an equal line exists deeper, it moves
        out: a load under a condition that is known to hold in this part of a loop is the same line
        as the unconditional load.
        """
        node = UOp(op, dtype, src, arg)
        if op in NON_INSTRUCTIONS:
            return node
        depth = min_depth
        for s in src:
            if s.op not in NON_INSTRUCTIONS:
                depth = max(depth, self._depth[s])
        known_depth = self._depth.get(node)
        if known_depth is not None and known_depth <= depth:
            return node
        if known_depth is not None:
            self.stack[known_depth].remove(node)
        for lines, closed in zip(self.stack[depth + 1:], self._closed[depth + 1:]):
            if node in closed:  # this line comes before those
                lines[:] = [line for line in lines if line is not node]
                closed.discard(node)
        self._depth[node] = depth
        self.stack[depth].append(node)
        return node

    def put(self, op: Op, dtype: DType, src: tuple[UOp, ...], arg: Any = None) -> UOp:
        """Emit a line at the current position, even if an equal one exists."""
        node = UOp(op, dtype, src, arg)
        self._depth[node] = len(self.stack) - 1
        self.stack[-1].append(node)
        return node

    # ---- loops ----

    def number(self) -> int:
        """Return a number that no other loop or branch of this program has."""
        self._numbers += 1
        return self._numbers

    def open(self, start: UOp, stop: UOp) -> UOp:
        """Open a loop start <= i < stop and return its counter i."""
        self.open_scope()
        loop = self.put(ops.FOR, dtypes.index, (start, stop), self.number())
        self._loops.append(loop)
        return loop

    def open_scope(self) -> None:
        """Open a scope: one level deeper, but not a loop."""
        self.stack.append([])
        self._closed.append(set())

    def close_scope(self) -> None:
        """Close the scope. Values defined in it must not be used afterwards."""
        self._close_level()

    def _close_level(self) -> None:
        inner = self.stack.pop()
        for node in inner:
            self._depth.pop(node, None)
        self._closed.pop()
        self._closed[-1].update(inner)
        self.stack[-1].extend(inner)

    def phi(self, init: UOp) -> UOp:
        """Emit a loop-carried value (PHI) of the loop that was just opened."""
        loop = self._loops[-1]
        return self.put(ops.PHI, init.dtype, (loop, init), len(self.stack[-1]) - 1)

    def close(self, nexts: Sequence[UOp]) -> list[UOp]:
        """Close the innermost loop and return the final values of its PHIs, in order."""
        end = self.put(ops.ENDFOR, dtypes.void, (self._loops.pop(), *nexts))
        self._close_level()
        self._depth[end] = len(self.stack) - 1
        return [self.put(ops.LOOP_RESULT, n.dtype, (end,), i) for i, n in enumerate(nexts)]

    def branch(self, condition: UOp) -> UOp:
        """Open a branch that runs only if ``condition`` holds."""
        return self.put(ops.IF, dtypes.void, (condition,), self.number())

    def end_branch(self, branch: UOp) -> None:
        """Close the branch. Values defined in it must not be used afterwards."""
        lines = self.stack[-1]
        for node in lines[lines.index(branch):]:
            self._depth.pop(node, None)  # two updates of one element load it twice
            self._closed[-1].add(node)
        self.put(ops.ENDIF, dtypes.void, (branch,))

    # ---- integers, folded if constant ----

    def integer(self, op: Op, a: UOp, b: UOp | int) -> UOp:
        """Emit ADD, MUL, MIN or MAX of two indices."""
        b = build.index_const(b) if isinstance(b, int) else b
        if a.op is ops.CONST and b.op is ops.CONST:
            return build.index_const(_FOLD_CONSTANTS[op](build.const_of(a), build.const_of(b)))
        if a is _IDENTITY.get(op, b):
            return b
        return a if b is _IDENTITY.get(op) else self.add(op, a.dtype, (a, b))

    def plus(self, a: UOp, b: UOp | int) -> UOp:
        return self.integer(ops.ADD, a, b)

    def times(self, a: UOp, b: UOp | int) -> UOp:
        return self.integer(ops.MUL, a, b)

    def divide(self, a: UOp, divisor: int) -> UOp:
        """Emit a // divisor for a >= 0."""
        if divisor == 1:
            return a
        if a.op is ops.CONST:
            return build.index_const(build.const_of(a) // divisor)
        if divisor & (divisor - 1) == 0:
            return self.add(ops.SHR, a.dtype, (a, build.index_const(divisor.bit_length() - 1)))
        return self.add(ops.IDIV, a.dtype, (a, build.index_const(divisor)))

    # ---- vectors ----

    def widen(self, x: UOp, lanes: int) -> UOp:
        """Broadcast a scalar to all lanes; return a vector unchanged.

        A WHERE of constants is broadcast operand by operand. Otherwise LLVM (14 to 22) crashes if
        the condition turns out to be constant only during instruction selection (llvm-project
        issue 213251).
        """
        if lanes == 1 or x.dtype.lanes == lanes:
            return x
        if x.op is ops.WHERE and x.src[1].op is ops.CONST and x.src[2].op is ops.CONST:
            return self.across(ops.WHERE, x.dtype, [self.widen(s, lanes) for s in x.src])
        return self.add(ops.SPLAT, x.dtype.vector_types[lanes], (x,))

    def across(self, op: Op, dtype: DType, src: Sequence[UOp], arg: Any = None) -> UOp:
        """Emit a line over scalars and vectors; scalars are broadcast to the widest operand."""
        lanes = max([s.dtype.lanes for s in src])
        if lanes == 1:
            return self.add(op, dtype, tuple(src), arg)
        vectors = [s if s.dtype.lanes == lanes else self.widen(s, lanes) for s in src]
        return self.add(op, dtype.vector_types[lanes], tuple(vectors), arg)

    def both(self, a: UOp | None, b: UOp | None) -> UOp | None:
        """Return the conjunction of two masks, where None means true."""
        if a is None or b is None:
            return a if b is None else b
        return self.across(ops.AND, dtypes.bool_, (a, b))

    def reverse(self, x: UOp) -> UOp:
        """Reverse the lanes."""
        return self.add(ops.SHUFFLE, x.dtype, (x, x), tuple(range(x.dtype.lanes))[::-1])

    def lanes(self, x: UOp, first: int, count: int) -> UOp:
        """Extract ``count`` consecutive lanes from ``first`` on."""
        if count == 1:
            return self.add(ops.EXTRACT, x.dtype.scalar, (x,), first)
        return self.add(ops.SHUFFLE, x.dtype.scalar.vec(count), (x, x),
                        tuple(range(first, first + count)))

    # ---- reductions ----

    def apply_monoid(self, monoid: Op, a: UOp, b: UOp, pinned: bool = False) -> UOp:
        """Combine two values by a monoid: one line, or the lines of its formula.

        With ``pinned`` the lines are emitted at the current position instead of hoisted.
        """
        emit = self.put if pinned else self.add
        if monoid not in FORMULAS:
            any_zero = monoid in _MIN_MAX and a.dtype.is_float
            return emit(monoid, a.dtype, (a, b), ANY_ZERO if any_zero else None)
        formula = expand_formula_op(monoid, a.dtype.scalar, self.fma, self.rounds)
        lanes = a.dtype.lanes
        values = {build.var(0, a.dtype.scalar): a, build.var(1, a.dtype.scalar): b}
        for node in toposort([formula]):
            if node.op in NON_INSTRUCTIONS:
                values.setdefault(node, node)
            else:
                src = tuple([self.widen(values[s], lanes) for s in node.src])
                values[node] = emit(node.op, node.dtype.vec(lanes), src, node.arg)
        return values[formula]

    def total(self, monoid: Op, parts: Sequence[UOp]) -> UOp:
        """Reduce all parts in a tree of neighbors."""
        while len(parts) > 1:
            pairs = [self.apply_monoid(monoid, a, b) for a, b in zip(parts[::2], parts[1::2])]
            parts = [*pairs, *parts[len(pairs) * 2:]]
        return parts[0]

    def reduce_lanes(self, monoid: Op, x: UOp) -> UOp:
        """Reduce all lanes: in a tree of halves, then an odd remainder sequentially."""
        while (half := x.dtype.lanes // 2) * 2 == x.dtype.lanes:
            low, high = self.lanes(x, 0, half), self.lanes(x, half, half)
            x = self.apply_monoid(monoid, low, high)
        if x.dtype.lanes == 1:
            return x
        total = self.lanes(x, 0, 1)
        for i in range(1, x.dtype.lanes):
            total = self.apply_monoid(monoid, total, self.lanes(x, i, 1))
        return total

    def place_of(self, monoid: Op, keys: Sequence[UOp], indices: Sequence[UOp], across: bool
                 ) -> UOp:
        """Return the smallest index with the extreme key; ``across``: reduce the lanes, too."""
        extreme = self.total(monoid, keys)
        if across:
            extreme = self.reduce_lanes(monoid, extreme)
        limit = build.const(indices[0].dtype.scalar.limits[1], indices[0].dtype.scalar)
        hits = []
        for key, index in zip(keys, indices):
            is_extreme = self.across(ops.CMPEQ, dtypes.bool_, (key, extreme))
            if key.dtype.is_float:
                is_extreme = self.across(ops.OR, dtypes.bool_, (is_extreme, self.is_nan(key)))
            hits.append(self.across(ops.WHERE, index.dtype.scalar, (is_extreme, index, limit)))
        least = self.total(ops.MIN, hits)
        return self.reduce_lanes(ops.MIN, least) if across else least

    def is_nan(self, x: UOp) -> UOp:
        return self.across(ops.CMPNE, dtypes.bool_, (x, x))

    def is_better(self, monoid: Op, key: UOp, other: UOp) -> UOp:
        """Return whether ``key`` is more extreme than ``other``; NaN beats every number."""
        if not key.dtype.is_float:
            sides = (other, key) if monoid is ops.MAX else (key, other)
            return self.across(ops.CMPLT, dtypes.bool_, sides)
        sides = (key, other) if monoid is ops.MAX else (other, key)
        is_beyond = self.across(ops.NOT, dtypes.bool_,
                                (self.across(ops.CMPLE, dtypes.bool_, sides),))
        is_number = self.across(ops.CMPEQ, dtypes.bool_, (other, other))
        return self.across(ops.AND, dtypes.bool_, (is_beyond, is_number))

    # ---- the result ----

    def program(self, group: kernel_args.ThreadGroup | None = None) -> UOp:
        """Return the PROGRAM without dead lines.

        ENDFOR uses the next value of each PHI, so PHIs stay alive.
        """
        used: set[UOp] = set()
        remaining: list[UOp] = []
        for node in reversed(self.stack[0]):
            if node.op in _SIDE_EFFECTS or node in used:
                remaining.append(node)
                used.update(node.src)
        return UOp(ops.PROGRAM, dtypes.void, tuple(reversed(remaining)), group)


_FOLD_CONSTANTS: dict[Op, Callable[[int, int], int]] = {
    ops.ADD: operator.add, ops.MUL: operator.mul, ops.MIN: min, ops.MAX: max}
_IDENTITY = {ops.ADD: build.index_const(0), ops.MUL: build.index_const(1)}
