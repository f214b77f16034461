"""Split a loop whose counter is divided by a number: quotients and remainders become counters.

    before  STORE(o[r0], x[r0 // 801] if r0 % 801 < 1 else 0)               r0 < 640000
    after   STORE(o[801*r0 + r1], x[r0] if r1 < 1 else 0), 801*r0 + r1 < 640000
                                                                            r0 < 800, r1 < 801

This is the derivative of a slice with a step, such as a diagonal, in its array. Lanes along r1 need
no division and no gather, and its loop is cut where the condition holds. Steps that are longer
than an interleaved access and shorter than a vector would leave lanes idle: such loops stay.

>>> from fnx.core.ir import dtypes
>>> r = build.range_(100, 0)
>>> x, o = (build.ref(i, dtypes.float32, (n,)) for i, n in enumerate((4, 100)))
>>> valid = build.lt(build.rem(r, build.index_const(33)), build.index_const(1))
>>> value = build.load(build.index_into(x, build.idiv(r, build.index_const(33))), valid)
>>> kernel = build.kernel([build.store(build.index_into(o, r), value)], "diagonal", (0,))
>>> split = split_by_divisor(kernel)
>>> sorted([build.const_of(r.src[0]) for r in split.src[0].ranges])
[4, 33]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.accessors import conjuncts, extent, validity
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp, rebuild, substitute, toposort
from fnx.core.rewriting import symbolic
from fnx.lower.analysis.canonicalize import with_stores
from fnx.lower.analysis.tuning import VECTOR_BYTES
from fnx.lower.analysis.workload import itemsize
from fnx.lower.emit.shuffles import MAX_STRIDE

_UNSUPPORTED = frozenset({ops.REDUCE, ops.STAGE, ops.LOOP, ops.CARRY})


def split_by_divisor(kernel: UOp) -> UOp:
    """Return a KERNEL of one map with the loop split that is divided by one number; else itself."""
    nodes = toposort(kernel.src)
    if len(kernel.src) > 1 or kernel.src[0].arg is not None or \
            any(n.op in _UNSUPPORTED for n in nodes):
        return kernel
    divisions = {d for n in nodes if n.op in (ops.IDIV, ops.REM) and n.dtype is dtypes.index
                 and (d := _divided_range(n)) is not None}
    if len(divisions) != 1:
        return kernel
    (r, shift, n), = divisions
    is_narrow = MAX_STRIDE < n < VECTOR_BYTES // itemsize(nodes)
    return kernel if is_narrow or n >= build.const_of(extent(r)) else \
        _split(kernel, r, shift, n)


def _divided_range(division: UOp) -> tuple[UOp, int, int] | None:
    """Return (r, c, n) for the quotient or remainder of r + c by n, where r is as long as a
    constant."""
    x, n = division.src
    terms, constant = symbolic.linear_terms(x)
    if n.op is not ops.CONST or list(terms.values()) != [1] or constant < 0:
        return None
    (monomial,) = terms
    r = monomial[0] if len(monomial) == 1 else x
    return (r, constant, build.const_of(n)) if r.op is ops.RANGE and \
        extent(r).op is ops.CONST else None


def _split(kernel: UOp, r: UOp, shift: int, n: int) -> UOp:
    length, start = build.const_of(extent(r)), shift % n
    count = -(-(length + start) // n)
    outer = build.range_(count, r.arg.id)
    inner = build.range_(n, 1 + max(kernel.arg.order))
    at = Expr(outer) * n + Expr(inner) - start
    guards = [(at >= 0).node] if start else []
    guards += [(at < length).node] if count * n > length + start else []

    def simplified(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        if node.op is ops.INDEX:
            return build.index_into(src[0], *map(symbolic.simplify, src[1:]))
        if node.op is ops.LOAD and guards and not src[0].ranges.isdisjoint((outer, inner)):
            valid = src[1] if len(src) > 1 else None
            return build.load(src[0], _all([*guards, *conjuncts(valid)]))
        is_comparison = node.op in ops.COMPARISONS and src[0].dtype is dtypes.index
        return symbolic.simplify(node.with_operands(src)) if is_comparison else None

    store, = rebuild(substitute(kernel.src, {r: at.node}), simplified)
    if guards:
        valid = _all([*guards, *conjuncts(validity(store))])
        store = build.store(store.src[0], store.src[1], valid)
    order = [i for x in kernel.arg.order
             for i in ((x, inner.arg.id) if x == r.arg.id else (x,))]
    return with_stores(kernel, [store], order)


def _all(conditions: Sequence[UOp]) -> UOp:
    return reduce(build.and_, map(symbolic.simplify, conditions))
