"""Outer factors: what multiplies both factors of a contraction goes to one of them, or behind it.

    before  sum over k of (x[m, k] * w[k, n]) * s * u[m] * v[k]
    after   (sum over k of (x[m, k] * v[k]) * w[k, n]) * s * u[m]

A term is one multiply-add then, as in a plain product. What does not vary along k multiplies the
sum; what does, and else only along axes of one of the two, goes into that one, which is read, and
packed, less often. Divisors go the same ways.

>>> from fnx.core import dtypes
>>> m, n, k = (build.range_(8, id) for id in range(3))
>>> x, w, o = (build.at(build.ref(slot, dtypes.float32, (8, 8)), *at)
...            for slot, at in enumerate([(m, k), (k, n), (m, n)]))
>>> u = build.load(build.at(build.ref(3, dtypes.float32, (8,)), m))
>>> terms = build.mul(build.mul(build.load(x), build.load(w)), u)
>>> total = build.reduce_ranges(terms, ops.ADD, [k])
>>> after = outer_factors(build.kernel([build.store(o, total)], "product", (0, 1, 2)))
>>> product, = {n for n in after.src[0].src[1].src if n is not u}
>>> set(product.src[0].src) == {build.load(x), build.load(w)}
True
"""

from __future__ import annotations

import math
from operator import attrgetter

from fnx.core import build, ops
from fnx.core.parts import closed, extent
from fnx.core.record import Record
from fnx.core.rewriting import symbolic
from fnx.core.uop import UOp, inherit, substitute, toposort
from fnx.lower.factors import two_factors

_MOST = 16  # factors of a product that are looked at


class _Factor(Record):
    """A part of a product; ``inverse``: the product is divided by it."""

    node: UOp
    inverse: bool = False

    def of(self, product: UOp) -> UOp:
        """The product with this factor."""
        return build.div(product, self.node) if self.inverse else build.mul(product, self.node)


def outer_factors(kernel: UOp) -> UOp:
    """The KERNEL whose contractions are sums of a product of two."""
    to: dict[UOp, UOp] = {}
    for node in toposort(kernel.src):
        if node.op is ops.REDUCE:
            moved = _moved(node)
            if moved is not None:
                to[node] = inherit(moved, node)
    return kernel.over(tuple(substitute(kernel.src, to))) if to else kernel


def _moved(reduce: UOp) -> UOp | None:
    """A contraction with one product of two inside; None for any other sum."""
    summed = frozenset(closed(reduce))
    pair = two_factors(reduce, attrgetter("ranges"), summed)
    found = None if pair is None else _factors(reduce.src[0], pair)
    if pair is None or not found:
        return None
    left, right = sorted(pair, key=lambda n: math.prod(symbolic.bounds(extent(r))[1]
                                                       for r in n.ranges))
    inside: list[_Factor] = []
    outside: list[_Factor] = []
    for factor in found:
        along = factor.node.ranges
        if summed.isdisjoint(along):
            outside.append(factor)
        elif along <= left.ranges | summed:
            left = factor.of(left)
        elif along <= right.ranges | summed:
            right = factor.of(right)
        else:
            inside.append(factor)
    value = build.mul(left, right)
    for factor in inside:
        value = factor.of(value)
    total = reduce.over((value, *reduce.src[1:]))
    for factor in outside:
        total = factor.of(total)
    return total


def _factors(value: UOp, pair: tuple[UOp, UOp]) -> list[_Factor] | None:
    """The factors of a product but for a pair; None where more than a product is in between."""
    found: list[_Factor] = []
    pending = [_Factor(value)]
    met: list[UOp] = []
    while pending:
        factor = pending.pop()
        node = factor.node
        if node in pair and not factor.inverse and node not in met:
            met.append(node)
        elif node.op in (ops.MUL, ops.DIV) and not factor.inverse:
            pending += [_Factor(node.src[1], node.op is ops.DIV), _Factor(node.src[0])]
        elif node.op is ops.NEG and not factor.inverse:
            pending += [_Factor(node.src[0]), _Factor(build.like(node, -1))]
        else:
            found.append(factor)
        if len(found) + len(pending) > _MOST:
            return None
    return found if len(met) == 2 else None
