"""Loop kernels: a LOOP of commands that are cheaper than their launches becomes one kernel.

    before  LOOP 400: LOOP 400: cell(arena 0 + 4*i, arena 1600 + 4*j, in 0) -> in 0
    after   KERNEL LOOP(arena, in 0)         a function with both loops, and the kernel in them

A step of a table algorithm (an edit distance, a sieve, a queue in an array) writes a few elements
of its carry, so its kernels take some nanoseconds, and a launch takes more. The loop, its test and
the kernels in it become lines of one PROGRAM (program/inlined.py), in launch order and on the same
memory: so each reads what earlier ones wrote, and nothing has to be proved again. It runs on one
thread. A cost model decides: the launches saved, against the workers that would share a kernel, and
against a kernel that has to be compiled.

As a kernel can't be interrupted, it must end soon. A loop that is predicted to take long is
strip-mined: a loop of commands around a kernel of limited cycles (portions.py); of a loop with a
condition, a limited number of steps is a kernel, in a loop of commands with the same condition. If
such a loop is nested inside, a limited number of steps of all loops is a strip, and the kernel
resumes where it left off (program/resumed.py):

    before  LOOP 400: LOOP while arena 0: step() -> arena 0
    after   start() -> arena 64;  LOOP while arena 64: KERNEL LOOP(arena 0, arena 64)

A double-buffered carry has one buffer inside: the new value is copied over the old one per step.

>>> from fnx.core import build, dtypes
>>> from fnx.core.build_commands import commands, exec_, loop, slot
>>> place = build.at(build.ref(0, dtypes.int32, (1,)), build.index_const(0))
>>> kernel = build.kernel([build.store(place, build.load(place))], "step", ())
>>> step = exec_(kernel, [slot("out", 0, 0, 4)], (), "step")
>>> made = loop_kernels(commands([loop(commands([step]), 9, "f")]), Target("cpu"), lambda k: k)
>>> [run.src[0].op for run in made.src]
[LOOP]
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fnx.core import build, build_commands, dtypes, ops, parts
from fnx.core.target import Target
from fnx.core.uop import UOp, substitute, toposort
from fnx.lower.loops import portions
from fnx.lower.loops.cells import Unfit
from fnx.lower.loops.loop_memory import (
    TileKernel,
    arena_bytes,
    in_two,
    moved,
    on_operands,
    settled,
    with_one,
)
from fnx.lower.loops.numbers import with_numbers
from fnx.lower.memory import ALIGNMENT
from fnx.lower.program.resumed import places, state_bytes
from fnx.lower.schedule import cost

FEW = 16            # assumed steps of a loop whose trip count depends on data
MAX_NODES = 1 << 12  # of the kernels inside
WORTH = 1.1         # required speedup over the launches one by one, as predicted


def loop_kernels(commands: UOp, target: Target, tiled: TileKernel) -> UOp:
    """Turn the loops in COMMANDS for which it pays into kernels.

    Args:
        commands: of a whole program.
        target: the machine.
        tiled: applies a schedule to a KERNEL.
    """
    return _within(commands, 0, _Price(target, arena_bytes(commands)), tiled)


def is_candidate(commands: UOp, target: Target) -> bool:
    """Whether a loop of COMMANDS could become a kernel."""
    try:
        return _Price(target).within(commands).is_worth(commands)
    except Unfit:
        return False


def _within(node: UOp, depth: int, price: _Price, tiled: TileKernel) -> UOp:
    """Rewrite COMMANDS inside ``depth`` loops."""
    made: list[UOp] = []
    ended = False  # whether the last loop became a kernel: its carries are in the first buffer
    for command in node.src:
        if command.op is ops.LOOP:
            try:
                made += _kernels(command, made, depth, price, tiled)
                ended = True
                continue
            except Unfit:
                ended = False
        if command.op is not ops.EXEC:
            made.append(_inside(command, depth + (command.op is ops.LOOP), price, tiled))
        elif not ended:
            made.append(command)
        elif len(set((after := settled(command, depth)).src[1:])) > 1 or after is command:
            made.append(after)
    return build_commands.commands(made)


def _inside(node: UOp, depth: int, price: _Price, tiled: TileKernel) -> UOp:
    return node.over(tuple([_within(s, depth, price, tiled) if s.op is ops.COMMANDS else s
                            for s in node.src]))


# ---- cost ---------------------------------------------------------------------------------------


class _Price:
    """Predicted cycles of commands: launched as they are, and as lines of one kernel.

    Attributes:
        arena: bytes of it that are in use.
        soon: whether data-dependent loops inside of kernels are assumed to end soon.
    """

    def __init__(self, target: Target, arena: int = 0, soon: bool = False) -> None:
        self.target, self.soon = target, soon
        self.arena = -(-arena // ALIGNMENT) * ALIGNMENT
        self._known: dict[UOp, tuple[float, float]] = {}
        self._soon: _Price | None = None

    def of(self, command: UOp) -> tuple[float, float]:
        """Return the cycles of a command, or of COMMANDS: launched, and on the one thread of a
        kernel.

        Raises:
            Unfit: it cannot be part of a kernel.
        """
        found = self._known.get(command)
        if found is None:
            found = self._known[command] = self._of(command)
        return found

    def _of(self, node: UOp) -> tuple[float, float]:
        if node.op is ops.EXEC:
            kernel = node.src[0]
            if kernel.op is not ops.KERNEL or any(n.op is ops.MMA for n in toposort([kernel])):
                raise Unfit("more than a kernel")
            kernel = _of_few_steps(kernel) if self.soon else kernel
            alone = cost.alone(kernel, self.target)
            return cost.LAUNCH + min(alone, cost.cycles(kernel, self.target)), alone
        pairs = [self.of(s) for s in node.src if s.op not in (ops.SLOT, ops.SWAP)]
        if node.op is ops.BRANCH:
            return max(a for a, _ in pairs) + cost.LAUNCH, max(b for _, b in pairs)
        launched, fused = sum([a for a, _ in pairs]), sum([b for _, b in pairs])
        if node.op is not ops.LOOP:
            return launched, fused
        trips = 1 if node.arg.trips is None else node.arg.trips  # the trip count is unknown
        return trips * (launched + cost.LAUNCH), trips * fused

    def within(self, body: UOp) -> _Price:
        """Return the cost model for a step: a kernel in a data-dependent loop is a strip of it."""
        if not places(body) or self.soon:
            return self
        if self._soon is None:
            self._soon = _Price(self.target, self.arena, True)
        return self._soon

    def longest(self, kernels: Iterable[UOp]) -> float:
        """Return the cycles of kernels if data-dependent loops take all of their steps."""
        return sum([cost.alone(kernel, self.target) for kernel in kernels])

    def is_worth(self, *steps: UOp) -> bool:
        """Whether repeated COMMANDS take less time as a kernel."""
        pairs = [self.of(step) for step in steps]
        launched, fused = sum([a for a, _ in pairs]), sum([b for _, b in pairs])
        return fused * WORTH <= launched + cost.LAUNCH


def _of_few_steps(kernel: UOp) -> UOp:
    """Return a KERNEL whose data-dependent loops end soon."""
    few = build.index_const(FEW)
    found = [n.src[0] for n in toposort([kernel]) if n.op is ops.ITER and len(n.src) % 2 == 0]
    return substitute([kernel], {t: t.replace(src=(few,)) for t in found})[0] if found else kernel


# ---- one loop -----------------------------------------------------------------------------------


def _kernels(node: UOp, before: Sequence[UOp], depth: int, price: _Price, tiled: TileKernel
             ) -> list[UOp]:
    """Lower a LOOP to kernels, given the commands ``before`` it.

    Raises:
        Unfit: it remains a loop of commands.
    """
    _check(node, price)
    node = with_one(node, depth, tiled)
    step = max(1.0, _check(node, price))
    *test, body = node.src
    arg = node.arg
    if places(node) > (arg.trips is None):
        return _resumed(node, before, depth, price, tiled, step)
    if arg.trips is None:
        steps = max(1, min(portions.MOST, int(portions.FIRST / step)))
        some = node.replace(arg=arg.replace(trips=steps))
        run = on_operands(with_numbers(before, some, depth), depth)
        return [node.over((*test, build_commands.commands([run])))]
    most = int(portions.WHOLE / step)
    if not most:
        raise Unfit("a step that takes long")
    if arg.trips <= most:
        return [on_operands(with_numbers(before, node, depth), depth)]
    whole, rest = divmod(arg.trips, most)
    inner = node.replace(src=(in_two(body, depth, most),), arg=arg.replace(trips=most))
    inner = with_numbers(before, inner, depth + 1)
    outer = build_commands.commands([on_operands(inner, depth + 1)])
    made = [node.replace(src=(outer,), arg=arg.replace(trips=whole))]
    if rest:
        last = node.replace(src=(moved(body, depth, whole * most),), arg=arg.replace(trips=rest))
        made.append(on_operands(with_numbers(before, last, depth), depth))
    return made


def _resumed(node: UOp, before: Sequence[UOp], depth: int, price: _Price, tiled: TileKernel,
             step: float) -> list[UOp]:
    """Lower a LOOP with data-dependent loops inside to a kernel that is run until all have
    ended."""
    arg = node.arg
    if step > portions.WHOLE or (arg.trips or 0) > dtypes.int32.limits[1] or \
            any(places(n.src[0]) for n in toposort([node]) if n.op is ops.LOOP and len(n.src) > 1):
        raise Unfit("a step that takes long, or a condition with a loop that a condition ends")
    longest = 1 + price.longest(run.src[0] for run in parts.executions(node))
    steps = max(1, min(portions.MOST, int(portions.FIRST / step), int(portions.LONGEST / longest)))
    portion = node.replace(arg=arg.replace(portion=steps))
    run = on_operands(with_numbers(before, portion, depth), depth)
    state = build_commands.slot("arena", 0, price.arena, state_bytes(node))
    words = state_bytes(node) // dtypes.int32.itemsize
    first = build.range_(words, 0)
    ref = build.ref(0, dtypes.int32, first.src)
    more = build.elementwise(ops.CMPLT, first, build.index_const(1))
    value = build.cast(more, dtypes.int32)
    kernel = tiled(build.kernel([build.store(build.at(ref, first), value)], "start", (0,)))
    flag = build_commands.slot("arena", 0, price.arena, 1)
    again = build_commands.commands([run.over((*run.src, state))])
    return [build_commands.exec_(kernel, [state], (), "start", arg.sites),
            build_commands.loop_while(build_commands.commands([]), flag, again, arg.name,
                                      arg.sites)]


def _check(node: UOp, price: _Price) -> float:
    """Return the cycles of a step; raise Unfit if it is too large or a kernel does not pay."""
    bodies = [s for s in node.src if s.op is ops.COMMANDS]
    kernels = {run.src[0] for body in bodies for run in parts.executions(body)}
    if sum([len(toposort([kernel])) for kernel in kernels]) > MAX_NODES:
        raise Unfit(f"kernels of more than {MAX_NODES} nodes")
    for body in bodies:
        price = price.within(body)
    if not price.is_worth(*bodies):
        raise Unfit("kernels that take longer than their launches")
    return sum([price.of(body)[1] for body in bodies])
