"""Values: map each node, per instance of its UNROLL ranges, to the line that computes it.

A node is computed once per iteration of its innermost free loop and per value of its free UNROLL
ranges, and memoized until that loop ends. Nodes with a free VEC range are vectors. Known conditions
emit no code.

    memo    (node, values of its UNROLL ranges) -> line    valid until ``keys`` drops the entry
    keys    memo keys, by the loop that ends their scope   one list per open loop
    counter RANGE -> FOR, for the open loops               updated by emit/emit.py
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.uop import UOp, substitute, toposort
from fnx.core.rewriting import symbolic
from fnx.core.support.errors import KernelError
from fnx.core.support.record import Record
from fnx.lower.analysis.conditions import (
    INEQUALITIES,
    Conditions,
    as_positive,
    match_masked_reduce,
)
from fnx.lower.analysis.workload import is_chain
from fnx.lower.emit import masked_loads, shuffles
from fnx.lower.emit.addresses import Access, Addresses, split_lane_terms
from fnx.lower.emit.builder import ProgramBuilder
from fnx.lower.emit.column_loads import Column, ColumnLoads
from fnx.lower.emit.expansion import SINGLE_INSTANCE, ExpansionTable, Instance, extent_of

_Request = tuple[Any, UOp, Instance]  # key of the memo, node, instance


class Values:
    """The values of the nodes of one kernel, emitted to ``lines``."""

    def __init__(self, kernel: UOp, lines: ProgramBuilder, nontemporal: frozenset[int] = frozenset()
                 ) -> None:
        self.lines, self.nontemporal = lines, nontemporal
        self.conditions = Conditions()
        self.has_inequalities = any(
            n.op in INEQUALITIES and n.src[0].dtype is dtypes.index for n in toposort([kernel]))
        self.expansions = ExpansionTable(kernel)
        self.counter: dict[UOp, UOp] = {}
        self.addresses = Addresses(kernel, lines, self.value, self.counter)
        self.column_loads = ColumnLoads(kernel, self.expansions, self.addresses, self.unproven)
        self.level: dict[UOp, int] = {}  # the loop depth of a RANGE
        self._depths: dict[frozenset[UOp], int] = {}  # of free ranges, given the open loops
        self._known: dict[Any, bool | None] = {}  # (condition, instance), given the open loops
        self.memo: dict[Any, UOp] = {}
        self.keys: list[list[Any]] = [[]]

    def enter(self, r: UOp, counter: UOp) -> None:
        """Enter the loop over a range."""
        self.counter[r] = counter
        self.level[r] = len(self.keys)
        self.keys.append([])
        self._depths, self._known = {}, {}

    def leave(self, r: UOp) -> None:
        """Leave the loop and forget the values computed inside."""
        for key in self.keys.pop():
            del self.memo[key]
        del self.counter[r], self.level[r]
        self._depths, self._known = {}, {}

    def bind(self, r: UOp, counter: UOp) -> None:
        """Bind a range to a value in the innermost open loop."""
        self.counter[r] = counter
        self.level[r] = len(self.keys) - 1
        self._depths = {}

    def unbind(self, r: UOp) -> None:
        """Unbind a range whose loop has ended."""
        del self.counter[r], self.level[r]
        self._depths = {}

    def branch(self, condition: UOp) -> tuple[UOp, int]:
        """Open a branch that runs only if a condition holds."""
        return self.lines.branch(condition), len(self.keys[-1])

    def end_branch(self, branch: tuple[UOp, int]) -> None:
        """Close the branch and forget the values computed inside."""
        opened, known = branch
        self.lines.end_branch(opened)
        self._forget(known)

    def at(self, r: UOp, iteration: int, node: UOp) -> UOp:
        """Return the line of a node in one iteration of a loop that is not open."""
        known = len(self.keys[-1])
        self.bind(r, build.index_const(iteration))
        value = self.value(node)
        self.unbind(r)
        self._forget(known)
        return value

    def _forget(self, known: int) -> None:
        """Forget all but the first values of the innermost open loop."""
        while len(self.keys[-1]) > known:
            del self.memo[self.keys[-1].pop()]

    # ---- conditions -------------------------------------------------------------------------

    def truth(self, condition: UOp, instance: Instance = SINGLE_INSTANCE) -> bool | None:
        """Return whether a condition holds in all lanes of an instance; None if unknown."""
        constant_truth = self.conditions.truth(condition)
        if constant_truth is not None:
            return constant_truth
        if condition.op is ops.AND:
            truths = [self.truth(c, instance) for c in accessors.conjuncts(condition)]
            return False if False in truths else None if None in truths else True
        if condition.op not in INEQUALITIES or condition.src[0].dtype is not dtypes.index:
            return None
        key = self.key(condition, instance) if instance else condition
        if key not in self._known:
            low, high = self.addresses.bounds(*as_positive(condition), instance)
            self._known[key] = True if low > 0 else False if high <= 0 else None
        return self._known[key]

    def unproven(self, valid: Sequence[UOp], instance: Instance) -> list[UOp]:
        """Return the conjuncts of an optional validity that are not known to hold."""
        return [c for c in self.conditions.unproven(valid) if not self.truth(c, instance)]

    # ---- the memo ---------------------------------------------------------------------------

    def key(self, node: UOp, instance: Instance) -> Any:
        unrolled = self.expansions[node.ranges].unrolled
        return (node, *[instance[r] for r in unrolled]) if unrolled else node

    def depth(self, node: UOp) -> int:
        """Return the depth of the innermost open loop that a node depends on."""
        depth = self._depths.get(node.ranges)
        if depth is None:
            level = self.level
            depth = max([level[r] for r in node.ranges if r in level], default=0)
            self._depths[node.ranges] = depth
        return depth

    def remember(self, node: UOp, instance: Instance, value: UOp, depth: int) -> None:
        """Memoize a value computed elsewhere, in the loop at ``depth``."""
        key = self.key(node, instance)
        self.memo[key] = value
        self.keys[depth].append(key)

    def value(self, root: UOp, instance: Instance = SINGLE_INSTANCE) -> UOp:
        """Return the scalar or vector line of a node for one instance."""
        memo = self.memo
        root_key = self.key(root, instance)
        if root_key in memo:
            return memo[root_key]
        operand_keys: dict[Any, list[Any]] = {}  # node -> keys of its pending operands
        stack: list[_Request] = [(root_key, root, instance)]
        while stack:
            key, node, at = stack[-1]
            if key not in memo:
                keys = operand_keys.pop(key, None)
                if keys is None:
                    needs = [(self.key(n, i), n, i) for n, i in self.operands(node, at)]
                    keys = [k for k, _, _ in needs]
                    missing = [need for need in needs if need[0] not in memo]
                    if missing:
                        operand_keys[key] = keys
                        stack += reversed(missing)
                        continue
                memo[key] = self.make(node, at, [memo[k] for k in keys])
                self.keys[self.depth(node)].append(key)
            stack.pop()
        return memo[root_key]

    # ---- a node from its operands -----------------------------------------------------------

    def operands(self, node: UOp, instance: Instance) -> list[tuple[UOp, Instance]]:
        """Return the nodes (and instances) whose values ``make`` needs."""
        op = node.op
        if op is ops.RANGE or op is ops.CARRY or op is ops.GETTUPLE:
            return []
        if op is ops.REDUCE:
            instances = self.expansions[frozenset(node.src[1:])].instances(instance)
            if self.is_unrolled_chain(node):
                return [(x, i) for i in instances if (term := self._term(node, i)) is not None
                        for x in (term.mask, *term.operands) if x is not None]
            return [(x, i) for x in reduced_values(node) for i in instances]
        if op is ops.LOAD:
            offset = self.addresses.offset(accessors.index_node(node),
                                           self.expansions[node.ranges].lane)
            atoms = {a for terms in (offset.common, offset.lane) for m in terms for a in m}
            varying_atoms = sorted([a for a in atoms if a not in instance], key=lambda a: a.number)
            src = (*varying_atoms, *self.unproven(node.src[1:], instance))
        elif op is ops.PER_ITERATION or op is ops.SHUFFLE_XOR:
            src = node.src[:1]
        elif op is ops.WHERE:
            truth = self.truth(node.src[0], instance)
            src = node.src if truth is None else node.src[1:2] if truth else node.src[2:]
        elif node.dtype is dtypes.bool_ and self.truth(node, instance) is not None:
            return []
        else:
            src = node.src
        return [(s, instance) for s in src]

    def make(self, node: UOp, instance: Instance, src: list[UOp]) -> UOp:
        op = node.op
        if op is ops.CONST or op is ops.VAR:
            return node
        if op is ops.RANGE:
            return self.range_value(node, instance)
        if op is ops.LOAD:
            return self.load(node, instance)
        if op is ops.REDUCE:
            return self._chain(node, instance) if self.is_unrolled_chain(node) else \
                self.reduced(node, src)
        if op is ops.PER_ITERATION or op is ops.WHERE and len(src) == 1:
            return src[0]
        if op is ops.SHUFFLE_XOR:
            return self.lines.add(op, node.dtype, (src[0],), node.arg)
        if op is ops.MMA:  # outside of a sum: accumulate onto zero
            lanes = self.expansions[node.ranges].lanes
            operands = [self.lines.widen(s, lanes) for s in (*src, build.const(0, node.dtype))]
            return self.lines.add(op, node.dtype.vec(lanes), tuple(operands), node.arg)
        if op not in ops.ELEMENTWISE:
            raise KernelError(f"expected a value, got {node}")
        truth = self.truth(node, instance) if node.dtype is dtypes.bool_ else None
        if truth is not None:
            return build.const(truth, dtypes.bool_)
        return self.elementwise(node, instance, src)

    def range_value(self, r: UOp, instance: Instance) -> UOp:
        if r.arg.kind == "UNROLL":
            return build.index_const(instance[r])
        if r.arg.kind == "VEC":
            lanes = extent_of(r)
            return UOp(ops.LANES, dtypes.index.vec(lanes)) if lanes > 1 else build.index_const(0)
        if r not in self.counter:
            raise KernelError(f"a value is used outside the loop over {r}")
        return self.counter[r]

    def elementwise(self, node: UOp, instance: Instance, src: list[UOp]) -> UOp:
        lines = self.lines
        lane = self.expansions[node.ranges].lane
        if lane is not None and node.src[0].dtype is dtypes.index:
            for match in (self.addresses.lane_condition, self.narrow_lane_cast,
                          self.narrow_lane_division):
                line = match(node, lane, instance)
                if line is not None:
                    return line
        if node.dtype is dtypes.index and node.op in _INDEX_OPS and \
                all(s.dtype.lanes == 1 for s in src):
            return lines.integer(node.op, *src)
        return lines.across(node.op, node.dtype, src, node.arg)

    def narrow_lane_cast(self, node: UOp, lane: UOp, instance: Instance) -> UOp | None:
        """Compute a 32-bit CAST of an index linear in the lane in 32 bits (both wrap)."""
        if node.op is not ops.CAST or not node.dtype.is_integer:
            return None
        terms, constant = symbolic.linear_terms(node.src[0])
        common, varying = split_lane_terms(terms, lane)
        if list(varying) != [(lane,)]:
            return None
        lines, dtype = self.lines, node.dtype
        total = self.addresses.total(common, constant, instance)
        first = lines.add(ops.CAST, dtype, (total,))
        steps = UOp(ops.LANES, dtype.vec(extent_of(lane)))
        step = varying[(lane,)] % (1 << dtype.bits)
        if step != 1:
            steps = lines.across(ops.MUL, dtype, (steps, UOp(ops.CONST, dtype, (), step)))
        return lines.across(ops.ADD, dtype, (first, steps))

    def narrow_lane_division(self, node: UOp, lane: UOp, instance: Instance) -> UOp | None:
        """Divide lanes by a constant in 32 bits where they fit: vectors have no products of 64 bits
        that give the high half."""
        if node.op not in (ops.IDIV, ops.REM) or lane not in node.src[0].ranges or \
                node.src[1].op is not ops.CONST:
            return None
        low, high = symbolic.bounds(node.src[0])
        divisor = build.const_of(node.src[1])
        if not 0 <= low <= high <= dtypes.uint32.limits[1] >= divisor > 0:
            return None
        narrow = build.cast(node.src[0], dtypes.uint32)
        dividend = self.narrow_lane_cast(narrow, lane, instance)
        if dividend is None:
            value = self.value(node.src[0], instance)
            dividend = self.lines.across(ops.CAST, dtypes.uint32, (value,))
        out = self.lines.across(node.op, dtypes.uint32,
                                (dividend, build.const(divisor, dtypes.uint32)))
        return self.lines.across(ops.CAST, dtypes.index, (out,))

    def is_unrolled_chain(self, node: UOp) -> bool:
        """Return whether a REDUCE over unrolled ranges adds its terms in order."""
        return is_chain(node) and self.expansions[frozenset(node.src[1:])].lanes == 1

    def _term(self, node: UOp, instance: Instance) -> _Term | None:
        """Return what a REDUCE takes in of an instance; None if its mask never holds there."""
        condition, x = match_masked_reduce(node) or (None, accessors.value(node))
        truth = condition is None or self.truth(condition, instance)
        is_product = node.arg.monoid is ops.ADD and (
            x.op is ops.MMA or x.op is ops.MUL and x.dtype.is_float and self.lines.fma)
        return None if truth is False else _Term(
            None if truth else condition, x, x.src if is_product else (x,))

    def _chain(self, node: UOp, instance: Instance) -> UOp:
        """Add the terms of all instances in order."""
        closed = frozenset(node.src[1:])
        lanes = self.expansions[accessors.value(node).ranges | closed].lanes
        first, *others = self.expansions[closed].instances(instance)
        total = self.lines.widen(self.value(accessors.value(node), first), lanes)
        for at in others:
            total = self.accumulate(node, total, at)
        return total

    def accumulate(self, node: UOp, accumulator: UOp, instance: Instance) -> UOp:
        """Combine an accumulator of a REDUCE with the value of an instance."""
        term = self._term(node, instance)
        if term is None:
            return accumulator
        lines, dtype = self.lines, accumulator.dtype
        operands = [lines.widen(self.value(v, instance), dtype.lanes) for v in term.operands]
        if term.operands == (term.value,):
            combined = lines.apply_monoid(node.arg.monoid, accumulator, operands[0])
        else:
            is_mma = term.value.op is ops.MMA
            combined = lines.add(ops.MMA if is_mma else ops.MULACC, dtype,
                                 (*operands, accumulator), term.value.arg if is_mma else None)
        return combined if term.mask is None else lines.across(
            ops.WHERE, dtype.scalar, (self.value(term.mask, instance), combined, accumulator))

    def reduced(self, node: UOp, values: Sequence[UOp]) -> UOp:
        """Reduce the values of all instances, then the lanes."""
        lines, monoid = self.lines, node.arg.monoid
        lanes = self.expansions[frozenset(node.src[1:])].lanes
        max_lanes = max([lanes, *[v.dtype.lanes for v in values]])  # some instances may be scalars
        vectors = [lines.widen(v, max_lanes) for v in values]
        if node.src[0].op is ops.ARG_PAIR:
            count = len(vectors) // 2
            return lines.place_of(monoid, vectors[:count], vectors[count:], lanes > 1)
        total = lines.total(monoid, vectors)
        return total if lanes == 1 else lines.reduce_lanes(monoid, total)

    # ---- memory -----------------------------------------------------------------------------

    def masks(self, valid: Sequence[UOp], instance: Instance) -> tuple[UOp | None, UOp | None]:
        """Return the scalar condition and the lane mask of a validity.

        Each is None if there is nothing to test. The scalar condition is FALSE if the validity
        never holds.
        """
        scalar = vector = None
        for c in self.unproven(valid, instance):
            if self.truth(c, instance) is False:
                return FALSE, None
            v = self.value(c, instance)
            if v.dtype.lanes == 1:
                scalar = self.lines.both(scalar, v)
            else:
                vector = self.lines.both(vector, v)
        return scalar, vector

    def load(self, node: UOp, instance: Instance) -> UOp:
        expansion = self.expansions[node.ranges]
        _, lane, lanes = expansion
        lines, dtype, depth = self.lines, node.dtype, self.depth(node)
        if lane is not None:
            gap_range = shuffles.find_range(
                accessors.index_node(node), lines.permuted, self.conditions.unproven(node.src[1:]),
                self.addresses.offset(accessors.index_node(node), lane), expansion)
            if gap_range is not None:
                return self.load_interleaved(node, instance, lane, gap_range)
        if lane is not None and shuffles.is_strided(
                accessors.index_node(node), lines.permuted,
                self.addresses.offset(accessors.index_node(node), lane)):
            return self.load_strided(node, instance, lane)
        columns = self.column_loads.block(node, instance)
        if columns:
            return self.load_block(node, instance, columns)
        access = self.addresses.access(accessors.index_node(node), lane, instance)
        scalar, vector = self.masks(node.src[1:], instance)
        if scalar is FALSE:
            return build.const(0, dtype)
        if access.stride == 0 and vector is None:
            src = (access.address,) if scalar is None else (access.address, scalar)
            return lines.add(ops.LOAD, dtype, src, min_depth=depth)
        mask = lines.both(scalar, vector)
        if access.stride == 0:
            assert mask is not None
            return masked_loads.load_scalar(self.addresses, access, mask, depth)
        if mask is not None:
            mask = lines.widen(mask, lanes)
            if access.stride == -1:
                mask = lines.reverse(mask)
        loaded = masked_loads.load(self.addresses, access, dtype.vec(lanes), mask, depth)
        return lines.reverse(loaded) if access.stride == -1 else loaded

    def load_block(self, node: UOp, instance: Instance, columns: Sequence[Column]) -> UOp:
        """Load one column of a block; the others are loaded with it."""
        key, depth = self.key(node, instance), self.depth(node)
        loaded = {self.key(c.load, c.instance): (c, value) for c, value in zip(
            columns, self.column_loads.load(columns, depth))}
        _, out = loaded.pop(key)
        for other, (column, value) in loaded.items():
            if other not in self.memo:
                self.remember(column.load, column.instance, value, depth)
        return out

    def load_strided(self, node: UOp, instance: Instance, lane: UOp) -> UOp:
        """Load lanes with a small stride: load contiguous vectors and shuffle the lanes out."""
        lines, index, lanes = self.lines, accessors.index_node(node), extent_of(lane)
        stride = self.addresses.offset(index, lane).stride
        assert stride is not None
        first_index, = substitute([index], {lane: build.index_const(lanes - 1 if stride < 0 else 0)
                                            })
        first_access = self.addresses.access(first_index, None, instance)
        mask = lines.both(*self.masks(node.src[1:], instance))
        if mask is FALSE:
            return build.const(0, node.dtype)
        mask = None if mask is None else lines.widen(mask, lanes)

        depth = self.depth(node)

        def load(access: Access, mask: UOp | None) -> UOp:
            return masked_loads.load(self.addresses, access, node.dtype.vec(lanes), mask, depth)
        return shuffles.load_strided(lines, first_access, lanes, stride, mask, load)

    def load_interleaved(self, node: UOp, instance: Instance, lane: UOp, gap_range: UOp) -> UOp:
        """Load one instance; those of all values of ``gap_range`` are loaded together."""
        lines, lanes, depth = self.lines, extent_of(lane), self.depth(node)
        count, loads = extent_of(gap_range), []
        scalar, vector = self.masks(node.src[1:], instance)
        if scalar is FALSE:
            return build.const(0, node.dtype)
        mask, index = lines.both(scalar, vector), accessors.index_node(node)
        backwards = shuffles.is_backwards(self.addresses, index, lane)
        for i in range(count):
            access = shuffles.access(self.addresses, index, gap_range, lane, i, instance)
            lane_mask = None if mask is None else lines.widen(mask, lanes)
            if lane_mask is not None and vector is not None:
                lane_mask = shuffles.vector_mask(lines, lane_mask, count, i, backwards)
            loads.append(masked_loads.load(self.addresses, access, node.dtype.vec(lanes), lane_mask,
                                           depth))
        instances = shuffles.deinterleave(lines, loads, backwards)
        for i, value in enumerate(instances):
            other_instance = {**instance, gap_range: i}
            if i != instance[gap_range] and self.key(node, other_instance) not in self.memo:
                self.remember(node, other_instance, value, depth)
        return instances[instance[gap_range]]


class _Term(Record):
    """What a REDUCE takes in: a mask, unless it holds; a value, and the operands that it is
    computed of: the value itself, or the factors of one that is multiplied and added at once."""

    mask: UOp | None
    value: UOp
    operands: tuple[UOp, ...]


def reduced_values(reduce: UOp) -> tuple[UOp, ...]:
    """Return the values that a REDUCE combines: (keys, indices) of an ARG_PAIR, or one value."""
    x = accessors.value(reduce)
    return x.src if x.op is ops.ARG_PAIR else (x,)


_INDEX_OPS = frozenset({ops.ADD, ops.MUL})
FALSE = build.const(False, dtypes.bool_)
