"""The algebra of index expressions: values, intervals, polynomials, conditions.

Intervals are pairs (smallest, largest).

>>> interval_product((-1, 2), (3, 4)), hull((0, 1), (5, 9))
((-4, 8), (0, 9))
>>> quotient((-5, 9), (2, 3)), remainder((-5, 9), (2, 3))
((-2, 4), (-2, 2))

>>> n = build.var(0, dtypes.index, name="n")
>>> evaluate(build.mul(n, build.index_const(3)), {0: 5})
15

Polynomials over atoms are {monomial of atoms: coefficient}. The monomial () holds the constant.
Atoms in a monomial are sorted, and no coefficient is 0, so equal polynomials are equal dicts. This
module uses no bounds of atoms: see symbolic.py.

>>> r = build.range_(8, 0)
>>> divide({(r,): 6, (): 7}, {(): 3}) == ({(r,): 2, (): 2}, {(): 1})
True

The constructors of conditions simplify.

>>> x = build.var(0, dtypes.bool_)
>>> connective(ops.AND, const_bool(True), x) is x
True
>>> negate(negate(x)) is x
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from fnx.core.ir import build, dtypes, ops
from fnx.core.ir.uop import UOp, toposort


def trunc(a: int, b: int) -> int:
    if b == 0:
        return -1
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def evaluate(node: UOp, env: Mapping[Any, int]) -> int:
    """Evaluate an index expression; ``env`` has RANGEs by node and VARs by slot (or node)."""
    values: dict[UOp, int] = {}
    for n in toposort([node], stop=lambda n: n.op is ops.RANGE):
        if n.op is ops.CONST:
            values[n] = build.const_of(n)
        elif n in env:
            values[n] = env[n]
        elif n.op is ops.VAR:
            values[n] = env[n.arg.slot]
        else:
            values[n] = int(_EVAL_RULES[n.op](*[values[s] for s in n.src]))
    return values[node]


_EVAL_RULES: dict[ops.Op, Callable[..., int]] = {
    ops.ADD: lambda a, b: a + b, ops.SUB: lambda a, b: a - b, ops.MUL: lambda a, b: a * b,
    ops.NEG: lambda a: -a, ops.IDIV: trunc, ops.REM: lambda a, b: a - b * trunc(a, b),
    ops.MIN: min, ops.MAX: max, ops.WHERE: lambda c, a, b: a if c else b,
    ops.CMPLT: lambda a, b: a < b, ops.CMPLE: lambda a, b: a <= b,
    ops.CMPEQ: lambda a, b: a == b, ops.CMPNE: lambda a, b: a != b,
    ops.AND: lambda a, b: a & b, ops.OR: lambda a, b: a | b, ops.NOT: lambda a: not a,
    ops.CAST: lambda a: a,
}


# ---- intervals ----------------------------------------------------------------------------------


Bounds = tuple[int, int]


def interval_product(a: Bounds, b: Bounds) -> Bounds:
    """Return the interval of a product."""
    corners = (a[0] * b[0], a[0] * b[1], a[1] * b[0], a[1] * b[1])
    return min(corners), max(corners)


def hull(*parts: Bounds) -> Bounds:
    """Return the smallest interval that contains several."""
    return min(p[0] for p in parts), max(p[1] for p in parts)


def quotient(a: Bounds, b: Bounds) -> Bounds:
    """Return the interval of a quotient, rounded toward zero."""
    if b[0] < 0:
        biggest = max(abs(a[0]), abs(a[1]), 1)
        return -biggest, biggest
    corners = [trunc(n, d) for n in a for d in (max(b[0], 1), max(b[1], 1))]
    return min(corners), max(corners)


def remainder(a: Bounds, b: Bounds) -> Bounds:
    """Return the interval of the remainder of such a division."""
    largest = max(abs(b[0]), abs(b[1]), 1) - 1
    return max(min(a[0], 0), -largest), min(max(a[1], 0), largest)


INTERVALS: dict[ops.Op, Callable[..., Bounds]] = {  # the interval of a result by those of operands
    ops.ADD: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    ops.SUB: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    ops.NEG: lambda a: (-a[1], -a[0]),
    ops.MUL: interval_product, ops.IDIV: quotient, ops.REM: remainder,
    ops.MIN: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    ops.MAX: lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}


# ---- polynomials --------------------------------------------------------------------------------


Monomial = tuple[UOp, ...]
Polynomial = dict[Monomial, int]


def atom_order(atom: UOp) -> tuple[Any, ...]:
    """Return a sort key of atoms, the same in every process: ranges by id (outermost first in
    canonical graphs), then VARs by slot, then the rest."""
    if atom.op is ops.RANGE:
        return (0, atom.arg.id, atom.number)
    if atom.op is ops.VAR:
        return (1, atom.arg.slot, atom.number)
    return (2, atom.op.name, atom.digest())


def monomial_order(monomial: Monomial) -> list[tuple[Any, ...]]:
    """Return a sort key of monomials (atom_order)."""
    return [atom_order(a) for a in monomial]


def add(p: Polynomial, q: Polynomial, scale: int = 1) -> Polynomial:
    """Return p + scale * q."""
    out = dict(p)
    for m, c in q.items():
        total = out.get(m, 0) + c * scale
        if total:
            out[m] = total
        else:
            out.pop(m, None)
    return out


def mul(p: Polynomial, q: Polynomial) -> Polynomial:
    """Return p * q."""
    out: Polynomial = {}
    for m, c in p.items():
        for n, d in q.items():
            mn = tuple(sorted(m + n, key=atom_order)) if m and n else m or n
            out[mn] = out.get(mn, 0) + c * d
    return {m: c for m, c in out.items() if c}


def constant(p: Polynomial) -> int | None:
    """Return the value of a polynomial without atoms, else None."""
    return 0 if not p else p[()] if len(p) == 1 and () in p else None


def from_int(n: int) -> Polynomial:
    """Return the constant polynomial n."""
    return {(): n} if n else {}


def to_node(p: Polynomial) -> UOp:
    """Build the node of a polynomial.

    Terms of outer ranges come first, so that partial sums can be hoisted; the constant is last.
    """
    total: UOp | None = None
    for m in sorted(p, key=lambda m: (not m, monomial_order(m))) if len(p) > 1 else p:
        factor = abs(p[m])
        term = build.index_const(factor) if not m else m[0]
        for atom in m[1:]:
            term = build.mul(term, atom)
        if m and factor != 1:
            term = build.mul(term, build.index_const(factor))
        if total is None:
            total = term if p[m] > 0 else build.index_const(p[m]) if not m else build.neg(term)
        else:
            total = build.add(total, term) if p[m] > 0 else build.sub(total, term)
    return build.index_const(0) if total is None else total


def split_linear(p: Polynomial, atom: UOp) -> tuple[Polynomial, Polynomial] | None:
    """Return (a, b) with p == a * atom + b, or None if p is not linear in atom."""
    a: Polynomial = {}
    b: Polynomial = {}
    for m, c in p.items():
        if atom not in m:
            b[m] = c
        elif m.count(atom) > 1:
            return None
        else:
            a[tuple(x for x in m if x is not atom)] = c
    return a, b


def divide(p: Polynomial, d: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Return (q, rest) with p == q * d + rest, dividing the terms of p as far as possible."""
    n = constant(d)
    if n is not None:
        q = {m: c // n for m, c in p.items() if (not m or c % n == 0) and c // n}
        return q, add(p, q, -n)
    lead = max(d, key=lambda m: (len(m), monomial_order(m)))
    q, rest = {}, p
    for _ in range(4 * len(p) + 4):
        for m, c in rest.items():
            quotient = _divide_monomial(m, lead)
            if quotient is not None and c % d[lead] == 0:
                step = {quotient: c // d[lead]}
                break
        else:
            break
        q, rest = add(q, step), add(rest, mul(step, d), -1)
    return q, rest


def coefficients_mod(p: Polynomial, n: int) -> Polynomial:
    """Reduce each coefficient modulo n."""
    return {m: c % n for m, c in p.items() if c % n}


def common_factors(p: Polynomial, n: int) -> list[int]:
    """Return common divisors > 1 of n and one or all non-constant terms of p, largest first."""
    each = {math.gcd(n, c) for m, c in p.items() if m}
    return sorted({*each, math.gcd(*each)} - {0, 1}, reverse=True)


def _divide_monomial(m: Monomial, n: Monomial) -> Monomial | None:
    """Return the monomial m / n, or None if n does not divide m."""
    remaining = list(m)
    for atom in n:
        if atom not in remaining:
            return None
        remaining.remove(atom)
    return tuple(remaining)


def divide_coefficients(p: Polynomial, g: int) -> Polynomial:
    """Divide each coefficient by g, rounding down."""
    return {m: c // g for m, c in p.items() if c // g}


def single_atom(p: Polynomial, op: ops.Op) -> UOp | None:
    """Return the atom if p is a single atom of ``op``, else None."""
    if len(p) == 1:
        (m, c), = p.items()
        if c == 1 and len(m) == 1 and m[0].op is op:
            return m[0]
    return None


# ---- conditions ---------------------------------------------------------------------------------


def const_bool(value: bool) -> UOp:
    """Return the condition that always holds, or never."""
    return build.const(value, dtypes.bool_)


def connective(op: ops.Op, a: UOp, b: UOp) -> UOp:
    """Build AND or OR; constant and equal operands are folded."""
    for x, y in ((a, b), (b, a)):
        if x.op is ops.CONST:
            return y if bool(x.arg) == (op is ops.AND) else x
    return a if a is b else build.elementwise(op, a, b)


def negate(inner: UOp) -> UOp:
    """Build NOT; constants and double negation are folded."""
    if inner.op is ops.CONST:
        return const_bool(not inner.arg)
    return inner.src[0] if inner.op is ops.NOT else build.logical_not(inner)
