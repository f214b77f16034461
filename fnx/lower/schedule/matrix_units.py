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

from fnx.core.ir import build, build_kernel_loops, dtypes, ops
from fnx.core.ir.accessors import buffer, conjuncts, dims, extent, indices, validity
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr
from fnx.core.ir.matrix_units import UNITS, MatrixUnit
from fnx.core.ir.uop import UOp, rebuild, substitute
from fnx.core.rewriting import symbolic
from fnx.core.support.target import Target
from fnx.lower.analysis.canonicalize import simplify_indices

_SIGN_BITS = 0x80808080  # the sign bit of each byte of a word


def find_unit(product: UOp, target: Target, form: str) -> MatrixUnit | None:
    """Return the target's unit of a form that fits a product of two factors, or None. It must read
    all of their bits.

    >>> i = build.range_(4, 0)
    >>> x, y = (build.load(build.index_into(build.ref(s, dtypes.bfloat16, (4,)), i))
    ...         for s in (0, 1))
    >>> wide = build.mul(build.cast(x, dtypes.float32), build.cast(y, dtypes.float32))
    >>> find_unit(wide, Target("cpu", unit_names=("dpbf16ps",)), "lanes").name
    'dpbf16ps'
    """
    units = [UNITS[name] for name in target.unit_names]
    return next((u for u in units if u.layout == form and not u.ignored_bits
                 and _factors(product, u) is not None), None)


def _factors(product: UOp, unit: MatrixUnit) -> tuple[UOp, UOp] | None:
    """Return the factors of a product as values of the unit's types, in the unit's order if these
    differ."""
    if product.op is not ops.MUL or product.dtype is not unit.result:
        return None
    a, b = (s.src[0] if s.op is ops.CAST else s for s in product.src)
    for left, right in ((a, b), (b, a)):
        if right.dtype is unit.right and (left.dtype is unit.left or _is_offset(left, unit)):
            return left, right
    return None


def _is_offset(left: UOp, unit: MatrixUnit) -> bool:
    """Return whether a left factor is of the unit's type, but signed."""
    return unit.left is dtypes.uint8 and left.dtype is dtypes.int8


def lower_to_mma(product: UOp, unit: MatrixUnit, term_ranges: Sequence[UOp],
                 in_bounds: UOp | None = None
                 ) -> tuple[UOp, UOp | None] | None:
    """Return the MMA of a product and, for offset factors, the MMA to subtract. None if the factors
    do not fit the unit.

    Args:
        product: the product.
        unit: the unit.
        term_ranges: the range of the terms in a word; that of the words, if the unit takes several.
        in_bounds: the condition outside of which there are no terms: both factors are zero there.
    """
    term_range, *word_ranges = term_ranges
    factors = _factors(product, unit)
    if factors is None:
        return None
    left, right = factors
    if in_bounds is not None:
        left, right = (build.where(in_bounds, s, build.const(0, s.dtype)) for s in factors)
    offset = _is_offset(left, unit)
    if (offset or unit.left is unit.right) and _is_right_operand(left, right, unit):
        left, right = right, left
    a = _pack_word(left, term_range, unit.terms_per_word)
    b = _pack_word(right, term_range, unit.terms_per_word)
    if not offset:
        return build_kernel_loops.mma(a, b, word_ranges, unit.result, unit.name), None
    signs = build.const(_SIGN_BITS, dtypes.uint32)
    flipped = build.elementwise(ops.XOR, a, signs)
    return (build_kernel_loops.mma(flipped, b, word_ranges, unit.result, unit.name),
            build_kernel_loops.mma(signs, b, word_ranges, unit.result, unit.name))


def _is_right_operand(left: UOp, right: UOp, unit: MatrixUnit) -> bool:
    """Return whether the first factor is the one that the unit takes second: the factor with the
    lanes, so that the offset to subtract is the same for all rows; or, for a warp, the one that
    spans few of its threads."""
    if unit.layout != "warp":
        return any(r.arg.kind == "VEC" for r in left.ranges)
    row_threads = [r for r in left.ranges - right.ranges if r.arg.kind == "THREAD"]
    return all(build.const_of(extent(r)) != unit.m // 2 for r in row_threads)


def _pack_word(value: UOp, term_range: UOp, count: int) -> UOp:
    """Return the register word that holds ``value`` for each e < count, the first in the low
    bits."""
    loaded = _word_load(value, term_range, count)
    if loaded is not None:
        return loaded
    bits_type: DType = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32}[value.dtype.itemsize]
    terms = []
    for i in range(count):
        term, = rebuild(substitute([value], {term_range: build.index_const(i)}), _simplify_node)
        word = build.cast(build.bitcast(term, bits_type), dtypes.uint32)
        shift = build.const(i * 32 // count, dtypes.uint32)
        terms.append(build.elementwise(ops.SHL, word, shift) if i else word)
    return reduce(build.or_, terms)


def _word_load(value: UOp, term_range: UOp, count: int) -> UOp | None:
    """Return a LOAD of the whole word, if its terms are one aligned word in memory."""
    if value.op is not ops.LOAD or buffer(value).op is not ops.REF or \
            dims(buffer(value))[-1].op is not ops.CONST or \
            buffer(value).arg.alignment % 4:
        return None
    *outer, last = indices(value)
    n = build.const_of(dims(buffer(value))[-1])
    terms, constant = symbolic.linear_terms(last)
    coefficient = terms.pop((term_range,), 0)
    conditions = conjuncts(validity(value))
    if coefficient != 1 or any(term_range in i.ranges for i in outer) or (n | constant) % count or \
            any(term_range in atom.ranges for m in terms for atom in m) or \
            any(c % count for c in terms.values()) or \
            not all(_is_uniform_in_word(c, term_range, count) for c in conditions):
        return None
    ref = buffer(value)
    view = UOp(ops.REF, dtypes.uint32, (*ref.src[:-1], build.index_const(n // count)), ref.arg)
    first, *valid = substitute([last, *conditions], {term_range: build.index_const(0)})
    index = build.index_into(view, *outer, symbolic.simplify((Expr(first) // count).node))
    conditions_left = [c for c in map(symbolic.simplify, valid)
                       if c.op is not ops.CONST or not c.arg]
    return build.load(index, reduce(build.and_, conditions_left) if conditions_left else None)


def _is_uniform_in_word(condition: UOp, term_range: UOp, count: int) -> bool:
    """Return whether a condition is the same for all terms of a word."""
    if term_range not in condition.ranges:
        return True
    if condition.op is not ops.CMPLT:
        return False
    low, high = (symbolic.linear_terms(s) for s in condition.src)
    coefficient = low[0].get((term_range,), 0)
    other_coefficients = [low[1], high[1], *[c for m, c in low[0].items() if m != (term_range,)],
                          *high[0].values()]
    atoms = [a for m in (*low[0], *high[0]) if m != (term_range,) for a in m]
    return coefficient == 1 and not any(c % count for c in other_coefficients) and \
        not any(term_range in a.ranges for a in atoms)


def _simplify_node(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    if node.op is ops.LOAD and len(src) > 1:
        valid = symbolic.simplify(src[1])
        is_always_valid = valid.op is ops.CONST and valid.arg
        return build.load(src[0], None if is_always_valid else valid)
    return simplify_indices(node, src)


