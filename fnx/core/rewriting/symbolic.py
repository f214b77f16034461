"""Algebra of index expressions: normal form, bounds, proofs, mixed-radix indices.

An index expression (dtype ``index``: an unbounded integer) is represented as a polynomial
{monomial of atoms: coefficient}; the monomial () holds the constant. Atoms are RANGEs, VARs,
loaded data, and operations that no rule resolves: a division, a remainder, min, max, where.
Divisions are simplified if bounds allow it, even with extents known only at run time:

>>> r, c = build.range_(8, 0), build.range_(5, 1)
>>> flat = ravel((r, c), (8, 5))
>>> unravel(flat, (8, 5)) == (r, c)
True
>>> bounds(flat)
(0, 39)
>>> n = build.var(0, dtypes.index, name="n")
>>> column = build.range_(n, 2)
>>> unravel(ravel((r, column), (8, n)), (8, n)) == (r, column)
True

IDIV rounds toward zero and REM has the sign of the dividend (core/ir/ops.py), so both are
simplified only if the dividend is known to be >= 0, or is a multiple. Divisors are assumed to be
non-zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fnx.core.ir import accessors, build, dtypes, ops
from fnx.core.ir.cache import memoized
from fnx.core.ir.uop import UOp, toposort
from fnx.core.rewriting import algebra
from fnx.core.rewriting.algebra import (
    Bounds,
    Monomial,
    Polynomial,
    add,
    atom_order,
    coefficients_mod,
    common_factors,
    constant,
    divide,
    divide_coefficients,
    from_int,
    hull,
    interval_product,
    mul,
    single_atom,
    split_linear,
    to_node,
    trunc,
)

Extent = UOp | int

MAX_TERMS = 256  # longer products stay atoms: a product of n two-term sums has 2**n terms
_ONE: Polynomial = {(): 1}
_ITSELF: Polynomial = {}  # memo of an atom: a polynomial that referenced its key would never die


# ---- bounds -----------------------------------------------------------------------------------


def _interval(p: Polynomial) -> Bounds:
    """Bound p by the sum of the bounds of its terms."""
    low = high = 0
    for m, c in p.items():
        term = (c, c)
        for atom in m:
            term = interval_product(term, _atom_bounds(atom))
        low, high = low + term[0], high + term[1]
    return low, high


def _atom_bounds(atom: UOp) -> Bounds:
    result = atom.bounds
    if result is None:
        rule = _BOUNDS_RULES.get(atom.op)
        result = atom.bounds = _dtype_bounds(atom) if rule is None else rule(atom)
    return result


def _dtype_bounds(atom: UOp) -> Bounds:
    """Bound loaded data by the limits of its dtype (before a cast), clipped to those of index."""
    t = atom.src[0].dtype if atom.op is ops.CAST else atom.dtype
    index_limits = dtypes.index.limits
    return t.limits if (t.is_integer or t.is_bool) and t.limits[1] <= index_limits[1] else \
        index_limits


def _interval_of_operands(atom: UOp) -> Bounds:
    return algebra.INTERVALS[atom.op](*map(bounds, atom.src))


_BOUNDS_RULES: dict[ops.Op, Callable[[UOp], Bounds]] = {
    ops.RANGE: lambda r: (0, max(0, bounds(r.src[0])[1] - 1)),
    ops.VAR: lambda v: (v.arg.low, v.arg.high),
    **dict.fromkeys((ops.IDIV, ops.REM, ops.MIN, ops.MAX), _interval_of_operands),
    ops.WHERE: lambda w: hull(bounds(w.src[1]), bounds(w.src[2])),
}


def _extent(atom: UOp) -> UOp | None:
    """Return the d of an atom with 0 <= atom < d, or None."""
    if atom.op is ops.RANGE:
        return atom.src[0]
    if atom.op is ops.REM and bounds(atom.src[0])[0] >= 0 and bounds(atom.src[1])[0] >= 0:
        return atom.src[1]
    return None


def _lower_bound(p: Polynomial) -> int:
    """Return a lower bound of p.

    Each atom below an extent is replaced by the end of its interval that minimizes p, as a
    polynomial, so that terms cancel; then each VAR by its lower bound plus a rest >= 0.
    """
    if all(len(m) < 2 and all(a.op is ops.RANGE and a.src[0].op is ops.CONST for a in m)
           for m in p):
        return _interval(p)[0]
    atoms = {a for m in p for a in m}
    for atom in sorted(atoms, key=atom_order, reverse=True):
        extent = _extent(atom)
        linear_in = None if extent is None else split_linear(p, atom)
        if linear_in is None or extent is None:
            continue
        a, b = linear_in
        low, high = _interval(a)
        if low >= 0:
            p = b
        elif high <= 0:
            p = add(b, mul(a, add(_polynomial(extent), _ONE, -1)))
    return max(_interval(p)[0], _shifted_lower_bound(p))


def _shifted_lower_bound(p: Polynomial) -> int:
    """Bound p from below with each atom replaced by (lower bound + rest), so that terms cancel."""
    out: Polynomial = {}
    for m, c in p.items():
        term: Polynomial = {(): c}
        for atom in m:
            term = mul(term, add({(atom,): 1}, from_int(_atom_bounds(atom)[0])))
        out = add(out, term)
    total = 0
    for m, c in out.items():
        if not m:
            total += c
        elif c < 0:
            total += c * math.prod(hi - lo for lo, hi in map(_atom_bounds, m))
    return total


def bounds(node: UOp) -> Bounds:
    """Return proven bounds (smallest, largest) of an index expression."""
    if node.op in _LEAVES:
        return _atom_bounds(node)
    result = node.bounds
    if result is None:
        p = _polynomial(node)
        result = node.bounds = (_lower_bound(p), -_lower_bound(add({}, p, -1)))
    return result


# ---- division ---------------------------------------------------------------------------------


def _atom(op: ops.Op, *operands: Polynomial) -> Polynomial:
    return _atom_polynomial(build.elementwise(op, *[to_node(p) for p in operands]))


def _atom_polynomial(node: UOp) -> Polynomial:
    """Return the polynomial of an atom, or of a constant if its bounds are equal.

    Computes the bounds now, while those of the operands are cached, as nesting may be deep.
    """
    low, high = _atom_bounds(node)
    empty = node.op is ops.RANGE and bounds(node.src[0])[0] < 1  # it may take no value at all
    p = node.polynomial = from_int(low) if low == high and not empty else _ITSELF
    return {(node,): 1} if p is _ITSELF else p


def _split_by_factor(p: Polynomial, n: int) -> tuple[int, Polynomial, Polynomial]:
    """Return (g, q, r) with p == g*q + r and 0 <= r < g, for the largest possible divisor g of n.

    Tries common divisors of n and coefficients of p; g == 1 if none works. For a vectorized loop
    r holds the lanes, and q the vectors.
    """
    for g in common_factors(p, n):
        q, r = divide(p, from_int(g))
        low, high = _interval(r)
        if low >= 0 and high < g:
            return g, q, r
    return 1, p, {}


def _reduce_below(p: Polynomial, b: Polynomial) -> Polynomial | None:
    """Return p with its coefficients reduced modulo the constant b, if that is in [0, b).

    For p = 65*i and b = 64 it is i, if i < 64.
    """
    n = constant(b)
    if n is None or all(c < n for m, c in p.items() if m):
        return None
    reduced = coefficients_mod(p, n)
    return reduced if min(of := _interval(reduced)) >= 0 and max(of) < n else None


def _idiv(a: Polynomial, b: Polynomial, positive: bool = False) -> Polynomial:
    """Return a // b; ``positive``: a >= 0 is known."""
    x, y = constant(a), constant(b)
    if x is not None and y is not None:
        return from_int(trunc(x, y))
    q, rest = divide(a, b) if b else ({}, a)
    if not rest:
        return q
    if not b or _lower_bound(b) < 0 or not (positive or _lower_bound(a) >= 0):
        return _atom(ops.IDIV, a, b)
    if _lower_bound(rest) < 0:
        q, rest = {}, a
    elif _lower_bound(add(b, rest, -1)) > 0:
        return q
    if (below := _reduce_below(rest, b)) is not None:
        return add(q, divide(add(rest, below, -1), b)[0])
    g, coarse, _ = _split_by_factor(rest, math.gcd(*b.values()))
    if g > 1:  # (g*p + r) // (g*d) == p // d  for 0 <= r < g
        return add(q, _idiv(coarse, divide_coefficients(b, g), positive=True))
    inner = single_atom(rest, ops.IDIV)
    if inner is not None and bounds(inner.src[0])[0] >= 0 and bounds(inner.src[1])[0] >= 0:
        return add(q, _idiv(_polynomial(inner.src[0]), mul(_polynomial(inner.src[1]), b)))
    inner = single_atom(rest, ops.MIN)
    if inner is not None:  # min(x, y) // b == min(x // b, y // b)
        low, high = (_idiv(_polynomial(x), b, positive=True) for x in inner.src)
        return add(q, _min_or_max(low, high))
    inner = single_atom(rest, ops.REM)
    if inner is not None and bounds(inner.src[0])[0] >= 0:  # x % (a*b) // b == x // b % a
        outer, remainder_ = divide(_polynomial(inner.src[1]), b)
        if not remainder_:
            return add(q, _rem(_idiv(_polynomial(inner.src[0]), b), outer))
    return add(q, _atom(ops.IDIV, rest, b))


