"""Group: tensor nodes that become one kernel, and predicates on the index they are read at.

A group has loops over its results (its space; axes of length 1 are dropped, the rest is numbered
0, 1, ...) and reduction loops. ``own_index`` is the index (0, 1, ...) of its results.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Collection, Iterable, Mapping, Sequence

from fnx.core.ir import build_calls, ops
from fnx.core.ir.accessors import long_lengths
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import KernelError
from fnx.lower.fusion.index_tokens import ZERO, Tokens, squeeze

MAX_WORK = 1200   # of a group that ends where few values cross: long chains become equal kernels
WORK_LIMIT = 9600  # of any group; compile time is roughly proportional to it
WORK_PER_VALUE = 240    # additions that take ten times as long as writing and reading back a value
LoopSet = frozenset[int]
VIEW_OPS = frozenset({ops.RESHAPE, ops.BARRIER, ops.PERMUTE, ops.SHRINK, ops.FLIP})
MEMORY: Tokens = ("memory",)  # the index of a node that is read as a whole: it needs a buffer
MAX_SINGLE_ROW = 1 << 13  # elements of a group that may be a single row
MAX_SEARCH = 256  # groups visited to decide whether two groups may be merged


class Group:
    """Nodes that become one kernel.

    Attributes:
        space: lengths of the loops over its results (axes of length 1 left out).
        own_index: the index of its results.
        roots: (node, index) of the values it writes.
        inside: nodes computed in it, each with the indices it is computed at.
        stages: node -> index at which its STAGE is filled.
        rows: nested sets of its own loops at which it reduces or stages.
        reads: groups whose buffers it reads.
        scatter: the SCATTER node it applies, or None.
        base_of: the SCATTER node whose base it writes, or None.
        call: the CALL of a user-written kernel that it stands for, or None.
        concat: the CONCAT whose parts other groups write in place, or None.
        work: its cost in additions, roughly the code size of the kernel.
        pending: nodes that it reads and that are not placed yet; they cross memory if it ends
            there.
        overflow: nodes that it reads from memory because it was full.
        has_one_row: whether all that it computes varies along all axes (partial_vectors.py).
        shortest_row: else the length of its shortest rows, if it computes rows of elements.
    """

    __slots__ = ("number", "space", "own_index", "roots", "inside", "stages", "rows", "reads",
                 "contraction", "reduces", "scatter", "base_of", "call", "concat", "work",
                 "pending", "overflow", "has_one_row", "shortest_row")

    def __init__(self, number: int, space: ops.Shape) -> None:
        self.number = number
        self.space = tuple([n for n in space if n != 1])
        self.own_index: Tokens = tuple(range(len(self.space)))
        self.roots: list[tuple[UOp, Tokens]] = []
        self.inside: dict[UOp, list[Tokens]] = {}
        self.stages: dict[UOp, Tokens] = {}
        self.rows: set[LoopSet] = set()
        self.reads: set[Group] = set()
        self.contraction: UOp | None = None
        self.reduces = 0
        self.scatter: UOp | None = None
        self.base_of: UOp | None = None
        self.call: UOp | None = None
        self.concat: UOp | None = None
        self.work = 0
        self.pending: set[UOp] = set()
        self.has_one_row, self.shortest_row = True, 0
        self.overflow: list[UOp] = []

    @property
    def is_fixed(self) -> bool:
        """Whether it can take no further outputs."""
        return self.call is not None or self.scatter is not None or self.base_of is not None \
            or self.concat is not None

    def is_own(self, index: Tokens) -> bool:
        return squeeze(index) == self.own_index

    def covers(self, index: Tokens) -> bool:
        """Whether ``index`` has all of the group's own loops and nothing else, in any order."""
        tokens = squeeze(index)
        return len(tokens) == len(self.space) and set(tokens) == set(self.own_index)

    def row_of(self, index: Tokens) -> LoopSet:
        """Return the group's own loops that occur in an index."""
        return frozenset([t for t in index if type(t) is int and 0 <= t < len(self.space)])

    def is_row(self, index: Tokens) -> bool:
        """Whether a value read at ``index`` is computed once per row: it matches a row of the
        group, or is a non-empty leading part of the group's own index, whose loops are outermost
        anyway."""
        tokens = squeeze(index)
        return bool(tokens) and tokens == self.own_index[:len(tokens)] \
            and self.can_be_row(index) or \
            self._is_in_order(tokens) and frozenset(tokens) in self.rows

    def can_be_row(self, index: Tokens) -> bool:
        """Whether ``index`` is a subset of the group's own index whose loops can be outside of all
        others: then the rows of the group stay nested. The empty subset, a single row, is allowed
        if the group is small enough for one worker."""
        tokens = squeeze(index)
        return (bool(tokens) or math.prod(self.space) <= MAX_SINGLE_ROW) and \
            self._is_in_order(tokens) and are_nested({*self.rows, frozenset(tokens)})

    def row_length(self, index: Tokens) -> int:
        """Return the number of its results in lanes for each element at a row's index; 1 if the
        lanes go across rows, or the rows are columns side by side, which have stores of their
        own."""
        row = self.row_of(index)
        if len(self.space) - 1 in row or any(
                i[n.arg] not in row for n, indices in self.inside.items()
                if n.op is ops.CONCAT for i in indices):
            return 1
        return math.prod([n for i, n in enumerate(self.space) if i not in row])

    def run_length(self, index: Tokens) -> int:
        """Return the number of neighboring results that it computes in turn if the loops of a row
        are the outermost; 0 if these lead, so that all results come in their order."""
        row = self.row_of(index)
        is_leading = row == frozenset(range(len(row)))
        return 0 if is_leading else math.prod(self.space[max(row) + 1:])

    def _is_in_order(self, tokens: Tokens) -> bool:
        return all(type(t) is int and t < len(self.space) for t in tokens) and \
            all(a < b for a, b in itertools.pairwise(tokens))

    def add_row(self, index: Tokens) -> None:
        """Record that it reduces or stages at an index."""
        row = self.row_of(index)
        if len(row) < len(self.space):
            self.rows.add(row)

    @property
    def order(self) -> Tokens:
        """Its own loops, outermost first: row loops are outside of the others."""
        rows = sorted(self.rows, key=len)
        return tuple(sorted(self.own_index, key=lambda t: next(
            (len(row) for row in rows if t in row), len(self.space))))

    def merge(self, other: Group) -> None:
        """Merge in another group over the same loops."""
        self.roots += [r for r in other.roots if r not in self.roots]
        for node, indices in other.inside.items():
            indices_here = self.inside.setdefault(node, [])
            indices_here += [i for i in indices if i not in indices_here]
        self.stages.update(other.stages)
        self.rows |= other.rows
        self.reads |= other.reads
        self.contraction = other.contraction if self.contraction is None else self.contraction
        self.reduces += other.reduces
        self.work += other.work
        self.pending |= other.pending
        self.has_one_row = self.has_one_row and other.has_one_row
        self.shortest_row = min(self.shortest_row or other.shortest_row,
                              other.shortest_row or self.shortest_row)
        self.overflow += other.overflow

    def recompute_count(self, index: Tokens, outer_loops: Mapping[int, set[int]]) -> int:
        """Return how often a value at ``index`` would be recomputed by the loops around it;
        ``outer_loops`` has the loops around each reduction loop."""
        used, order = loops_of(index), self.order
        enclosing = set(order[:max((i for i, t in enumerate(order) if t in used), default=0)])
        for loop in used:
            enclosing |= outer_loops.get(loop, set())
        return math.prod(self.space[i] for i in enclosing - used if i < len(self.space))


