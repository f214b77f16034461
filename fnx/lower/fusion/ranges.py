"""Ranges: build a kernel over loops from a group of tensor nodes.

    before  Group, space (m, n): ADD(REDUCE(MUL(EXPAND x, EXPAND w), ADD, axis 1), EXPAND b)
    after   STORE(out[r0, r1], REDUCE(LOAD(x[r0, r2]) * LOAD(w[r2, r1]), r2, ADD) + LOAD(b[r1]))

Every node is built once per index it is computed at, operands first. Buffers are numbered in the
order of first use, results last, so that equal groups yield the identical KERNEL.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.expr import Expr, maximum, minimum
from fnx.core.ir.op import merge_by_axis
from fnx.core.ir.uop import UOp, copy_locs, rebuild, toposort
from fnx.core.rewriting import symbolic
from fnx.core.rewriting.residues import select_multiples
from fnx.core.support.errors import Location, SpecError
from fnx.lower.analysis.memory import LaunchOperand, View, nodes_of
from fnx.lower.fusion import concat_in_place
from fnx.lower.fusion.call_kernels import call_steps
from fnx.lower.fusion.data_index import data_index
from fnx.lower.fusion.group import Group, gather_source, memory_of
from fnx.lower.fusion.index_tokens import (
    ZERO,
    Token,
    Tokens,
    identity_index,
    index_node,
    source_index,
)
from fnx.lower.fusion.kernel_steps import ControlFlowStep, KernelStep, lines_of
from fnx.lower.fusion.kernelize import Fusion


def build_kernels(fusion: Fusion) -> list[KernelStep | ControlFlowStep]:
    """Build the kernels of all groups, in execution order."""
    position = {n: i for i, n in enumerate(fusion.nodes)}
    part_view = written_in_place(fusion)
    steps: list[KernelStep | ControlFlowStep] = []
    for group in fusion.groups:
        if group.call is not None:
            steps += call_steps(group.call, tuple(fusion.operands[group.call]))
        elif group.concat is None:
            step = _Builder(fusion, group, position).step()
            steps.append(_redirect_operands(step, part_view) if part_view else step)
        else:
            steps += _concat_copies(group.concat, part_view)
    return steps


def _concat_copies(concat: UOp, part_view: Mapping[UOp, View]) -> Iterator[KernelStep]:
    """Yield the copies of the parts that are written elsewhere."""
    for part, view in concat_in_place.parts_of(concat):
        if part.op is ops.CONST:
            yield _redirect_operands(_fill_step(part, view), part_view)
        else:
            step = _redirect_operands(copy_step(part, part, view), part_view)
            source, target = step.operands
            if source != target:
                yield step


def written_in_place(fusion: Fusion) -> dict[UOp, View]:
    """Return the parts of CONCATs that are written in place, as views."""
    wholes = [g.concat for g in fusion.groups if g.concat is not None]
    if not wholes:
        return {}
    read = [n for operands in fusion.operands.values() for n in operands]
    return concat_in_place.part_views(wholes, fusion.writer,
                                      {*map(memory_of, (*fusion.fn.src, *read))})


def _redirect_operands(step: KernelStep, part_view: Mapping[UOp, View]) -> KernelStep:
    """Redirect operands that are parts of a CONCAT to its buffer."""
    def redirect(operand: LaunchOperand) -> LaunchOperand:
        if not isinstance(operand, View):
            return part_view.get(operand, operand)
        if operand.node not in part_view:
            return operand
        outer = part_view[operand.node]
        return operand.replace(node=outer.node, start=outer.start + operand.start)
    if not any(n in part_view for n in nodes_of(step.operands)):
        return step
    writes = tuple([part_view[n].node if n in part_view else n for n in step.writes])
    return step.replace(operands=tuple(map(redirect, step.operands)), writes=writes)


def copy_step(source: LaunchOperand, node: UOp, to: LaunchOperand) -> KernelStep:
    """Return a kernel that copies the buffer of a node to another buffer."""
    r = build.range_(math.prod(node.shape), 0)
    x, o = (build.index_into(build.ref(i, node.dtype, r.src), r) for i in (0, 1))
    kernel = build.kernel([build.store(o, build.load(x))], "copy", (0,))
    writes = nodes_of([to])
    return KernelStep(kernel, (source, to), tuple(writes), None, writes[0].locs)


def _fill_step(constant: UOp, to: View) -> KernelStep:
    r = build.range_(math.prod(constant.shape), 0)
    o = build.index_into(build.ref(0, constant.dtype, r.src), r)
    kernel = build.kernel([build.store(o, constant)], "fill", (0,))
    return KernelStep(kernel, (to,), to.nodes, None, to.node.locs)


class _Builder:
    """Builds the kernel of one group."""

    def __init__(self, fusion: Fusion, group: Group, position: dict[UOp, int]) -> None:
        self.fusion, self.group, self.position = fusion, group, position
        self.extent = {**fusion.reduction_loops.extent, **dict(enumerate(group.space))}
        self.slots: dict[UOp, int] = {}
        self.ranges = _Ranges(self.extent, len(group.space))
        self.tokens: dict[Token, UOp] = {}
        self.done: dict[tuple[UOp, Tokens], UOp] = {}
        self.stages: dict[UOp, tuple[UOp, tuple[int, ...]]] = {}

    def step(self) -> KernelStep:
        group = self.group
        for node in sorted(group.inside, key=self.position.__getitem__):
            for index in group.inside[node]:
                self.done[node, index] = self._compute(node, index)
        stores, writes = self._scatter() if group.scatter is not None else self._results()
        order = self._order()
        kernel = build.kernel(stores, self._name(), order)
        sliced = any(n.op is ops.SHRINK for n in group.inside)
        locs = self._locs(writes)
        return KernelStep(kernel, tuple(self.slots), tuple(writes), None, locs, sliced)

    def _locs(self, writes: Sequence[UOp]) -> tuple[Location, ...]:
        """Return the lines of the results, after the line with the most work if that is another.

            h = x @ w            m.py:3    2 m n k operations
            return tanh(h + b)   m.py:4    some 20 m n       (m.py:3, m.py:4)
        """
        locs = lines_of(writes)
        work_of: Counter[Location] = Counter()
        for node in self.group.inside:
            terms = node.src[0] if node.op is ops.REDUCE else node
            for loc in node.locs if node.op.cost else ():
                work_of[loc] += node.op.cost * math.prod(terms.shape)
        if work_of and max(work_of.values()) > max(map(work_of.__getitem__, locs), default=0):
            heaviest = max(self.group.inside, key=lambda n: max(
                map(work_of.__getitem__, n.locs), default=0))
            locs = lines_of((heaviest, *writes))
        return locs

    def _order(self) -> list[int]:
        """Return the ids of the loops: row loops first, reduction loops after the group's own."""
        loop_rank = {loop: i for i, loop in enumerate(self.group.order)}
        return sorted([r.arg.id for r in self.ranges.values()],
                      key=lambda id: loop_rank.get(id, id))

    def _results(self) -> tuple[list[UOp], list[UOp]]:
        values = [(node, index, self._read(node, index)) for node, index in self.group.roots]
        scatter_target = self.group.base_of  # a scatter's base is written to the scatter's buffer
        stores, writes = [], []
        for node, index, value in values:
            written = node if scatter_target is None else scatter_target
            stores.append(build.store(self._element(written, index), value))
            writes.append(written)
        return stores, writes

    def _name(self) -> str:
        """Name the kernel by what it does, from its structure only."""
        group = self.group
        kind = "scatter" if group.scatter is not None else "contract" if group.contraction \
            is not None else "rows" if group.stages else "reduce" if group.reduces else "map"
        seen = dict.fromkeys(n.op.name.lower() for n in group.inside
                             if n.op.kind in ("elementwise", "pair"))
        return "_".join([kind, *list(seen)[:3]])

    # ---- reading

    def _read(self, node: UOp, index: Tokens) -> UOp:
        """Return the value of a node at an index: computed here, staged here, constant or
        loaded."""
        index = self.fusion.value_index(node, index)
        value_built = self.done.get((node, index))
        if value_built is not None:
            return value_built
        if node in self.stages:
            stage, positions = self.stages[node]
            value = build.load(build.index_into(stage, *[self._index(index[p]) for p in positions]))
        elif node.op is ops.CONST:
            value = node
        elif node.op is ops.IOTA:
            value = build.cast(self._index(index[0]), node.dtype)
        elif self._in_memory(node):
            value = build.load(self._element(node, index), self._valid(node.shape, index))
        else:
            raise SpecError(f"{node}: expected a buffer or a value of this kernel")
        self.done[node, index] = value
        return value

    def _in_memory(self, node: UOp) -> bool:
        """Whether the node is read from a buffer here: it is neither computed nor a constant."""
        return node.op is ops.PARAM or (node in self.fusion.writer and node.src != ()
                                        and node not in self.group.inside)

    def _element(self, node: UOp, index: Tokens) -> UOp:
        return build.index_into(self._ref(node), *[self._index(t) for t in index])

    def _ref(self, node: UOp) -> UOp:
        slot = self.slots.setdefault(memory_of(node), len(self.slots))
        return build.ref(slot, node.dtype, node.shape)

    def _index(self, token: Token) -> UOp:
        return index_node(token, self.ranges, self.tokens)

    def _valid(self, shape: ops.Shape, index: Tokens, within: bool = True) -> UOp | None:
        """Return the condition under which an index is in bounds; None if it always is.

        ``within``: also check the tokens that it was split or joined from; out of their bounds its
        parts are meaningless.
        """
        limits: list[tuple[Token, int]] = list(zip(index, shape))
        if within:
            for token, _ in limits:  # grows
                limits += _token_bounds(token)
        conditions: dict[UOp, None] = {}
        for token, n in limits:
            low, high = self._bounds(token)
            if low < 0 or high >= n:
                conditions[self._in_bounds(self._index(token), n, low < 0, high >= n)] = None
        return functools.reduce(build.and_, conditions) if conditions else None

    def _in_bounds(self, i: UOp, n: int, low: bool, high: bool) -> UOp:
        at = Expr(i)
        below, above = at < n, at.like(0) <= at
        return (above & below if low and high else below if high else above).node

    def _bounds(self, token: Token) -> tuple[int, int]:
        if type(token) is int:
            return (0, 0) if token == ZERO else (0, self.extent[token] - 1)
        if token[0] == "shift":
            low, high = self._bounds(token[1])
            return low + token[2], high + token[2]
        if token[0] == "flip":
            low, high = self._bounds(token[1])
            return token[2] - 1 - high, token[2] - 1 - low
        if token[0] == "part":
            return 0, token[3] - 1
        if token[0] == "data":
            return 0, token[2] - 1
        if token[0] == "window":
            ends = [[k * end for end in self._bounds(t)] for t, k in token[1]]
            return sum(map(min, ends)) // token[2], sum(map(max, ends)) // token[2]
        low = high = 0
        for t, n in token[1]:
            t_low, t_high = self._bounds(t)
            low, high = low * n + t_low, high * n + t_high
        return low, high

    # ---- computing

    def _compute(self, node: UOp, index: Tokens) -> UOp:
        rule = _RULES.get(node.op)
        if rule is not None:
            value = rule(self, node, index)
        elif node.op.kind in ("elementwise", "pair"):
            src = tuple([self._read(s, index) for s in node.src])
            value = _select(*src) if node.op is ops.WHERE else \
                UOp(node.op, node.dtype, src, node.arg)
        elif not node.src:
            value = self._read(node, index)
        elif node.op is ops.RESHAPE and self._in_memory(memory_of(node)):
            value = build.load(self._element(node, index), self._valid(node.shape, index))
        else:
            value = self._read(node.src[0], source_index(node, 0, index))
        if self.group.stages.get(node) == index:
            self._stage(node, index, value)
        return copy_locs(value, node)

    def _stage(self, node: UOp, fill: Tokens, value: UOp) -> None:
        own_tokens = set(self.group.own_index)
        positions = tuple(i for i, t in enumerate(fill) if t != ZERO and t not in own_tokens)
        stage = build.stage(value, [self.ranges[fill[p]] for p in positions],
                            len(self.stages))
        self.stages[node] = stage, positions

    def reduce(self, node: UOp, index: Tokens) -> UOp:
        inner = self.fusion.reduction_loops.operand_index(node, index, self.fusion.depth[node])
        value = self._read(node.src[0], inner)
        loops = [self.ranges[inner[a]] for a in node.arg.axes if inner[a] != ZERO]
        return build.reduce_ranges(value, node.arg.monoid, loops)

    def gather(self, node: UOp, index: Tokens) -> UOp:
        x, *index_nodes = node.src
        axes = node.arg.axes
        data_tokens = [("data", self._clamped(self._read(s, index[:len(s.shape)]), x.shape[a]),
                        x.shape[a]) for a, s in zip(axes, index_nodes)]
        tokens = merge_by_axis(axes, data_tokens, index[len(index_nodes[0].shape):])
        source = gather_source(node)
        while x is not source:
            x, tokens = x.src[0], source_index(x, 0, tokens)
        return build.load(self._element(x, tokens), self._valid(x.shape, tokens))

    def _clamped(self, i: UOp, n: int) -> UOp:
        exposed_index, (low, high) = data_index(i)
        clamped = Expr(exposed_index)
        if exposed_index.op is ops.CAST and n - 1 <= i.dtype.limits[1]:
            clamped = Expr(i)  # narrower vectors; huge unsigned integers are negative as indices
        clamped = maximum(clamped, 0) if low < 0 else clamped
        return (minimum(clamped, n - 1) if high >= n else clamped).cast(dtypes.index).node

    def pad(self, node: UOp, index: Tokens) -> UOp:
        x, fill = node.src
        inner = source_index(node, 0, index)
        valid = self._valid(x.shape, inner, within=False)
        value = self._read(x, inner)
        if valid is None:
            return value
        valid, value = select_multiples(valid, value)
        return _select(valid, value, self._read(fill, ()))

    def fold(self, node: UOp, index: Tokens) -> UOp:
        y, w = node.src[0], node.arg
        inner = source_index(node, 0, index)
        valid = self._valid(y.shape, inner, within=False)
        value = self._read(y, inner)
        if w.stride > 1:
            offset = Expr(self._index(index[w.axis])) - \
                Expr(self._index(index[w.offset])) * w.dilation
            at_window = (offset % w.stride).eq(0).node
            valid = at_window if valid is None else build.and_(at_window, valid)
        return value if valid is None else build.where(valid, value, build.const_like(value, 0))

    def concat(self, node: UOp, index: Tokens) -> UOp:
        """Select the last part that starts at or before the index."""
        at = Expr(self._index(index[node.arg]))
        value = self._read(node.src[-1], source_index(node, len(node.src) - 1, index))
        end = node.shape[node.arg]
        for i in range(len(node.src) - 2, -1, -1):
            end -= node.src[i + 1].shape[node.arg]
            part = self._read(node.src[i], source_index(node, i, index))
            value = build.where((at < end).node, part, value)
        return value

    def _scatter(self) -> tuple[list[UOp], list[UOp]]:
        """Combine updates into the buffer in index order; those out of bounds are dropped.

        A STORE that combines by STORE overwrites: the last one wins; by SCATTER, there is only one.
        If nothing depends on a range, its updates are equal and go to the same element: they are
        combined first, as that range would otherwise be dropped.
        """
        node = self.group.scatter
        assert node is not None
        x, *index, updates = node.src
        update_index = identity_index(updates.shape)
        count = len(index[0].shape)
        index_values, bound_checks = [], []
        for a, i in zip(node.arg.axes, index):
            at, (low, high) = data_index(self._read(i, update_index[:count]))
            index_values.append(at)
            if low < 0 or high >= x.shape[a]:
                bound_checks.append(self._in_bounds(at, x.shape[a], low < 0, high >= x.shape[a]))
        value = self._read(updates, update_index)
        tail = map(self._index, update_index[count:])
        target = build.index_into(self._ref(node),
                                  *merge_by_axis(node.arg.axes, index_values, tail))
        if node.arg.monoid is not None:
            simplified = _simplify_indices([target, value, *bound_checks])
            used_nodes = set(toposort(simplified))
            unused_ranges = [r for i in update_index
                             if (r := self._index(i)).op is ops.RANGE and
                             r not in used_nodes]
            if unused_ranges:
                target, value, *bound_checks = simplified
                value = build.reduce_ranges(value, node.arg.monoid, unused_ranges)
        valid = functools.reduce(build.and_, bound_checks) if bound_checks else None
        combine = node.arg.monoid or (ops.SCATTER if node.arg.is_unique else ops.STORE)
        return [build.store(target, value, valid, combine)], [node]


