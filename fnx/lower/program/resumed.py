"""A LOOP with data-dependent loops -> one resumable PROGRAM with a step limit.

    LOOP 140: WHILE(test, flag): f           left = 4096
                                             FOR i = the saved step .. 140
                                               FOR k = 0 .. left
                                                 test; IF not flag: left -= k, at = nowhere
                                                 BREAK; f
                                               ENDFOR
                                               BREAK if at is not nowhere
                                             ENDFOR

A kernel can't be interrupted, so it must end soon, whatever the data are; when run again, it
resumes. A word of memory, ``at``, holds the number of the loop to resume at, or 0 during normal
execution. While it is not 0, commands are skipped until that loop is reached, both when leaving
and when resuming.

    state    word 0: whether there is more to do; ``at``; steps left; then for each counted loop
             its current step, and for each branch with such loops inside, the branch taken
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fnx.core import build, dtypes, ops, parts
from fnx.core.build_commands import slot
from fnx.core.uop import UOp
from fnx.lower.program.inlined import Writer

_GOES_ON, _AT, _LEFT, _FIRST = range(4)
_WORD = 4
_FOREVER = build.index_const(1 << 62)
NOWHERE = build.const(0, dtypes.int32)


def state_bytes(loop: UOp) -> int:
    """Return the bytes of a LOOP's state. Initially all words but the first are 0."""
    return _WORD * (_FIRST + places(loop))


def places(node: UOp) -> int:
    """Count the data-dependent loops in commands, and the loops and branches around them."""
    found = sum([places(s) for s in node.src if s.op in _HOLDING])
    if node.op is ops.LOOP:
        return found + (node.arg.trips is None or found > 0)
    return found + (node.op is ops.BRANCH and found > 0)


_HOLDING = (ops.COMMANDS, ops.LOOP, ops.BRANCH)


def resumed(loop: UOp, program_of: Callable[[UOp], UOp]) -> UOp:
    """Return the PROGRAM of a LOOP with a step limit; arguments as for ``inlined``."""
    writer = _Resumed(program_of, parts.state_slot(loop))
    writer.set(_LEFT, build.const(loop.arg.portion, dtypes.int32))
    writer.loop(loop)
    goes_on = writer.line(ops.CMPNE, dtypes.bool_, [writer.get(_AT), NOWHERE])
    writer.set(_GOES_ON, writer.line(ops.CAST, dtypes.int32, [goes_on]))
    return UOp(ops.PROGRAM, dtypes.void, tuple(writer.lines))