def _min_or_max(a: Polynomial, b: Polynomial, op: ops.Op = ops.MIN) -> Polynomial:
    """Return the minimum of a and b, or the maximum for ``op`` MAX."""
    small, large = (a, b) if op is ops.MIN else (b, a)
    difference = add(b, a, -1)
    if _lower_bound(difference) >= 0:
        return small
    if _lower_bound(add({}, difference, -1)) >= 0:
        return large
    return _atom(op, a, b)


def _rem(a: Polynomial, b: Polynomial, positive: bool = False) -> Polynomial:
    """Return a % b; ``positive``: a >= 0 is known."""
    x, y = constant(a), constant(b)
    if x is not None and y is not None:
        return from_int(x - y * trunc(x, y))
    rest = divide(a, b)[1] if b else a
    if not rest:
        return {}
    if not b or _lower_bound(b) < 0 or not (positive or _lower_bound(a) >= 0):
        return _atom(ops.REM, a, b) if _idiv(a, b) else a  # -1 % 2 == -1, as -1 // 2 == 0
    if _lower_bound(rest) < 0:
        rest = a
    elif _lower_bound(add(b, rest, -1)) > 0:
        return rest
    if (below := _reduce_below(rest, b)) is not None:
        return below
    g, quotient, low_part = _split_by_factor(rest, math.gcd(*b.values()))
    if g > 1:  # (g*p + r) % (g*d) == g * (p % d) + r  for 0 <= r < g
        return add(low_part, _rem(quotient, divide_coefficients(b, g), positive=True), g)
    inner = single_atom(rest, ops.REM)
    if inner is not None and bounds(inner.src[0])[0] >= 0:  # x % (a*b) % b == x % b
        if not divide(_polynomial(inner.src[1]), b)[1]:
            return _rem(_polynomial(inner.src[0]), b)
    return _atom(ops.REM, rest, b)


