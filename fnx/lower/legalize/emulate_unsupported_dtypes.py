"""Emulation of storage-only dtypes: they become the integers that hold their bits.

    before  STORE(o[i], bfloat16(x))                                       o of bfloat16, x float32
    after   STORE(o[i], uint16((u + 0x7FFF + (u >> 16 & 1)) >> 16))        u: the bits of x

Runs after ``promote_to_compute_dtype``, which leaves such types only in memory, selections and
CASTs from and to their compute dtype. A conversion is integer arithmetic that every machine has,
also for vectors, unless there is an instruction for it (float16 by F16C); none becomes a library
call. All are exact; conversions to a float round to nearest, ties to even, and keep subnormal
numbers.

>>> from fnx.core.ir import dtypes
>>> o = build.index_into(build.ref(0, dtypes.bfloat16, (4,)), build.range_(4, 0))
>>> one = build.cast(build.const(1, float32), dtypes.bfloat16)
>>> ones = build.kernel([build.store(o, one)], "ones", (0,))
>>> store, = emulate_unsupported_dtypes(ones, Target("cpu")).src
>>> store.src[0].dtype, store.src[1].dtype
(uint16, uint16)
"""

from __future__ import annotations

from collections.abc import Callable

from fnx.core.ir import build, kernel_args, low_precision, ops
from fnx.core.ir.dtypes import DType, float16, float32, int32, uint32
from fnx.core.ir.expr import Expr, minimum, where
from fnx.core.ir.uop import UOp, rebuild, toposort
from fnx.core.support.target import Target

Conversion = Callable[[Expr, DType], Expr]


def emulate_unsupported_dtypes(root: UOp, target: Target) -> UOp:
    """Return the KERNEL (or an expression) with storage-only dtypes replaced by integers."""
    if all(n.dtype.storage is None for n in toposort([root])):
        return root

    def visit(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
        t = node.dtype
        if node.op is ops.CAST and t.storage is not None:
            return _encoder(t, target)(Expr(src[0]), t).node
        if node.op is ops.CAST and (of := node.src[0].dtype).storage is not None:
            return _decoder(of, target)(Expr(src[0]), of).node
        if node.op is ops.BITCAST:  # one of the two may already be an integer
            return build.bitcast(src[0], t.storage or t)
        if node.op is ops.LOOP:
            outs = tuple([(shape, of.storage or of) for shape, of in node.arg.outs])
            return node.replace(src=src, arg=kernel_args.Loop(node.arg.id, outs))
        if t.storage is None:
            return None
        return UOp(node.op, t.storage, src, node.arg)
    return rebuild([root], visit)[0]


def has_float16_cast(target: Target) -> bool:
    """Return whether the target has instructions to convert float16."""
    return "+f16c" in target.features.split(",") or target.triple.startswith("aarch64")


def _encoder(t: DType, target: Target) -> Conversion:
    if t.kind == "key":
        return lambda x, t: x
    if not t.is_float:
        return _encode_integer
    if t is float16 and has_float16_cast(target):
        return lambda x, t: x.cast(t).bitcast(_storage_dtype(t))
    return _encode_bfloat16 if t.exponent == 8 else _encode_float


def _decoder(t: DType, target: Target) -> Conversion:
    if t.kind == "key":
        return lambda x, t: x
    if not t.is_float:
        return _decode_integer
    if t is float16 and has_float16_cast(target):
        return lambda x, t: x.bitcast(t).cast(float32)
    return _decode_bfloat16 if t.exponent == 8 else _decode_float


def _storage_dtype(t: DType) -> DType:
    assert t.storage is not None
    return t.storage


# ---- integers of less than a byte -------------------------------------------------------------


def _encode_integer(x: Expr, t: DType) -> Expr:
    return (x & (1 << t.bits) - 1).cast(_storage_dtype(t))


def _decode_integer(x: Expr, t: DType) -> Expr:
    return (x.cast(t.compute) << 32 - t.bits) >> 32 - t.bits


# ---- a truncated float32: bfloat16 ---------------------------------------------------------------


def _encode_bfloat16(x: Expr, t: DType) -> Expr:
    u, shift = x.bitcast(uint32), 23 - t.mantissa
    rounded = u + ((u >> shift & 1) + ((1 << shift - 1) - 1))
    return (where(x.ne(x), u | 1 << 22, rounded) >> shift).cast(_storage_dtype(t))


def _decode_bfloat16(x: Expr, t: DType) -> Expr:
    return (x.cast(uint32) << 23 - t.mantissa).bitcast(float32)


# ---- floats with a smaller exponent -------------------------------------------------------------


def _encode_float(x: Expr, t: DType) -> Expr:
    """Round by an integer addition; for subnormal results by a float addition.

    There the last bit of x + 2**k has the value of the smallest subnormal number.
    """
    u, shift = x.bitcast(int32), 23 - t.mantissa
    size = u & 0x7FFFFFFF
    rebased = size - (127 - t.bias << 23)
    rounded = (rebased + ((rebased >> shift & 1) + ((1 << shift - 1) - 1))) >> shift
    anchor = x.like(2.0 ** (24 - t.bias - t.mantissa))
    subnormal = (size.bitcast(float32) + anchor).bitcast(int32) - anchor.bitcast(int32)
    encoded = where(size < (128 - t.bias << 23), subnormal, rounded)
    inf = low_precision.infinity_bits(t)
    encoded = where(encoded > inf, low_precision.nan_bits(t), encoded) if t.has_no_inf else \
        minimum(encoded, inf)
    encoded = where(size > 0x7F800000, low_precision.nan_bits(t), encoded)
    return (encoded | (u >> 31 & 1) << t.bits - 1).cast(_storage_dtype(t))


def _decode_float(x: Expr, t: DType) -> Expr:
    """Rebase the exponent by a multiplication, which also handles subnormal numbers."""
    u = x.cast(int32)
    size, sign = u & (1 << t.bits - 1) - 1, u >> t.bits - 1 << 31
    scaled = (size << 23 - t.mantissa).bitcast(float32) * 2.0 ** (127 - t.bias)
    bits, inf = scaled.bitcast(int32), low_precision.infinity_bits(t)
    if not t.has_no_inf:
        bits = where(size.eq(inf), 0x7F800000, bits)
    return (where(size > inf, 0x7FC00000, bits) | sign).bitcast(float32)