class _Resumed(Writer):
    """Emits a resumable program.

    State words are loaded at each use, so that no line before a loop is used after it.
    """

    def __init__(self, program_of: Callable[[UOp], UOp], state: int) -> None:
        super().__init__(program_of)
        self.state, self.place_count = state, 0

    # ---- the state

    def _word(self, i: int) -> UOp:
        return self.first(slot("in", self.state, _WORD * i, _WORD), dtypes.int32)

    def get(self, i: int) -> UOp:
        return self.line(ops.LOAD, dtypes.int32, [self._word(i)])

    def set(self, i: int, value: UOp) -> None:
        self.line(ops.STORE, dtypes.void, [self._word(i), value])

    def is_at(self, number: UOp) -> UOp:
        return self.line(ops.CMPEQ, dtypes.bool_, [self.get(_AT), number])

    @contextmanager
    def when(self, condition: UOp) -> Iterator[None]:
        opened = self.line(ops.IF, dtypes.void, [condition], self.number())
        yield
        self.line(ops.ENDIF, dtypes.void, [opened])

    def place_number(self) -> int:
        self.place_count += 1
        return self.place_count

    # ---- commands

    def commands(self, node: UOp) -> None:
        if not places(node):
            super().commands(node)
            return
        for holds, group in itertools.groupby(node.src, lambda c: places(c) > 0):
            if not holds:
                with self.when(self.is_at(NOWHERE)):
                    for command in group:
                        self.command(command)
            else:
                for command in group:
                    with self.when(self._leads_to(command)):
                        self.command(command)

    def _leads_to(self, node: UOp) -> UOp:
        """Emit whether to run a command: in normal execution, or if it holds the resume point."""
        first, last = self.place_count + 1, self.place_count + places(node)
        none, at = self.is_at(NOWHERE), self.get(_AT)
        low, high = [build.const(n, dtypes.int32) for n in (first, last)]
        inside = self.line(ops.AND, dtypes.bool_, [
            self.line(ops.CMPLE, dtypes.bool_, [low, at]),
            self.line(ops.CMPLE, dtypes.bool_, [at, high])])
        return self.line(ops.OR, dtypes.bool_, [none, inside])

    def branch(self, node: UOp) -> None:
        if not places(node):
            super().branch(node)
            return
        which, *branches = node.src
        word = _FIRST + self.place_number() - 1
        with self.when(self.is_at(NOWHERE)):
            self.set(word, self.choice(which, len(branches)))
        for i, branch in enumerate(branches):
            number = build.const(i, dtypes.int32)
            hit = self.line(ops.CMPEQ, dtypes.bool_, [self.get(word), number])
            with self.when(hit):
                self.commands(branch)

    def loop(self, node: UOp) -> None:
        count = places(node)
        if not count:
            super().loop(node)
        elif count == 1:
            self._innermost(node)
        else:
            self._outer(node)

    def _innermost(self, node: UOp) -> None:
        """Emit a data-dependent loop, for at most the steps that are left."""
        test, flag, body = node.src
        self.set(_AT, build.const(self.place_number(), dtypes.int32))
        left = self.get(_LEFT)
        end = self.line(ops.CAST, dtypes.index, [left])
        opened = self.line(ops.FOR, dtypes.index, [build.index_const(0), end], self.number())
        self.counters.append(opened)
        self.commands(test)
        ended = self.line(ops.NOT, dtypes.bool_, [self.load(flag, dtypes.bool_)])
        with self.when(ended):
            done = self.line(ops.CAST, dtypes.int32, [opened])
            self.set(_LEFT, self.line(ops.SUB, dtypes.int32, [left, done]))
            self.set(_AT, NOWHERE)
        self.line(ops.BREAK, dtypes.void, [opened, ended])
        self.commands(body)
        self.counters.pop()
        self.line(ops.ENDFOR, dtypes.void, [opened])

    def _outer(self, node: UOp) -> None:
        """Emit a loop around others; its own steps count, too."""
        place = self.place_number()
        number, word = build.const(place, dtypes.int32), _FIRST + place - 1
        start, stop = build.index_const(0), _FOREVER
        counts = node.arg.trips is not None
        if counts:
            with self.when(self.is_at(NOWHERE)):
                self.set(word, NOWHERE)
            begun = self.line(ops.MAX, dtypes.int32, [self.get(word), NOWHERE])
            start = self.line(ops.CAST, dtypes.index, [begun])
            stop = build.index_const(node.arg.trips)
        with self.when(self.is_at(number)):
            self.set(_AT, NOWHERE)
        opened = self.line(ops.FOR, dtypes.index, [start, stop], self.number())
        self.counters.append(opened)
        if counts:
            self.set(word, self.line(ops.CAST, dtypes.int32, [opened]))
        else:
            self._test(node, opened)
        self.commands(node.src[-1])
        with self.when(self.is_at(NOWHERE)):
            one = build.const(1, dtypes.int32)
            left = self.line(ops.SUB, dtypes.int32, [self.get(_LEFT), one])
            self.set(_LEFT, left)
            with self.when(self.line(ops.CMPLE, dtypes.bool_, [left, NOWHERE])):
                self.set(_AT, number)
                if counts:
                    after = self.line(ops.ADD, dtypes.index, [opened, build.index_const(1)])
                    self.set(word, self.line(ops.CAST, dtypes.int32, [after]))
        if counts:
            away = self.line(ops.CMPNE, dtypes.bool_, [self.get(_AT), NOWHERE])
            self.line(ops.BREAK, dtypes.void, [opened, away])
        self.counters.pop()
        self.line(ops.ENDFOR, dtypes.void, [opened])

    def _test(self, node: UOp, opened: UOp) -> None:
        """Emit the exit of a loop: its condition is false, or an iteration has suspended.

        In the first iteration, ``at`` may be the resume point instead.
        """
        test, flag, _ = node.src
        with self.when(self.is_at(NOWHERE)):
            self.commands(test)
        none = self.is_at(NOWHERE)
        stopped = self.line(ops.NOT, dtypes.bool_, [self.load(flag, dtypes.bool_)])
        ended = self.line(ops.AND, dtypes.bool_, [none, stopped])
        later = self.line(ops.CMPLT, dtypes.bool_, [build.index_const(0), opened])
        away = self.line(ops.AND, dtypes.bool_, [
            self.line(ops.NOT, dtypes.bool_, [none]), later])
        self.line(ops.BREAK, dtypes.void, [
            opened, self.line(ops.OR, dtypes.bool_, [ended, away])])
