"""Parts of a CONCAT: what lies one behind the other in memory is written there, part by part.

    before  a = f(x); b = g(y); c = CONCAT(a, b, p)      buffers a, b, c; c reads a, b, p
    after   c[:m] = f(x); c[m:n] = g(y); c[n:] = p       buffer c; a and b are views of it

So the transpose of reading ``xs[t]`` for each t, a stack of a thousand rows, is a thousand kernels
that are one in code; as one kernel each element would look at a thousand conditions. A part that
has to be elsewhere (an argument, a result, what is in two stacks, what loops read) is copied.

>>> from fnx.core import build, dtypes
>>> from fnx.lower.fusion import cost
>>> x = build.param(0, dtypes.float32, (4, 8))
>>> rows = [build.reduce(x, monoid, (0,)) for monoid in (ops.ADD, ops.MAX)]
>>> c = build.concat(rows, 0)
>>> pays(c, cost.costs([x, *rows, c]), True)
True
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from fnx.core import ops
from fnx.core.uop import UOp
from fnx.lower.fusion.cost import RecomputeCost, is_cheap
from fnx.lower.fusion.group import Group, loops_of, memory_of
from fnx.lower.fusion.index_tokens import Tokens
from fnx.lower.memory import View

MANY = 64          # parts, above which each element of one kernel would look at too many
SEVERAL = 8        # equal parts of MIN_ELEMENTS and more, each of which would be a loop
MIN_ELEMENTS = 256  # below, a loop in one kernel is quicker than a kernel of its own


def pays(node: UOp, cost: Mapping[UOp, RecomputeCost], in_memory: bool) -> bool:
    """Whether the parts of a CONCAT get buffers, one behind the other.

    They do where that is quicker to run or to compile than one kernel that chooses, and where
    all would have buffers anyway, as what is made of reductions does.
    """
    if not can(node):
        return False
    if are_many(node):
        return True
    if in_memory and len(node.src) >= SEVERAL and len({s.shape for s in node.src}) == 1 and \
            math.prod(node.src[0].shape) >= MIN_ELEMENTS:
        return True
    return all(any(n.op is ops.REDUCE for n in cost[s].loads) for s in node.src)


def is_dear(node: UOp, costs: Mapping[UOp, RecomputeCost]) -> bool:
    """Whether a kernel that chooses among the parts of a CONCAT computes much in vain: each element
    of it all parts, of which it takes one. In memory each part is computed where it lies.

    >>> from fnx.core import build, dtypes
    >>> from fnx.lower.fusion import cost
    >>> x = build.param(0, dtypes.float32, (4, 8))
    >>> powers = [x]
    >>> while len(powers) < 5:
    ...     powers.append(build.exp(powers[-1]))
    >>> costs = cost.costs(powers)
    >>> is_dear(build.concat(powers, 1), costs), is_dear(build.concat(powers[:2], 1), costs)
    (True, False)
    """
    weights = [costs[s].weight for s in node.src]
    return not is_cheap(RecomputeCost(sum(weights) - max(weights), frozenset()))


def is_alone(readers: Collection[Group]) -> bool:
    """Whether one elementwise kernel with one result reads a CONCAT: such a kernel gets loops of
    each part, without conditions (kernel/columns.py, index_sets.py)."""
    return all(len(readers) == len(g.roots) == 1 and g.contraction is g.scatter is None
               and not g.reduces and not g.stages for g in readers)


def not_alone(groups: Iterable[Group], costs: Mapping[UOp, RecomputeCost]) -> frozenset[UOp]:
    """The CONCATs of dear parts that a kernel chooses among in vain, as it computes more than was
    known when they went into it: a fold, another result. They get buffers of their own."""
    return frozenset([n for g in groups if not is_alone((g,)) for n in g.inside
                      if n.op is ops.CONCAT and n not in {root for root, _ in g.roots}
                      and is_dear(n, costs)])


def are_many(node: UOp) -> bool:
    """Whether there are too many of them for one kernel, whatever they are."""
    return len(node.src) > MANY and can(node)


def is_folded(node: UOp, group: Group, index: Tokens) -> bool:
    """Whether a fold reads a CONCAT from memory: it would choose at each element of it, a product
    again for each tile of its results. Between two parts a plain fold chooses."""
    if group.contraction is not None:
        return not loops_of(index).issuperset(group.own)
    folded = loops_of((index[node.arg],)).difference(group.own)
    return group.reduces > 0 and len(node.src) > 2 and bool(folded)


def can(node: UOp) -> bool:
    """Whether its parts are one behind the other in its memory."""
    return math.prod(node.shape[:node.arg]) == 1 and math.prod(node.shape) > 0


def views(wholes: Iterable[UOp], writer: Mapping[UOp, Group], elsewhere: Collection[UOp]
          ) -> dict[UOp, View]:
    """Where parts lie that are written where they belong.

    Args:
        wholes: the CONCATs whose parts have buffers.
        writer: of each node with a buffer, the group that writes it.
        elsewhere: nodes that need a buffer of their own.
    """
    found: dict[UOp, View] = {}
    for whole in wholes:
        for part, view in parts_of(whole):
            if part not in elsewhere and part not in found and part in writer and \
                    writer[part].call is None and writer[part].scatter is None:
                found[part] = view
    return {part: _in_root(view, found) for part, view in found.items()}


def parts_of(whole: UOp) -> Iterable[tuple[UOp, View]]:
    """The node whose memory each part is, and where it belongs. Empty ones are left out."""
    start = 0
    for s in whole.src:
        nbytes = math.prod(s.shape) * s.dtype.itemsize
        if nbytes:
            yield memory_of(s), View(whole, nbytes, start, grain=nbytes)
        start += nbytes


def _in_root(view: View, found: Mapping[UOp, View]) -> View:
    """The same bytes, in what that CONCAT is a part of."""
    while view.node in found:
        outer = found[view.node]
        view = view.replace(node=outer.node, start=view.start + outer.start)
    return view
