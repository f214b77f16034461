"""A CMD_LOOP with data-dependent loops -> one resumable PROGRAM with a step limit.

    CMD_LOOP 140: WHILE(test, flag): f       left = 4096
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

from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.build_calls import slot
from fnx.core.ir.uop import UOp
from fnx.lower.loops.inline_command_loop import CommandEmitter

_CONTINUES, _AT, _STEPS_LEFT, _FIRST_LOOP_WORD = range(4)
_WORD = 4
_UNBOUNDED = build.index_const(1 << 62)
RUNNING = build.const(0, dtypes.int32)


def state_bytes(loop: UOp) -> int:
    """Return the bytes of a CMD_LOOP's state. Initially all words but the first are 0."""
    return _WORD * (_FIRST_LOOP_WORD + resume_points(loop))


def resume_points(node: UOp) -> int:
    """Count the data-dependent loops in commands, and the loops and branches around them."""
    count = sum([resume_points(s) for s in node.src if s.op in _CONTAINERS])
    if node.op is ops.CMD_LOOP:
        return count + (node.arg.trips is None or count > 0)
    return count + (node.op is ops.BRANCH and count > 0)


_CONTAINERS = (ops.COMMANDS, ops.CMD_LOOP, ops.BRANCH)


def resumable_loop(loop: UOp, program_of: Callable[[UOp], UOp]) -> UOp:
    """Return the PROGRAM of a CMD_LOOP with a step limit; arguments as for
    ``inline_command_loop``."""
    emitter = _ResumableEmitter(program_of, accessors.resume_slot(loop))
    emitter.set(_STEPS_LEFT, build.const(loop.arg.strip_length, dtypes.int32))
    emitter.loop(loop)
    continues = emitter.line(ops.CMPNE, dtypes.bool_, [emitter.get(_AT), RUNNING])
    emitter.set(_CONTINUES, emitter.line(ops.CAST, dtypes.int32, [continues]))
    return UOp(ops.PROGRAM, dtypes.void, tuple(emitter.lines))


