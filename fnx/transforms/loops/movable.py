"""Which nodes of a step can leave their loop, and whether that pays.

    x_t @ w                      free: depends on no carry; moves in front of the loop
    dw' = dw + x_t^T g_t         a term of a carry that nobody else reads: summed behind the loop,
                                 from all x_t and g_t
    y_t = h_t @ v                a tail: no carry reads it; done behind the loop, from all h_t
    y_t = sum of h_t * h_t       stays: all h_t would be kept to be read once

Dear are contractions and other reductions, and elementwise work of high cost, of more than
MIN_WORK a step. For the rest a place in memory for each step costs more than it brings.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence

from fnx.core import ops
from fnx.core.uop import UOp, consumers, toposort

MIN_WORK = 8192  # of a node in a step: elements that are folded, or the cost of those computed
DEAR = 40        # cost of an elementwise op that is worth a place in memory
SMALLER = 4      # so many times is what is kept of a product smaller than the product

_BATCHED = frozenset({"elementwise", "movement", "reduce", "gather"})
_KEPT_APART = frozenset({ops.BARRIER})
_MOVES = frozenset({ops.RESHAPE, ops.PERMUTE, ops.EXPAND})
# No bigger than what it is computed from: it goes where that goes.
_JOINS = ops.ELEMENTWISE | {ops.RESHAPE, ops.PERMUTE, ops.REDUCE}


def is_dear(n: UOp) -> bool:
    size = math.prod(n.shape)
    if n.op is ops.REDUCE:
        return math.prod(n.src[0].shape) >= MIN_WORK
    return n.op in ops.ELEMENTWISE and n.op.cost >= DEAR and n.op.cost * size >= MIN_WORK


def can_be_batched(n: UOp) -> bool:
    """Whether it can be done for all steps at once: no body, no effect, nothing kept apart."""
    return n.op.batching in _BATCHED and n.op not in _KEPT_APART


# ---- in front of the loop -----------------------------------------------------------------------


def free_nodes(outs: Sequence[UOp], consts: Container[UOp], xs: Container[UOp]
               ) -> dict[UOp, bool]:
    """Nodes that depend on no carry and can be batched: whether they depend on the step."""
    found: dict[UOp, bool] = {}
    for n in toposort(outs):
        if n.src:
            if can_be_batched(n) and all(s in found for s in n.src):
                found[n] = any(found[s] for s in n.src)
        elif n.op in (ops.CONST, ops.IOTA) or n in consts or n in xs:
            found[n] = n in xs
    return found


def movable(outs: Sequence[UOp], free: Mapping[UOp, bool]) -> dict[UOp, bool]:
    """Of the free nodes those that pay, as few as possible: whether they depend on the step.

    What is cheap goes along, unless what it is computed from is read by the step anyhow.
    """
    order = toposort(outs)
    readers, roots = consumers(order), set(outs)
    good: set[UOp] = set()
    for n in order:
        if n in free and n.src and (is_dear(n) or n.op in _JOINS
                                    and any(s in good for s in n.src)):
            good.add(n)

    def is_read(n: UOp) -> bool:
        return n in roots or any(r not in good for r in readers[n])

    while True:
        stay = {n for n in good if not is_dear(n)
                and any(s in good and is_read(s) for s in n.src)}
        if not stay:
            return {n: free[n] for n in order if n in good and is_read(n)}
        good -= stay


# ---- behind the loop ----------------------------------------------------------------------------


def terms_of(outs: Sequence[UOp], carries: Sequence[UOp]) -> dict[int, list[UOp]]:
    """Of carries that are only added to, and that nobody else reads: the terms of a step."""
    readers = consumers(toposort(outs))
    times = Counter(outs)
    found: dict[int, list[UOp]] = {}
    for i, node in enumerate(carries):
        terms: list[UOp] = []
        while node not in times and len(readers.get(node, ())) == 1:
            above, = readers[node]
            if above.op is not ops.ADD:
                break
            terms.append(above.src[1] if above.src[0] is node else above.src[0])
            node = above
        if terms and node is outs[i] and times[node] == 1 and not readers[node]:
            found[i] = terms
    return found


def fold_of(term: UOp) -> UOp:
    """What is below the reshapes of a term."""
    while term.op in (ops.RESHAPE, ops.PERMUTE):
        term = term.src[0]
    return term


def bases_of(term: UOp, kept: Container[UOp]) -> list[UOp] | None:
    """What a sum of products is computed from: what is kept anyhow, or what is below the
    movements that spread it."""
    fold = fold_of(term)
    if fold.op is not ops.REDUCE or fold.arg.monoid is not ops.ADD:
        return None
    found: dict[UOp, None] = {}
    stack = [fold.src[0]]
    while stack:
        n = stack.pop()
        if n not in kept and (n.op in _MOVES or n.op is ops.MUL and n is fold.src[0]):
            stack += reversed(n.src)
        else:
            found[n] = None
    return list(found)


def pays(term: UOp, kept: Iterable[UOp]) -> bool:
    """Whether a sum of products is worth what has to be kept for it."""
    product = math.prod(fold_of(term).src[0].shape)
    return product >= MIN_WORK and _is_smaller(kept, product)


def _is_smaller(kept: Iterable[UOp], folded: int) -> bool:
    """Whether what is kept of a step is so much less than what is folded in it: then each of its
    numbers is read several times, which is what doing all steps at once gains."""
    return SMALLER * sum(math.prod(n.shape) for n in kept) <= folded


def tail_of(y: UOp, needed: Collection[UOp], free: Container[UOp], kept: Container[UOp]
            ) -> list[UOp] | None:
    """What a result is computed from behind the loop; None where that does not pay.

    ``needed`` are the nodes that carries read: they stay. ``kept`` are kept for all steps anyhow.
    """
    found: dict[UOp, None] = {}
    dear, folded = False, 0
    seen: set[UOp] = set()
    stack = [y]
    while stack:
        n = stack.pop()
        if n in seen or n in free:
            continue
        seen.add(n)
        if n.src and can_be_batched(n) and (n not in needed or n.op in _MOVES):
            if n.op is ops.REDUCE and is_dear(n):
                dear, folded = True, folded + math.prod(n.src[0].shape)
            stack += reversed(n.src)
        else:
            found[n] = None
    more = [n for n in found if n not in kept]
    return list(found) if dear and _is_smaller(more, folded) else None
