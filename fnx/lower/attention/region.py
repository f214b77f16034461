"""Attention-like regions: matmul -> elementwise -> reduction, the matmul having no other consumer.

    s = q @ k.T, p = exp(s - max(s)), o = (p / sum(p)) @ v        q, k, v of (n, d)

    products   s              of (n, n); read only by elementwise work and by ``folds``
    folds      max, sum, @ v  of (n,) and (n, d): in memory, as are q, k and v

So a region can be computed tile by tile, and its products are never written.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence

from fnx.core.ir import ops
from fnx.core.ir.accessors import consumers
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting.rewrite import underlying_const
from fnx.core.support.record import Record
from fnx.lower.analysis.workload import may_be_product, two_factors
from fnx.lower.attention.expression import VIEW_OPS, IndexWalk
from fnx.lower.fusion import cost
from fnx.lower.fusion.index_tokens import ZERO, Token, Tokens, identity_index
from fnx.lower.fusion.placement import PROLOGUE_WEIGHT
from fnx.lower.fusion.varying_axes import varying_axes
from fnx.lower.loops.scalarize import NotFusable

MAX_NODES = 256   # of a region
MASK_EXPANSION = 16           # times as many elements as the inputs of a value: a mask, by indices
INDEX_WEIGHT = 48  # of one element of it, at most
_FIRST_LANE_TOKEN = 500      # the first token of an axis that only a reduction has


class RegionReduce(Record):
    """A REDUCE of a region.

    Attributes:
        node: the REDUCE.
        result: the node that is stored: the REDUCE or a PERMUTE of it.
        product: the product whose axes are the loops: token a is its axis a.
        index: where the result is stored.
        inner: where the operand is read.
        reduced_axes: axes of the product that it reduces.
        lanes: tokens of axes that the product lacks, with their lengths.
    """

    node: UOp
    result: UOp
    product: UOp
    index: Tokens
    inner: Tokens
    reduced_axes: frozenset[int]
    lanes: tuple[tuple[Token, int], ...]


class AttentionRegion(Record):
    """Products, what is computed from them, and the reductions, in graph order."""

    products: tuple[UOp, ...]
    inside: frozenset[UOp]
    reductions: tuple[RegionReduce, ...]
    walk: IndexWalk


class RegionAnalysis:
    """Analyses of the nodes of a FUNCTION."""

    def __init__(self, fn: UOp) -> None:
        self.nodes = toposort(fn.src)
        self.users = consumers(self.nodes)
        self.results = frozenset(fn.src)
        self.cost = cost.costs(self.nodes)
        self.varies = varying_axes(self.nodes)
        self.contractions = cost.contractions(self.nodes, self.varies)

    def axes(self, node: UOp) -> frozenset[int]:
        """Return the axes that a value varies along."""
        return frozenset([a for a in range(len(node.shape)) if self.varies[node] >> a & 1])

    def factors(self, product: UOp) -> tuple[UOp, UOp]:
        match = two_factors(product, self.axes, frozenset(product.arg.axes))
        assert match is not None
        return match

    def families(self, product: UOp) -> tuple[frozenset[int], frozenset[int]]:
        """Return for each factor of a product the axes that only this factor has."""
        factors = self.factors(product)
        result_axes = [a for a in range(len(product.src[0].shape)) if a not in product.arg.axes]
        left, right = [frozenset([i for i, a in enumerate(result_axes) if a in along])
                       for along in map(self.axes, factors)]
        return left - right, right - left

    def is_product(self, node: UOp) -> bool:
        """Whether a contraction has more elements than its factors."""
        lengths = node.src[0].shape
        max_elements = 0
        for factor in self.factors(node):
            max_elements = max(max_elements, math.prod([lengths[a] for a in self.axes(factor)]))
        return 2 * max_elements <= math.prod(node.shape)

    def matrix_size(self, product: UOp) -> int:
        """Return the elements of the matrix that is traversed by rows and blocks."""
        return math.prod([max([product.shape[a] for a in f], default=1)
                          for f in self.families(product)])

    def is_inlined(self, node: UOp) -> bool:
        """Whether a value is computed where it is read."""
        if node.op in (ops.CONST, ops.IOTA) or node.op in VIEW_OPS:
            return True
        return node.op.kind == "elementwise" and (
            self.is_broadcast(node) or self.cost[node].weight <= PROLOGUE_WEIGHT
            or self._is_mask(node))

    def _is_mask(self, node: UOp) -> bool:
        """Whether a value is computed from indices, and from far smaller values, with less work
        than writing and reading it takes: a mask."""
        element_count = self._count(node)
        work = 0
        for n in toposort([node], stop=self._is_in_memory):
            count = self._count(n)
            if self._is_in_memory(n):
                if count * MASK_EXPANSION > element_count:
                    return False
            elif n.op.kind == "elementwise":
                work += n.op.cost * count
        return work <= INDEX_WEIGHT * element_count

    def _count(self, node: UOp) -> int:
        """Return how many elements of a value may differ."""
        return math.prod([node.shape[a] for a in self.axes(node)])

    def _is_in_memory(self, node: UOp) -> bool:
        """Whether a node is in memory, or a view of a value in memory."""
        while node.op in VIEW_OPS:
            node = node.src[0]
        return node.op.kind != "elementwise" and node.op not in (ops.CONST, ops.IOTA)

    def is_broadcast(self, node: UOp) -> bool:
        """Whether a value is broadcast along one of its axes."""
        return len(self.axes(node)) < sum(n > 1 for n in node.shape)


def find_regions(facts: RegionAnalysis, min_elements: int,
                 bit_exact: bool) -> Iterator[tuple[list[UOp], AttentionRegion | str]]:
    """Yield connected sets of products of at least ``min_elements`` elements with their region, or
    the reason why there is none. ``bit_exact``: recomputed values have the same bits."""
    owner: dict[UOp, UOp] = {}  # union-find over products and elementwise nodes

    def find(node: UOp) -> UOp:
        while owner[node] is not node:
            node = owner[node]
        return node

    for node in facts.nodes:
        if node in facts.contractions:
            if may_be_product(node, min_elements) and facts.is_product(node) \
                    and facts.matrix_size(node) >= min_elements:
                owner[node] = node
        elif node.op.kind == "elementwise" or node.op in VIEW_OPS:
            for root in [find(s) for s in node.src if s in owner]:
                owner[root] = owner.setdefault(node, root) if node not in owner else find(node)
    members: dict[UOp, list[UOp]] = {}
    for node in facts.nodes:
        if node in owner:
            members.setdefault(find(node), []).append(node)
    for component in members.values():
        products = [n for n in component if n in facts.contractions]
        try:
            yield products, _build_region(facts, products, component, bit_exact)
        except NotFusable as e:
            yield products, str(e)


def _build_region(facts: RegionAnalysis, products: Sequence[UOp], inside: Sequence[UOp],
                  bit_exact: bool
                  ) -> AttentionRegion:
    if len(inside) > MAX_NODES:
        raise NotFusable("too much is computed of it")
    inside_set = frozenset(inside)
    if any(n.dtype.storage is not None and n.op.kind == "elementwise" and n.op is not ops.CAST
           for n in inside):
        raise NotFusable("each step rounds to a type that is stored only")
    if not bit_exact and any(
            n.op in (ops.CMPEQ, ops.CMPNE) and not inside_set.issuperset(n.src)
            and all(underlying_const(s) is None for s in n.src) for n in inside):
        raise NotFusable("what is equal to it may not be when it is computed again")
    reductions: dict[UOp, UOp] = {}
    for node in inside:
        if node in facts.results:
            raise NotFusable("it is a result of the function")
        for user in facts.users[node]:
            if user in inside_set:
                continue
            if user.op is not ops.REDUCE:
                raise NotFusable(f"{user.op} reads it")
            reductions[user] = _stored_node(facts, user)
    known, stored_nodes = frozenset(products), frozenset(reductions.values())
    # and values computed from these, which are inlined, too
    computed_after = {*reductions, *stored_nodes}
    for node in facts.nodes:
        if (node.op.kind == "elementwise" or node.op in VIEW_OPS) and node not in inside_set \
                and any(s in computed_after for s in node.src):
            computed_after.add(node)

    prepared = _materialized_factors(
        facts, [factor for n in (*products, *reductions) if n in facts.contractions
                for factor in facts.factors(n)], inside_set)

    def is_memory(node: UOp) -> bool:
        if node in stored_nodes or node.op is ops.REDUCE:
            return node in stored_nodes or node not in known
        return node in prepared or (
            node not in inside_set and node not in computed_after and not facts.is_inlined(node))

    walk = IndexWalk(is_memory)
    matched = [_match_reduction(node, reductions[node], products, walk)
               for node in facts.nodes if node in reductions]
    return AttentionRegion(tuple(products), inside_set, tuple(matched), walk)


def _materialized_factors(facts: RegionAnalysis, factors: Sequence[UOp],
                          inside_set: Container[UOp]) -> frozenset[UOp]:
    """Return values computed for factors, each element of which is read by many blocks: they are
    computed once, before."""
    materialized, seen, stack = set[UOp](), set[UOp](), list(factors)
    while stack:
        node = stack.pop()
        if node in seen or node in inside_set:
            continue
        seen.add(node)
        if node.op in VIEW_OPS or node.op.kind == "elementwise" and facts.is_broadcast(node):
            stack += node.src
        elif node.op.kind == "elementwise" and facts.axes(node):
            materialized.add(node)
    return frozenset(materialized)


def _stored_node(facts: RegionAnalysis, fold: UOp) -> UOp:
    """Return the reduction, or its only consumer if that is a PERMUTE."""
    users = facts.users[fold]
    is_permuted_only = len(users) == 1 and users[0].op is ops.PERMUTE and fold not in facts.results
    return users[0] if is_permuted_only else fold


def _match_reduction(node: UOp, result: UOp, products: Sequence[UOp],
                     walk: IndexWalk) -> RegionReduce:
    if node.arg.monoid not in (ops.ADD, ops.MAX, ops.MIN) or not node.dtype.is_float:
        raise NotFusable(f"a fold of {node.arg.monoid}")
    result_index = identity_index(node.shape)
    inner = walk.reduce_index(node, result_index)
    product_index: dict[UOp, Tokens] = {}
    for n, index in walk.all(node.src[0], inner):
        if n in products and product_index.setdefault(n, index) != index:
            raise NotFusable("it is read at two places")
    product = next(p for p in products if p in product_index)
    loop_axis = _loop_to_axis(product_index[product], product.shape)
    lanes: list[tuple[Token, int]] = []
    for token, count in zip(result_index, node.shape):
        if token != ZERO and token not in loop_axis:
            loop_axis[token] = _FIRST_LANE_TOKEN + len(lanes)
            lanes.append((loop_axis[token], count))
    summed = [t for a, t in walk.summed[node].items() if t != ZERO]
    if any(t not in loop_axis for t in summed) or not summed:
        raise NotFusable("it is folded along axes that it has not")

    axes = [axis for t in summed for axis, _ in _token_axes(loop_axis[t])]

    def renamed(index: Tokens) -> Tokens:
        return tuple([t if t == ZERO else loop_axis[t] for t in index])
    index = renamed(result_index)
    if result is not node:
        index = tuple([index[a] for a in result.arg])
    return RegionReduce(node, result, product, index, renamed(inner),
                        frozenset(axes), tuple(lanes))


def _loop_to_axis(index: Tokens, shape: ops.Shape) -> dict[Token, Token]:
    """Map the loops of a reduction to axes of the product that it reads at an index."""
    out: dict[Token, Token] = {}
    digits: dict[Token, list[tuple[int, int, int]]] = {}
    for axis, (token, n) in enumerate(zip(index, shape)):
        if n == 1:
            continue
        if type(token) is tuple and token[0] == "part" and type(token[1]) is int:
            digits.setdefault(token[1], []).append((token[2], n, axis))
        elif type(token) is not int or token in out:
            raise NotFusable("it is read across its axes")
        else:
            out[token] = axis
    for token, parts in digits.items():  # one loop of the reduction covers several axes
        radix = 1
        parts.sort()
        for d, count, _ in parts:
            if d != radix or token in out:
                raise NotFusable("it is read across its axes")
            radix *= count
        out[token] = ("join", tuple([(axis, count) for _, count, axis in reversed(parts)]))
    return out


def _token_axes(token: Token) -> tuple[tuple[Token, int], ...]:
    """Return the axes that a token consists of."""
    return token[1] if type(token) is tuple else ((token, 0),)
