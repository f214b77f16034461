"""Outline the unlikely operand of a WHERE behind a branch, taken if any lane needs it.

    before  s = ..                                   after   n = WHERE(EVERY(NOT c), 0, 1)
            v = WHERE(c, s, f)  SELDOM                       FOR 0 .. n
                                                               p = PHI f
                                                               s = ..
                                                               w = WHERE(c, s, p)
                                                             ENDFOR w
                                                             v = LAST 0

Lines move into the branch if nothing else uses them and they access no memory. The branch is a loop
of zero or one iterations, since its value is needed after it.

>>> from fnx.core import op_args
>>> at = UOp(ops.ADDRESS, dtypes.float32, (UOp(ops.REF, dtypes.float32, (), op_args.Ref(0)),
...                                        build.index_const(0)), 64)
>>> x = UOp(ops.LOAD, dtypes.float32, (at,))
>>> c, root = build.lt(build.const(9, dtypes.float32), x), build.sqrt(x)
>>> v = UOp(ops.WHERE, dtypes.float32, (c, root, x), ops.SELDOM)
>>> lines = at, x, c, root, v, UOp(ops.STORE, dtypes.void, (at, v))
>>> [line.op for line in seldom(UOp(ops.PROGRAM, dtypes.void, lines)).src]
[ADDRESS, LOAD, CMPLT, WHERE, FOR, PHI, SQRT, WHERE, ENDFOR, LAST, STORE]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from fnx.core import build, dtypes, ops
from fnx.core.uop import UOp

_OPENING, _CLOSING = (ops.FOR, ops.IF), (ops.ENDFOR, ops.ENDIF)
_MOVED = ops.ELEMENTWISE | {ops.SPLAT, ops.SHUFFLE, ops.EXTRACT}


def seldom(program: UOp) -> UOp:
    """Return the PROGRAM with branches.

    >>> empty = UOp(ops.PROGRAM, dtypes.void, ())
    >>> seldom(empty) is empty
    True
    """
    if not any(line.op is ops.WHERE and line.arg == ops.SELDOM for line in program.src):
        return program
    return program.replace(src=tuple(_Branches(program.src).lines()))


class _Branches:
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
        for choice in reversed(lines):
            if choice.op is ops.WHERE and choice.arg == ops.SELDOM:
                self._claim(choice)
        self.moved: dict[UOp, list[UOp]] = defaultdict(list)
        for line, choice in self.within.items():
            self.moved[choice].append(line)
        order = {line: i for i, line in enumerate(lines)}
        for moved in self.moved.values():
            moved.sort(key=order.__getitem__)
        self.made: dict[UOp, UOp] = {}
        self.out: list[UOp] = []
        self.number = max((n.arg for n in lines if n.op in _OPENING), default=0)

    def _claim(self, choice: UOp) -> None:
        """Assign the lines that only the first value of a WHERE uses to its branch."""
        condition, value, other = choice.src
        mine, waiting = set[UOp](), [value]
        while waiting:
            line = waiting.pop()
            if line in mine or line is condition or line is other or line.op not in _MOVED \
                    or self.scopes.get(line) is not self.scopes[choice] \
                    or not all(r is choice or r in mine for r in self.readers[line]):
                continue
            mine.add(line)
            self.within[line] = choice
            waiting += line.src

    def lines(self) -> list[UOp]:
        for line in self.old:
            if line not in self.within:
                self._write(line)
        return self.out

    def _write(self, line: UOp) -> None:
        if line in self.moved:
            self._branch(line)
        else:
            src = tuple([self.made.get(s, s) for s in line.src])
            plain = line.op is ops.WHERE and line.arg == ops.SELDOM
            self._add(line, line.replace(src=src, arg=None if plain else line.arg))

    def _add(self, line: UOp, made: UOp) -> None:
        self.made[line] = made
        self.out.append(made)

    def _branch(self, choice: UOp) -> None:
        condition, _, other = [self.made.get(s, s) for s in choice.src]
        none, one = build.index_const(0), build.index_const(1)
        if condition.dtype.lanes > 1:
            never = UOp(ops.NOT, condition.dtype, (condition,))
            every = UOp(ops.EVERY, dtypes.bool_, (never,))
            self.out += [never, every]
            count = build.where(every, none, one)
        else:
            count = build.where(condition, one, none)
        self.number += 1
        loop = UOp(ops.FOR, dtypes.index, (none, count), self.number)
        before = UOp(ops.PHI, choice.dtype, (loop, other), 0)
        self.out += [count, loop, before]
        for line in self.moved[choice]:
            self._write(line)
        value = self.made[choice.src[1]]
        chosen = UOp(ops.WHERE, choice.dtype, (condition, value, before))
        end = UOp(ops.ENDFOR, dtypes.void, (loop, chosen))
        self.out += [chosen, end]
        self._add(choice, UOp(ops.LAST, choice.dtype, (end,), 0))


def _scopes(lines: Sequence[UOp]) -> dict[UOp, UOp | None]:
    """Return the enclosing loop or branch of each line."""
    open: list[UOp | None] = [None]
    found: dict[UOp, UOp | None] = {}
    for line in lines:
        if line.op in _CLOSING:
            open.pop()
        found[line] = open[-1]
        if line.op in _OPENING:
            open.append(line)
    return found
