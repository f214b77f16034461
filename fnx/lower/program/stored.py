"""Emulation of storage-only dtypes: they become the integers that hold their bits.

    before  STORE(o[i], bfloat16(x))                                       o of bfloat16, x float32
    after   STORE(o[i], uint16((u + 0x7FFF + (u >> 16 & 1)) >> 16))        u: the bits of x

Runs after ``widen``, which leaves such types only in memory, selections and CASTs from and to their
compute dtype. A conversion is integer arithmetic that every machine has, also for vectors, unless
there is an instruction for it (float16 by F16C); none becomes a library call. All are exact;
conversions to a float round to nearest, ties to even, and keep subnormal numbers.

>>> from fnx.core import dtypes
>>> o = build.at(build.ref(0, dtypes.bfloat16, (4,)), build.range_(4, 0))
>>> one = build.cast(build.const(1, float32), dtypes.bfloat16)
>>> store, = stored(build.kernel([build.store(o, one)], "ones", (0,)), Target("cpu")).src
>>> store.src[0].dtype, store.src[1].dtype
(uint16, uint16)
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core import build, narrow, op_args, ops
from fnx.core.dtypes import DType, float16, float32, int32, uint32
from fnx.core.expr import Expr, minimum, where
from fnx.core.target import Target
from fnx.core.uop import UOp, rebuild, toposort

Conversion = Callable[[Expr, DType], Expr]


def stored(root: UOp, target: Target) -> UOp:
    """Return the KERNEL (or an expression) with storage-only dtypes replaced by integers."""
    if all(n.dtype.storage is None for n in toposort([root])):
        return root

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        t = node.dtype
        if node.op is ops.CAST and t.storage is not None:
            return _into(t, target)(Expr(src[0]), t).node
        if node.op is ops.CAST and (of := node.src[0].dtype).storage is not None:
            return _out_of(of, target)(Expr(src[0]), of).node
        if node.op is ops.BITCAST:  # one of the two may already be an integer
            return build.bitcast(src[0], t.storage or t)
        if node.op is ops.ITER:
            outs = tuple([(shape, of.storage or of) for shape, of in node.arg.outs])
            return node.replace(src=src, arg=op_args.Iter(node.arg.id, outs))
        if t.storage is None:
            return None
        return UOp(node.op, t.storage, src, node.arg)
    return rebuild([root], visit)[0]


def has_float16(target: Target) -> bool:
    """Return whether the target has instructions to convert float16."""
    return "+f16c" in target.features.split(",") or target.triple.startswith("aarch64")


def _into(t: DType, target: Target) -> Conversion:
    if t.kind == "key":
        return lambda x, t: x
    if not t.is_float:
        return _integer_into
    if t is float16 and has_float16(target):
        return lambda x, t: x.cast(t).bitcast(_bits(t))
    return _short_into if t.exponent == 8 else _float_into


def _out_of(t: DType, target: Target) -> Conversion:
    if t.kind == "key":
        return lambda x, t: x
    if not t.is_float:
        return _integer_out_of
    if t is float16 and has_float16(target):
        return lambda x, t: x.bitcast(t).cast(float32)
    return _short_out_of if t.exponent == 8 else _float_out_of


def _bits(t: DType) -> DType:
    assert t.storage is not None
    return t.storage


# ---- integers of less than a byte -------------------------------------------------------------


def _integer_into(x: Expr, t: DType) -> Expr:
    return (x & (1 << t.bits) - 1).cast(_bits(t))


def _integer_out_of(x: Expr, t: DType) -> Expr:
    return (x.cast(t.compute) << 32 - t.bits) >> 32 - t.bits


# ---- a truncated float32: bfloat16 ---------------------------------------------------------------


def _short_into(x: Expr, t: DType) -> Expr:
    u, cut = x.bitcast(uint32), 23 - t.mantissa
    rounded = u + ((u >> cut & 1) + ((1 << cut - 1) - 1))
    return (where(x.ne(x), u | 1 << 22, rounded) >> cut).cast(_bits(t))


def _short_out_of(x: Expr, t: DType) -> Expr:
    return (x.cast(uint32) << 23 - t.mantissa).bitcast(float32)


# ---- floats with a smaller exponent -------------------------------------------------------------


def _float_into(x: Expr, t: DType) -> Expr:
    """Round by an integer addition; for subnormal results by a float addition.

    There the last bit of x + 2**k has the value of the smallest subnormal number.
    """
    u, cut = x.bitcast(int32), 23 - t.mantissa
    size = u & 0x7FFFFFFF
    rebased = size - (127 - t.bias << 23)
    rounded = (rebased + ((rebased >> cut & 1) + ((1 << cut - 1) - 1))) >> cut
    anchor = x.like(2.0 ** (24 - t.bias - t.mantissa))
    steps = (size.bitcast(float32) + anchor).bitcast(int32) - anchor.bitcast(int32)
    found = where(size < (128 - t.bias << 23), steps, rounded)
    most = narrow.infinity(t)
    found = where(found > most, narrow.nan(t), found) if t.finite else minimum(found, most)
    found = where(size > 0x7F800000, narrow.nan(t), found)
    return (found | (u >> 31 & 1) << t.bits - 1).cast(_bits(t))


def _float_out_of(x: Expr, t: DType) -> Expr:
    """Rebase the exponent by a multiplication, which also handles subnormal numbers."""
    u = x.cast(int32)
    size, sign = u & (1 << t.bits - 1) - 1, u >> t.bits - 1 << 31
    scaled = (size << 23 - t.mantissa).bitcast(float32) * 2.0 ** (127 - t.bias)
    bits, most = scaled.bitcast(int32), narrow.infinity(t)
    if not t.finite:
        bits = where(size.eq(most), 0x7F800000, bits)
    return (where(size > most, 0x7FC00000, bits) | sign).bitcast(float32)
