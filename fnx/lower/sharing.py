"""Buffer sharing: nodes with disjoint live ranges, or updated in place, get one buffer.

    before  copy(x -> b);  b[n] = v                  x is not read again
    after   x[n] = v                                 b is x's buffer, nothing is copied

Three decisions, in this order, each based on live ranges (first and last launch that uses a
buffer) and on which nodes the launches allow to share memory (lower/in_place.py):

  carried   the result of a loop's body takes the memory of the carry: an in-place update
  copies    a copy is elided if its source is not read after the copy is written
  shares    a result is written over an operand that is dead afterwards
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from fnx.core import ops
from fnx.core.record import Record
from fnx.core.uop import UOp
from fnx.lower.memory import size_of

WrittenRead = tuple[UOp, UOp]  # (written node, read node)


class Use(Protocol):
    """The interface of a launch that buffer sharing needs."""

    @property
    def uses(self) -> Sequence[UOp]: ...
    @property
    def writes(self) -> Sequence[UOp]: ...
    @property
    def shares(self) -> Sequence[WrittenRead]: ...
    @property
    def copies(self) -> WrittenRead | None: ...
    @property
    def has_effects(self) -> bool: ...
    @property
    def follows(self) -> bool: ...


class SharedLaunches(Protocol):
    """The interface of the launches of a FUNCTION that buffer sharing needs."""

    @property
    def outs(self) -> Sequence[UOp]: ...
    @property
    def launches(self) -> Sequence[Use]: ...
    @property
    def carried(self) -> Sequence[tuple[int, int]]: ...
    @property
    def unaligned(self) -> frozenset[UOp]: ...
    @property
    def apart(self) -> bool: ...


AnyUse = TypeVar("AnyUse", bound=Use)


class Together(Record, Generic[AnyUse]):
    """Launches that must stay adjacent."""

    launches: tuple[AnyUse, ...]

    @property
    def uses(self) -> Sequence[UOp]:
        return [node for launch in self.launches for node in launch.uses]

    @property
    def writes(self) -> Sequence[UOp]:
        return [node for launch in self.launches for node in launch.writes]

    @property
    def shares(self) -> Sequence[WrittenRead]:
        return [pair for launch in self.launches for pair in launch.shares]

    @property
    def copies(self) -> WrittenRead | None:
        return self.launches[0].copies if len(self.launches) == 1 else None

    @property
    def has_effects(self) -> bool:
        return any(launch.has_effects for launch in self.launches)

    @property
    def follows(self) -> bool:
        return self.launches[0].follows


class Life(Record):
    """The live range of a buffer: its nodes, the first and last launch that use it, its writers."""

    nodes: tuple[UOp, ...]
    first: int
    last: int
    writes: tuple[int, ...]


def share(program: SharedLaunches) -> Sharing:
    """Decide which nodes share a buffer, and which copies are elided."""
    sharing = Sharing(program)
    for result, slot in program.carried:
        sharing.carry(program.outs[result], slot)
    for at, launch in enumerate(program.launches):
        if launch.copies is not None:
            sharing.copy(at, *launch.copies)
    for at, launch in enumerate(program.launches):
        for to, source in launch.shares:
            sharing.over(at, to, source)
    return sharing


def readers_first(launches: Sequence[AnyUse]) -> Sequence[AnyUse]:
    """Move the launches that read the source of a copy before the copy, where possible.

        before  copy(x -> b);  b[n] = v;  s = sum(x)
        after   s = sum(x);  copy(x -> b);  b[n] = v

    A launch that depends on the trip count of a loop stays right after that loop.
    """
    if all(launch.copies is None for launch in launches):
        return launches
    together: list[Together[AnyUse]] = []
    for launch in launches:
        if launch.follows and together:
            together[-1] = Together((*together[-1].launches, launch))
        else:
            together.append(Together((launch,)))
    return [launch for some in _readers_first(together) for launch in some.launches]


def _readers_first(launches: Sequence[Together[AnyUse]]) -> Sequence[Together[AnyUse]]:
    order = list(range(len(launches)))
    users: dict[UOp, list[int]] = {}
    for number, launch in enumerate(launches):
        for node in launch.uses:
            users.setdefault(node, []).append(number)
    for number, copy in enumerate(launches):
        if copy.copies is None:
            continue
        to, source = copy.copies
        for reader in users[source]:
            at = order.index(number)
            if reader != number and reader not in users[to] and reader in order[at:]:
                behind = order[at:order.index(reader)]
                waited = _waited_for([launches[i] for i in behind], launches[reader])
                if waited is not None:
                    early = {reader, *[behind[i] for i in waited]}
                    rest = order[at:]
                    order[at:] = [*[i for i in rest if i in early],
                                  *[i for i in rest if i not in early]]
    return [launches[i] for i in order]


def _waited_for(behind: Sequence[Use], launch: Use) -> list[int] | None:
    """Return which launches, from the copy on, must move along; None if it cannot pass the copy."""
    moved: list[Use] = [launch]
    found: list[int] = []
    needed, in_order = set(launch.uses), launch.has_effects
    for i in range(len(behind) - 1, -1, -1):
        if not needed.isdisjoint(behind[i].writes) or in_order and behind[i].has_effects:
            if i == 0:
                return None
            moved.append(behind[i])
            found.append(i)
            needed.update(behind[i].uses)
            in_order = in_order or behind[i].has_effects
        elif not _may_wait(behind[i], moved):
            return None
    return found


def _may_wait(other: Use, moved: Sequence[Use]) -> bool:
    """Whether launches may move before another one: they write nothing that it uses."""
    used = set(other.uses)
    return all(used.isdisjoint(launch.writes) for launch in moved)


class Sharing:
    """The assignment of nodes to buffers; ``elided`` has the launches that are left out."""

    def __init__(self, program: SharedLaunches) -> None:
        self.launches = program.launches
        self.elided: set[int] = set()
        self.outs, self.unaligned = set(program.outs), program.unaligned
        self.apart = program.apart
        self.writable: set[UOp] = set()  # parameters
        self.carried: tuple[UOp, UOp] | None = None  # the (result, parameter) pair being decided
        self.buffer: dict[UOp, UOp] = {}
        self.life: dict[UOp, Life] = {}
        self.params: dict[int, UOp] = {}
        used: dict[UOp, list[int]] = {}
        written: dict[UOp, list[int]] = {}
        for at, launch in enumerate(self.launches):
            for node in launch.uses:
                used.setdefault(node, []).append(at)
            for node in launch.writes:
                written.setdefault(node, []).append(at)
        for node, when in used.items():
            last = len(self.launches) if node in self.outs else when[-1]
            self.life[node] = Life((node,), when[0], last, tuple(written.get(node, ())))
            if node.op is ops.PARAM:
                self.params[node.arg.slot] = node

    def of(self, node: UOp) -> UOp:
        """Return the node whose buffer holds this one."""
        while node in self.buffer:
            node = self.buffer[node]
        return node

    def memory(self) -> dict[UOp, UOp]:
        """Return the owner of the buffer of each node that shares another node's buffer."""
        return {node: self.of(node) for node in self.buffer}

    # ---- the three decisions

    def carry(self, result: UOp, slot: int) -> None:
        """Let a result take the memory of a parameter, if that is safe."""
        param = self.params.get(slot)
        if param is None or result not in self.life or param in self.writable:
            return
        self.writable.add(param)
        self.carried = result, param
        life = self.life[result]
        for copied in self._copies_from(param, result):
            self.copy(*copied)
        at = life.first
        launch = self.launches[at]
        if self.of(result) is not param:
            if self.life[param].last < at:
                self._join(result, param)
            elif (result, param) in launch.shares:
                self.over(at, result, param)
        self.carried = None
        if self.of(result) is not param:
            self.writable.remove(param)

    def _copies_from(self, param: UOp, result: UOp) -> list[tuple[int, UOp, UOp]]:
        """Return the copies from a parameter to a result, in order: one for each update."""
        found: list[tuple[int, UOp, UOp]] = []
        node = result
        while node is not param:
            at = self.life[node].first if node in self.life else 0
            copies = self.launches[at].copies
            if copies is None or copies[0] is not node:
                return []
            found.insert(0, (at, *copies))
            node = copies[1]
        return found

    def copy(self, at: int, to: UOp, source: UOp) -> None:
        """Elide a copy if both buffers hold the same values until ``to`` is written again."""
        a, b = self.of(to), self.of(source)
        if a is b or not self._may_join(a, b):
            return
        new, old = self.life[a], self.life[b]
        again = min([w for w in new.writes if w > at], default=len(self.launches))
        if new.first != at or old.last > again or any(w >= at for w in old.writes):
            return
        if old.last == again < len(self.launches) and not self._allowed(again, new, old):
            return
        self.elided.add(at)
        self._join(a, b)

    def over(self, at: int, to: UOp, source: UOp) -> None:
        """Write a result over an operand that no later launch uses."""
        a, b = self.of(to), self.of(source)
        if a is b or not self._may_join(a, b):
            return
        new, old = self.life[a], self.life[b]
        if old.last == at == new.first and at not in old.writes and self._allowed(at, new, old):
            self._join(a, b)

    # ---- buffers

    def _allowed(self, at: int, new: Life, old: Life) -> bool:
        """Whether a launch may write ``new`` over everything it reads of ``old``."""
        launch = self.launches[at]
        used = set(launch.uses)
        written = [n for n in new.nodes if n in used]
        return all((w, n) in launch.shares for w in written for n in old.nodes if n in used)

    def _may_join(self, a: UOp, b: UOp) -> bool:
        """Whether a's content may be in b's buffer, judging by size, alignment and ownership."""
        fixed = {n for n in (a, b) if n in self.outs or n.op is ops.PARAM}
        return size_of(a) == size_of(b) and self.unaligned.isdisjoint((a, b)) and \
            (b.op is not ops.PARAM or b in self.writable) and a.op is not ops.PARAM and \
            (not fixed or len(fixed) < 2 and not self.apart or (a, b) == self.carried)

    def _join(self, a: UOp, b: UOp) -> None:
        one, other = self.life.pop(a), self.life.pop(b)
        # the buffer is owned by a parameter, else by a result
        stays, goes = (b, a) if b.op is ops.PARAM or a not in self.outs else (a, b)
        self.buffer[goes] = stays
        self.life[stays] = Life(one.nodes + other.nodes, min(one.first, other.first),
                                max(one.last, other.last), one.writes + other.writes)
