"""Push a gather of few elements to the operands of what computes them.

    before  GATHER(tanh(x) * y, i)
    after   tanh(GATHER(x, i)) * GATHER(y, i)

So what is read of a computed array is computed only there, if nothing else needs the rest: the
derivative by one row that is written to a matrix, a window of a function, and of
``(h @ w + b)[rows, last]`` the product of those rows alone. The gather goes through elementwise
ops, EXPAND, PERMUTE, RESHAPE of the axes behind it, another GATHER (of its index), and any REDUCE:

    GATHER(REDUCE(x * w), i)   ->  REDUCE(GATHER(x, i) * w)       where w is the same for all rows

A value that has other readers is computed whole, except an EXPAND, which is a view: they would
compute it again, a reduction with other roundings, and a chain of gathers of sums of gathers would
double at each step.

>>> from fnx.core.ir import dtypes
>>> x, y = (build.param(i, dtypes.float32, (64, 8)) for i in range(2))
>>> i = build.param(2, dtypes.int32, (4,))
>>> after = push_gather_to_operands(build.function([build.gather(build.mul(x, y), i)], 3)).src[0]
>>> after.op, [s.op for s in after.src], after.shape
(MUL, [GATHER, GATHER], (4, 8))
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import consumers
from fnx.core.ir.uop import UOp, copy_locs, toposort
from fnx.core.support.record import Record
from fnx.lower.analysis.tuning import FEW_GATHERED, MOST_GATHERED, MOST_GATHERED_OF_SUMS

_MOVEMENTS = frozenset({ops.EXPAND, ops.PERMUTE, ops.RESHAPE})


def push_gather_to_operands(fn: UOp) -> UOp:
    """Return a FUNCTION in which what is gathered is computed only where it is read."""
    nodes = toposort(fn.src, stop=lambda n: n.op is ops.KERNEL)
    if not any(n.op is ops.GATHER and _is_passed(n.src[0]) for n in nodes):
        return fn
    users = consumers(nodes)
    region = _find_region(nodes, users, fn.src)
    pushed = {n for n in nodes if n.op is ops.GATHER
              and (n.src[0] in region or n.src[0].op is ops.EXPAND)}
    if not pushed:
        return fn
    done: dict[UOp, UOp] = {}
    for node in nodes:
        if node.op is ops.KERNEL or node.op.is_isolated:
            done[node] = node
            continue
        src = tuple([done[s] for s in node.src])
        if node in pushed:
            at = _At(src[1:], node.arg.axes)
            done[node] = copy_locs(_Reader(region, done).read(node.src[0], at), node)
        else:
            done[node] = node.with_operands(src)
    results = [done[s] for s in fn.src]
    # what is repeated along new axes would be written whole, to be read at an index
    repeated = _reads_of_repeated(toposort(results, stop=lambda n: n.op is ops.KERNEL))
    return fn if repeated > _reads_of_repeated(nodes) else fn.with_operands(tuple(results))


def _is_passed(node: UOp) -> bool:
    return node.op in ops.ELEMENTWISE or node.op in _MOVEMENTS or node.op is ops.GATHER or (
        node.op is ops.REDUCE and node.src[0].op is not ops.ARG_PAIR)


def _reads_of_repeated(nodes: Sequence[UOp]) -> int:
    return sum([n.op is ops.GATHER and _base(n.src[0]).op is ops.EXPAND for n in nodes])


def _base(x: UOp) -> UOp:
    while x.op in (ops.PERMUTE, ops.RESHAPE):
        x = x.src[0]
    return x


def _find_region(nodes: Sequence[UOp], users: dict[UOp, list[UOp]], results: Collection[UOp]
                 ) -> dict[UOp, float]:
    """Return the nodes of which only few elements are read, by gathers: directly, or by others of
    these nodes that need the same elements; and which part of the elements is read."""
    region: dict[UOp, float] = {}
    for node in reversed(nodes):
        if not _is_passed(node) or not users[node] or node in results:
            continue
        gathers = [u for u in users[node] if u.op is ops.GATHER and u.src[0] is node]
        others = [u for u in users[node] if u not in gathers]
        if any(u not in region or u.op is ops.GATHER for u in others) or \
                any(node in g.src[1:] for g in gathers):
            continue
        part = max([_part_read(node, gathers), *[region[u] for u in others]])
        if part <= (MOST_GATHERED_OF_SUMS if node.op is ops.REDUCE and node.src[0].op is not ops.MUL
                    else MOST_GATHERED):
            region[node] = part
    return region


def _part_read(node: UOp, gathers: Collection[UOp]) -> float:
    """Return the part of the elements that gathers read together; 0 if it is a few elements."""
    count = sum([math.prod(g.shape) for g in gathers])
    return count / math.prod(node.shape) if count > FEW_GATHERED else 0.0


class _At(Record):
    """Where elements are read: the operands of a GATHER but the first, and its axes."""

    indices: tuple[UOp, ...]
    axes: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.indices[0].shape)

    def of(self, x: UOp) -> UOp:
        return build.gather(x, *self.indices, axes=self.axes)

    def rest(self, x: UOp) -> list[int]:
        """The axes of x that no index is along."""
        return [a for a in range(len(x.shape)) if a not in self.axes]

    def mapped(self, axes: Sequence[int]) -> _At:
        """The same indices along other axes."""
        pairs = sorted(zip(axes, self.indices), key=lambda pair: pair[0])
        return _At(tuple([i for _, i in pairs]), tuple([a for a, _ in pairs]))


class _Reader:
    """Builds what is read of the nodes of a region; ``done`` are the new nodes of all others."""

    def __init__(self, region: Collection[UOp], done: dict[UOp, UOp]) -> None:
        self.region, self.done = region, done
        self.values: dict[tuple[UOp, _At], UOp] = {}

    def read(self, node: UOp, at: _At) -> UOp:
        """Return the elements of a node at an index. An explicit stack: chains are long."""
        stack = [(node, at)]
        while stack:
            key = stack[-1]
            operands = self._operands(*key)
            missing = [o for o in operands if o not in self.values]
            if key not in self.values and not missing:
                value = self._build(*key, [self.values[o] for o in operands])
                self.values[key] = copy_locs(value, key[0])
            if key in self.values:
                stack.pop()
            stack += missing
        return self.values[node, at]

    def _operands(self, node: UOp, at: _At) -> list[tuple[UOp, _At]]:
        """Return what is read of the operands instead; nothing if the node itself is read."""
        if node.op is not ops.EXPAND and node not in self.region or node.op is ops.GATHER:
            return []
        x = node.src[0]
        if node.op in ops.ELEMENTWISE:
            return [(s, at) for s in node.src]
        if node.op is ops.EXPAND:
            pairs = [(i, a) for i, a in zip(at.indices, at.axes) if x.shape[a] != 1]
            return [(x, _At(*map(tuple, zip(*pairs))))] if pairs else []
        if node.op is ops.PERMUTE:
            return [(x, at.mapped([node.arg[a] for a in at.axes]))]
        if node.op is ops.RESHAPE:
            return [(x, at)] if _is_behind(node, at) else []
        return [(x, at.mapped(_reduced_axes(node, at)))]

    def _build(self, node: UOp, at: _At, operands: Sequence[UOp]) -> UOp:
        if node.op in ops.ELEMENTWISE and operands:
            return node.with_operands(tuple(operands))
        if node.op is ops.EXPAND:
            return self._expand(node, at, operands)
        if node.op is ops.PERMUTE and operands:
            rest = at.mapped([node.arg[a] for a in at.axes]).rest(node.src[0])
            order = [at.rank + rest.index(node.arg[a]) for a in at.rest(node)]
            return build.permute(operands[0], (*range(at.rank), *order))
        if node.op is ops.RESHAPE and operands:
            return build.reshape(operands[0], at.indices[0].shape
                                 + tuple([node.shape[a] for a in at.rest(node)]))
        if node.op is ops.REDUCE and operands:
            rest = at.mapped(_reduced_axes(node, at)).rest(node.src[0])
            return build.reduce(operands[0], node.arg.monoid,
                                [at.rank + rest.index(a) for a in node.arg.axes])
        if node.op is ops.GATHER and node in self.region and \
                at.axes == tuple(range(len(node.src[1].shape))):
            x, *index = [self.done[s] for s in node.src]
            return build.gather(x, *[at.of(i) for i in index], axes=node.arg.axes)
        return at.of(self.done[node])

    def _expand(self, node: UOp, at: _At, operands: Sequence[UOp]) -> UOp:
        """Repeat what is read: along an axis of one element, it is the same at each index."""
        x = node.src[0]
        shape = at.indices[0].shape + tuple([node.shape[a] for a in at.rest(node)])
        if not operands:
            read = self.done[x]
            leading: tuple[int, ...] = (1,) * at.rank
        else:
            read, leading = operands[0], at.indices[0].shape
        lengths = [x.shape[a] for a in at.rest(node)]
        return build.expand(build.reshape(read, leading + tuple(lengths)), shape)


def _is_behind(reshape: UOp, at: _At) -> bool:
    """Return whether a RESHAPE only changes axes behind those of an index."""
    leading = at.axes[-1] + 1
    return reshape.src[0].shape[:leading] == reshape.shape[:leading]


def _reduced_axes(node: UOp, at: _At) -> list[int]:
    """Return the axes of an index in the operand of a REDUCE."""
    remaining = [a for a in range(len(node.src[0].shape)) if a not in node.arg.axes]
    return [remaining[a] for a in at.axes]