def _recombine(p: Polynomial) -> Polynomial:
    """Rewrite (x // d) * d + x % d to x, also times a factor."""
    for m, c in list(p.items()):
        for atom in m:
            if atom.op is not ops.REM or m not in p:
                continue
            factor: Polynomial = {tuple(a for a in m if a is not atom): c}
            product = mul(_floor_multiple(atom), factor)
            if all(p.get(n) == k for n, k in product.items()):
                p = add(add(add(p, product, -1), {m: c}, -1),
                        mul(factor, _polynomial(atom.src[0])))
    return p


@memoized
def _floor_multiple(remainder: UOp) -> Polynomial:
    """Return (x // d) * d for an atom x % d."""
    x, d = remainder.src
    return mul(_polynomial(build.idiv(x, d)), _polynomial(d))


# ---- one walk: index nodes become polynomials, conditions become simpler conditions -----------

_NormalForms = dict[UOp, Any]  # index node: Polynomial; bool node: UOp


def _where(node: UOp, done: _NormalForms) -> Polynomial:
    a: Polynomial
    b: Polynomial
    condition, a, b = done[node.src[0]], done[node.src[1]], done[node.src[2]]
    if condition.op is ops.CONST or a == b:
        return b if condition is algebra.const_bool(False) else a
    return _atom_polynomial(build.where(condition, to_node(a), to_node(b)))


