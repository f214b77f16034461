"""Hoist scalar factors: constants that multiply the terms of a contraction multiply its sum.

    before  sum over k of -((x[m, k] * u[m]) * w[k, n]) * 0.5
    after   (sum over k of (x[m, k] * u[m]) * w[k, n]) * -1 * 0.5

A term is then one multiply-add, as in a plain product. Loaded factors stay inside: a sum of terms
of both signs times infinity is infinite, but NaN if each term is multiplied; and another order
of products overflows elsewhere. For the same reason a hoisted constant is neither zero nor far
from 1.

>>> from fnx.core.ir import dtypes
>>> m, n, k = (build.range_(8, id) for id in range(3))
>>> x, w, o = (build.index_into(build.ref(slot, dtypes.float32, (8, 8)), *at)
...            for slot, at in enumerate([(m, k), (k, n), (m, n)]))
>>> terms = build.mul(build.load(x), build.load(w))
>>> total = build.reduce_ranges(build.mul(terms, build.const_like(terms, 0.5)), ops.ADD, [k])
>>> after = hoist_scalar_factors(build.kernel([build.store(o, total)], "product", (0, 1, 2)))
>>> product, = {n for n in after.src[0].src[1].src if n.op is ops.REDUCE}
>>> product.src[0] is terms
True
"""

from __future__ import annotations

from operator import attrgetter

from fnx.core.ir import build, ops
from fnx.core.ir.accessors import bound_ranges, value
from fnx.core.ir.uop import UOp, copy_locs, substitute, toposort
from fnx.lower.analysis.workload import two_factors

_MAX_FACTOR = 2.0 ** 40


def hoist_scalar_factors(kernel: UOp) -> UOp:
    """Hoist constant factors out of the contractions of a KERNEL."""
    replacements: dict[UOp, UOp] = {}
    for node in toposort(kernel.src):
        if node.op is ops.REDUCE:
            hoisted = _hoist(node)
            if hoisted is not None:
                replacements[node] = copy_locs(hoisted, node)
    return kernel.with_operands(tuple(substitute(kernel.src, replacements))) \
        if replacements else kernel


def _hoist(reduce: UOp) -> UOp | None:
    """Return a contraction times constants; None if its terms have none, or for any other sum."""
    terms, constants = value(reduce), list[tuple[ops.Op, UOp]]()
    while (split := _split_constant(terms)) is not None:
        terms, op, number = split
        constants.append((op, number))
    if not constants or \
            two_factors(reduce, attrgetter("ranges"), frozenset(bound_ranges(reduce))) is None:
        return None
    total = reduce.with_operands((terms, *reduce.src[1:]))
    for op, number in reversed(constants):
        total = build.div(total, number) if op is ops.DIV else build.mul(total, number)
    return total


def _split_constant(term: UOp) -> tuple[UOp, ops.Op, UOp] | None:
    """Split a term into the remaining term, MUL or DIV, and a constant; None if it has no
    constant."""
    if term.op is ops.NEG:
        return term.src[0], ops.MUL, build.const_like(term, -1)
    if term.op is ops.MUL and _is_safe_factor(term.src[0]):
        return term.src[1], ops.MUL, term.src[0]
    if term.op in (ops.MUL, ops.DIV) and _is_safe_factor(term.src[1]):
        return term.src[0], term.op, term.src[1]
    return None


def _is_safe_factor(node: UOp) -> bool:
    return node.op is ops.CONST and 1 / _MAX_FACTOR <= abs(build.const_of(node)) <= _MAX_FACTOR
