"""Outline the unlikely operand of a WHERE behind a branch, taken if any lane needs it.

    before  s = ..                                   after   n = WHERE(ALL_LANES(NOT c), 0, 1)
            v = WHERE(c, s, f)  UNLIKELY                     FOR 0 .. n
                                                               p = PHI f
                                                               s = ..
                                                               w = WHERE(c, s, p)
                                                             ENDFOR w
                                                             v = LOOP_RESULT 0

Lines move into the branch if nothing else uses them and they access no memory. The branch is a loop
of zero or one iterations, since its value is needed after it.

>>> from fnx.core.ir import kernel_args
>>> at = UOp(ops.ADDRESS, dtypes.float32, (UOp(ops.REF, dtypes.float32, (), kernel_args.Ref(0)),
...                                        build.index_const(0)), 64)
>>> x = UOp(ops.LOAD, dtypes.float32, (at,))
>>> c, root = build.lt(build.const(9, dtypes.float32), x), build.sqrt(x)
>>> v = UOp(ops.WHERE, dtypes.float32, (c, root, x), ops.UNLIKELY)
>>> lines = at, x, c, root, v, UOp(ops.STORE, dtypes.void, (at, v))
>>> [line.op for line in outline_cold_branches(UOp(ops.PROGRAM, dtypes.void, lines)).src]
[ADDRESS, LOAD, CMPLT, WHERE, FOR, PHI, SQRT, WHERE, ENDFOR, LOOP_RESULT, STORE]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp

_OPENING, _CLOSING = (ops.FOR, ops.IF), (ops.ENDFOR, ops.ENDIF)
_MOVABLE = ops.ELEMENTWISE | {ops.SPLAT, ops.SHUFFLE, ops.EXTRACT}


def outline_cold_branches(program: UOp) -> UOp:
    """Return the PROGRAM with branches.

    >>> empty = UOp(ops.PROGRAM, dtypes.void, ())
    >>> outline_cold_branches(empty) is empty
    True
    """
    if not any(line.op is ops.WHERE and line.arg == ops.UNLIKELY for line in program.src):
        return program
    return program.replace(src=tuple(_ColdBranches(program.src).lines()))


class _ColdBranches:
    """Moves the lines of a program into branches.

    ``within`` maps each moved line to the WHERE of its branch, the innermost one.
    """

    def __init__(self, lines: Sequence[UOp]) -> None:
        self.old = lines
        self.readers: dict[UOp, list[UOp]] = defaultdict(list)
        for line in lines:
            for s in dict.fromkeys(line.src):
                self.readers[s].append(line)
        self.within: dict[UOp, UOp] = {}
        self.scopes = _scopes(lines)
        for where in reversed(lines):
            if where.op is ops.WHERE and where.arg == ops.UNLIKELY:
                self._assign_to_branch(where)
        self.moved: dict[UOp, list[UOp]] = defaultdict(list)
        for line, where in self.within.items():
            self.moved[where].append(line)
        order = {line: i for i, line in enumerate(lines)}
        for moved in self.moved.values():
            moved.sort(key=order.__getitem__)
        self.rewritten: dict[UOp, UOp] = {}
        self.out: list[UOp] = []
        self.number = max((n.arg for n in lines if n.op in _OPENING), default=0)

    def _assign_to_branch(self, where: UOp) -> None:
        """Assign the lines that only the first value of a WHERE uses to its branch."""
        condition, value, other = where.src
        claimed, pending = set[UOp](), [value]
        while pending:
            line = pending.pop()
            if line in claimed or line is condition or line is other or line.op not in _MOVABLE \
                    or self.scopes.get(line) is not self.scopes[where] \
                    or not all(r is where or r in claimed for r in self.readers[line]):
                continue
            claimed.add(line)
            self.within[line] = where
            pending += line.src

    def lines(self) -> list[UOp]:
        for line in self.old:
            if line not in self.within:
                self._write(line)
        return self.out

    def _write(self, line: UOp) -> None:
        if line in self.moved:
            self._branch(line)
        else:
            src = tuple([self.rewritten.get(s, s) for s in line.src])
            is_unlikely = line.op is ops.WHERE and line.arg == ops.UNLIKELY
            self._add(line, line.replace(src=src, arg=None if is_unlikely else line.arg))

    def _add(self, line: UOp, rewritten: UOp) -> None:
        self.rewritten[line] = rewritten
        self.out.append(rewritten)

    def _branch(self, where: UOp) -> None:
        condition, _, other = [self.rewritten.get(s, s) for s in where.src]
        zero, one = build.index_const(0), build.index_const(1)
        if condition.dtype.lanes > 1:
            no_lane = UOp(ops.NOT, condition.dtype, (condition,))
            none_active = UOp(ops.ALL_LANES, dtypes.bool_, (no_lane,))
            self.out += [no_lane, none_active]
            count = build.where(none_active, zero, one)
        else:
            count = build.where(condition, one, zero)
        self.number += 1
        loop = UOp(ops.FOR, dtypes.index, (zero, count), self.number)
        carried = UOp(ops.PHI, where.dtype, (loop, other), 0)
        self.out += [count, loop, carried]
        for line in self.moved[where]:
            self._write(line)
        value = self.rewritten[where.src[1]]
        selected = UOp(ops.WHERE, where.dtype, (condition, value, carried))
        end = UOp(ops.ENDFOR, dtypes.void, (loop, selected))
        self.out += [selected, end]
        self._add(where, UOp(ops.LOOP_RESULT, where.dtype, (end,), 0))


def _scopes(lines: Sequence[UOp]) -> dict[UOp, UOp | None]:
    """Return the enclosing loop or branch of each line."""
    open_scopes: list[UOp | None] = [None]
    scopes: dict[UOp, UOp | None] = {}
    for line in lines:
        if line.op in _CLOSING:
            open_scopes.pop()
        scopes[line] = open_scopes[-1]
        if line.op in _OPENING:
            open_scopes.append(line)
    return scopes