def _select(condition: UOp, a: UOp, b: UOp) -> UOp:
    """Build a WHERE without what its condition has decided, as that of a PAD of truth is the one of
    the PAD that it selects."""
    while a.op is ops.WHERE and a.src[0] is condition:
        a = a.src[1]
    while b.op is ops.WHERE and b.src[0] is condition:
        b = b.src[2]
    if a is b:
        return a
    is_condition = a is build.const(True, dtypes.bool_) and b is build.const(False, dtypes.bool_)
    return condition if is_condition else build.where(condition, a, b)


def _simplify_indices(roots: list[UOp]) -> list[UOp]:
    """Simplify the roots until they only contain the ranges that they depend on: indices are in
    normal form, those of dimensions of length 1 are 0 (kernel/coalesce.py)."""
    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.INDEX and src[0].op is ops.REF:
            return node.with_operands((src[0], *[
                build.index_const(0) if n is build.index_const(1) else symbolic.simplify(i)
                for n, i in zip(src[0].src, src[1:], strict=True)]))
        is_index_comparison = node.dtype is dtypes.bool_ and node.op in ops.COMPARISONS and \
            src[0].dtype is dtypes.index
        return symbolic.simplify(node.with_operands(src)) if is_index_comparison else None

    return rebuild(roots, visit)


def _token_bounds(token: Token) -> list[tuple[Token, int]]:
    """Return the tokens that a token was derived from, with their extents."""
    if type(token) is int:
        return []
    kind = token[0]
    if kind == "join":
        return list(token[1])
    if kind == "part":
        return [(token[1], token[4])]
    if kind == "window":
        return [limit for t, _ in token[1] for limit in _token_bounds(t)]
    if kind == "data":
        return []
    return _token_bounds(token[1])


class _Ranges(dict[int, UOp]):
    """Loop -> RANGE, created on first use; reduction loops are numbered after the group's own."""

    def __init__(self, extent: dict[int, int], n_own: int) -> None:
        self.extent, self.n_own, self.next = extent, n_own, n_own

    def __missing__(self, loop: int) -> UOp:
        id = loop
        if loop >= self.n_own:
            id, self.next = self.next, self.next + 1
        node = self[loop] = build.range_(self.extent[loop], id)
        return node


_RULES: dict[ops.Op, Callable[[_Builder, UOp, Tokens], UOp]] = {
    ops.REDUCE: _Builder.reduce, ops.GATHER: _Builder.gather, ops.PAD: _Builder.pad,
    ops.CONCAT: _Builder.concat, ops.FOLD: _Builder.fold,
}
