"""Matrix units: instructions that multiply and add several terms at once, one entry each.

All of them read fragment registers of 32 bits (**words**), which hold neighboring terms of a sum,
the first one in the low bits: two of bfloat16, four of int8. An MMA is the sum of the products of
the terms in its words:

    MMA(a[i, w], b[w, j], w...)      one term: left of a word of a times right of a word of b
    REDUCE(MMA(a, b, w...), k, ADD)  the accumulation is part of the instruction

An MMA node is one result of the m x n x k product of an entry. Its ranges are m, n and the words
of k; the terms of k inside a word have no range. The MMA binds its ``words`` ranges of k; units
of the form "lanes" have none. ``form`` says which range is mapped to which lane, thread or row:

    form      left            right           result
    lanes     one word        a lane each     a lane each         m = 1, n lanes, one word of k
    warp      fragments that a warp of threads holds: lower/emit/assign_fragments.py
    tiles     registers of 16 rows of 16: words of k along rows of a, along columns of b

``accumulate`` rounds exactly as the instruction does, so the interpreter of a tiled kernel is
exact; the association of the REDUCE around it has the error bound of any sum. Warp units guarantee
at least float32, in no specified order (their manual leaves rounding, order and subnormal operands
unspecified); their meaning here adds one term after the other.

>>> UNITS["dpbf16ps"].left, UNITS["dpbf16ps"].terms_per_word, UNITS["dpbf16ps"].words_per_k
(bfloat16, 2, 1)
>>> word = np.uint32([0x40003F80])                      # 1.0 and 2.0
>>> accumulate(UNITS["dpbf16ps"], word, word, np.float32([0.5]))
array([5.5], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fnx.core.ir import dtypes, low_precision
from fnx.core.ir.dtypes import DType, NDArray
from fnx.core.support.record import Record

TILE_LANES = 256  # lanes of a tile register (16 rows of 16)


class MatrixUnit(Record):
    """A matrix instruction.

    Attributes:
        name: its name, also in a target's ``units``.
        layout: "lanes", "warp" or "tiles".
        m, n, k: rows, columns and terms of one instruction; n is 0 where it is the lanes of
            the target's vectors.
        left, right: types of the factors.
        result: type of the sums.
        flushes_subnormals: whether subnormal operands and results are flushed to zero.
        high_term_first: whether the term in the high bits of a word is added first.
        separate_sums: whether the terms at each position in the words are summed separately, then
            added.
        ignored_bits: number of low bits of the factors that it ignores. Such a unit is used only if
            a schedule names it.
        cpu_features: CPU features that it needs, by the compiler's names.
        bits: width in bits of the vectors in whose lanes it works.
    """

    name: str
    layout: str
    m: int
    n: int
    k: int
    left: DType
    right: DType
    result: DType
    flushes_subnormals: bool = False
    high_term_first: bool = False
    separate_sums: bool = False
    ignored_bits: int = 0
    cpu_features: tuple[str, ...] = ()
    bits: int = 0

    @property
    def terms_per_word(self) -> int:
        """Number of terms in a word."""
        return 32 // self.left.bits

    @property
    def words_per_k(self) -> int:
        """Number of words along k of one instruction."""
        return self.k // self.terms_per_word


_ENTRIES = (
    MatrixUnit("tdpbf16ps", "tiles", 16, 16, 32, dtypes.bfloat16, dtypes.bfloat16, dtypes.float32,
               flushes_subnormals=True, separate_sums=True,
               cpu_features=("amx-tile", "amx-bf16", "avx512f"), bits=512),
    MatrixUnit("tdpbssd", "tiles", 16, 16, 64, dtypes.int8, dtypes.int8, dtypes.int32,
               cpu_features=("amx-tile", "amx-int8", "avx512f"), bits=512),
    MatrixUnit("dpbf16ps", "lanes", 1, 0, 2, dtypes.bfloat16, dtypes.bfloat16, dtypes.float32,
               flushes_subnormals=True, high_term_first=True, cpu_features=("avx512bf16",),
               bits=512),
    MatrixUnit("dpbusd", "lanes", 1, 0, 4, dtypes.uint8, dtypes.int8, dtypes.int32,
               cpu_features=("avx512vnni",), bits=512),
    MatrixUnit("mma_bf16", "warp", 16, 8, 16, dtypes.bfloat16, dtypes.bfloat16, dtypes.float32),
    MatrixUnit("mma_f16", "warp", 16, 8, 16, dtypes.float16, dtypes.float16, dtypes.float32),
    MatrixUnit("mma_tf32", "warp", 16, 8, 8, dtypes.float32, dtypes.float32, dtypes.float32,
               ignored_bits=13),
)
UNITS = {unit.name: unit for unit in _ENTRIES}


def accumulate(unit: MatrixUnit, a: NDArray, b: NDArray, total: NDArray) -> NDArray:
    """Add the products of the terms of two words to ``total``, rounded as the instruction does."""
    order = range(unit.terms_per_word)
    for i in reversed(order) if unit.high_term_first else order:
        total = _add_product(unit, _terms(unit, a, i), _terms(unit, b, i, True), total)
    return total


def _add_product(unit: MatrixUnit, x: NDArray, y: NDArray, total: NDArray) -> NDArray:
    """Return total + x * y."""
    if not unit.result.is_float:
        return np.asarray(total + x * y)
    if unit.flushes_subnormals:
        x, y, total = map(_flush_subnormals, (x, y, total))
    exact = x.astype(np.float64) * y  # exact for these types
    total = _add_round_once(exact, total.astype(np.float64))
    return _flush_subnormals(total) if unit.flushes_subnormals else total


def contract(unit: MatrixUnit, a: NDArray, b: NDArray, axes: Sequence[int]) -> NDArray:
    """Sum the products of two arrays of words along ``axes``, in order; these get length 1."""
    shape = [1 if i in axes else n for i, n in enumerate(np.broadcast_shapes(a.shape, b.shape))]
    a, b = (np.moveaxis(x, axes, range(len(axes))) for x in (a, b))
    total = np.zeros((), unit.result.np)
    partials = [total] * unit.terms_per_word
    for position in np.ndindex(*a.shape[:len(axes)]):
        if unit.separate_sums:
            partials = [_add_product(unit, _terms(unit, a[position], i),
                                     _terms(unit, b[position], i, True), part)
                        for i, part in enumerate(partials)]
        else:
            total = accumulate(unit, a[position], b[position], total)
    if unit.separate_sums:
        total = _flush_subnormals(sum(partials[1:], partials[0]))
    return np.broadcast_to(total, [n for i, n in enumerate(shape) if i not in axes]).reshape(shape)


def as_words(buffer: NDArray) -> NDArray:
    """View a buffer as 32-bit words; elements after the last whole word are left out."""
    flat = buffer.reshape(-1)
    return flat[:flat.size - flat.nbytes % 4 // flat.itemsize].view(np.uint32)


def _terms(unit: MatrixUnit, registers: NDArray, i: int, is_right: bool = False) -> NDArray:
    """Return the values at one position of all registers, in the type of the sums."""
    t = unit.right if is_right else unit.left
    if t.bits == 32:
        ignored = np.uint32(unit.ignored_bits)
        return np.asarray(registers >> ignored << ignored).view(t.np)
    bits = registers >> np.uint32(i * t.bits) & np.uint32((1 << t.bits) - 1)
    if t.storage is not None:
        return low_precision.decode_bits(bits, t)
    unused = np.uint32(32 - t.bits)
    shifted = (bits << unused).view(np.int32)
    return shifted >> np.int32(unused) if t.kind == "int" else bits.view(np.int32)


def _add_round_once(a: NDArray, b: NDArray) -> NDArray:
    """Add in float64 with a single rounding to float32.

    The error of the first rounding goes to the last bit (round to odd), so that the second
    rounding is correct.
    """
    total = a + b
    b_rounded = total - a
    lost = (a - (total - b_rounded)) + (b - b_rounded)
    bits = total.view(np.int64)
    odd = np.isfinite(total) & (lost != 0) & (bits & 1 == 0)
    up = (lost > 0) == (total > 0)
    sticky = np.where(odd, np.where(up, bits + 1, bits - 1), bits).view(np.float64)
    return np.asarray(sticky.astype(np.float32))


def _flush_subnormals(x: NDArray) -> NDArray:
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.zeros_like(x), x), x)
