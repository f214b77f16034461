"""Matrix units in a schedule: which one a contraction may use, and its terms as words.

    before  REDUCE(float32(x[i, 2*w + e]) * float32(y[2*w + e, j]), w, e, ADD)   x, y of bfloat16
            tensorize("e", "dpbf16ps")
    after   REDUCE(MMA(x[i, 2*w] | x[i, 2*w + 1] << 16, y[2*w, j] | y[2*w + 1, j] << 16), w, ADD)

The words are values like any other: what stages them packs them, ``[w][j]`` of words is
``[k / 2][j][2]`` of numbers. Where all terms of a word are neighbours in memory, a word is one
LOAD, of a view of the same buffer. Only factors that are of a unit's types take part: what is
computed in float32 stays in float32.

A unit for unsigned times signed bytes takes signed ones 128 higher, and the sum of 128 times the
others is taken away again: exactly, as integers wrap.
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

_SIGNS = 0x80808080  # the sign of each byte of a word


def unit_of(product: UOp, target: Target, form: str) -> Unit | None:
    """The unit of a target, of some form, that a product of two factors is made for, if any: one
    that reads all of their bits.

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
    """What a product multiplies, as values of the unit's types; in its order where these differ."""
    if product.op is not ops.MUL or product.dtype is not unit.result:
        return None
    a, b = (s.src[0] if s.op is ops.CAST else s for s in product.src)
    for left, right in ((a, b), (b, a)):
        if right.dtype is unit.right and (left.dtype is unit.left or _is_offset(left, unit)):
            return left, right
    return None


def _is_offset(left: UOp, unit: Unit) -> bool:
    """Whether a left factor is what the unit takes, but signed."""
    return unit.left is dtypes.uint8 and left.dtype is dtypes.int8


def multiplied(product: UOp, unit: Unit, own: Sequence[UOp], inside: UOp | None = None
               ) -> tuple[UOp, UOp | None] | None:
    """The MMA of a product, and, of factors that are offset, the MMA to take away; None where the
    factors are none of the unit's.

    Args:
        product: the product.
        unit: the unit.
        own: the range of the terms in a word; that of the words, where the unit takes several.
        inside: the condition outside of which there are no terms: there both factors are zero.
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
    """Whether what is written first is what a unit takes second: the factor with the lanes, so
    what is taken away of bytes is the same for all rows; or that with few threads of a warp."""
    if unit.form != "warp":
        return any(r.arg.kind == "VEC" for r in left.ranges)
    rows = [r for r in left.ranges - right.ranges if r.arg.kind == "THREAD"]
    return all(build.const_of(extent(r)) != unit.m // 2 for r in rows)


def _word(value: UOp, e: UOp, count: int) -> UOp:
    """The word that holds ``value`` for each e < count, the first in the low bits."""
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
    """A LOAD of the whole word, where its terms are neighbours in one."""
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
    """Whether a condition is the same for all terms of a word."""
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


