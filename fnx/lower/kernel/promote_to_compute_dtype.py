"""Promotion: compute storage-only dtypes in their compute dtype; each op rounds once.

    before  STORE(o[i], LOAD(x[i]) * LOAD(y[i]))                              (bfloat16)
    after   STORE(o[i], bfloat16(float32(LOAD(x[i])) * float32(LOAD(y[i]))))

What remains of such a dtype is loads, stores, carries, selects and conversions from and to its
``compute`` dtype: lower/legalize/emulate_unsupported_dtypes.py lowers that CAST to bit operations.

>>> from fnx.core.ir import dtypes
>>> i = build.range_(4, 0)
>>> x, o = (build.index_into(build.ref(s, dtypes.bfloat16, (4,)), i) for s in (0, 1))
>>> squares = build.kernel([build.store(o, build.mul(build.load(x), build.load(x)))], "f", (0,))
>>> value = promote_to_compute_dtype(squares).src[0].src[1]
>>> value.op, value.dtype, value.src[0].op, value.src[0].dtype
(CAST, bfloat16, MUL, float32)
"""

from __future__ import annotations

from fnx.core.ir import build, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.uop import UOp, rebuild, toposort
from fnx.core.support.errors import KernelError

_BITWISE_OPS = frozenset({ops.WHERE, ops.BITCAST})


def promote_to_compute_dtype(kernel: UOp) -> UOp:
    """Promote all ops of a KERNEL but CAST that compute in a storage-only dtype."""
    if all(n.dtype.storage is None for n in toposort([kernel])):
        return kernel
    return rebuild([kernel], _promote_node)[0]


def _promote_node(node: UOp, src: tuple[UOp, ...]) -> UOp | None:
    if node.op is ops.CAST:
        return _convert(src[0], node.dtype)
    if node.op is ops.REDUCE and node.dtype.storage is not None:
        reduced = build.reduce_ranges(_promote(src[0]), node.arg.monoid, src[1:])
        return build.cast(reduced, node.dtype)
    if node.op is ops.STORE and src[1].dtype.storage is not None and \
            node.arg not in (None, ops.STORE):
        raise KernelError(f"expected a type that is computed in, to combine with, got "
                          f"{src[1].dtype}", loc=node.loc, hint="combine in a float32 buffer")
    if node.op not in ops.ELEMENTWISE or node.op in _BITWISE_OPS or src[-1].dtype.storage is None:
        return None
    t = src[-1].dtype
    promoted = UOp(node.op, node.dtype if node.dtype is not t else t.compute,
                   tuple([_promote(s) for s in src]), node.arg)
    return build.cast(promoted, node.dtype)


def _promote(x: UOp) -> UOp:
    """Cast x to its compute dtype."""
    t = x.dtype.compute if x.dtype.storage is not None else x.dtype
    return build.const(build.const_of(x), t) if x.op is ops.CONST else build.cast(x, t)


def _convert(x: UOp, to: DType) -> UOp:
    """Convert through the compute dtypes of both."""
    if x.dtype.storage is None and to.storage is None:
        return build.cast(x, to)
    wide = _promote(x)
    if to.storage is None:
        return build.ne(wide, build.const_like(wide, 0)) if to.is_bool else build.cast(wide, to)
    if to.is_integer and wide.dtype.is_float:
        wide = _saturate(wide, to)
    return build.cast(build.cast(wide, to.compute), to)


def _saturate(x: UOp, to: DType) -> UOp:
    """Clamp a float to the limits of an integer dtype; NaN remains, and converts to 0."""
    low, high = (build.const_like(x, limit) for limit in to.limits)
    clamped_low = build.where(build.lt(x, low), low, x)
    return build.where(build.lt(high, clamped_low), high, clamped_low)
