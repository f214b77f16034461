"""Buffer sharing: nodes with disjoint live ranges, or updated in place, get one buffer.

    before  copy(x -> b);  b[n] = v                  x is not read again
    after   x[n] = v                                 b is x's buffer, nothing is copied

Three decisions, in this order, each based on live ranges (first and last launch that uses a
buffer) and on which nodes the launches allow to share memory (lower/memory/in_place.py):

  carried   the result of a loop's body takes the memory of the carry: an in-place update
  copies    a copy is elided if its source is not read after the copy is written
  shares    a result is written over an operand that is dead afterwards
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.core.support.record import Record
from fnx.lower.analysis.memory import size_of

AliasPair = tuple[UOp, UOp]  # (written node, read node)


class SharingLaunch(Protocol):
    """The interface of a launch that buffer sharing needs."""

    @property
    def uses(self) -> Sequence[UOp]: ...
    @property
    def writes(self) -> Sequence[UOp]: ...
    @property
    def may_alias(self) -> Sequence[AliasPair]: ...
    @property
    def copy_pair(self) -> AliasPair | None: ...
    @property
    def has_effects(self) -> bool: ...
    @property
    def follows_loop(self) -> bool: ...


class LaunchSequence(Protocol):
    """The interface of the launches of a FUNCTION that buffer sharing needs."""

    @property
    def outs(self) -> Sequence[UOp]: ...
    @property
    def launches(self) -> Sequence[SharingLaunch]: ...
    @property
    def carried(self) -> Sequence[tuple[int, int]]: ...
    @property
    def unaligned(self) -> frozenset[UOp]: ...
    @property
    def no_alias(self) -> bool: ...


LaunchT = TypeVar("LaunchT", bound=SharingLaunch)


class AdjacentLaunches(Record, Generic[LaunchT]):
    """Launches that must stay adjacent."""

    launches: tuple[LaunchT, ...]

    @property
    def uses(self) -> Sequence[UOp]:
        return [node for launch in self.launches for node in launch.uses]

    @property
    def writes(self) -> Sequence[UOp]:
        return [node for launch in self.launches for node in launch.writes]

    @property
    def may_alias(self) -> Sequence[AliasPair]:
        return [pair for launch in self.launches for pair in launch.may_alias]

    @property
    def copy_pair(self) -> AliasPair | None:
        return self.launches[0].copy_pair if len(self.launches) == 1 else None

    @property
    def has_effects(self) -> bool:
        return any(launch.has_effects for launch in self.launches)

    @property
    def follows_loop(self) -> bool:
        return self.launches[0].follows_loop


class LiveRange(Record):
    """The live range of a buffer: its nodes, the first and last launch that use it, its writers."""

    nodes: tuple[UOp, ...]
    first: int
    last: int
    writes: tuple[int, ...]


def share_buffers(program: LaunchSequence) -> BufferSharing:
    """Decide which nodes share a buffer, and which copies are elided."""
    sharing = BufferSharing(program)
    for result, slot in program.carried:
        sharing.alias_carry(program.outs[result], slot)
    for position, launch in enumerate(program.launches):
        if launch.copy_pair is not None:
            sharing.elide_copy(position, *launch.copy_pair)
    for position, launch in enumerate(program.launches):
        for written, read in launch.may_alias:
            sharing.overwrite(position, written, read)
    return sharing


def hoist_readers(launches: Sequence[LaunchT]) -> Sequence[LaunchT]:
    """Move the launches that read the source of a copy before the copy, where possible.

        before  copy(x -> b);  b[n] = v;  s = sum(x)
        after   s = sum(x);  copy(x -> b);  b[n] = v

    A launch that depends on the trip count of a loop stays right after that loop.
    """
    return [launch for bundle in _hoist_readers(adjacent_launches(launches))
            for launch in bundle.launches]


def adjacent_launches(launches: Sequence[LaunchT]) -> list[AdjacentLaunches[LaunchT]]:
    """Return the launches, those that must stay adjacent as one."""
    adjacent: list[AdjacentLaunches[LaunchT]] = []
    for launch in launches:
        if launch.follows_loop and adjacent:
            adjacent[-1] = AdjacentLaunches((*adjacent[-1].launches, launch))
        else:
            adjacent.append(AdjacentLaunches((launch,)))
    return adjacent


def _hoist_readers(launches: Sequence[AdjacentLaunches[LaunchT]]
                   ) -> Sequence[AdjacentLaunches[LaunchT]]:
    order = list(range(len(launches)))
    users: dict[UOp, list[int]] = {}
    for number, launch in enumerate(launches):
        for node in launch.uses:
            users.setdefault(node, []).append(number)
    for number, copy in enumerate(launches):
        if copy.copy_pair is None:
            continue
        written, source = copy.copy_pair
        for reader in users[source]:
            position = order.index(number)
            if reader != number and reader not in users[written] and reader in order[position:]:
                delayed = order[position:order.index(reader)]
                moved_along = _moved_along([launches[i] for i in delayed], launches[reader])
                if moved_along is not None:
                    moved_set = {reader, *[delayed[i] for i in moved_along]}
                    tail = order[position:]
                    order[position:] = [*[i for i in tail if i in moved_set],
                                        *[i for i in tail if i not in moved_set]]
    return [launches[i] for i in order]


def _moved_along(delayed: Sequence[SharingLaunch], launch: SharingLaunch) -> list[int] | None:
    """Return which launches, from the copy on, must move along; None if it cannot pass the copy."""
    moved: list[SharingLaunch] = [launch]
    moved_along: list[int] = []
    needed, in_order = set(launch.uses), launch.has_effects
    for i in range(len(delayed) - 1, -1, -1):
        if not needed.isdisjoint(delayed[i].writes) or in_order and delayed[i].has_effects:
            if i == 0:
                return None
            moved.append(delayed[i])
            moved_along.append(i)
            needed.update(delayed[i].uses)
            in_order = in_order or delayed[i].has_effects
        elif not _can_move_before(delayed[i], moved):
            return None
    return moved_along


def _can_move_before(other: SharingLaunch, moved: Sequence[SharingLaunch]) -> bool:
    """Whether launches may move before another one: they write nothing that it uses."""
    other_uses = set(other.uses)
    return all(other_uses.isdisjoint(launch.writes) for launch in moved)


class BufferSharing:
    """The assignment of nodes to buffers; ``elided`` has the launches that are left out."""

    def __init__(self, program: LaunchSequence) -> None:
        self.launches = program.launches
        self.elided: set[int] = set()
        self.outs, self.unaligned = set(program.outs), program.unaligned
        self.no_alias = program.no_alias
        self.writable: set[UOp] = set()  # parameters
        self.carried: tuple[UOp, UOp] | None = None  # the (result, parameter) pair being decided
        self.buffer: dict[UOp, UOp] = {}
        self.live_ranges: dict[UOp, LiveRange] = {}
        self.params: dict[int, UOp] = {}
        used: dict[UOp, list[int]] = {}
        written: dict[UOp, list[int]] = {}
        for position, launch in enumerate(self.launches):
            for node in launch.uses:
                used.setdefault(node, []).append(position)
            for node in launch.writes:
                written.setdefault(node, []).append(position)
        for node, positions in used.items():
            last = len(self.launches) if node in self.outs else positions[-1]
            self.live_ranges[node] = LiveRange((node,), positions[0], last,
                                               tuple(written.get(node, ())))
            if node.op is ops.PARAM:
                self.params[node.arg.slot] = node

    def owner(self, node: UOp) -> UOp:
        """Return the node whose buffer holds this one."""
        while node in self.buffer:
            node = self.buffer[node]
        return node

    def memory(self) -> dict[UOp, UOp]:
        """Return the owner of the buffer of each node that shares another node's buffer."""
        return {node: self.owner(node) for node in self.buffer}

    # ---- the three decisions

    def alias_carry(self, result: UOp, slot: int) -> None:
        """Let a result take the memory of a parameter, if that is safe."""
        param = self.params.get(slot)
        if param is None or result not in self.live_ranges or param in self.writable:
            return
        self.writable.add(param)
        self.carried = result, param
        for copy_args in self._copy_chain(param, result):
            self.elide_copy(*copy_args)
        owner = self.owner(result)
        if owner is not param:
            position = self.live_ranges[owner].first  # that of all updates that share the buffer
            if self.live_ranges[param].last < position:
                self._merge_buffers(owner, param)
            elif (result, param) in self.launches[position].may_alias:
                self.overwrite(position, result, param)
        self.carried = None
        if self.owner(result) is not param:
            self.writable.remove(param)

    def _copy_chain(self, param: UOp, result: UOp) -> list[tuple[int, UOp, UOp]]:
        """Return the copies from a parameter to a result, in order: one for each update."""
        chain: list[tuple[int, UOp, UOp]] = []
        node = result
        while node is not param:
            position = self.live_ranges[node].first if node in self.live_ranges else 0
            copies = self.launches[position].copy_pair
            if copies is None or copies[0] is not node:
                return []
            chain.insert(0, (position, *copies))
            node = copies[1]
        return chain

    def elide_copy(self, position: int, written: UOp, source: UOp) -> None:
        """Elide a copy if both buffers hold the same values until ``written`` is written again."""
        a, b = self.owner(written), self.owner(source)
        if a is b or not self._may_join(a, b):
            return
        new, old = self.live_ranges[a], self.live_ranges[b]
        next_write = min([w for w in new.writes if w > position], default=len(self.launches))
        if new.first != position or old.last > next_write or any(w >= position for w in old.writes):
            return
        if old.last == next_write < len(self.launches) and \
                not self._may_overwrite(next_write, new, old):
            return
        self.elided.add(position)
        self._merge_buffers(a, b)

    def overwrite(self, position: int, written: UOp, source: UOp) -> None:
        """Write a result over an operand that no later launch uses."""
        a, b = self.owner(written), self.owner(source)
        if a is b or not self._may_join(a, b):
            return
        new, old = self.live_ranges[a], self.live_ranges[b]
        if old.last == position == new.first and position not in old.writes and \
                self._may_overwrite(position, new, old):
            self._merge_buffers(a, b)

    # ---- buffers

    def _may_overwrite(self, position: int, new_range: LiveRange, old_range: LiveRange) -> bool:
        """Whether a launch may write ``new_range`` over everything it reads of ``old_range``."""
        launch = self.launches[position]
        used = set(launch.uses)
        written = [n for n in new_range.nodes if n in used]
        return all((w, n) in launch.may_alias for w in written
                   for n in old_range.nodes if n in used)

    def _may_join(self, a: UOp, b: UOp) -> bool:
        """Whether a's content may be in b's buffer, judging by size, alignment and ownership."""
        fixed = {n for n in (a, b) if n in self.outs or n.op is ops.PARAM}
        return size_of(a) == size_of(b) and self.unaligned.isdisjoint((a, b)) and \
            (b.op is not ops.PARAM or b in self.writable) and a.op is not ops.PARAM and \
            (not fixed or len(fixed) < 2 and not self.no_alias or (a, b) == self.carried)

    def _merge_buffers(self, a: UOp, b: UOp) -> None:
        range_a, range_b = self.live_ranges.pop(a), self.live_ranges.pop(b)
        # the buffer is owned by a parameter, else by a result
        owner, alias = (b, a) if b.op is ops.PARAM or a not in self.outs else (a, b)
        self.buffer[alias] = owner
        self.live_ranges[owner] = LiveRange(range_a.nodes + range_b.nodes,
                                            min(range_a.first, range_b.first),
                                            max(range_a.last, range_b.last),
                                            range_a.writes + range_b.writes)
