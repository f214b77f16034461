"""Guarded commands: loops and branches that data decide, on devices that launch without a host.

    before  CMD_LOOP while flag: test(a|b) -> flag; body(a|b) -> b|a
            copy(a|b) -> a
    after   start() -> even, odd
            CMD_LOOP while odd: test(a) -> even if odd; body(a) -> b if even and odd
                                test(b) -> odd if odd;  body(b) -> a if even and odd
            copy(b) -> a if even

    before  BRANCH i: f() | g()
    after   f() if i <= 0; g() if i >= 1

A guarded kernel stores nothing unless words in device memory allow it. So iterations after the
condition was false change nothing: a device queues many, and the host reads the condition once
(``CmdLoop.may_overrun``). A body stands there for an even and an odd step, so no address depends on
the number of steps; if the odd test ends the loop, ``even`` still holds.

``even`` and ``odd`` are an int32 each: 1 while the loop runs, else 0, plus 256 for each iteration.

What is no kernel (a callback, a sort), a loop with a condition inside, and what has too many
launches or buffers, stays as it is: the host reads the condition each time.

>>> place = build.index_into(build.ref(0, dtypes.int32, (1,)), build.index_const(0))
>>> kernel = build.kernel([build.store(place, build.load(place))], "step", ())
>>> step = build_calls.exec_(kernel, [build_calls.slot("out", 0, 0, 4)], (), "step")
>>> bodies = [build_calls.commands([step]), build_calls.commands([])]
>>> branch = build_calls.branch(build_calls.slot("in", 0, 0, 4), bodies, "f")
>>> made = guarded_commands(build_calls.commands([branch]), Target("gpu"), lambda k: k)
>>> [(run.op, len(run.src[0].src[0].src)) for run in made.src]
[(EXEC, 3)]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from fnx.core.ir import accessors, build, build_calls, dtypes, kernel_args, ops
from fnx.core.ir.uop import UOp, copy_locs, rebuild
from fnx.core.support.record import Record
from fnx.core.support.target import Target
from fnx.lower.analysis.memory import ALIGNMENT
from fnx.lower.loops.loop_memory import ApplySchedule, arena_bytes
from fnx.lower.loops.scalarize import NotFusable

MAX_LAUNCHES = 256  # of a guarded step, or of all branches: a read takes no longer than these
_WORD = dtypes.int32.itemsize


class _Guard(Record):
    """A word of memory, and when its value lets a kernel store."""

    memory: UOp
    allows: Callable[[UOp], UOp]


def guarded_commands(commands: UOp, target: Target, apply_schedule: ApplySchedule) -> UOp:
    """Guard the loops and branches in COMMANDS that consist of kernels.

    Args:
        commands: of a whole program.
        target: the machine.
        apply_schedule: applies a schedule to a KERNEL.
    """
    state = -(-arena_bytes(commands) // ALIGNMENT) * ALIGNMENT
    return _Rewriter(target, apply_schedule, state).commands(commands, 0)


class _Rewriter:
    """Rewrites the commands of a program. ``even`` and ``odd``: the words of the current loop."""

    def __init__(self, target: Target, apply_schedule: ApplySchedule, state: int) -> None:
        self.target, self.apply_schedule = target, apply_schedule
        self.even, self.odd = [build_calls.slot("arena", 0, state + i * _WORD, _WORD)
                               for i in range(2)]

    def commands(self, node: UOp, depth: int) -> UOp:
        """Rewrite COMMANDS inside ``depth`` loops."""
        out: list[UOp] = []
        is_guarded = False  # the last loop
        for command in node.src:
            try:
                if command.op is ops.EXEC:
                    out += self._copy_after_loop(command, depth) if is_guarded else [command]
                    continue
                is_loop = command.op is ops.CMD_LOOP
                out += self._loop(command, depth) if is_loop else self._guarded([command], ())
                is_guarded = is_loop
            except NotFusable:
                is_guarded = False
                out.append(self._rewrite_bodies(command, depth + (command.op is ops.CMD_LOOP)))
        return build_calls.commands(out)

    def _rewrite_bodies(self, node: UOp, depth: int) -> UOp:
        return node.with_operands(tuple([self.commands(s, depth) if s.op is ops.COMMANDS else s
                                         for s in node.src]))

    def _copy_after_loop(self, node: UOp, depth: int) -> list[UOp]:
        """Return the copy of a carry that an odd number of steps leaves in its second buffer."""
        return [node] if (moved := _resolved(node, depth, 1)) is node else \
            self._guarded([moved], (_Guard(self.even, _runs),))

    def _loop(self, node: UOp, depth: int) -> list[UOp]:
        """Guard the steps of a loop with a condition.

        Raises:
            NotFusable: it has none, or what it consists of cannot be guarded.
        """
        if node.arg.trips is not None:
            raise NotFusable("a loop of known length")
        test, flag, body = node.src
        guards = _Guard(self.even, _runs), _Guard(self.odd, _runs)
        step = [command for parity, word in enumerate((self.even, self.odd)) for command in (
            *self._test(_resolved(test, depth, parity), flag, word),
            *self._guarded(_resolved(body, depth, parity).src, guards))]
        loop = kernel_args.CmdLoop(node.arg.name, None, node.arg.locs, may_overrun=True)
        return [self._start(node), UOp(ops.CMD_LOOP, dtypes.void, (
            build_calls.commands([]), self.odd, build_calls.commands(step)), loop)]

    def _start(self, loop: UOp) -> UOp:
        """Return the EXEC that starts a loop."""
        r = build.range_(2, 0)
        store = build.store(build.index_into(build.ref(0, dtypes.int32, r.src), r),
                            build.const(1, dtypes.int32))
        state = build_calls.slot("arena", 0, self.even.arg.offset, 2 * _WORD)
        return build_calls.exec_(self.apply_schedule(build.kernel([store], "start", (0,))),
                                 [state], (), "start", loop.arg.locs)

    def _test(self, test: UOp, flag: UOp, word: UOp) -> list[UOp]:
        """Guard a test, and let it update a word of the state instead of its flag."""
        out: list[UOp] = []
        guard = _Guard(self.odd, _runs)
        is_flag = [command.op is ops.EXEC and flag in command.src[1:] and
                   _slots(command).index(flag) in accessors.written_slots(command.src[0])
                   for command in test.src]
        if sum(is_flag) != 1:
            raise NotFusable("a condition that no kernel computes")
        for command, writes_flag in zip(test.src, is_flag):
            out += self._guarded([self._update(command, flag, word) if writes_flag else command],
                                 (guard,))
        return out

    def _update(self, command: UOp, flag: UOp, word: UOp) -> UOp:
        """Return the EXEC of a kernel that updates a word of the state, instead of the flag."""
        kernel, slots = command.src[0], _slots(command)
        number, other = slots.index(flag), self.even if word is self.odd else self.odd
        if len(kernel.src) != 1 or kernel.src[0].arg is not None:
            raise NotFusable("a condition with other results")
        store, = kernel.src
        target, before = (build.index_into(build.ref(i, dtypes.int32, (1,)), build.index_const(0))
                          for i in (number, len(slots)))
        goes_on = build.and_(accessors.value(store), _runs(build.load(before)))
        old = build.load(target)
        ended = build.elementwise(ops.AND, old, build.const(-2, dtypes.int32))
        iterated = build.add(ended, build.const(257, dtypes.int32))
        update = build.store(target, build.where(goes_on, iterated, ended),
                             accessors.validity(store))
        return _with_kernel(command, kernel.with_operands((copy_locs(update, store),)), [
            word if s is flag else s for s in slots] + [other])

    def _guarded(self, commands: Sequence[UOp], guards: Sequence[_Guard]) -> list[UOp]:
        """Guard commands; a BRANCH becomes the commands of all its branches.

        Raises:
            NotFusable: one of them cannot be guarded.
        """
        out: list[UOp] = []
        for command in commands:
            if command.op is ops.EXEC:
                out.append(self._guarded_exec(command, guards))
            elif command.op is ops.BRANCH:
                which, *branches = command.src
                last = len(branches) - 1
                for i, branch in enumerate(branches):
                    guard = (_Guard(which, _selects(i, last)),) if last else ()
                    out += self._guarded(branch.src, (*guards, *guard))
            elif command.arg.trips is None:
                raise NotFusable("a loop with a condition inside")
            else:
                body = self._guarded(command.src[0].src, guards)
                out.append(command.with_operands((build_calls.commands(body),)))
        if len(accessors.all_execs(build_calls.commands(out))) > MAX_LAUNCHES:
            raise NotFusable("many launches")
        return out

    def _guarded_exec(self, command: UOp, guards: Sequence[_Guard]) -> UOp:
        kernel, slots = command.src[0], _slots(command)
        if kernel.op is not ops.KERNEL:
            raise NotFusable("more than kernels")
        words = [build.load(build.index_into(build.ref(len(slots) + i, dtypes.int32, (1,)),
                                             build.index_const(0))) for i in range(len(guards))]
        slots += [guard.memory for guard in guards]
        if self.target.max_buffers and accessors.max_bindings(slots) > self.target.max_buffers:
            raise NotFusable("too many buffers")
        allowed = [guard.allows(word) for guard, word in zip(guards, words)]
        stores = [copy_locs(build.store(store.src[0], store.src[1], reduce(
            build.and_, [*store.src[2:], *allowed]), store.arg), store) for store in kernel.src]
        return _with_kernel(command, kernel.with_operands(tuple(stores)), slots)


def _runs(word: UOp) -> UOp:
    """Whether a word of the state lets a kernel run."""
    one = build.const(1, dtypes.int32)
    return build.elementwise(ops.CMPEQ, build.elementwise(ops.AND, word, one), one)


def _selects(i: int, last: int) -> Callable[[UOp], UOp]:
    """Whether a number, clamped to 0 .. ``last``, selects branch ``i``."""
    number = build.const(i, dtypes.int32)
    compare = ops.CMPEQ if 0 < i < last else ops.CMPLE
    return lambda word: build.elementwise(compare, *((number, word) if i else (word, number)))


def _slots(command: UOp) -> list[UOp]:
    return [s for s in command.src[1:] if s.op is not ops.CONST]


def _with_kernel(command: UOp, kernel: UOp, slots: Sequence[UOp]) -> UOp:
    """Return an EXEC with another kernel and other memory."""
    return command.with_operands((kernel, *slots, *[
        s for s in command.src[1:] if s.op is ops.CONST]))


def _resolved(node: UOp, depth: int, parity: int) -> UOp:
    """Resolve the SWAPs of a loop in commands, for its even or its odd iterations."""
    kernels = {run.src[0]: run.src[0] for run in accessors.all_execs(build_calls.commands([node]))}
    return rebuild([node], lambda n, src: src[parity] if n.op is ops.SWAP and n.arg == depth
                   else None, kernels)[0]
