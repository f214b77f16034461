"""Matrix units in a schedule: which one a contraction may use, and its terms as register words.

    before  REDUCE(float32(x[i, 2*w + e]) * float32(y[2*w + e, j]), w, e, ADD)   x, y of bfloat16
            tensorize("e", "dpbf16ps")
    after   REDUCE(MMA(x[i, 2*w] | x[i, 2*w + 1] << 16, y[2*w, j] | y[2*w + 1, j] << 16), w, ADD)

A register word packs adjacent terms in 32 bits. Words are ordinary values: their stage packs them,
so ``[w][j]`` of words is ``[k / 2][j][2]`` of numbers. If all terms of a word are adjacent in
memory, a word is one LOAD from a view of the same buffer. Only factors of a unit's types qualify: a
product computed in float32 stays in float32.

A unit for unsigned times signed bytes takes signed ones offset by 128, and 128 times the sum of the
other factor is subtracted again: exactly, as integers wrap.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from fnx.core import build, dtypes, ops
from fnx.core.dtypes import DType
from fnx.core.expr import Expr
from fnx.core.parts import buffer, conjuncts, dims, extent, indices, validity
from fnx.core.rewriting import symbolic
from fnx.core.target import Target
from fnx.core.units import UNITS, Unit
from fnx.core.uop import UOp, rebuild, substitute

_SIGNS = 0x80808080  # the sign bit of each byte of a word


def unit_of(product: UOp, target: Target, form: str) -> Unit | None:
    """Return the target's unit of a form that fits a product of two factors, or None. It must read
    all of their bits.

    >>> i = build.range_(4, 0)
    >>> x, y = (build.load(build.at(build.ref(s, dtypes.bfloat16, (4,)), i)) for s in (0, 1))
    >>> wide = build.mul(build.cast(x, dtypes.float32), build.cast(y, dtypes.float32))
    >>> unit_of(wide, Target("cpu", units=("dpbf16ps",)), "lanes").name
    'dpbf16ps'
    """
    found = [UNITS[name] for name in target.units]
    return next((u for u in found if u.form == form and not u.cut
                 and _factors(product, u) is not None), None)


def _factors(product: UOp, unit: Unit) -> tuple[UOp, UOp] | None:
    """Return the factors of a product as values of the unit's types, in the unit's order if these
    differ."""
    if product.op is not ops.MUL or product.dtype is not unit.result:
        return None
    a, b = (s.src[0] if s.op is ops.CAST else s for s in product.src)
    for left, right in ((a, b), (b, a)):
        if right.dtype is unit.right and (left.dtype is unit.left or _is_offset(left, unit)):
            return left, right
    return None


def _is_offset(left: UOp, unit: Unit) -> bool:
    """Return whether a left factor is of the unit's type, but signed."""
    return unit.left is dtypes.uint8 and left.dtype is dtypes.int8


def multiplied(product: UOp, unit: Unit, own: Sequence[UOp], inside: UOp | None = None
               ) -> tuple[UOp, UOp | None] | None:
    """Return the MMA of a product and, for offset factors, the MMA to subtract. None if the factors
    do not fit the unit.

    Args:
        product: the product.
        unit: the unit.
        own: the range of the terms in a word; that of the words, if the unit takes several.
        inside: the condition outside of which there are no terms: both factors are zero there.
    """
    e, *words = own
    found = _factors(product, unit)
    if found is None:
        return None
    left, right = found
    if inside is not None:
        left, right = (build.where(inside, s, build.const(0, s.dtype)) for s in found)
    offset = _is_offset(left, unit)
    if (offset or unit.left is unit.right) and _is_right(left, right, unit):
        left, right = right, left
    a, b = _word(left, e, unit.in_word), _word(right, e, unit.in_word)
    if not offset:
        return build.mma(a, b, words, unit.result, unit.name), None
    signs = build.const(_SIGNS, dtypes.uint32)
    return (build.mma(build.elementwise(ops.XOR, a, signs), b, words, unit.result, unit.name),
            build.mma(signs, b, words, unit.result, unit.name))


def _is_right(left: UOp, right: UOp, unit: Unit) -> bool:
    """Return whether the first factor is the one that the unit takes second: the factor with the
    lanes, so that the offset to subtract is the same for all rows; or, for a warp, the one that
    spans few of its threads."""
    if unit.form != "warp":
        return any(r.arg.kind == "VEC" for r in left.ranges)
    rows = [r for r in left.ranges - right.ranges if r.arg.kind == "THREAD"]
    return all(build.const_of(extent(r)) != unit.m // 2 for r in rows)


def _word(value: UOp, e: UOp, count: int) -> UOp:
    """Return the register word that holds ``value`` for each e < count, the first in the low
    bits."""
    whole = _loaded(value, e, count)
    if whole is not None:
        return whole
    bits: DType = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32}[value.dtype.itemsize]
    terms = []
    for i in range(count):
        term, = rebuild(substitute([value], {e: build.index_const(i)}), _simplified)
        word = build.cast(build.bitcast(term, bits), dtypes.uint32)
        shift = build.const(i * 32 // count, dtypes.uint32)
        terms.append(build.elementwise(ops.SHL, word, shift) if i else word)
    return reduce(build.or_, terms)


def _loaded(value: UOp, e: UOp, count: int) -> UOp | None:
    """Return a LOAD of the whole word, if its terms are one aligned word in memory."""
    if value.op is not ops.LOAD or buffer(value).op is not ops.REF or \
            dims(buffer(value))[-1].op is not ops.CONST or \
            buffer(value).arg.alignment % 4:
        return None
    *outer, last = indices(value)
    n = build.const_of(dims(buffer(value))[-1])
    terms, constant = symbolic.linear(last)
    own = terms.pop((e,), 0)
    conditions = conjuncts(validity(value))
    if own != 1 or any(e in i.ranges for i in outer) or (n | constant) % count or \
            any(e in atom.ranges for m in terms for atom in m) or \
            any(c % count for c in terms.values()) or \
            not all(_alike(c, e, count) for c in conditions):
        return None
    ref = buffer(value)
    view = UOp(ops.REF, dtypes.uint32, (*ref.src[:-1], build.index_const(n // count)), ref.arg)
    first, *valid = substitute([last, *conditions], {e: build.index_const(0)})
    at = build.at(view, *outer, symbolic.simplify((Expr(first) // count).node))
    simple = [c for c in map(symbolic.simplify, valid) if c.op is not ops.CONST or not c.arg]
    return build.load(at, reduce(build.and_, simple) if simple else None)


def _alike(condition: UOp, e: UOp, count: int) -> bool:
    """Return whether a condition is the same for all terms of a word."""
    if e not in condition.ranges:
        return True
    if condition.op is not ops.CMPLT:
        return False
    low, high = (symbolic.linear(s) for s in condition.src)
    own = low[0].get((e,), 0)
    rest = [low[1], high[1], *[c for m, c in low[0].items() if m != (e,)], *high[0].values()]
    atoms = [a for m in (*low[0], *high[0]) if m != (e,) for a in m]
    return own == 1 and not any(c % count for c in rest) and \
        not any(e in a.ranges for a in atoms)


def _simplified(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    if node.op is ops.INDEX:
        return build.at(src[0], *map(symbolic.simplify, src[1:]))
    if node.op is ops.LOAD and len(src) > 1:
        valid = symbolic.simplify(src[1])
        always = valid.op is ops.CONST and valid.arg
        return build.load(src[0], None if always else valid)
    return None


