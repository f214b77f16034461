"""Free early: a launch that frees more memory than it takes runs as soon as its operands are there.

    before  d2 = f(d1);  d3 = f(d2);  w1 = g(a1, d1);  w2 = g(a2, d2)
    after   d2 = f(d1);  w1 = g(a1, d1);  d3 = f(d2);  w2 = g(a2, d2)      a1 is freed before d3

So activations and their derivatives are not kept until the gradients of all weights are computed.
In reverse, a launch that takes more memory than it frees runs right before its first reader:

    before  k = f(x, z);  a = solve(f(x, x));  y = k @ a
    after   a = solve(f(x, x));  k = f(x, z);  y = k @ a                k is not kept during solve

Where branches of a program are independent, each is completed before the next begins if always that
launch runs, of those that may, which takes the least memory. The caller compares what is best.

Results take no memory: theirs is there from the beginning. All else stays in its order, that of
fusion/group.py, in which groups are early that write only results.

>>> from fnx.core.ir import build, dtypes
>>> a, b, c, s = [build.param(i, dtypes.float32, (2,)) for i in range(4)]
>>> _order([{a}, {a, b}, {b, c}, {a, s}], [{a}, {b}, {c}, {s}], [(), {0}, {1}, {0}],
...        {a: 2048, b: 1024})
[0, 1, 3, 2]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.lower.analysis.memory import size_of
from fnx.lower.analysis.tuning import MAX_MOVED_TOGETHER
from fnx.lower.memory.buffer_sharing import AdjacentLaunches, LaunchT, adjacent_launches
from fnx.lower.memory.dependences import dependences


def free_early(launches: Sequence[LaunchT], outs: Sequence[UOp],
               carried: Sequence[tuple[int, int]]) -> Sequence[LaunchT]:
    """Return launches in an order that needs less memory; the same ones if they are in it.

    Args:
        launches: in an order in which they may run.
        outs: the results.
        carried: (result number, parameter slot): what reads the parameter comes before the result
            is written, so that this may take its memory.
    """
    return _reordered(launches, outs, carried, least_first=False)


def take_least(launches: Sequence[LaunchT], outs: Sequence[UOp],
               carried: Sequence[tuple[int, int]]) -> Sequence[LaunchT]:
    """The same, where always the launch runs next that takes the least memory, or frees the
    most."""
    return _reordered(launches, outs, carried, least_first=True)


def _reordered(launches: Sequence[LaunchT], outs: Sequence[UOp],
               carried: Sequence[tuple[int, int]], least_first: bool) -> Sequence[LaunchT]:
    steps = adjacent_launches(launches)
    uses, sizes = _temporaries(steps, outs)
    writes = [tuple(dict.fromkeys(step.writes)) for step in steps]
    return _in_order(launches, steps, _order(uses, writes, _dependences(steps, outs, carried),
                                             sizes, least_first))


def allocate_late(launches: Sequence[LaunchT], outs: Sequence[UOp],
                  carried: Sequence[tuple[int, int]]) -> Sequence[LaunchT]:
    """The same backwards: a launch that takes more memory than it frees runs as late as its readers
    allow. The arguments are those of ``free_early``."""
    steps = adjacent_launches(launches)
    uses, sizes = _temporaries(steps, outs)
    last = {node: i for i, used in enumerate(uses) for node in used}
    end = len(steps) - 1
    after: list[set[int]] = [set() for _ in steps]
    for i, earlier in enumerate(_dependences(steps, outs, carried)):
        for k in earlier:
            after[end - k].add(end - i)
    taken = [[node for node in used if last[node] == i] for i, used in enumerate(uses)]
    order = _order(uses[::-1], taken[::-1], after, sizes)
    return _in_order(launches, steps, [end - i for i in reversed(order)])


def _temporaries(steps: Sequence[AdjacentLaunches[LaunchT]], outs: Sequence[UOp]
                 ) -> tuple[list[tuple[UOp, ...]], dict[UOp, int]]:
    """Return the nodes that each step uses, and the bytes of those that are temporary."""
    uses = [tuple(dict.fromkeys(step.uses)) for step in steps]
    return uses, {node: size_of(node) for used in uses for node in used
                  if node.op is not ops.PARAM and node not in outs}


def _in_order(launches: Sequence[LaunchT], steps: Sequence[AdjacentLaunches[LaunchT]],
              order: Sequence[int]) -> Sequence[LaunchT]:
    if order == [*range(len(steps))]:
        return launches
    return [launch for i in order for launch in steps[i].launches]


def _dependences(steps: Sequence[AdjacentLaunches[LaunchT]], outs: Sequence[UOp],
                 carried: Sequence[tuple[int, int]]) -> list[set[int]]:
    """Return the earlier steps that each must follow."""
    params = {node.arg.slot: node for step in steps for node in step.uses if node.op is ops.PARAM}
    over = {outs[result]: params[slot] for result, slot in carried if slot in params}
    return dependences([(step.uses, [*step.writes, *[over[n] for n in step.writes if n in over]],
                         step.has_effects) for step in steps])


def _order(uses: Sequence[Collection[UOp]], writes: Sequence[Collection[UOp]],
           before: Sequence[Collection[int]], sizes: Mapping[UOp, int],
           least_first: bool = False) -> list[int]:
    """Return the positions of steps in the order in which they run.

    Args:
        uses, writes: the nodes that each step uses, and those among them that take memory from
            then on, if it is the first that uses them.
        before: the earlier steps that each must follow.
        sizes: bytes of the nodes that take memory as long as steps use them.
        least_first: whether the step that takes least runs next, not the first that may.
    """
    users: dict[UOp, set[int]] = {}
    for i, used in enumerate(uses):
        for node in used:
            if node in sizes:
                users.setdefault(node, set()).add(i)
    users = {node: steps for node, steps in users.items() if len(steps) > 1}
    after: list[list[int]] = [[] for _ in before]
    waits = [len(earlier) for earlier in before]  # steps that must still run before each
    takes = [0] * len(before)  # bytes that are in use after a step, less those before it
    for i, earlier in enumerate(before):
        for k in earlier:
            after[k].append(i)
    for node, steps in users.items():
        first = min(steps)
        takes[first] += sizes[node] if node in writes[first] else 0
    order: list[int] = []
    done: set[int] = set()
    # those that free memory, or all that may run; the ones that free most first
    ready: list[tuple[int, int]] = []

    def offer(i: int) -> None:
        if least_first and not waits[i]:
            heappush(ready, (takes[i], i))
        if least_first or takes[i] >= 0 or i in done:
            return
        missing = _missing(i, before, done) if waits[i] else [i]
        if len(missing) <= MAX_MOVED_TOGETHER and (total := sum([takes[k] for k in missing])) < 0:
            heappush(ready, (total, i))

    def run(i: int) -> None:
        order.append(i)
        done.add(i)
        for node in uses[i]:
            steps = users.get(node, set())
            steps.discard(i)
            if len(steps) == 1:
                last, = steps
                takes[last] -= sizes[node]
                offer(last)
        for k in after[i]:
            waits[k] -= 1
            offer(k)

    for i in range(len(uses)) if least_first else ():
        offer(i)
    for i in range(len(uses)):
        while ready:
            for k in _missing(heappop(ready)[1], before, done):
                run(k)
        if i not in done:
            run(i)
    return order


def _missing(i: int, before: Sequence[Collection[int]], done: set[int]) -> list[int]:
    """Return the steps that must still run for one to have run, in order; only a few of them if
    they are too many."""
    out, pending = set[int](), [i]
    while pending and len(out) <= MAX_MOVED_TOGETHER:
        k = pending.pop()
        if k not in out and k not in done:
            out.add(k)
            pending += before[k]
    return sorted(out)