class _ResumableEmitter(CommandEmitter):
    """Emits a resumable program.

    State words are loaded at each use, so that no line before a loop is used after it.
    """

    def __init__(self, program_of: Callable[[UOp], UOp], state: int) -> None:
        super().__init__(program_of)
        self.state, self.resume_point_count = state, 0

    # ---- the state

    def _word(self, i: int) -> UOp:
        return self.first(slot("in", self.state, _WORD * i, _WORD), dtypes.int32)

    def get(self, i: int) -> UOp:
        return self.line(ops.LOAD, dtypes.int32, [self._word(i)])

    def set(self, i: int, value: UOp) -> None:
        self.line(ops.STORE, dtypes.void, [self._word(i), value])

    def is_resume_point(self, number: UOp) -> UOp:
        return self.line(ops.CMPEQ, dtypes.bool_, [self.get(_AT), number])

    @contextmanager
    def when(self, condition: UOp) -> Iterator[None]:
        if_line = self.line(ops.IF, dtypes.void, [condition], self.number())
        yield
        self.line(ops.ENDIF, dtypes.void, [if_line])

    def next_resume_point(self) -> int:
        self.resume_point_count += 1
        return self.resume_point_count

    # ---- commands

    def commands(self, node: UOp) -> None:
        if not resume_points(node):
            super().commands(node)
            return
        for has_resume_point, group in itertools.groupby(node.src, lambda c: resume_points(c) > 0):
            if not has_resume_point:
                with self.when(self.is_resume_point(RUNNING)):
                    for command in group:
                        self.command(command)
            else:
                for command in group:
                    with self.when(self._must_run(command)):
                        self.command(command)

    def _must_run(self, node: UOp) -> UOp:
        """Emit whether to run a command: in normal execution, or if it holds the resume point."""
        first, last = self.resume_point_count + 1, self.resume_point_count + resume_points(node)
        is_running, at = self.is_resume_point(RUNNING), self.get(_AT)
        low, high = [build.const(n, dtypes.int32) for n in (first, last)]
        contains_point = self.line(ops.AND, dtypes.bool_, [
            self.line(ops.CMPLE, dtypes.bool_, [low, at]),
            self.line(ops.CMPLE, dtypes.bool_, [at, high])])
        return self.line(ops.OR, dtypes.bool_, [is_running, contains_point])

    def branch(self, node: UOp) -> None:
        if not resume_points(node):
            super().branch(node)
            return
        index_slot, *branches = node.src
        word = _FIRST_LOOP_WORD + self.next_resume_point() - 1
        with self.when(self.is_resume_point(RUNNING)):
            self.set(word, self.choice(index_slot, len(branches)))
        for i, branch in enumerate(branches):
            number = build.const(i, dtypes.int32)
            is_taken = self.line(ops.CMPEQ, dtypes.bool_, [self.get(word), number])
            with self.when(is_taken):
                self.commands(branch)

    def loop(self, node: UOp) -> None:
        count = resume_points(node)
        if not count:
            super().loop(node)
        elif count == 1:
            self._innermost(node)
        else:
            self._outer(node)

    def _innermost(self, node: UOp) -> None:
        """Emit a data-dependent loop, for at most the steps that are left."""
        test, flag, body = node.src
        self.set(_AT, build.const(self.next_resume_point(), dtypes.int32))
        steps_left = self.get(_STEPS_LEFT)
        end = self.line(ops.CAST, dtypes.index, [steps_left])
        for_line = self.line(ops.FOR, dtypes.index, [build.index_const(0), end], self.number())
        self.counters.append(for_line)
        self.commands(test)
        is_done = self.line(ops.NOT, dtypes.bool_, [self.load(flag, dtypes.bool_)])
        with self.when(is_done):
            done = self.line(ops.CAST, dtypes.int32, [for_line])
            self.set(_STEPS_LEFT, self.line(ops.SUB, dtypes.int32, [steps_left, done]))
            self.set(_AT, RUNNING)
        self.line(ops.BREAK, dtypes.void, [for_line, is_done])
        self.commands(body)
        self.counters.pop()
        self.line(ops.ENDFOR, dtypes.void, [for_line])

    def _outer(self, node: UOp) -> None:
        """Emit a loop around others; its own steps count, too."""
        resume_point = self.next_resume_point()
        number, word = build.const(resume_point, dtypes.int32), _FIRST_LOOP_WORD + resume_point - 1
        start, stop = build.index_const(0), _UNBOUNDED
        is_counted = node.arg.trips is not None
        if is_counted:
            with self.when(self.is_resume_point(RUNNING)):
                self.set(word, RUNNING)
            saved_step = self.line(ops.MAX, dtypes.int32, [self.get(word), RUNNING])
            start = self.line(ops.CAST, dtypes.index, [saved_step])
            stop = build.index_const(node.arg.trips)
        with self.when(self.is_resume_point(number)):
            self.set(_AT, RUNNING)
        for_line = self.line(ops.FOR, dtypes.index, [start, stop], self.number())
        self.counters.append(for_line)
        if is_counted:
            self.set(word, self.line(ops.CAST, dtypes.int32, [for_line]))
        else:
            self._emit_exit(node, for_line)
        self.commands(node.src[-1])
        with self.when(self.is_resume_point(RUNNING)):
            one = build.const(1, dtypes.int32)
            steps_left = self.line(ops.SUB, dtypes.int32, [self.get(_STEPS_LEFT), one])
            self.set(_STEPS_LEFT, steps_left)
            with self.when(self.line(ops.CMPLE, dtypes.bool_, [steps_left, RUNNING])):
                self.set(_AT, number)
                if is_counted:
                    next_step = self.line(ops.ADD, dtypes.index, [for_line, build.index_const(1)])
                    self.set(word, self.line(ops.CAST, dtypes.int32, [next_step]))
        if is_counted:
            is_suspended = self.line(ops.CMPNE, dtypes.bool_, [self.get(_AT), RUNNING])
            self.line(ops.BREAK, dtypes.void, [for_line, is_suspended])
        self.counters.pop()
        self.line(ops.ENDFOR, dtypes.void, [for_line])

    def _emit_exit(self, node: UOp, for_line: UOp) -> None:
        """Emit the exit of a loop: its condition is false, or an iteration has suspended.

        In the first iteration, ``at`` may be the resume point instead.
        """
        test, flag, _ = node.src
        with self.when(self.is_resume_point(RUNNING)):
            self.commands(test)
        is_running = self.is_resume_point(RUNNING)
        is_false = self.line(ops.NOT, dtypes.bool_, [self.load(flag, dtypes.bool_)])
        is_done = self.line(ops.AND, dtypes.bool_, [is_running, is_false])
        is_not_first = self.line(ops.CMPLT, dtypes.bool_, [build.index_const(0), for_line])
        is_suspended = self.line(ops.AND, dtypes.bool_, [
            self.line(ops.NOT, dtypes.bool_, [is_running]), is_not_first])
        self.line(ops.BREAK, dtypes.void, [
            for_line, self.line(ops.OR, dtypes.bool_, [is_done, is_suspended])])
