"""Kernelize: choose which values get buffers, and thereby which nodes share a kernel.

    before  y = softmax(x @ w + b)          (one graph of 12 nodes)
    after   Group 0: space (m, n)   ADD(REDUCE(MUL(x, w)), b)         -> buffer z
            Group 1: space (m, n)   max, exp, sum, division over z    -> y

One backward walk from the results. When a node is reached, all its consumers are placed, each
reading it at an index (see index_tokens.py) inside some group. Then:

  read in one group at one index           it is computed there
  ... at several indices of one row        it becomes a STAGE of the row, if the row is small
  read in several groups, each at the      the groups are merged, unless that makes a cycle
    index of its results
  cheap, or a CAST that widens             it is recomputed in each
  read elsewhere than a node that shares   one group computes both (shared_work.py)
    its work
  otherwise                                it gets a buffer: in a group that reads it at the index
                                           of its results (one more output), else in a new one

An operand of a BARRIER is computed where the BARRIER is read, as with any movement op, and that
group waits for the other operands of the BARRIER: for their buffers, or for the buffers that they
are computed from.

Values that only effects read are placed after everything else (effects.py). The parts of a CONCAT
get buffers of their own if that pays; these are views of its buffer (concat_in_place.py).

A reduction is computed inside a group only at the group's own index or at a subset of it (a row
reduction); rows must be nested, and their loops are the outer ones. A contraction is computed
only at the group's own index, one per group, to be tiled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Set

from fnx.core.ir import accessors, ops
from fnx.core.ir.accessors import consumers
from fnx.core.ir.uop import UOp, toposort
from fnx.lower.analysis.tuning import VECTOR_BYTES
from fnx.lower.fusion import (
    concat_in_place,
    cost,
    effects,
    epilogues,
    partial_vectors,
    prologues,
    shared_work,
)
from fnx.lower.fusion.group import (
    MEMORY,
    VIEW_OPS,
    Group,
    creation_order,
    drop_tokens,
    gather_source,
    is_effect_token,
    may_merge,
    memory_of,
    read_through,
    reads_any,
    topological_order,
)
from fnx.lower.fusion.index_tokens import ZERO, Tokens, identity_index, source_index
from fnx.lower.fusion.placement import (
    CONDITIONAL_OPS,
    fits,
    may_recompute,
    may_repeat,
    may_stage,
    needs_buffer,
)
from fnx.lower.fusion.recompute_from_read import (
    is_cheaper_from_read,
    is_step_from_read,
    reads_many_elements,
)
from fnx.lower.fusion.reduction_loops import ReductionLoops
from fnx.lower.fusion.scatter_hazards import hazard_operands
from fnx.lower.fusion.varying_axes import long_axes, varying_axes

Uses = dict[Group, list[Tokens]]  # the indices at which groups read a node


class Fusion:
    """The result: groups in execution order, and the writer of each buffered node."""

    def __init__(self, fn: UOp, forced_buffers: frozenset[UOp] = frozenset(),
                 lane_bytes: int = VECTOR_BYTES) -> None:
        # nodes that must be written by groups of their own; bytes of the lanes of a kernel
        self.fn, self.forced_buffers, self.lane_bytes = fn, forced_buffers, lane_bytes
        self.operands: dict[UOp, list[UOp]] = {}  # of calls: the nodes whose buffers they read
        self._analyze(drop_tokens(fn.src))
        self.groups: list[Group] = []
        self.writer: dict[UOp, Group] = {}
        self.reduction_loops = ReductionLoops()
        self._uses: dict[UOp, Uses] = {}
        self._merged: dict[Group, Group] = {}
        self._waiters: dict[UOp, set[Group]] = {}  # groups that wait for a node not placed yet
        self._recomputed = cost.RecomputedValues()
        self._reductions: dict[tuple[UOp, tuple[int, ...]], UOp] = {}  # with buffers of their own
        self._results: Set[UOp] = frozenset()
        self._hosts: dict[UOp, Group] = {}  # of nodes that share work: the groups that compute both

    def _analyze(self, roots: list[UOp]) -> None:
        """Analyze all nodes that the values of ``roots`` depend on."""
        self.nodes = shared_work.pair(toposort(roots, stop=is_effect_token))
        self.cost = cost.costs(self.nodes)
        self.varies = varying_axes(self.nodes)
        self.contractions = cost.contractions(self.nodes, self.varies)
        self.materialized = cost.materialized_sums(
            self.nodes, self.contractions, roots) | self.forced_buffers
        self.depth = cost.reduction_depths(self.nodes)
        self.readers = consumers(self.nodes)
        self.epilogue_of = epilogues.epilogue_contractions(self.nodes, self.readers,
                                                           self.contractions, roots)

    @property
    def graphs(self) -> tuple[UOp]:
        return (self.fn,)

    # ---- the walk

    def run(self) -> Fusion:
        results = drop_tokens(self.fn.src)
        self._walk(set(results))
        if len(results) < len(self.fn.src):
            self._effects(results)
        live = {self._find(g) for g in self.groups}
        self.groups = topological_order([g for g in self.groups if g in live])
        return self

    def _walk(self, results: Set[UOp] = frozenset()) -> None:
        self._results = results
        for node in reversed(self.nodes):
            if node in results or node in self._uses:
                self._assign_groups(node, node in results)
            if node in self._waiters:
                for group in self._waiters.pop(node):
                    for s in (node,) if node in self.writer else () if node.op.is_isolated \
                            else node.src:
                        self._run_after(s, group)

    def _effects(self, roots: list[UOp]) -> None:
        """Place the effects whose values nobody reads, and chain all effects in order."""
        all_effects = effects.ordered_effects(self.fn.src)
        for run, placed_later in effects.unplaced_runs(all_effects, self.writer):
            later_groups = {self.writer[e] for e in placed_later}
            available = {n for n, g in self.writer.items()
                         if not later_groups or later_groups.isdisjoint((g, *read_through([g])))}
            for effect in run:
                group = self.writer[effect] = self._new_group(())
                group.call = effect
                self.operands[effect] = effects.operands(effect, available, self.writer)
                roots += drop_tokens(self.operands[effect])
                self._read(effect)
                available.add(effect)  # later effects may read it
            self._analyze(roots)
            self._walk()
        for before, after in itertools.pairwise(all_effects):
            self.writer[after].reads.add(self.writer[before])

    def _assign_groups(self, node: UOp, is_result: bool) -> None:
        uses = self._resolved(self._uses.pop(node, {}))
        for group in uses:
            group.pending.discard(node)
        op = node.op
        if op in (ops.PARAM, ops.KERNEL) or not math.prod(node.shape) and op is not ops.GETTUPLE:
            return  # it is there, or has no elements to compute
        is_buffer = is_result or node in self.materialized or \
            any(MEMORY in indices for indices in uses.values())
        if op in shared_work.PARTNER_OP and self._share_work(node, uses):
            return
        if op is ops.CONCAT and concat_in_place.wastes_work(node, self.cost, uses, is_buffer):
            self.materialized.add(node)
            is_buffer = True
        if op is ops.CONST or op is ops.IOTA:
            if is_buffer:
                self._buffer(node, uses)
        elif op is ops.GETTUPLE:
            self._get(node, uses)
        elif op in ops.MULTI_RESULT:
            self.operands[node] = effects.operand_buffers(node)
            self._read(node)
            for s in accessors.operands(node):
                self._wait_in_memory(s, self.writer[node])
        elif op is ops.SCATTER:
            self._scatter(node, uses)
        elif op is ops.CONCAT and concat_in_place.is_profitable(node, self.cost, is_buffer):
            self._assemble(node, uses)
        elif op is ops.ARG_PAIR or op.kind == "movement" and not (
                is_buffer or needs_buffer(node, self._resolved(uses), self)):
            self._compute_everywhere(node, uses)
        elif is_buffer or op.kind == "movement":
            self._buffer(node, uses)
        elif not self._compute(node, uses):
            store = self._compute_everywhere if cost.is_widening_cast(node) else self._buffer
            store(node, self._resolved(uses))

    def _resolved(self, uses: Uses) -> Uses:
        """Return the uses with merged groups resolved and duplicate indices dropped."""
        out: Uses = {}
        for group, indices in uses.items():
            resolved = out.setdefault(self._find(group), [])
            resolved.extend(i for i in indices if i not in resolved)
        return out

    # ---- computing a node in the groups that read it

    def _compute(self, node: UOp, uses: Uses) -> bool:
        """Compute the node inside the groups that read it, if that is legal and pays."""
        uses = self._resolved(uses)  # groups may have been merged since
        if len(uses) > 1 and may_merge(uses, self.forced_buffers):
            self._merge(list(uses))
            uses = self._resolved(uses)
        copies = sum(len(i) for i in uses.values())
        if copies > 1 and reads_many_elements(node, self.cost[node]):
            return False
        if self._recomputed.recomputes(node, uses, copies, self.contractions):
            self._compute_everywhere(node, uses)
            return True
        if len(uses) > 1 and node not in self.forced_buffers and (
                is_cheaper_from_read(node, uses, self._is_read)
                or is_step_from_read(node, uses, self._is_read)):
            self._compute_everywhere(node, uses)
            return True
        if copies == 1:
            (group, (index,)), = uses.items()
            pays = fits(node, group, index, self)
        else:
            elementwise = node.op.kind == "elementwise"
            pays = may_recompute(node, copies, self) and (
                elementwise and cost.is_cheap(self.cost[node]) and all(
                    may_repeat(node, g, i, self) if g.contraction is None else
                    prologues.is_profitable(node, g, i, self.varies)
                    for g, indices in uses.items() for i in indices) or node.op is ops.GATHER) \
                and not (len(uses) > 1 and cost.narrows_reductions(node, self.cost[node]))
            if elementwise and not pays and len(uses) == 1:
                (group, indices), = uses.items()
                pays = may_recompute(node, copies, self) and \
                    cost.is_cheap_in_rows(node, group, indices, self.cost) and \
                    all(may_repeat(node, group, index, self) for index in indices)
                if not pays:
                    return self._stage(node, group, indices)
        if pays:
            self._compute_everywhere(node, uses)
        return pays

    def _is_read(self, group: Group, node: UOp, index: Tokens) -> bool:
        """Whether a group reads a node at an index, as far as its readers are placed."""
        indices = self._resolved(self._uses.get(node, {})).get(group, [])
        return self.value_index(node, index) in indices

    def _compute_everywhere(self, node: UOp, uses: Uses) -> None:
        for group, indices in uses.items():
            for index in indices:
                self._add(node, group, index)

    def _merge(self, groups: list[Group]) -> None:
        first, *merged = sorted(groups, key=creation_order)
        for g in merged:
            first.merge(g)
            self._merged[g] = first
            for node, _ in g.roots:
                self.writer[node] = first
        for h in self.groups:
            if not h.reads.isdisjoint(merged):
                h.reads = {self._find(r) for r in h.reads}

    def _stage(self, node: UOp, group: Group, indices: list[Tokens]) -> bool:
        """Stage a row of the value inside the kernel: it is read at several indices of one row."""
        loops = self.reduction_loops
        fill_index = min(indices, key=lambda index: (  # in the loop that runs first, least often
            loops.latest(index, len(self.nodes)), group.recompute_count(index, loops.outer)))
        if not may_stage(node, group, indices, fill_index, self):
            return False
        group.stages[node] = fill_index
        group.add_row(fill_index)
        self._add(node, group, fill_index)
        return True

    def _add(self, node: UOp, group: Group, index: Tokens) -> None:
        """Compute ``node`` at ``index`` in ``group``; its operands are read there."""
        indices = group.inside.setdefault(node, [])
        if index in indices:
            return
        indices.append(index)
        group.work += node.op.cost + (node.op in CONDITIONAL_OPS)
        if group.has_one_row or group.shortest_row:
            partial_vectors.note_rows(group, node, self.varies)
        if node.op is ops.REDUCE:
            if node in self.contractions:
                group.contraction = node
            else:
                group.reduces += 1
                group.add_row(index)
            self._use(node.src[0], group,
                      self.reduction_loops.operand_index(node, index, self.depth[node]))
        elif node.op is ops.GATHER:
            self._use(memory_of(gather_source(node)), group, MEMORY)
            self._wait_in_memory(node.src[0], group)
            for s in node.src[1:]:
                self._use(s, group, index[:len(s.shape)])
        elif node.op is ops.BARRIER:
            self._use(node.src[0], group, index)
            for s in node.src[1:]:
                self._run_after(s, group)
        else:
            for i, s in enumerate(node.src):
                self._use(s, group, source_index(node, i, index))

    def _run_after(self, node: UOp, group: Group) -> None:
        """Make a group run after a node is computed."""
        if node not in self.writer:
            self._waiters.setdefault(node, set()).add(group)
        elif self.writer[node] is not self._find(group):
            self._find(group).reads.add(self.writer[node])

    def _wait_in_memory(self, node: UOp, group: Group) -> None:
        """Make a group run after the barriers between a node and its memory."""
        while node.op in VIEW_OPS:
            for s in node.src[1:]:
                self._run_after(s, group)
            node = node.src[0]

    def _use(self, node: UOp, group: Group, index: Tokens) -> None:
        if node in self.writer:
            group = self._find(group)
            if self.writer[node] is not group:
                group.reads.add(self.writer[node])
            return
        index = self.value_index(node, index)
        self._uses.setdefault(node, {}).setdefault(group, []).append(index)
        if index != MEMORY and self.cost[node].weight and not cost.is_cheap(self.cost[node]):
            group.pending.add(node)  # it would be written: it is not in memory, nor recomputed

    def value_index(self, node: UOp, index: Tokens) -> Tokens:
        """Return an index with an equal element: the first along axes of equal reductions, so that
        one is computed for all."""
        if node.op is not ops.REDUCE or node in self.contractions or index == MEMORY:
            return index
        varies = self.varies[node]
        return tuple([t if varies >> a & 1 else ZERO for a, t in enumerate(index)])

    # ---- work that two nodes share

    def _share_work(self, node: UOp, uses: Uses) -> bool:
        """Compute a node in one group with its partner, if they would not be anyway, and that pays.
        Others read a buffer that this group writes."""
        if node not in self._hosts:
            self._choose_host(node, uses)
        group = self._hosts.pop(node, None)
        if group is None:
            return False
        index = identity_index(node.shape)
        others = uses.keys() - {group}
        if others or node in self._results:
            self._write_in(group, node, index, others)
        else:
            self._add(node, group, index)
        return True

    def _choose_host(self, node: UOp, uses: Uses) -> None:
        """Choose the group that computes a node and its partner, unless all groups that read them
        can be merged."""
        partner = shared_work.partner(node, self.readers)
        if partner is None or partner in self.writer or \
                not self.materialized.isdisjoint((node, partner)):
            return
        both = {node: uses, partner: self._resolved(self._uses.get(partner, {}))}
        results, readers = self._results & both.keys(), shared_work.join_uses(*both.values())
        if not both[partner] and partner not in results or len(readers) + len(results) < 2 or \
                both[partner] == uses and uses or MEMORY in itertools.chain(*readers.values()):
            return
        if not results and may_merge(readers, self.forced_buffers):
            self._merge(list(readers))
            return
        group = shared_work.host(node, readers, lambda g: all(
            self._takes(g, n, readers.keys() - {g}) for n in both))
        written = [n for n, u in both.items() if n not in results and u.keys() - {group}]
        if shared_work.saves_time(node, len(written), group is None and not results, self.cost):
            self._hosts = dict.fromkeys(both, group or self._new_group(node.shape))

    # ---- buffers

    def _new_group(self, space: ops.Shape) -> Group:
        group = Group(len(self.groups), space)
        self.groups.append(group)
        return group

    def _buffer(self, node: UOp, uses: Uses) -> None:
        """Give the node a buffer, written by a group that reads it at its own index if possible."""
        uses = self._resolved(uses)  # groups may have been merged since
        group = next((g for g in sorted(uses, key=creation_order)
                      if node not in self.materialized and self._may_join(node, g, uses)), None)
        if group is not None:
            self._write_in(group, node, uses.pop(group)[0], uses)
        else:
            group = self._same_key_group(node, uses) or self._new_group(node.shape)
            self._write_in(group, node, identity_index(node.shape), uses)
        if node.op is ops.REDUCE:
            self._reductions.setdefault(cost.reduced_value(node), node)

    def _write_in(self, group: Group, node: UOp, index: Tokens, readers: Iterable[Group]) -> None:
        """Compute a node in a group, which writes a buffer that others read."""
        group.roots.append((node, index))
        self._write(node, group, readers)
        self._add(node, group, self.value_index(node, index))

    def _same_key_group(self, node: UOp, uses: Uses) -> Group | None:
        """Return the group that reduces the same value over the same axes, as max and argmax do, or
        that writes the partner of the node."""
        if node in self.forced_buffers or node in self.contractions:
            return None
        other = shared_work.partner(node, self.readers)
        same_key = self._reductions.get(cost.reduced_value(node)) if node.op is ops.REDUCE else None
        if same_key is not None and ops.ARG_PAIR in (node.src[0].op, same_key.src[0].op):
            other = same_key
        group = self._find(self.writer[other]) if other in self.writer else None
        index = identity_index(node.shape)
        return group if group is not None and (other, index) in group.roots and \
            group.is_own(index) and self._takes(group, node, uses) else None

    def _takes(self, group: Group, node: UOp, readers: Iterable[Group]) -> bool:
        """Whether a group may compute a node at its own index, and others read it."""
        others = {*readers, *map(self._find, self._waiters.get(node, ()))}
        return not group.is_fixed and group not in others and \
            fits(node, group, identity_index(node.shape), self) and not reads_any([group], others)

    def _may_join(self, node: UOp, group: Group, uses: Uses) -> bool:
        indices = uses[group]
        if len(indices) != 1 or group.is_fixed or indices[0] == MEMORY:
            return False
        index = indices[0]
        if any(t == ZERO and n > 1 for t, n in zip(index, node.shape)):
            return False  # equal along an axis, of which the group reads the first element only
        if not group.is_own(index) and (
                group.contraction is not None or not group.can_be_row(index) or
                partial_vectors.cuts_map(node, group, index, self.lane_bytes)):
            return False
        waiting = map(self._find, self._waiters.get(node, ()))
        return fits(node, group, index, self) and not reads_any([group], {*uses, *waiting})

    def _write(self, node: UOp, group: Group, readers: Iterable[Group]) -> None:
        """Record that ``group`` writes the buffer of ``node``, and that others read it."""
        self.writer[node] = group
        for other in readers:
            other.reads.add(group)

    def _scatter(self, node: UOp, uses: Uses) -> None:
        """Write the base first; then the updates are combined into it in index order."""
        base_value, *indices, updates = node.src
        base_group = self._new_group(node.shape)
        base_group.base_of = node
        base_group.roots.append((base_value, identity_index(node.shape)))
        group = self._new_group(updates.shape)
        group.scatter = node
        group.reads.add(base_group)
        self._write(node, group, uses)
        index = identity_index(updates.shape)
        varies = self.varies[updates]
        for s in indices:
            varies |= self.varies[s]
        # A loop that no value depends on is dropped: in that case read the updates from memory.
        is_full_space = varies == long_axes(updates.shape)
        hazards = hazard_operands(node)
        self._use(updates, group, index if is_full_space and updates not in hazards else MEMORY)
        for s in indices:
            self._use(s, group, MEMORY if s in hazards else index[:len(s.shape)])
        self._use(base_value, base_group, identity_index(node.shape))

    def _assemble(self, node: UOp, uses: Uses) -> None:
        """Let groups of their own write the parts of a CONCAT."""
        group = self._new_group(())
        group.concat = node
        self._write(node, group, uses)
        for s in node.src:
            if memory_of(s).op is not ops.CONST:
                self._use(memory_of(s), group, MEMORY)
            self._wait_in_memory(s, group)

    def _read(self, call: UOp) -> None:
        for s in drop_tokens(self.operands[call]):
            self._use(s, self.writer[call], MEMORY)

    def _get(self, node: UOp, uses: Uses) -> None:
        call = node.src[0]
        group = self.writer.get(call)
        if group is None:
            group = self.writer[call] = self._new_group(())
            group.call = call
        self._write(node, group, uses)
        if call not in self.operands:  # else it was placed with the readers of its other results
            self._uses.setdefault(call, {})

    def _find(self, group: Group) -> Group:
        while group in self._merged:
            group = self._merged[group]
        return group
