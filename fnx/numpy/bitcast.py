"""Bitcasts of arrays to dtypes of equal or other widths, and byte swaps.

    uint32 (2, 3)  as uint8   ->  (2, 3, 4), the lowest bits first
    uint8 (2, 4)   as uint32  ->  (2,)
"""

from __future__ import annotations

from fnx.core.array import arguments, convert
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array, ArrayLike
from fnx.core.ir import build, dtypes
from fnx.core.ir.dtypes import DType
from fnx.core.ir.expr import Expr
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import DTypeError, ShapeError

__all__ = ["bitcast_convert_type", "byteswap", "view"]


@public_api
def bitcast_convert_type(operand: ArrayLike, new_dtype: convert.DTypeLike) -> Array:
    """Reinterpret the bits as another dtype. Another width adds or removes a last axis.

    Args:
        operand: an Array or array-like of any shape and any dtype except bool.
        new_dtype: a dtype of equal width; or a narrower one, which adds a last axis with the parts
            of each element, lowest bits first; or a wider one, which merges such a last axis.

    Returns:
        An Array.

    Raises:
        DTypeError: the operand or ``new_dtype`` is bool.
        ShapeError: the last axis does not hold the parts of one element.

    >>> import fnx.lax as lax, fnx.numpy as jnp
    >>> print(lax.bitcast_convert_type(1.0, "uint32"))
    1065353216
    >>> lax.bitcast_convert_type(jnp.asarray([1, 256], "int16"), "uint8")
    Array([[1, 0],
           [0, 1]], dtype=uint8)
    """
    return Array(_bitcast(asarray(operand)._node, convert.parse_dtype(new_dtype)))


def _bitcast(x: UOp, dst: DType) -> UOp:
    old, new = x.dtype.bits, dst.bits
    if x.dtype is dst:
        return x
    if old == new or x.dtype.is_bool or dst.is_bool:
        return build.bitcast(x, dst)
    bits, parts = _uint_dtype(old), _uint_dtype(new)
    words = Expr(build.bitcast(x, bits))
    if old > new:
        count = old // new
        shape = (*x.shape, count)
        k = build.expand(build.reshape(build.cast(build.iota(count), bits),
                                       (1,) * len(x.shape) + (count,)), shape)
        wide = Expr(build.expand(build.reshape(words.node, (*x.shape, 1)), shape))
        return build.bitcast(build.cast((wide >> Expr(k) * new).node, parts), dst)
    count = new // old
    if not x.shape or x.shape[-1] != count:
        raise ShapeError(f"expected a last axis of length {count}, which is one {dst}; got shape "
                         f"{x.shape} of {x.dtype}")
    total: Expr | None = None
    for i in range(count):
        part = build.shrink(words.node, [*[(0, n) for n in x.shape[:-1]], (i, i + 1)])
        shifted = Expr(build.cast(build.reshape(part, x.shape[:-1]), parts)) << i * old
        total = shifted if total is None else total | shifted
    assert total is not None
    return build.bitcast(total.node, dst)


def _uint_dtype(bits: int) -> DType:
    return next(t for t in dtypes.USER if t.kind == "uint" and t.bits == bits)


@public_api
def view(x: Array, dtype: convert.DTypeLike | None = None, type: None = None) -> Array:
    """Reinterpret the bits of x as another dtype. Another width changes the last axis.

    Args:
        dtype: the dtype of the result; None returns x. As bool, only 0 and 1 are meaningful.
        type: unsupported; must be None.

    Returns:
        An Array.

    Raises:
        ShapeError: the bits of the last axis do not divide into elements of ``dtype``.

    >>> import fnx.numpy as jnp
    >>> jnp.asarray(1.0).view("uint32")
    Array(1065353216, dtype=uint32)
    >>> jnp.zeros((2, 3), "int16").view("int8").shape
    (2, 6)
    """
    arguments.check_choice("type", type, (None,))
    if dtype is None:
        return x
    dst, node = convert.parse_dtype(dtype), x._node
    if dst.is_bool and dst is not node.dtype:
        return Array(Expr(view(x, "uint8")._node).ne(0).node)
    if node.dtype.is_bool and dst is not node.dtype:
        node = build.cast(node, _uint_dtype(8))
    old, new = node.dtype.bits, dst.bits
    if old < new:
        *lead, last = node.shape or (0,)
        if not node.shape or last * old % new:
            raise ShapeError(f"expected a last axis that is a multiple of {new // old}, got shape "
                             f"{node.shape} of {node.dtype} for {dst}")
        return Array(_bitcast(build.reshape(node, (*lead, last * old // new, new // old)), dst))
    if old > new and not node.shape:
        raise ShapeError(f"expected an array of at least one axis, as {old // new} elements of "
                         f"{dst} are one of {node.dtype}; got a 0-d one")
    out = _bitcast(node, dst)
    return Array(out if old == new else build.reshape(
        out, (*node.shape[:-1], node.shape[-1] * (old // new))))


@public_api
def byteswap(x: Array, inplace: bool = False) -> Array:
    """Reverse the byte order of each element.

    Args:
        inplace: must be False: arrays are immutable.

    Returns:
        An Array of the shape and dtype of x.

    Raises:
        ArgumentError: ``inplace`` is not False.
        DTypeError: x is an array of random keys.

    >>> import fnx.numpy as jnp
    >>> jnp.asarray([1], "int16").byteswap()
    Array([256], dtype=int16)
    """
    arguments.check_choice("inplace", inplace, (False,))
    if x._dtype.kind == "key":
        raise DTypeError("expected numbers, got keys of random numbers")
    if x._dtype.bits <= 8:
        return x
    octets = _bitcast(x._node, _uint_dtype(8))
    return Array(_bitcast(build.flip(octets, (x.ndim,)), x._dtype))
