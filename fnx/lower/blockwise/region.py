"""Attention-like regions: matmul -> elementwise -> reduction, the matmul having no other consumer.

    s = q @ k.T, p = exp(s - max(s)), o = (p / sum(p)) @ v        q, k, v of (n, d)

    products   s              of (n, n); read only by elementwise work and by ``folds``
    folds      max, sum, @ v  of (n,) and (n, d): in memory, as are q, k and v

So a region can be computed tile by tile, and its products are never written.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Sequence

from fnx.core import ops
from fnx.core.record import Record
from fnx.core.rewriting.pattern import constant_of
from fnx.core.uop import UOp, consumers, toposort
from fnx.lower.blockwise.expression import MOVED, Walk
from fnx.lower.blockwise.products import may_be_product
from fnx.lower.factors import two_factors
from fnx.lower.fusion import cost
from fnx.lower.fusion.index_tokens import ZERO, Token, Tokens, identity_index
from fnx.lower.fusion.kernelize import PROLOGUE_WEIGHT
from fnx.lower.loops.cells import Unfit

MAX_NODES = 256   # of a region
FAR = 16           # times as many elements as the inputs of a value: a mask, by indices
INDEX_WEIGHT = 48  # of one element of it, at most
_LANES = 500      # the first token of an axis that only a reduction has


class RegionReduce(Record):
    """A REDUCE of a region.

    Attributes:
        node: the REDUCE.
        result: the node that is stored: the REDUCE or a PERMUTE of it.
        product: the product whose axes are the loops: token a is its axis a.
        index: where the result is stored.
        inner: where the operand is read.
        summed: axes of the product that it reduces.
        lanes: tokens of axes that the product lacks, with their lengths.
    """

    node: UOp
    result: UOp
    product: UOp
    index: Tokens
    inner: Tokens
    summed: frozenset[int]
    lanes: tuple[tuple[Token, int], ...]


class Region(Record):
    """Products, what is computed from them, and the reductions, in graph order."""

    products: tuple[UOp, ...]
    inside: frozenset[UOp]
    folds: tuple[RegionReduce, ...]
    walk: Walk


class Facts:
    """Analyses of the nodes of a FUNCTION."""

    def __init__(self, fn: UOp) -> None:
        self.nodes = toposort(fn.src)
        self.users = consumers(self.nodes)
        self.results = frozenset(fn.src)
        self.cost = cost.costs(self.nodes)
        self.varies = cost.varying(self.nodes)
        self.contractions = cost.contractions(self.nodes, self.varies)

    def axes(self, node: UOp) -> frozenset[int]:
        """Return the axes that a value varies along."""
        return frozenset([a for a in range(len(node.shape)) if self.varies[node] >> a & 1])

    def factors(self, product: UOp) -> tuple[UOp, UOp]:
        found = two_factors(product, self.axes, frozenset(product.arg.axes))
        assert found is not None
        return found

    def families(self, product: UOp) -> tuple[frozenset[int], frozenset[int]]:
        """Return for each factor of a product the axes that only this factor has."""
        found = self.factors(product)
        kept = [a for a in range(len(product.src[0].shape)) if a not in product.arg.axes]
        left, right = [frozenset([i for i, a in enumerate(kept) if a in along])
                       for along in map(self.axes, found)]
        return left - right, right - left

    def is_product(self, node: UOp) -> bool:
        """Whether a contraction has more elements than its factors."""
        lengths = node.src[0].shape
        most = 0
        for factor in self.factors(node):
            most = max(most, math.prod([lengths[a] for a in self.axes(factor)]))
        return 2 * most <= math.prod(node.shape)

    def matrix(self, product: UOp) -> int:
        """Return the elements of the matrix that is traversed by rows and blocks."""
        return math.prod([max([product.shape[a] for a in f], default=1)
                          for f in self.families(product)])

    def is_light(self, node: UOp) -> bool:
        """Whether a value is computed where it is read."""
        if node.op in (ops.CONST, ops.IOTA) or node.op in MOVED:
            return True
        return node.op.kind == "elementwise" and (
            self.is_spread(node) or self.cost[node].weight <= PROLOGUE_WEIGHT
            or self._of_indices(node))

    def _of_indices(self, node: UOp) -> bool:
        """Whether a value is computed from indices, and from far smaller values, with less work
        than writing and reading it takes: a mask."""
        whole = self._count(node)
        work = 0
        for n in toposort([node], stop=self._is_read):
            count = self._count(n)
            if self._is_read(n):
                if count * FAR > whole:
                    return False
            elif n.op.kind == "elementwise":
                work += n.op.cost * count
        return work <= INDEX_WEIGHT * whole

    def _count(self, node: UOp) -> int:
        """Return how many elements of a value may differ."""
        return math.prod([node.shape[a] for a in self.axes(node)])

    def _is_read(self, node: UOp) -> bool:
        """Whether a node is in memory, or a view of a value in memory."""
        while node.op in MOVED:
            node = node.src[0]
        return node.op.kind != "elementwise" and node.op not in (ops.CONST, ops.IOTA)

    def is_spread(self, node: UOp) -> bool:
        """Whether a value is broadcast along one of its axes."""
        return len(self.axes(node)) < sum(n > 1 for n in node.shape)


def regions(facts: Facts, least: int, again: bool) -> Iterator[tuple[list[UOp], Region | str]]:
    """Yield connected sets of products of at least ``least`` elements with their region, or the
    reason why there is none. ``again``: recomputed values have the same bits."""
    owner: dict[UOp, UOp] = {}  # union-find over products and elementwise nodes

    def find(node: UOp) -> UOp:
        while owner[node] is not node:
            node = owner[node]
        return node

    for node in facts.nodes:
        if node in facts.contractions:
            if may_be_product(node, least) and facts.is_product(node) \
                    and facts.matrix(node) >= least:
                owner[node] = node
        elif node.op.kind == "elementwise" or node.op in MOVED:
            for first in [find(s) for s in node.src if s in owner]:
                owner[first] = owner.setdefault(node, first) if node not in owner else find(node)
    members: dict[UOp, list[UOp]] = {}
    for node in facts.nodes:
        if node in owner:
            members.setdefault(find(node), []).append(node)
    for inside in members.values():
        products = [n for n in inside if n in facts.contractions]
        try:
            yield products, _region(facts, products, inside, again)
        except Unfit as e:
            yield products, str(e)


def _region(facts: Facts, products: Sequence[UOp], inside: Sequence[UOp], again: bool
            ) -> Region:
    if len(inside) > MAX_NODES:
        raise Unfit("too much is computed of it")
    own = frozenset(inside)
    if any(n.dtype.storage is not None and n.op.kind == "elementwise" and n.op is not ops.CAST
           for n in inside):
        raise Unfit("each step rounds to a type that is stored only")
    if not again and any(
            n.op in (ops.CMPEQ, ops.CMPNE) and not own.issuperset(n.src)
            and all(constant_of(s) is None for s in n.src) for n in inside):
        raise Unfit("what is equal to it may not be when it is computed again")
    folds: dict[UOp, UOp] = {}
    for node in inside:
        if node in facts.results:
            raise Unfit("it is a result")
        for user in facts.users[node]:
            if user in own:
                continue
            if user.op is not ops.REDUCE:
                raise Unfit(f"{user.op} reads it")
            folds[user] = _stored(facts, user)
    known, stored = frozenset(products), frozenset(folds.values())
    after = {*folds, *stored}  # and values computed from these, which are inlined, too
    for node in facts.nodes:
        if (node.op.kind == "elementwise" or node.op in MOVED) and node not in own \
                and any(s in after for s in node.src):
            after.add(node)

    prepared = _prepared(facts, [factor for n in (*products, *folds)
                                 if n in facts.contractions for factor in facts.factors(n)], own)

    def is_memory(node: UOp) -> bool:
        if node in stored or node.op is ops.REDUCE:
            return node in stored or node not in known
        return node in prepared or (
            node not in own and node not in after and not facts.is_light(node))

    walk = Walk(is_memory)
    found = [_fold(node, folds[node], products, walk) for node in facts.nodes if node in folds]
    return Region(tuple(products), own, tuple(found), walk)


def _prepared(facts: Facts, factors: Sequence[UOp], own: Container[UOp]) -> frozenset[UOp]:
    """Return values computed for factors, each element of which is read by many blocks: they are
    computed once, before."""
    out, seen, stack = set[UOp](), set[UOp](), list(factors)
    while stack:
        node = stack.pop()
        if node in seen or node in own:
            continue
        seen.add(node)
        if node.op in MOVED or node.op.kind == "elementwise" and facts.is_spread(node):
            stack += node.src
        elif node.op.kind == "elementwise" and facts.axes(node):
            out.add(node)
    return frozenset(out)


def _stored(facts: Facts, fold: UOp) -> UOp:
    """Return the reduction, or its only consumer if that is a PERMUTE."""
    users = facts.users[fold]
    alone = len(users) == 1 and users[0].op is ops.PERMUTE and fold not in facts.results
    return users[0] if alone else fold


def _fold(node: UOp, result: UOp, products: Sequence[UOp], walk: Walk) -> RegionReduce:
    if node.arg.monoid not in (ops.ADD, ops.MAX, ops.MIN) or not node.dtype.is_float:
        raise Unfit(f"a fold of {node.arg.monoid}")
    own = identity_index(node.shape)
    inner = walk.fold(node, own)
    reached: dict[UOp, Tokens] = {}
    for n, index in walk.all(node.src[0], inner):
        if n in products and reached.setdefault(n, index) != index:
            raise Unfit("it is read at two places")
    product = next(p for p in products if p in reached)
    rename = _renamed(reached[product], product.shape)
    lanes: list[tuple[Token, int]] = []
    for token, count in zip(own, node.shape):
        if token != ZERO and token not in rename:
            rename[token] = _LANES + len(lanes)
            lanes.append((rename[token], count))
    summed = [t for a, t in walk.summed[node].items() if t != ZERO]
    if any(t not in rename for t in summed) or not summed:
        raise Unfit("it is folded along axes that it has not")

    axes = [axis for t in summed for axis, _ in _joined(rename[t])]

    def renamed(index: Tokens) -> Tokens:
        return tuple([t if t == ZERO else rename[t] for t in index])
    index = renamed(own)
    if result is not node:
        index = tuple([index[a] for a in result.arg])
    return RegionReduce(node, result, product, index, renamed(inner),
                frozenset(axes), tuple(lanes))


def _renamed(index: Tokens, shape: ops.Shape) -> dict[Token, Token]:
    """Map the loops of a reduction to axes of the product that it reads at an index."""
    out: dict[Token, Token] = {}
    digits: dict[Token, list[tuple[int, int, int]]] = {}
    for axis, (token, n) in enumerate(zip(index, shape)):
        if n == 1:
            continue
        if type(token) is tuple and token[0] == "part" and type(token[1]) is int:
            digits.setdefault(token[1], []).append((token[2], n, axis))
        elif type(token) is not int or token in out:
            raise Unfit("it is read across its axes")
        else:
            out[token] = axis
    for token, found in digits.items():  # one loop of the reduction covers several axes
        step = 1
        found.sort()
        for d, count, _ in found:
            if d != step or token in out:
                raise Unfit("it is read across its axes")
            step *= count
        out[token] = ("join", tuple([(axis, count) for _, count, axis in reversed(found)]))
    return out


def _joined(token: Token) -> tuple[tuple[Token, int], ...]:
    """Return the axes that a token consists of."""
    return token[1] if type(token) is tuple else ((token, 0),)
