"""Loop kernels: a CMD_LOOP of commands that are cheaper than their launches becomes one kernel.

    before  CMD_LOOP 400: CMD_LOOP 400: cell(arena 0 + 4*i, arena 1600 + 4*j, in 0) -> in 0
    after   KERNEL CMD_LOOP(arena, in 0)     a function with both loops, and the kernel in them

A step of a table algorithm (an edit distance, a sieve, a queue in an array) writes a few elements
of its carry, so its kernels take some nanoseconds, and a launch takes more. The loop, its test and
the kernels in it become lines of one PROGRAM (loops/inline_command_loop.py), in launch order and
on the same
memory: so each reads what earlier ones wrote, and nothing has to be proved again. It runs on one
thread. A cost model decides: the launches saved, against the workers that would share a kernel, and
against a kernel that has to be compiled.

As a kernel can't be interrupted, it must end soon. A loop that is predicted to take long is
strip-mined: a loop of commands around a kernel of limited cycles (strip_mine.py); of a loop with a
condition, a limited number of steps is a kernel, in a loop of commands with the same condition. If
such a loop is nested inside, a limited number of steps of all loops is a strip, and the kernel
resumes where it left off (loops/resumable_loop.py):

    before  CMD_LOOP 400: CMD_LOOP while arena 0: step() -> arena 0
    after   start() -> arena 64;  CMD_LOOP while arena 64: KERNEL CMD_LOOP(arena 0, arena 64)

A double-buffered carry has one buffer inside: the new value is copied over the old one per step.

>>> from fnx.core.ir import build, dtypes
>>> from fnx.core.ir.build_calls import commands, exec_, cmd_loop, slot
>>> place = build.index_into(build.ref(0, dtypes.int32, (1,)), build.index_const(0))
>>> kernel = build.kernel([build.store(place, build.load(place))], "step", ())
>>> step = exec_(kernel, [slot("out", 0, 0, 4)], (), "step")
>>> made = loop_kernels(commands([cmd_loop(commands([step]), 9, "f")]), Target("cpu"), lambda k: k)
>>> [run.src[0].op for run in made.src]
[CMD_LOOP]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fnx.core.ir import accessors, build, build_calls, dtypes, ops
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.support.target import Target
from fnx.lower.analysis.memory import ALIGNMENT
from fnx.lower.analysis.tuning import LAUNCH_CYCLES
from fnx.lower.loops import strip_mine
from fnx.lower.loops.induction_variables import use_loop_counters
from fnx.lower.loops.loop_memory import (
    ApplySchedule,
    advance_loop,
    arena_bytes,
    bind_operands,
    read_first_buffer,
    split_loop,
    use_single_buffers,
)
from fnx.lower.loops.resumable_loop import resume_points, state_bytes
from fnx.lower.loops.scalarize import NotFusable
from fnx.lower.schedule import cost_model

ASSUMED_STEPS = 16            # assumed steps of a loop whose trip count depends on data
MAX_NODES = 1 << 12  # of the kernels inside
MIN_SPEEDUP = 1.1         # required speedup over the launches one by one, as predicted


def loop_kernels(commands: UOp, target: Target, apply_schedule: ApplySchedule) -> UOp:
    """Turn the loops in COMMANDS for which it pays into kernels.

    Args:
        commands: of a whole program.
        target: the machine.
        apply_schedule: applies a schedule to a KERNEL.
    """
    return _rewrite_commands(commands, 0, _LoopCost(target, arena_bytes(commands)), apply_schedule)


def is_candidate(commands: UOp, target: Target) -> bool:
    """Whether a loop of COMMANDS could become a kernel."""
    try:
        return _LoopCost(target).step_cost(commands).is_profitable(commands)
    except NotFusable:
        return False


def _rewrite_commands(node: UOp, depth: int, loop_cost: _LoopCost,
                      apply_schedule: ApplySchedule) -> UOp:
    """Rewrite COMMANDS inside ``depth`` loops."""
    rewritten: list[UOp] = []
    # whether the last loop became a kernel: its carries are in the first buffer
    is_converted = False
    for command in node.src:
        if command.op is ops.CMD_LOOP:
            try:
                rewritten += _lower_loop(command, rewritten, depth, loop_cost, apply_schedule)
                is_converted = True
                continue
            except NotFusable:
                is_converted = False
        if command.op is not ops.EXEC:
            rewritten.append(_rewrite_bodies(command, depth + (command.op is ops.CMD_LOOP),
                                             loop_cost, apply_schedule))
        elif not is_converted:
            rewritten.append(command)
        elif len(set((settled_command := read_first_buffer(command, depth)).src[1:])) > 1 or \
                settled_command is command:
            rewritten.append(settled_command)
    return build_calls.commands(rewritten)


def _rewrite_bodies(node: UOp, depth: int, loop_cost: _LoopCost,
                    apply_schedule: ApplySchedule) -> UOp:
    return node.with_operands(tuple([_rewrite_commands(s, depth, loop_cost, apply_schedule)
                            if s.op is ops.COMMANDS else s
                            for s in node.src]))


# ---- cost ---------------------------------------------------------------------------------------


class _LoopCost:
    """Predicted cycles of commands: launched as they are, and as lines of one kernel.

    Attributes:
        arena: bytes of it that are in use.
        soon: whether data-dependent loops inside of kernels are assumed to end soon.
    """

    def __init__(self, target: Target, arena: int = 0, soon: bool = False) -> None:
        self.target, self.assume_short = target, soon
        self.arena = -(-arena // ALIGNMENT) * ALIGNMENT
        self._known: dict[UOp, tuple[float, float]] = {}
        self._short_loops: _LoopCost | None = None

    def cycles(self, command: UOp) -> tuple[float, float]:
        """Return the cycles of a command, or of COMMANDS: launched, and on the one thread of a
        kernel.

        Raises:
            Unfit: it cannot be part of a kernel.
        """
        cycles = self._known.get(command)
        if cycles is None:
            cycles = self._known[command] = self._of(command)
        return cycles

    def _of(self, node: UOp) -> tuple[float, float]:
        if node.op is ops.EXEC:
            kernel = node.src[0]
            if kernel.op is not ops.KERNEL or any(n.op is ops.MMA for n in toposort([kernel])):
                raise NotFusable("more than a kernel")
            kernel = _limit_steps(kernel) if self.assume_short else kernel
            single_thread = cost_model.single_thread_cycles(kernel, self.target)
            return (LAUNCH_CYCLES
                    + min(single_thread, cost_model.kernel_cycles(kernel, self.target)),
                    single_thread)
        pairs = [self.cycles(s) for s in node.src if s.op not in (ops.SLOT, ops.SWAP)]
        if node.op is ops.BRANCH:
            return max(a for a, _ in pairs) + LAUNCH_CYCLES, max(b for _, b in pairs)
        launched, fused = sum([a for a, _ in pairs]), sum([b for _, b in pairs])
        if node.op is not ops.CMD_LOOP:
            return launched, fused
        trips = 1 if node.arg.trips is None else node.arg.trips  # the trip count is unknown
        return trips * (launched + LAUNCH_CYCLES), trips * fused

    def step_cost(self, body: UOp) -> _LoopCost:
        """Return the cost model for a step: a kernel in a data-dependent loop is a strip of it."""
        if not resume_points(body) or self.assume_short:
            return self
        if self._short_loops is None:
            self._short_loops = _LoopCost(self.target, self.arena, True)
        return self._short_loops

    def worst_case(self, kernels: Iterable[UOp]) -> float:
        """Return the cycles of kernels if data-dependent loops take all of their steps."""
        return sum([cost_model.single_thread_cycles(kernel, self.target) for kernel in kernels])

    def is_profitable(self, *steps: UOp) -> bool:
        """Whether repeated COMMANDS take less time as a kernel."""
        pairs = [self.cycles(step) for step in steps]
        launched, fused = sum([a for a, _ in pairs]), sum([b for _, b in pairs])
        return fused * MIN_SPEEDUP <= launched + LAUNCH_CYCLES


def _limit_steps(kernel: UOp) -> UOp:
    """Return a KERNEL whose data-dependent loops end soon."""
    few = build.index_const(ASSUMED_STEPS)
    counters = [n.src[0] for n in toposort([kernel]) if n.op is ops.LOOP and len(n.src) % 2 == 0]
    return substitute([kernel],
                      {t: t.replace(src=(few,)) for t in counters})[0] if counters else kernel


# ---- one loop -----------------------------------------------------------------------------------


def _lower_loop(node: UOp, before: Sequence[UOp], depth: int, loop_cost: _LoopCost,
                apply_schedule: ApplySchedule
                ) -> list[UOp]:
    """Lower a CMD_LOOP to kernels, given the commands ``before`` it.

    Raises:
        Unfit: it remains a loop of commands.
    """
    _step_cycles(node, loop_cost)
    node = use_single_buffers(node, depth, apply_schedule)
    step = max(1.0, _step_cycles(node, loop_cost))
    *test, body = node.src
    arg = node.arg
    if resume_points(node) > (arg.trips is None):
        return _lower_resumable(node, before, depth, loop_cost, apply_schedule, step)
    if arg.trips is None:
        steps = max(1, min(strip_mine.MAX_STEPS, int(strip_mine.STRIP_CYCLES / step)))
        strip = node.replace(arg=arg.replace(trips=steps))
        run = bind_operands(use_loop_counters(before, strip, depth), depth)
        return [node.with_operands((*test, build_calls.commands([run])))]
    max_trips = int(strip_mine.KERNEL_CYCLES / step)
    if not max_trips:
        raise NotFusable("a step that takes long")
    if arg.trips <= max_trips:
        return [bind_operands(use_loop_counters(before, node, depth), depth)]
    strips, remainder = divmod(arg.trips, max_trips)
    inner = node.replace(src=(split_loop(body, depth, max_trips),),
                         arg=arg.replace(trips=max_trips))
    inner = use_loop_counters(before, inner, depth + 1)
    outer = build_calls.commands([bind_operands(inner, depth + 1)])
    commands_out = [node.replace(src=(outer,), arg=arg.replace(trips=strips))]
    if remainder:
        last = node.replace(src=(advance_loop(body, depth, strips * max_trips),),
                            arg=arg.replace(trips=remainder))
        commands_out.append(bind_operands(use_loop_counters(before, last, depth), depth))
    return commands_out


def _lower_resumable(node: UOp, before: Sequence[UOp], depth: int, loop_cost: _LoopCost,
                     apply_schedule: ApplySchedule, step: float) -> list[UOp]:
    """Lower a CMD_LOOP with data-dependent loops inside to a kernel that is run until all have
    ended."""
    arg = node.arg
    if step > strip_mine.KERNEL_CYCLES or (arg.trips or 0) > dtypes.int32.limits[1] or \
            any(resume_points(n.src[0])
                for n in toposort([node]) if n.op is ops.CMD_LOOP and len(n.src) > 1):
        raise NotFusable("a step that takes long, or a condition with a loop that a condition ends")
    longest = 1 + loop_cost.worst_case(run.src[0] for run in accessors.all_execs(node))
    steps = max(1,
                min(strip_mine.MAX_STEPS, int(strip_mine.STRIP_CYCLES / step),
                    int(strip_mine.MAX_CYCLES / longest)))
    strip = node.replace(arg=arg.replace(strip_length=steps))
    run = bind_operands(use_loop_counters(before, strip, depth), depth)
    state = build_calls.slot("arena", 0, loop_cost.arena, state_bytes(node))
    state_words = state_bytes(node) // dtypes.int32.itemsize
    first = build.range_(state_words, 0)
    ref = build.ref(0, dtypes.int32, first.src)
    is_running = build.elementwise(ops.CMPLT, first, build.index_const(1))
    value = build.cast(is_running, dtypes.int32)
    kernel = apply_schedule(build.kernel([build.store(build.index_into(ref, first), value)],
                                         "start", (0,)))
    flag = build_calls.slot("arena", 0, loop_cost.arena, 1)
    loop_body = build_calls.commands([run.with_operands((*run.src, state))])
    return [build_calls.exec_(kernel, [state], (), "start", arg.locs),
            build_calls.cmd_while(build_calls.commands([]), flag, loop_body, arg.name,
                                  arg.locs)]


def _step_cycles(node: UOp, loop_cost: _LoopCost) -> float:
    """Return the cycles of a step; raise Unfit if it is too large or a kernel does not pay."""
    bodies = [s for s in node.src if s.op is ops.COMMANDS]
    kernels = {run.src[0] for body in bodies for run in accessors.all_execs(body)}
    if sum([len(toposort([kernel])) for kernel in kernels]) > MAX_NODES:
        raise NotFusable(f"kernels of more than {MAX_NODES} nodes")
    for body in bodies:
        loop_cost = loop_cost.step_cost(body)
    if not loop_cost.is_profitable(*bodies):
        raise NotFusable("kernels that take longer than their launches")
    return sum([loop_cost.cycles(body)[1] for body in bodies])