def _min_max(node: UOp, done: _NormalForms) -> Polynomial:
    return _min_or_max(done[node.src[0]], done[node.src[1]], node.op)


def _arithmetic_rule(
    f: Callable[[Polynomial, Polynomial], Polynomial],
) -> Callable[[UOp, _NormalForms], Polynomial]:
    def rule(node: UOp, done: _NormalForms) -> Polynomial:
        a, b = done[node.src[0]], done[node.src[1]]
        return _recombine(f(a, b)) if len(a) * len(b) <= MAX_TERMS else _atom_polynomial(node)
    return rule


_ARITHMETIC: dict[ops.Op, Callable[[UOp, _NormalForms], Polynomial]] = {
    ops.CONST: lambda node, done: from_int(build.const_of(node)),
    ops.ADD: _arithmetic_rule(add),
    ops.SUB: _arithmetic_rule(lambda a, b: add(a, b, -1)),
    ops.NEG: lambda node, done: add({}, done[node.src[0]], -1),
    ops.MUL: _arithmetic_rule(mul),
    ops.IDIV: _arithmetic_rule(_idiv),
    ops.REM: _arithmetic_rule(_rem),
    ops.MIN: _min_max,
    ops.MAX: _min_max,
    ops.WHERE: _where,
}


def _is_positive(p: Polynomial) -> UOp:
    """Return the condition p > 0, with positive terms on the right and negative ones on the left.
    """
    if _lower_bound(p) > 0:
        return algebra.const_bool(True)
    if _lower_bound(add({}, p, -1)) >= 0:
        return algebra.const_bool(False)
    for g in common_factors(p, 0):
        q = {m: c // g for m, c in p.items() if m and c % g == 0}
        low, high = _interval(add(p, q, -g))
        if (low - 1) // g == (high - 1) // g:  # g*q + r > 0  is  q + ceil(r/g) > 0
            return _is_positive(add(q, from_int((low - 1) // g + 1)))
    negative = {m: -c for m, c in p.items() if c < 0}
    positive = {m: c for m, c in p.items() if c > 0}
    return build.lt(to_node(negative), to_node(positive))


def _compare(node: UOp, done: _NormalForms) -> UOp:
    a, b = done[node.src[0]], done[node.src[1]]
    if node.src[0].dtype is not dtypes.index:
        return _rebuild(node, done)
    if node.op is ops.CMPLT:
        return _is_positive(add(b, a, -1))
    if node.op is ops.CMPLE:
        return _is_positive(add(add(b, a, -1), _ONE))
    difference = add(a, b, -1)
    if not difference:
        return algebra.const_bool(node.op is ops.CMPEQ)
    if _lower_bound(difference) > 0 or _lower_bound(add({}, difference, -1)) > 0:
        return algebra.const_bool(node.op is ops.CMPNE)
    return build.elementwise(node.op, to_node(a), to_node(b))


def _connective(node: UOp, done: _NormalForms) -> UOp:
    return algebra.connective(node.op, *[done[s] for s in node.src])


def _negate(node: UOp, done: _NormalForms) -> UOp:
    return algebra.negate(done[node.src[0]])


def _rebuild(node: UOp, done: _NormalForms) -> UOp:
    return node.with_operands(tuple([_normal_form(s, done) for s in node.src]))


_CONDITIONS: dict[ops.Op, Callable[[UOp, _NormalForms], UOp]] = {
    ops.CMPLT: _compare, ops.CMPLE: _compare, ops.CMPEQ: _compare, ops.CMPNE: _compare,
    ops.AND: _connective, ops.OR: _connective, ops.NOT: _negate,
}
_LEAVES = frozenset({ops.RANGE, ops.VAR, ops.LOAD, ops.CAST, ops.GATHER})


def _is_known(node: UOp) -> bool:
    return node.polynomial is not None or node.op in _LEAVES or \
        not (node.dtype is dtypes.index or node.op in _CONDITIONS)


def _normal_form(node: UOp, done: _NormalForms) -> UOp:
    value = done[node]
    return to_node(value) if node.dtype is dtypes.index else value


def _normalize(root: UOp) -> _NormalForms:
    done: _NormalForms = {}
    for node in toposort([root], stop=_is_known):
        if node.dtype is not dtypes.index:
            rule = _CONDITIONS.get(node.op)
            done[node] = node if rule is None else rule(node, done)
            continue
        p = node.polynomial
        if p is None:
            row = _ARITHMETIC.get(node.op)
            p = _atom_polynomial(node) if row is None else row(node, done)
            node.polynomial = _ITSELF if p == {(node,): 1} else p
        done[node] = {(node,): 1} if p is _ITSELF else p
    return done


def _polynomial(node: UOp) -> Polynomial:
    p = node.polynomial
    if p is None:
        p = _normalize(node)[node]
    return {(node,): 1} if p is _ITSELF else p


# ---- public functions of this module ----------------------------------------------------------


def simplify(node: UOp) -> UOp:
    """Return the normal form of an index expression, or of a condition over index expressions.

    >>> r = build.range_(6, 0)
    >>> simplify(build.idiv(build.mul(r, build.index_const(4)), build.index_const(2))) is \\
    ...     build.mul(r, build.index_const(2))
    True
    """
    return to_node(_polynomial(node)) if node.dtype is dtypes.index else \
        _normal_form(node, _normalize(node))


def linear_terms(node: UOp) -> tuple[dict[Monomial, int], int]:
    """Return ({monomial: coefficient}, constant) of an index expression."""
    p = _polynomial(node)
    return {m: c for m, c in p.items() if m}, p.get((), 0)


def coefficient(node: UOp, range_: UOp) -> UOp | int | None:
    """Return the coefficient of ``range_`` in ``node``: an int, or an index expression of run-time
    extents; None if ``node`` is not linear in ``range_``."""
    p = _polynomial(node)
    is_linear = True
    for m in p:
        is_linear = is_linear and len(m) < 2
        for atom in m:
            if atom is not range_ and range_ in atom.ranges:
                return None
    if is_linear:
        return p.get((range_,), 0)
    parts = split_linear(p, range_)
    if parts is None:
        return None
    n = constant(parts[0])
    return to_node(parts[0]) if n is None else n


def prove(condition: UOp) -> bool | None:
    """Return whether a condition holds always (True), never (False), or is undecided (None)."""
    simplified = simplify(condition)
    return bool(simplified.arg) if simplified.op is ops.CONST else None


def ravel(indices: Iterable[UOp], dims: Iterable[Extent]) -> UOp:
    """Return the row-major offset of a multi-dimensional index."""
    total: Polynomial = {}
    for i, d in zip(indices, dims, strict=True):
        total = add(mul(total, _extent_polynomial(d)), _polynomial(i))
    return to_node(_recombine(total))


def element_offset(access: UOp) -> UOp:
    """Return the element offset, in its buffer, of an INDEX, a LOAD or a STORE."""
    return ravel(accessors.indices(access), accessors.dims(accessors.buffer(access)))


def unravel(offset: UOp, dims: Sequence[Extent]) -> tuple[UOp, ...]:
    """Return the indices of a row-major offset, which is assumed to be inside ``dims``."""
    rest = _polynomial(offset)
    out: list[UOp] = []
    for d in reversed(dims[1:]):
        divisor = _extent_polynomial(d)
        out.append(to_node(_rem(rest, divisor, positive=True)))
        rest = _idiv(rest, divisor, positive=True)
    if dims:
        out.append(to_node(rest))
    return tuple(reversed(out))


def _extent_polynomial(extent: Extent) -> Polynomial:
    return from_int(extent) if isinstance(extent, int) else _polynomial(extent)
