"""Analysis for loop fission: which nodes of a step can leave their loop, and whether it pays.

    x_t @ w                      free: depends on no carry; moves ahead of the loop
    dw' = dw + x_t^T g_t         a term of a carry with no other reader: summed after the loop,
                                 from all x_t and g_t
    y_t = h_t @ v                a tail: no carry reads it; computed after the loop, from all h_t
    y_t = sum of h_t * h_t       stays: all h_t would be stored to be read once

Expensive nodes are reductions, contractions included, and costly elementwise ops, of at least
MIN_WORK a step. For other nodes, storing a value for each step costs more than it saves.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence

from fnx.core.ir import ops
from fnx.core.ir.accessors import consumers
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, toposort

MIN_WORK = 8192  # of a node in a step: elements reduced, or total elementwise cost
EXPENSIVE_COST = 40        # cost of an elementwise op whose result is worth storing for each step
INVARIANT_COST = ops.EXP.cost  # and once, for all steps
MANY_ROWS = 32     # of a product, from which it computes rather than waits for its matrix
MIN_REUSE = 4      # least ratio of the size of a product to that of its stored inputs

_BATCHED = frozenset({"elementwise", "movement", "reduce", "gather"})
_NOT_BATCHABLE = frozenset({ops.BARRIER})
_MOVEMENTS = frozenset({ops.RESHAPE, ops.PERMUTE, ops.EXPAND})
# Results no larger than the operands: these ops move along with them.
_MOVES_ALONG = ops.ELEMENTWISE | {ops.RESHAPE, ops.PERMUTE, ops.REDUCE}


def is_expensive(n: UOp, least_cost: int = EXPENSIVE_COST) -> bool:
    """Whether a node is a large reduction, or an elementwise op of this cost and much work."""
    if n.op is ops.REDUCE:
        return math.prod(n.src[0].shape) >= MIN_WORK
    cost = _cost(n)
    return n.op in ops.ELEMENTWISE and cost >= least_cost and cost * math.prod(n.shape) >= MIN_WORK


def _cost(n: UOp) -> int:
    """Return the cost of an elementwise op: a function of complex numbers has an angle, too."""
    of_angle = ops.SIN.cost + ops.COS.cost
    return n.op.cost + (of_angle if n.dtype.is_complex and n.op.cost > ops.DIV.cost else 0)


def can_be_batched(n: UOp) -> bool:
    """Whether a node can be computed for all steps at once: no body, effect or barrier."""
    return n.op.batching in _BATCHED and n.op not in _NOT_BATCHABLE


# ---- ahead of the loop --------------------------------------------------------------------------


def carry_free_nodes(outs: Sequence[UOp], consts: Container[UOp], xs: Container[UOp]
                     ) -> dict[UOp, bool]:
    """Return batchable nodes that depend on no carry -> whether they depend on the step."""
    depends_on_step: dict[UOp, bool] = {}
    for n in toposort(outs):
        if n.src:
            if can_be_batched(n) and all(s in depends_on_step for s in n.src):
                depends_on_step[n] = any(depends_on_step[s] for s in n.src)
        elif n.op in (ops.CONST, ops.IOTA) or n in consts or n in xs:
            depends_on_step[n] = n in xs
    return depends_on_step


def gains_from_all_steps(n: UOp, free: Mapping[UOp, bool]) -> bool:
    """Whether a reduction is faster for all steps at once: not if those of one step read each
    invariant that often, as a matrix in a product with many rows."""
    stack, invariants, seen = [n.src[0]], [0], set[UOp]()
    while stack:
        below = stack.pop()
        if free[below]:
            stack += [s for s in below.src if s not in seen]
            seen.update(below.src)
        elif below.op is not ops.CONST:
            while below.op in (ops.EXPAND, ops.RESHAPE):
                below = below.src[0]
            invariants.append(math.prod(below.shape))
    return math.prod(n.src[0].shape) < MANY_ROWS * max(invariants) or not max(invariants)


def select_hoisted(outs: Sequence[UOp], free: Mapping[UOp, bool]) -> dict[UOp, bool]:
    """Select the fewest free nodes worth hoisting; map each to whether it depends on the step.

    A cheap node moves along with its operands, unless the step reads those in any case. Invariants
    that an inner loop reads are arrays in memory, so they move, too.
    """
    order = toposort(outs)
    readers, roots = consumers(order), set(outs)
    of_inner_loops = {s for n in order if n.op in (ops.SCAN, ops.WHILE)
                      for s in _permuted_invariants(n, free)}
    hoisted: set[UOp] = set()

    def is_worth_it(n: UOp) -> bool:
        return is_expensive(n, EXPENSIVE_COST if free[n] else INVARIANT_COST)

    for n in order:
        if n in free and n.src and (is_worth_it(n) or n in of_inner_loops or
                                    n.op in _MOVES_ALONG and any(s in hoisted for s in n.src)):
            hoisted.add(n)

    def is_read(n: UOp) -> bool:
        return n in roots or any(r not in hoisted for r in readers[n])

    while True:
        stay = {n for n in hoisted - of_inner_loops if not is_worth_it(n)
                and any(s in hoisted and is_read(s) for s in n.src)}
        if not stay:
            return {n: free[n] for n in order if n in hoisted and is_read(n)}
        hoisted -= stay


def _permuted_invariants(loop: UOp, free: Mapping[UOp, bool]) -> list[UOp]:
    """Return the operands of an inner loop that are computed, or copied in another order, from
    invariants of the outer one."""
    consts, _, _ = (op := OpBodies(loop)).split(op.operands)
    return [c for c in consts if free.get(c) is False and c.src and any(
        n.op in ops.ELEMENTWISE or n.op in (ops.PERMUTE, ops.REDUCE) for n in toposort([c]))]


# ---- after the loop -----------------------------------------------------------------------------


def accumulated_terms(outs: Sequence[UOp], carries: Sequence[UOp]) -> dict[int, list[UOp]]:
    """Return carry number -> terms, for carries that a step only adds to and nothing else reads."""
    readers = consumers(toposort(outs))
    out_counts = Counter(outs)
    result: dict[int, list[UOp]] = {}
    for i, node in enumerate(carries):
        terms: list[UOp] = []
        while node not in out_counts and len(readers.get(node, ())) == 1:
            above, = readers[node]
            if above.op is not ops.ADD:
                break
            terms.append(above.src[1] if above.src[0] is node else above.src[0])
            node = above
        if terms and node is outs[i] and out_counts[node] == 1 and not readers[node]:
            result[i] = terms
    return result


def strip_reshapes(term: UOp) -> UOp:
    """Return the node below the reshapes and transposes of a term."""
    while term.op in (ops.RESHAPE, ops.PERMUTE):
        term = term.src[0]
    return term


def term_inputs(term: UOp, saved: Container[UOp]) -> list[UOp] | None:
    """Return the inputs of a sum of products: nodes already saved, or those below movement ops.

    None if the term is not a sum.
    """
    reduction = strip_reshapes(term)
    if reduction.op is not ops.REDUCE or reduction.arg.monoid is not ops.ADD:
        return None
    inputs: dict[UOp, None] = {}
    stack = [reduction.src[0]]
    while stack:
        n = stack.pop()
        if n not in saved and (n.op in _MOVEMENTS or n.op is ops.MUL and n is reduction.src[0]):
            stack += reversed(n.src)
        else:
            inputs[n] = None
    return list(inputs)


def is_profitable(term: UOp, saved: Iterable[UOp]) -> bool:
    """Whether a sum of products is worth storing its inputs ``saved`` for all steps."""
    product = math.prod(strip_reshapes(term).src[0].shape)
    return product >= MIN_WORK and _has_reuse(saved, product)


def _has_reuse(saved: Iterable[UOp], reduced_size: int) -> bool:
    """Whether the stored inputs of a step are much smaller than the elements it reduces.

    Then each stored number is read several times, which is what computing all steps at once saves.
    """
    return MIN_REUSE * sum(math.prod(n.shape) for n in saved) <= reduced_size


def tail_inputs(y: UOp, needed: Collection[UOp], free: Container[UOp], saved: Container[UOp]
                ) -> list[UOp] | None:
    """Return the inputs from which to compute a result after the loop. None if it does not pay.

    ``needed`` are the nodes that carries depend on, which stay in the loop. ``saved`` are stored
    for all steps in any case.
    """
    inputs: dict[UOp, None] = {}
    is_costly, reduced_size = False, 0
    seen: set[UOp] = set()
    stack = [y]
    while stack:
        n = stack.pop()
        if n in seen or n in free:
            continue
        seen.add(n)
        if n.src and can_be_batched(n) and (n not in needed or n.op in _MOVEMENTS):
            if n.op is ops.REDUCE and is_expensive(n):
                is_costly, reduced_size = True, reduced_size + math.prod(n.src[0].shape)
            stack += reversed(n.src)
        else:
            inputs[n] = None
    unsaved = [n for n in inputs if n not in saved]
    return list(inputs) if is_costly and _has_reuse(unsaved, reduced_size) else None
