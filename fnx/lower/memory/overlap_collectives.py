"""Overlap collectives: each starts as soon as its operands are there, and is waited for at its
first use.

    before  a; start(a); wait -> b; use b; c; start(c); wait -> d; use d
    after   a; start(a); c; start(c); wait -> b; use b; wait -> d; use d

What the collectives read comes first, the one with the fewest launches before it first of all; then
the other launches in their order, each wait right before its first reader. All processes have the
same launches, so they start collectives in the same order. A wait that still follows its start is
one with it: the collective as a whole.

>>> from fnx.core.ir import build, dtypes
>>> p, q, r, s = [build.param(i, dtypes.float32, (2,)) for i in range(4)]
>>> _order([((p,), (q,), "start"), ((q,), (r,), "wait"), ((p,), (s,), "")])
[0, 2, 1]
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.lower.memory.buffer_sharing import adjacent_launches
from fnx.lower.memory.commands import Launch, Launches, LaunchKind
from fnx.lower.memory.dependences import dependences

_Access = tuple[Collection[UOp], Collection[UOp], str]  # nodes used, those written, the phase


def overlap_collectives(launches: Launches) -> Launches:
    """Return launches in an order in which collectives run beside others."""
    steps = launches.launches
    groups = adjacent_launches(steps)
    order = _order([(group.uses, group.writes, _phase_of(group.launches)) for group in groups])
    return launches.replace(launches=_joined([step for i in order for step in groups[i].launches]))


def _phase(step: LaunchKind) -> str:
    """Return "start" or "wait"; "effect" for what stays in order; else ""."""
    if isinstance(step, Launch) and step.kernel.op is ops.CALLBACK and step.kernel.arg.phase:
        return str(step.kernel.arg.phase)
    return "effect" if step.has_effects else ""


def _phase_of(group: Sequence[LaunchKind]) -> str:
    return next((phase for step in group if (phase := _phase(step))), "")


def _order(steps: Sequence[_Access]) -> list[int]:
    """Return the positions of launches in the order in which they run."""
    before = dependences([(uses, writes, phase == "effect") for uses, writes, phase in steps])
    starts = [i for i, step in enumerate(steps) if step[2] == "start"]
    out: list[int] = []
    done: set[int] = set()

    def run(i: int) -> None:
        new = sorted(_missing(i, before, done))
        done.update(new)
        out.extend(new)
    while starts:
        first = min(starts, key=lambda i: len(_missing(i, before, done)))
        starts.remove(first)
        run(first)
    for i, (_, _, phase) in enumerate(steps):
        if phase != "wait":
            run(i)
    for i in range(len(steps)):
        run(i)
    return out


def _missing(i: int, before: Sequence[set[int]], done: set[int]) -> set[int]:
    """Return what must still run for a launch: itself, and what it must follow."""
    out: set[int] = set()
    pending = [i]
    while pending:
        k = pending.pop()
        if k not in out and k not in done:
            out.add(k)
            pending.extend(before[k])
    return out


def _joined(steps: Sequence[LaunchKind]) -> list[LaunchKind]:
    """Return launches in which a wait right after its start is one launch with it."""
    out: list[LaunchKind] = []
    for step in steps:
        last = out[-1] if out else None
        if isinstance(step, Launch) and isinstance(last, Launch) and _phase(step) == "wait" and \
                _phase(last) == "start" and step.operands[1] == last.operands[-1]:
            collective = step.kernel.arg.collective
            arg = last.kernel.arg.replace(name=collective.name, outs=collective.outs, phase="")
            results = step.operands[1 + len(step.kernel.arg.ins):]
            out[-1] = last.replace(kernel=last.kernel.replace(arg=arg), writes=step.writes,
                                   operands=(*last.operands[:-1], *results),
                                   locs=tuple(dict.fromkeys((*last.locs, *step.locs))))
        else:
            out.append(step)
    return out