def are_full(groups: Collection[Group], extra_work: int = 0) -> bool:
    """Whether one kernel of all groups, with ``extra_work`` work, would be too large for what it
    saves.

    The more values (placed or ahead) would cross memory where it ends, the larger it may grow.
    """
    work = sum([g.work for g in groups]) + extra_work
    if work <= MAX_WORK:
        return False
    return work > min(WORK_LIMIT,
                      WORK_PER_VALUE * (1 + len(set().union(*[g.pending for g in groups]))))


def are_nested(rows: Collection[LoopSet]) -> bool:
    """Whether of any two sets of loops one contains the other."""
    return all(a <= b for a, b in itertools.pairwise(sorted(rows, key=len)))


def may_merge(uses: Mapping[Group, Sequence[Tokens]], forced_buffers: Collection[UOp]) -> bool:
    """Whether all groups read a node at their own index over the same loops, and none depends on
    another; nodes with forced buffers stay in groups of their own."""
    groups = list(uses)
    if any(len(i) != 1 or i[0] == MEMORY or not g.is_own(i[0]) or g.is_fixed
           or g.space != groups[0].space or any(n in forced_buffers for n, _ in g.roots)
           for g, i in uses.items()):
        return False
    contractions = sum(g.contraction is not None for g in groups)
    if contractions > 1 or are_full(groups) or contractions and any(g.reduces for g in groups):
        return False
    return are_nested(set().union(*[g.rows for g in groups])) and not reads_any(groups, groups)


creation_order = operator.attrgetter("number")  # in order of creation


def read_through(groups: Iterable[Group]) -> set[Group]:
    """Return the groups whose buffers these read, directly or through others."""
    seen: set[Group] = set()
    stack = [r for g in groups for r in g.reads]
    while stack:
        group = stack.pop()
        if group not in seen:
            seen.add(group)
            stack.extend(group.reads)
    return seen


