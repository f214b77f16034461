"""Parts of a CONCAT: parts that are contiguous in its buffer are written there directly.

    before  a = f(x); b = g(y); c = CONCAT(a, b, p)      buffers a, b, c; c reads a, b, p
    after   c[:m] = f(x); c[m:n] = g(y); c[n:] = p       buffer c; a and b are views of it

So the transpose of reading ``xs[t]`` for each t, a stack of a thousand rows, is a thousand kernels
with the same code; as one kernel, each element would test a thousand conditions. A part that
has to be elsewhere (an argument, a result, a part of two stacks, an operand of a loop) is copied.

>>> from fnx.core.ir import build, dtypes
>>> from fnx.lower.fusion import cost
>>> x = build.param(0, dtypes.float32, (4, 8))
>>> rows = [build.reduce(x, monoid, (0,)) for monoid in (ops.ADD, ops.MAX)]
>>> c = build.concat(rows, 0)
>>> is_profitable(c, cost.costs([x, *rows, c]), True)
True
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from fnx.core.ir import ops
from fnx.core.ir.uop import UOp
from fnx.lower.analysis.memory import View
from fnx.lower.fusion.cost import RecomputeCost, is_cheap
from fnx.lower.fusion.group import Group, loops_of, memory_of
from fnx.lower.fusion.index_tokens import Tokens

# parts, above which each element of one kernel would test too many conditions
MAX_PARTS = 64
MIN_EQUAL_PARTS = 8        # equal parts of at least MIN_ELEMENTS, each of which would be a loop
MIN_ELEMENTS = 256  # below, a loop in one kernel is faster than a kernel of its own


def is_profitable(node: UOp, cost: Mapping[UOp, RecomputeCost], in_memory: bool) -> bool:
    """Whether the parts of a CONCAT get buffers, as contiguous views of its own.

    They do if that is faster to run or to compile than one kernel that selects, and if all would
    have buffers anyway, as values computed from reductions do.
    """
    if not is_contiguous(node):
        return False
    if has_many_parts(node):
        return True
    if in_memory and len(node.src) >= MIN_EQUAL_PARTS and \
            len({s.shape for s in node.src}) == 1 and \
            math.prod(node.src[0].shape) >= MIN_ELEMENTS:
        return True
    return all(cost[s].reduces for s in node.src)


def is_expensive(node: UOp, costs: Mapping[UOp, RecomputeCost], selections: int = 0) -> bool:
    """Whether a kernel that selects among the parts of a CONCAT wastes expensive work: it computes
    all parts for each element and uses one. In memory each part is only computed where it is
    needed. A kernel that cannot be split by part also loads all parts and selects one, for each of
    so many ``selections``.

    >>> from fnx.core.ir import build, dtypes
    >>> from fnx.lower.fusion import cost
    >>> x = build.param(0, dtypes.float32, (4, 8))
    >>> powers = [x]
    >>> while len(powers) < 5:
    ...     powers.append(build.exp(powers[-1]))
    >>> costs = cost.costs(powers)
    >>> (is_expensive(build.concat(powers, 1), costs),
    ...  is_expensive(build.concat(powers[:2], 1), costs))
    (True, False)
    """
    weights = [costs[s].weight for s in node.src]
    unused = sum(weights) - max(weights)
    selects = 2 * (len(weights) - 1) if selections else 0
    return not is_cheap(RecomputeCost((unused + selects) * max(selections, 1), frozenset()))


def wastes_work(node: UOp, costs: Mapping[UOp, RecomputeCost],
                uses: Mapping[Group, Collection[Tokens]], is_buffer: bool) -> bool:
    """Whether a CONCAT is expensive in the kernels that read it, or in the one that writes it."""
    copies = sum(map(len, uses.values()))
    if copies == 1 and (is_buffer or is_only_consumer(uses)):
        return is_buffer and is_expensive(node, costs)
    return is_expensive(node, costs, copies)


def is_only_consumer(readers: Collection[Group]) -> bool:
    """Whether each reader of a CONCAT is its only reader, an elementwise kernel with one result:
    such a kernel is split into a loop for each part, without conditions (kernel/unroll_columns.py,
    analysis/split_index_sets.py)."""
    return all(len(readers) == len(g.roots) == 1 and g.contraction is g.scatter is None
               and not g.reduces and not g.stages for g in readers)


def unsplittable_concats(groups: Iterable[Group],
                         costs: Mapping[UOp, RecomputeCost]) -> frozenset[UOp]:
    """Return the CONCATs of expensive parts inside kernels that turned out to have more than one
    result or a reduction, so that these cannot be split by part. They get buffers of their own."""
    return frozenset([n for g in groups if not is_only_consumer((g,)) for n in g.inside
                      if n.op is ops.CONCAT and n not in {root for root, _ in g.roots}
                      and is_expensive(n, costs, 1)])


def has_many_parts(node: UOp) -> bool:
    """Whether it has too many parts for one kernel, whatever they are."""
    return len(node.src) > MAX_PARTS and is_contiguous(node)


def should_materialize(node: UOp, group: Group, index: Tokens) -> bool:
    """Whether a reduction should read a CONCAT from memory: it would select at each element, and a
    contraction again for each tile of its results. A plain reduction may select between two
    parts."""
    if group.contraction is not None:
        return not loops_of(index).issuperset(group.own_index)
    reduce_loops = loops_of((index[node.arg],)).difference(group.own_index)
    return group.reduces > 0 and len(node.src) > 2 and bool(reduce_loops)


def is_contiguous(node: UOp) -> bool:
    """Whether its parts are contiguous in its memory."""
    return math.prod(node.shape[:node.arg]) == 1 and math.prod(node.shape) > 0


def part_views(wholes: Iterable[UOp], writer: Mapping[UOp, Group], elsewhere: Collection[UOp]
               ) -> dict[UOp, View]:
    """Return the views of the parts that are written in place.

    Args:
        wholes: the CONCATs whose parts have buffers.
        writer: of each node with a buffer, the group that writes it.
        elsewhere: nodes that need a buffer of their own.
    """
    part_view: dict[UOp, View] = {}
    for whole in wholes:
        for part, view in parts_of(whole):
            if part not in elsewhere and part not in part_view and part in writer and \
                    writer[part].call is None and writer[part].scatter is None:
                part_view[part] = view
    return {part: _resolve_view(view, part_view) for part, view in part_view.items()}


def parts_of(whole: UOp) -> Iterable[tuple[UOp, View]]:
    """Yield the node that owns the memory of each part, and its view. Empty parts are left out."""
    start = 0
    for s in whole.src:
        nbytes = math.prod(s.shape) * s.dtype.itemsize
        if nbytes:
            yield memory_of(s), View(whole, nbytes, start, alignment_limit=nbytes)
        start += nbytes


def _resolve_view(view: View, part_view: Mapping[UOp, View]) -> View:
    """Resolve a view of a CONCAT that is itself a part of another one."""
    while view.node in part_view:
        outer = part_view[view.node]
        view = view.replace(node=outer.node, start=view.start + outer.start)
    return view