def reads_any(groups: Iterable[Group], others: Collection[Group]) -> bool:
    """Whether these read a buffer of the others, directly or through further groups.

    If the search takes long, the answer is True: so long programs take linear time.
    """
    seen: set[Group] = set()
    stack = [r for g in groups for r in g.reads]
    while stack:
        group = stack.pop()
        if group not in seen:
            if group in others or len(seen) == MAX_SEARCH:
                return True
            seen.add(group)
            stack.extend(group.reads)
    return False


def memory_of(node: UOp) -> UOp:
    """Return the node whose buffer holds this one: RESHAPE and BARRIER share their operand's
    memory."""
    while node.op is ops.RESHAPE or node.op is ops.BARRIER:
        node = node.src[0]
    return node


def is_effect_token(node: UOp) -> bool:
    """Whether it is the token of an effect: its operands belong to earlier effects and are not
    read."""
    return node.op is ops.GETTUPLE and build_calls.is_token(node)


def drop_tokens(nodes: Iterable[UOp]) -> list[UOp]:
    """Return the nodes that have a value."""
    return [n for n in nodes if not build_calls.is_token(n)]


def gather_source(node: UOp) -> UOp:
    """Return the array in memory that a GATHER reads directly, below slices and permutations of it.

    An array without a buffer is computed as far as it is read. A transposed array is read in its
    original layout if no more is read than a transposed copy would write.
    """
    x = candidate = node.src[0]
    while candidate.op in VIEW_OPS:
        is_transposed = candidate.op is ops.PERMUTE and \
            candidate.arg[-1:] != (len(candidate.shape) - 1,)
        if is_transposed and math.prod(node.shape) > math.prod(candidate.shape) or \
                candidate.op is ops.RESHAPE and \
                        long_lengths(candidate) != long_lengths(candidate.src[0]):
            break
        candidate = candidate.src[0]
    return candidate if memory_of(candidate).op in (ops.PARAM, ops.GETTUPLE, ops.SCATTER) else x


def is_misaligned(index: Tokens) -> bool:
    """Whether reading there takes a division; from a buffer it does not (a RESHAPE is free)."""
    return any(type(t) is tuple and t[0] == "part" for t in index)


def overlaps(index: Tokens) -> bool:
    """Whether one element may be read at several indices: windows."""
    return window_count(index) > 0


def window_count(index: Tokens) -> int:
    """Return the number of axes with windows."""
    stack, count = list(index), 0
    while stack:
        token = stack.pop()
        if type(token) is tuple and token[0] == "window":
            count += 1
        elif type(token) is tuple:
            stack.extend(t for t, _ in token[1]) if token[0] == "join" else stack.append(token[1])
    return count


def loops_of(index: Tokens) -> set[int]:
    """Return all loops that occur in the tokens of an index."""
    out: set[int] = set()
    stack = list(index)
    while stack:
        token = stack.pop()
        if type(token) is int:
            if token != ZERO:
                out.add(token)
        elif type(token) is tuple:
            stack.extend(t for t, _ in token[1]) if token[0] in ("join", "window") else \
                stack.append(token[1])
    return out


def common_prefix(index: Tokens, own_index: Tokens) -> Tokens:
    """Return the leading part of an index that equals that of the group's results."""
    pairs = itertools.takewhile(lambda p: p[0] == p[1], zip(squeeze(index), own_index))
    return tuple([t for t, _ in pairs])


def topological_order(groups: Iterable[Group]) -> list[Group]:
    """Sort groups so that each runs after those it reads; among equals, last created first.

    A group that no other reads writes only results, which have memory of their own: it runs as soon
    as it can, so that the buffers it reads are freed early. A part that is only copied into a
    CONCAT is copied once the rest of the CONCAT is complete.
    """
    ordered: dict[Group, None] = {}
    stack = sorted(groups, key=creation_order)
    sinks = set(stack).difference(*[g.reads for g in stack])
    copied_last = {r for g in stack if g.concat is not None for r in g.reads
                   if r.contraction is None and not r.reduces}
    stack = [g for g in stack if g not in copied_last]
    opened: set[Group] = set()
    while stack:
        waiting = [g for g in stack[-1].reads if g not in ordered]
        if not waiting:
            ordered[stack.pop()] = None
            continue
        if stack[-1] in opened:  # else the search would never end
            raise KernelError("expected kernels that can run one after another, got some that read "
                              "one another; config.unfused = 'all' compiles the program")
        opened.add(stack[-1])
        stack += sorted(waiting, key=creation_order)
    return _move_early(list(ordered), sinks)


def _move_early(order: list[Group], sinks: set[Group]) -> list[Group]:
    """Move the groups in ``sinks`` to right after their last operand."""
    pending = {g: len(g.reads) for g in order if g in sinks and g.reads}
    readers: dict[Group, list[Group]] = {}
    for g in pending:
        for r in g.reads:
            readers.setdefault(r, []).append(g)
    out: list[Group] = []
    for g in order:
        if g not in pending:
            out.append(g)
            for reader in readers.get(g, ()):
                pending[reader] -= 1
                if not pending[reader]:
                    out.append(reader)
    return out
